//! Bloom filters: nanoseconds a query and an insert, and the rate of false positives.
//!
//! All are sized for 1 %, each by its own means. Keys are `u64`, known by number; the peers that are
//! given a hash or a hasher get ahash, ours use their own. Queries are drawn at random beforehand.

use crate::args::Args;
use crate::record;
use crate::report::{Report, median, round};
use crate::zipf::Random;
use ahash::RandomState;
use seawall::bloom::{Filter, FrozenFilter, plan};
use serde_json::Value;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

const RATE: f64 = 0.01;
/// One filter in a core's own cache, one that is far larger.
const ITEMS: [u64; 2] = [1_000_000, 40_000_000];
const QUERIES: u64 = 1_000_000;
/// Subjects of this crate: the first ones.
const OURS: usize = 4;
/// Queries of a batch.
const BATCH: usize = 1024;

trait Subject: Sized + Sync + 'static {
    const NAME: &'static str;
    /// With the keys below the number.
    fn filled(items: u64) -> Self;
    fn bits(&self) -> usize;
    fn contains(&self, key: u64) -> bool;

    /// Nanoseconds an insert; `None` where there are none.
    fn inserts() -> Option<fn(u64) -> f64> {
        None
    }

    /// The same, from two threads at once.
    fn shared_inserts() -> Option<fn(u64) -> f64> {
        None
    }

    #[inline]
    fn count(&self, keys: &[u64]) -> u64 {
        keys.iter().map(|&key| u64::from(self.contains(key))).sum()
    }
}

/// What takes keys one by one.
trait Growing: Sized {
    fn new(items: u64) -> Self;
    fn insert(&mut self, key: u64);
}

fn grown<S: Growing>(items: u64) -> S {
    let mut filter = S::new(items);
    (0..items).for_each(|key| filter.insert(key));
    filter
}

fn time_inserts<S: Growing>(items: u64) -> f64 {
    let mut filter = S::new(items);
    let start = Instant::now();
    (0..items).for_each(|key| filter.insert(key));
    start.elapsed().as_nanos() as f64 / items as f64
}

fn hasher() -> RandomState {
    RandomState::with_seeds(0x5ea_3a11, 0x0c0f_fee0, 0xb1ea_c4ed, 0x7e57_ab1e)
}

struct Seawall(Filter);

impl Growing for Seawall {
    fn new(items: u64) -> Self {
        let plan = plan(items, RATE).expect("a valid rate");
        Seawall(Filter::new(&plan).expect("enough memory"))
    }

    #[inline]
    fn insert(&mut self, key: u64) {
        self.0.insert(&key);
    }
}

impl Subject for Seawall {
    const NAME: &'static str = "seawall";

    fn filled(items: u64) -> Self {
        grown(items)
    }

    fn bits(&self) -> usize {
        self.0.bytes() * 8
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains(&key)
    }

    fn inserts() -> Option<fn(u64) -> f64> {
        Some(time_inserts::<Self>)
    }

    fn shared_inserts() -> Option<fn(u64) -> f64> {
        Some(|items| two_threads(&Seawall::new(items), |it, key| _ = it.0.insert(&key), items))
    }
}

/// Queries in batches.
struct SeawallMany(Seawall);

impl Growing for SeawallMany {
    fn new(items: u64) -> Self {
        SeawallMany(Seawall::new(items))
    }

    #[inline]
    fn insert(&mut self, key: u64) {
        self.0.insert(key);
    }
}

impl Subject for SeawallMany {
    const NAME: &'static str = "seawall-many";

    fn filled(items: u64) -> Self {
        grown(items)
    }

    fn bits(&self) -> usize {
        self.0.bits()
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains(key)
    }

    #[inline]
    fn count(&self, keys: &[u64]) -> u64 {
        let mut count = 0;
        for keys in keys.chunks(BATCH) {
            self.0.0.contains_many_with(keys, |_, found| count += u64::from(found));
        }
        count
    }

    fn inserts() -> Option<fn(u64) -> f64> {
        Some(time_inserts::<Self>)
    }
}

/// Made of the filter above when that has all keys.
struct SeawallFrozen(FrozenFilter);

impl Subject for SeawallFrozen {
    const NAME: &'static str = "seawall-frozen";

    fn filled(items: u64) -> Self {
        SeawallFrozen(grown::<Seawall>(items).0.freeze())
    }

    fn bits(&self) -> usize {
        self.0.bytes() * 8
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains(&key)
    }
}

/// The same, in batches.
struct SeawallFrozenMany(FrozenFilter);

