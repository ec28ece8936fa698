//! Reclamation in loom models: nothing is freed before the model ends, but reading an object that was
//! retired before the reader pinned fails, and so does retiring one twice.

use std::marker::PhantomData;
use std::sync::Mutex;

use super::{Garbage, Kind};
use crate::sync::{AcqRel, Acquire, AtomicUsize, Stripe};

loom::lazy_static! {
    /// Counts retirements. A pin loads it: of those that it sees it knows that they happened before, as a
    /// real one does of the epochs that have ended. No more than that: a pin orders nothing else.
    static ref RETIREMENTS: AtomicUsize = AtomicUsize::new(0);
    static ref RETIRED: Mutex<Vec<Retired>> = Mutex::default();
}

#[derive(Debug)]
struct Retired {
    addr: usize,
    at: usize,
}

#[derive(Debug)]
pub(crate) struct Guard {
    at: usize,
}

pub(crate) fn pin() -> Guard {
    Guard { at: RETIREMENTS.load(Acquire) }
}

pub(crate) fn stripe() -> Stripe {
    Stripe::SHARED
}

impl Guard {
    pub(crate) fn stripe(&self) -> Stripe {
        Stripe::SHARED
    }

    pub(crate) fn repin(&mut self) {
        *self = pin();
    }
}

/// Fails if the guard saw that the object had been retired.
pub(crate) fn check_read<T>(object: *const T, guard: &Guard) {
    let retired = RETIRED.lock().unwrap();
    let freed = retired.iter().any(|it| it.addr == object.addr() && it.at < guard.at);
    drop(retired);
    assert!(!freed, "read an object that was retired before the pin");
}

pub(crate) struct Limbo<G: Garbage> {
    objects: Mutex<Vec<(*mut (), Kind)>>,
    owns: PhantomData<G>,
}

// SAFETY: as the real limbo, behind a mutex.
unsafe impl<G: Garbage + Send> Send for Limbo<G> {}
// SAFETY: as above.
unsafe impl<G: Garbage + Send + Sync> Sync for Limbo<G> {}

impl<G: Garbage> std::fmt::Debug for Limbo<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limbo").finish_non_exhaustive()
    }
}

impl<G: Garbage> Limbo<G> {
    pub(crate) fn new() -> Self {
        Limbo { objects: Mutex::default(), owns: PhantomData }
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.objects.lock().unwrap().len() as u64
    }

    pub(crate) fn is_due(&self, _stripe: Stripe) -> bool {
        false
    }

    pub(crate) unsafe fn retire(&self, object: *mut (), kind: Kind, _guard: &Guard) {
        let at = RETIREMENTS.fetch_add(1, AcqRel);
        let mut retired = RETIRED.lock().unwrap();
        let twice = retired.iter().any(|it| it.addr == object.addr());
        retired.push(Retired { addr: object.addr(), at });
        drop(retired);
        assert!(!twice, "an object was retired twice");
        self.objects.lock().unwrap().push((object, kind));
    }

    pub(crate) fn seal_early(&self, _guard: &Guard) {}

    pub(crate) fn free_ready(&self, _stripe: Stripe) {}

    pub(crate) fn flush(&self) {}
}

impl<G: Garbage> Drop for Limbo<G> {
    fn drop(&mut self) {
        for (object, kind) in self.objects.get_mut().unwrap().drain(..) {
            // SAFETY: `&mut self`: nobody reads, and nothing was retired twice.
            unsafe { G::free(object, kind) };
        }
    }
}
