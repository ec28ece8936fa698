//! What the tests share: values whose lives are counted, a listener that keeps a log, a hash
//! function that tells nothing apart, and the check that ends each test.

// Each test file uses a part of this.
#![allow(dead_code)]

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall::{Builder, Cache, RemovalCause};

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Keeps the other tests of the file from running at the same time: a pin that one of them holds
/// would keep garbage alive that this one wants to see freed. All tests of the file must take it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has all be freed that was taken out of a cache.
pub(crate) fn free_garbage<K, V, S>(cache: &Cache<K, V, S>)
where
    K: Hash + Eq,
    S: BuildHasher,
{
    // Other tests of the process may be pinned for a moment.
    for _ in 0..100_000 {
        cache.sweep(0);
        if cache.stats().garbage == 0 {
            return;
        }
        std::thread::yield_now();
    }
    panic!("never freed: {:?}", cache.stats());
}

/// Counts the living among the values it made, their clones included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census(Arc<AtomicI64>);

impl Census {
    pub(crate) fn make(&self, value: u64) -> Counted {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted { value, census: self.clone() }
    }

    pub(crate) fn living(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A key or value that is counted in a census; it compares and hashes as its number does.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) value: u64,
    census: Census,
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.census.make(self.value)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.census.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl std::borrow::Borrow<u64> for Counted {
    fn borrow(&self) -> &u64 {
        &self.value
    }
}

/// A hash function that returns the same for every key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Constant;

impl BuildHasher for Constant {
    type Hasher = Constant;

    fn build_hasher(&self) -> Constant {
        Constant
    }
}

impl Hasher for Constant {
    fn write(&mut self, _bytes: &[u8]) {}

    fn finish(&self) -> u64 {
        0
    }
}

/// What a removal listener was told.
#[derive(Debug)]
pub(crate) struct Log<K, V>(Arc<Mutex<Vec<(K, V, RemovalCause)>>>);

impl<K, V> Clone for Log<K, V> {
    fn clone(&self) -> Self {
        Log(Arc::clone(&self.0))
    }
}

impl<K, V> Log<K, V>
where
    K: Clone + Send + 'static,
    V: Clone + Send + 'static,
{
    /// Gives a cache's settings a listener, and returns its log.
    pub(crate) fn of<S>(builder: Builder<K, V, S>) -> (Builder<K, V, S>, Self) {
        let log = Log(Arc::default());
        let told = log.clone();
        let builder = builder.removal_listener(move |key, value, cause| {
            told.0.lock().unwrap().push((key.clone(), value.clone(), cause));
        });
        (builder, log)
    }

    /// Returns what was told since the last call.
    pub(crate) fn take(&self) -> Vec<(K, V, RemovalCause)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(crate) fn count(&self, cause: RemovalCause) -> u64 {
        let told = self.0.lock().unwrap();
        told.iter().filter(|(_, _, because)| *because == cause).count() as u64
    }

    /// Checks that the listener was told of exactly what the statistics count.
    pub(crate) fn assert_matches_stats<S>(&self, cache: &Cache<K, V, S>)
    where
        K: Hash + Eq,
        S: BuildHasher,
    {
        let stats = cache.stats();
        assert_eq!(self.count(RemovalCause::Replaced), stats.replaced, "replaced");
        assert_eq!(self.count(RemovalCause::Removed), stats.removed, "removed");
        assert_eq!(self.count(RemovalCause::Invalidated), stats.invalidated, "invalidated");
        assert_eq!(self.count(RemovalCause::Expired), stats.expired, "expired");
        assert_eq!(self.count(RemovalCause::Evicted), stats.evicted, "evicted");
    }
}

/// Checks a cache at rest that is bounded by entries.
pub(crate) fn assert_consistent<K, V, S>(cache: &Cache<K, V, S>)
where
    K: Hash + Eq,
    S: BuildHasher,
{
    assert_consistent_by_weight(cache, |_, _| 1);
}

/// Checks a cache at rest: number and weight of its entries, the budget, and the counters.
pub(crate) fn assert_consistent_by_weight<K, V, S>(
    cache: &Cache<K, V, S>,
    weigh: impl Fn(&K, &V) -> u64,
) where
    K: Hash + Eq,
    S: BuildHasher,
{
    cache.sweep(usize::MAX);
    let (mut count, mut weight) = (0, 0);
    for entry in &cache.pin() {
        count += 1;
        weight += weigh(entry.key(), entry.value());
    }
    assert_eq!(cache.len(), count, "entries");
    assert_eq!(cache.weight(), weight, "weight");
    assert!(cache.weight() <= cache.capacity(), "{weight} is above {}", cache.capacity());
    let stats = cache.stats();
    let gone = stats.removed + stats.invalidated + stats.expired + stats.evicted;
    assert_eq!(stats.inserts - gone, count as u64, "{stats:?}");
    assert_eq!((stats.entries, stats.weight), (count as u64, weight), "{stats:?}");
}
