//! Operations a second: every subject in turn, several rounds, all in one process.

use crate::args::Args;
use crate::record;
use crate::report::{Report, median, percent, round};
use crate::subjects::{self, Block, Config, Kind, Subject, Visit, block};
use crate::zipf::{Random, Zipf};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Distinct keys.
const KEYS: u64 = 1_000_000;
/// Capacity of the caches that are to hold all the keys: some headroom, as several subjects
/// divide their capacity into parts that do not fill evenly.
const ROOMY: u64 = KEYS + KEYS / 4;
/// Capacity in `churn`.
const TIGHT: u64 = KEYS / 10;
/// Operations before the measurement of `churn`.
const CHURN_WARM_UP: usize = 4_000_000;
/// Keys in the sequence of a thread; it is read round and round.
const SEQUENCE: usize = 1 << 22;
/// Operations between two looks at the clock.
const STEP: usize = 256;
/// Keys in a call of `read_many`.
const MANY: usize = 32;
/// Marks the keys of a sequence that are to be replaced.
const REPLACE: u64 = 1 << 63;

#[derive(Clone, Copy, PartialEq)]
enum Scenario {
    Hit,
    Hot,
    Mixed,
    Churn,
    Ttl,
}

const SCENARIOS: [(&str, Scenario); 5] = [
    ("hit", Scenario::Hit),
    ("hot", Scenario::Hot),
    ("mixed10", Scenario::Mixed),
    ("churn", Scenario::Churn),
    ("ttl", Scenario::Ttl),
];

impl Scenario {
    fn takes<S: Subject<u64, Block>>(self) -> bool {
        match self {
            Scenario::Hit => true,
            Scenario::Hot | Scenario::Mixed => !S::MANY,
            Scenario::Churn => !S::MANY && S::KIND != Kind::Map,
            Scenario::Ttl => S::TTL,
        }
    }

    fn config(self) -> Config {
        Config {
            capacity: match self {
                Scenario::Churn => TIGHT,
                _ => ROOMY,
            },
            ttl: (self == Scenario::Ttl).then_some(Duration::from_secs(3600)),
        }
    }

    /// What thread `thread` will ask for.
    fn sequence(self, zipf: &Zipf, thread: usize) -> Vec<u64> {
        let mut keys = zipf.sequence(SEQUENCE, 1 + thread as u64);
        match self {
            Scenario::Hot => keys.fill(KEYS / 2),
            Scenario::Mixed => {
                let mut random = Random::new(1000 + thread as u64);
                for key in &mut keys {
                    if random.below(10) == 0 {
                        *key |= REPLACE;
                    }
                }
            }
            _ => {}
        }
        keys
    }
}

/// What one thread, or all of them together, did.
#[derive(Clone, Copy, Default)]
struct Count {
    operations: u64,
    reads: u64,
    hits: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.operations += other.operations;
        self.reads += other.reads;
        self.hits += other.hits;
    }
}

// One function per kind of step, never inlined: so that the read is inlined into each of them
// alike, and a profile shows it by name.

#[inline(never)]
fn read_step<S: Subject<u64, Block>>(subject: &S, keys: &[u64]) -> u64 {
    let (mut hits, mut sum) = (0, 0u64);
    for key in keys {
        if let Some(word) = subject.read(key, |value| value[0]) {
            hits += 1;
            sum = sum.wrapping_add(word);
        }
    }
    black_box(sum);
    hits
}

#[inline(never)]
fn read_many_step<S: Subject<u64, Block>>(subject: &S, keys: &[u64]) -> u64 {
    let (mut hits, mut sum) = (0, 0u64);
    for keys in keys.chunks(MANY) {
        subject.read_many(keys, |value| {
            hits += 1;
            sum = sum.wrapping_add(value[0]);
        });
    }
    black_box(sum);
    hits
}

/// Returns reads and hits.
#[inline(never)]
fn mixed_step<S: Subject<u64, Block>>(subject: &S, keys: &[u64]) -> (u64, u64) {
    let (mut reads, mut hits, mut sum) = (0, 0, 0u64);
    for &key in keys {
        if key & REPLACE != 0 {
            let key = key & !REPLACE;
            subject.insert(key, block(key));
        } else {
            reads += 1;
            if let Some(word) = subject.read(&key, |value| value[0]) {
                hits += 1;
                sum = sum.wrapping_add(word);
            }
        }
    }
    black_box(sum);
    (reads, hits)
}

#[inline(never)]
fn churn_step<S: Subject<u64, Block>>(subject: &S, keys: &[u64]) -> u64 {
    let (mut hits, mut sum) = (0, 0u64);
    for &key in keys {
        if let Some(word) = subject.read(&key, |value| value[0]) {
            hits += 1;
            sum = sum.wrapping_add(word);
        } else {
            subject.insert(key, block(key));
        }
    }
    black_box(sum);
    hits
}

fn step<S: Subject<u64, Block>>(scenario: Scenario, subject: &S, keys: &[u64]) -> Count {
    let operations = keys.len() as u64;
    let (reads, hits) = match scenario {
        Scenario::Mixed => mixed_step(subject, keys),
        Scenario::Churn => (operations, churn_step(subject, keys)),
        _ if S::MANY => (operations, read_many_step(subject, keys)),
        _ => (operations, read_step(subject, keys)),
    };
    Count { operations, reads, hits }
}

