//! Coalescing and limits in front of an origin, without a cache.

mod builder;
mod held;
mod memory;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::clock::Clock;
use crate::flight::{Entry, Join, Participant, Registry, Seen};

use super::limits::LimitSettings;
use super::{Attempt, Limits, Priority, Refusal};

pub use self::builder::OriginGuardBuilder;
pub use self::held::{Follower, Lead};
use self::memory::Memory;

/// Lets one caller at a time ask the origin for a key, and only as many in all as the origin can bear.
///
/// It keeps no values: what callers do about a key is theirs. [`acquire`](Self::acquire) makes a caller
/// the key's [`Lead`], or a [`Follower`] that can wait until the lead has ended, or refuses. A cache has
/// all this built in, see [`Cache::load`](crate::Cache::load). A handle is one pointer: clone it, and
/// share it.
///
/// ```
/// use seawall::guard::{Acquired, LeadEnd, OriginGuard, OriginResult};
///
/// let guard = OriginGuard::builder(String::is_empty).max_in_flight(100).build()?;
/// let Acquired::Lead(lead) = guard.acquire("a".to_owned()) else { unreachable!() };
/// let Acquired::Follower(follower) = guard.acquire("a".to_owned()) else { unreachable!() };
/// assert_eq!((guard.in_flight(), guard.waiters()), (1, 1));
///
/// lead.finish(OriginResult::Success);
/// assert_eq!(follower.wait(), LeadEnd::Finished(OriginResult::Success));
/// assert_eq!((guard.in_flight(), guard.waiters()), (0, 0));
/// # Ok::<(), seawall::ConfigError>(())
/// ```
pub struct OriginGuard<K, S = ahash::RandomState> {
    inner: Arc<Inner<K, S>>,
}

type IsEmpty<K> = dyn Fn(&K) -> bool + Send + Sync;

struct Inner<K, S> {
    limits: Arc<Limits>,
    clock: Clock,
    is_empty: Box<IsEmpty<K>>,
    /// Leads that have not ended; and of those that have, what the throttle must know.
    leads: Registry<K, Told, S>,
    /// When the latter may be forgotten.
    memory: Memory<K>,
}

/// What the lead of a key came to.
#[derive(Clone, Copy, Debug)]
struct Told {
    end: LeadEnd,
    /// What the next lead must know.
    last: Option<Last>,
}

/// An attempt that holds up the next one, or did so lately.
#[derive(Clone, Copy, Debug)]
struct Last {
    attempt: Attempt,
    /// When it may be forgotten.
    until: u64,
}

/// Why a caller cannot lead.
enum Denied {
    /// Another one does.
    Led(Participant<Told>),
    Refused(Refusal),
}

/// How asking the origin ended, as the lead sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginResult {
    /// The origin did its work.
    Success,
    /// The origin is to blame: an error, a timeout. Counts for the breaker and the backoff.
    Failure,
    /// Says nothing about the origin.
    Ignored,
}

/// What a [`Follower`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeadEnd {
    /// The lead has finished, and says how.
    Finished(OriginResult),
    /// The lead was given up: released, or dropped.
    Released,
    /// There was no lead after all: the caller that was to be it was refused.
    Refused(Refusal),
}

/// What a caller of [`OriginGuard::acquire`] is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Acquired<K, S = ahash::RandomState> {
    /// The one who may ask the origin for the key.
    Lead(Lead<K, S>),
    /// One of those who may wait for the lead.
    Follower(Follower),
    /// Nobody: the origin is not to be asked now, or as many wait as may.
    Refused(Refusal),
    /// Nobody: the key is empty. That is more likely a mistake than something that all who make it share.
    EmptyKey,
}