impl Subject for SeawallFrozenMany {
    const NAME: &'static str = "seawall-frozen-many";

    fn filled(items: u64) -> Self {
        SeawallFrozenMany(SeawallFrozen::filled(items).0)
    }

    fn bits(&self) -> usize {
        self.0.bytes() * 8
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains(&key)
    }

    #[inline]
    fn count(&self, keys: &[u64]) -> u64 {
        let mut count = 0;
        for keys in keys.chunks(BATCH) {
            self.0.contains_many_with(keys, |_, found| count += u64::from(found));
        }
        count
    }
}

struct FastBloom(fastbloom::BloomFilter<RandomState>);

impl Growing for FastBloom {
    fn new(items: u64) -> Self {
        let builder = fastbloom::BloomFilter::with_false_pos(RATE).hasher(hasher());
        FastBloom(builder.expected_items(items as usize))
    }

    #[inline]
    fn insert(&mut self, key: u64) {
        self.0.insert(&key);
    }
}

impl Subject for FastBloom {
    const NAME: &'static str = "fastbloom";

    fn filled(items: u64) -> Self {
        grown(items)
    }

    fn bits(&self) -> usize {
        self.0.num_bits()
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains(&key)
    }

    fn inserts() -> Option<fn(u64) -> f64> {
        Some(time_inserts::<Self>)
    }
}

struct FastBloomAtomic(fastbloom::AtomicBloomFilter<RandomState>);

impl Growing for FastBloomAtomic {
    fn new(items: u64) -> Self {
        let builder = fastbloom::AtomicBloomFilter::with_false_pos(RATE).hasher(hasher());
        FastBloomAtomic(builder.expected_items(items as usize))
    }

    #[inline]
    fn insert(&mut self, key: u64) {
        self.0.insert(&key);
    }
}

impl Subject for FastBloomAtomic {
    const NAME: &'static str = "fastbloom-atomic";

    fn filled(items: u64) -> Self {
        grown(items)
    }

    fn bits(&self) -> usize {
        self.0.num_bits()
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains(&key)
    }

    fn inserts() -> Option<fn(u64) -> f64> {
        Some(time_inserts::<Self>)
    }

    fn shared_inserts() -> Option<fn(u64) -> f64> {
        Some(|items| {
            two_threads(&FastBloomAtomic::new(items), |it, key| _ = it.0.insert(&key), items)
        })
    }
}

struct Sbbf(sbbf_rs_safe::Filter, RandomState);

impl Growing for Sbbf {
    fn new(items: u64) -> Self {
        // Its constructor takes whole bits per key; 10.53 are what 1 % needs in blocks of 256 bits.
        let bytes = (items as f64 * 10.53 / 8.0 / 32.0).ceil() as usize * 32;
        let filter = sbbf_rs_safe::Filter::from_bytes(&vec![0; bytes]).expect("whole blocks");
        Sbbf(filter, hasher())
    }

    #[inline]
    fn insert(&mut self, key: u64) {
        self.0.insert_hash(self.1.hash_one(key));
    }
}

impl Subject for Sbbf {
    const NAME: &'static str = "sbbf-rs-safe";

    fn filled(items: u64) -> Self {
        grown(items)
    }

    fn bits(&self) -> usize {
        self.0.as_bytes().len() * 8
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains_hash(self.1.hash_one(key))
    }

    fn inserts() -> Option<fn(u64) -> f64> {
        Some(time_inserts::<Self>)
    }
}

/// Queries of each kind, in the order of the fields.
struct Queries([Vec<u64>; 3]);

impl Queries {
    fn new(items: u64) -> Self {
        let mut random = Random::new(items);
        let mut hit = || random.below(items);
        let hits: Vec<u64> = (0..QUERIES).map(|_| hit()).collect();
        let misses: Vec<u64> = (0..QUERIES).map(|i| (1 << 50) + i).collect();
        let mixed = (0..QUERIES as usize)
            .map(|i| if random.next() & 1 == 0 { hits[i] } else { misses[i] })
            .collect();
        Queries([hits, misses, mixed])
    }
}

/// Nanoseconds, by what was done; each has a value a round.
#[derive(Default)]
struct Times {
    queries: [Vec<f64>; 3],
    insert: Vec<f64>,
    /// How much faster two threads insert than one.
    scaling: Vec<f64>,
}

trait Live {
    fn name(&self) -> &'static str;
    fn bits_per_key(&self) -> f64;
    fn rate(&self, queries: &Queries) -> f64;
    fn queries(&mut self, queries: &Queries);
    fn inserts(&mut self);
    fn times(&self) -> &Times;
}