/// Runs one thread until `time` is over; returns when it began and ended, too.
fn run_thread<S: Subject<u64, Block>>(
    scenario: Scenario,
    subject: &S,
    sequence: &[u64],
    offset: usize,
    barrier: &Barrier,
    time: Duration,
) -> (Count, Instant, Instant) {
    let mut count = Count::default();
    let mut steps = sequence.chunks(STEP).cycle().skip(offset / STEP % (sequence.len() / STEP));
    barrier.wait();
    let start = Instant::now();
    loop {
        let keys = steps.next().expect("a cycle has no end");
        count.add(step(scenario, subject, keys));
        let now = Instant::now();
        if now - start >= time {
            return (count, start, now);
        }
    }
}

/// A subject that is built and filled, its type forgotten: called once per measurement.
trait Live {
    fn run(&self, sequences: &[Vec<u64>], offset: usize, time: Duration) -> (f64, Count);
}

struct Built<S> {
    subject: S,
    scenario: Scenario,
}

impl<S: Subject<u64, Block>> Built<S> {
    fn new(scenario: Scenario, sequence: &[u64]) -> Self {
        let subject = S::build(&scenario.config());
        if scenario == Scenario::Churn {
            for keys in sequence.chunks(STEP).cycle().take(CHURN_WARM_UP / STEP) {
                churn_step(&subject, keys);
            }
        } else {
            for key in 0..KEYS {
                subject.insert(key, block(key));
            }
            // A subject that lost some while it grew gets them again.
            for key in 0..KEYS {
                if subject.read(&key, |value| black_box(value[0])).is_none() {
                    subject.insert(key, block(key));
                }
            }
        }
        Built { subject, scenario }
    }
}

impl<S: Subject<u64, Block>> Live for Built<S> {
    /// One thread per sequence; returns the million operations a second of all together.
    fn run(&self, sequences: &[Vec<u64>], offset: usize, time: Duration) -> (f64, Count) {
        let barrier = Barrier::new(sequences.len());
        let parts: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = sequences
                .iter()
                .map(|sequence| {
                    let (subject, barrier, scenario) = (&self.subject, &barrier, self.scenario);
                    scope.spawn(move || {
                        run_thread(scenario, subject, sequence, offset, barrier, time)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a thread of the bench panicked"))
                .collect()
        });
        let mut count = Count::default();
        for (part, _, _) in &parts {
            count.add(*part);
        }
        let start = parts.iter().map(|part| part.1).min();
        let end = parts.iter().map(|part| part.2).max();
        let wall = end.zip(start).map_or(Duration::ZERO, |(e, s)| e - s);
        (count.operations as f64 / wall.as_secs_f64() / 1e6, count)
    }
}

struct Line {
    name: &'static str,
    kind: Kind,
    live: Box<dyn Live>,
    /// Per round.
    mops: Vec<f64>,
    count: Count,
}

struct Builder<'a> {
    args: &'a Args,
    scenario: Scenario,
    sequence: &'a [u64],
    lines: Vec<Line>,
}

impl Visit<u64, Block> for Builder<'_> {
    fn visit<S: Subject<u64, Block>>(&mut self) {
        if self.args.wants(S::NAME) && self.scenario.takes::<S>() {
            self.lines.push(Line {
                name: S::NAME,
                kind: S::KIND,
                live: Box::new(Built::<S>::new(self.scenario, self.sequence)),
                mops: Vec::new(),
                count: Count::default(),
            });
        }
    }
}

pub fn run(args: &Args, report: &mut Report) -> Result<(), lexopt::Error> {
    args.check_scenarios(&SCENARIOS.map(|(name, _)| name))?;
    let zipf = Zipf::new(KEYS as usize, 0.99);
    let threads = args.threads(&[1, 2]);
    let most_threads = threads.iter().copied().max().unwrap_or(0);
    for (name, scenario) in SCENARIOS {
        if !args.wants_scenario(name) {
            continue;
        }
        let sequences: Vec<Vec<u64>> =
            (0..most_threads).map(|thread| scenario.sequence(&zipf, thread)).collect();
        let Some(sequence) = sequences.first() else {
            continue;
        };
        let mut builder = Builder { args, scenario, sequence, lines: Vec::new() };
        subjects::each(&mut builder);
        let mut lines = builder.lines;
        for &threads in threads {
            measure(args, &sequences[..threads], &mut lines);
            emit(report, name, threads, &lines);
        }
    }
    Ok(())
}

fn measure(args: &Args, sequences: &[Vec<u64>], lines: &mut [Line]) {
    for line in lines.iter_mut() {
        line.mops.clear();
        line.count = Count::default();
    }
    for turn in 0..args.rounds {
        // The same part of the sequences for every subject, another one each round.
        let offset = turn * (SEQUENCE / 7);
        for i in 0..lines.len() {
            let at = (i + turn) % lines.len();
            let line = &mut lines[at];
            let (mops, count) = line.live.run(sequences, offset, args.time);
            line.mops.push(mops);
            line.count.add(count);
        }
    }
}

fn emit(report: &mut Report, scenario: &str, threads: usize, lines: &[Line]) {
    for line in lines {
        report.add(record! {
            "bench": "throughput",
            "scenario": scenario,
            "threads": threads,
            "subject": line.name,
            "mops": round(median(line.mops.clone()), 3),
            "hit_ratio": round(percent(line.count.hits, line.count.reads), 3),
        });
    }
    for ours in lines.iter().filter(|line| line.kind == Kind::Ours) {
        for peer in lines {
            let many_over_one = (ours.name, peer.name) == ("seawall-many", "seawall");
            if peer.kind == Kind::Ours && !many_over_one {
                continue;
            }
            let ratios = ours.mops.iter().zip(&peer.mops).map(|(a, b)| a / b);
            report.add(record! {
                "bench": "throughput-ratio",
                "scenario": scenario,
                "threads": threads,
                "subject": ours.name,
                "peer": peer.name,
                "ratio": round(median(ratios.collect()), 3),
            });
        }
    }
}
