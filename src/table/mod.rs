//! The table: strictly lock-free, one control word per bucket.
//!
//! The one rule: every change to a key is one compare-and-swap on its slot word, made from the very
//! node it started from; every new key is one compare-and-swap on its bucket's control word. Whoever
//! wins does the accounting, exactly once. The protocol, its invariants (I1..I6) and where each
//! operation takes effect are in DESIGN.md section 3.
//!
//! The table knows nothing of values, deadlines, eviction or loading: it keeps nodes `N` by hash, and
//! carries eight bits of each slot word for the eviction policy.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | P1 | CAS of a slot word, then of the control word | loads of either | the node, and the order of claim, commit, clean |
//! | P2 | CAS of a control word to READY or FROZEN | load of the control word | the placed or frozen slot words |
//! | P3 | CAS of an extension link | load of the link | the zeroed line |
//! | P4 | CAS of the root, store of `previous` | loads of these | a table's buckets |

mod bucket;
mod change;
mod find;
mod grow;
mod owned;
pub(crate) mod reclaim;
mod sample;
mod walk;
pub(crate) mod word;

#[cfg(all(test, seawall_loom))]
mod models;
#[cfg(test)]
mod toy;

#[cfg(all(test, not(seawall_loom)))]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use self::bucket::{Bucket, Buckets, Seen};
pub(crate) use self::owned::Owned;
use self::reclaim::{Garbage, Guard, Limbo};
pub(crate) use self::sample::{Sample, Sampled};
use self::word::{Control, Policy, Word};
use crate::sync::{AcqRel, Acquire, AtomicPtr, AtomicU64, AtomicUsize, Relaxed, prefetch};

/// Buckets that share one line of the policy's ghosts.
pub(crate) const GROUP: usize = 8;

/// What the table must be able to do with a node.
///
/// # Safety
/// As [`Garbage`]; and nodes have an alignment of at least 8.
pub(crate) unsafe trait Node: Garbage + Sized {
    /// What a node that was not kept gives back.
    type Value;

    const ALIGNED: () = assert!(align_of::<Self>() >= 8);

    /// Moves the value out; what is left is freed as [`Kind::Hollow`].
    ///
    /// # Safety
    /// The node was never committed, and its value is moved out once.
    unsafe fn take_value(node: *mut Self) -> Self::Value;
}

/// Computes a node's hash again, when the table grows.
pub(crate) trait Rehash<N> {
    fn rehash(&self, node: &N) -> u64;
}

/// One array of buckets, and the older one it grows from.
struct Table {
    buckets: Buckets,
    /// Eight words of eviction ghosts per [`GROUP`] of buckets; the table only carries them.
    ghosts: Box<[AtomicU64]>,
    /// The table whose buckets move to this one; null when all have moved.
    previous: AtomicPtr<Table>,
    /// Buckets of `previous` known to have moved, from the first one on.
    moved: AtomicUsize,
}

impl Table {
    fn try_new(len: usize, previous: *mut Table) -> Option<Box<Table>> {
        let words = len.div_ceil(GROUP) * GROUP;
        Some(Box::new(Table {
            buckets: Buckets::try_new(len)?,
            ghosts: zeroed(words),
            previous: AtomicPtr::new(previous),
            moved: AtomicUsize::new(0),
        }))
    }
}

/// Frees a table that was retired under [`Kind::Table`].
///
/// # Safety
/// As [`Garbage::free`].
pub(crate) unsafe fn free_table(retired: *mut ()) {
    // SAFETY: by the caller; tables come from `Box::into_raw`.
    drop(unsafe { Box::from_raw(retired.cast::<Table>()) });
}

/// An array of buckets' address and length.
struct Hint {
    first: AtomicPtr<Bucket>,
    len: AtomicUsize,
}

