//! What a node's state word says: freshness in the word itself, or a block that it points to.
//!
//! ```text
//! bit 0      an [`Inline`] word
//! bits 2..0  100 or 110: a flight, as the place of a key that is being loaded (N2); 110: of a heavy node
//!            000: an [`Extra`] block
//! ```

use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::answer::KeyFlight;
use crate::freshness::{Deadlines, Flags, Freshness, Generation, Inline, Profiles};
use crate::guard::Attempt;
use crate::table::reclaim::{Guard, check_read};
use crate::tags::{Stamp, Stamps};

/// Of a pointer to a flight, which is one of its counted references.
const FLIGHT: usize = 4;
/// Of such a pointer in a heavy node.
const HEAVY: usize = 2;
const TAGS: usize = FLIGHT | HEAVY;

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

impl<V> Extra<V> {
    /// One that says no more than this.
    pub(crate) fn new(
        flags: Flags,
        content: Content,
        generation: u64,
        deadlines: Deadlines,
    ) -> Extra<V> {
        Extra {
            flags,
            content,
            generation,
            deadlines,
            version: None,
            tags: Stamps::default(),
            flight: None,
            product: false,
            attempt: None,
        }
    }
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

/// A state word as it was read, with what it points to while the guard lives.
pub(crate) enum State<'g, V> {
    Inline(Inline),
    Extra(&'g Extra<V>),
    /// The place of a key that is being loaded.
    Loading(Loading<'g, V>),
}

/// A state word that is a reference to a flight.
pub(crate) struct Loading<'g, V> {
    raw: *mut (),
    flight: &'g KeyFlight<V>,
}

impl<V> Clone for Loading<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Loading<'_, V> {}

impl<'g, V> Loading<'g, V> {
    /// # Safety
    /// As [`State::of`], of such a word.
    unsafe fn of(raw: *mut ()) -> Self {
        // SAFETY: by the caller; the word is a counted reference (N2).
        let flight = unsafe { &*raw.map_addr(|addr| addr & !TAGS).cast() };
        Loading { raw, flight }
    }

    pub(crate) fn flight(self) -> &'g KeyFlight<V> {
        self.flight
    }

    /// The flight, to keep.
    fn own(self) -> Arc<KeyFlight<V>> {
        // Not made from the reference, which is good for the flight only, and not for its count.
        let flight: *const KeyFlight<V> = self.raw.map_addr(|addr| addr & !TAGS).cast();
        // SAFETY: made by `Arc::into_raw`, and the word's reference is not given up before the guard is
        // (N2).
        unsafe { Arc::increment_strong_count(flight) };
        // SAFETY: as above; it has just been counted.
        unsafe { Arc::from_raw(flight) }
    }

    pub(crate) fn flags(self) -> Flags {
        flags_of(self.raw)
    }
}

