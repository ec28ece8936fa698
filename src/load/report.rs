//! What loads have done, as seen from outside.

use std::sync::OnceLock;
use std::time::Duration;

use crate::answer::{Answer, Failure};
use crate::sync::{Cell, Striped};
use crate::table::reclaim;

/// What a cache's loads have done and are doing; a snapshot.
///
/// Counters only grow. A caller counts once, for what it was told: [`joined`](Self::joined) are apart
/// from hits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadStats {
    /// Calls of a loader: the origin's view.
    pub started: u64,
    /// Loads that brought a value, or kept the old one.
    pub loaded: u64,
    /// Loads that brought an absence.
    pub absent: u64,
    /// Loads that failed with the loader's error.
    pub failed: u64,
    /// Loads that panicked.
    pub panicked: u64,
    /// Loads that took longer than they may.
    pub timed_out: u64,
    /// Loads that were dropped because nobody waited any more.
    pub abandoned: u64,
    /// Loads whose answer was not stored: overtaken by a write or an invalidation, or not to be.
    pub not_stored: u64,
    /// Callers who were told what another caller's load brought, or whose time was up before.
    pub joined: u64,
    /// Callers who stopped waiting because their time was up, or the load's.
    pub waits_timed_out: u64,
    /// Stale values served: in place of a load's error or refusal, or while one is going on.
    pub served_stale: u64,
    /// Refreshes begun in the background.
    pub refreshes: u64,
    /// Calls that the [`screen`](crate::Builder::screen) answered: the key certainly does not exist.
    pub screened: u64,
    /// Calls that it let through because it could not tell: it is not complete, overfull or suspect.
    pub screen_unsure: u64,
    /// Loads in progress now.
    pub in_flight: u64,
    /// Callers that wait for one now.
    pub waiting: u64,
    /// How long loads took, by the system's clock.
    pub load_time: Histogram,
    /// How old stale values were when they were served.
    pub stale_age: Histogram,
}

/// Counts of durations, in classes that grow by a quarter of a power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    sum_micros: u64,
}

const CLASSES: usize = 4 * 44;

/// The class of a number of microseconds: exact below 4, then four classes to a power of two.
fn class_of(micros: u64) -> usize {
    let class = if micros < 4 {
        micros as usize
    } else {
        let exponent = micros.ilog2();
        4 * (exponent as usize - 1) + (micros >> (exponent - 2)) as usize % 4
    };
    class.min(CLASSES - 1)
}

/// The longest of a class.
fn top_of(class: usize) -> u64 {
    if class < 4 {
        return class as u64;
    }
    let shift = class / 4 - 1;
    ((5 + class as u64 % 4) << shift) - 1
}

impl Histogram {
    /// Returns how many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of them all.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_micros)
    }

    /// Returns a duration that a fraction of all were not longer than, to within a quarter; `None` if
    /// there were none, or the fraction is not between 0 and 1.
    pub fn quantile(&self, fraction: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 || !(0.0..=1.0).contains(&fraction) {
            return None;
        }
        let mut left = ((count as f64 * fraction).ceil() as u64).max(1);
        for (class, &count) in self.counts.iter().enumerate() {
            left = left.saturating_sub(count);
            if left == 0 {
                return Some(Duration::from_micros(top_of(class)));
            }
        }
        None
    }

    /// Returns, for each class that has any, the longest duration of it and how many there were of it or
    /// of a shorter one: the cumulative buckets of Prometheus.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let mut sum = 0;
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(
            move |(class, count)| {
                sum += count;
                (Duration::from_micros(top_of(class)), sum)
            },
        )
    }
}

/// A histogram that is being counted.
#[derive(Debug)]
struct Counting {
    counts: Box<[Cell]>,
    sum: Cell,
}

impl Counting {
    fn new() -> Self {
        let counts = (0..CLASSES).map(|_| Cell::default()).collect();
        Counting { counts, sum: Cell::default() }
    }

    fn add(&self, duration: Duration, own: bool) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[class_of(micros)].add(1, own);
        self.sum.add(micros as i64, own);
    }

    fn add_to(&self, histogram: &mut Histogram) {
        histogram.counts.resize(CLASSES, 0);
        for (sum, count) in histogram.counts.iter_mut().zip(&self.counts) {
            *sum += count.get() as u64;
        }
        let micros = self.sum.get() as u64;
        histogram.sum_micros = histogram.sum_micros.saturating_add(micros);
    }
}

macro_rules! counters {
    ($($name:ident),*) => {
        #[derive(Debug, Default)]
        struct Counters {
            $($name: Cell,)*
        }

        impl Counters {
            fn add_to(&self, stats: &mut LoadStats) {
                $(stats.$name += self.$name.get() as u64;)*
            }
        }
    };
}

counters!(
    started,
    loaded,
    absent,
    failed,
    panicked,
    timed_out,
    abandoned,
    not_stored,
    joined,
    waits_timed_out,
    served_stale,
    refreshes,
    screened,
    screen_unsure
);

