//! Which threads are pinned, and since when: the protocol. See DESIGN.md section 6.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | E1 | `advance` | `announce` loads `current` | what was unlinked before the epoch began |
//! | E2 | a store of `word` | `bounds` loads it | all reads under the thread's earlier pins |
//! | E3 | a local is pushed | the walks of the list | its fields |
//! | E4 | `fenced` is stored | `bounds` loads it | what the fence made visible |
//! | T1 | a local is given back | `claim` takes it, `bounds` passes over it | what its former owner wrote to its stripes without read-modify-write, and its reads |

use std::iter;

use crate::sync::barrier;
use crate::sync::{
    AcqRel, Acquire, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Padded, Relaxed, Release,
    Stripe,
};

/// Epochs are even; a local's word is the epoch of its last pin, and this while that lasts.
const PINNED: u64 = 1;
const STEP: u64 = 2;
/// In `pins`: the owner is gone, and the last pin gives the local back.
const ENDED: usize = 1 << (usize::BITS - 1);

/// The clock of unlinking, and all who may be reading.
pub(super) struct Epochs {
    current: Padded<AtomicU64>,
    /// All threads have passed a fence since this epoch began.
    fenced: AtomicU64,
    locals: AtomicPtr<Local>,
}

/// What a live thread owns. Never freed: when its thread ends, the next one takes it over.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Local {
    word: AtomicU64,
    /// How many pins there are. Only the owner looks at it.
    pins: AtomicUsize,
    taken: AtomicBool,
    stripe: Stripe,
    next: Option<&'static Local>,
}

/// What was unlinked in an epoch before these is no longer read by anyone: as it is, and as it would be
/// after [`Epochs::fence`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) now: u64,
    if_fenced: u64,
}

impl Epochs {
    #[cfg(not(seawall_loom))]
    pub(super) const fn new() -> Self {
        Epochs {
            current: Padded(AtomicU64::new(STEP)),
            fenced: AtomicU64::new(0),
            locals: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    #[cfg(seawall_loom)]
    pub(super) fn new() -> Self {
        Epochs {
            current: Padded(AtomicU64::new(STEP)),
            fenced: AtomicU64::new(0),
            locals: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Ends the current epoch and returns it: pins of later ones see what the caller has unlinked.
    pub(super) fn advance(&self) -> u64 {
        // ORDERING (E1): Release publishes the unlinking; Acquire, so that what was unlinked before by
        // others is published by this as well.
        self.current.fetch_add(STEP, AcqRel)
    }

    /// Looks who may be reading. `own` is the caller's local.
    pub(super) fn bounds(&self, own: Option<&Local>) -> Bounds {
        // What is unlinked later may be found by pins that are overlooked here.
        // ORDERING (E1): Acquire: what was unlinked in the epochs before comes before the fence.
        let current = self.current.load(Acquire);
        // H2: pairs with the fence in `claim`: whoever owns a local that is not seen as taken here finds
        // nothing of that.
        barrier::full();
        // ORDERING (E4): as if the fence had been here.
        let fenced = self.fenced.load(Acquire);
        let mut bounds = Bounds { now: current, if_fenced: current };
        // ORDERING (T1): Acquire: what the former owner read is done with.
        for local in self.locals().filter(|local| local.taken.load(Acquire)) {
            // ORDERING (E2): Acquire, also where there is no pin: the reads of earlier ones are done.
            let word = local.word.load(Acquire);
            let epoch = word & !PINNED;
            if word != epoch {
                bounds.now = bounds.now.min(epoch);
                bounds.if_fenced = bounds.if_fenced.min(epoch);
            } else if own.is_none_or(|own| !std::ptr::eq(own, local)) {
                // A pin of it may be on its way to us. It is no older than the last one; and what was
                // unlinked before a fence it cannot have found, or it would be seen.
                bounds.now = bounds.now.min(epoch.max(fenced));
            }
        }
        bounds
    }

    /// Makes all threads pass a fence (a system call of some microseconds): what they have stored so far
    /// will be seen. Returns false if that failed.
    pub(super) fn fence(&self) -> bool {
        // ORDERING (E1): Acquire, as in `bounds`.
        let current = self.current.load(Acquire);
        let fenced = barrier::heavy();
        if fenced {
            // ORDERING (E4): Release, see `bounds`.
            self.fenced.store(current, Release);
        }
        fenced
    }

    /// The bound of now; with a fence, if that is allowed and raises it.
    pub(super) fn bound(&self, own: Option<&Local>, may_fence: bool) -> u64 {
        let bounds = self.bounds(own);
        if may_fence && bounds.now < bounds.if_fenced && self.fence() {
            return self.bounds(own).now;
        }
        bounds.now
    }

    fn locals(&self) -> impl Iterator<Item = &'static Local> {
        // ORDERING (E3): Acquire pairs with the push in `claim`.
        let first = self.locals.load(Acquire);
        // SAFETY: a local is pushed once it is whole, and never freed.
        iter::successors(unsafe { first.as_ref() }, |local: &&'static Local| local.next)
    }

    /// Finds a local for a thread: the one with the lowest stripe that nobody owns.
    pub(super) fn claim(&self) -> &'static Local {
        let local = self.take_free().unwrap_or_else(|| self.push());
        // H2: see `bounds`.
        barrier::full();
        local
    }

    fn take_free(&self) -> Option<&'static Local> {
        while let Some(local) = self.locals().filter(|local| !local.taken.load(Relaxed)).last() {
            // ORDERING (T1): Acquire, see `give_back`.
            if local.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
                return Some(local);
            }
        }
        None
    }

    fn push(&self) -> &'static Local {
        barrier::prepare();
        let mut local = Box::new(Local {
            word: AtomicU64::new(0),
            pins: AtomicUsize::new(0),
            taken: AtomicBool::new(true),
            stripe: Stripe::new(0),
            next: None,
        });
        loop {
            // ORDERING (E3): Acquire: the stripe of the first is read.
            let first = self.locals.load(Acquire);
            // SAFETY: as in `locals`.
            local.next = unsafe { first.as_ref() };
            local.stripe = Stripe::new(local.next.map_or(0, |next| next.stripe.index() + 1));
            let raw = Box::into_raw(local);
            // ORDERING (E3): Release publishes the fields.
            if self.locals.compare_exchange(first, raw, AcqRel, Relaxed).is_ok() {
                // SAFETY: from `into_raw`, and from now on never freed.
                return unsafe { &*raw };
            }
            // SAFETY: from `into_raw`; it was not pushed, so it is ours alone.
            local = unsafe { Box::from_raw(raw) };
        }
    }
}

