//! The right and duty to answer one key's load.

use std::any::Any;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::core::Core;
use super::loader::{Load, LoadContext};
use super::outcome::ErrorClass;
use crate::answer::{Answer, Failure, KeyFlight, Loaded};
use crate::engine::{Concluded, NewContent, Reason, Served, Ticket};
use crate::flight::message;
use crate::guard::{Attempt, Classified, Permit, Priority, Refusal};
use crate::options::InsertOptions;
use crate::trace::Span;

/// A loader's error, of whatever type.
pub(crate) type AnyError = Arc<dyn Any + Send + Sync>;

pub(super) type Panic = Box<dyn Any + Send>;

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
    /// Taken when the load is answered.
    permit: Cell<Option<Permit>>,
    began: Instant,
    ended: bool,
}

impl<K, V, S> Lead<K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(core: &Arc<Core<K, V, S>>, hash: u64, key: K, ticket: Ticket<V>) -> Self {
        Lead {
            core: Arc::clone(core),
            hash,
            key,
            ticket,
            previous: None,
            permit: Cell::new(None),
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
    pub(super) fn admit(self, priority: Priority) -> Result<Self, Refusal> {
        // The claim was made a moment ago.
        let now = self.ticket.flight.started();
        match self.core.engine.limits.admit(priority, now) {
            Ok(permit) => {
                self.permit.set(Some(permit));
                if cfg!(feature = "tracing") {
                    let attempt = self.attempt_number();
                    let span = Span::load(self.ticket.reason.name(), attempt);
                    let _ = self.ticket.flight.span().set(span);
                }
                // Who sees it counted, and joins then, finds the span.
                self.core.report.started();
                Ok(self)
            }
            Err(refusal) => {
                drop(self.end_quietly(End::Refused(refusal)));
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
        self.previous.is_some() && matches!(self.ticket.reason, Reason::Stale | Reason::Early)
    }

    pub(super) fn context(&self) -> LoadContext<K, V> {
        let previous = self.previous.as_ref();
        LoadContext {
            key: self.key.clone(),
            previous: previous.map(|it| it.value.clone()),
            previous_version: previous.and_then(|it| it.version),
            reason: self.ticket.reason,
            attempt: self.attempt_number(),
        }
    }

    fn attempt_number(&self) -> u32 {
        self.ticket.attempt.map_or(0, |it| it.failures).saturating_add(1)
    }

    /// Answers: stores what came, gives the permit back, tells all who wait, and then the listener, whose
    /// panic goes on here.
    pub(super) fn end(self, end: End<V>) -> Answer<V> {
        let mut panic = None;
        let answer = self.end_keeping(end, &mut panic);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        answer
    }

    /// As [`end`](Self::end), where there is no caller in whom a panic of the listener could go on.
    pub(super) fn end_quietly(self, end: End<V>) -> Answer<V> {
        let mut panic = None;
        let answer = self.end_keeping(end, &mut panic);
        // Nor is its destructor trusted.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        answer
    }

    /// As [`end`](Self::end), but keeps the first panic of the listener.
    pub(super) fn end_keeping(mut self, end: End<V>, panic: &mut Option<Panic>) -> Answer<V> {
        self.ended = true;
        let (answer, panicked) = self.conclude(end);
        if panic.is_none() {
            *panic = panicked;
        }
        answer
    }

    fn conclude(&self, end: End<V>) -> (Answer<V>, Option<Panic>) {
        // The weigher, `Clone` and the listener are the user's: if they ask for the key, they ask for this
        // load.
        let _leading = self.ticket.flight.leading();
        let panic = match catch_unwind(AssertUnwindSafe(|| self.settle(end))) {
            Ok(answer) => return (answer, None),
            Err(panic) => panic,
        };
        if let Some(answer) = self.ticket.flight.answer() {
            // All have been told: the listener. A copy that panics now goes on in the caller, too.
            let copy = catch_unwind(AssertUnwindSafe(|| answer.clone()));
            let answer = copy.unwrap_or_else(|panic| Err(Failure::Panicked(message(&*panic))));
            return (answer, Some(panic));
        }
        let answer = Err(Failure::Panicked(message(&*panic)));
        let _ = catch_unwind(AssertUnwindSafe(|| {
            drop(panic);
            self.withdraw(None, &mut || {});
        }));
        self.tell(&answer, Classified::Ignored);
        (answer, None)
    }

    fn settle(&self, end: End<V>) -> Answer<V> {
        let (failure, class) = match end {
            End::Loaded(load) => return self.store(load),
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
        let attempt = match (&class, &failure) {
            (Classified::Failure, _) => self.failed_attempt(),
            (_, Failure::Refused(_) | Failure::Abandoned) => self.ticket.attempt,
            _ => self.core.engine.attempt(&self.ticket),
        };
        let answer = Err(failure);
        self.withdraw(attempt, &mut || self.tell(&answer, class));
        answer
    }

    /// Gives the permit back, and tells all who wait. Wakes them.
    fn tell(&self, answer: &Answer<V>, class: Classified) {
        if let Some(permit) = self.permit.take() {
            let outcome = self.core.report.ended(answer, self.began.elapsed());
            if let Some(span) = self.ticket.flight.span().get() {
                span.note_outcome(outcome);
            }
            if matches!(answer, Err(Failure::Abandoned)) {
                drop(permit);
            } else {
                permit.finish(class, || self.core.engine.now());
            }
        }
        // If the copy panics, those who wait are told that.
        let copy = catch_unwind(AssertUnwindSafe(|| answer.clone()));
        let panicked = |panic: Panic| Err(Failure::Panicked(message(&*panic)));
        self.ticket.flight.complete(copy.unwrap_or_else(panicked));
    }

    fn store(&self, load: Load<V>) -> Answer<V> {
        if let (Some(screen), Load::Value(_) | Load::With(..) | Load::NotStored(_)) =
            (&self.core.engine.screen, &load)
        {
            screen.teach(&self.key);
        }
        let plain = InsertOptions::new();
        match load {
            Load::Value(value) => {
                let copy = value.clone();
                self.put(NewContent::Value(copy, &plain), Some(value), &plain)
            }
            Load::With(value, options) => {
                let copy = value.clone();
                self.put(NewContent::Value(copy, &options), Some(value), &options)
            }
            Load::NotStored(value) => {
                let attempt = self.core.engine.attempt(&self.ticket);
                self.put(NewContent::Nothing(attempt), Some(value), &plain)
            }
            Load::Absent => self.put(NewContent::Absent(None), None, &plain),
            Load::AbsentFor(ttl) => {
                let ttl = Some(crate::clock::millis(ttl));
                self.put(NewContent::Absent(ttl), None, &plain)
            }
            Load::Unchanged => self.keep(&plain),
            Load::UnchangedWith(options) => self.keep(&options),
        }
    }

    /// Stores what came, and tells all who wait what the loader said.
    fn put(
        &self,
        content: NewContent<'_, V>,
        value: Option<V>,
        options: &InsertOptions,
    ) -> Answer<V> {
        let mut loaded = Loaded {
            value,
            version: options.version,
            age: options.age,
            stored: false,
            outdated: None,
        };
        let mut answer = None;
        let ticket = &self.ticket;
        self.core.engine.conclude(self.hash, &self.key, ticket, content, &mut |concluded| {
            loaded.stored = concluded == Concluded::Stored;
            loaded.outdated = (concluded == Concluded::Outdated).then_some(ticket.invalidations);
            let told = Ok(std::mem::replace(&mut loaded, Loaded::nothing()));
            self.tell(&told, Classified::Success);
            answer = Some(told);
        });
        answer.expect("a load that is concluded is told")
    }

    /// "Unchanged": those who wait get the value that the load began from.
    fn keep(&self, options: &InsertOptions) -> Answer<V> {
        let Some(previous) = &self.previous else {
            let answer = Err(Failure::NothingToKeep);
            let attempt = self.core.engine.attempt(&self.ticket);
            self.withdraw(attempt, &mut || self.tell(&answer, Classified::Ignored));
            return answer;
        };
        let told = InsertOptions {
            version: options.version.max(previous.version),
            age: options.age,
            ..InsertOptions::new()
        };
        let value = Some(previous.value.clone());
        self.put(NewContent::Unchanged(options), value, &told)
    }

    /// Takes the load's traces out, but for what is to be remembered of the attempt.
    fn withdraw(&self, attempt: Option<Attempt>, then: &mut dyn FnMut()) {
        let content = NewContent::Nothing(attempt);
        let (engine, ticket) = (&self.core.engine, &self.ticket);
        engine.conclude(self.hash, &self.key, ticket, content, &mut |_| then());
    }

    fn failed_attempt(&self) -> Option<Attempt> {
        let (engine, ticket) = (&self.core.engine, &self.ticket);
        engine.throttles().then(|| {
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
            drop(self.conclude(End::Abandoned).0);
        }
    }
}
