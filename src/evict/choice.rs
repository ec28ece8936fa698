//! Choosing what to evict.

use super::ghost::{self, Id};
use super::{AGES, Evict, Hand, Judge, Newcomer, Victim, distance};
use crate::listener::RemovalCause;
use crate::sync::Relaxed;
use crate::table::reclaim::Guard;
use crate::table::word::Policy;
use crate::table::{Found, Map, Node, Rehash, Sample, Sampled};

/// Stamps at least this old are moved up to [`CLAMPED`], lest they wrap round and look young.
const CLAMP: u8 = 28;
const CLAMPED: u8 = 25;
/// Uses in the small region that make an entry worth keeping.
const PROMOTE: u8 = 1;
/// How many units younger an entry of main counts for each use.
const CREDIT: u8 = 3;

/// How far a hand looks before it chooses.
#[derive(Clone, Copy)]
struct Effort {
    /// Entries.
    sample: usize,
    /// Buckets beyond that for an entry of the small region, while that is over its share: a scan must
    /// not wear main down for want of one in a sample.
    further: usize,
}

/// Where each further bucket costs a cache miss.
const LARGE: Effort = Effort { sample: 10, further: 2 };
/// In a table of at most [`CACHED`] buckets of 64 bytes, which mostly is in a core's own cache.
const SMALL: Effort = Effort { sample: 12, further: 3 };
const CACHED: usize = 16 << 10;
/// Entries that may be spared (promoted, or counted down) before one is evicted regardless.
const SPARED: usize = 24;
/// Entries that may be counted down for a key that returned, before it is held to be worth no more than
/// they are.
const SPARED_FOR_RETURNED: usize = 3;
/// Stamps at least this old may be of entries that nobody asks for any more, such as those of a burst of
/// requests: their uses keep keys that come back out of main only so often. One that is asked for once in
/// so long keeps its uses.
const WORN: u8 = 24;

/// One eviction in progress.
struct Choice<'a, 'g, N, H, J>
where
    N: Node,
{
    evict: &'a Evict,
    map: &'g Map<N, H>,
    judge: &'a J,
    newcomer: &'a mut Newcomer<'g, N>,
    guard: &'g Guard,
    hand: &'a Hand,
    now: u8,
    spared: usize,
}

impl Evict {
    /// Evicts one entry other than the newcomer; `None` if there is none.
    ///
    /// Looks at a few buckets; at all of them only if nearly all are empty. Goes on for as long as other
    /// threads take away what it chose: then they have made progress.
    pub(crate) fn evict<'g, N: Node, H: Rehash<N>>(
        &self,
        map: &'g Map<N, H>,
        judge: &impl Judge<N>,
        newcomer: &mut Newcomer<'g, N>,
        guard: &'g Guard,
    ) -> Option<Victim<'g, N>> {
        let (hand, _) = self.hands.of(guard.stripe());
        let now = self.now(guard);
        Choice { evict: self, map, judge, newcomer, guard, hand, now, spared: 0 }.run()
    }
}