// Only the owner of a local calls these.
impl Local {
    /// Its owner's index among the live threads. Indices are dense, and no two live threads have one; a
    /// thread that is ending has none any more.
    #[inline]
    pub(super) fn stripe(&self) -> Stripe {
        if self.pins.load(Relaxed) & ENDED == 0 { self.stripe } else { Stripe::SHARED }
    }

    /// What is reachable from now on stays allocated until the matching [`Self::unpin`].
    #[inline]
    pub(super) fn pin(&self, epochs: &Epochs) {
        let pins = self.pins.load(Relaxed);
        self.pins.store(pins + 1, Relaxed);
        if pins == 0 || pins == ENDED {
            self.announce(epochs);
        }
    }

    /// Lets go of what was reachable so far, if there is only one pin.
    pub(super) fn repin(&self, epochs: &Epochs) {
        if self.pins.load(Relaxed) & !ENDED == 1 {
            self.announce(epochs);
        }
    }

    #[inline]
    fn announce(&self, epochs: &Epochs) {
        // ORDERING (E1): Acquire pairs with `advance`: under a later epoch nothing is found that was
        // unlinked before it.
        let epoch = epochs.current.load(Acquire);
        // ORDERING (E2): Release: who sees this pin knows that the reads of earlier ones are done.
        self.word.store(epoch | PINNED, Release);
        // H1: who fences after what follows was unlinked sees this pin.
        barrier::light();
    }

    #[inline]
    pub(super) fn unpin(&self) {
        let pins = self.pins.load(Relaxed) - 1;
        self.pins.store(pins, Relaxed);
        if pins == 0 {
            self.withdraw();
        } else if pins == ENDED {
            self.withdraw();
            self.give_back();
        }
    }

    #[inline]
    fn withdraw(&self) {
        // ORDERING (E2): Release: all reads of this pin come before.
        self.word.store(self.word.load(Relaxed) & !PINNED, Release);
    }

    /// The owner's thread ends: gives the local back, now or with the last pin.
    pub(super) fn end(&self) {
        if self.pins.load(Relaxed) == 0 {
            self.give_back();
        } else {
            self.end_with_pin();
        }
    }

    /// Has the local given back with the last pin, the next one if there is none now.
    pub(super) fn end_with_pin(&self) {
        self.pins.store(self.pins.load(Relaxed) | ENDED, Relaxed);
    }

    #[cold]
    fn give_back(&self) {
        self.pins.store(0, Relaxed);
        // ORDERING (T1): Release: what was written to the stripe comes before the next owner.
        self.taken.store(false, Release);
    }
}
