//! Bloom filters: a certain *no* for keys that were never inserted.
//!
//! A filter answers "has this key been inserted?" with *certainly not* or *maybe*, from about ten bits
//! a key. In front of a cache it screens keys that cannot exist, so that asking for them costs the
//! origin nothing. It never denies a key that was inserted; how often it says *maybe* to one that was
//! not is chosen when it is sized. Keys cannot be removed; filters are rebuilt, or aged.
//!
//! | type | for |
//! |---|---|
//! | [`Filter`] | a set that only grows. Can be saved, shipped and merged |
//! | [`FrozenFilter`] | a set that does not change any more: the fastest to ask, with the feature `simd` |
//! | [`RebuildingFilter`] | a screen: built anew from the source of truth now and then, while it is in use |
//! | [`AgeingFilter`] | "seen lately": keys are forgotten after two rotations |
//!
//! ```
//! use seawall::bloom::{Filter, plan};
//!
//! let plan = plan(1_000_000, 0.01)?;
//! assert_eq!((plan.bits_per_key() * 100.0).round(), 1010.0);
//! let filter = Filter::new(&plan)?;
//! assert!(filter.insert("alice"));
//! assert!(filter.contains("alice"));
//! assert!(!filter.contains("bob"));
//!
//! let restored = Filter::from_bytes(&filter.to_bytes())?;
//! assert!(restored.contains("alice"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is guaranteed
//!
//! * All operations take `&self`, from any number of threads, without locks; a thread that is stopped
//!   anywhere holds up nobody. Only constructors, snapshots and the start of a rebuild allocate.
//! * A key whose insert returned before a query was made is never denied. "Before" as threads know it:
//!   in one thread, or handed over by a lock, a channel, a join, a Release and Acquire pair.
//! * The same key, seed and size give the same bits in every process, on every platform.
//! * The rate of false positives is the planned one as long as no more keys are inserted than planned
//!   for. A filter that is overfull says so, and gets worse gradually; it never turns wrong.
//! * Keys must not be chosen by someone who knows the seed: xxh3 is fast, but no cryptographic hash. A
//!   random [seed](Filter::with_seed) keeps strangers from making keys that are let through.
//!
//! # Layout
//!
//! The filter is an array of *blocks* of 512 bits, one cache line each: eight words of 64 bits. A key
//! belongs to one block and sets one bit in each of its words. A query reads one line of memory.
//!
//! Let `hash` be the 128-bit xxh3 hash of the key's bytes with the filter's seed ([`BloomKey`] says
//! which bytes), `high` and `low` its upper and lower 64 bits. Then
//!
//! ```text
//! block         = (high * blocks) >> 64             of a 128-bit product
//! bit of word i = (low >> (6 * i)) & 63             i = 0..8; the top 16 bits are not used
//! ```
//!
//! # Snapshots
//!
//! All numbers are little endian.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | magic: `0x89`, then `SWBLOOM` in ASCII |
//! | 8 | 4 | version of the format: 1 |
//! | 12 | 1 | hash function: 1 (xxh3, 128 bits, seeded) |
//! | 13 | 1 | words in a block: 8 |
//! | 14 | 1 | base-2 logarithm of the bits of a word: 6 |
//! | 15 | 1 | zero |
//! | 16 | 8 | seed |
//! | 24 | 8 | number of blocks, at least 1 |
//! | 32 | 8 | number of keys that the filter was planned for, at least 1 |
//! | 40 | 24 | zero |
//! | 64 | 64 a block | the blocks in order, each as eight words; bit *b* has the value 2^*b* |
//! | end | 8 | xxh3, 64 bits, seed 0, of all bytes before |
//!
//! # Sizing
//!
//! The classic formula assumes that a key's bits may be anywhere. In a blocked filter some blocks get
//! more keys than others, and those are worse by more than the emptier ones are better. [`plan`] takes
//! that into account exactly: the number of keys in a block has a Poisson distribution, and a block with
//! *j* keys answers *maybe* with probability `(1 - (63/64)^j)^8`.
//!
//! # References
//!
//! * B. H. Bloom, *Space/time trade-offs in hash coding with allowable errors*, CACM 13(7), 1970.
//! * F. Putze, P. Sanders, J. Singler, *Cache-, hash- and space-efficient Bloom filters*, WEA 2007:
//!   blocked filters and their rate.

#![forbid(unsafe_code)]

mod ageing;
mod avx2;
mod batch;
mod block;
mod error;
mod filter;
mod frozen;
mod key;
#[cfg(all(test, seawall_loom))]
mod models;
mod pool;
mod rebuild;
#[cfg(feature = "serde")]
mod serde;
mod sizing;
mod snapshot;
#[cfg(all(test, not(seawall_loom)))]
mod tests;

pub use self::ageing::AgeingFilter;
pub use self::error::{RebuildError, ShapeMismatch, SizeError, SnapshotError};
pub use self::filter::Filter;
pub use self::frozen::FrozenFilter;
pub use self::key::{BloomKey, hash_bytes};
pub use self::rebuild::{Answer, Rebuild, RebuildingFilter};
pub use self::sizing::{Classic, Plan, classic, plan, plan_for_bytes};
