//! What several integration tests share: counted values, odd hashers, a listener's record, a watchdog.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod loads;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use seawall::{Cache, RemovalCause, Stats};

/// A hasher without a random seed: the same places in the table in every run.
pub(crate) type Fixed = BuildHasherDefault<DefaultHasher>;

/// Hashes every key to one of a few hashes; `Few(1)` is a constant hasher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Few(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct FewHasher(DefaultHasher, u64);

impl BuildHasher for Few {
    type Hasher = FewHasher;

    fn build_hasher(&self) -> FewHasher {
        FewHasher(DefaultHasher::new(), self.0)
    }
}

impl Hasher for FewHasher {
    fn finish(&self) -> u64 {
        self.0.finish() % self.1
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

/// Takes an integer key for its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity(u64);

impl BuildHasher for Identity {
    type Hasher = Identity;

    fn build_hasher(&self) -> Identity {
        Identity(0)
    }
}

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are integers");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// Counts the [`Counted`] that are made (clones, too) and dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    made: AtomicI64,
    dropped: AtomicI64,
}

impl Census {
    pub(crate) fn make<T>(&self, it: T) -> Counted<T> {
        self.0.made.fetch_add(1, SeqCst);
        Counted { it, census: self.clone() }
    }

    pub(crate) fn made(&self) -> i64 {
        self.0.made.load(SeqCst)
    }

    pub(crate) fn dropped(&self) -> i64 {
        self.0.dropped.load(SeqCst)
    }

    pub(crate) fn alive(&self) -> i64 {
        self.made() - self.dropped()
    }
}

/// A key or value whose copies and drops are counted.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) it: T,
    census: Census,
}

impl<T: Clone> Clone for Counted<T> {
    fn clone(&self) -> Self {
        self.census.make(self.it.clone())
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.census.0.dropped.fetch_add(1, SeqCst);
    }
}

impl<T: PartialEq> PartialEq for Counted<T> {
    fn eq(&self, other: &Self) -> bool {
        self.it == other.it
    }
}

impl<T: Eq> Eq for Counted<T> {}

impl<T: Hash> Hash for Counted<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.it.hash(state);
    }
}

/// What a listener was told, in its order.
#[derive(Debug)]
pub(crate) struct Told<K, V>(Arc<Mutex<Vec<(K, V, RemovalCause)>>>);

impl<K, V> Clone for Told<K, V> {
    fn clone(&self) -> Self {
        Told(Arc::clone(&self.0))
    }
}

impl<K: Clone, V: Clone> Told<K, V> {
    pub(crate) fn new() -> Self {
        Told(Arc::default())
    }

    /// A listener that notes what it is told.
    pub(crate) fn listener(&self) -> impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static
    where
        K: Send + 'static,
        V: Send + 'static,
    {
        let told = self.clone();
        move |key, value, cause| lock(&told.0).push((key.clone(), value.clone(), cause))
    }

    /// Takes what was told since the last call.
    pub(crate) fn take(&self) -> Vec<(K, V, RemovalCause)> {
        std::mem::take(&mut *lock(&self.0))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cache handle for callbacks that are made before the cache. Empty it at the end: a cache whose
/// listener holds it is never dropped.
#[derive(Debug)]
pub(crate) struct Later<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Later<T> {
    fn clone(&self) -> Self {
        Later(Arc::clone(&self.0))
    }
}

impl<T> Later<T> {
    pub(crate) fn new() -> Self {
        Later(Arc::default())
    }

    pub(crate) fn set(&self, it: T) {
        *lock(&self.0) = Some(it);
    }

    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.0).take()
    }

    /// A copy, so that nothing is locked while it is used.
    pub(crate) fn get(&self) -> Option<T>
    where
        T: Clone,
    {
        lock(&self.0).clone()
    }
}

/// Panics at one of its calls, counted from when it was armed; else does nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fuse(Arc<AtomicUsize>);

impl Fuse {
    /// The `nth` call from now on panics (1 is the next one), and no other.
    pub(crate) fn arm(&self, nth: usize) {
        self.0.store(nth, SeqCst);
    }

    pub(crate) fn disarm(&self) {
        self.arm(0);
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.0.load(SeqCst) != 0
    }

    pub(crate) fn burn(&self) {
        let left = self.0.load(SeqCst);
        if left > 0 {
            self.0.store(left - 1, SeqCst);
            assert!(left != 1, "the fuse blew");
        }
    }
}

/// For calls whose result does not matter.
pub(crate) fn ignore<T>(_: T) {}

/// Whether a call panics.
pub(crate) fn panics<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

/// Runs a body that might hang, and fails in place of hanging.
pub(crate) fn must_end<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    const PATIENCE: Duration = Duration::from_secs(120);
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        let result = body();
        let _ = sender.send(());
        result
    });
    if receiver.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs one ignored test of the calling test binary in a process of its own, so that no other test's
/// thread pins, allocates or runs meanwhile.
pub(crate) fn alone_in_a_process(test: &str) {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--test-threads=1"])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Checks, when no call is running, that all accounts of a cache agree; returns its statistics.
pub(crate) fn audit<K, V, S>(cache: &Cache<K, V, S>, weigh: impl Fn(&K, &V) -> u64) -> Stats
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    cache.sweep(usize::MAX);
    let (mut count, mut weight) = (0, 0);
    for (key, value) in cache.iter() {
        count += 1;
        weight += weigh(&key, &value);
        assert!(cache.contains_key(&key), "an entry of the iteration can be read");
    }
    let stats = cache.stats();
    let gone = stats.removed + stats.invalidated + stats.expired + stats.evicted;
    assert_eq!(cache.len(), count, "len and iteration");
    assert_eq!(stats.entries, count as u64, "stats and iteration");
    assert_eq!(stats.inserts - gone, count as u64, "what came, what went and what is there");
    assert_eq!(cache.weight(), weight, "weight and iteration");
    assert_eq!(stats.weight, weight, "weight in the stats");
    assert!(cache.weight() <= cache.capacity(), "{} of {}", cache.weight(), cache.capacity());
    stats
}

/// [`audit`] of a cache that is bounded by entries.
pub(crate) fn audit_entries<K, V, S>(cache: &Cache<K, V, S>) -> Stats
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    audit(cache, |_, _| 1)
}
