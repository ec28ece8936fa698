//! The engine's operations one by one, on one thread. Beside other caches: `benches/versus`.
//!
//! Keys and values are `u64` unless a name says otherwise; the hasher and the order of keys are the same
//! in every run. Names are `group/operation/entries`. Working sets, at about 56 bytes an entry (its node
//! in the allocator's smallest chunk, and its share of the table): 1 k entries 55 kB, 100 k entries
//! 5.6 MB, 1 M entries 56 MB. Keys are drawn uniformly, so that the larger sets miss the processor's
//! caches.

use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use seawall::{Builder, Cache, Clock, Entry, ManualClock};

type Hasher = ahash::RandomState;
type Numbers = Cache<u64, u64, Hasher>;

const SMALL: u64 = 1_000;
const MEDIUM: u64 = 100_000;
const LARGE: u64 = 1_000_000;
/// How many keys are drawn beforehand; a power of two.
const DRAWN: usize = 1 << 20;
/// Keys of one call of `get_many_with`.
const MANY: usize = 32;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    get(&mut criterion);
    insert(&mut criterion);
    replace(&mut criterion);
    remove_and_insert(&mut criterion);
    iterate(&mut criterion);
    sweep(&mut criterion);
    growth(&mut criterion);
    criterion.final_summary();
}

fn hasher() -> Hasher {
    Hasher::with_seeds(1, 2, 3, 4)
}

fn builder(capacity: u64) -> Builder<u64, u64, Hasher> {
    Cache::builder().max_entries(capacity).hasher(hasher())
}

fn empty(capacity: u64) -> Numbers {
    builder(capacity).build().expect("memory for the table")
}

fn fill(cache: &Numbers, keys: std::ops::Range<u64>) {
    for key in keys {
        store(cache, key);
    }
}

fn store(cache: &Numbers, key: u64) {
    cache.insert(key, key).expect("nothing is too heavy");
}

/// A cache of these entries, with a quarter of its capacity to spare.
fn resident(entries: u64) -> Numbers {
    let cache = empty(entries + entries / 4);
    fill(&cache, 0..entries);
    assert_eq!(cache.len() as u64, entries);
    cache
}

/// Hands out keys drawn uniformly from a range, over and over.
struct Keys {
    drawn: Vec<u64>,
    next: usize,
}

impl Keys {
    fn new(range: std::ops::Range<u64>) -> Keys {
        let mut rng = SmallRng::seed_from_u64(42);
        Keys { drawn: (0..DRAWN).map(|_| rng.random_range(range.clone())).collect(), next: 0 }
    }

    fn next(&mut self) -> u64 {
        self.next = (self.next + 1) % DRAWN;
        self.drawn[self.next]
    }

    fn next_many(&mut self) -> &[u64] {
        self.next = (self.next + MANY) % DRAWN;
        self.next -= self.next % MANY;
        &self.drawn[self.next..self.next + MANY]
    }
}

fn get(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("get");
    for entries in [SMALL, MEDIUM, LARGE] {
        let cache = resident(entries);
        let mut keys = Keys::new(0..entries);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("hit", entries), |bencher| {
            bencher.iter(|| cache.get_with(&keys.next(), |entry| *entry.value()).expect("a hit"));
        });
        group.bench_function(BenchmarkId::new("hit-clone", entries), |bencher| {
            bencher.iter(|| cache.get(&keys.next()).expect("a hit"));
        });
        group.bench_function(BenchmarkId::new("hit-pinned", entries), |bencher| {
            let pinned = cache.pin();
            bencher.iter(|| *pinned.get(&keys.next()).expect("a hit").value());
        });
        group.throughput(Throughput::Elements(MANY as u64));
        group.bench_function(BenchmarkId::new("hit-many", entries), |bencher| {
            bencher.iter(|| {
                let mut sum = 0u64;
                cache.get_many_with(keys.next_many(), |_, entry| {
                    sum = sum.wrapping_add(*entry.expect("a hit").value());
                });
                sum
            });
        });
        let mut absent = Keys::new(entries..2 * entries);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("miss", entries), |bencher| {
            bencher.iter(|| assert!(cache.get(&absent.next()).is_none()));
        });
    }
    let (clock, _hand) = Clock::manual();
    for (name, clock) in [("hit-deadline", Clock::system()), ("hit-deadline-manual", clock)] {
        let cache = builder(2 * MEDIUM).time_to_live(Duration::from_secs(3600)).clock(clock);
        let cache = cache.build().expect("memory for the table");
        fill(&cache, 0..MEDIUM);
        let mut keys = Keys::new(0..MEDIUM);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new(name, MEDIUM), |bencher| {
            bencher.iter(|| cache.get(&keys.next()).expect("a hit"));
        });
    }
    group.finish();
}

