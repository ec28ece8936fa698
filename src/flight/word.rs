//! A flight's state and the number of its participants, in one atomic word.
//!
//! ```text
//! 34 SHARED   33 CLOSED   32 DONE   31..0 participants
//! ```
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | W1 | `finish` sets DONE | loads of the word | the result |
//! | W2 | `leave` of the others | the `leave` that closes | what they did with the load, which is now dropped |

use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};

/// The answer is there.
const DONE: u64 = 1 << 32;
/// The last participant left before there was an answer: nobody may join any more.
const CLOSED: u64 = 1 << 33;
/// With DONE: there was more than one participant at that moment.
const SHARED: u64 = 1 << 34;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Done,
    Closed,
}

#[derive(Debug)]
pub(super) struct Word(AtomicU64);

fn phase_of(word: u64) -> Phase {
    match word & (DONE | CLOSED) {
        0 => Phase::Running,
        CLOSED => Phase::Closed,
        _ => Phase::Done,
    }
}

impl Word {
    /// Of a running flight with one participant.
    pub(super) fn new() -> Word {
        Word(AtomicU64::new(1))
    }

    pub(super) fn phase(&self) -> Phase {
        // ORDERING (W1): Acquire, for who finds DONE.
        phase_of(self.0.load(Acquire))
    }

    pub(super) fn participants(&self) -> u64 {
        // ORDERING: Relaxed: a number, for people.
        self.0.load(Relaxed) & (DONE - 1)
    }

    /// Whether the answer was for more than one participant.
    pub(super) fn is_shared(&self) -> bool {
        // ORDERING: Relaxed: asked by who has seen the answer, and the bit came with DONE.
        self.0.load(Relaxed) & SHARED != 0
    }

    /// Becomes a participant of a flight that is running. Looking at the phase and counting are one
    /// step, so that nobody joins a flight that is being dropped.
    pub(super) fn join(&self) -> Phase {
        let mut word = self.0.load(Acquire);
        while phase_of(word) == Phase::Running {
            match self.0.compare_exchange(word, word + 1, AcqRel, Acquire) {
                Ok(_) => return Phase::Running,
                Err(now) => word = now,
            }
        }
        phase_of(word)
    }

    /// Stops being a participant. Returns whether this closed the flight: it was running, and nobody
    /// else is left.
    pub(super) fn leave(&self) -> bool {
        let mut word = self.0.load(Acquire);
        loop {
            let closes = word == 1;
            let next = if closes { CLOSED } else { word - 1 };
            // ORDERING (W2): Release for who leaves, Acquire for the last one out.
            match self.0.compare_exchange(word, next, AcqRel, Acquire) {
                Ok(_) => return closes,
                Err(now) => word = now,
            }
        }
    }

    /// Ends a flight that nobody will answer; returns whether this call did.
    pub(super) fn close(&self) -> bool {
        let mut word = self.0.load(Acquire);
        while phase_of(word) == Phase::Running {
            match self.0.compare_exchange(word, word | CLOSED, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Ends a flight without an answer, if its one participant has that already; returns whether it is so.
    pub(super) fn close_alone(&self) -> bool {
        // ORDERING: Relaxed: who finds it closed looks elsewhere.
        self.0.compare_exchange(1, 1 | CLOSED, Relaxed, Relaxed).is_ok()
    }

    /// Notes that the answer is there; returns whether anybody may be waiting for it.
    pub(super) fn finish(&self) -> bool {
        let mut word = self.0.load(Acquire);
        loop {
            if phase_of(word) != Phase::Running {
                return false;
            }
            let shared = if word & (DONE - 1) > 1 { SHARED } else { 0 };
            // ORDERING (W1): Release publishes the result.
            match self.0.compare_exchange(word, word | DONE | shared, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }
}
