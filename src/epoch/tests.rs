//! Tests of what belongs to a thread.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Barrier, Mutex};
use std::thread;

use super::{Guard, pin, stripe};
use crate::sync::Stripe;

/// Runs a closure on as many threads, one after the other, and returns the highest index of any.
fn highest(threads: usize, run: impl Fn() -> Stripe + Sync) -> usize {
    let on_thread = |_| thread::scope(|scope| scope.spawn(&run).join().unwrap().index());
    (0..threads).map(on_thread).max().unwrap()
}

#[test]
fn live_threads_have_different_stripes() {
    let threads = 8;
    let (barrier, seen) = (Barrier::new(threads), Mutex::new(HashSet::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                assert_eq!(pin().stripe(), stripe());
                seen.lock().unwrap().insert(stripe().index());
                barrier.wait();
            });
        }
    });
    assert_eq!(seen.into_inner().unwrap().len(), threads);
}

#[test]
fn a_stripe_is_given_back() {
    let threads = if cfg!(miri) { 30 } else { 600 };
    assert!(highest(threads, stripe) < 300, "an index for one thread after the other");
}

/// Pins when it is dropped, with a thread-local that was made before the thread first pinned and one
/// that was made after: one of them is dropped when the thread's own local is gone.
#[test]
fn the_destructor_of_a_thread_local_can_pin() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            let (outer, inner) = (pin(), pin());
            assert_eq!(stripe() == Stripe::SHARED, outer.stripe() == Stripe::SHARED);
            drop(outer);
            drop(inner);
        }
    }
    thread_local! {
        static BEFORE: Late = const { Late };
        static AFTER: Late = const { Late };
    }
    let run = || {
        BEFORE.with(|_| ());
        let stripe = stripe();
        AFTER.with(|_| ());
        stripe
    };
    let threads = if cfg!(miri) { 30 } else { 600 };
    assert!(highest(threads, run) < 300, "a local was not given back");
}

#[test]
fn a_pin_may_outlive_its_threads_local() {
    thread_local! {
        static BEFORE: RefCell<Option<Guard>> = const { RefCell::new(None) };
        static AFTER: RefCell<Option<Guard>> = const { RefCell::new(None) };
    }
    let run = || {
        BEFORE.with(|_| ());
        let stripe = stripe();
        AFTER.set(Some(pin()));
        BEFORE.set(Some(pin()));
        stripe
    };
    let threads = if cfg!(miri) { 30 } else { 600 };
    assert!(highest(threads, run) < 300, "a local was not given back");
}
