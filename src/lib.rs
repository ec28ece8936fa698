//! A lock-free, high-throughput in-process cache engine for latency-critical servers.
//!
//! A [`Cache`] holds up to a number of entries, or a weight, and can be read and changed by any number
//! of threads and tasks at once. No operation takes a lock or waits for another thread; a hit writes
//! nothing that another core writes. Entries may have deadlines with stale windows, tags, versions and
//! weights.
//!
//! And it stands in front of an origin that can bear only so much: of all callers that miss a key at the
//! same time one loads it; the loads in all, and those who wait, are limited; stale values stand in inside
//! bounded windows; absences are remembered, failures throttled, a sick origin is left alone. See
//! [Loading](#loading), and the [`guide`]: concepts, how to choose the settings from what the origin bears, what
//! holds under which failure, tests, metrics.
//!
//! # Usage
//!
//! ```
//! use seawall::{Cache, Compute, Inserted};
//!
//! let cache: Cache<String, Vec<u8>> = Cache::new(10_000);
//!
//! assert_eq!(cache.insert("key".to_owned(), vec![1, 2, 3])?, Inserted::New);
//!
//! // A copy; a look at the entry where it lies; several looks under one pin.
//! assert_eq!(cache.get("key"), Some(vec![1, 2, 3]));
//! assert_eq!(cache.get_with("key", |entry| entry.value().len()), Some(3));
//! let pinned = cache.pin();
//! assert!(pinned.get("key").is_some() && pinned.get("other").is_none());
//! drop(pinned);
//!
//! // Read and change in one step.
//! cache.compute("key".to_owned(), |entry| match entry {
//!     Some(entry) if entry.value().len() < 4 => Compute::Insert(vec![0; 4]),
//!     _ => Compute::Keep,
//! })?;
//! assert_eq!(cache.remove("key"), Some(vec![0; 4]));
//! # Ok::<(), seawall::Refused<Vec<u8>>>(())
//! ```
//!
//! [`Cache::builder`] has all settings. A cache is a handle of one pointer: clone it to share it. A value
//! that was not stored is handed back in a [`Refused`], with the reason.
//!
//! # What other threads see
//!
//! Each operation on a key takes effect at one moment between its call and its return, and all threads
//! agree on their order. In particular:
//!
//! * A replacement is seen as the old value or the new one, never as neither.
//! * What removes an entry removes the very one that it found. An eviction, an expiry or a removal that
//!   comes late never hits a newer entry of the same key.
//! * [`compute`](Cache::compute) and [`replace_if`](Cache::replace_if) apply a decision to the entry that
//!   it was made for, or ask again. No update is lost.
//! * A read that starts after an invalidation returned sees nothing that was stored before the
//!   invalidation was called.
//!
//! Operations on several keys are not one step: [`get_many`](Cache::get_many), a walk with
//! [`iter`](Cache::iter), [`invalidate_if`](Cache::invalidate_if). A walk returns each entry that is there
//! from its beginning to its end exactly once. And a cache may drop an entry at any time to keep its
//! budget.
//!
//! A thread that is stopped in the middle of an operation keeps no other thread from finishing. What it
//! may cost: the place of one entry, or memory that waits to be freed. Only the memory allocator is
//! outside of this.
//!
//! Nothing of this blocks: all calls may be made from an async task. Only get-or-load waits, for a load;
//! it has blocking and async forms.
//!
//! # Deadlines
//!
//! | until | [`get`](Cache::get) | [`get_on_error`](Cache::get_on_error) | [`EntryState`] |
//! |---|---|---|---|
//! | [`time_to_live`](Builder::time_to_live) | the value | the value | `Fresh` |
//! | [`stale_while_revalidate`](Builder::stale_while_revalidate) after it | the value | the value | `Stale` |
//! | [`stale_if_error`](Builder::stale_if_error) after it | `None` | the value | `StaleOnError` |
//! | for ever | `None` | `None` | |
//!
//! ```
//! use std::time::Duration;
//! use seawall::{Cache, Clock, EntryState};
//!
//! let (clock, hand) = Clock::manual();
//! let cache: Cache<&str, u32> = Cache::builder()
//!     .max_entries(100)
//!     .time_to_live(Duration::from_secs(60))
//!     .stale_while_revalidate(Duration::from_secs(10))
//!     .clock(clock)
//!     .build()?;
//! cache.insert("a", 1)?;
//! hand.advance(Duration::from_secs(65));
//! assert_eq!(cache.get_with("a", |entry| entry.state()), Some(EntryState::Stale));
//! hand.advance(Duration::from_secs(5));
//! assert_eq!(cache.get("a"), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Both windows begin where freshness ends. Deadlines are kept in whole milliseconds and fall due up to
//! one millisecond early, never late. [`InsertOptions`] sets them for one entry, with its age, its
//! version and its tags. [`jitter`](Builder::jitter) and [`early_refresh`](Builder::early_refresh) keep
//! entries that were stored together from expiring together; [`time_to_idle`](Builder::time_to_idle)
//! ends entries that are not read. Entries without any of these never read the clock.
//!
//! Dead entries are not found, but are counted in [`len`](Cache::len) and [`weight`](Cache::weight) until
//! they are reclaimed: by inserts, which look at a few entries each, by evictions, which take them first,
//! or by [`sweep`](Cache::sweep).
//!
//! # Loading
//!
//! [`get_or_load`](Cache::get_or_load) and [`get_or_load_async`](Cache::get_or_load_async) return what the
//! cache has, or load it. Blocking threads and async tasks, on whatever runtime, may wait for the same load.
//!
//! ```
//! use seawall::{Cache, LoadError};
//!
//! let cache: Cache<String, String> = Cache::builder().max_entries(1_000).max_in_flight(64).build()?;
//! # fn from_database(_: &str) -> Result<String, &'static str> { Ok("Alice".to_owned()) }
//! match cache.get_or_load("user:1", || from_database("user:1")) {
//!     Ok(name) => assert_eq!(name, "Alice"),
//!     Err(LoadError::Refused(refusal)) => eprintln!("busy: {refusal}"),
//!     Err(error) => eprintln!("{error}"),
//! }
//! # Ok::<(), seawall::ConfigError>(())
//! ```
//!
//! * A loader returns a value, an absence, "unchanged", or an error ([`IntoLoad`], [`Load`]).
//!   [`load`](Cache::load) makes a call with a patience of its own, a loader that is told the previous value, and
//!   the whole [`Outcome`]: fresh, stale and why, loaded or joined.
//! * **An async load belongs to the key, not to its first caller.** Whoever waits and is polled drives it; it
//!   ends with the last of them, or not even then ([`detached_loads`](Builder::detached_loads)).
//! * **Writes win.** What is inserted, removed or invalidated while a load is running stays so; those who waited get
//!   what was loaded, those who come after it load anew. An older [version](InsertOptions::version) never
//!   replaces a newer one.
//! * **Stale values** are served while one refresh runs: on the runtime ([`spawner`](Builder::spawner)), on
//!   threads of the cache ([`refresh_with`](Builder::refresh_with)), or by the caller that found the value first.
//!   In the stale-if-error window they stand in for errors, refusals and delays. A failed refresh lengthens nothing.
//! * **Absences** are remembered for [`absent_time_to_live`](Builder::absent_time_to_live) and never confused with
//!   errors. A [Bloom filter](Builder::screen) answers for keys that cannot exist.
//! * **Limits**, adjustable while in use ([`limits`](Cache::limits)): loads at once, callers that wait, starts in a
//!   time, a least time between two loads of a key, backoff with jitter, a breaker. Over a limit a call is refused at
//!   once, never queued, or served a stale value; each refusal says why and is counted
//!   ([`load_stats`](Cache::load_stats)).
//! * [`get_or_load_many`](Cache::get_or_load_many) loads many keys with one call; [`warm_up`](Cache::warm_up) loads
//!   ahead of need, in the background.
//! * A loader must not ask for the key that it is loading: it gets [`LoadError::Reentrant`].
//!
//! Without a cache: [`flight::Group`] coalesces calls, [`guard::OriginGuard`] limits and coalesces them.
//!
//! # Eviction
//!
//! The budget is one for the whole cache, in entries ([`max_entries`](Builder::max_entries)) or in weight
//! ([`max_weight`](Builder::max_weight)). Nothing is evicted while there is room. An insert into a full
//! cache evicts what it needs before it returns; until then the cache may hold one entry more for each
//! thread that is inserting. An entry heavier than the whole budget is refused.
//!
//! Which entry goes is decided by S3-FIFO over a sample: new entries are on probation in a small region,
//! those used meanwhile move to the main one, and a key that comes back soon after its eviction goes
//! there at once.
//!
//! ```
//! use seawall::{Cache, RemovalCause};
//!
//! let cache: Cache<u32, String> = Cache::builder()
//!     .max_weight(1_000)
//!     .weigher(|_, text: &String| text.len() as u64)
//!     .removal_listener(|key, _, cause| assert_eq!(cause, RemovalCause::Evicted, "{key}"))
//!     .build()?;
//! for key in 0..100 {
//!     cache.insert(key, "x".repeat(50))?;
//! }
//! assert_eq!((cache.len(), cache.weight()), (20, 1_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When values are dropped
//!
//! A value that was replaced or removed is dropped when no thread can be reading it any more, by a
//! thread that writes, between two operations; never by a reader. That is after a bounded number of
//! writes, or at once by [`sweep`](Cache::sweep), unless some thread is pinned: while a
//! [session](Cache::pin) is held, or a closure of `get_with` runs, nothing that any cache of this crate in
//! the process has taken out since is dropped. When the last handle of a cache is dropped, everything
//! in it is, at once.
//!
//! # User code
//!
//! `Hash`, `Eq`, `Clone`, `Drop`, the weigher, the listener and closures may panic and may call the cache
//! again; the cache stays as it should be. A panic goes on in the caller, but for that of a destructor
//! of a value that waited to be dropped, which ends there. The listener is called when an operation is
//! over; it may block, which holds up its own thread only.
//!
//! # Limits
//!
//! * 64-bit targets, and addresses of heap blocks below 2^48.
//! * At most 24 entries whose hashes share the upper bits: a constant hash makes a cache of 24 entries.
//! * The table of a cache bounded by entries is allocated for that number, up to four million; the system
//!   provides its pages as they are used. Beyond that, and with a budget by weight, the table grows.
//! * Entries that are borrowed from the cache stay on their thread, inside a closure or a session. To keep
//!   a value across an `.await`, clone it; an `Arc` makes that cheap.
//! * The [removal listener](Builder::removal_listener) gets clones.
//!
//! # Features and Rust version
//!
//! All features are off by default: `tokio` (a runtime's handle as a spawner), `metrics` (export to the facade of that
//! name), `tracing` (a span for each load), `serde` (Bloom filters in its data model),
//! `simd` (Bloom filters are asked by AVX2 where the processor has it). The minimum supported Rust
//! version is 1.85; raising it is a minor release.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "seawall packs 48-bit addresses and 16 bits of its own into one word: 64-bit targets only"
);

