//! Running the loader: on the caller's thread, in a future that its flight owns or its caller, or on the
//! cache's own threads.

use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use equivalent::Equivalent;

use super::end::End;
use super::lead::Lead;
use super::loader::{IntoLoad, LoadContext};
use super::outcome::{Outcome, Source, WhyStale};
use super::request::{Failed, LoadRequest};
use crate::answer::{Answer, Failure};
use crate::clock::Alarm;
use crate::engine::Served;
use crate::flight::{Join, Participant, Unanswered, message};
use crate::freshness::NEVER;

impl<Q, K, V, S> LoadRequest<'_, Q, K, V, S>
where
    Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Whether a load is one that the cache's own threads do.
    pub(super) fn is_for_pool(&self, lead: &Lead<'_, K, V, S>) -> bool {
        self.core.loads.refresher.is_some() && lead.is_refresh()
    }

    /// Runs a refresh on the cache's own threads; what is stale is served meanwhile.
    pub(super) fn in_pool(&self, lead: Lead<'_, K, V, S>, served: Served<V>) -> Outcome<V> {
        let outcome = self.stale(served, WhyStale::Refreshing);
        let Some(refresher) = &self.core.loads.refresher else { return outcome };
        self.core.report.refreshes();
        let (refresher, lead) = (Arc::clone(refresher), lead.into_owned());
        let job = Box::new(move || {
            let (flight, context) = (Arc::clone(lead.flight()), lead.context());
            let loaded = catch_unwind(AssertUnwindSafe(|| flight.lead(|| refresher(context))));
            drop(lead.end_quietly(match loaded {
                Ok(Ok(load)) => End::Loaded(load),
                Ok(Err(error)) => End::Failed(error),
                Err(panic) => End::Panicked(message(&*panic)),
            }));
        });
        // Without a thread the load is dropped, and so abandoned; the next caller tries again.
        drop(self.core.pool.run(job));
        outcome
    }

    pub(super) fn lead_blocking<R>(
        &self,
        lead: Lead<'_, K, V, S>,
        stale: Option<Box<Served<V>>>,
        load: impl FnOnce(LoadContext<K, V>) -> R,
    ) -> Result<Outcome<V>, Failed>
    where
        R: IntoLoad<V>,
        R::Error: Clone + Send + Sync + 'static,
    {
        // Until all is done: what the user's code asks for while the load is answered, it asks this load.
        let _leading = lead.flight().leading();
        let context = lead.context();
        let load = || load(context).into_load();
        let end = match catch_unwind(AssertUnwindSafe(|| lead.flight().within(load))) {
            Ok(Ok(load)) => End::Loaded(load),
            Ok(Err(error)) => End::Failed(Arc::new(error)),
            Err(panic) => {
                drop(lead.end_quietly(End::Panicked(message(&*panic))));
                resume_unwind(panic);
            }
        };
        self.answered(lead.end(end), Source::Loaded, stale)
    }

    /// Makes the loader's future, and the flight its owner. Gives back the caller's participation, unless
    /// the load goes on without the caller.
    pub(super) fn launch<F, R>(
        &self,
        lead: Lead<'_, K, V, S>,
        stale: Option<Box<Served<V>>>,
        load: impl FnOnce(LoadContext<K, V>) -> F,
    ) -> Result<(Participant<Answer<V>>, Option<Box<Served<V>>>), Result<Outcome<V>, Failed>>
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoLoad<V> + 'static,
        R::Error: Clone + Send + Sync + 'static,
    {
        let (flight, context, refresh) =
            (Arc::clone(lead.flight()), lead.context(), lead.is_refresh());
        let future = match catch_unwind(AssertUnwindSafe(|| flight.lead(|| load(context)))) {
            Ok(future) => future,
            Err(panic) => {
                let answer = lead.end_quietly(End::Panicked(message(&*panic)));
                return Err(self.answered(answer, Source::Loaded, stale));
            }
        };
        let mut participant = Arc::clone(&flight).first();
        flight.install(Box::pin(drive(lead.into_owned(), future, self.load_deadline())));
        let loads = &self.core.loads;
        match (&loads.spawner, stale) {
            (Some(spawner), Some(served)) if refresh => {
                let outcome = self.stale(*served, WhyStale::Refreshing);
                self.core.report.refreshes();
                spawner.spawn(Box::pin(attend(participant)));
                Err(Ok(outcome))
            }
            (Some(spawner), stale) if loads.detached => {
                if let Join::Running(second) = Arc::clone(&flight).join() {
                    spawner.spawn(Box::pin(attend(second)));
                }
                Ok((participant, stale))
            }
            (_, stale) => {
                // Of a flight that is new this finds no circle; it lets others find theirs.
                let _ = participant.check_circle();
                Ok((participant, stale))
            }
        }
    }

    fn load_deadline(&self) -> Alarm {
        let clock = self.core.engine.clock();
        let timeout = self.core.loads.load_timeout;
        let at = if timeout == NEVER { NEVER } else { clock.millis().saturating_add(timeout) };
        clock.alarm(at)
    }

    /// What waiting for a load of its own, that others may drive, means to this caller.
    pub(super) fn told_of_own(
        &self,
        end: Result<Answer<V>, Unanswered>,
        stale: Option<Box<Served<V>>>,
    ) -> Result<Outcome<V>, Failed> {
        match end {
            Ok(answer) => self.answered(answer, Source::Loaded, stale),
            Err(Unanswered::TimedOut) => {
                self.core.report.wait_timed_out();
                self.answered(Err(Failure::TimedOut), Source::Loaded, stale)
            }
            Err(Unanswered::Closed) => {
                self.answered(Err(Failure::Abandoned), Source::Loaded, stale)
            }
        }
    }

    pub(super) async fn lead_local<F, R>(
        &self,
        lead: Lead<'_, K, V, S>,
        stale: Option<Box<Served<V>>>,
        until: u64,
        load: impl FnOnce(LoadContext<K, V>) -> F,
    ) -> Result<Outcome<V>, Failed>
    where
        F: Future<Output = R>,
        R: IntoLoad<V>,
        R::Error: Clone + Send + Sync + 'static,
    {
        let (flight, context) = (Arc::clone(lead.flight()), lead.context());
        let future = match catch_unwind(AssertUnwindSafe(|| flight.lead(|| load(context)))) {
            Ok(future) => future,
            Err(panic) => {
                drop(lead.end_quietly(End::Panicked(message(&*panic))));
                resume_unwind(panic);
            }
        };
        let mut future = pin!(future);
        // Dropped before the future, if the caller is: its destructors find the key free.
        let lead = lead;
        let mut deadline = self.load_deadline();
        let mut alarm = self.alarm(until);
        let end = poll_fn(|cx| {
            let poll = || flight.poll_led(future.as_mut(), cx).map(R::into_load);
            match catch_unwind(AssertUnwindSafe(poll)) {
                Ok(Poll::Ready(Ok(load))) => Poll::Ready(Ok(End::Loaded(load))),
                Ok(Poll::Ready(Err(error))) => Poll::Ready(Ok(End::Failed(Arc::new(error)))),
                Ok(Poll::Pending) if deadline.poll(cx) => Poll::Ready(Ok(End::TimedOut)),
                // This caller's patience is no failure of the origin's, nor of those who wait.
                Ok(Poll::Pending) if alarm.poll(cx) => Poll::Ready(Ok(End::Abandoned)),
                Ok(Poll::Pending) => Poll::Pending,
                Err(panic) => Poll::Ready(Err(panic)),
            }
        })
        .await;
        let end = match end {
            Ok(end) => end,
            Err(panic) => {
                drop(lead.end_quietly(End::Panicked(message(&*panic))));
                resume_unwind(panic);
            }
        };
        let impatient = matches!(end, End::Abandoned);
        let answer = lead.end(end);
        if impatient {
            self.core.report.wait_timed_out();
            return self.answered(Err(Failure::TimedOut), Source::Loaded, stale);
        }
        self.answered(answer, Source::Loaded, stale)
    }
}

/// Polls a load that no caller waits for.
async fn attend<V: Clone + Send + Sync + 'static>(mut participant: Participant<Answer<V>>) {
    let mut never = Alarm::never();
    // Its answer is the flight's, not ours.
    let _ = poll_fn(|cx| participant.poll(cx, &mut never)).await;
}

/// A shared load: the loader's future, and what is done with its result.
async fn drive<F, R, K, V, S>(lead: Lead<'static, K, V, S>, future: F, mut deadline: Alarm)
where
    F: Future<Output = R> + Send,
    R: IntoLoad<V>,
    R::Error: Clone + Send + Sync + 'static,
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    let mut future: Pin<Box<F>> = Box::pin(future);
    let end = poll_fn(|cx| {
        let poll = || future.as_mut().poll(cx).map(R::into_load);
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Ready(Ok(load))) => Poll::Ready(End::Loaded(load)),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(End::Failed(Arc::new(error))),
            Ok(Poll::Pending) if deadline.poll(cx) => Poll::Ready(End::TimedOut),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(End::Panicked(message(&*panic))),
        }
    })
    .await;
    // What the loader holds is let go before those who wait go on; its destructors may panic too.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
    drop(lead.end_quietly(end));
}
