//! Models of pins: what was unlinked is not touched while a pin may have found it.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::registry::{Epochs, Local};
use crate::sync::barrier::model::Pair::{Full, LightAndHeavy};
use crate::sync::barrier::model::{Pair, with_fences_of};
use crate::sync::{Acquire, AtomicUsize, Release};

fn model_with(pair: Pair, body: impl Fn() + Send + Sync + 'static) {
    with_fences_of(pair, || loom::model(body));
}

/// An object and the link that leads to it. Freeing is a write that loom lets overlap with no read.
struct Shelf {
    epochs: &'static Epochs,
    link: AtomicUsize,
    object: UnsafeCell<u32>,
}

impl Shelf {
    fn new() -> Arc<Shelf> {
        Arc::new(Shelf {
            epochs: Box::leak(Box::new(Epochs::new())),
            link: AtomicUsize::new(1),
            object: UnsafeCell::new(7),
        })
    }

    fn read(&self, local: &Local) {
        local.pin(self.epochs);
        self.look();
        local.unpin();
    }

    fn look(&self) {
        if self.link.load(Acquire) == 1 {
            // SAFETY: what is modelled.
            self.object.with(|object| assert_eq!(unsafe { *object }, 7, "read after it was freed"));
        }
    }

    /// Returns the epoch that ended.
    fn unlink(&self) -> u64 {
        self.link.store(0, Release);
        self.epochs.advance()
    }

    fn free(&self) {
        // SAFETY: what is modelled.
        self.object.with_mut(|object| unsafe { *object = 0 });
    }

    /// Frees it if it may be freed.
    fn reclaim(&self, unlinked: u64) {
        if unlinked < self.epochs.bounds(None).now {
            self.free();
        }
    }

    fn unlink_and_free(&self) {
        let unlinked = self.unlink();
        self.epochs.fence();
        self.reclaim(unlinked);
    }
}

fn spawn(shelf: &Arc<Shelf>, body: impl FnOnce(&Shelf) + 'static) -> thread::JoinHandle<()> {
    let shelf = Arc::clone(shelf);
    thread::spawn(move || body(&shelf))
}

#[test]
fn loom_epoch_nothing_is_freed_under_a_pin() {
    model_with(LightAndHeavy, || {
        let shelf = Shelf::new();
        let reader = spawn(&shelf, |shelf| shelf.read(shelf.epochs.claim()));
        shelf.unlink_and_free();
        reader.join().unwrap();
    });
}

#[test]
fn loom_epoch_a_second_pin_and_a_repin_protect_as_the_first() {
    model_with(LightAndHeavy, || {
        let shelf = Shelf::new();
        let local = shelf.epochs.claim();
        let reader = spawn(&shelf, move |shelf| {
            shelf.read(local);
            local.pin(shelf.epochs);
            local.repin(shelf.epochs);
            shelf.look();
            local.unpin();
        });
        shelf.unlink_and_free();
        reader.join().unwrap();
    });
}

#[test]
fn loom_epoch_an_inner_pin_ends_nothing() {
    model_with(LightAndHeavy, || {
        let shelf = Shelf::new();
        let local = shelf.epochs.claim();
        let reader = spawn(&shelf, move |shelf| {
            local.pin(shelf.epochs);
            shelf.read(local);
            shelf.look();
            local.unpin();
        });
        shelf.unlink_and_free();
        reader.join().unwrap();
    });
}

#[test]
fn loom_epoch_another_thread_frees() {
    model_with(LightAndHeavy, || {
        let shelf = Shelf::new();
        let epoch = Arc::new(AtomicUsize::new(0));
        let local = shelf.epochs.claim();
        let reader = spawn(&shelf, |shelf| shelf.read(local));
        let told = Arc::clone(&epoch);
        let unlinker = spawn(&shelf, move |shelf| {
            told.store(shelf.unlink() as usize, Release);
        });
        // It may also have fenced before that.
        shelf.epochs.fence();
        let unlinked = epoch.load(Acquire) as u64;
        if unlinked != 0 {
            shelf.reclaim(unlinked);
        }
        reader.join().unwrap();
        unlinker.join().unwrap();
    });
}

#[test]
fn loom_epoch_what_one_thread_fenced_another_may_free() {
    model_with(LightAndHeavy, || {
        let shelf = Shelf::new();
        let local = shelf.epochs.claim();
        let reader = spawn(&shelf, |shelf| shelf.read(local));
        let fencer = spawn(&shelf, |shelf| {
            shelf.epochs.fence();
        });
        let unlinked = shelf.unlink();
        shelf.reclaim(unlinked);
        reader.join().unwrap();
        fencer.join().unwrap();
    });
}

/// Without a heavy fence: the reader may have pinned in a later epoch before, and be seen to.
#[test]
fn loom_epoch_a_later_pin_tells_as_much_as_a_fence() {
    model_with(Full, || {
        let shelf = Shelf::new();
        let local = shelf.epochs.claim();
        let reader = spawn(&shelf, move |shelf| {
            shelf.read(local);
            shelf.read(local);
        });
        let unlinked = shelf.unlink();
        shelf.reclaim(unlinked);
        reader.join().unwrap();
    });
}

/// The same, where the reader may not be seen at all.
#[test]
fn loom_epoch_who_is_overlooked_finds_nothing() {
    model_with(Full, || {
        let shelf = Shelf::new();
        let reader = spawn(&shelf, move |shelf| {
            let local = shelf.epochs.claim();
            shelf.read(local);
            local.end();
            shelf.read(shelf.epochs.claim());
        });
        let unlinked = shelf.unlink();
        shelf.reclaim(unlinked);
        reader.join().unwrap();
    });
}

#[test]
fn loom_epoch_bounds_say_nothing_of_what_is_unlinked_after_them() {
    model_with(Full, || {
        let shelf = Shelf::new();
        let reader = spawn(&shelf, |shelf| shelf.read(shelf.epochs.claim()));
        let unlinked = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&unlinked);
        let unlinker = spawn(&shelf, move |shelf| told.store(shelf.unlink() as usize, Release));
        let bounds = shelf.epochs.bounds(None);
        let unlinked = unlinked.load(Acquire) as u64;
        if unlinked != 0 && unlinked < bounds.now {
            shelf.free();
        }
        reader.join().unwrap();
        unlinker.join().unwrap();
    });
}

#[test]
fn loom_epoch_a_local_changes_hands() {
    model_with(Full, || {
        let shelf = Shelf::new();
        // What the owner of a stripe does: neither is a read-modify-write.
        let stripe = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let theirs = Arc::clone(&stripe);
        let count = |stripe: &(AtomicUsize, AtomicUsize), local: &Local| {
            let cell = if local.stripe().index() == 0 { &stripe.0 } else { &stripe.1 };
            cell.store(cell.load(crate::sync::Relaxed) + 1, crate::sync::Relaxed);
        };
        let reader = spawn(&shelf, move |shelf| {
            let local = shelf.epochs.claim();
            shelf.read(local);
            count(&theirs, local);
            local.end();
        });
        let local = shelf.epochs.claim();
        count(&stripe, local);
        let unlinked = shelf.unlink();
        shelf.reclaim(unlinked);
        local.end();
        reader.join().unwrap();
        let sum = stripe.0.load(Acquire) + stripe.1.load(Acquire);
        assert_eq!(sum, 2, "two owners of one stripe");
    });
}
