//! What a caller holds: the lead of a key, or a place among its followers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Last, LeadEnd, OriginGuard, OriginResult, Told};
use crate::clock::{Alarm, Clock, millis};
use crate::flight::{Entry, Participant, Unanswered};
use crate::guard::{Classified, Permit, Place};

/// The right to ask the origin for a key; held by one caller at a time.
///
/// [`finish`](Self::finish) it, or drop it: either lets the followers go on and gives the permit back,
/// once, since it is consumed. What is leaked with [`std::mem::forget`] is never given back.
#[must_use = "dropped at once, it lets the next caller lead"]
pub struct Lead<K, S = ahash::RandomState> {
    guard: OriginGuard<K, S>,
    entry: Arc<Entry<K, Told>>,
    /// The attempt before this one.
    last: Option<Last>,
    /// `None` once it has ended.
    permit: Option<Permit>,
}

impl<K, S> Lead<K, S> {
    pub(super) fn new(
        guard: OriginGuard<K, S>,
        entry: Arc<Entry<K, Told>>,
        last: Option<Last>,
        permit: Permit,
    ) -> Self {
        Lead { guard, entry, last, permit: Some(permit) }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        self.entry.key()
    }

    /// Says how asking the origin ended, gives the permit back, and lets the followers go on.
    pub fn finish(mut self, result: OriginResult) {
        self.end(LeadEnd::Finished(result));
    }

    /// Gives up, as dropping it does: for the breaker the origin was not asked, and for the throttle this
    /// was no attempt.
    pub fn release(self) {
        drop(self);
    }

    fn end(&mut self, end: LeadEnd) {
        let Some(permit) = self.permit.take() else { return };
        let inner = &self.guard.inner;
        let last = inner.last(self.entry.flight().started(), self.last, end);
        let classified = match end {
            LeadEnd::Finished(OriginResult::Success) => Some(Classified::Success),
            LeadEnd::Finished(OriginResult::Failure) => Some(Classified::Failure),
            LeadEnd::Finished(OriginResult::Ignored) => Some(Classified::Ignored),
            LeadEnd::Released | LeadEnd::Refused(_) => None,
        };
        match classified {
            Some(result) => permit.finish(result, || inner.clock.millis()),
            None => drop(permit),
        }
        inner.end(&self.entry, Told { end, last });
    }
}

impl<K, S> Drop for Lead<K, S> {
    fn drop(&mut self) {
        self.end(LeadEnd::Released);
    }
}

impl<K, S> fmt::Debug for Lead<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead").field("permit", &self.permit).finish_non_exhaustive()
    }
}

/// A place among those who wait for the lead of a key; given back by drop.
///
/// It is a future, which is ready when the lead has ended. It has no say about the lead.
#[must_use = "dropped at once, it does not wait"]
pub struct Follower {
    participant: Participant<Told>,
    _place: Place,
    clock: Clock,
    never: Alarm,
}

impl Follower {
    pub(super) fn new(participant: Participant<Told>, place: Place, clock: Clock) -> Self {
        Follower { participant, _place: place, clock, never: Alarm::never() }
    }

    /// Blocks until the lead has ended.
    pub fn wait(self) -> LeadEnd {
        let end = self.participant.wait(&self.clock, u64::MAX);
        told(end).unwrap_or(LeadEnd::Released)
    }

    /// Blocks until the lead has ended, or for a time. `None`: it has not. The place is kept.
    pub fn wait_timeout(&mut self, patience: Duration) -> Option<LeadEnd> {
        let until = self.clock.millis().saturating_add(millis(patience));
        told(self.participant.wait(&self.clock, until))
    }
}

fn told(end: Result<Told, Unanswered>) -> Option<LeadEnd> {
    match end {
        Ok(told) => Some(told.end),
        Err(Unanswered::Closed) => Some(LeadEnd::Released),
        Err(Unanswered::TimedOut) => None,
    }
}

impl Future for Follower {
    type Output = LeadEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LeadEnd> {
        let Follower { participant, never, .. } = &mut *self;
        participant.poll(cx, never).map(|end| told(end).unwrap_or(LeadEnd::Released))
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}
