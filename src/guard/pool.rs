//! A number of permits, or of places to wait, and how many of them are in use.
//!
//! While there is a limit they are counted in one word:
//!
//! ```text
//! 63..56 change count     55..30 in use by background work     29..0 in use
//! ```
//!
//! A permit is taken by one CAS from a word that shows room for it, never by adding first and looking
//! then: nobody is refused because of another caller who is about to be refused. Each change of a
//! limit raises the change count, so a CAS that was prepared under the old limit fails.
//!
//! Without a limit each thread counts in a stripe of its own: loads of different keys then write no line in
//! common. What was taken so counts under a limit that is set later, and is given back to the stripes.

use crate::sync::{
    AcqRel, Acquire, AtomicBool, AtomicI64, AtomicU64, Padded, Relaxed, Release, Stripe, Striped,
};

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

/// What was taken, to be given back.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    priority: Priority,
    /// There was no limit: counted by stripes.
    free: bool,
}

#[derive(Debug)]
pub(super) struct Pool {
    word: Padded<AtomicU64>,
    /// 0: no limit.
    limit: AtomicU64,
    /// Of the limit, for background work: the bits of a number from 0 to 1.
    share: AtomicU64,
    /// Whether there ever was no limit.
    was_free: AtomicBool,
    free: Striped<Free>,
    /// The stripe of the calling thread.
    stripe: fn() -> Stripe,
}

/// What was taken while there was no limit: one thread's part of the sums, which may be below zero.
#[derive(Debug, Default)]
struct Free {
    all: AtomicI64,
    background: AtomicI64,
}

/// How many are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InUse {
    all: u64,
    background: u64,
}

fn in_word(word: u64) -> InUse {
    InUse {
        all: word & ((1 << BACKGROUND) - 1),
        background: word >> BACKGROUND & ((1 << (CHANGE - BACKGROUND)) - 1),
    }
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
    pub(super) fn new(limit: u64, share: f64, stripe: fn() -> Stripe) -> Self {
        Pool {
            word: Padded(AtomicU64::new(0)),
            limit: AtomicU64::new(limit),
            share: AtomicU64::new(share.to_bits()),
            was_free: AtomicBool::new(limit == 0),
            free: Striped::new(),
            stripe,
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub(super) fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Relaxed))
    }

    pub(super) fn set_limit(&self, limit: u64) {
        if limit == 0 {
            // ORDERING: Relaxed: published by the change (G1).
            self.was_free.store(true, Relaxed);
        }
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
        self.count(self.word.load(Relaxed)).all
    }

    /// What is in use by a word and, if there ever was no limit, by the stripes.
    fn count(&self, word: u64) -> InUse {
        let counted = in_word(word);
        // ORDERING: Relaxed: set before the change that the word tells of (G1).
        if !self.was_free.load(Relaxed) {
            return counted;
        }
        // ORDERING (G2, G6): Acquire: as of the word, in `take`.
        let sum = |part: fn(&Free) -> &AtomicI64| {
            let sum = self.free.iter().map(|free| part(free).load(Acquire)).sum::<i64>();
            u64::try_from(sum).unwrap_or(0)
        };
        InUse {
            all: counted.all + sum(|free| &free.all),
            background: counted.background + sum(|free| &free.background),
        }
    }

    fn room(&self, word: u64, limit: u64, priority: Priority) -> Result<(), Full> {
        let in_use = self.count(word);
        let most = limit.min(MOST);
        if in_use.all >= most {
            return Err(Full::All(most));
        }
        if priority == Priority::Foreground {
            return Ok(());
        }
        let most = background_limit(limit, self.share()).min(MOST_BACKGROUND);
        if in_use.background >= most { Err(Full::Background(most)) } else { Ok(()) }
    }

    /// Whether there is room now.
    pub(super) fn look(&self, priority: Priority) -> Result<(), Full> {
        // ORDERING (G1): Acquire, as in `take`. (G6): who finds no room finds the key's load, if it was
        // that.
        let word = self.word.load(Acquire);
        match self.limit() {
            0 => Ok(()),
            limit => self.room(word, limit, priority),
        }
    }

    pub(super) fn take(&self, priority: Priority) -> Result<Taken, Full> {
        // ORDERING (G1): Acquire: the limit read next is no older than the word's change count.
        let mut word = self.word.load(Acquire);
        loop {
            let limit = self.limit();
            if limit == 0 {
                return Ok(self.take_free(priority));
            }
            self.room(word, limit, priority)?;
            let taken = word + one(priority);
            // ORDERING (G1, G2): Acquire: the limit, on failure; what the call that had this permit
            // before told the breaker, on success. (G6): Release: the place that the load has claimed.
            match self.word.compare_exchange(word, taken, AcqRel, Acquire) {
                Ok(_) => return Ok(Taken { priority, free: false }),
                // Others took or gave back, or the limit was changed: look again.
                Err(now) => word = now,
            }
        }
    }

    /// Takes one beyond any limit.
    pub(super) fn take_regardless(&self, priority: Priority) -> Taken {
        // ORDERING (G2, G6): as in `take`.
        self.word.fetch_add(one(priority), AcqRel);
        Taken { priority, free: false }
    }

    fn take_free(&self, priority: Priority) -> Taken {
        self.add_free(priority, 1);
        Taken { priority, free: true }
    }

    fn add_free(&self, priority: Priority, amount: i64) {
        let (free, own) = self.free.of((self.stripe)());
        add(&free.all, amount, own);
        if priority == Priority::Background {
            add(&free.background, amount, own);
        }
    }

    pub(super) fn give_back(&self, taken: Taken) {
        if taken.free {
            self.add_free(taken.priority, -1);
        } else {
            // ORDERING (G2): Release: what this call told the breaker, for who takes the permit next.
            self.word.fetch_sub(one(taken.priority), Release);
        }
    }
}

/// Adds to a stripe; without a locked instruction if no other thread writes it.
fn add(count: &AtomicI64, amount: i64, own: bool) {
    // ORDERING (G2, G6): Release, as of the word.
    if own {
        count.store(count.load(Relaxed).wrapping_add(amount), Release);
    } else {
        count.fetch_add(amount, Release);
    }
}