fn insert(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("insert");
    // Below the capacity: into an empty table, which is made and dropped outside the measured time.
    group.sample_size(20).throughput(Throughput::Elements(MEDIUM));
    group.bench_function(BenchmarkId::new("new", MEDIUM), |bencher| {
        bencher.iter_batched(
            || empty(2 * MEDIUM),
            |cache| {
                fill(&cache, 0..MEDIUM);
                cache
            },
            BatchSize::PerIteration,
        );
    });
    group.sample_size(100).throughput(Throughput::Elements(1));
    for entries in [SMALL, MEDIUM, LARGE] {
        let cache = empty(entries);
        fill(&cache, 0..2 * entries);
        let mut fresh = 2 * entries;
        group.bench_function(BenchmarkId::new("evict", entries), |bencher| {
            bencher.iter(|| {
                fresh += 1;
                store(&cache, fresh);
            });
        });
        assert!(cache.weight() <= entries);
    }
    group.finish();
}

fn replace(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replace");
    group.throughput(Throughput::Elements(1));
    for entries in [SMALL, MEDIUM, LARGE] {
        let cache = resident(entries);
        let mut keys = Keys::new(0..entries);
        group.bench_function(BenchmarkId::from_parameter(entries), |bencher| {
            bencher.iter(|| store(&cache, keys.next()));
        });
    }
    group.finish();
}

fn remove_and_insert(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("remove+insert");
    group.throughput(Throughput::Elements(1));
    for entries in [SMALL, MEDIUM, LARGE] {
        let cache = resident(entries);
        let mut keys = Keys::new(0..entries);
        group.bench_function(BenchmarkId::from_parameter(entries), |bencher| {
            bencher.iter(|| {
                let key = keys.next();
                assert!(cache.remove(&key).is_some());
                store(&cache, key);
            });
        });
        assert_eq!(cache.len() as u64, entries);
    }
    group.finish();
}

fn iterate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("iterate");
    group.sample_size(20).throughput(Throughput::Elements(MEDIUM));
    let cache = resident(MEDIUM);
    group.bench_function(BenchmarkId::new("clones", MEDIUM), |bencher| {
        bencher.iter(|| cache.iter().fold(0u64, |sum, (_, value)| sum.wrapping_add(value)));
    });
    group.bench_function(BenchmarkId::new("pinned", MEDIUM), |bencher| {
        let add = |sum: u64, entry: Entry<'_, u64, u64>| sum.wrapping_add(*entry.value());
        bencher.iter(|| cache.pin().iter().fold(0, add));
    });
    group.finish();
}

/// A cache whose entries all have a deadline, and the clock that decides whether it has passed.
fn timed(entries: u64) -> (Numbers, ManualClock) {
    let (clock, hand) = Clock::manual();
    let cache = builder(2 * entries).time_to_live(Duration::from_secs(1)).clock(clock).build();
    let cache = cache.expect("memory for the table");
    fill(&cache, 0..entries);
    (cache, hand)
}

fn sweep(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sweep");
    group.sample_size(20).throughput(Throughput::Elements(MEDIUM));
    let (alive, _hand) = timed(MEDIUM);
    group.bench_function(BenchmarkId::new("alive", MEDIUM), |bencher| {
        bencher.iter(|| assert_eq!(alive.sweep(usize::MAX), 0));
    });
    group.bench_function(BenchmarkId::new("dead", MEDIUM), |bencher| {
        bencher.iter_batched(
            || {
                let (cache, hand) = timed(MEDIUM);
                hand.advance(Duration::from_secs(1));
                cache
            },
            |cache| {
                assert_eq!(cache.sweep(usize::MAX) as u64, MEDIUM);
                cache
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn growth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("growth");
    // A budget by weight: the table begins small and doubles until it holds all.
    group.sample_size(20).throughput(Throughput::Elements(MEDIUM));
    for (name, estimate) in [("grows", 0), ("estimated", MEDIUM)] {
        group.bench_function(BenchmarkId::new(name, MEDIUM), |bencher| {
            let small = || {
                let builder = Cache::builder().max_weight(u64::MAX / 4).estimated_entries(estimate);
                builder.hasher(hasher()).build().expect("memory for the table")
            };
            bencher.iter_batched(
                small,
                |cache: Numbers| {
                    fill(&cache, 0..MEDIUM);
                    cache
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}
