//! Many threads, few keys, every operation: for ThreadSanitizer and for normal runs.
//!
//! Values check themselves and are counted; at the end all accounts must balance. Which interleavings
//! occur is up to the machine, so a failure may not show again at once; the operations of each thread
//! are the same in every run.

mod common;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use common::{Few, audit, ignore};
use seawall::{
    Builder, Cache, Clock, Compute, InsertOptions, ManualClock, RefusedReason, RemovalCause, Stats,
};

const THREADS: u64 = 4;

/// Operations of each thread.
const ROUNDS: u64 = if cfg!(miri) {
    60
} else if cfg!(debug_assertions) {
    10_000
} else {
    100_000
};

/// Entries that the growing cache ends with.
const GROWN: u64 = if cfg!(miri) {
    400
} else if cfg!(debug_assertions) {
    25_000
} else {
    100_000
};

/// Values made and dropped, and values that were found damaged.
///
/// Counted without any order, so that ThreadSanitizer does not take the counting for what makes the
/// threads' accesses to a value safe.
#[derive(Debug, Default)]
struct Counts {
    made: AtomicI64,
    dropped: AtomicI64,
    damaged: AtomicI64,
}

fn seal_of(key: u64, stamp: u64) -> u64 {
    (key ^ stamp.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// A value that belongs to one key and knows whether it is still whole.
#[derive(Debug)]
struct Value {
    key: u64,
    stamp: u64,
    /// Zero once the value has been dropped.
    seal: AtomicU64,
    counts: Arc<Counts>,
}

impl Value {
    fn new(key: u64, stamp: u64, counts: &Arc<Counts>) -> Self {
        counts.made.fetch_add(1, Relaxed);
        let seal = AtomicU64::new(seal_of(key, stamp));
        Value { key, stamp, seal, counts: Arc::clone(counts) }
    }

    fn check(&self, key: u64) {
        if self.key != key || self.seal.load(Relaxed) != seal_of(self.key, self.stamp) {
            // Counted as well: the cache keeps panics of destructors and listeners to itself.
            self.counts.damaged.fetch_add(1, Relaxed);
            panic!("key {key} has the value {self:?}");
        }
    }

    fn weight(&self) -> u64 {
        1 + self.stamp % 4
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        self.check(self.key);
        Value::new(self.key, self.stamp, &self.counts)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.seal.swap(0, Relaxed) != seal_of(self.key, self.stamp) {
            self.counts.damaged.fetch_add(1, Relaxed);
        }
        self.counts.dropped.fetch_add(1, Relaxed);
    }
}

/// How many entries the listener was told of, by cause.
#[derive(Debug, Default)]
struct Told([AtomicU64; 5]);

impl Told {
    fn of(&self, cause: RemovalCause) -> &AtomicU64 {
        match cause {
            RemovalCause::Replaced => &self.0[0],
            RemovalCause::Removed => &self.0[1],
            RemovalCause::Invalidated => &self.0[2],
            RemovalCause::Expired => &self.0[3],
            _ => &self.0[4],
        }
    }

    fn agrees_with(&self, stats: &Stats) {
        let told = |cause| self.of(cause).load(Relaxed);
        assert_eq!(told(RemovalCause::Replaced), stats.replaced);
        assert_eq!(told(RemovalCause::Removed), stats.removed);
        assert_eq!(told(RemovalCause::Invalidated), stats.invalidated);
        assert_eq!(told(RemovalCause::Expired), stats.expired);
        assert_eq!(told(RemovalCause::Evicted), stats.evicted);
    }
}

/// What the threads of a stress share.
struct Stress<S> {
    cache: Cache<u64, Value, S>,
    hand: ManualClock,
    counts: Arc<Counts>,
    told: Arc<Told>,
    keys: u64,
    /// Capacities that the cache is given in turn; empty if it keeps its own.
    capacities: &'static [u64],
}

impl<S> Stress<S>
where
    S: BuildHasher + Send + Sync,
{
    fn new(builder: Builder<u64, Value, S>, keys: u64, capacities: &'static [u64]) -> Self {
        let (clock, hand) = Clock::manual();
        let (counts, told) = (Arc::<Counts>::default(), Arc::<Told>::default());
        let listener = {
            let told = Arc::clone(&told);
            move |key: &u64, value: &Value, cause| {
                value.check(*key);
                told.of(cause).fetch_add(1, Relaxed);
            }
        };
        let cache = builder
            .time_to_live(Duration::from_millis(500))
            .stale_while_revalidate(Duration::from_millis(100))
            .clock(clock)
            .removal_listener(listener)
            .build()
            .unwrap();
        Stress { cache, hand, counts, told, keys, capacities }
    }

    /// Runs all threads, then checks that everything is accounted for.
    fn run(self, weigh: impl Fn(&u64, &Value) -> u64) {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let this = &self;
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(thread);
                    for _ in 0..ROUNDS {
                        this.step(&mut random);
                    }
                });
            }
        });
        self.balance(weigh);
    }

    fn balance(self, weigh: impl Fn(&u64, &Value) -> u64) {
        let Stress { cache, counts, told, .. } = self;
        let stats = audit(&cache, weigh);
        told.agrees_with(&stats);
        drop(cache);
        assert_eq!(counts.damaged.load(Relaxed), 0);
        assert_eq!(counts.made.load(Relaxed), counts.dropped.load(Relaxed), "made and dropped");
    }

    fn value(&self, key: u64, random: &mut SmallRng) -> Value {
        Value::new(key, random.random(), &self.counts)
    }

    fn options(random: &mut SmallRng) -> InsertOptions {
        let options = InsertOptions::new();
        match random.random_range(0..6) {
            0 => options.no_deadline(),
            1 => options.time_to_live(Duration::from_millis(random.random_range(0..50))),
            2 => options.version(random.random_range(0..10)),
            3 => options.tag("even").tag("all"),
            4 => options.tag(format!("tag {}", random.random_range(0..5))),
            _ => options,
        }
    }

    fn step(&self, random: &mut SmallRng) {
        let key = random.random_range(0..self.keys);
        match random.random_range(0..100) {
            0..30 => self.read(key, random),
            30..85 => self.write(key, random),
            _ => self.look_over(random),
        }
    }

    fn read(&self, key: u64, random: &mut SmallRng) {
        let cache = &self.cache;
        match random.random_range(0..7) {
            0 | 1 => {
                if let Some(value) = cache.get(&key) {
                    value.check(key);
                }
            }
            2 => ignore(cache.get_with(&key, |entry| entry.value().check(*entry.key()))),
            3 => ignore(cache.peek_with(&key, |entry| entry.value().check(key))),
            4 => {
                let keys: Vec<u64> = (key..key + 20).collect();
                cache.get_many_with(&keys, |place, entry| {
                    if let Some(entry) = entry {
                        entry.value().check(keys[place]);
                    }
                });
            }
            5 => {
                if let Some((value, _)) = cache.get_on_error(&key) {
                    value.check(key);
                }
            }
            _ => {
                let pinned = cache.pin();
                let first = pinned.get(&key);
                let second = pinned.get(&(key / 2));
                for entry in [first, second].into_iter().flatten() {
                    entry.value().check(*entry.key());
                }
            }
        }
    }

    fn write(&self, key: u64, random: &mut SmallRng) {
        let cache = &self.cache;
        let value = self.value(key, random);
        match random.random_range(0..12) {
            0..3 => ignore(cache.insert(key, value)),
            3..5 => ignore(cache.insert_with(key, value, Self::options(random))),
            5 => {
                if let Err(refused) = cache.insert_if_absent(key, value) {
                    assert!(refused.reason() != RefusedReason::Absent);
                    refused.value().check(key);
                }
            }
            6 => {
                let allowed = cache.replace_if(key, value, |entry| {
                    entry.value().check(key);
                    entry.value().stamp % 3 > 0
                });
                if let Err(refused) = allowed {
                    refused.value().check(key);
                }
            }
            7 | 8 => {
                let choice: u32 = random.random_range(0..4);
                let options = Self::options(random);
                let computed = cache.compute(key, |entry| {
                    if let Some(entry) = entry {
                        entry.value().check(key);
                    }
                    match choice {
                        0 => Compute::Keep,
                        1 => Compute::Remove,
                        2 => Compute::Insert(value.clone()),
                        _ => Compute::InsertWith(value.clone(), options.clone()),
                    }
                });
                ignore(computed);
            }
            9 => {
                if let Some(value) = cache.remove(&key) {
                    value.check(key);
                }
            }
            10 => ignore(cache.invalidate(&key)),
            _ => ignore(cache.mark_stale(&key)),
        }
    }

    /// What concerns many entries; seldom, lest nothing stays.
    fn look_over(&self, random: &mut SmallRng) {
        let cache = &self.cache;
        match random.random_range(0..400) {
            0 => cache.invalidate_all(),
            1 => {
                cache.invalidate_if(|key, value| {
                    value.check(*key);
                    value.stamp % 2 == 0
                });
            }
            2 => ignore(cache.invalidate_tag("even")),
            3..6 => ignore(cache.invalidate_tag("tag 3")),
            6..10 => cache.iter().for_each(|(key, value)| value.check(key)),
            10..14 => cache.pin().iter().for_each(|entry| entry.value().check(*entry.key())),
            14..20 if !self.capacities.is_empty() => {
                let next = random.random_range(0..self.capacities.len());
                cache.set_capacity(self.capacities[next]);
            }
            20..30 => ignore(cache.sweep(10)),
            30 => ignore(cache.sweep(usize::MAX)),
            31..60 => self.hand.advance(Duration::from_millis(3)),
            60..70 => {
                let stats = cache.stats();
                // Each thread may have stored one entry that it has not counted yet.
                assert!(stats.evicted <= stats.inserts + THREADS);
            }
            _ => {}
        }
    }
}

