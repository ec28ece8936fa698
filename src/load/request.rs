//! One call of get-or-load.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use equivalent::Equivalent;

use super::core::Core;
use super::lead::Lead;
use super::loader::{IntoLoad, LoadContext};
use super::outcome::{LoadError, Outcome, Source, WhyStale};
use crate::answer::{Answer, Failure};
use crate::bloom;
use crate::clock::{Alarm, millis};
use crate::engine::{Ask, Claim, Count, Served, View};
use crate::flight::{Participant, Unanswered};
use crate::freshness::{Freshness, NEVER, ORIGIN};
use crate::guard::{Limits, Place, Priority};
use crate::table::reclaim;
use crate::trace::Span;

/// A call of get-or-load that is being put together; made by [`Cache::load`](crate::Cache::load).
///
/// ```
/// use std::time::Duration;
/// use seawall::{Cache, Load, Source};
///
/// let cache: Cache<String, u32> = Cache::new(100);
/// let outcome = cache
///     .load("answer")
///     .timeout(Duration::from_secs(1))
///     .run(|context| {
///         assert_eq!(context.key, "answer");
///         Ok::<_, std::num::ParseIntError>(Load::Value(42))
///     })?;
/// assert_eq!((outcome.value, outcome.source), (Some(42), Source::Loaded));
/// # Ok::<(), seawall::LoadError<std::num::ParseIntError>>(())
/// ```
#[must_use = "a request does nothing before it is run"]
pub struct LoadRequest<'c, Q: ?Sized, K, V, S = ahash::RandomState> {
    pub(super) core: &'c Arc<Core<K, V, S>>,
    key: &'c Q,
    ask: Ask,
    /// Milliseconds.
    timeout: u64,
}

impl<Q: ?Sized, K, V, S> fmt::Debug for LoadRequest<'_, Q, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadRequest").field("ask", &self.ask).finish_non_exhaustive()
    }
}

/// What a caller has to do next.
pub(super) enum Step<'c, K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    Done(Result<Outcome<V>, Failed>),
    Lead(Lead<'c, K, V, S>, Option<Box<Served<V>>>),
    Follow(Follower<'c, V>),
}

/// An error of a caller, before it has its type.
pub(super) enum Failed {
    Failure(Failure),
    Reentrant,
}

impl Failed {
    pub(super) fn typed<E: Clone + 'static>(&self) -> LoadError<E> {
        match self {
            Failed::Failure(failure) => LoadError::of(failure),
            Failed::Reentrant => LoadError::Reentrant,
        }
    }
}

/// One who waits for another caller's load.
pub(super) struct Follower<'c, V> {
    participant: Participant<Answer<V>>,
    place: Place<&'c Limits>,
    /// In a box, as few have one.
    stale: Option<Box<Served<V>>>,
    /// How many invalidations of tags there had been.
    joined_at: u64,
    /// Of a task.
    alarm: Alarm,
    span: Span,
}

impl<V: Clone + Send + Sync + 'static> Follower<'_, V> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer<V>, Unanswered>> {
        self.participant.poll(cx, &mut self.alarm)
    }
}

type Told<V> = Option<Result<Outcome<V>, Failed>>;

fn typed<V, E: Clone + 'static>(
    told: Result<Outcome<V>, Failed>,
) -> Result<Outcome<V>, LoadError<E>> {
    told.map_err(|failed| failed.typed())
}

