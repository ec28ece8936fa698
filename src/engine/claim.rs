//! What a caller of get-or-load wants, and what it is told to do.

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::View;
use crate::answer::{Answer, KeyFlight};
use crate::clock::Start;
use crate::flight::Participant;
use crate::freshness::{Freshness, Generation};
use crate::guard::{Attempt, Limits, Place, Priority, Refusal};

/// What a caller wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) priority: Priority,
    /// Load also if the value is fresh.
    pub(crate) refresh: bool,
}

/// Why a loader is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The cache knows nothing of the key.
    Missing,
    /// What it had has expired, or was invalidated; or a load has failed lately.
    Expired,
    /// What it has is stale, and served meanwhile.
    Stale,
    /// What it has is stale, and may only stand in for an error.
    StaleOnError,
    /// What it has will be stale soon.
    Early,
    /// The caller asked for it, whatever the cache has.
    Asked,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::Expired => "expired",
            Reason::Stale => "stale",
            Reason::StaleOnError => "stale_on_error",
            Reason::Early => "early",
            Reason::Asked => "asked",
        }
    }
}

/// A copy of a value that may be served.
#[derive(Clone, Debug)]
pub(crate) struct Served<V> {
    pub(crate) value: V,
    pub(crate) freshness: Freshness,
    pub(crate) age: Option<Duration>,
    pub(crate) version: Option<u64>,
    /// From when on it may not even stand in for an error.
    pub(crate) dead_at: u64,
}

/// The right to answer a key's flight.
pub(crate) struct Ticket<V> {
    pub(crate) flight: Arc<KeyFlight<V>>,
    /// When the load began: the number of `invalidate_all`s and of tags' invalidations.
    pub(super) generation: Generation,
    pub(crate) invalidations: u64,
    /// The attempt before this one.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) reason: Reason,
    /// For measuring how long it takes.
    pub(crate) began: Start,
}

impl<V> Ticket<V> {
    /// Whether a flight is this one.
    pub(super) fn is_of(&self, flight: Option<&KeyFlight<V>>) -> bool {
        flight.is_some_and(|flight| ptr::eq(flight, Arc::as_ptr(&self.flight)))
    }
}

impl<V> Drop for Ticket<V> {
    fn drop(&mut self) {
        // A ticket that got lost before there was a lead (a listener's panic) leaves a place that the next
        // caller takes over.
        self.flight.close();
    }
}

/// What a caller of get-or-load has to do. Small, so that loads that begin from nothing are quick: what few
/// have is in a box.
pub(crate) enum Claim<'e, K, V> {
    Hit(Served<V>),
    Absent,
    /// Serve this; a load is not wanted now, for a reason: a refusal, or that one is going on.
    Stale(Served<V>, Option<Refusal>),
    /// Load the key. With a stale value: serve that meanwhile, or if the load fails.
    Lead(Ticket<V>, K, Option<Box<Served<V>>>),
    /// Wait. With a stale value, to serve if the load fails; and with how many invalidations of tags there
    /// had been.
    Follow(Participant<Answer<V>>, Place<&'e Limits>, Option<Box<Served<V>>>, u64),
    Done(Answer<V>),
    Refused(Refusal),
    Circle,
}

impl<V: Clone> Served<V> {
    pub(crate) fn of<K>(view: &View<'_, K, V>) -> Served<V> {
        Served {
            value: view.node.value().clone(),
            freshness: view.judgement.freshness,
            age: view.age(),
            version: view.judgement.version(),
            dead_at: view.dead_at(),
        }
    }
}
