//! Counts and gauges of one run, and the figures that are made of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::record::{Sample, Summary};
use crate::sizes::SLICE;

/// What a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Fresh,
    Stale,
    /// There is no such article.
    Absent,
    /// Not now; the origin was not asked.
    Refused,
    /// An error, or no answer in time.
    Failed,
}

/// A number that goes up and down, and its peak in each slice of time.
#[derive(Debug)]
pub struct Gauge {
    start: Instant,
    levels: Mutex<Levels>,
}

#[derive(Debug, Default)]
struct Levels {
    now: u64,
    peaks: Vec<u64>,
}

impl Gauge {
    /// Keeps peaks from `start` on.
    pub fn new(start: Instant) -> Arc<Self> {
        Arc::new(Gauge { start, levels: Mutex::default() })
    }

    fn change<R>(&self, change: impl FnOnce(&mut u64) -> R) -> R {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let time = Instant::now().checked_duration_since(self.start);
        let slice = time.map(|time| (time.as_nanos() / SLICE.as_nanos()) as usize);
        if let Some(slice) = slice {
            let (now, slices) = (levels.now, levels.peaks.len().max(slice + 1));
            levels.peaks.resize(slices, now);
        }
        let result = change(&mut levels.now);
        if let Some(slice) = slice {
            levels.peaks[slice] = levels.peaks[slice].max(levels.now);
        }
        result
    }

    /// Counts one more, until the result is dropped.
    pub fn enter(self: &Arc<Self>) -> Inside {
        let level = self.change(|now| {
            *now += 1;
            *now
        });
        Inside { gauge: Arc::clone(self), level }
    }

    pub fn now(&self) -> u64 {
        self.change(|now| *now)
    }

    /// The peak of each slice up to now.
    pub fn peaks(&self) -> Vec<u64> {
        self.now();
        self.levels.lock().unwrap_or_else(PoisonError::into_inner).peaks.clone()
    }
}

/// One that a gauge counts.
#[derive(Debug)]
pub struct Inside {
    gauge: Arc<Gauge>,
    /// What the gauge showed when this one was counted, this one included.
    pub level: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.gauge.change(|now| *now -= 1);
    }
}

/// A request that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Since the act's start.
    pub at: Duration,
    /// From the moment at which the request was due, retries included.
    pub latency: Duration,
    pub answer: Answer,
    /// Whether it was for an article that exists.
    pub existing: bool,
}

/// What the clients of one act got.
#[derive(Debug, Default)]
pub struct Tally {
    ended: Mutex<Vec<Ended>>,
    retries: AtomicU64,
}

impl Tally {
    pub fn ended(&self, ended: Ended) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
    }

    pub fn retried(&self, times: u64) {
        self.retries.fetch_add(times, Relaxed);
    }

    /// The clients' part of a summary.
    pub fn summary(&self) -> Summary {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut summary = Summary { retries: self.retries.load(Relaxed), ..Summary::default() };
        for it in ended.iter() {
            summary.requests += 1;
            *match it.answer {
                Answer::Fresh => &mut summary.fresh,
                Answer::Stale => &mut summary.stale,
                Answer::Absent => &mut summary.absent,
                Answer::Refused => &mut summary.refused,
                Answer::Failed => &mut summary.failed,
            } += 1;
            summary.existing += u64::from(it.existing);
            let answered = it.existing && matches!(it.answer, Answer::Fresh | Answer::Stale);
            summary.existing_answered += u64::from(answered);
        }
        let sorted = sorted_latencies(&ended);
        [summary.p50_us, summary.p99_us, summary.p999_us] =
            [0.5, 0.99, 0.999].map(|part| percentile(&sorted, part));
        summary
    }

    /// Time lines of `length`. What ended later is not in them: callers who gave up when all was over.
    pub fn samples(&self, length: Duration, origin_peaks: &[u64]) -> Vec<Sample> {
        let count = length.as_nanos().div_ceil(SLICE.as_nanos()).max(1) as usize;
        let mut slices = vec![Vec::new(); count];
        for it in self.ended.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let slice = (it.at.as_nanos() / SLICE.as_nanos()) as usize;
            if let Some(slice) = slices.get_mut(slice) {
                slice.push(*it);
            }
        }
        let of = |(slice, ended): (usize, Vec<Ended>)| {
            let count = |answer| ended.iter().filter(|it| it.answer == answer).count() as u64;
            let sorted = sorted_latencies(&ended);
            Sample {
                at_ms: slice as u64 * SLICE.as_millis() as u64,
                origin_peak: origin_peaks.get(slice).copied().unwrap_or(0),
                fresh: count(Answer::Fresh),
                stale: count(Answer::Stale),
                absent: count(Answer::Absent),
                refused: count(Answer::Refused),
                failed: count(Answer::Failed),
                p50_us: percentile(&sorted, 0.5),
                p99_us: percentile(&sorted, 0.99),
            }
        };
        slices.into_iter().enumerate().map(of).collect()
    }
}

fn sorted_latencies(ended: &[Ended]) -> Vec<u64> {
    let mut sorted: Vec<u64> = ended.iter().map(|it| it.latency.as_micros() as u64).collect();
    sorted.sort_unstable();
    sorted
}

/// The least value that at least `part` of the values do not exceed; 0 of none.
fn percentile(sorted: &[u64], part: f64) -> u64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_by_rank() {
        let values: Vec<u64> = (1..=1_000).collect();
        assert_eq!([0.5, 0.99, 0.999].map(|part| percentile(&values, part)), [500, 990, 999]);
        assert_eq!(percentile(&[7], 0.5), 7);
        assert_eq!(percentile(&[], 0.99), 0);
    }

    #[test]
    fn a_gauge_keeps_its_level_through_silent_slices() {
        let gauge = Gauge::new(Instant::now().checked_sub(3 * SLICE).unwrap());
        let first = gauge.enter();
        let second = gauge.enter();
        drop(first);
        assert_eq!((second.level, gauge.now()), (2, 1));
        assert_eq!(gauge.peaks()[..3], [0, 0, 0]);
        assert_eq!(gauge.peaks().iter().max(), Some(&2));
        let later = Gauge::new(Instant::now() + Duration::from_secs(3_600));
        let _inside = later.enter();
        assert!(later.peaks().is_empty());
    }

    #[test]
    fn samples_count_what_ended_in_their_time() {
        let tally = Tally::default();
        let answers =
            [Answer::Fresh, Answer::Stale, Answer::Absent, Answer::Refused, Answer::Failed];
        for (at, answer) in answers.into_iter().enumerate() {
            let at = SLICE * at as u32;
            tally.ended(Ended { at, latency: at, answer, existing: answer != Answer::Absent });
        }
        let summary = tally.summary();
        assert_eq!((summary.requests, summary.existing, summary.existing_answered), (5, 4, 2));
        let samples = tally.samples(SLICE * 3, &[9, 8]);
        assert_eq!(samples.len(), 3);
        assert_eq!(samples.iter().map(|it| it.origin_peak).collect::<Vec<_>>(), [9, 8, 0]);
        let last = samples[2];
        assert_eq!((last.absent, last.refused, last.failed), (1, 0, 0));
        assert_eq!(last.p99_us, SLICE.as_micros() as u64 * 2);
    }
}
