//! The last calls of an era and how many of them failed or were slow, in one word.
//!
//! ```text
//! 63..52 era, its lowest bits   51 an earlier half is there
//! 50..41 calls   40..31 failed   30..21 slow      of the present half
//!                20..11 failed    10..1 slow      of the half before
//! ```
//!
//! A window of n calls is kept as two halves. A full half takes the place of the one before. So the rate
//! is that of the last n/2 to n calls, and every call sees all that were counted before it: no two
//! failures miss each other.
//!
//! A word of another era is of an earlier one, as in [`pause`](super::pause).

use crate::sync::{Acquire, AtomicU64, Padded, Release};

const WIDTH: u32 = 10;
const MASK: u64 = (1 << WIDTH) - 1;
const TAG: u32 = 52;
const EARLIER: u64 = 1 << 51;
const CALLS: u32 = 41;
const FAILED: u32 = 31;
const SLOW: u32 = 21;
const FAILED_BEFORE: u32 = 11;
const SLOW_BEFORE: u32 = 1;

/// The largest half.
pub(super) const MOST: u64 = MASK;

/// How many calls, and what of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) slow: u64,
}

#[derive(Debug)]
pub(super) struct Window(Padded<AtomicU64>);

fn field(word: u64, shift: u32) -> u64 {
    word >> shift & MASK
}

fn fresh(era: u32) -> u64 {
    u64::from(era) << TAG
}

fn totals(word: u64, half: u64) -> Totals {
    let before = if word & EARLIER == 0 { 0 } else { half };
    Totals {
        calls: field(word, CALLS) + before,
        failed: field(word, FAILED) + field(word, FAILED_BEFORE),
        slow: field(word, SLOW) + field(word, SLOW_BEFORE),
    }
}

/// Puts a full half in the place of the one before.
fn turned(word: u64) -> u64 {
    word & fresh(u32::MAX)
        | EARLIER
        | field(word, FAILED) << FAILED_BEFORE
        | field(word, SLOW) << SLOW_BEFORE
}

impl Window {
    pub(super) fn new() -> Self {
        Window(Padded(AtomicU64::new(0)))
    }

    /// Counts a call of an era, as long as that lasts, and returns the totals with it.
    pub(super) fn record(
        &self,
        era: u32,
        half: u64,
        call: Totals,
        lasts: impl Fn() -> bool,
    ) -> Option<Totals> {
        let call = call.calls << CALLS | call.failed << FAILED | call.slow << SLOW;
        // ORDERING (G5): Acquire: if this word is of a later era, `lasts` sees that era.
        let mut word = self.0.load(Acquire);
        loop {
            if !lasts() {
                return None;
            }
            let of_era = (word ^ fresh(era)) >> TAG == 0;
            let counted = if of_era { word + call } else { fresh(era) + call };
            let totals = totals(counted, half);
            let next = if field(counted, CALLS) >= half { turned(counted) } else { counted };
            // ORDERING (G5): Release: that this era has begun. Acquire on failure, as above.
            match self.0.compare_exchange(word, next, Release, Acquire) {
                Ok(_) => return Some(totals),
                Err(now) => word = now,
            }
        }
    }
}
