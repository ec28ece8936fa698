//! A node: one key's entry, in one allocation.
//!
//! ```text
//! Node        key · value · state word (8 bytes)
//! HeavyNode   Node · weight · time of last use     in caches bounded by weight or with a time to idle
//!
//! The state comes last: a lookup waits for the key and then for the value, and where a small node
//! straddles two cache lines these two should share the first.
//! ```
//!
//! The key never changes once the node is committed. The value neither, but that a *hollow* node may be
//! given one: it holds the place of a key that is being loaded, and the load that ends puts the value
//! there (N1). The state word changes: it is either an [`Inline`] word or a pointer to an [`Extra`] block.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | S1 | CAS of the state word | loads of it | the extra block |
//! | N1 | store of the state word in `fill` | loads of it | the value |

use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::answer::KeyFlight;
use crate::freshness::{Deadlines, Flags, Freshness, Generation, Inline, Profiles};
use crate::guard::Attempt;
use crate::sync::{AcqRel, Acquire, AtomicPtr, AtomicU64, Late, Relaxed};
use crate::table::reclaim::{Garbage, Guard, Kind, check_read};
use crate::table::word::Word;
use crate::table::{self};
use crate::tags::{Stamp, Stamps};

#[repr(C)]
pub(crate) struct Node<K, V> {
    key: K,
    /// There unless the state says hollow.
    value: Late<V>,
    /// Bit 0 set: an [`Inline`] word. Clear: a pointer to an [`Extra`] block that the node owns.
    state: AtomicPtr<Extra<V>>,
}

#[repr(C)]
struct HeavyNode<K, V> {
    node: Node<K, V>,
    tail: Tail,
}

#[derive(Debug)]
pub(crate) struct Tail {
    /// Changed only while the node is hollow and its key is being loaded.
    pub(crate) weight: AtomicU64,
    /// When the entry was last used, on the cache's time scale.
    pub(crate) touched: AtomicU64,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Value,
    /// A remembered absence: the origin said that there is no such key.
    Absent,
    /// Neither: the key is being loaded, or could not be.
    Nothing,
}

/// What does not fit into an inline state word. Never changed once it is in place.
pub(crate) struct Extra<V> {
    pub(crate) flags: Flags,
    pub(crate) content: Content,
    pub(crate) generation: u64,
    pub(crate) deadlines: Deadlines,
    pub(crate) version: Option<u64>,
    pub(crate) tags: Stamps,
    /// The load in progress.
    pub(crate) flight: Option<Arc<KeyFlight<V>>>,
    /// What the flight brought, and not what it began from: what is said of the flight is said of this.
    pub(crate) product: bool,
    /// The last load that brought no new value.
    pub(crate) attempt: Option<Attempt>,
}

impl<V> Clone for Extra<V> {
    fn clone(&self) -> Self {
        Extra { tags: self.tags.clone(), flight: self.flight.clone(), ..*self }
    }
}

impl<V> std::fmt::Debug for Extra<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extra").field("content", &self.content).finish_non_exhaustive()
    }
}

/// A state word as it was read, with its extra block while the guard lives.
#[derive(Debug)]
pub(crate) enum State<'g, V> {
    Inline(Inline),
    Extra(&'g Extra<V>),
}

impl<V> Clone for State<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for State<'_, V> {}

impl<'g, V> State<'g, V> {
    /// That of an entry without a deadline.
    pub(crate) const PLAIN: Self = State::Inline(Inline::SOME);

    /// The state word.
    fn raw(self) -> *mut Extra<V> {
        match self {
            State::Inline(word) => ptr::without_provenance_mut(word.addr()),
            State::Extra(extra) => ptr::from_ref(extra).cast_mut(),
        }
    }

    /// Whether no invalidation of many entries (all, or a tag) covers this one.
    #[inline]
    pub(crate) fn is_valid(&self, generation: Generation) -> bool {
        match self {
            State::Inline(word) => word.is_of(generation),
            State::Extra(extra) => {
                extra.generation == generation.number() && extra.tags.iter().all(Stamp::is_current)
            }
        }
    }

    #[inline]
    pub(crate) fn has_deadlines(&self) -> bool {
        match self {
            State::Inline(word) => word.has_deadlines(),
            State::Extra(_) => true,
        }
    }

    pub(crate) fn freshness_at(&self, now: u64, profiles: &Profiles) -> Freshness {
        match self {
            State::Inline(word) if word.is_fresh_at(now, profiles) => Freshness::Fresh,
            _ => self.deadlines(profiles).at(now),
        }
    }

    pub(crate) fn deadlines(&self, profiles: &Profiles) -> Deadlines {
        match self {
            State::Inline(word) => word.deadlines(profiles),
            State::Extra(extra) => extra.deadlines,
        }
    }