/// One thread's counts. The histograms are made when they are needed.
#[derive(Debug, Default)]
struct Counts {
    counters: Counters,
    load_time: OnceLock<Counting>,
    stale_age: OnceLock<Counting>,
}

/// Counts what loads do, so that serving stale values writes no line that another core writes.
#[derive(Debug)]
pub(crate) struct Report(Striped<Counts>);

impl Report {
    pub(crate) fn new() -> Self {
        let report = Report(Striped::new());
        if cfg!(seawall_loom) {
            // Loom does not see who makes them.
            report.0.iter().for_each(|counts| {
                counts.load_time.get_or_init(Counting::new);
                counts.stale_age.get_or_init(Counting::new);
            });
        }
        report
    }

    /// The calling thread's counts, and whether no other thread writes them.
    fn mine(&self) -> (&Counts, bool) {
        self.0.of(reclaim::stripe())
    }

    fn count(&self, counter: impl Fn(&Counters) -> &Cell) {
        let (mine, own) = self.mine();
        counter(&mine.counters).add(1, own);
    }

    pub(super) fn started(&self) {
        self.count(|counters| &counters.started);
    }

    /// Counts a load that has ended; returns what its end is called.
    pub(super) fn ended<V>(&self, answer: &Answer<V>, took: Duration) -> &'static str {
        let (mine, own) = self.mine();
        let counters = &mine.counters;
        let (counter, name) = match answer {
            Ok(loaded) => {
                if !loaded.stored {
                    counters.not_stored.add(1, own);
                }
                match loaded.value {
                    Some(_) => (&counters.loaded, "loaded"),
                    None => (&counters.absent, "absent"),
                }
            }
            Err(Failure::Failed(..) | Failure::Refused(_) | Failure::NothingToKeep) => {
                (&counters.failed, "failed")
            }
            Err(Failure::Panicked(_)) => (&counters.panicked, "panicked"),
            Err(Failure::TimedOut) => (&counters.timed_out, "timed_out"),
            Err(Failure::Abandoned) => (&counters.abandoned, "abandoned"),
        };
        counter.add(1, own);
        mine.load_time.get_or_init(Counting::new).add(took, own);
        #[cfg(feature = "metrics")]
        metrics::histogram!("seawall_load_seconds", "outcome" => name).record(took);
        name
    }

    pub(super) fn joined(&self) {
        self.count(|counters| &counters.joined);
    }

    pub(super) fn wait_timed_out(&self) {
        self.count(|counters| &counters.waits_timed_out);
    }

    pub(super) fn refreshes(&self) {
        self.count(|counters| &counters.refreshes);
    }

    pub(super) fn screened(&self) {
        self.count(|counters| &counters.screened);
    }

    pub(super) fn unsure(&self) {
        self.count(|counters| &counters.screen_unsure);
    }

    pub(super) fn served_stale(&self, age: Option<Duration>) {
        let (mine, own) = self.mine();
        mine.counters.served_stale.add(1, own);
        if let Some(age) = age {
            mine.stale_age.get_or_init(Counting::new).add(age, own);
            #[cfg(feature = "metrics")]
            metrics::histogram!("seawall_stale_age_seconds").record(age);
        }
    }

    pub(crate) fn snapshot(&self) -> LoadStats {
        let mut stats = LoadStats::default();
        for counts in self.0.iter() {
            counts.counters.add_to(&mut stats);
            if let Some(counting) = counts.load_time.get() {
                counting.add_to(&mut stats.load_time);
            }
            if let Some(counting) = counts.stale_age.get() {
                counting.add_to(&mut stats.stale_age);
            }
        }
        stats
    }
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_a_class_that_is_not_below_it() {
        let mut last = 0;
        for micros in (0..5_000).chain((13..44).flat_map(|bits| [(1 << bits) - 1, 1 << bits])) {
            let class = class_of(micros);
            assert!(top_of(class) >= micros, "{micros}");
            assert!(class == 0 || top_of(class - 1) < micros, "{micros}");
            assert!(class >= last);
            last = class;
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn quantiles_are_within_a_quarter() {
        let counting = Counting::new();
        (1..=1_000).for_each(|millis| counting.add(Duration::from_millis(millis), true));
        let mut histogram = Histogram::default();
        counting.add_to(&mut histogram);
        assert_eq!(histogram.count(), 1_000);
        assert_eq!(histogram.sum(), Duration::from_millis(500_500));
        for (fraction, millis) in [(0.5, 500), (0.99, 990), (1.0, 1_000)] {
            let quantile = histogram.quantile(fraction).unwrap();
            let exact = Duration::from_millis(millis);
            assert!(quantile >= exact && quantile < exact * 5 / 4, "{fraction}: {quantile:?}");
        }
        assert_eq!(histogram.quantile(1.5), None);
        assert_eq!(histogram.buckets().last().unwrap().1, 1_000);
    }
}
