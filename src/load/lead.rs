//! The right and duty to answer one key's load.

use std::borrow::Cow;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::core::Core;
use super::end::{End, Ending, Panic};
use super::loader::LoadContext;
use crate::answer::{Answer, KeyFlight};
use crate::engine::{Reason, Served, Ticket};
use crate::guard::{Admission, Priority, Refusal};
use crate::trace::Span;

/// Not `Clone`, and consumed by [`end`](Self::end): a load is answered once. Dropped without an answer
/// it takes its traces out of the table and lets the followers go on.
pub(crate) struct Lead<'c, K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Borrowed from a caller that loads itself: a count of references would be a line that the loads of
    /// all keys write.
    core: Cow<'c, Arc<Core<K, V, S>>>,
    /// There, unless another lead has taken it over.
    load: Option<Claimed<K, V>>,
    ended: bool,
}

/// A load that was claimed.
pub(super) struct Claimed<K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) ticket: Ticket<V>,
    /// What the cache had when the load began.
    pub(super) previous: Option<Box<Served<V>>>,
    /// Taken when the load is answered.
    pub(super) admission: Cell<Option<Admission>>,
}

impl<K, V> Claimed<K, V> {
    fn attempt_number(&self) -> u32 {
        self.ticket.attempt.map_or(0, |it| it.failures).saturating_add(1)
    }
}

impl<'c, K, V, S> Lead<'c, K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    pub(super) fn new(core: &'c Arc<Core<K, V, S>>, hash: u64, key: K, ticket: Ticket<V>) -> Self {
        let (previous, admission) = (None, Cell::new(None));
        let load = Claimed { hash, key, ticket, previous, admission };
        Lead { core: Cow::Borrowed(core), load: Some(load), ended: false }
    }

    /// The same, for where the caller may be gone.
    pub(super) fn into_owned(mut self) -> Lead<'static, K, V, S> {
        let core = Cow::Owned(Arc::clone(&self.core));
        Lead { core, load: self.load.take(), ended: false }
    }

    fn load(&self) -> &Claimed<K, V> {
        self.load.as_ref().expect("only `into_owned`, which consumes the lead, takes it")
    }

    /// Notes what the cache has. Clones it.
    pub(super) fn note_previous(&mut self, previous: Option<&Served<V>>) {
        if let (Some(load), Some(previous)) = (&mut self.load, previous) {
            load.previous = Some(Box::new(previous.clone()));
        }
    }

    /// Asks the guards for permission. A refusal answers the flight.
    pub(super) fn admit(&mut self, priority: Priority) -> Result<(), Refusal> {
        let load = self.load();
        // The claim was made a moment ago.
        let now = load.ticket.flight.started();
        match self.core.engine.limits.admission(priority, now) {
            Ok(admission) => {
                load.admission.set(Some(admission));
                if cfg!(feature = "tracing") {
                    let span = Span::load(load.ticket.reason.name(), load.attempt_number());
                    let _ = load.ticket.flight.span().set(span);
                }
                // Who sees it counted, and joins then, finds the span.
                self.core.report.started();
                Ok(())
            }
            Err(refusal) => {
                drop(self.conclude_quietly(End::Refused(refusal)));
                Err(refusal)
            }
        }
    }

    pub(super) fn flight(&self) -> &Arc<KeyFlight<V>> {
        &self.load().ticket.flight
    }

    pub(super) fn key(&self) -> &K {
        &self.load().key
    }

    /// Whether a value is served meanwhile, so that nobody need wait for the load.
    pub(super) fn is_refresh(&self) -> bool {
        let load = self.load();
        load.previous.is_some() && matches!(load.ticket.reason, Reason::Stale | Reason::Early)
    }

    pub(super) fn context(&self) -> LoadContext<K, V> {
        let load = self.load();
        let previous = load.previous.as_ref();
        LoadContext {
            key: load.key.clone(),
            previous: previous.map(|it| it.value.clone()),
            previous_version: previous.and_then(|it| it.version),
            reason: load.ticket.reason,
            attempt: load.attempt_number(),
        }
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
    pub(super) fn end_quietly(mut self, end: End<V>) -> Answer<V> {
        self.conclude_quietly(end)
    }

    /// As [`end`](Self::end), but keeps the first panic of the listener.
    pub(super) fn end_keeping(mut self, end: End<V>, panic: &mut Option<Panic>) -> Answer<V> {
        let (answer, panicked) = self.conclude(end);
        if panic.is_none() {
            *panic = panicked;
        }
        answer
    }

    fn conclude(&mut self, end: End<V>) -> (Answer<V>, Option<Panic>) {
        self.ended = true;
        // A lead that was borrowed is of a caller that waits for nothing else.
        let leader_is_told = matches!(self.core, Cow::Borrowed(_));
        Ending::new(&self.core, self.load(), leader_is_told).conclude(end)
    }

    fn conclude_quietly(&mut self, end: End<V>) -> Answer<V> {
        let (answer, panic) = self.conclude(end);
        // Nor is its destructor trusted.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        answer
    }
}

impl<K, V, S> Drop for Lead<'_, K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    fn drop(&mut self) {
        if self.load.is_some() && !self.ended {
            drop(self.conclude(End::Abandoned).0);
        }
    }
}
