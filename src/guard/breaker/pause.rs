//! The end of the present pause, with the era it belongs to, in one word.
//!
//! ```text
//! 63..48 era, its lowest bits     47..0 end, in milliseconds modulo 2^48; all ones: never
//! ```
//!
//! The word follows the breaker's word: whoever meets an era without an end writes one. So an era has an
//! end even if the thread that began it has stopped in between.
//!
//! A word of another era is of an earlier one: it was loaded before the breaker's word said that this era
//! lasts, and who writes one has seen its era before (G5).

use crate::sync::{Acquire, AtomicU64, Release};

const TAG: u32 = 48;
const NEVER: u64 = (1 << TAG) - 1;

/// Longer pauses have no end; half of what the word can tell apart.
const LONGEST: u64 = 1 << (TAG - 1);

#[derive(Debug)]
pub(super) struct Pause(AtomicU64);

/// What the word says of an era.
fn end_in(word: u64, era: u32) -> Option<u64> {
    ((word >> TAG) as u16 == era as u16).then_some(word & NEVER)
}

/// From a moment to an end.
fn left(end: u64, now: u64) -> u64 {
    if end == NEVER {
        return u64::MAX;
    }
    let left = (end.wrapping_sub(now) << (64 - TAG)) as i64 >> (64 - TAG);
    left.max(0) as u64
}

impl Pause {
    pub(super) fn new() -> Self {
        Pause(AtomicU64::new(0))
    }

    /// Returns how much of this era's pause is left; `None` if it has none yet.
    pub(super) fn left(&self, era: u32, now: u64) -> Option<u64> {
        // ORDERING (G5, G6): Acquire, as in `write`.
        let word = self.0.load(Acquire);
        end_in(word, era).map(|end| left(end, now))
    }

    /// Gives an era its pause from now on, unless it has one, as long as it lasts.
    pub(super) fn begin(&self, era: u32, now: u64, pause: u64, lasts: impl Fn() -> bool) {
        self.write(era, now, pause, lasts, |_| false);
    }

    /// Makes the pause of an era last for so long from now on, as long as it lasts.
    pub(super) fn extend(&self, era: u32, now: u64, pause: u64, lasts: impl Fn() -> bool) {
        self.write(era, now, pause, lasts, |end| left(end, now) < pause);
    }

    fn write(
        &self,
        era: u32,
        now: u64,
        pause: u64,
        lasts: impl Fn() -> bool,
        replaces: impl Fn(u64) -> bool,
    ) {
        let end = match now.checked_add(pause) {
            // One early rather than never.
            Some(end) if pause < LONGEST => (end & NEVER).min(NEVER - 1),
            _ => NEVER,
        };
        let next = u64::from(era as u16) << TAG | end;
        // ORDERING (G5): Acquire: if this word is of a later era, `lasts` sees that era.
        let mut word = self.0.load(Acquire);
        loop {
            if end_in(word, era).is_some_and(|end| !replaces(end)) || !lasts() {
                return;
            }
            // ORDERING (G5, G6): Release: that this era has begun; the place that a probe's load has
            // claimed. Acquire on failure, as above.
            match self.0.compare_exchange(word, next, Release, Acquire) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}
