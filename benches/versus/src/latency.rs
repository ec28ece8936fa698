//! Single hits, timed one by one, while another thread inserts fresh keys and so evicts.

use crate::args::Args;
use crate::record;
use crate::report::{Report, median, round};
use crate::subjects::{self, Block, Config, Kind, Subject, Visit, block};
use crate::zipf::Random;
use hdrhistogram::Histogram;
use quanta::Clock;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CAPACITY: u64 = 100_000;
/// Keys that are read all the time.
const HOT: u64 = 1000;
/// Reads between two looks at the wall clock.
const STEP: usize = 256;
const SCENARIO: &str = "hit-under-churn";

/// The cycle counter, after everything before it is done and before anything after it begins.
#[inline(always)]
fn ticks(clock: &Clock) -> u64 {
    fence();
    let ticks = clock.raw();
    fence();
    ticks
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fence() {
    // SAFETY: every x86_64 processor has SSE2, and the fence has no other effect.
    unsafe { std::arch::x86_64::_mm_lfence() };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn fence() {
    std::sync::atomic::fence(Ordering::SeqCst);
}

fn histogram() -> Histogram<u64> {
    // Up to a minute, three digits.
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

trait Live {
    /// Returns the times of the hits, and the million inserts a second of the other thread.
    fn run(&mut self, clock: &Clock, keys: &[u64], time: Duration) -> (Histogram<u64>, f64);
}

struct Built<S> {
    subject: S,
    /// The next fresh key.
    fresh: u64,
}

impl<S: Subject<u64, Block>> Built<S> {
    fn new() -> Self {
        let subject = S::build(&Config::entries(CAPACITY));
        let hot = |subject: &S| {
            for key in 0..HOT {
                if subject.read(&key, |value| black_box(value[0])).is_none() {
                    subject.insert(key, block(key));
                }
            }
        };
        // Full, and the hot keys known to be hot.
        let mut fresh = HOT;
        for _ in 0..10 {
            for _ in 0..CAPACITY / 5 {
                subject.insert(fresh, block(fresh));
                fresh += 1;
            }
            hot(&subject);
            hot(&subject);
        }
        Built { subject, fresh }
    }
}

#[inline(never)]
fn timed_step<S: Subject<u64, Block>>(
    subject: &S,
    clock: &Clock,
    keys: &[u64],
    times: &mut Histogram<u64>,
) {
    for &key in keys {
        let start = ticks(clock);
        let word = black_box(subject.read(black_box(&key), |value| value[0]));
        let end = ticks(clock);
        if word.is_some() {
            times.saturating_record(clock.delta_as_nanos(start, end));
        } else {
            subject.insert(key, block(key));
        }
    }
}

impl<S: Subject<u64, Block>> Live for Built<S> {
    fn run(&mut self, clock: &Clock, keys: &[u64], time: Duration) -> (Histogram<u64>, f64) {
        let (barrier, stop) = (Barrier::new(2), AtomicBool::new(false));
        let mut times = histogram();
        let subject = &self.subject;
        let first = self.fresh;
        let elapsed = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                barrier.wait();
                let mut fresh = first;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        subject.insert(fresh, block(fresh));
                        fresh += 1;
                    }
                }
                fresh
            });
            barrier.wait();
            let start = Instant::now();
            for keys in keys.chunks(STEP).cycle() {
                timed_step(subject, clock, keys, &mut times);
                if start.elapsed() >= time {
                    break;
                }
            }
            let elapsed = start.elapsed();
            stop.store(true, Ordering::Relaxed);
            self.fresh = writer.join().expect("the writer panicked");
            elapsed
        });
        let inserts = (self.fresh - first) as f64;
        (times, inserts / elapsed.as_secs_f64() / 1e6)
    }
}

/// Nothing at all, timed the same way: what the clock itself adds to every figure.
struct Empty;

impl Live for Empty {
    fn run(&mut self, clock: &Clock, keys: &[u64], time: Duration) -> (Histogram<u64>, f64) {
        let mut times = histogram();
        let start = Instant::now();
        while start.elapsed() < time {
            for key in &keys[..STEP] {
                let start = ticks(clock);
                black_box(key);
                let end = ticks(clock);
                times.saturating_record(clock.delta_as_nanos(start, end));
            }
        }
        (times, 0.0)
    }
}

struct Line {
    scenario: &'static str,
    name: &'static str,
    live: Box<dyn Live>,
    /// Per round: p50, p99, p99.9, maximum, million inserts a second.
    rounds: Vec<[f64; 5]>,
}

impl Line {
    fn new(scenario: &'static str, name: &'static str, live: Box<dyn Live>) -> Self {
        Line { scenario, name, live, rounds: Vec::new() }
    }

    fn median(&self, at: usize) -> f64 {
        median(self.rounds.iter().map(|round| round[at]).collect())
    }
}

struct Builder<'a> {
    args: &'a Args,
    lines: Vec<Line>,
}

impl Visit<u64, Block> for Builder<'_> {
    fn visit<S: Subject<u64, Block>>(&mut self) {
        if self.args.wants(S::NAME) && S::KIND != Kind::Map && !S::MANY {
            let live = Box::new(Built::<S>::new());
            self.lines.push(Line::new(SCENARIO, S::NAME, live));
        }
    }
}

pub fn run(args: &Args, report: &mut Report) -> Result<(), lexopt::Error> {
    args.check_scenarios(&[SCENARIO])?;
    let clock = Clock::new();
    let mut random = Random::new(1);
    let keys: Vec<u64> = (0..1 << 16).map(|_| random.below(HOT)).collect();
    let mut builder = Builder { args, lines: vec![Line::new("empty", "clock", Box::new(Empty))] };
    subjects::each(&mut builder);
    let mut lines = builder.lines;
    for turn in 0..args.rounds {
        for i in 0..lines.len() {
            let at = (i + turn) % lines.len();
            let (times, inserts) = lines[at].live.run(&clock, &keys, args.time);
            let quantile = |q: f64| times.value_at_quantile(q) as f64;
            let max = times.max() as f64;
            lines[at].rounds.push([quantile(0.5), quantile(0.99), quantile(0.999), max, inserts]);
        }
    }
    for line in &lines {
        report.add(record! {
            "bench": "latency",
            "scenario": line.scenario,
            "subject": line.name,
            "p50_ns": line.median(0),
            "p99_ns": line.median(1),
            "p999_ns": line.median(2),
            "max_ns": line.median(3),
            "insert_mops": round(line.median(4), 3),
        });
    }
    Ok(())
}