impl Hint {
    fn set(&self, table: &Table) {
        // ORDERING: Relaxed: nothing is read through them.
        self.first.store(table.buckets.first(), Relaxed);
        self.len.store(table.buckets.len(), Relaxed);
    }
}

/// Words of zero in memory that the system zeroes when it is first touched.
fn zeroed(len: usize) -> Box<[AtomicU64]> {
    #[cfg(not(seawall_loom))]
    {
        let words = Box::into_raw(vec![0_u64; len].into_boxed_slice());
        // SAFETY: `AtomicU64` is laid out as `u64`, and aligned as it on 64-bit targets.
        unsafe { Box::from_raw(words as *mut [AtomicU64]) }
    }
    #[cfg(seawall_loom)]
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

/// A lock-free hash table of nodes.
pub(crate) struct Map<N: Node, H> {
    /// The newest table; never null.
    root: AtomicPtr<Table>,
    /// Where the newest table's buckets are, to be prefetched and never followed.
    hint: Hint,
    hasher: H,
    limbo: Limbo<N>,
}

/// A live node for a reader: two words, so that it is returned in registers.
pub(crate) struct Hit<'g, N> {
    slot: &'g AtomicPtr<()>,
    word: Word,
    node: PhantomData<&'g N>,
}

impl<'g, N> Hit<'g, N> {
    #[inline]
    pub(crate) fn node(&self) -> &'g N {
        // SAFETY: I2: a hit is made of a validated word, under a pin that lasts for 'g.
        unsafe { &*self.word.node::<N>() }
    }

    /// Counts a use in the slot word, unless at the cap. A lost race is no loss: then somebody else
    /// counted, or the node is gone.
    #[inline]
    pub(crate) fn count_use(&self) {
        if let Some(used) = self.word.used() {
            // ORDERING (P1): Release, for who loads this word next; Relaxed if it fails: nothing is
            // read after it.
            let _ = self.slot.compare_exchange(self.word.raw(), used.raw(), AcqRel, Relaxed);
        }
    }
}

/// A live node: it was committed, and neither replaced nor removed when it was found.
pub(crate) struct Found<'g, N> {
    bucket: &'g Bucket,
    seen: Seen,
    node: &'g N,
}

impl<N> Clone for Found<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Found<'_, N> {}

impl<'g, N> Found<'g, N> {
    fn hit(&self) -> Hit<'g, N> {
        let Seen { slot, word } = self.seen;
        Hit { slot: self.bucket.slot(slot), word, node: PhantomData }
    }

    #[inline]
    pub(crate) fn node(&self) -> &'g N {
        self.node
    }

    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.seen.word.policy()
    }

    /// Whether the node is not an entry yet; see [`Policy::PENDING`].
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.seen.word.is_pending()
    }

    /// The eight bits of the key's hash that the slot word repeats.
    pub(crate) fn tag(&self) -> u8 {
        self.seen.word.tag_byte()
    }

    /// Whether the slot is still as it was found.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.bucket.word(self.seen.slot) == self.seen.word
    }

    /// Changes the policy's bits; returns the node with the new bits, if nothing else had changed.
    pub(crate) fn stamp(&self, policy: Policy) -> Option<Found<'g, N>> {
        let Found { bucket, seen: Seen { slot, word }, node } = *self;
        let stamped = word.with_policy(policy);
        (word.is_plain() && bucket.change_word(slot, word, stamped)).then_some(Found {
            bucket,
            seen: Seen { slot, word: stamped },
            node,
        })
    }
}

/// A position as an index; hands count on by one, so it is rarely beyond the end.
#[inline]
fn wrapped(position: u64, len: usize) -> usize {
    let position = position as usize;
    if position < len { position } else { position % len }
}

/// Proof that a key was not in its bucket under a control word.
pub(crate) struct Vacant<'g> {
    bucket: &'g Bucket,
    control: Control,
    tag: usize,
    first: u32,
}

impl Vacant<'_> {
    /// Whether no key has been added to the bucket since.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.bucket.control() == self.control
    }
}

