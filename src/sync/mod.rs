//! The only files that name atomics and thread-locals.
//!
//! Everything above imports from here, so that one `cfg` swaps the standard atomics for loom's
//! (`--cfg seawall_loom`, models) or for wrappers that can stop a thread at any atomic operation
//! (unit tests, see [`stall`]).

#[cfg(not(any(test, seawall_loom)))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
};

#[cfg(seawall_loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
};

#[cfg(all(test, not(seawall_loom)))]
pub(crate) use self::stall::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(not(seawall_loom))]
pub(crate) use atomic_waker::AtomicWaker;

#[cfg(seawall_loom)]
pub(crate) use self::model_waker::AtomicWaker;

/// For what models must see locked; other locks are the standard ones.
#[cfg(not(seawall_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(seawall_loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

#[cfg(not(any(seawall_loom, target_os = "linux")))]
pub(crate) use std::sync::Condvar;

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

pub(crate) mod barrier;

mod bell;
pub(crate) use self::bell::Bell;

mod late;
pub(crate) use self::late::Late;

mod memory;
pub(crate) use self::memory::{ask_for_huge_pages, prefetch};

mod striped;
pub(crate) use self::striped::{Cell, Padded, Stripe, Striped};

#[cfg(all(test, not(seawall_loom)))]
pub(crate) mod stall;

/// Loom's, with the names of the real one.
#[cfg(seawall_loom)]
mod model_waker {
    use std::task::Waker;

    #[derive(Debug)]
    pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

    impl AtomicWaker {
        pub(crate) fn new() -> Self {
            AtomicWaker(loom::future::AtomicWaker::new())
        }

        pub(crate) fn register(&self, waker: &Waker) {
            self.0.register_by_ref(waker);
        }

        pub(crate) fn wake(&self) {
            self.0.wake();
        }

        pub(crate) fn take(&self) -> Option<Waker> {
            self.0.take_waker()
        }
    }
}