    pub(crate) fn version(&self) -> Option<u64> {
        match self {
            State::Inline(_) => None,
            State::Extra(extra) => extra.version,
        }
    }

    pub(crate) fn content(&self) -> Content {
        match self {
            State::Inline(word) if word.flags().is_hollow() => Content::Absent,
            State::Inline(_) => Content::Value,
            State::Extra(extra) => extra.content,
        }
    }

    pub(crate) fn flight(&self) -> Option<&'g Arc<KeyFlight<V>>> {
        match self {
            State::Inline(_) => None,
            State::Extra(extra) => extra.flight.as_ref(),
        }
    }

    /// The flight that brought this, while it may still be told what counts for this too.
    pub(crate) fn product_of(&self) -> Option<&'g Arc<KeyFlight<V>>> {
        match self {
            State::Extra(extra) if extra.product => extra.flight.as_ref(),
            _ => None,
        }
    }

    /// Whether this is the place of a key that is being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.content() == Content::Nothing && self.flight().is_some()
    }

    pub(crate) fn attempt(&self) -> Option<Attempt> {
        match self {
            State::Inline(_) => None,
            State::Extra(extra) => extra.attempt,
        }
    }
}

/// The first state of a node.
pub(crate) enum Initial<V> {
    Inline(Inline),
    Extra(Box<Extra<V>>),
}

impl<V> Initial<V> {
    fn into_raw(self) -> *mut Extra<V> {
        match self {
            Initial::Inline(word) => ptr::without_provenance_mut(word.addr()),
            Initial::Extra(extra) => Box::into_raw(extra),
        }
    }
}