/// The slot of its bucket's own line that a key is put into if it is free.
#[inline]
fn first_choice(hash: u64) -> u32 {
    ((hash >> 24 & 0xFF) as u32 * bucket::BASE) >> 8
}

/// What [`Map::probe`] found.
pub(crate) enum Probe<'g, N> {
    Found(Found<'g, N>),
    Vacant(Vacant<'g>),
}

/// What became of a commit.
pub(crate) enum Commit<'g, N: Node> {
    Done(Found<'g, N>),
    /// The bucket's keys changed since the probe: probe again.
    Lost(Owned<'g, N>),
    /// All slots of the chain are taken.
    Full(Owned<'g, N>),
}

impl<N: Node, H> fmt::Debug for Map<N, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("limbo", &self.limbo).finish_non_exhaustive()
    }
}

impl<N: Node, H> Map<N, H> {
    /// A map with a number of buckets; `None` if there is not that much memory.
    pub(crate) fn try_new(buckets: usize, hasher: H) -> Option<Self> {
        let () = N::ALIGNED;
        let root = Table::try_new(buckets.max(1), ptr::null_mut())?;
        let hint = Hint { first: AtomicPtr::new(ptr::null_mut()), len: AtomicUsize::new(0) };
        hint.set(&root);
        let root = AtomicPtr::new(Box::into_raw(root));
        Some(Map { root, hint, hasher, limbo: Limbo::new() })
    }

    pub(crate) fn limbo(&self) -> &Limbo<N> {
        &self.limbo
    }

    pub(crate) fn hasher(&self) -> &H {
        &self.hasher
    }

    #[inline]
    fn root<'g>(&'g self, _guard: &'g Guard) -> &'g Table {
        // ORDERING (P4): Acquire pairs with the CAS in `start_growth`.
        let root = self.root.load(Acquire);
        // SAFETY: I5: a table is retired only after it ceased to be the root and all its buckets have
        // moved; we pinned before we loaded it.
        unsafe { &*root }
    }

    fn previous<'g>(table: &'g Table, _guard: &'g Guard) -> Option<&'g Table> {
        // ORDERING (P4): Acquire: if null, all moves are visible.
        let previous = table.previous.load(Acquire);
        // SAFETY: I5: it is retired after it was unlinked here, and we pinned before.
        unsafe { previous.as_ref() }
    }

    /// Returns how many buckets the newest table has.
    pub(crate) fn buckets(&self, guard: &Guard) -> usize {
        self.root(guard).buckets.len()
    }

    /// Loads the line where a lookup of `hash` begins into the processor's cache. Needs no pin: an
    /// outdated hint costs a line of some memory, no more.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        let (first, len) = (self.hint.first.load(Relaxed), self.hint.len.load(Relaxed));
        prefetch(first.wrapping_add(bucket::index_of(hash, len)));
    }

    /// Loads the node that a lookup of `hash` will most likely compare into the processor's cache.
    #[inline]
    pub(crate) fn prefetch_node(&self, hash: u64, guard: &Guard) {
        let buckets = &self.root(guard).buckets;
        let bucket = buckets.at(buckets.index_of(hash));
        let matches = bucket.tagged(Word::tag_of(hash)) & bucket.control().occupied();
        if matches != 0 {
            prefetch(bucket.word(matches.trailing_zeros()).node::<N>());
        }
    }
}

#[cfg(test)]
impl<N: Node, H: Rehash<N>> Map<N, H> {
    /// How many slots of the newest table hold a word, whatever their bits say.
    fn filled_slots(&self, guard: &Guard) -> usize {
        let table = self.root(guard);
        (0..table.buckets.len())
            .map(|index| table.buckets.at(index))
            .map(|bucket| (0..self::bucket::CHAIN).filter(|&slot| bucket.holds_word(slot)).count())
            .sum()
    }
}
