//! What the guards have admitted and refused.

use crate::sync::{AtomicU64, Relaxed};

use super::{Priority, Refusal};

/// Refusals by reason; see [`Refusal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusals {
    /// [`Refusal::InFlight`].
    pub in_flight: u64,
    /// [`Refusal::BackgroundShare`].
    pub background_share: u64,
    /// [`Refusal::Waiters`].
    pub waiters: u64,
    /// [`Refusal::Rate`].
    pub rate: u64,
    /// [`Refusal::BreakerOpen`].
    pub breaker_open: u64,
    /// [`Refusal::Throttled`].
    pub throttled: u64,
}

impl Refusals {
    /// Returns their sum.
    pub fn total(&self) -> u64 {
        [self.in_flight, self.background_share, self.waiters, self.rate, self.breaker_open]
            .iter()
            .fold(self.throttled, |sum, count| sum.wrapping_add(*count))
    }
}

/// What the guards have done; a snapshot.
///
/// Counters start at zero and only grow. Each is exact; a snapshot taken while other threads work may
/// catch some counters before and some after an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardCounts {
    /// Loads that were let through to the origin.
    pub admitted: u64,
    /// Those of them that ran in the background.
    pub background_admitted: u64,
    /// Callers that were let wait for another caller's load.
    pub waiters_admitted: u64,
    /// Loads that ended in a failure of the origin.
    pub failed: u64,
    /// Loads that were given up before the origin answered; never counted as failures.
    pub cancelled: u64,
    /// Calls that were refused, each once, by reason.
    pub refused: Refusals,
    /// Calls that would have been refused, but were let through in observe-only mode.
    pub observed: Refusals,
}

/// One counter for each reason. Relaxed throughout: a statistic publishes nothing.
#[derive(Debug, Default)]
struct ByReason {
    in_flight: AtomicU64,
    background_share: AtomicU64,
    waiters: AtomicU64,
    rate: AtomicU64,
    breaker_open: AtomicU64,
    throttled: AtomicU64,
}

impl ByReason {
    fn count(&self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::InFlight { .. } => &self.in_flight,
            Refusal::BackgroundShare { .. } => &self.background_share,
            Refusal::Waiters { .. } => &self.waiters,
            Refusal::Rate { .. } => &self.rate,
            Refusal::BreakerOpen { .. } => &self.breaker_open,
            Refusal::Throttled { .. } => &self.throttled,
        };
        counter.fetch_add(1, Relaxed);
    }

    fn snapshot(&self) -> Refusals {
        Refusals {
            in_flight: self.in_flight.load(Relaxed),
            background_share: self.background_share.load(Relaxed),
            waiters: self.waiters.load(Relaxed),
            rate: self.rate.load(Relaxed),
            breaker_open: self.breaker_open.load(Relaxed),
            throttled: self.throttled.load(Relaxed),
        }
    }
}

/// The live counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    admitted: AtomicU64,
    background_admitted: AtomicU64,
    waiters_admitted: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    refused: ByReason,
    observed: ByReason,
}

impl Counters {
    pub(super) fn admitted(&self, priority: Priority) {
        self.admitted.fetch_add(1, Relaxed);
        if priority == Priority::Background {
            self.background_admitted.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn waiter_admitted(&self) {
        self.waiters_admitted.fetch_add(1, Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(super) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// Counts a refusal and returns it.
    #[cold]
    pub(super) fn refused(&self, refusal: Refusal) -> Refusal {
        self.refused.count(refusal);
        refusal
    }

    /// Counts what would have been refused.
    #[cold]
    pub(super) fn observed(&self, refusal: Refusal) {
        self.observed.count(refusal);
    }

    pub(super) fn snapshot(&self) -> GuardCounts {
        GuardCounts {
            admitted: self.admitted.load(Relaxed),
            background_admitted: self.background_admitted.load(Relaxed),
            waiters_admitted: self.waiters_admitted.load(Relaxed),
            failed: self.failed.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            refused: self.refused.snapshot(),
            observed: self.observed.snapshot(),
        }
    }
}
