//! A filter that is built anew while it is in use.
//!
//! One word of state says which generation serves, and which one is being built. Inserts go to both;
//! queries look into the one that serves. Every change of the word has a new number, so that an equal
//! word means that nothing has changed in between.
//!
//! * **I1.** A generation is cleared only after the state that it served in has ended, and before the
//!   state that it is built in begins.
//! * **I2.** An insert returns only when it has set its bits in all generations of a state, and has read
//!   the same state again. So a thread that is stopped in an insert, for however many switches, starts
//!   again from the state that it finds.
//! * **I3.** A query denies a key only if it has read the same state before and after its look. With I1
//!   and pair B1 of `block` it has not seen a cleared word then.
//! * **I4.** The source of truth is read only after the state has become "being built". So a key that was
//!   in the source before it was inserted is read from it, or its insert has found that state.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | G1 | `change` | `state`, `change` | the generations of the state: their memory, and what the builder inserted |
//! | G2 | `release` | `rebuild` | the end of the rebuild before: one builder at a time |

use std::fmt;

use super::batch::AHEAD;
use super::error::{RebuildError, SizeError};
use super::filter::Filter;
use super::key::BloomKey;
use super::pool::{Pool, Slot};
use super::sizing::Plan;
use crate::sync::{Acquire, AtomicBool, AtomicU64, Padded, Relaxed, Release};

/// What a screen knows about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Answer {
    /// It was certainly never inserted.
    Absent,
    /// It was inserted, or is one of the few that look like it.
    Maybe,
    /// The screen cannot tell, and the key must be let through: the filter is not complete, or is
    /// suspected of having missed keys (where it would else have said `Absent`), or it is overfull (where
    /// it would else have said `Maybe`, which is true, but worth little).
    Unsure,
}

impl Answer {
    /// Returns whether the key must be looked for: all but [`Answer::Absent`].
    #[inline]
    pub fn lets_through(self) -> bool {
        self != Answer::Absent
    }
}

/// Bits 0..8: the generation that serves. Bits 8..16: the one that is being built, or `NONE`. Then two
/// flags, and a number that every change raises.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const NONE: u64 = 0xff;
    const NEXT: u32 = 8;
    /// Set where the one that serves may lack keys; forbids the answer `Absent`.
    const UNSURE: u64 = 1 << 16;
    /// The same for the one that is being built: it was marked suspect meanwhile.
    const NEXT_UNSURE: u64 = 1 << 17;
    const CHANGE: u64 = 1 << 18;

    fn new(serving: Slot) -> Self {
        State(u64::from(serving.0) | Self::NONE << Self::NEXT | Self::UNSURE)
    }

    #[inline]
    fn serving(self) -> Slot {
        Slot((self.0 & 0xff) as u8)
    }

    #[inline]
    fn next(self) -> Option<Slot> {
        let next = self.0 >> Self::NEXT & 0xff;
        (next != Self::NONE).then_some(Slot(next as u8))
    }

    #[inline]
    fn is_unsure(self) -> bool {
        self.0 & Self::UNSURE != 0
    }

    fn with_next(self, next: Option<Slot>) -> Self {
        let next = next.map_or(Self::NONE, |slot| u64::from(slot.0));
        State(self.0 & !(0xff << Self::NEXT | Self::NEXT_UNSURE) | next << Self::NEXT)
    }

    /// The generation that was built serves from now on.
    fn switched(self, to: Slot) -> Self {
        let unsure = if self.0 & Self::NEXT_UNSURE == 0 { 0 } else { Self::UNSURE };
        let rest = self.with_next(None).0 & !(0xff | Self::UNSURE);
        State(rest | u64::from(to.0) | unsure)
    }

    fn suspect(self) -> Self {
        let next = if self.next().is_some() { Self::NEXT_UNSURE } else { 0 };
        State(self.0 | Self::UNSURE | next)
    }

    fn complete(self) -> Self {
        State(self.0 & !Self::UNSURE)
    }
}

/// A filter that can be built anew from the source of truth while it is in use: to follow keys that were
/// removed there, or a number of keys that has grown.
///
/// It starts *incomplete*: it says [`Answer::Unsure`] where it would say [`Answer::Absent`], until the
/// first rebuild is finished or [`mark_complete`](Self::mark_complete) is called.
///
/// # Which keys are never denied
///
/// **Put a key into the source of truth first, then insert it here, then tell others of it.** A key that
/// was inserted in that order is never denied after its insert has returned, whatever rebuilds begin,
/// end or are abandoned before, meanwhile or later, as long as the source has it when a rebuild reads it.
/// The source must be one where a reader that comes after a finished write sees it, as databases,
/// maps and locks are.
///
/// A key whose insert returned before a rebuild began, and which the source does not have when it is read,
/// is gone after the switch: that is what a rebuild is for.
///
/// # Costs
///
/// A query takes no lock and writes nothing; beside the filter it reads one word of state, and again
/// where the answer is no. It repeats only if the state changed meanwhile. Inserts also are lock-free.
///
/// Two generations of memory are kept from the first rebuild on: the one that has served is used for the
/// next. A rebuild that needs more takes twice as much at once; smaller ones are kept for smaller
/// rebuilds. Memory is given back when the filter is dropped.
///
/// ```
/// use seawall::bloom::{Answer, RebuildingFilter, plan};
///
/// let filter = RebuildingFilter::new(&plan(1_000, 0.01)?)?;
/// assert_eq!(filter.check("alice"), Answer::Unsure);
///
/// let source = ["alice", "bob"];
/// let rebuild = filter.rebuild(&plan(1_000, 0.01)?)?;
/// for key in source {
///     rebuild.insert(key);
/// }
/// rebuild.finish();
/// assert_eq!(filter.check("alice"), Answer::Maybe);
/// assert_eq!(filter.check("carol"), Answer::Absent);
///
/// filter.insert("carol");
/// assert_eq!(filter.check("carol"), Answer::Maybe);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RebuildingFilter {
    state: Padded<AtomicU64>,
    rebuilding: AtomicBool,
    pool: Pool,
}