impl<V> std::fmt::Debug for State<'_, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("content", &self.content()).finish_non_exhaustive()
    }
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

    /// What a word says.
    ///
    /// # Safety
    /// The word was read from a node's state after the guard was taken.
    pub(super) unsafe fn of(raw: *mut (), guard: &'g Guard) -> State<'g, V> {
        if let Some(word) = Inline::from_addr(raw.addr()) {
            return State::Inline(word);
        }
        check_read(raw.map_addr(|addr| addr & !HEAVY), guard);
        if raw.addr() & FLIGHT == 0 {
            // SAFETY: a block is retired only after it was replaced, and the guard was taken before it was
            // read.
            return State::Extra(unsafe { &*raw.cast() });
        }
        // SAFETY: as above.
        State::Loading(unsafe { Loading::of(raw) })
    }

    /// The state word, but for its provenance.
    pub(super) fn raw(self) -> *mut () {
        match self {
            State::Inline(word) => ptr::without_provenance_mut(word.addr()),
            State::Extra(extra) => ptr::from_ref(extra).cast_mut().cast(),
            State::Loading(loading) => loading.raw,
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
            State::Loading(it) => it.flight.generation() == generation.number(),
        }
    }

    #[inline]
    pub(crate) fn has_deadlines(&self) -> bool {
        match self {
            State::Inline(word) => word.has_deadlines(),
            State::Extra(_) | State::Loading(_) => true,
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
            State::Loading(_) => Deadlines::NONE,
        }
    }

    pub(crate) fn version(&self) -> Option<u64> {
        match self {
            State::Extra(extra) => extra.version,
            State::Inline(_) | State::Loading(_) => None,
        }
    }

    pub(crate) fn content(&self) -> Content {
        match self {
            State::Inline(word) if word.flags().is_hollow() => Content::Absent,
            State::Inline(_) => Content::Value,
            State::Extra(extra) => extra.content,
            State::Loading(_) => Content::Nothing,
        }
    }

    pub(crate) fn flight(&self) -> Option<&'g KeyFlight<V>> {
        match *self {
            State::Inline(_) => None,
            State::Extra(extra) => extra.flight.as_deref(),
            State::Loading(loading) => Some(loading.flight),
        }
    }

    /// The flight, to keep.
    pub(crate) fn own_flight(&self) -> Option<Arc<KeyFlight<V>>> {
        match *self {
            State::Inline(_) => None,
            State::Extra(extra) => extra.flight.clone(),
            State::Loading(loading) => Some(loading.own()),
        }
    }

    /// The flight that brought this, while it may still be told what counts for this too.
    pub(crate) fn product_of(&self) -> Option<&'g KeyFlight<V>> {
        match self {
            State::Extra(extra) if extra.product => extra.flight.as_deref(),
            _ => None,
        }
    }

    /// Whether this is the place of a key that is being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        matches!(self, State::Loading(_))
    }

    pub(crate) fn attempt(&self) -> Option<Attempt> {
        match self {
            State::Extra(extra) => extra.attempt,
            State::Inline(_) | State::Loading(_) => None,
        }
    }
}

/// A state that a node is given.
pub(crate) enum Initial<V> {
    Inline(Inline),
    Extra(Box<Extra<V>>),
}

impl<V> Initial<V> {
    pub(super) fn into_raw(self) -> *mut () {
        match self {
            Initial::Inline(word) => ptr::without_provenance_mut(word.addr()),
            Initial::Extra(extra) => Box::into_raw(extra).cast(),
        }
    }

    /// Takes back what [`into_raw`](Self::into_raw) has made.
    ///
    /// # Safety
    /// It was made by that, and is taken back once.
    pub(super) unsafe fn from_raw(raw: *mut ()) -> Initial<V> {
        match Inline::from_addr(raw.addr()) {
            Some(word) => Initial::Inline(word),
            // SAFETY: by the caller.
            None => Initial::Extra(unsafe { Box::from_raw(raw.cast()) }),
        }
    }
}

/// The state word of the place of a key that is being loaded, in a node with these flags.
pub(super) fn loading<V>(flight: Arc<KeyFlight<V>>, flags: Flags) -> *mut () {
    let raw: *mut () = Arc::into_raw(flight).cast_mut().cast();
    raw.map_addr(|addr| addr | tags(flags))
}

fn tags(flags: Flags) -> usize {
    if flags.is_heavy() { FLIGHT | HEAVY } else { FLIGHT }
}

fn flags_of(raw: *mut ()) -> Flags {
    let flags = if raw.addr() & HEAVY == 0 { Flags::NONE } else { Flags::HEAVY };
    flags.hollow()
}

/// What a state word pointed to, to be retired: as it is there, but for the heavy bit, which a limbo needs
/// for itself.
pub(super) fn block(raw: *mut ()) -> Option<NonNull<()>> {
    if Inline::from_addr(raw.addr()).is_some() {
        return None;
    }
    NonNull::new(raw.map_addr(|addr| addr & !HEAVY))
}

/// Frees what a state word, or a [`block`], points to; returns the flags of the node.
///
/// # Safety
/// Nobody else uses it, and it is freed once.
pub(super) unsafe fn free<V>(raw: *mut ()) -> Flags {
    if raw.addr() & FLIGHT != 0 && Inline::from_addr(raw.addr()).is_none() {
        // SAFETY: made by `loading`, and freed once (N2).
        drop(unsafe { Arc::<KeyFlight<V>>::from_raw(raw.map_addr(|addr| addr & !TAGS).cast()) });
        return flags_of(raw);
    }
    // SAFETY: by the caller; made by `Initial::into_raw`.
    match unsafe { Initial::<V>::from_raw(raw) } {
        Initial::Inline(word) => word.flags(),
        Initial::Extra(extra) => extra.flags,
    }
}
