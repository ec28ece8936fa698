//! Atomics for unit tests: as the standard ones, but a thread can be stopped before any operation.
//!
//! [`stop_at`] arms the calling thread: before its n-th atomic operation it waits until the test lets
//! it go. So "stop a thread at each yield point of each operation" is a loop over n.

use std::cell::RefCell;
use std::sync::atomic::{self, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pins hold the garbage of all tests in the process: those that stop pinned threads, and those that
/// count garbage, take turns.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Plan {
    left: usize,
    then: Option<usize>,
    stopped: Sender<()>,
    release: Receiver<()>,
}

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

/// Stops the calling thread before its `n`-th atomic operation from now on: it sends on `stopped` and
/// waits for `release` (or for its sender's end).
pub(crate) fn stop_at(n: usize, stopped: Sender<()>, release: Receiver<()>) {
    PLAN.with_borrow_mut(|plan| *plan = Some(Plan { left: n, then: None, stopped, release }));
}

/// As [`stop_at`], and a second time before the `then`-th operation after that.
pub(crate) fn stop_twice(n: usize, then: usize, stopped: Sender<()>, release: Receiver<()>) {
    PLAN.with_borrow_mut(|plan| *plan = Some(Plan { left: n, then: Some(then), stopped, release }));
}

/// Disarms the calling thread; returns whether it never came as far as its stop.
pub(crate) fn disarm() -> bool {
    PLAN.with_borrow_mut(Option::take).is_some()
}

#[inline]
fn point() {
    let due = PLAN.try_with(|plan| match &mut *plan.borrow_mut() {
        Some(plan) if plan.left > 0 => {
            plan.left -= 1;
            false
        }
        Some(_) => true,
        None => false,
    });
    if due == Ok(true) {
        if let Some(plan) = PLAN.with_borrow_mut(Option::take) {
            let _ = plan.stopped.send(());
            let _ = plan.release.recv();
            if let Some(left) = plan.then {
                PLAN.with_borrow_mut(|next| *next = Some(Plan { left, then: None, ..plan }));
            }
        }
    }
}

macro_rules! common {
    ($name:ident $(<$t:ident>)?, $inner:ty, $value:ty) => {
        #[derive(Debug)]
        #[repr(transparent)]
        pub(crate) struct $name $(<$t>)? ($inner);

        #[allow(dead_code, reason = "one set of methods for all types")]
        impl $(<$t>)? $name $(<$t>)? {
            pub(crate) const fn new(value: $value) -> Self {
                Self(<$inner>::new(value))
            }
            #[inline]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }
            #[inline]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }
            #[inline]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }
            #[inline]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty) => {
        #[allow(dead_code, reason = "one set of methods for all types")]
        impl $name {
            #[inline]
            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_add(value, order)
            }
            #[inline]
            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_sub(value, order)
            }
            #[inline]
            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_or(value, order)
            }
        }
        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }
    };
}

impl AtomicU32 {
    pub(crate) fn as_ptr(&self) -> *mut u32 {
        self.0.as_ptr()
    }
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

common!(AtomicBool, atomic::AtomicBool, bool);
common!(AtomicI64, atomic::AtomicI64, i64);
common!(AtomicU32, atomic::AtomicU32, u32);
common!(AtomicU64, atomic::AtomicU64, u64);
common!(AtomicUsize, atomic::AtomicUsize, usize);
common!(AtomicPtr<T>, atomic::AtomicPtr<T>, *mut T);
arithmetic!(AtomicI64, i64);
arithmetic!(AtomicU32, u32);
arithmetic!(AtomicU64, u64);
arithmetic!(AtomicUsize, usize);
