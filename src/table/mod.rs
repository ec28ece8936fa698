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
mod grow;
mod owned;
pub(crate) mod reclaim;
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

use arrayvec::ArrayVec;

use self::bucket::{Bucket, Buckets, CHAIN, Seen, Snapshot};
pub(crate) use self::owned::Owned;
use self::reclaim::{Garbage, Guard, Kind, Limbo, check_read};
use self::word::{BucketState, Control, Policy, Word, bits};
use crate::sync::{AcqRel, Acquire, AtomicPtr, AtomicU64, AtomicUsize, Relaxed};

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

    /// The eight bits of the key's hash that the slot word repeats.
    pub(crate) fn tag(&self) -> u8 {
        self.seen.word.tag_byte()
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

/// A live node that an eviction hand came by; its node has not been looked at.
pub(crate) struct Sampled<'g, N> {
    bucket: &'g Bucket,
    seen: Seen,
    index: usize,
    rank: u8,
    node: PhantomData<&'g N>,
}

impl<'g, N> Sampled<'g, N> {
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.seen.word.policy()
    }

    /// Changes the policy's bits, if nothing has changed since.
    #[cold]
    pub(crate) fn stamp(&mut self, policy: Policy) {
        let Seen { slot, word } = self.seen;
        let stamped = word.with_policy(policy);
        if word.is_plain() && self.bucket.change_word(slot, word, stamped) {
            self.seen.word = stamped;
        }
    }

    /// What the policy made of it when it was sampled.
    #[inline]
    pub(crate) fn rank(&self) -> u8 {
        self.rank
    }

    /// The index of its bucket.
    pub(crate) fn bucket(&self) -> usize {
        self.index
    }

    pub(crate) fn is(&self, node: *const N) -> bool {
        ptr::eq(self.seen.word.node::<N>(), node)
    }

    #[inline]
    pub(crate) fn found(&self, guard: &'g Guard) -> Found<'g, N> {
        let Sampled { bucket, seen, .. } = *self;
        check_read(seen.word.node::<N>(), guard);
        // SAFETY: I2: the sample was validated, after we pinned.
        let node = unsafe { &*seen.word.node::<N>() };
        Found { bucket, seen, node }
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

/// The slot of its bucket's own line that a key is put into if it is free.
#[inline]
fn first_choice(hash: u64) -> u32 {
    ((hash >> 24 & 0xFF) as u32 * bucket::BASE) >> 8
}

/// Asks the processor to load a line; does nothing where there is no stable way to ask.
#[inline]
fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
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

    /// Finds a node for a reader: never writes, never moves a bucket.
    ///
    /// A hit takes effect when its slot word was loaded. A miss takes effect when the control word was
    /// loaded, or, if the key's slot changed after that, when it did.
    #[inline]
    pub(crate) fn find<'g>(
        &'g self,
        hash: u64,
        eq: impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Hit<'g, N>> {
        let buckets = &self.root(guard).buckets;
        let bucket = buckets.at(buckets.index_of(hash));
        let tag = Word::tag_of(hash);
        loop {
            let control = bucket.control();
            if !control.is_ready() {
                return self.find_slowly(hash, &eq, guard);
            }
            // Most keys are in their first choice of a slot. Looking there before the others lets the
            // processor go on to the node while it is still waiting for the bucket's line.
            let first = first_choice(hash);
            let slot = bucket.own_slot(first);
            // ORDERING (P1): as in `Bucket::word`.
            let word = Word::from_raw(slot.load(Acquire));
            let hit = if control.is_occupied(first) && Self::is_match(word, tag, &eq, guard) {
                Some(Hit { slot, word, node: PhantomData })
            } else {
                Self::find_in_line(bucket, control, tag, &eq, guard)
            };
            match hit {
                None if Bucket::is_extended(control) => {
                    return self.find_slowly(hash, &eq, guard);
                }
                None => return None,
                // I1: no bit changed, so the slot's bit was set when its word was loaded.
                Some(hit) if bucket.control() == control => return Some(hit),
                Some(_) => {}
            }
        }
    }

    #[inline]
    fn find_in_line<'g>(
        bucket: &'g Bucket,
        control: Control,
        tag: usize,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Hit<'g, N>> {
        let mut matches = bucket.tagged(tag) & control.occupied();
        while matches != 0 {
            let slot = bucket.own_slot(matches.trailing_zeros());
            // ORDERING (P1): as in `Bucket::word`.
            let word = Word::from_raw(slot.load(Acquire));
            if Self::is_match(word, tag, eq, guard) {
                return Some(Hit { slot, word, node: PhantomData });
            }
            matches &= matches - 1;
        }
        None
    }

    #[inline]
    fn is_match(word: Word, tag: usize, eq: &impl Fn(&N) -> bool, guard: &Guard) -> bool {
        word.is_candidate(tag) && {
            check_read(word.node::<N>(), guard);
            // SAFETY: I2: the word was loaded from a slot whose bit was set after we pinned, so the
            // node was not retired before; in an old bucket also by I4.
            eq(unsafe { &*word.node::<N>() })
        }
    }

    /// Looks for a key among the occupied slots. What it returns is not validated.
    #[inline]
    fn scan<'g>(
        bucket: &'g Bucket,
        control: Control,
        tag: usize,
        side: Option<usize>,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Found<'g, N>> {
        let mut matches = bucket.tagged(tag) & control.occupied();
        while matches != 0 {
            let slot = matches.trailing_zeros();
            if let Some(found) = Self::look(bucket, slot, tag, side, eq, guard) {
                return Some(found);
            }
            matches &= matches - 1;
        }
        if Bucket::is_extended(control) {
            return Self::scan_extensions(bucket, control, tag, side, eq, guard);
        }
        None
    }

    #[cold]
    fn scan_extensions<'g>(
        bucket: &'g Bucket,
        control: Control,
        tag: usize,
        side: Option<usize>,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Found<'g, N>> {
        bits(control.occupied() >> bucket::BASE)
            .find_map(|slot| Self::look(bucket, slot + bucket::BASE, tag, side, eq, guard))
    }

    #[inline]
    fn look<'g>(
        bucket: &'g Bucket,
        slot: u32,
        tag: usize,
        side: Option<usize>,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Found<'g, N>> {
        let word = bucket.word(slot);
        if side.is_some_and(|side| word.is_frozen() && word.side() != side) {
            // I4: the other new bucket may be in use, and this node freed.
            return None;
        }
        if !Self::is_match(word, tag, eq, guard) {
            return None;
        }
        // SAFETY: I2: as in `is_match`.
        let node = unsafe { &*word.node::<N>() };
        Some(Found { bucket, seen: Seen { slot, word }, node })
    }

    /// The reader's way when its bucket has extension lines or is not in use: not yet (its keys are in
    /// the old bucket), or no longer (the root has moved on).
    #[cold]
    #[inline(never)]
    fn find_slowly<'g>(
        &'g self,
        hash: u64,
        eq: &impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Option<Hit<'g, N>> {
        let tag = Word::tag_of(hash);
        loop {
            let table = self.root(guard);
            let index = table.buckets.index_of(hash);
            let bucket = table.buckets.at(index);
            let control = bucket.control();
            match control.state() {
                BucketState::Ready => match Self::scan(bucket, control, tag, None, eq, guard) {
                    None => return None,
                    Some(found) if bucket.control() == control => return Some(found.hit()),
                    Some(_) => {}
                },
                // The root is newer than the one we loaded.
                BucketState::Frozen => {}
                BucketState::Uninit => {
                    let Some(previous) = Self::previous(table, guard) else {
                        if bucket.control() == Control::UNINIT {
                            return None;
                        }
                        continue;
                    };
                    let old = previous.buckets.at(previous.buckets.index_of(hash));
                    let old_control = old.control();
                    let found = Self::scan(old, old_control, tag, Some(index & 1), eq, guard);
                    // I4: the old bucket spoke for this key as long as the new one was not in use.
                    let unmoved = bucket.control() == Control::UNINIT;
                    match found {
                        None if unmoved => return None,
                        Some(found) if unmoved && old.control() == old_control => {
                            return Some(found.hit());
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Finds a node for a writer, or proves that the key is not there.
    pub(crate) fn probe<'g>(
        &'g self,
        hash: u64,
        eq: impl Fn(&N) -> bool,
        guard: &'g Guard,
    ) -> Probe<'g, N>
    where
        H: Rehash<N>,
    {
        let tag = Word::tag_of(hash);
        loop {
            let table = self.root(guard);
            let index = table.buckets.index_of(hash);
            let bucket = table.buckets.at(index);
            let control = bucket.control();
            match control.state() {
                BucketState::Uninit => self.make_ready(table, index, guard),
                BucketState::Frozen => {}
                BucketState::Ready => match Self::scan(bucket, control, tag, None, &eq, guard) {
                    None => {
                        let first = first_choice(hash);
                        return Probe::Vacant(Vacant { bucket, control, tag, first });
                    }
                    Some(found) if bucket.control() == control => return Probe::Found(found),
                    Some(_) => {}
                },
            }
        }
    }

    /// Puts a node into the bucket that was probed: claim, then commit. It takes effect at the commit.
    pub(crate) fn commit<'g>(
        &'g self,
        vacant: &Vacant<'g>,
        mut node: Owned<'g, N>,
        policy: Policy,
        guard: &'g Guard,
    ) -> Commit<'g, N> {
        let Vacant { bucket, control, tag, first } = *vacant;
        let word = Word::new(node.as_ptr().cast(), tag, policy);
        let Some(slot) = self.claim(bucket, control, first, word, guard) else {
            // Either all slots are taken, or the bits have changed and the caller must look again.
            let full = bucket.control() == control;
            return if full { Commit::Full(node) } else { Commit::Lost(node) };
        };
        node.set_exposed();
        if bucket.change_control(control, control.with(slot)) {
            let node = node.release();
            return Commit::Done(Found { bucket, seen: Seen { slot, word }, node });
        }
        // Lost the race: some bit changed, perhaps for this very key. The claim is still ours alone:
        // nobody acts on a word whose bit is clear.
        let given_back = bucket.change_word(slot, word, Word::FREE);
        debug_assert!(given_back, "I3: a claim is changed by its claimer only");
        Commit::Lost(node)
    }

    /// Claims a free slot: its bit is clear and its word zero. Cleans removed slots on the way if there
    /// is no other room.
    fn claim(
        &self,
        bucket: &Bucket,
        control: Control,
        first: u32,
        word: Word,
        guard: &Guard,
    ) -> Option<u32> {
        let vacant = !control.occupied() & ((1 << CHAIN) - 1);
        for slot in bits(vacant & 1 << first).chain(bits(vacant & !(1 << first))) {
            // ORDERING (P1): Acquire, as in `Bucket::word`.
            let mut seen = Word::from_raw(bucket.slot_or_extend(slot)?.load(Acquire));
            if seen.is_removed() {
                // Its bit is clear already; whoever cleared it has not come to zeroing it.
                self.clean(bucket, Seen { slot, word: seen }, guard);
                seen = Word::FREE;
            }
            if seen.is_free() && bucket.change_word(slot, seen, word) {
                return Some(slot);
            }
        }
        for slot in bits(control.occupied()) {
            let seen = Seen { slot, word: bucket.word(slot) };
            if seen.word.is_removed() {
                self.clean(bucket, seen, guard);
            }
        }
        None
    }

    /// Replaces a found node. The winner has retired the old one; the loser gets its node back.
    pub(crate) fn replace<'g>(
        &'g self,
        found: &Found<'g, N>,
        node: Owned<'g, N>,
        policy: Policy,
        guard: &'g Guard,
    ) -> Result<Found<'g, N>, Owned<'g, N>> {
        let Found { bucket, seen: Seen { slot, word: old }, .. } = *found;
        let word = Word::new(node.as_ptr().cast(), old.tag(), policy);
        if !old.is_plain() || !bucket.change_word(slot, old, word) {
            return Err(node);
        }
        // SAFETY: I2: the CAS took the node out of its slot, so no new reader finds it, and only one
        // thread can have won it.
        unsafe { self.limbo.retire(old.node::<()>(), Kind::Whole, guard) };
        Ok(Found { bucket, seen: Seen { slot, word }, node: node.release() })
    }

    /// Removes a found node; returns whether this call did. It takes effect before cleaning.
    pub(crate) fn remove(&self, found: &Found<'_, N>, guard: &Guard) -> bool {
        let Found { bucket, seen: Seen { slot, word }, .. } = *found;
        let removed = word.removed();
        if !word.is_plain() || !bucket.change_word(slot, word, removed) {
            return false;
        }
        self.clean(bucket, Seen { slot, word: removed }, guard);
        true
    }

    /// Frees a slot whose word is REMOVED: clears its bit, and only then the word. Anyone may help;
    /// who zeroes the word retires the node.
    fn clean(&self, bucket: &Bucket, removed: Seen, guard: &Guard) {
        let Seen { slot, word } = removed;
        loop {
            let control = bucket.control();
            if !control.is_occupied(slot) {
                break;
            }
            if !control.is_ready() || bucket.word(slot) != word {
                // Frozen: whoever moves the bucket retires the node. Changed: somebody was quicker.
                return;
            }
            if bucket.change_control(control, control.without(slot)) {
                break;
            }
        }
        // I3: the bit has been clear since the word was REMOVED, or the word is no longer there.
        if bucket.change_word(slot, word, Word::FREE) {
            // SAFETY: I2: the word is in no slot any more; one thread zeroes it.
            unsafe { self.limbo.retire(word.node::<()>(), Kind::Whole, guard) };
        }
    }
}

