//! A lock-free, high-throughput in-process cache engine for latency-critical servers.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "seawall packs 48-bit addresses and 16 bits of its own into one word: 64-bit targets only"
);

mod builder;
mod cache;
mod clock;
mod engine;
mod entry;
mod error;
mod evict;
mod freshness;
mod iter;
mod listener;
mod node;
mod stats;
mod sync;
mod table;
mod tags;

pub use self::builder::{Builder, InsertOptions};
pub use self::cache::{Cache, Compute, Computed, Inserted, Pinned};
pub use self::clock::{Clock, ManualClock};
pub use self::entry::{Entry, EntryState};
pub use self::error::{ConfigError, Refused, RefusedReason};
pub use self::iter::{Iter, PinnedIter};
pub use self::listener::RemovalCause;
pub use self::stats::Stats;
pub use equivalent::Equivalent;