impl<'c, Q, K, V, S> LoadRequest<'c, Q, K, V, S>
where
    Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(crate) fn new(core: &'c Arc<Core<K, V, S>>, key: &'c Q) -> Self {
        let ask = Ask { priority: Priority::Foreground, refresh: false };
        LoadRequest { core, key, ask, timeout: core.loads.wait_timeout }
    }

    /// How long this caller waits at most, for its own or another caller's load; the cache's
    /// [`wait_timeout`](crate::Builder::wait_timeout) by default. A blocking loader of its own is not cut
    /// short.
    pub fn timeout(mut self, patience: Duration) -> Self {
        self.timeout = millis(patience);
        self
    }

    /// Counts a load that this call begins as background work, which may use only its
    /// [share](crate::Builder::background_share) of the permits.
    pub fn background(mut self) -> Self {
        self.ask.priority = Priority::Background;
        self
    }

    /// Loads also if the cache has a fresh value, and regardless of the retry throttle; joins a load that
    /// is going on. A value that the cache has is served only if the load fails and it is stale.
    pub fn refresh(mut self) -> Self {
        self.ask.refresh = true;
        self
    }

    /// Returns what the cache has, or has `load` ask the origin, on this thread.
    ///
    /// Blocks while another caller loads the key. `load` is called at most once, while nothing is locked
    /// or pinned; it may block and call the cache, for other keys. If it panics, the panic goes on here,
    /// and those who wait get [`LoadError::Panicked`].
    ///
    /// # Errors
    /// [`LoadError`] says which of the many ways it was; see there.
    pub fn run<R>(
        self,
        load: impl FnOnce(LoadContext<K, V>) -> R,
    ) -> Result<Outcome<V>, LoadError<R::Error>>
    where
        R: IntoLoad<V>,
        R::Error: Clone + Send + Sync + 'static,
    {
        let hash = self.hash();
        match self.hit(hash) {
            Some(outcome) => Ok(outcome),
            None => self.run_missed(hash, load),
        }
    }

    /// Just the value; see [`run`](Self::run).
    #[inline]
    pub(crate) fn run_for_value<R>(self, load: impl FnOnce() -> R) -> Result<V, LoadError<R::Error>>
    where
        R: IntoLoad<V>,
        R::Error: Clone + Send + Sync + 'static,
    {
        let hash = self.hash();
        match self.hit_with(hash, |view| view.node.value().clone()) {
            Some(value) => Ok(value),
            None => self.run_missed(hash, |_| load())?.into_value(),
        }
    }

    /// Apart from the hit, whose code it must not be among.
    #[inline(never)]
    fn run_missed<R>(
        self,
        hash: u64,
        load: impl FnOnce(LoadContext<K, V>) -> R,
    ) -> Result<Outcome<V>, LoadError<R::Error>>
    where
        R: IntoLoad<V>,
        R::Error: Clone + Send + Sync + 'static,
    {
        let until = self.until();
        let done = loop {
            match self.begin(hash) {
                Step::Done(done) => break done,
                Step::Lead(lead, Some(served)) if self.is_for_pool(&lead) => {
                    break Ok(self.in_pool(lead, *served));
                }
                Step::Lead(lead, stale) => break self.lead_blocking(lead, stale, load),
                Step::Follow(mut follower) => {
                    let end = self.wait_blocking(&mut follower, until);
                    if let Some(told) = self.told(follower, until, end) {
                        break told;
                    }
                }
            }
        };
        typed(done)
    }

    /// As [`run`](Self::run), for a loader that is a future.
    ///
    /// The load belongs to the key and not to this caller: whichever of those who wait for it is polled
    /// drives it. If this caller is dropped it goes on as long as another one waits, and is dropped with
    /// the last one (or not at all: see [`detached_loads`](crate::Builder::detached_loads)). So the future
    /// must own what it uses; for one that borrows see [`run_local`](Self::run_local). Any executor will
    /// do; but a loader that needs its own runtime's context needs all its async callers on that runtime.
    ///
    /// # Cancel safety
    /// Dropping the returned future at any point leaves the load, and gives every place back at once.
    ///
    /// # Errors
    /// As [`run`](Self::run); a panic of the loader is [`LoadError::Panicked`] here too.
    pub fn run_async<F, R>(
        self,
        load: impl FnOnce(LoadContext<K, V>) -> F,
    ) -> impl Future<Output = Result<Outcome<V>, LoadError<R::Error>>>
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoLoad<V> + 'static,
        R::Error: Clone + Send + Sync + 'static,
    {
        self.run_async_then(load, |told| told)
    }

    /// As [`run_async`](Self::run_async), and then `then`: in one future, since each further one would keep
    /// what it was given a second time, in every task that waits.
    #[expect(clippy::manual_async_fn, reason = "so would an `async fn`")]
    pub(crate) fn run_async_then<F, R, T>(
        self,
        load: impl FnOnce(LoadContext<K, V>) -> F,
        then: impl FnOnce(Result<Outcome<V>, LoadError<R::Error>>) -> T,
    ) -> impl Future<Output = T>
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoLoad<V> + 'static,
        R::Error: Clone + Send + Sync + 'static,
    {
        async move {
            let mut hash = self.hash();
            if let Some(outcome) = self.hit(hash) {
                return then(Ok(outcome));
            }
            let until = self.until();
            // No step outlives its statement: what lives across an await is in every waiting task.
            let (mut participant, stale) = loop {
                let mut follower = match self.begin(hash) {
                    Step::Done(done) => return then(typed(done)),
                    Step::Lead(lead, stale) => match self.launch(lead, stale, load) {
                        Ok(launched) => break launched,
                        Err(done) => return then(typed(done)),
                    },
                    Step::Follow(follower) => follower,
                };
                follower.alarm = self.alarm(self.deadline(&follower, until));
                let end = poll_fn(|cx| follower.poll(cx)).await;
                if let Some(told) = self.told(follower, until, end) {
                    return then(typed(told));
                }
                // Not kept meanwhile.
                hash = self.hash();
            };
            let mut alarm = self.alarm(until);
            let end = poll_fn(|cx| participant.poll(cx, &mut alarm)).await;
            drop(participant);
            then(typed(self.told_of_own(end, stale)))
        }
    }

    /// As [`run_async`](Self::run_async), for a loader that borrows or is not `Send`.
    ///
    /// Only this caller can drive it: if it is dropped, so is the load, and one of those who wait begins
    /// it anew with a loader of its own. If it is not polled any more, they wait for as long as their
    /// time is.
    ///
    /// # Cancel safety
    /// As [`run_async`](Self::run_async), but for that.
    ///
    /// # Errors
    /// As [`run`](Self::run); a panic goes on here.
    pub async fn run_local<F, R>(
        self,
        load: impl FnOnce(LoadContext<K, V>) -> F,
    ) -> Result<Outcome<V>, LoadError<R::Error>>
    where
        F: Future<Output = R>,
        R: IntoLoad<V>,
        R::Error: Clone + Send + Sync + 'static,
    {
        let hash = self.hash();
        if let Some(outcome) = self.hit(hash) {
            return Ok(outcome);
        }
        let until = self.until();
        let done = loop {
            match self.begin(hash) {
                Step::Done(done) => break done,
                Step::Lead(lead, stale) => {
                    break self.lead_local(lead, stale, until, load).await;
                }
                Step::Follow(mut follower) => {
                    let end = self.wait_async(&mut follower, until).await;
                    if let Some(told) = self.told(follower, until, end) {
                        break told;
                    }
                }
            }
        };
        typed(done)
    }

    pub(super) fn hash(&self) -> u64 {
        self.core.engine.hash(self.key)
    }

    /// A fresh value, as any read finds it.
    pub(super) fn hit(&self, hash: u64) -> Option<Outcome<V>> {
        self.hit_with(hash, |view| Outcome::cached(Served::of(&view)))
    }

    #[inline]
    fn hit_with<T>(&self, hash: u64, read: impl FnOnce(View<'_, K, V>) -> T) -> Option<T> {
        if self.ask.refresh {
            return None;
        }
        let guard = reclaim::pin();
        self.core.engine.lookup(self.key, hash, Count::Use, &guard, |view: View<'_, K, V>| {
            let fresh = view.judgement.freshness == Freshness::Fresh && !view.is_refresh_due();
            fresh.then(|| read(view))
        })
    }

    /// When this caller's time is up, on its clock.
    pub(super) fn until(&self) -> u64 {
        match self.timeout {
            NEVER => NEVER,
            timeout => self.core.engine.clock().millis().saturating_add(timeout),
        }
    }

    /// Finds out what to do, and takes what it needs: a claim with a permit, or a place among those who
    /// wait.
    pub(super) fn begin(&self, hash: u64) -> Step<'c, K, V, S> {
        let core: &'c Arc<_> = self.core;
        let engine = &core.engine;
        if let Some(screen) = &engine.screen {
            match screen.check(&self.key.to_owned()) {
                bloom::Answer::Absent => {
                    self.core.report.screened();
                    return Step::Done(Ok(Outcome::screened()));
                }
                bloom::Answer::Unsure => self.core.report.unsure(),
                bloom::Answer::Maybe => {}
            }
        }
        match engine.claim(hash, self.key, self.ask, &|key| key.to_owned()) {
            Claim::Hit(served) => Step::Done(Ok(Outcome::cached(served))),
            Claim::Absent => Step::Done(Ok(Outcome::absent())),
            Claim::Stale(served, refusal) => {
                let why = refusal.map_or(WhyStale::Refreshing, WhyStale::Refused);
                Step::Done(Ok(self.stale(served, why)))
            }
            Claim::Refused(refusal) => Step::Done(Err(Failed::Failure(Failure::Refused(refusal)))),
            Claim::Circle => Step::Done(Err(Failed::Reentrant)),
            Claim::Done(answer) => {
                self.core.report.joined();
                Step::Done(self.answered(answer, Source::Joined, None))
            }
            Claim::Follow(participant, place, stale, joined_at) => {
                let stale = stale.filter(|served| self.may_cover(served));
                let span = Span::wait(participant.flight().span().get());
                let alarm = Alarm::never();
                Step::Follow(Follower { participant, place, stale, joined_at, alarm, span })
            }
            Claim::Lead(ticket, key, stale) => {
                // Nothing of the user's runs between the claim and this.
                let mut lead = Lead::new(core, hash, key, ticket);
                lead.note_previous(stale.as_deref());
                let stale = stale.filter(|served| self.may_cover(served));
                let priority =
                    if lead.is_refresh() { Priority::Background } else { self.ask.priority };
                match lead.admit(priority) {
                    Ok(()) => Step::Lead(lead, stale),
                    Err(refusal) => Step::Done(self.answered(
                        Err(Failure::Refused(refusal)),
                        Source::Loaded,
                        stale,
                    )),
                }
            }
        }
    }

    /// Whether a value may stand in for that of a load. Who asks for a newer value than a fresh one is told
    /// when there is none.
    fn may_cover(&self, served: &Served<V>) -> bool {
        !self.ask.refresh || served.freshness != Freshness::Fresh
    }

    pub(super) fn stale(&self, served: Served<V>, why: WhyStale) -> Outcome<V> {
        let outcome = Outcome::stale(served, why);
        if outcome.is_stale() {
            self.core.report.served_stale(outcome.age);
        }
        outcome
    }

    /// What a load's answer means to this caller.
    pub(super) fn answered(
        &self,
        answer: Answer<V>,
        source: Source,
        stale: Option<Box<Served<V>>>,
    ) -> Result<Outcome<V>, Failed> {
        let failure = match answer {
            Ok(loaded) => return Ok(Outcome::loaded(loaded, source)),
            Err(failure) => failure,
        };
        let why = match &failure {
            Failure::Failed(_, true) => Some(WhyStale::Failed),
            Failure::Panicked(_) => Some(WhyStale::Panicked),
            Failure::TimedOut => Some(WhyStale::TimedOut),
            Failure::Refused(refusal) => Some(WhyStale::Refused(*refusal)),
            Failure::Failed(_, false) | Failure::Abandoned | Failure::NothingToKeep => None,
        };
        // The window may have ended while the load was running.
        let now = self.core.engine.now();
        match (why, stale) {
            (Some(why), Some(served)) if now < served.dead_at => Ok(self.stale(*served, why)),
            _ => Err(Failed::Failure(failure)),
        }
    }

    /// When a follower stops waiting: its own time, or the load's, whichever is up first.
    fn deadline(&self, follower: &Follower<'_, V>, until: u64) -> u64 {
        until.min(self.end_of_load(&follower.participant))
    }

    /// When the load that a participant waits for has taken as long as it may.
    fn end_of_load(&self, participant: &Participant<Answer<V>>) -> u64 {
        match self.core.loads.load_timeout {
            NEVER => NEVER,
            timeout => {
                participant.flight().started().saturating_sub(ORIGIN).saturating_add(timeout)
            }
        }
    }

    /// What became of waiting. `None`: the load ended without an answer, and this caller tries itself.
    pub(super) fn told(
        &self,
        follower: Follower<'_, V>,
        until: u64,
        mut end: Result<Answer<V>, Unanswered>,
    ) -> Told<V> {
        let Follower { participant, place, stale, joined_at, .. } = follower;
        if matches!(end, Err(Unanswered::TimedOut)) {
            let end_of_load = self.end_of_load(&participant);
            if end_of_load <= until && end_of_load != NEVER {
                end = participant.load_is_late();
            }
        }
        drop(participant);
        drop(place);
        match end {
            Err(Unanswered::Closed) | Ok(Err(Failure::Abandoned)) => None,
            Ok(Ok(loaded)) if loaded.is_outdated(joined_at) => None,
            Ok(answer) => {
                self.core.report.joined();
                Some(self.answered(answer, Source::Joined, stale))
            }
            Err(Unanswered::TimedOut) => {
                self.core.report.joined();
                self.core.report.wait_timed_out();
                Some(self.answered(Err(Failure::TimedOut), Source::Joined, stale))
            }
        }
    }

    pub(super) fn wait_blocking(
        &self,
        follower: &mut Follower<'_, V>,
        until: u64,
    ) -> Result<Answer<V>, Unanswered> {
        let deadline = self.deadline(follower, until);
        let clock = self.core.engine.clock();
        let Follower { participant, span, .. } = follower;
        span.within(|| participant.wait(clock, deadline))
    }

    pub(super) async fn wait_async(
        &self,
        follower: &mut Follower<'_, V>,
        until: u64,
    ) -> Result<Answer<V>, Unanswered> {
        follower.alarm = self.alarm(self.deadline(follower, until));
        poll_fn(|cx| follower.poll(cx)).await
    }

    pub(super) fn alarm(&self, at: u64) -> Alarm {
        self.core.engine.clock().alarm(at)
    }
}