impl<K, V> Node<K, V> {
    /// Allocates a node; a tail makes it a heavy one, and the lack of a value a hollow one (the state's
    /// flags must say so).
    ///
    /// # Panics
    /// If the allocator returns an address above 2^48, as one that tags its pointers does.
    pub(crate) fn allocate(
        state: Initial<V>,
        key: K,
        value: Option<V>,
        tail: Option<Tail>,
    ) -> NonNull<Node<K, V>> {
        let value = value.map_or_else(Late::empty, Late::new);
        let node = Node { state: AtomicPtr::new(state.into_raw()), key, value };
        let raw: *mut Node<K, V> = match tail {
            Some(tail) => Box::into_raw(Box::new(HeavyNode { node, tail })).cast(),
            None => Box::into_raw(Box::new(node)),
        };
        assert!(Word::fits(raw.cast()), "an address above 2^48 does not fit into a slot word");
        NonNull::new(raw).expect("a box is not null")
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// The value of a node that is not hollow.
    #[inline]
    pub(crate) fn value(&self) -> &V {
        // SAFETY: only `take_value` leaves a node without its value, and only before a commit; nodes
        // are reachable by reference only after one, or by their owner before that call. Whether a node
        // is hollow was seen in its state, which acquires the write of the value (N1).
        unsafe { self.value.get() }
    }

    /// Gives a hollow node its value and its new state.
    ///
    /// # Safety
    /// The caller answers the flight in the node's state, and calls this once.
    pub(crate) unsafe fn fill(&self, value: V, state: Initial<V>) -> Option<NonNull<Extra<V>>> {
        // SAFETY: the node is hollow, one thread answers a flight, and nobody reads before the state
        // says that there is a value.
        unsafe { self.value.set(value) };
        self.set_state(state)
    }

    /// Gives a node whose key is being loaded another state; returns the old block, to retire. Nobody
    /// else changes the state of such a node.
    pub(crate) fn set_state(&self, state: Initial<V>) -> Option<NonNull<Extra<V>>> {
        // ORDERING (N1, S1): Release publishes the value and the block.
        let old = self.state.swap(state.into_raw(), AcqRel);
        if Inline::from_addr(old.addr()).is_some() { None } else { NonNull::new(old) }
    }

    /// The state word's address, for comparing it with a known inline word.
    #[inline]
    pub(crate) fn raw_state(&self) -> usize {
        // ORDERING (N1): Acquire: equal to a known inline word means that there is a value.
        self.state.load(Acquire).addr()
    }

    #[inline]
    pub(crate) fn state<'g>(&self, guard: &'g Guard) -> State<'g, V> {
        // ORDERING (S1): Acquire pairs with the Release in `change_state`: the extra block.
        let raw = self.state.load(Acquire);
        match Inline::from_addr(raw.addr()) {
            Some(word) => State::Inline(word),
            None => {
                check_read(raw, guard);
                // SAFETY: a pointer to a block that is retired only after it was replaced, and the
                // guard was taken before it was loaded.
                State::Extra(unsafe { &*raw })
            }
        }
    }

    /// Whether the state is still the one that was read.
    pub(crate) fn is_state(&self, seen: State<'_, V>) -> bool {
        self.raw_state() == seen.raw().addr()
    }

    /// Replaces the state that was read. Returns the old block to retire, or the new state if that has
    /// changed meanwhile.
    pub(crate) fn change_state(
        &self,
        from: State<'_, V>,
        to: Initial<V>,
    ) -> Result<Option<NonNull<Extra<V>>>, Initial<V>> {
        let old = from.raw();
        let new = to.into_raw();
        // ORDERING (S1): Release publishes the block.
        match self.state.compare_exchange(old, new, AcqRel, Relaxed) {
            // The pointer that was stored, not one made from a reference: it is freed through it.
            Ok(old) => Ok(match from {
                State::Inline(_) => None,
                State::Extra(_) => NonNull::new(old),
            }),
            Err(_) => Err(match Inline::from_addr(new.addr()) {
                Some(word) => Initial::Inline(word),
                // SAFETY: it was not published.
                None => Initial::Extra(unsafe { Box::from_raw(new) }),
            }),
        }
    }

    /// Gives a node that is in no slot another state.
    pub(crate) fn reset_state(&self, state: Initial<V>) {
        // ORDERING: Relaxed, published by the commit; others read nothing but the key until then.
        let old = self.state.swap(state.into_raw(), Relaxed);
        if Inline::from_addr(old.addr()).is_none() {
            // SAFETY: the node owned its block, and nobody else has read the state.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// The tail of a heavy node.
    ///
    /// # Safety
    /// The node was allocated with a tail.
    #[inline]
    pub(crate) unsafe fn tail(&self) -> &Tail {
        let heavy: *const HeavyNode<K, V> = ptr::from_ref(self).cast();
        // SAFETY: by the caller; `node` is the first field of a `repr(C)` struct, and nodes are only
        // referred to through pointers that stem from the whole allocation.
        unsafe { &(*heavy).tail }
    }
}

impl<K, V> Node<K, V> {
    /// Frees the memory of a node, and its value if it still has one.
    ///
    /// # Safety
    /// As [`Garbage::free`].
    unsafe fn free_node(node: *mut Self, hollow: bool) {
        // SAFETY: by the caller nobody else uses the node.
        let state = unsafe { (*node).state.load(Acquire) };
        let flags = match Inline::from_addr(state.addr()) {
            Some(word) => word.flags(),
            // SAFETY: the node owns its block.
            None => unsafe { Box::from_raw(state) }.flags,
        };
        let hollow = hollow || flags.is_hollow();
        if flags.is_heavy() {
            // SAFETY: heavy nodes were allocated as such.
            let owned = *unsafe { Box::from_raw(node.cast::<HeavyNode<K, V>>()) };
            owned.node.drop_fields(hollow);
        } else {
            // SAFETY: allocated as a plain box.
            let owned = *unsafe { Box::from_raw(node) };
            owned.drop_fields(hollow);
        }
    }

    fn drop_fields(self, hollow: bool) {
        let Node { key, value, .. } = self;
        // Both are dropped even if one destructor panics.
        let _key = key;
        if !hollow {
            // SAFETY: by `value`'s invariant; `hollow` says that there is none, or that it was moved out.
            drop(unsafe { value.into_inner() });
        }
    }
}

// SAFETY: frees each kind as it was allocated: nodes in `Node::allocate`, extra blocks as boxes, tables
// in `table::free_table`.
unsafe impl<K, V> Garbage for Node<K, V> {
    unsafe fn free(retired: *mut (), kind: Kind) {
        match kind {
            // SAFETY: by the caller.
            Kind::Whole => unsafe { Self::free_node(retired.cast(), false) },
            // SAFETY: by the caller.
            Kind::Hollow => unsafe { Self::free_node(retired.cast(), true) },
            // SAFETY: by the caller; retired in `retire_extra`.
            Kind::Extra => drop(unsafe { Box::from_raw(retired.cast::<Extra<V>>()) }),
            // SAFETY: by the caller.
            Kind::Table => unsafe { table::free_table(retired) },
        }
    }
}

// SAFETY: as for `Garbage`; the state word gives a node an alignment of 8.
unsafe impl<K, V> table::Node for Node<K, V> {
    type Value = V;

    unsafe fn take_value(node: *mut Self) -> V {
        // SAFETY: by the caller; other threads read only the key.
        let value = unsafe { &raw const (*node).value };
        // SAFETY: by the caller: initialised, and read out once.
        unsafe { Late::take(value) }
    }
}

const _: () = assert!(cfg!(seawall_loom) || size_of::<Node<(), ()>>() == 8);
const _: () = assert!(cfg!(seawall_loom) || size_of::<Node<u64, Arc<()>>>() == 24);
