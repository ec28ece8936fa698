//! The small region's share of the capacity, which follows what returns and evictions tell.
//!
//! Two signals are weighed against each other, both in uses for each place and unit of time. A key that
//! comes back little later than the small region keeps entries would have been found if the region were
//! a little larger. The uses of the entry of main that is next to go would be lost if main were a little
//! smaller. Where both are equally many, the share rests.

use crate::sync::{AtomicI64, AtomicU64, Cell, Padded, Relaxed};

/// The whole capacity, as a share.
const WHOLE: i64 = 1 << 40;
/// One use for each place and unit of time, as a signal.
pub(super) const USE: i64 = 1 << 10;
/// How much a return within [`NEAR`] counts. It is one of the keys evicted in the last one and a quarter
/// units: four fifths of a use. Half as much again, since of what main loses only the uses up to the cap
/// are seen.
const RETURN: i64 = USE * 6 / 5;
/// A unit of age, as a stay in the small region.
const UNIT: u64 = 1 << 8;
/// Keys that come back at most this much later than entries stay tell that the small region is too small.
const NEAR: u64 = UNIT * 5 / 4;
/// Entries that the share moves for a signal of one use.
const STRIDE: i64 = 12;
/// By how much each eviction moves a share above its resting place back to it, as a signal: when the
/// kind of the requests changes there may be neither returns nor uses to tell.
const REST: i64 = USE / 200;
/// The least and the largest share.
const LEAST: i64 = WHOLE / 100;
const MOST: i64 = WHOLE / 5 * 4;

/// How long the entries that a hand evicted from the small region had been there: the mean of some sixteen.
///
/// The stay of one entry tells little, since a sample may pass it over for long or meet it early.
#[derive(Debug, Default)]
pub(super) struct Stay(AtomicU64);

impl Stay {
    /// Relaxed: a lost race loses one entry of the mean.
    #[inline]
    pub(super) fn note(&self, units: u8) {
        let mean = self.0.load(Relaxed);
        self.0.store(mean - mean / 16 + u64::from(units) * UNIT / 16, Relaxed);
    }

    fn is_near(&self, interval: u8) -> bool {
        u64::from(interval) * UNIT <= self.0.load(Relaxed) + NEAR
    }
}

#[derive(Debug)]
pub(super) struct Share {
    /// Of [`WHOLE`].
    level: Padded<AtomicI64>,
    /// How far a signal of one moves the level.
    step: AtomicI64,
    /// Where the level begins and rests.
    rest: i64,
}

impl Share {
    pub(super) fn new(fraction: f64, capacity: u64) -> Share {
        let rest = (fraction * WHOLE as f64) as i64;
        let share = Share { level: Padded(AtomicI64::new(rest)), step: AtomicI64::new(0), rest };
        share.scale(capacity);
        share
    }

    /// Sets the stride for a cache of so many entries.
    pub(super) fn scale(&self, entries: u64) {
        let entries = i64::try_from(entries).unwrap_or(i64::MAX).max(STRIDE);
        self.step.store(WHOLE / USE * STRIDE / entries, Relaxed);
    }

    /// The weight that the small region may have.
    pub(super) fn of(&self, capacity: u64) -> i64 {
        let product = u128::from(capacity) * u128::from(self.level.load(Relaxed).unsigned_abs());
        let weight = (product + WHOLE as u128 / 2) / WHOLE as u128;
        (weight as i64).max(1)
    }

    /// A key was inserted again after so many units, having been evicted from the small region.
    pub(super) fn returned(&self, interval: u8, stay: &Stay, pull: &Cell, own: bool) {
        if stay.is_near(interval) {
            self.pull(RETURN, pull, own);
        }
    }

    /// An entry is about to be evicted, and the next of main to go was used so often in so many units.
    pub(super) fn evicting(&self, uses: u8, units: u8, pull: &Cell, own: bool) {
        let lost = USE * i64::from(uses) / i64::from(units.max(1));
        let back = if self.level.load(Relaxed) > self.rest { REST } else { 0 };
        if lost + back > 0 {
            self.pull(-lost - back, pull, own);
        }
    }

    /// Gathers signals, and moves the level once they amount to a thousandth of the capacity.
    fn pull(&self, signal: i64, pull: &Cell, own: bool) {
        let sum = pull.add(signal, own);
        let way = sum.saturating_mul(self.step.load(Relaxed));
        if way.abs() >= WHOLE / 1024 {
            pull.take(own);
            let (least, most) = (LEAST.min(self.rest), MOST.max(self.rest));
            // A lost race loses a few signals.
            let level = self.level.load(Relaxed).saturating_add(way).clamp(least, most);
            self.level.store(level, Relaxed);
        }
    }
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1000;

    fn at(fraction: f64) -> (Share, Cell) {
        (Share::new(fraction, CAPACITY), Cell::default())
    }

    #[test]
    fn the_share_begins_where_it_was_set() {
        assert_eq!(at(0.05).0.of(CAPACITY), 50);
        assert_eq!(at(0.0).0.of(CAPACITY), 1);
        assert_eq!(at(1.0).0.of(CAPACITY), 1000);
    }

    #[test]
    fn early_returns_enlarge_it_and_late_ones_do_not() {
        let (share, pull) = at(0.05);
        let stay = Stay::default();
        (0..100).for_each(|_| stay.note(5));
        share.returned(7, &stay, &pull, true);
        assert_eq!(share.of(CAPACITY), 50);
        share.returned(6, &stay, &pull, true);
        assert_eq!(share.of(CAPACITY), 50 + 14);
        for _ in 0..1000 {
            share.returned(0, &Stay::default(), &pull, true);
        }
        assert_eq!(share.of(CAPACITY), 800);
    }

    #[test]
    fn uses_of_what_main_would_lose_shrink_it() {
        let (share, pull) = at(0.5);
        share.evicting(3, 6, &pull, true);
        assert_eq!(share.of(CAPACITY), 500 - 6);
        for _ in 0..1000 {
            share.evicting(3, 6, &pull, true);
        }
        assert_eq!(share.of(CAPACITY), 10);
    }

    #[test]
    fn without_uses_it_returns_to_its_resting_place() {
        let (share, pull) = at(0.05);
        for _ in 0..1000 {
            share.returned(0, &Stay::default(), &pull, true);
        }
        for _ in 0..20_000 {
            share.evicting(0, 9, &pull, true);
        }
        assert!((45..=50).contains(&share.of(CAPACITY)), "{}", share.of(CAPACITY));
    }

    #[test]
    fn small_signals_add_up_in_a_large_cache() {
        let (share, pull) = (Share::new(0.05, 1 << 30), Cell::default());
        share.returned(0, &Stay::default(), &pull, true);
        assert_eq!(share.of(1 << 30), (1 << 30) / 20);
        for _ in 0..1 << 20 {
            share.returned(0, &Stay::default(), &pull, true);
        }
        let grown = share.of(1 << 30) - (1 << 30) / 20;
        let expected = (1 << 20) * 14;
        assert!((grown - expected).abs() < expected / 8, "{grown}");
    }
}
