//! How a load is answered: what came is stored, the permit given back, and all who wait are told.

use std::any::Any;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::core::Core;
use super::lead::Claimed;
use super::loader::Load;
use super::outcome::ErrorClass;
use crate::answer::{Answer, Failure, Loaded};
use crate::engine::{Concluded, NewContent};
use crate::flight::message;
use crate::guard::{Attempt, Classified, Permit, Refusal};
use crate::options::InsertOptions;

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

/// A load that is being answered.
pub(super) struct Ending<'l, K, V, S> {
    core: &'l Core<K, V, S>,
    load: &'l Claimed<K, V>,
    /// Whether the leader takes the answer from here, and not from its flight.
    leader_is_told: bool,
    /// There when all have been told.
    answer: Cell<Option<Answer<V>>>,
}

impl<'l, K, V, S> Ending<'l, K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(
        core: &'l Core<K, V, S>,
        load: &'l Claimed<K, V>,
        leader_is_told: bool,
    ) -> Self {
        Ending { core, load, leader_is_told, answer: Cell::new(None) }
    }

    pub(super) fn conclude(&self, end: End<V>) -> (Answer<V>, Option<Panic>) {
        // The weigher, `Clone` and the listener are the user's: if they ask for the key, they ask for this
        // load.
        let _leading = self.load.ticket.flight.leading();
        let settled = catch_unwind(AssertUnwindSafe(|| self.settle(end)));
        if let Some(answer) = self.answer.take() {
            // All have been told: if anything has panicked, it was the listener.
            return (answer, settled.err());
        }
        let panic = settled.expect_err("a load that is settled is told");
        let failure = Failure::Panicked(message(&*panic));
        let _ = catch_unwind(AssertUnwindSafe(|| {
            drop(panic);
            self.withdraw(None, &mut || {});
        }));
        self.tell(Err(failure.clone()), Classified::Ignored);
        (Err(failure), None)
    }

    fn settle(&self, end: End<V>) {
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
            (_, Failure::Refused(_) | Failure::Abandoned) => self.load.ticket.attempt,
            _ => self.core.engine.attempt(&self.load.ticket),
        };
        self.withdraw(attempt, &mut || self.tell(Err(failure.clone()), class));
    }

    /// Gives the permit back, and tells all who wait. Wakes them.
    fn tell(&self, answer: Answer<V>, class: Classified) {
        let flight = &self.load.ticket.flight;
        if let Some(admission) = self.load.admission.take() {
            let engine = &self.core.engine;
            let permit = Permit::new(&*engine.limits, admission);
            let outcome = self.core.report.ended(&answer, self.load.ticket.began.elapsed());
            if let Some(span) = flight.span().get() {
                span.note_outcome(outcome);
            }
            if matches!(answer, Err(Failure::Abandoned)) {
                drop(permit);
            } else {
                permit.finish(class, || engine.now());
            }
        }
        if !self.leader_is_told || !flight.complete_alone() {
            // If the copy panics, those who wait are told that.
            let copy = catch_unwind(AssertUnwindSafe(|| answer.clone()));
            let panicked = |panic: Panic| Err(Failure::Panicked(message(&*panic)));
            flight.complete(copy.unwrap_or_else(panicked));
        }
        self.answer.set(Some(answer));
    }

    fn store(&self, load: Load<V>) {
        if let (Some(screen), Load::Value(_) | Load::With(..) | Load::NotStored(_)) =
            (&self.core.engine.screen, &load)
        {
            screen.teach(&self.load.key);
        }
        let plain = InsertOptions::new();
        match load {
            Load::Value(value) => {
                let copy = value.clone();
                self.put(NewContent::Value(copy, &plain), Some(value), &plain);
            }
            Load::With(value, options) => {
                let copy = value.clone();
                self.put(NewContent::Value(copy, &options), Some(value), &options);
            }
            Load::NotStored(value) => {
                let attempt = self.core.engine.attempt(&self.load.ticket);
                self.put(NewContent::Nothing(attempt), Some(value), &plain);
            }
            Load::Absent => self.put(NewContent::Absent(None), None, &plain),
            Load::AbsentFor(ttl) => {
                let ttl = Some(crate::clock::millis(ttl));
                self.put(NewContent::Absent(ttl), None, &plain);
            }
            Load::Unchanged => self.keep(&plain),
            Load::UnchangedWith(options) => self.keep(&options),
        }
    }

    /// Stores what came, and tells all who wait what the loader said.
    fn put(&self, content: NewContent<'_, V>, value: Option<V>, options: &InsertOptions) {
        let mut loaded = Loaded {
            value,
            version: options.version,
            age: options.age,
            stored: false,
            outdated: None,
        };
        let ticket = &self.load.ticket;
        self.core.engine.conclude(
            self.load.hash,
            &self.load.key,
            ticket,
            content,
            &mut |concluded| {
                loaded.stored = concluded == Concluded::Stored;
                loaded.outdated =
                    (concluded == Concluded::Outdated).then_some(ticket.invalidations);
                let told = std::mem::replace(&mut loaded, Loaded::nothing());
                self.tell(Ok(told), Classified::Success);
            },
        );
    }

    /// "Unchanged": those who wait get the value that the load began from.
    fn keep(&self, options: &InsertOptions) {
        let Some(previous) = &self.load.previous else {
            let attempt = self.core.engine.attempt(&self.load.ticket);
            let nothing = || Err(Failure::NothingToKeep);
            return self.withdraw(attempt, &mut || self.tell(nothing(), Classified::Ignored));
        };
        let told = InsertOptions {
            version: options.version.max(previous.version),
            age: options.age,
            ..InsertOptions::new()
        };
        let value = Some(previous.value.clone());
        self.put(NewContent::Unchanged(options), value, &told);
    }

    /// Takes the load's traces out, but for what is to be remembered of the attempt.
    fn withdraw(&self, attempt: Option<Attempt>, then: &mut dyn FnMut()) {
        let content = NewContent::Nothing(attempt);
        let (engine, ticket) = (&self.core.engine, &self.load.ticket);
        engine.conclude(self.load.hash, &self.load.key, ticket, content, &mut |_| then());
    }

    fn failed_attempt(&self) -> Option<Attempt> {
        let (engine, ticket) = (&self.core.engine, &self.load.ticket);
        engine.throttles().then(|| {
            let started = ticket.flight.started();
            engine.limits.after_failure(ticket.attempt, started, engine.now())
        })
    }
}