impl<'g, N: Node, H: Rehash<N>, J: Judge<N>> Choice<'_, 'g, N, H, J> {
    fn run(mut self) -> Option<Victim<'g, N>> {
        let (mut empty, mut steered) = (0, false);
        loop {
            let small_first = self.evict.small_is_over(self.newcomer.small, self.guard);
            let mut sample = Sample::new();
            let looked_at = self.gather(&mut sample, small_first);
            if self.judge.may_be_dead() {
                let dead = self.take_dead(&sample);
                if dead.is_some() {
                    return dead;
                }
            }
            if small_first && !sample.has_small_but(self.newcomer.node) {
                self.look_at_recent(&mut sample);
            }
            if let Some(main) = sample.first_of_main().filter(|_| !steered) {
                let (hand, own) = self.evict.hands.of(self.guard.stripe());
                let units = distance(self.now, main.age());
                self.evict.share.evicting(main.frequency(), units, &hand.pull, own);
                steered = true;
                // While small is due, main's oldest are passed over, however long that takes.
                if let Some(policy) = clamped(main, self.now) {
                    sample.stamp_first_of_main(policy);
                }
            }
            let mut met = false;
            while let Some(next) = sample.take_first(small_first, self.rank()) {
                if next.is(self.newcomer.node) {
                    continue;
                }
                met = true;
                if !small_first && self.is_refused(next.policy()) {
                    self.wear(next, &sample);
                    self.demote_returned();
                    sample.clear();
                } else if let Some(victim) = self.evict_or_spare(next) {
                    self.tell_of_returned();
                    return Some(victim);
                }
            }
            // Once round the table without meeting anything. Again, since buckets that were just being
            // moved were passed over.
            let round = looked_at > self.map.buckets(self.guard);
            empty += u8::from(!met && round && !sample.is_disturbed());
            if empty == 2 {
                return None;
            }
        }
    }

    /// How much an entry is due to go.
    #[inline]
    fn rank(&self) -> impl Fn(Policy) -> u8 + use<N, H, J> {
        let ranks = &RANKS[usize::from(self.now % AGES)];
        |policy| ranks[usize::from(policy.bits())]
    }

    /// Fills a sample from the next buckets; returns how many were looked at.
    #[inline]
    fn gather(&self, sample: &mut Sample<'g, N>, small_first: bool) -> usize {
        let buckets = self.map.buckets(self.guard);
        let effort = if buckets <= CACHED { SMALL } else { LARGE };
        let (mut looked_at, mut further) = (0, 0);
        let mut position = self.hand.position(self.guard);
        while looked_at <= buckets {
            if sample.len() >= effort.sample {
                if !small_first
                    || sample.has_small_but(self.newcomer.node)
                    || further == effort.further
                {
                    break;
                }
                further += 1;
            }
            position = self.map.sample(position, sample, self.rank(), self.guard);
            looked_at += 1;
        }
        self.hand.position.store(position, Relaxed);
        looked_at
    }

    /// Adds the buckets of this thread's last new entries, until there is one of the small region other
    /// than the protected one.
    #[cold]
    #[inline(never)]
    fn look_at_recent(&self, sample: &mut Sample<'g, N>) {
        while !sample.has_small_but(self.newcomer.node) {
            let Some(hash) = self.hand.recent.take() else { return };
            let buckets = self.map.buckets(self.guard) as u128;
            let position = ((u128::from(hash) * buckets) >> 64) as u64;
            self.map.sample(position, sample, self.rank(), self.guard);
        }
    }

    /// Whether the newcomer, which came back to main, is worth no more than the one of main that
    /// would have to go for it.
    ///
    /// It was asked for once in as many units as lie between its inserts. The other stays if it has been
    /// asked for as often, its insert counted too; so it may stay until it has had as much time to be used
    /// as the key took to come back. Given less, the keys of a loop would drive each other out of main
    /// before any is used, and none would hit.
    fn is_refused(&self, policy: Policy) -> bool {
        let Some((_, interval)) = self.newcomer.returned else { return false };
        let (uses, units) = (policy.frequency(), distance(self.now, policy.age()));
        let often = (uses + 1) * interval.max(1) >= units;
        policy.is_main() && (often || uses > 0 && self.spared >= SPARED_FOR_RETURNED)
    }

    /// Takes a use off the one of main for which a key was refused, and off the others of the sample, if
    /// those may be long past. The uses of an entry hide its age, so that those with many are rarely next.
    #[cold]
    fn wear(&self, stays: Sampled<'g, N>, sample: &Sample<'g, N>) {
        for old in sample.iter().chain([stays]) {
            let policy = old.policy();
            if policy.is_main() && distance(self.now, policy.age()) >= WORN {
                self.spare(&old.found(self.guard));
            }
        }
    }

    /// Moves the newcomer, which came back to main, to the small region.
    #[cold]
    fn demote_returned(&mut self) {
        let Some((hash, _)) = self.newcomer.returned.take() else { return };
        let mut returned = None;
        self.map.visit(hash, self.guard, |found| {
            if std::ptr::eq(found.node(), self.newcomer.node) {
                returned = Some(found);
            }
        });
        let Some(found) = returned.filter(|found| found.policy().is_main()) else { return };
        let policy = Policy::new(false, found.policy().frequency(), found.policy().age());
        if found.stamp(policy).is_some() {
            self.newcomer.small = self.weight(&found);
            self.hand.recent.note(hash);
        }
    }

    /// Lets the share know of the newcomer, if it came back and was not refused. One that is not
    /// worth a place of main's is not worth one that small would take from main either.
    #[inline]
    fn tell_of_returned(&mut self) {
        if let Some((_, interval)) = self.newcomer.returned.take() {
            let (hand, own) = self.evict.hands.of(self.guard.stripe());
            self.evict.share.returned(interval, &hand.stay, &hand.pull, own);
        }
    }

    fn weight(&self, found: &Found<'g, N>) -> i64 {
        i64::try_from(self.judge.weight(found.node())).unwrap_or(i64::MAX)
    }

    /// Evicts an entry, unless it deserves to stay or is not to be had any more.
    fn evict_or_spare(&mut self, mut next: Sampled<'g, N>) -> Option<Victim<'g, N>> {
        if let Some(policy) = clamped(next.policy(), self.now) {
            next.stamp(policy);
        }
        let found = next.found(self.guard);
        // A small cache is gone round several times before all uses are counted down.
        if self.spared < SPARED && self.spare(&found) {
            self.spared += 1;
            return None;
        }
        if !self.map.remove(&found, self.guard) {
            return None;
        }
        if !found.policy().is_main() {
            let (words, place) = self.map.ghosts_at(next.bucket(), self.guard);
            let born = found.policy().age();
            ghost::put(words, Id::new(place, found.tag()), born, self.now);
            self.hand.stay.note(distance(self.now, born));
        }
        Some(Victim { found, cause: RemovalCause::Evicted })
    }

    /// Lets an entry stay if it was used: promotes it from small to main, or counts it down in main.
    /// Returns whether it stays.
    fn spare(&self, found: &Found<'g, N>) -> bool {
        let policy = found.policy();
        if policy.is_main() {
            let used = policy.frequency();
            if used == 0 {
                return false;
            }
            // Lost race: it was used again, or it is gone; either way not ours to evict now.
            let _ = found.stamp(Policy::new(true, used - 1, self.now));
            return true;
        }
        if policy.frequency() < PROMOTE {
            return false;
        }
        if found.stamp(Policy::new(true, 0, self.now)).is_some() {
            self.evict.move_small(-self.weight(found), self.guard);
        }
        true
    }

    fn take_dead(&self, sample: &Sample<'g, N>) -> Option<Victim<'g, N>> {
        sample.iter().find_map(|sampled| {
            let found = sampled.found(self.guard);
            let cause = self.judge.death(found.node())?;
            self.map.remove(&found, self.guard).then_some(Victim { found, cause })
        })
    }
}

/// For each age of the clock and each policy how much an entry is due to go. A table: a hand ranks a dozen
/// entries and more for each eviction.
static RANKS: [[u8; 256]; AGES as usize] = {
    let mut table = [[0; 256]; AGES as usize];
    let mut at = 0;
    while at < table.len() * 256 {
        let (now, bits) = (at / 256, at % 256);
        table[now][bits] = rank(Policy::from_bits(bits as u8), now as u8);
        at += 1;
    }
    table
};

/// Above zero; the oldest first, where in main each use counts for some units of youth, and of equally old
/// ones the one that was used less.
const fn rank(policy: Policy, now: u8) -> u8 {
    let credit = if policy.is_main() { CREDIT * policy.frequency() } else { 0 };
    let unused = Policy::MAX_FREQUENCY - policy.frequency();
    1 + 4 * distance(now, policy.age()).saturating_sub(credit) + unused
}

/// Keeps a very old stamp from wrapping round: the policy to give the entry instead, if it has one.
#[inline]
fn clamped(policy: Policy, now: u8) -> Option<Policy> {
    (distance(now, policy.age()) >= CLAMP).then(|| {
        let age = now.wrapping_sub(CLAMPED) % AGES;
        Policy::new(policy.is_main(), policy.frequency(), age)
    })
}
