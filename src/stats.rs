//! Counters, striped so that counting a hit writes no line that another core writes.

use crate::sync::{Cell, Stripe, Striped};

/// What a cache has done and holds; a snapshot.
///
/// Counters start at zero with the cache and only grow. Each is exact; a snapshot taken while other
/// threads work may catch some counters before and some after an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Lookups that found a fresh value.
    pub hits_fresh: u64,
    /// Lookups that found a stale value that may be served.
    pub hits_stale: u64,
    /// Lookups that found a remembered absence.
    pub hits_absent: u64,
    /// Lookups that found nothing that may be served.
    pub misses: u64,
    /// Values stored under a key that was not there (or only dead).
    pub inserts: u64,
    /// Values that replaced a live one.
    pub replaced: u64,
    /// Values that were handed back.
    pub refused: u64,
    /// Entries taken out by [`remove`](crate::Cache::remove) or a compute.
    pub removed: u64,
    /// Entries taken out by an invalidation.
    pub invalidated: u64,
    /// Entries taken out because their time had passed, remembered absences and failures included.
    pub expired: u64,
    /// Entries taken out to keep the budget.
    pub evicted: u64,
    /// Weight of the entries that were evicted.
    pub evicted_weight: u64,
    /// Entries in the cache now, dead ones that are not yet reclaimed included.
    pub entries: u64,
    /// Their weight.
    pub weight: u64,
    /// Replaced or removed objects that wait until no reader can hold them any more.
    pub garbage: u64,
    /// Their size in bytes, as far as the cache allocated it itself.
    pub garbage_bytes: u64,
}

/// One thread's counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits_fresh: Cell,
    hits_stale: Cell,
    hits_absent: Cell,
    misses: Cell,
    inserts: Cell,
    replaced: Cell,
    refused: Cell,
    removed: Cell,
    invalidated: Cell,
    expired: Cell,
    evicted: Cell,
    evicted_weight: Cell,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    HitFresh,
    HitStale,
    HitAbsent,
    Miss,
    Insert,
    Replaced,
    Refused,
    Removed,
    Invalidated,
    Expired,
    Evicted,
    EvictedWeight,
}

impl Counters {
    fn cell(&self, event: Event) -> &Cell {
        match event {
            Event::HitFresh => &self.hits_fresh,
            Event::HitStale => &self.hits_stale,
            Event::HitAbsent => &self.hits_absent,
            Event::Miss => &self.misses,
            Event::Insert => &self.inserts,
            Event::Replaced => &self.replaced,
            Event::Refused => &self.refused,
            Event::Removed => &self.removed,
            Event::Invalidated => &self.invalidated,
            Event::Expired => &self.expired,
            Event::Evicted => &self.evicted,
            Event::EvictedWeight => &self.evicted_weight,
        }
    }
}

/// All threads' counters.
#[derive(Debug)]
pub(crate) struct Recorder(Striped<Counters>);

impl Recorder {
    pub(crate) fn new() -> Self {
        Recorder(Striped::new())
    }

    #[inline]
    pub(crate) fn count(&self, event: Event, stripe: Stripe) {
        self.add(event, 1, stripe);
    }

    #[inline]
    pub(crate) fn add(&self, event: Event, amount: u64, stripe: Stripe) {
        let (counters, own) = self.0.of(stripe);
        counters.cell(event).add(amount as i64, own);
    }

    fn sum(&self, event: Event) -> u64 {
        self.0.iter().fold(0, |sum, counters| sum.wrapping_add(counters.cell(event).get() as u64))
    }

    /// Returns the number of entries: those that came less those that went.
    pub(crate) fn entries(&self) -> u64 {
        // What went is read first, so that the number errs on the high side while others work.
        let gone = self
            .sum(Event::Removed)
            .wrapping_add(self.sum(Event::Invalidated))
            .wrapping_add(self.sum(Event::Expired))
            .wrapping_add(self.sum(Event::Evicted));
        self.sum(Event::Insert).saturating_sub(gone)
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            hits_fresh: self.sum(Event::HitFresh),
            hits_stale: self.sum(Event::HitStale),
            hits_absent: self.sum(Event::HitAbsent),
            misses: self.sum(Event::Miss),
            refused: self.sum(Event::Refused),
            removed: self.sum(Event::Removed),
            invalidated: self.sum(Event::Invalidated),
            expired: self.sum(Event::Expired),
            evicted: self.sum(Event::Evicted),
            evicted_weight: self.sum(Event::EvictedWeight),
            inserts: self.sum(Event::Insert),
            replaced: self.sum(Event::Replaced),
            entries: self.entries(),
            ..Stats::default()
        }
    }
}
