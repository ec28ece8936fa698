//! The only files that name atomics and thread-locals.
//!
//! Everything above imports from here, so that one `cfg` swaps the standard atomics for loom's
//! (`--cfg seawall_loom`, models) or for wrappers that can stop a thread at any atomic operation
//! (unit tests, see [`stall`]).

#[cfg(not(any(test, seawall_loom)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize};

#[cfg(seawall_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize};

#[cfg(all(test, not(seawall_loom)))]
pub(crate) use self::stall::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize};

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

mod striped;
pub(crate) use self::striped::{Cell, Padded, Striped};

mod thread;
pub(crate) use self::thread::{OwnedStripe, Stripe};

#[cfg(all(test, not(seawall_loom)))]
pub(crate) mod stall;
