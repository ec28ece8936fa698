//! A filter that forgets.
//!
//! Two generations; inserts go to the current one, queries look into both. To rotate, the previous one
//! is taken out, cleared, and put in as the current one. The protocol, its invariants and its pairs are
//! those of `rebuild`: an insert repeats if the state has changed, a query that found nothing also.

use super::error::SizeError;
use super::filter::Filter;
use super::key::BloomKey;
use super::sizing::Plan;
use crate::sync::{Acquire, AtomicBool, AtomicU64, Padded, Release};

/// Bit 0: the current generation. Bit 1: the other one is asked as well. Then a number that every
/// change raises.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const BOTH: u64 = 1 << 1;
    const CHANGE: u64 = 1 << 2;

    #[inline]
    fn current(self) -> usize {
        (self.0 & 1) as usize
    }

    #[inline]
    fn previous(self) -> Option<usize> {
        (self.0 & Self::BOTH != 0).then_some(self.current() ^ 1)
    }

    fn alone(self) -> Self {
        State((self.0 & !Self::BOTH).wrapping_add(Self::CHANGE))
    }

    fn rotated(self) -> Self {
        State((self.0 ^ 1 | Self::BOTH).wrapping_add(Self::CHANGE))
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
    rotating: AtomicBool,
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
        AgeingFilter {
            state: Padded(AtomicU64::new(0)),
            rotating: AtomicBool::new(false),
            generations,
        }
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
            let asked = [Some(state.current()), state.previous()];
            let has = |i: usize| self.generations[i].contains_hash_acquire(hash);
            if asked.into_iter().flatten().any(has) {
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
        // ORDERING (G2): Acquire and Release, as for a rebuild: one thread changes the state at a time.
        if self.rotating.swap(true, Acquire) {
            return false;
        }
        let alone = self.state().alone();
        self.publish(alone);
        self.generations[alone.current() ^ 1].clear();
        self.publish(alone.rotated());
        self.rotating.store(false, Release);
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
        // ORDERING (G1): Acquire pairs with `publish`.
        State(self.state.load(Acquire))
    }

    fn publish(&self, state: State) {
        // ORDERING (G1): Release: who sees the state sees its generations as they were cleared.
        self.state.store(state.0, Release);
    }
}