struct Built<S> {
    filter: S,
    items: u64,
    times: Times,
}

impl<S: Subject> Built<S> {
    fn boxed(items: u64) -> Box<dyn Live> {
        Box::new(Built { filter: S::filled(items), items, times: Times::default() })
    }
}

impl<S: Subject> Live for Built<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn bits_per_key(&self) -> f64 {
        self.filter.bits() as f64 / self.items as f64
    }

    fn rate(&self, Queries([_, misses, _]): &Queries) -> f64 {
        self.filter.count(misses) as f64 / misses.len() as f64
    }

    fn queries(&mut self, queries: &Queries) {
        for (times, keys) in self.times.queries.iter_mut().zip(&queries.0) {
            let start = Instant::now();
            black_box(self.filter.count(black_box(keys)));
            times.push(start.elapsed().as_nanos() as f64 / keys.len() as f64);
        }
    }

    fn inserts(&mut self) {
        let Some(one) = S::inserts().map(|time| time(self.items)) else { return };
        self.times.insert.push(one);
        if let Some(two) = S::shared_inserts().map(|time| time(self.items)) {
            self.times.scaling.push(one / two);
        }
    }

    fn times(&self) -> &Times {
        &self.times
    }
}

/// Nanoseconds an insert, of both threads together.
fn two_threads<S: Sync>(filter: &S, insert: fn(&S, u64), items: u64) -> f64 {
    let start = Barrier::new(3);
    std::thread::scope(|scope| {
        let halves = [0..items / 2, items / 2..items];
        let threads = halves.map(|half| {
            scope.spawn(|| {
                start.wait();
                half.for_each(|key| insert(filter, key));
            })
        });
        start.wait();
        let begin = Instant::now();
        for thread in threads {
            thread.join().expect("inserting does not panic");
        }
        begin.elapsed().as_nanos() as f64 / items as f64
    })
}

pub fn run(args: &Args, report: &mut Report) -> Result<(), lexopt::Error> {
    let chosen = args.capacities.clone();
    for items in chosen.unwrap_or_else(|| ITEMS.to_vec()) {
        if items == 0 {
            return Err("a filter of no keys".into());
        }
        let queries = Queries::new(items);
        let mut subjects = [
            Built::<Seawall>::boxed(items),
            Built::<SeawallMany>::boxed(items),
            Built::<SeawallFrozen>::boxed(items),
            Built::<SeawallFrozenMany>::boxed(items),
            Built::<FastBloom>::boxed(items),
            Built::<FastBloomAtomic>::boxed(items),
            Built::<Sbbf>::boxed(items),
        ];
        let count = subjects.len();
        for turn in 0..args.rounds {
            for i in 0..count {
                subjects[(i + turn) % count].queries(&queries);
            }
            for i in 0..count {
                subjects[(i + turn) % count].inserts();
            }
        }
        emit(report, items, &queries, &subjects);
    }
    Ok(())
}

fn emit(report: &mut Report, items: u64, queries: &Queries, subjects: &[Box<dyn Live>]) {
    let middle = |times: &[f64]| match times {
        [] => Value::Null,
        times => round(median(times.to_vec()), 2).into(),
    };
    for subject in subjects {
        let times = subject.times();
        report.add(record! {
            "bench": "bloom",
            "subject": subject.name(),
            "n": items,
            "bits_per_key": round(subject.bits_per_key(), 2),
            "fpr": round(subject.rate(queries), 5),
            "query_hit_ns": middle(&times.queries[0]),
            "query_miss_ns": middle(&times.queries[1]),
            "query_mixed_ns": middle(&times.queries[2]),
            "insert_ns": middle(&times.insert),
            "insert_2t_over_1t": middle(&times.scaling),
        });
    }
    for (i, ours) in subjects.iter().enumerate().take(OURS) {
        for peer in &subjects[i + 1..] {
            let ratio = |ours: &[f64], peer: &[f64]| -> Value {
                let ratios: Vec<f64> = ours.iter().zip(peer).map(|(a, b)| b / a).collect();
                if ratios.is_empty() { Value::Null } else { round(median(ratios), 3).into() }
            };
            let (a, b) = (ours.times(), peer.times());
            report.add(record! {
                "bench": "bloom-ratio",
                "subject": ours.name(),
                "peer": peer.name(),
                "n": items,
                "hit": ratio(&a.queries[0], &b.queries[0]),
                "miss": ratio(&a.queries[1], &b.queries[1]),
                "mixed": ratio(&a.queries[2], &b.queries[2]),
                "insert": ratio(&a.insert, &b.insert),
            });
        }
    }
}