impl<N: Node, H: Rehash<N>> Map<N, H> {
    /// Calls `visit` with each live node of the bucket that a hash belongs to; all their keys were there
    /// at one instant. Returns the lowest hash of the next bucket, or `None` after the last.
    pub(crate) fn visit<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        mut visit: impl FnMut(Found<'g, N>),
    ) -> Option<u64> {
        let mut seen = Snapshot::new();
        let (table, index) = loop {
            let table = self.root(guard);
            let index = table.buckets.index_of(hash);
            let bucket = table.buckets.at(index);
            if bucket.snapshot(&mut seen) {
                break (table, index);
            }
            if bucket.control() == Control::UNINIT {
                if Self::previous(table, guard).is_none() {
                    return table.buckets.end_of(index);
                }
                self.make_ready(table, index, guard);
            }
        };
        let bucket = table.buckets.at(index);
        for &seen in &seen {
            check_read(seen.word.node::<N>(), guard);
            // SAFETY: I2: the snapshot was validated, after we pinned.
            let node = unsafe { &*seen.word.node::<N>() };
            visit(Found { bucket, seen, node });
        }
        table.buckets.end_of(index)
    }

    /// Adds the live nodes of the bucket at a position to a sample, each with the rank that its policy
    /// bits give it, for the eviction hand; none if the bucket is being changed or moved. Returns the
    /// position of the next bucket; positions beyond the last bucket wrap round.
    ///
    /// Reads no node, and asks for the next bucket's line.
    #[inline]
    pub(crate) fn sample<'g, const ROOM: usize>(
        &'g self,
        position: u64,
        into: &mut ArrayVec<Sampled<'g, N>, ROOM>,
        rank: impl Fn(Policy) -> u8,
        guard: &'g Guard,
    ) -> u64 {
        let table = self.root(guard);
        let index = wrapped(position, table.buckets.len());
        let bucket = table.buckets.at(index);
        prefetch(ptr::from_ref(bucket).wrapping_add(1));
        let next = index as u64 + 1;
        let control = bucket.control();
        if !control.is_ready() {
            self.make_ready_if_growing(table, index, guard);
            return next;
        }
        let before = into.len();
        for slot in bits(control.occupied()) {
            let word = bucket.word(slot);
            if !word.is_removed() {
                let rank = rank(word.policy());
                let sampled =
                    Sampled { bucket, seen: Seen { slot, word }, index, rank, node: PhantomData };
                let _ = into.try_push(sampled);
            }
        }
        if bucket.control() != control {
            into.truncate(before);
        }
        next
    }

    fn make_ready_if_growing(&self, table: &Table, index: usize, guard: &Guard) {
        let bucket = table.buckets.at(index);
        if bucket.control() == Control::UNINIT && Self::previous(table, guard).is_some() {
            self.make_ready(table, index, guard);
        }
    }

    /// Calls `visit` with each live node of the bucket at a position; positions beyond the last bucket
    /// wrap round.
    pub(crate) fn visit_at<'g>(
        &'g self,
        position: u64,
        guard: &'g Guard,
        visit: impl FnMut(Found<'g, N>),
    ) {
        let buckets = &self.root(guard).buckets;
        let index = wrapped(position, buckets.len());
        let hash = index.checked_sub(1).and_then(|before| buckets.end_of(before)).unwrap_or(0);
        self.visit(hash, guard, visit);
    }

    /// The eight ghost words of the group that a hash's bucket belongs to, and the bucket's place in
    /// the group.
    pub(crate) fn ghosts<'g>(&'g self, hash: u64, guard: &'g Guard) -> (&'g [AtomicU64], usize) {
        let table = self.root(guard);
        Self::ghosts_of(table, table.buckets.index_of(hash))
    }

    /// As [`Self::ghosts`], of the bucket at an index.
    pub(crate) fn ghosts_at<'g>(
        &'g self,
        index: usize,
        guard: &'g Guard,
    ) -> (&'g [AtomicU64], usize) {
        let table = self.root(guard);
        Self::ghosts_of(table, index % table.buckets.len())
    }

    fn ghosts_of(table: &Table, index: usize) -> (&[AtomicU64], usize) {
        let group = index / GROUP * GROUP;
        (&table.ghosts[group..group + GROUP], index % GROUP)
    }
}

#[cfg(test)]
impl<N: Node, H: Rehash<N>> Map<N, H> {
    /// How many slots of the newest table hold a word, whatever their bits say.
    fn filled_slots(&self, guard: &Guard) -> usize {
        let table = self.root(guard);
        (0..table.buckets.len())
            .map(|index| table.buckets.at(index))
            .map(|bucket| (0..CHAIN).filter(|&slot| bucket.holds_word(slot)).count())
            .sum()
    }
}
