//! A filter that forgets.
//!
//! Two generations; inserts go to the current one, queries look into both. A rotation makes three steps:
//! it announces itself in the state, clears the previous generation, and makes that the current one. The
//! invariants and pairs are those of `rebuild`: an insert repeats if the state has changed (I2), and so
//! does a query that found nothing (I3). Without the announcement, a query could miss a key that was
//! inserted anew after the query had looked at the current generation, and cleared in the previous one
//! before it looked there.

use super::error::SizeError;
use super::filter::Filter;
use super::key::BloomKey;
use super::sizing::Plan;
use crate::sync::{AcqRel, Acquire, AtomicU64, Padded, Relaxed, Release};

/// Bit 0: a rotation is going on. Bit 1: the current generation. The rest counts the rotations.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    #[inline]
    fn current(self) -> usize {
        (self.0 >> 1 & 1) as usize
    }

    #[inline]
    fn previous(self) -> usize {
        self.current() ^ 1
    }

    fn is_rotating(self) -> bool {
        self.0 & 1 != 0
    }

    /// The start of a rotation after none, and its end after that.
    fn next(self) -> Self {
        State(self.0.wrapping_add(1))
    }
}

/// A set of keys that were seen lately: each is remembered until the second [rotation](Self::rotate)
/// after its last insert.
///
/// A query that comes after an insert returned never denies the key before that. The rate of false
/// positives is at most twice that of the plan, since two generations are asked. A key that is inserted
/// again is remembered anew.
///
/// Queries and inserts take no lock and do not allocate; the memory of both generations is allocated
/// at first and used for ever.
///
/// ```
/// use seawall::bloom::{AgeingFilter, plan};
///
/// // The plan is for the keys of one period.
/// let seen = AgeingFilter::new(&plan(10_000, 0.005)?)?;
/// seen.insert("alice");
/// seen.rotate();
/// assert!(seen.contains("alice"));
/// seen.rotate();
/// assert!(!seen.contains("alice"));
/// # Ok::<(), seawall::bloom::SizeError>(())
/// ```
#[derive(Debug)]
pub struct AgeingFilter {
    state: Padded<AtomicU64>,
    generations: [Filter; 2],
}

impl AgeingFilter {
    /// Returns an empty filter with the seed 0, with two generations of a plan's size.
    ///
    /// # Errors
    ///
    /// As [`Filter::new`].
    pub fn new(plan: &Plan) -> Result<Self, SizeError> {
        Self::with_seed(plan, 0)
    }

    /// Returns an empty filter with a seed; see [`Filter::with_seed`].
    ///
    /// # Errors
    ///
    /// As [`Filter::new`].
    pub fn with_seed(plan: &Plan, seed: u64) -> Result<Self, SizeError> {
        Ok(Self::from_generations([Filter::with_seed(plan, seed)?, Filter::with_seed(plan, seed)?]))
    }

    /// Takes two empty filters of one shape.
    pub(super) fn from_generations(generations: [Filter; 2]) -> Self {
        AgeingFilter { state: Padded(AtomicU64::new(0)), generations }
    }

    /// Adds a key, or remembers it anew. Returns whether it was certainly not in the current generation.
    #[inline]
    pub fn insert<K: BloomKey + ?Sized>(&self, key: &K) -> bool {
        self.insert_hash(self.hash(key))
    }

    /// As [`Self::insert`], by a hash; see [`Filter::insert_hash`].
    #[inline]
    pub fn insert_hash(&self, hash: u128) -> bool {
        let mut state = self.state();
        loop {
            let new = self.generations[state.current()].insert_hash(hash);
            let now = self.state();
            if now == state {
                return new;
            }
            state = now;
        }
    }

    /// Returns whether a key may have been inserted lately; `false` is certain.
    #[inline]
    pub fn contains<K: BloomKey + ?Sized>(&self, key: &K) -> bool {
        self.contains_hash(self.hash(key))
    }

    /// As [`Self::contains`], by a hash; see [`Filter::insert_hash`].
    #[inline]
    pub fn contains_hash(&self, hash: u128) -> bool {
        loop {
            let state = self.state();
            let has = |i: usize| self.generations[i].contains_hash_acquire(hash);
            if has(state.current()) || has(state.previous()) {
                return true;
            }
            if self.state() == state {
                return false;
            }
        }
    }

    /// Returns the hash by which this filter knows a key.
    #[inline]
    pub fn hash<K: BloomKey + ?Sized>(&self, key: &K) -> u128 {
        self.generations[0].hash(key)
    }

    /// Begins a new period: keys of the period before the last are forgotten. Clears their generation,
    /// which takes time in proportion to its size; others are not held up. Returns `false`, having done
    /// nothing, if another thread is rotating at this moment.
    pub fn rotate(&self) -> bool {
        let state = self.state();
        let started = state.next();
        // ORDERING (G1, G2): Acquire on success: the rotation before this one is over. Release: a query that
        // sees that keys are being forgotten also sees the inserts before this call, which renewed some. A
        // query that reads a word cleared below sees this change by pair B1.
        let start = || self.state.compare_exchange(state.0, started.0, AcqRel, Relaxed);
        if state.is_rotating() || start().is_err() {
            return false;
        }
        self.generations[state.previous()].clear();
        // ORDERING (G1): Release: who sees the state sees its current generation as it was cleared.
        self.state.store(started.next().0, Release);
        true
    }

    /// Returns whether the current generation has a quarter more keys than planned for: time to
    /// [rotate](Self::rotate), whatever the clock says. Costs next to nothing.
    pub fn is_overfull(&self) -> bool {
        self.generations[self.state().current()].is_overfull()
    }

    /// Returns the bytes of both generations together.
    pub fn bytes(&self) -> usize {
        self.generations.iter().map(Filter::bytes).sum()
    }

    #[inline]
    fn state(&self) -> State {
        // ORDERING (G1): Acquire pairs with `rotate`.
        State(self.state.load(Acquire))
    }
}
