//! Get-or-load without anybody who waits: of new keys, and of resident ones.

use super::subjects::Blocking;
use crate::subjects::Value;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// What every thread does in a round.
#[derive(Clone, Copy, PartialEq)]
pub enum Work {
    /// New keys in a full cache: each load evicts.
    Cold,
    /// New keys in a cache with room for all.
    Roomy,
    /// Resident keys.
    Hit,
}

/// Entries in a full cache.
const CAPACITY: u64 = 100_000;
/// Loads of a round.
const LOADS: u64 = 400_000;
/// Resident keys, and how many reads of a round.
const KEYS: u64 = 1_000_000;
const READS: u64 = 4_000_000;

pub trait Live {
    fn name(&self) -> &'static str;
    /// Million operations a second.
    fn round(&mut self, threads: u64, keys: &[Vec<u64>]) -> f64;
}

pub struct Subject<S, V> {
    subject: Option<S>,
    work: Work,
    value: fn(u64) -> V,
    /// Never used before.
    next: u64,
}

impl<V: Value, S: Blocking<V>> Subject<S, V> {
    pub fn boxed(work: Work, value: fn(u64) -> V) -> Box<dyn Live> {
        let (keys, capacity) = match work {
            Work::Cold => (2 * CAPACITY, CAPACITY),
            Work::Roomy => (0, 1),
            Work::Hit => (KEYS, KEYS + KEYS / 4),
        };
        let subject = S::build(capacity);
        for key in 0..keys {
            subject.get(key, || value(key));
        }
        Box::new(Subject { subject: Some(subject), work, value, next: keys })
    }
}

#[inline(never)]
fn cold<V: Value, S: Blocking<V>>(subject: &S, keys: std::ops::Range<u64>, value: fn(u64) -> V) {
    for key in keys {
        black_box(subject.get(key, || value(key)));
    }
}

#[inline(never)]
fn hit<V: Value, S: Blocking<V>>(subject: &S, keys: &[u64], value: fn(u64) -> V) {
    for &key in keys {
        black_box(subject.get(key, || value(key)));
    }
}

/// Seconds that `threads` threads take together.
fn together(threads: u64, work: impl Fn(u64) + Sync) -> f64 {
    let barrier = Barrier::new(threads as usize);
    let (work, barrier) = (&work, &barrier);
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let run = move |thread| {
            barrier.wait();
            let start = Instant::now();
            work(thread);
            (start, Instant::now())
        };
        let threads: Vec<_> = (0..threads).map(|i| scope.spawn(move || run(i))).collect();
        threads.into_iter().map(|it| it.join().expect("no panic")).collect()
    });
    let first = times.iter().map(|it| it.0).min().expect("a thread");
    let last = times.iter().map(|it| it.1).max().expect("a thread");
    (last - first).as_secs_f64()
}

impl<V: Value, S: Blocking<V>> Live for Subject<S, V> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn round(&mut self, threads: u64, keys: &[Vec<u64>]) -> f64 {
        if self.work == Work::Roomy {
            self.subject = None;
            self.subject = Some(S::build(LOADS + LOADS / 4));
        }
        let subject = self.subject.as_ref().expect("built");
        let (first, value) = (self.next, self.value);
        if self.work == Work::Hit {
            let share = (READS / threads) as usize;
            let seconds = together(threads, |i| hit(subject, &keys[i as usize][..share], value));
            return READS as f64 / seconds / 1e6;
        }
        self.next += LOADS;
        let share = LOADS / threads;
        let seconds = together(threads, |i| {
            let first = first + i * share;
            cold(subject, first..first + share, value);
        });
        LOADS as f64 / seconds / 1e6
    }
}

/// What each of two threads reads.
pub fn resident() -> Vec<Vec<u64>> {
    let zipf = crate::zipf::Zipf::new(KEYS as usize, 0.99);
    (1..=2).map(|seed| zipf.sequence(READS as usize, seed)).collect()
}
