//! The right and duty to answer one key's load.

use std::any::Any;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::core::Core;
use super::loader::{Load, LoadContext, Reason};
use super::outcome::ErrorClass;
use crate::answer::{Answer, Failure, KeyFlight, Loaded};
use crate::engine::{Concluded, NewContent, Served, Ticket, Why};
use crate::guard::{Attempt, Classified, Permit, Priority, Refusal};
use crate::options::InsertOptions;
use crate::trace::Span;

/// A loader's error, of whatever type.
pub(crate) type AnyError = Arc<dyn Any + Send + Sync>;

/// How a load ended.
pub(super) enum End<V> {
    Loaded(Load<V>),
    Failed(AnyError),
    Panicked(Arc<str>),
    TimedOut,
    Refused(Refusal),
    Abandoned,
}

/// Not `Clone`, and consumed by [`end`](Self::end): a load is answered once. Dropped without an answer
/// it takes its traces out of the table and lets the followers go on.
pub(crate) struct Lead<K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    core: Arc<Core<K, V, S>>,
    hash: u64,
    key: K,
    ticket: Ticket<V>,
    /// What the cache had when the load began.
    previous: Option<Served<V>>,
    permit: Option<Permit>,
    began: Instant,
    ended: bool,
}

impl<K, V, S> Lead<K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(
        core: &Arc<Core<K, V, S>>,
        hash: u64,
        key: K,
        ticket: Ticket<V>,
    ) -> Self {
        Lead {
            core: Arc::clone(core),
            hash,
            key,
            ticket,
            previous: None,
            permit: None,
            began: Instant::now(),
            ended: false,
        }
    }

    /// Notes what the cache has. Clones it.
    pub(super) fn with_previous(mut self, previous: Option<&Served<V>>) -> Self {
        self.previous = previous.cloned();
        self
    }

    /// Asks the guards for permission. A refusal answers the flight.
    pub(super) fn admit(mut self, priority: Priority) -> Result<Self, Refusal> {
        let now = self.core.engine.now();
        match self.core.engine.limits.admit(priority, now) {
            Ok(permit) => {
                self.permit = Some(permit);
                self.core.report.started();
                let attempt = self.attempt_number();
                let span = Span::load(Reason::from(self.ticket.why).name(), attempt);
                let _ = self.ticket.flight.span().set(span);
                Ok(self)
            }
            Err(refusal) => {
                drop(self.end(End::Refused(refusal)));
                Err(refusal)
            }
        }
    }

    pub(super) fn flight(&self) -> &Arc<KeyFlight<V>> {
        &self.ticket.flight
    }

    pub(super) fn key(&self) -> &K {
        &self.key
    }

    /// Whether a value is served meanwhile, so that nobody need wait for the load.
    pub(super) fn is_refresh(&self) -> bool {
        self.previous.is_some() && matches!(self.ticket.why, Why::Stale | Why::Early)
    }

    pub(super) fn context(&self) -> LoadContext<K, V> {
        let previous = self.previous.as_ref();
        LoadContext {
            key: self.key.clone(),
            previous: previous.map(|it| it.value.clone()),
            previous_version: previous.and_then(|it| it.version),
            reason: self.ticket.why.into(),
            attempt: self.attempt_number(),
        }
    }

    fn attempt_number(&self) -> u32 {
        self.ticket.attempt.map_or(0, |it| it.failures).saturating_add(1)
    }

    /// Answers: stores what came, gives the permit back, and then tells all who wait.
    pub(super) fn end(mut self, end: End<V>) -> Answer<V> {
        self.ended = true;
        self.conclude(end)
    }

    fn conclude(&mut self, end: End<V>) -> Answer<V> {
        // The weigher and the listener are the user's.
        let (answer, class) = match catch_unwind(AssertUnwindSafe(|| self.settle(end))) {
            Ok(settled) => settled,
            Err(panic) => {
                let failure = Failure::Panicked(message(&*panic));
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    drop(panic);
                    self.withdraw(None);
                }));
                (Err(failure), Classified::Ignored)
            }
        };
        if let Some(permit) = self.permit.take() {
            let outcome = self.core.report.ended(&answer, self.began.elapsed());
            if let Some(span) = self.ticket.flight.span().get() {
                span.note_outcome(outcome);
            }
            if matches!(answer, Err(Failure::Abandoned)) {
                drop(permit);
            } else {
                permit.finish(class, self.core.engine.now());
            }
        }
        // The one who is told last here is the caller; if the copy panics, all are told that.
        match catch_unwind(AssertUnwindSafe(|| answer.clone())) {
            Ok(copy) => {
                self.ticket.flight.complete(copy);
                answer
            }
            Err(panic) => {
                let failure = Failure::Panicked(message(&*panic));
                self.ticket.flight.complete(Err(failure.clone()));
                Err(failure)
            }
        }
    }

    fn settle(&self, end: End<V>) -> (Answer<V>, Classified) {
        let (failure, class) = match end {
            End::Loaded(load) => return (self.store(load), Classified::Success),
            End::Failed(error) => {
                let outage = self.core.loads.classify(&*error) == ErrorClass::Outage;
                let class = if outage { Classified::Failure } else { Classified::Ignored };
                (Failure::Failed(error, outage), class)
            }
            End::Panicked(message) => (Failure::Panicked(message), Classified::Failure),
            End::TimedOut => (Failure::TimedOut, Classified::Failure),
            End::Refused(refusal) => (Failure::Refused(refusal), Classified::Ignored),
            End::Abandoned => (Failure::Abandoned, Classified::Ignored),
        };
        self.withdraw(match (&class, &failure) {
            (Classified::Failure, _) => self.failed_attempt(),
            (_, Failure::Refused(_) | Failure::Abandoned) => self.ticket.attempt,
            _ => self.attempt(),
        });
        (Err(failure), class)
    }

    fn store(&self, load: Load<V>) -> Answer<V> {
        let (engine, ticket) = (&self.core.engine, &self.ticket);
        let put = |content| engine.conclude(self.hash, &self.key, ticket, content);
        let loaded = |value, options: &InsertOptions, concluded| Loaded {
            value,
            version: options.version,
            age: options.age,
            stored: concluded == Concluded::Stored,
            outdated: (concluded == Concluded::Outdated).then_some(ticket.invalidations),
        };
        let plain = InsertOptions::new();
        if let (Some(screen), Load::Value(_) | Load::With(..) | Load::NotStored(_)) =
            (&engine.screen, &load)
        {
            screen.teach(&self.key);
        }
        Ok(match load {
            Load::Value(value) => {
                let stored = put(NewContent::Value(value.clone(), &plain));
                loaded(Some(value), &plain, stored)
            }
            Load::With(value, options) => {
                let stored = put(NewContent::Value(value.clone(), &options));
                loaded(Some(value), &options, stored)
            }
            Load::NotStored(value) => {
                put(NewContent::Nothing(self.attempt()));
                loaded(Some(value), &plain, Concluded::NotStored)
            }
            Load::Absent => {
                let stored = put(NewContent::Absent(None));
                loaded(None, &plain, stored)
            }
            Load::AbsentFor(ttl) => {
                let stored = put(NewContent::Absent(Some(crate::clock::millis(ttl))));
                loaded(None, &plain, stored)
            }
            Load::Unchanged => return self.keep(&plain),
            Load::UnchangedWith(options) => return self.keep(&options),
        })
    }

    /// "Unchanged": those who wait get the value that the load began from.
    fn keep(&self, options: &InsertOptions) -> Answer<V> {
        let Some(previous) = &self.previous else {
            self.withdraw(self.attempt());
            return Err(Failure::NothingToKeep);
        };
        let content = NewContent::Unchanged(options);
        let ticket = &self.ticket;
        let concluded = self.core.engine.conclude(self.hash, &self.key, ticket, content);
        Ok(Loaded {
            value: Some(previous.value.clone()),
            version: options.version.max(previous.version),
            age: options.age,
            stored: concluded == Concluded::Stored,
            outdated: (concluded == Concluded::Outdated).then_some(ticket.invalidations),
        })
    }

    /// Takes the load's traces out, but for what is to be remembered of the attempt.
    fn withdraw(&self, attempt: Option<Attempt>) {
        let content = NewContent::Nothing(attempt);
        self.core.engine.conclude(self.hash, &self.key, &self.ticket, content);
    }

    fn throttles(&self) -> bool {
        let limits = &self.core.engine.limits;
        !limits.min_retry_interval().is_zero() || limits.backoff().is_some()
    }

    /// What is remembered of an attempt that was no failure but brought nothing to keep.
    fn attempt(&self) -> Option<Attempt> {
        self.throttles().then(|| Attempt::begin(None, self.ticket.flight.started()))
    }

    fn failed_attempt(&self) -> Option<Attempt> {
        let (engine, ticket) = (&self.core.engine, &self.ticket);
        self.throttles().then(|| {
            let started = ticket.flight.started();
            engine.limits.after_failure(ticket.attempt, started, engine.now())
        })
    }
}

impl<K, V, S> Drop for Lead<K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    fn drop(&mut self) {
        if !self.ended {
            drop(self.conclude(End::Abandoned));
        }
    }
}

/// What a panic says.
pub(super) fn message(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
        .into()
}
