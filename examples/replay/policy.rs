//! Replays a trace into a cache.

use std::time::Instant;

use seawall::{Cache, ConfigError};

use crate::args::Budget;
use crate::heap;
use crate::trace::Trace;

/// A cache, as the replay uses it.
pub(crate) trait Policy {
    /// Whether the key is there. Counts as a use of it.
    fn get(&mut self, key: u32) -> bool;

    /// Stores a key that is not there; `false` if it is heavier than the budget.
    fn insert(&mut self, key: u32, size: u64) -> bool;

    /// Entries that had to go for others.
    fn evictions(&self) -> u64;
}

/// What a cache did with a trace.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) hits: u64,
    pub(crate) hit_bytes: u128,
    /// Misses of what is heavier than the budget.
    pub(crate) too_heavy: u64,
    pub(crate) evictions: u64,
    pub(crate) seconds: f64,
    /// Bytes of heap that the cache holds at the end.
    pub(crate) heap: u64,
}

/// Gets each key, and inserts it on a miss.
pub(crate) fn replay<P: Policy, E>(
    trace: &Trace,
    new: impl FnOnce() -> Result<P, E>,
) -> Result<Run, E> {
    let held = heap::held();
    let mut policy = new()?;
    let mut run = Run::default();
    let start = Instant::now();
    for (at, &key) in trace.requests().iter().enumerate() {
        let size = trace.size(at);
        if policy.get(key) {
            run.hits += 1;
            run.hit_bytes += u128::from(size);
        } else if !policy.insert(key, size) {
            run.too_heavy += 1;
        }
    }
    run.seconds = start.elapsed().as_secs_f64();
    run.heap = heap::held().saturating_sub(held).max(0) as u64;
    run.evictions = policy.evictions();
    Ok(run)
}

/// The crate, as its user would use it. An entry's value stands for what the origin sent: it is its size.
pub(crate) struct Seawall(Cache<u32, u64>);

impl Seawall {
    pub(crate) fn new(budget: Budget) -> Result<Self, ConfigError> {
        let builder = match budget {
            Budget::Entries(entries) => Cache::builder().max_entries(entries),
            Budget::Bytes(bytes) => Cache::builder().max_weight(bytes).weigher(|_, size| *size),
        };
        builder.build().map(Seawall)
    }
}

impl Policy for Seawall {
    #[inline]
    fn get(&mut self, key: u32) -> bool {
        self.0.get(&key).is_some()
    }

    #[inline]
    fn insert(&mut self, key: u32, size: u64) -> bool {
        self.0.insert(key, size).is_ok()
    }

    fn evictions(&self) -> u64 {
        self.0.stats().evicted
    }
}