mod answer;
pub mod bloom;
mod builder;
mod cache;
mod clock;
mod engine;
mod entry;
mod epoch;
mod error;
mod evict;
pub mod flight;
mod freshness;
pub mod guard;
#[cfg(any(doc, doctest))]
pub mod guide;
mod iter;
mod listener;
mod load;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(test, seawall_loom))]
mod models;
mod node;
mod options;
#[cfg(all(test, not(seawall_loom)))]
mod stalled;
mod stats;
mod sync;
mod table;
mod tags;
mod trace;

pub use self::builder::Builder;
pub use self::cache::{Cache, Compute, Computed, Inserted, Pinned};
pub use self::clock::{Clock, ManualClock};
pub use self::entry::{Entry, EntryState};
pub use self::error::{ConfigError, Refused, RefusedReason};
pub use self::iter::{Iter, PinnedIter};
pub use self::listener::RemovalCause;
pub use self::load::{
    BoxFuture, ErrorClass, Histogram, IntoLoad, KeyStream, Keys, Load, LoadContext, LoadError,
    LoadRequest, LoadStats, Outcome, Reason, Source, Spawn, WarmUp, WarmUpControl, WarmUpProgress,
    WhyStale,
};
pub use self::options::InsertOptions;
pub use self::stats::Stats;
pub use equivalent::Equivalent;

/// Its programs are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