impl<K> OriginGuard<K> {
    /// Returns settings to make a guard from. A key that `is_empty` says yes to is not acquired: callers
    /// without a key have nothing in common. For keys that cannot be empty: `|_| false`.
    pub fn builder(is_empty: impl Fn(&K) -> bool + Send + Sync + 'static) -> OriginGuardBuilder<K> {
        OriginGuardBuilder::new(Box::new(is_empty))
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
    fn new(settings: &LimitSettings, clock: Clock, is_empty: Box<IsEmpty<K>>, hasher: S) -> Self {
        let limits = Arc::new(Limits::new(settings));
        let (leads, memory) = (Registry::new(hasher), Memory::new());
        OriginGuard { inner: Arc::new(Inner { limits, clock, is_empty, leads, memory }) }
    }

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

    /// Returns how many keys the guard knows: those with a lead, and those whose last attempt is too recent
    /// for another one. The latter are kept for about twice that time, and then forgotten: a few by each
    /// call of [`acquire`](Self::acquire), all by [`sweep`](Self::sweep).
    pub fn keys(&self) -> usize {
        self.inner.leads.len()
    }

    /// Forgets all keys that need not be remembered any more; returns how many.
    pub fn sweep(&self) -> usize {
        let due = self.inner.memory.due(self.inner.clock.millis(), usize::MAX);
        due.into_iter().filter(|entry| self.inner.leads.remove(entry)).count()
    }
}

impl<K, S> OriginGuard<K, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Finds out what the caller is to a key: the one who asks the origin, one who may wait for that, or
    /// neither. Never waits. Runs the key's `Hash` and `Eq`, and drops keys, holding nothing.
    ///
    /// Who holds the lead of a key and waits as a follower of the same key waits for itself.
    pub fn acquire(&self, key: K) -> Acquired<K, S> {
        let Inner { limits, clock, is_empty, leads, memory } = &*self.inner;
        if is_empty(&key) {
            return Acquired::EmptyKey;
        }
        let now = clock.millis();
        for entry in memory.due(now, memory::AT_ONCE) {
            leads.remove(&entry);
        }
        let hash = leads.hash(&key);
        let mut seen = leads.look(hash, &key);
        let mut last = match self.judge(&seen, (hash, &key), now) {
            Ok(last) => last,
            Err(denied) => return self.deny(denied),
        };
        let entry = Entry::new(hash, key, now);
        while !leads.enter(&seen, &entry) {
            // Another caller was faster, for this key or for another one of the same hash.
            seen = leads.look(hash, entry.key());
            last = match self.judge(&seen, (hash, entry.key()), now) {
                Ok(last) => last,
                Err(denied) => return self.deny(denied),
            };
        }
        match limits.admit(Priority::Foreground, now) {
            Ok(permit) => Acquired::Lead(Lead::new(self.clone(), entry, last, permit)),
            Err(refusal) => {
                self.inner.end(&entry, Told { end: LeadEnd::Refused(refusal), last });
                Acquired::Refused(refusal)
            }
        }
    }

    /// What is known of a key: its last attempt, if another one may begin now.
    fn judge(
        &self,
        seen: &Seen<K, Told>,
        (hash, key): (u64, &K),
        now: u64,
    ) -> Result<Option<Last>, Denied> {
        let limits = &self.inner.limits;
        let join =
            |seen: &Seen<K, Told>| seen.entry().map(|entry| Arc::clone(entry.flight()).join());
        let last = match join(seen) {
            Some(Join::Running(participant)) => return Err(Denied::Led(participant)),
            Some(Join::Done(told)) => told.last,
            Some(Join::Closed) | None => None,
        };
        if let Some(left) = last.and_then(|last| limits.throttle(last.attempt, now)) {
            return Err(Denied::Refused(limits.throttled(left)));
        }
        let Some(refusal) = limits.would_refuse(Priority::Foreground, now) else {
            return Ok(last);
        };
        // Perhaps for the very lead of this key that another caller has begun since.
        match join(&self.inner.leads.look(hash, key)) {
            Some(Join::Running(participant)) => Err(Denied::Led(participant)),
            _ => Err(Denied::Refused(limits.refused(refusal))),
        }
    }

    /// What a caller is that cannot lead.
    fn deny(&self, denied: Denied) -> Acquired<K, S> {
        let Inner { limits, clock, .. } = &*self.inner;
        let participant = match denied {
            Denied::Led(participant) => participant,
            Denied::Refused(refusal) => return Acquired::Refused(refusal),
        };
        match limits.wait() {
            Ok(place) => Acquired::Follower(Follower::new(participant, place, clock.clone())),
            Err(refusal) => Acquired::Refused(refusal),
        }
    }
}

impl<K, S> Inner<K, S> {
    /// Ends a lead: makes room for the next one, or remembers what that must know; then tells all who wait.
    fn end(&self, entry: &Arc<Entry<K, Told>>, told: Told) {
        match told.last {
            Some(last) if last.until > self.clock.millis() => self.memory.keep(entry, last.until),
            _ => {
                self.leads.remove(entry);
            }
        }
        entry.flight().complete(told);
    }

    /// What is to be remembered of a lead that ended.
    fn last(&self, started: u64, last: Option<Last>, end: LeadEnd) -> Option<Last> {
        let now = self.clock.millis();
        let attempt = match end {
            LeadEnd::Finished(OriginResult::Failure) => {
                let last = last.map(|last| last.attempt);
                self.limits.after_failure(last, started, now)
            }
            LeadEnd::Finished(_) => Attempt::begin(None, started),
            LeadEnd::Released | LeadEnd::Refused(_) => return last,
        };
        let interval = super::millis_up(self.limits.min_retry_interval());
        let next = attempt.started.saturating_add(interval).max(attempt.not_before);
        let left = next.saturating_sub(now);
        // As long again as it holds up the next one, so that failures in a row are known as such.
        let until = next.saturating_add(left).saturating_add(1);
        (left > 0).then_some(Last { attempt, until })
    }
}