impl RebuildingFilter {
    /// Returns an empty filter with the seed 0, incomplete.
    ///
    /// # Errors
    ///
    /// As [`Filter::new`].
    pub fn new(plan: &Plan) -> Result<Self, SizeError> {
        Ok(Self::from_filter(Filter::new(plan)?))
    }

    /// Returns a filter that has the keys, size and seed of another one: one that was restored from a
    /// snapshot, or built elsewhere, or is empty and has a [seed](Filter::with_seed) of its own.
    ///
    /// It is incomplete, since it does not know the keys that have come since. Insert these and call
    /// [`mark_complete`](Self::mark_complete), or rebuild.
    pub fn from_filter(filter: Filter) -> Self {
        let (pool, slot) = Pool::new(filter);
        RebuildingFilter {
            state: Padded(AtomicU64::new(State::new(slot).0)),
            rebuilding: AtomicBool::new(false),
            pool,
        }
    }

    /// Returns what is known about a key. Takes no lock, does not allocate, writes nothing.
    #[inline]
    pub fn check<K: BloomKey + ?Sized>(&self, key: &K) -> Answer {
        self.check_hash(self.hash(key))
    }

    /// As [`Self::check`], by a hash; see [`Filter::insert_hash`].
    #[inline]
    pub fn check_hash(&self, hash: u128) -> Answer {
        loop {
            let state = self.state();
            let filter = self.pool.get(state.serving());
            let found = filter.contains_hash_acquire(hash);
            // I3. What was found need not be looked at again: a wrong `Maybe` does no harm.
            if found || self.state() == state {
                return answer(found, filter, state);
            }
        }
    }