#[test]
fn a_tiny_cache_of_changing_capacity_keeps_its_accounts() {
    let builder = Cache::builder().max_entries(8);
    Stress::new(builder.hasher(RandomState::new()), 64, &[1, 3, 8, 30, 0, 16]).run(|_, _| 1);
}

#[test]
fn a_tiny_cache_bounded_by_weight_keeps_its_accounts() {
    let builder = Cache::builder().max_weight(20).weigher(|_, value: &Value| value.weight());
    Stress::new(builder, 64, &[4, 20, 50]).run(|_, value| value.weight());
}

#[test]
fn keys_of_one_hash_keep_their_accounts() {
    let builder = Cache::builder().max_entries(100);
    Stress::new(builder.hasher(Few(1)), 40, &[]).run(|_, _| 1);
}

#[test]
fn keys_of_two_hashes_in_a_cache_with_idle_times_keep_their_accounts() {
    let builder = Cache::builder().max_weight(60).time_to_idle(Duration::from_millis(100));
    Stress::new(builder.hasher(Few(2)), 60, &[]).run(|_, _| 1);
}

/// Sets a flag when it is dropped.
struct AtEnd<'f>(&'f AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Nothing is evicted below the budget.
#[test]
fn threads_that_make_a_table_grow_evict_nothing() {
    for _ in 0..ROUNDS / 200 {
        let cache = Cache::builder().max_weight(1 << 40).build().unwrap();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let cache = &cache;
                scope.spawn(move || {
                    for step in 0..800 {
                        cache.insert(step * THREADS + thread, step).unwrap();
                    }
                });
            }
        });
        assert_eq!(cache.stats().evicted, 0);
        assert_eq!(cache.len() as u64, 800 * THREADS);
    }
}

