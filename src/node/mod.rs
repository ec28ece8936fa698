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
//! there (N1). The state word changes; what is in it is told in [`state`].
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | S1 | CAS of the state word | loads of it | the extra block |
//! | N1 | store of the state word in `fill` | loads of it | the value |
//!
//! A state word that points to a flight is one of the flight's counted references (N2): who takes it out
//! retires it.

mod state;

use std::ptr::{self, NonNull};
use std::sync::Arc;

pub(crate) use self::state::{Content, Extra, Initial, State};
use crate::answer::KeyFlight;
use crate::freshness::Flags;
use crate::sync::{AcqRel, Acquire, AtomicPtr, AtomicU64, Late, Relaxed};
use crate::table;
use crate::table::reclaim::{Garbage, Guard, Kind};
use crate::table::word::Word;

#[repr(C)]
pub(crate) struct Node<K, V> {
    key: K,
    /// There unless the state says hollow.
    value: Late<V>,
    /// The node owns what it points to.
    state: AtomicPtr<()>,
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
        Self::allocate_in(state.into_raw(), key, value, tail)
    }

    /// Allocates a hollow node, as the place of a key that is being loaded.
    ///
    /// # Panics
    /// As [`allocate`](Self::allocate).
    pub(crate) fn allocate_pending(
        flight: Arc<KeyFlight<V>>,
        flags: Flags,
        key: K,
        tail: Option<Tail>,
    ) -> NonNull<Node<K, V>> {
        Self::allocate_in(state::loading(flight, flags), key, None, tail)
    }

    fn allocate_in(
        state: *mut (),
        key: K,
        value: Option<V>,
        tail: Option<Tail>,
    ) -> NonNull<Node<K, V>> {
        let value = value.map_or_else(Late::empty, Late::new);
        let node = Node { state: AtomicPtr::new(state), key, value };
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
    pub(crate) unsafe fn fill(&self, value: V, state: Initial<V>) -> Option<NonNull<()>> {
        // SAFETY: the node is hollow, one thread answers a flight, and nobody reads before the state
        // says that there is a value.
        unsafe { self.value.set(value) };
        self.set_state(state)
    }

    /// Gives a node whose key is being loaded another state; returns the old block, to retire. Nobody
    /// else changes the state of such a node.
    pub(crate) fn set_state(&self, state: Initial<V>) -> Option<NonNull<()>> {
        // ORDERING (N1, S1): Release publishes the value and the block.
        let old = self.state.swap(state.into_raw(), AcqRel);
        state::block(old)
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
        // SAFETY: read just now.
        unsafe { State::of(raw, guard) }
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
    ) -> Result<Option<NonNull<()>>, Initial<V>> {
        let new = to.into_raw();
        // ORDERING (S1): Release publishes the block.
        match self.state.compare_exchange(from.raw(), new, AcqRel, Relaxed) {
            // The pointer that was stored, not one made from a reference: it is freed through it.
            Ok(old) => Ok(state::block(old)),
            // SAFETY: made above, and not published.
            Err(_) => Err(unsafe { Initial::from_raw(new) }),
        }
    }

    /// Gives a node that is in no slot another state.
    pub(crate) fn reset_state(&self, state: Initial<V>) {
        // ORDERING: Relaxed, published by the commit; others read nothing but the key until then.
        let old = self.state.swap(state.into_raw(), Relaxed);
        // SAFETY: the node owned it, and nobody else has read the state.
        unsafe { state::free::<V>(old) };
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
        // SAFETY: the node owns it.
        let flags = unsafe { state::free::<V>(state) };
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
            // SAFETY: by the caller; a block, retired in `retire_extra`.
            Kind::Extra => drop(unsafe { state::free::<V>(retired) }),
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
