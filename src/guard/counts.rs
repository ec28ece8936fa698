//! What the guards have admitted and refused, striped: serving a stale value because of a refusal writes
//! no line that another core writes.

use crate::sync::{Cell, Stripe, Striped};

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

/// One thread's counters.
#[derive(Debug, Default)]
struct Counts {
    admitted: Cell,
    background_admitted: Cell,
    waiters_admitted: Cell,
    failed: Cell,
    cancelled: Cell,
    refused: ByReason,
    observed: ByReason,
}

#[derive(Debug, Default)]
struct ByReason {
    in_flight: Cell,
    background_share: Cell,
    waiters: Cell,
    rate: Cell,
    breaker_open: Cell,
    throttled: Cell,
}

impl ByReason {
    fn cell(&self, refusal: Refusal) -> &Cell {
        match refusal {
            Refusal::InFlight { .. } => &self.in_flight,
            Refusal::BackgroundShare { .. } => &self.background_share,
            Refusal::Waiters { .. } => &self.waiters,
            Refusal::Rate { .. } => &self.rate,
            Refusal::BreakerOpen { .. } => &self.breaker_open,
            Refusal::Throttled { .. } => &self.throttled,
        }
    }
}

/// The live counters.
#[derive(Debug)]
pub(super) struct Counters {
    counts: Striped<Counts>,
    /// The stripe of the calling thread.
    stripe: fn() -> Stripe,
}

impl Counters {
    pub(super) fn new(stripe: fn() -> Stripe) -> Self {
        Counters { counts: Striped::new(), stripe }
    }

    fn count(&self, cell: impl Fn(&Counts) -> &Cell) {
        let (counts, own) = self.counts.of((self.stripe)());
        cell(counts).add(1, own);
    }

    pub(super) fn admitted(&self, priority: Priority) {
        self.count(|counts| &counts.admitted);
        if priority == Priority::Background {
            self.count(|counts| &counts.background_admitted);
        }
    }

    pub(super) fn waiter_admitted(&self) {
        self.count(|counts| &counts.waiters_admitted);
    }

    pub(super) fn failed(&self) {
        self.count(|counts| &counts.failed);
    }

    pub(super) fn cancelled(&self) {
        self.count(|counts| &counts.cancelled);
    }

    /// Counts a refusal and returns it.
    pub(super) fn refused(&self, refusal: Refusal) -> Refusal {
        self.count(|counts| counts.refused.cell(refusal));
        refusal
    }

    /// Counts what would have been refused.
    pub(super) fn observed(&self, refusal: Refusal) {
        self.count(|counts| counts.observed.cell(refusal));
    }

    fn sum(&self, cell: impl Fn(&Counts) -> &Cell) -> u64 {
        self.counts.iter().fold(0, |sum, counts| sum.wrapping_add(cell(counts).get() as u64))
    }

    fn refusals(&self, by_reason: fn(&Counts) -> &ByReason) -> Refusals {
        Refusals {
            in_flight: self.sum(|counts| &by_reason(counts).in_flight),
            background_share: self.sum(|counts| &by_reason(counts).background_share),
            waiters: self.sum(|counts| &by_reason(counts).waiters),
            rate: self.sum(|counts| &by_reason(counts).rate),
            breaker_open: self.sum(|counts| &by_reason(counts).breaker_open),
            throttled: self.sum(|counts| &by_reason(counts).throttled),
        }
    }

    pub(super) fn snapshot(&self) -> GuardCounts {
        GuardCounts {
            admitted: self.sum(|counts| &counts.admitted),
            background_admitted: self.sum(|counts| &counts.background_admitted),
            waiters_admitted: self.sum(|counts| &counts.waiters_admitted),
            failed: self.sum(|counts| &counts.failed),
            cancelled: self.sum(|counts| &counts.cancelled),
            refused: self.refusals(|counts| &counts.refused),
            observed: self.refusals(|counts| &counts.observed),
        }
    }
}