    /// Calls a closure with the position of each of several keys, in their order, and what is known about
    /// it. Faster than as many calls of [`Self::check`]; see [`Filter::contains_many`].
    pub fn check_many_with<K: BloomKey>(&self, keys: &[K], mut each: impl FnMut(usize, Answer)) {
        let mut hashes = [0; AHEAD];
        for (i, keys) in keys.chunks(AHEAD).enumerate() {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.hash(key);
            }
            let hashes = &hashes[..keys.len()];
            self.pool.get(self.state().serving()).touch(hashes);
            for (j, &hash) in hashes.iter().enumerate() {
                each(i * AHEAD + j, self.check_hash(hash));
            }
        }
    }

    /// Adds a key. Returns whether it was certainly not there before.
    ///
    /// When it has returned, no query that comes after it denies the key; the type's documentation says
    /// what that needs. Takes no lock and does not allocate.
    #[inline]
    pub fn insert<K: BloomKey + ?Sized>(&self, key: &K) -> bool {
        self.insert_hash(self.hash(key))
    }

    /// As [`Self::insert`], by a hash; see [`Filter::insert_hash`].
    #[inline]
    pub fn insert_hash(&self, hash: u128) -> bool {
        let mut state = self.state();
        let mut new = false;
        loop {
            new |= self.pool.get(state.serving()).insert_hash(hash);
            if let Some(next) = state.next() {
                self.pool.get(next).insert_hash(hash);
            }
            // I2.
            let now = self.state();
            if now == state {
                return new;
            }
            state = now;
        }
    }

    /// Returns the hash by which this filter knows a key.
    #[inline]
    pub fn hash<K: BloomKey + ?Sized>(&self, key: &K) -> u128 {
        key.bloom_hash(self.pool.seed())
    }

    /// Begins to build a new generation, of at least a plan's size. From now on, inserts go to it as well.
    ///
    /// Feed it all keys of the source of truth, read *after* this call returned, and
    /// [finish](Rebuild::finish) it. If the [`Rebuild`] is dropped before, be it for an error or a panic, the old
    /// generation goes on serving as if nothing had happened. Clears or allocates the memory of the
    /// generation, which takes time in proportion to its size; others are not held up.
    ///
    /// # Errors
    ///
    /// [`RebuildError::InProgress`] while another one is going on; [`RebuildError::Size`] where there is no
    /// memory.
    pub fn rebuild(&self, plan: &Plan) -> Result<Rebuild<'_>, RebuildError> {
        // ORDERING (G2): Acquire pairs with `release`: the last builder has left the state.
        if self.rebuilding.swap(true, Acquire) {
            return Err(RebuildError::InProgress);
        }
        let permit = Permit(&self.rebuilding);
        // Only the holder of the permit changes which generation serves.
        let next = self.pool.prepare(plan, self.state().serving())?;
        self.change(|state| state.with_next(Some(next)));
        Ok(Rebuild { filter: self, next, finished: false, _permit: permit })
    }

    /// Returns whether a rebuild is going on.
    pub fn is_rebuilding(&self) -> bool {
        self.state().next().is_some()
    }

    /// Forbids the answer [`Answer::Absent`] until a rebuild that begins after this call is finished, or
    /// [`Self::mark_complete`] is called: for when keys may have come to the source of truth that nobody
    /// inserted here, as after a lost connection to it.
    pub fn mark_suspect(&self) {
        self.change(State::suspect);
    }

    /// Allows the answer [`Answer::Absent`]: the caller knows that all keys of the source of truth have
    /// been inserted.
    pub fn mark_complete(&self) {
        self.change(State::complete);
    }

    /// Returns whether the answer [`Answer::Absent`] can be given.
    pub fn is_complete(&self) -> bool {
        !self.state().is_unsure()
    }

    /// Returns whether the generation that serves is [overfull](Filter::is_overfull). Then it is time to
    /// rebuild with a larger plan.
    pub fn is_overfull(&self) -> bool {
        self.pool.get(self.state().serving()).is_overfull()
    }

    /// Returns a copy of the generation that serves: to be saved, or to be asked for its rates. Copies
    /// all of it, and again if a rebuild begins or ends meanwhile.
    pub fn to_filter(&self) -> Filter {
        loop {
            let state = self.state();
            let copy = self.pool.get(state.serving()).clone();
            // I3: not one that was cleared meanwhile.
            if self.state() == state {
                return copy;
            }
        }
    }

    /// Returns the bytes that all generations have together.
    pub fn bytes(&self) -> usize {
        self.pool.bytes()
    }

    #[inline]
    fn state(&self) -> State {
        // ORDERING (G1): Acquire pairs with `change`.
        State(self.state.load(Acquire))
    }

    fn change(&self, to: impl Fn(State) -> State) {
        let mut now = self.state();
        loop {
            let new = to(now).0.wrapping_add(State::CHANGE);
            // ORDERING (G1): Release publishes the generations of the new state. What the states before
            // published is still published: a read-modify-write goes on with it. Relaxed on failure: the
            // word alone is looked at.
            match self.state.compare_exchange(now.0, new, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => now = State(other),
            }
        }
    }
}

#[inline]
fn answer(found: bool, filter: &Filter, state: State) -> Answer {
    match found {
        true if filter.is_overfull() => Answer::Unsure,
        true => Answer::Maybe,
        false if state.is_unsure() => Answer::Unsure,
        false => Answer::Absent,
    }
}

impl fmt::Debug for RebuildingFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RebuildingFilter")
            .field("serving", self.pool.get(self.state().serving()))
            .field("complete", &self.is_complete())
            .field("rebuilding", &self.is_rebuilding())
            .finish_non_exhaustive()
    }
}

/// Gives the right to rebuild back.
#[derive(Debug)]
struct Permit<'f>(&'f AtomicBool);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        // ORDERING (G2): Release, see `rebuild`.
        self.0.store(false, Release);
    }
}

/// A rebuild in progress; dropping it abandons it. Several threads may feed it at once.
#[derive(Debug)]
#[must_use = "dropping it abandons the rebuild"]
pub struct Rebuild<'f> {
    filter: &'f RebuildingFilter,
    next: Slot,
    finished: bool,
    /// Dropped last.
    _permit: Permit<'f>,
}

impl Rebuild<'_> {
    /// Adds a key of the source of truth to the new generation only. Returns whether it was certainly not
    /// there before.
    #[inline]
    pub fn insert<K: BloomKey + ?Sized>(&self, key: &K) -> bool {
        self.insert_hash(self.filter.hash(key))
    }

    /// As [`Self::insert`], by a hash; see [`Filter::insert_hash`].
    #[inline]
    pub fn insert_hash(&self, hash: u128) -> bool {
        self.filter.pool.get(self.next).insert_hash(hash)
    }

    /// Returns whether the new generation is [overfull](Filter::is_overfull): the plan was too small.
    pub fn is_overfull(&self) -> bool {
        self.filter.pool.get(self.next).is_overfull()
    }

    /// Lets the new generation serve, in one step. It is complete, unless the filter was
    /// [marked suspect](RebuildingFilter::mark_suspect) after this rebuild began.
    pub fn finish(mut self) {
        self.finished = true;
        self.filter.change(|state| state.switched(self.next));
    }
}

impl Drop for Rebuild<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.filter.change(|state| state.with_next(None));
        }
    }
}