/// Readers meet every stage of several growths, and what was stored and left alone is always there.
#[test]
fn a_growing_cache_loses_nothing() {
    let builder = Cache::builder().max_weight(1 << 40);
    let stress = Stress::new(builder.hasher(RandomState::new()), GROWN, &[]);
    let (cache, counts) = (&stress.cache, &stress.counts);
    let writers = 3;
    let progress: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let progress = &progress;
        // Readers stop also if a writer has failed.
        let _end = AtEnd(&done);
        let writing: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    for step in 0..GROWN / writers {
                        let key = step * writers + writer;
                        let value = Value::new(key, step, counts);
                        if step % 3 == 0 {
                            assert!(cache.insert_if_absent(key, value).is_ok());
                        } else {
                            cache.insert(key, value).unwrap();
                        }
                        progress[writer as usize].store(step + 1, SeqCst);
                        // One in eight is stored anew, one of a range of their own comes and goes.
                        if step % 8 == 0 {
                            let again = step / 2 * writers + writer;
                            cache.insert(again, Value::new(again, step, counts)).unwrap();
                        }
                        let passing = 2 * GROWN + key;
                        cache.insert(passing, Value::new(passing, step, counts)).unwrap();
                        assert_eq!(cache.remove(&passing).map(|value| value.key), Some(passing));
                    }
                })
            })
            .collect();
        for reader in 0..2 {
            let done = &done;
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(reader);
                while !done.load(SeqCst) {
                    let writer = random.random_range(0..writers);
                    let stored = progress[writer as usize].load(SeqCst);
                    if stored == 0 {
                        continue;
                    }
                    let key = random.random_range(0..stored) * writers + writer;
                    let found = cache.get_with(&key, |entry| entry.value().check(key));
                    assert!(found.is_some(), "key {key} was stored and never removed");
                    if random.random_range(0..20_000) == 0 {
                        let before: u64 = progress.iter().map(|it| it.load(SeqCst)).sum();
                        let walked = cache.iter().filter(|(key, _)| *key < GROWN).count() as u64;
                        assert!(walked >= before, "{walked} of {before}");
                    }
                }
            });
        }
        writing.into_iter().for_each(|writer| writer.join().unwrap());
    });
    let kept = GROWN / writers * writers;
    assert!(cache.len() as u64 >= kept);
    assert!((0..kept).all(|key| cache.contains_key(&key)));
    assert_eq!(cache.stats().evicted, 0);
    stress.balance(|_, _| 1);
}

/// The documentation of `weight`: it exceeds the capacity by operations in progress only.
#[test]
fn the_accounted_weight_exceeds_the_capacity_by_operations_in_progress_only() {
    const CAPACITY: u64 = 5;
    let cache = Cache::builder()
        .max_weight(CAPACITY)
        .weigher(|_: &u64, weight: &u64| *weight)
        .build()
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(thread);
                for _ in 0..ROUNDS {
                    let key = random.random_range(0..8);
                    match random.random_range(0..8) {
                        0 => ignore(cache.remove(&key)),
                        1 => ignore(cache.invalidate(&key)),
                        _ => {
                            let weight = random.random_range(1..=CAPACITY);
                            cache.insert(key, weight).unwrap();
                        }
                    }
                    let most = CAPACITY + (THREADS - 1) * CAPACITY;
                    assert!(cache.weight() <= most, "{} of {CAPACITY}", cache.weight());
                }
            });
        }
    });
    assert!(cache.weight() <= CAPACITY);
    audit(&cache, |_, weight| *weight);
}
