//! Coalescing and limits in front of an origin, without a cache.

use std::collections::BinaryHeap;
use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::{Alarm, Clock, millis};
use crate::error::ConfigError;
use crate::flight::{Entry, Join, Participant, Registry, Seen, Unanswered};

use super::limits::LimitSettings;
use super::{
    Attempt, Backoff, BreakerOptions, Classified, Limits, Permit, Place, Priority, Rate, Refusal,
    millis_up,
};

/// Lets one caller at a time ask the origin for a key, and only as many in all as the origin can bear.
///
/// It keeps no values: what the callers do about a key is theirs. [`acquire`](Self::acquire) makes the
/// caller the key's [`Lead`], or a [`Follower`] that can wait until the lead has ended, or refuses. A
/// cache has all this built in, see [`Cache::load`](crate::Cache::load). A handle is one pointer: clone
/// it, and share it.
///
/// ```
/// use seawall::guard::{Acquired, LeadEnd, OriginGuard, OriginResult};
///
/// let guard = OriginGuard::<String>::builder(String::is_empty).max_in_flight(100).build()?;
/// let Acquired::Lead(lead) = guard.acquire("a".to_owned()) else { unreachable!() };
/// let Acquired::Follower(follower) = guard.acquire("a".to_owned()) else { unreachable!() };
/// assert_eq!((guard.in_flight(), guard.waiters()), (1, 1));
///
/// lead.finish(OriginResult::Success);
/// assert_eq!(follower.wait(), LeadEnd::Finished(OriginResult::Success));
/// assert_eq!(guard.in_flight(), 0);
/// # Ok::<(), seawall::ConfigError>(())
/// ```
pub struct OriginGuard<K, S = ahash::RandomState> {
    inner: Arc<Inner<K, S>>,
}

struct Inner<K, S> {
    limits: Arc<Limits>,
    clock: Clock,
    is_empty: Box<dyn Fn(&K) -> bool + Send + Sync>,
    /// Leads that have not ended, and of those that have what the throttle must know.
    leads: Registry<K, Told, S>,
    /// When the latter may be forgotten, soonest first.
    due: Mutex<BinaryHeap<Reverse<Due<K>>>>,
}

/// What the lead of a key came to.
#[derive(Clone, Copy, Debug)]
struct Told {
    end: LeadEnd,
    /// What the next attempt must know.
    attempt: Option<Attempt>,
}

struct Due<K> {
    at: u64,
    entry: Arc<Entry<K, Told>>,
}

impl<K> PartialEq for Due<K> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<K> Eq for Due<K> {}

impl<K> PartialOrd for Due<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Due<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

/// How asking the origin ended, as the lead sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OriginResult {
    /// The origin did its work.
    Success,
    /// The origin is to blame: an error, a timeout. Counts for the breaker and the backoff.
    Failure,
    /// Says nothing about the origin.
    Ignored,
}

/// What a [`Follower`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeadEnd {
    /// The lead has finished, and says how.
    Finished(OriginResult),
    /// The lead was given up: released, or dropped.
    Released,
}

/// What a caller of [`OriginGuard::acquire`] is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Acquired<K, S = ahash::RandomState> {
    /// The one who may ask the origin for the key.
    Lead(Lead<K, S>),
    /// One of those who may wait for the lead.
    Follower(Follower),
    /// Nobody may ask the origin now, or wait.
    Refused(Refusal),
    /// The key is empty, which is more likely a mistake than something that all who make it share.
    EmptyKey,
}

/// How many keys that need not be remembered any more are forgotten by one call.
const FORGOTTEN_AT_ONCE: usize = 4;

impl<K> OriginGuard<K> {
    /// Returns settings to make a guard from. A key that `is_empty` says yes to is never acquired: callers
    /// without a key have nothing in common. For keys that cannot be empty: `|_| false`.
    pub fn builder(
        is_empty: impl Fn(&K) -> bool + Send + Sync + 'static,
    ) -> OriginGuardBuilder<K> {
        OriginGuardBuilder {
            is_empty: Box::new(is_empty),
            limits: LimitSettings::default(),
            clock: None,
            hasher: ahash::RandomState::new(),
        }
    }
}

impl<K, S> Clone for OriginGuard<K, S> {
    fn clone(&self) -> Self {
        OriginGuard { inner: Arc::clone(&self.inner) }
    }
}

impl<K, S> fmt::Debug for OriginGuard<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginGuard")
            .field("in_flight", &self.in_flight())
            .field("waiters", &self.waiters())
            .finish_non_exhaustive()
    }
}

impl<K, S> OriginGuard<K, S> {
    /// Returns the limits, to read and to change while the guard is in use.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Returns how many leads there are.
    pub fn in_flight(&self) -> u64 {
        self.inner.limits.in_flight()
    }

    /// Returns how many followers there are.
    pub fn waiters(&self) -> u64 {
        self.inner.limits.waiters()
    }

    /// Returns how many keys the guard knows: those with a lead, and those that must not be tried again
    /// yet. The latter are forgotten some time after they may be, a few with each call of
    /// [`acquire`](Self::acquire), all with [`sweep`](Self::sweep).
    pub fn keys(&self) -> usize {
        self.inner.leads.len()
    }

    /// Forgets all keys that need not be remembered any more; returns how many that were.
    pub fn sweep(&self) -> usize {
        self.inner.forget(usize::MAX)
    }
}

impl<K, S> OriginGuard<K, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Finds out what the caller is to a key: the one who asks the origin, one who may wait for that, or
    /// neither. Never waits.
    ///
    /// A thread that holds the lead of a key and waits as a follower of the same key waits for itself.
    pub fn acquire(&self, key: K) -> Acquired<K, S> {
        let Inner { leads, limits, clock, is_empty, .. } = &*self.inner;
        if is_empty(&key) {
            return Acquired::EmptyKey;
        }
        self.inner.forget(FORGOTTEN_AT_ONCE);
        let hash = leads.hash(&key);
        let mut key = Some(key);
        loop {
            let seen = leads.look(hash, key.as_ref().expect("it goes with the lead"));
            let last = match seen.entry().map(|entry| entry.flight().join()) {
                Some(Join::Running(participant)) => return self.follow(participant),
                Some(Join::Done(told)) => told.attempt,
                Some(Join::Closed) | None => None,
            };
            let now = clock.millis();
            let left = last.and_then(|last| limits.throttle(last, now));
            let refusal = left
                .map(|left| limits.throttled(left))
                .or_else(|| limits.would_refuse(Priority::Foreground, now));
            if let Some(refusal) = refusal {
                return Acquired::Refused(refusal);
            }
            match self.lead(hash, &seen, key.take().expect("it goes with the lead"), last, now) {
                Ok(acquired) => return acquired,
                Err(back) => key = Some(back),
            }
        }
    }

    fn follow(&self, participant: Participant<Told>) -> Acquired<K, S> {
        match self.inner.limits.wait() {
            Ok(place) => Acquired::Follower(Follower {
                participant,
                place,
                clock: self.inner.clock.clone(),
                never: Alarm::never(),
            }),
            Err(refusal) => Acquired::Refused(refusal),
        }
    }
}
