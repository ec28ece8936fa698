//! A bounded number of permits, or of places to wait, counted in one word.
//!
//! ```text
//! 63..56 change count     55..30 in use by background work     29..0 in use
//! ```
//!
//! A permit is taken by one CAS from a word that shows room for it, never by adding first and looking
//! then: nobody is refused because of another caller who is about to be refused. Each change of a
//! limit raises the change count, so a CAS that was prepared under the old limit fails.

use crate::sync::{AcqRel, Acquire, AtomicU64, Padded, Relaxed, Release};

use super::Priority;

const BACKGROUND: u32 = 30;
const CHANGE: u32 = 56;

/// More than can ever be in use: each takes memory elsewhere. Half of what the field holds, so that
/// threads that have looked, but not yet added, do not overflow it.
const MOST: u64 = 1 << (BACKGROUND - 1);
const MOST_BACKGROUND: u64 = 1 << (CHANGE - BACKGROUND - 1);

/// Why nothing could be taken, and the limit that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    All(u64),
    Background(u64),
}

#[derive(Debug)]
pub(super) struct Pool {
    word: Padded<AtomicU64>,
    /// 0: no limit.
    limit: AtomicU64,
    /// Of the limit, for background work: the bits of a number from 0 to 1.
    share: AtomicU64,
}

fn in_use(word: u64) -> u64 {
    word & ((1 << BACKGROUND) - 1)
}

fn in_use_by_background(word: u64) -> u64 {
    word >> BACKGROUND & ((1 << (CHANGE - BACKGROUND)) - 1)
}

fn one(priority: Priority) -> u64 {
    match priority {
        Priority::Foreground => 1,
        Priority::Background => 1 | 1 << BACKGROUND,
    }
}

/// A share above zero is good for one permit at least.
fn background_limit(limit: u64, share: f64) -> u64 {
    if share == 0.0 { 0 } else { ((limit as f64 * share) as u64).clamp(1, limit) }
}

impl Pool {
    pub(super) fn new(limit: u64, share: f64) -> Self {
        Pool {
            word: Padded(AtomicU64::new(0)),
            limit: AtomicU64::new(limit),
            share: AtomicU64::new(share.to_bits()),
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub(super) fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Relaxed))
    }

    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
        self.changed();
    }

    pub(super) fn set_share(&self, share: f64) {
        self.share.store(share.to_bits(), Relaxed);
        self.changed();
    }

    fn changed(&self) {
        // ORDERING (G1): Release; who loads this word, or one made from it, sees the new setting.
        self.word.fetch_add(1 << CHANGE, Release);
    }

    pub(super) fn in_use(&self) -> u64 {
        in_use(self.word.load(Relaxed))
    }

    fn room(&self, word: u64, limit: u64, priority: Priority) -> Result<(), Full> {
        let most = if limit == 0 { MOST } else { limit.min(MOST) };
        if in_use(word) >= most {
            return Err(Full::All(most));
        }
        if priority == Priority::Foreground {
            return Ok(());
        }
        let most = if limit == 0 { u64::MAX } else { background_limit(limit, self.share()) };
        let most = most.min(MOST_BACKGROUND);
        if in_use_by_background(word) >= most { Err(Full::Background(most)) } else { Ok(()) }
    }

    /// Whether there is room now.
    pub(super) fn look(&self, priority: Priority) -> Result<(), Full> {
        // ORDERING (G1): Acquire, as in `take`. (G6): who finds no room finds the key's load, if it was
        // that.
        let word = self.word.load(Acquire);
        self.room(word, self.limit(), priority)
    }

    pub(super) fn take(&self, priority: Priority) -> Result<(), Full> {
        // ORDERING (G1): Acquire: the limit read next is no older than the word's change count.
        let mut word = self.word.load(Acquire);
        loop {
            let limit = self.limit();
            self.room(word, limit, priority)?;
            if limit == 0 {
                self.take_regardless(priority);
                return Ok(());
            }
            let taken = word + one(priority);
            // ORDERING (G1, G2): Acquire: the limit, on failure; what the call that had this permit
            // before told the breaker, on success. (G6): Release: the place that the load has claimed.
            match self.word.compare_exchange(word, taken, AcqRel, Acquire) {
                Ok(_) => return Ok(()),
                // Others took or gave back, or the limit was changed: look again.
                Err(now) => word = now,
            }
        }
    }

    /// Takes one beyond any limit.
    pub(super) fn take_regardless(&self, priority: Priority) {
        // ORDERING (G2, G6): as in `take`.
        self.word.fetch_add(one(priority), AcqRel);
    }

    pub(super) fn give_back(&self, priority: Priority) {
        // ORDERING (G2): Release: what this call told the breaker, for who takes the permit next.
        self.word.fetch_sub(one(priority), Release);
    }
}
