//! Coalescing without a cache: callers who ask for the same key at the same time share one call.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use equivalent::Equivalent;

use super::registry::{Entry, Registry};
use super::{Join, Participant, Unanswered, message};
use crate::clock::{Alarm, Clock, millis};
use crate::sync::{AtomicU64, Relaxed};

/// What a call came to: a value, or the message of a panic.
type Told<V> = Result<V, Arc<str>>;

/// Told of a call that was dropped; to nobody, since it is dropped when nobody waits.
const DROPPED: &str = "dropped";

/// Lets callers who ask for the same key at the same time share one call of a closure or future.
///
/// Nothing is kept: who comes after the call has ended begins another one. For values that are to be kept
/// there is [`Cache::get_or_load`](crate::Cache::get_or_load), which coalesces as well. Blocking threads
/// and async tasks may wait for the same call. A handle is one pointer: clone it, and share it.
///
/// No lock is held while a closure, a future, a comparison of keys or a destructor runs.
///
/// ```
/// use seawall::flight::Group;
///
/// let group: Group<String, u64> = Group::new();
/// let told = group.run("answer", || 42)?;
/// assert_eq!((told.value, told.shared), (42, false));
/// # Ok::<(), seawall::flight::GroupError>(())
/// ```
pub struct Group<K, V, S = ahash::RandomState> {
    inner: Arc<Inner<K, V, S>>,
}

struct Inner<K, V, S> {
    calls: Registry<K, Told<V>, S>,
    running: AtomicU64,
}

/// A value, and whether it went to more than one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shared<V> {
    /// What the closure or future returned, or a clone of it.
    pub value: V,
    /// Whether others were waiting for the same value when it came.
    pub shared: bool,
}

/// Why a caller of a [`Group`] gets no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// The call panicked: another caller's closure, or the future that all of them shared.
    Panicked(Arc<str>),
    /// The call was for this very key: a closure or future asked for what it was to bring, itself or
    /// through calls for other keys.
    Reentrant,
    /// This caller's time was up.
    TimedOut,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(f, "the call panicked: {message}"),
            Self::Reentrant => f.write_str("the call waits for itself"),
            Self::TimedOut => f.write_str("the call took too long"),
        }
    }
}

impl Error for GroupError {}

impl<K, V> Group<K, V> {
    /// Returns a group in which nothing is going on.
    pub fn new() -> Self {
        Self::with_hasher(ahash::RandomState::new())
    }
}

impl<K, V, S: Default> Default for Group<K, V, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K, V, S> Clone for Group<K, V, S> {
    fn clone(&self) -> Self {
        Group { inner: Arc::clone(&self.inner) }
    }
}

impl<K, V, S> fmt::Debug for Group<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl<K, V, S> Group<K, V, S> {
    /// As [`new`](Group::new), with a hasher. One that can be made to collide makes calls as slow as
    /// there are keys in flight.
    pub fn with_hasher(hasher: S) -> Self {
        Group {
            inner: Arc::new(Inner { calls: Registry::new(hasher), running: AtomicU64::new(0) }),
        }
    }

    /// Returns how many calls are going on, those that were [forgotten](Self::forget) included.
    pub fn in_flight(&self) -> u64 {
        self.inner.running.load(Relaxed)
    }
}

/// What a caller has to do.
enum Step<K, V, S> {
    Lead(Lead<K, V, S>),
    Follow(Participant<Told<V>>),
}

impl<K, V, S> Group<K, V, S>
where
    K: Hash + Eq,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns what `call` returns; or what another caller's returns that is running for this key, without
    /// calling this one.
    ///
    /// Blocks while another caller's runs. `call` runs on this thread. If it panics, the panic goes on
    /// here, and those who wait get [`GroupError::Panicked`].
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn run<Q>(&self, key: &Q, call: impl FnOnce() -> V) -> Result<Shared<V>, GroupError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        self.run_until(key, None, call)
    }

    /// As [`run`](Self::run), but waits for another caller's call only for a time. `call` itself is not
    /// cut short.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn run_timeout<Q>(
        &self,
        key: &Q,
        patience: Duration,
        call: impl FnOnce() -> V,
    ) -> Result<Shared<V>, GroupError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        self.run_until(key, Some(patience), call)
    }

    fn run_until<Q>(
        &self,
        key: &Q,
        patience: Option<Duration>,
        call: impl FnOnce() -> V,
    ) -> Result<Shared<V>, GroupError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        let (clock, until) = match patience {
            Some(patience) => {
                let clock = Clock::system();
                let until = clock.millis().saturating_add(millis(patience));
                (clock, until)
            }
            // One that nobody moves.
            None => (Clock::manual().0, u64::MAX),
        };
        loop {
            match self.begin(key)? {
                Step::Lead(lead) => return lead.run(call),
                Step::Follow(participant) => {
                    let end = participant.wait(&clock, until);
                    if let Some(told) = told(&participant, end) {
                        return told;
                    }
                }
            }
        }
    }

    /// Joins the call that is running for a key, or enters a new one.
    fn begin<Q>(&self, key: &Q) -> Result<Step<K, V, S>, GroupError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        let calls = &self.inner.calls;
        let hash = calls.hash(key);
        loop {
            let seen = calls.look(hash, key);
            if let Some(Join::Running(mut participant)) =
                seen.entry().map(|it| Arc::clone(it.flight()).join())
            {
                let Ok(()) = participant.check_circle() else { return Err(GroupError::Reentrant) };
                return Ok(Step::Follow(participant));
            }
            // None, or one that has ended and is about to be taken out.
            let entry = Entry::new(hash, key.to_owned(), 0);
            if calls.enter(&seen, &entry) {
                self.inner.running.fetch_add(1, Relaxed);
                return Ok(Step::Lead(Lead { group: self.clone(), entry, ended: false }));
            }
        }
    }

    /// Makes those who come from now on begin a call of their own; returns whether there was one that they
    /// would have joined. It goes on, for those who wait for it.
    pub fn forget<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let calls = &self.inner.calls;
        let seen = calls.look(calls.hash(key), key);
        seen.entry().is_some_and(|entry| calls.remove(entry))
    }
}

impl<K, V, S> Group<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// As [`run`](Self::run), for a future.
    ///
    /// It belongs to the key and not to this caller: whichever of those who wait for it is polled drives
    /// it, on any executor. A panic is [`GroupError::Panicked`] for all of them.
    ///
    /// # Cancel safety
    /// Dropping the returned future leaves the call, which goes on as long as another caller waits. With
    /// the last one it is dropped.
    ///
    /// # Errors
    /// See [`GroupError`].
    ///
    /// ```
    /// use seawall::flight::Group;
    /// # futures_lite::future::block_on(async {
    /// let group: Group<u32, Result<u64, &str>> = Group::new();
    /// let told = group.run_async(&1, || async { Err("down") }).await?;
    /// assert_eq!(told.value, Err("down"));
    /// # Ok::<(), seawall::flight::GroupError>(())
    /// # }).unwrap();
    /// ```
    pub async fn run_async<Q, F>(
        &self,
        key: &Q,
        call: impl FnOnce() -> F,
    ) -> Result<Shared<V>, GroupError>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        F: Future<Output = V> + Send + 'static,
    {
        loop {
            match self.begin(key)? {
                Step::Lead(lead) => {
                    let mut participant = lead.launch(call)?;
                    let end = wait(&mut participant).await;
                    // Nobody drops the call while this caller waits for it.
                    let dropped = || Err(GroupError::Panicked(DROPPED.into()));
                    return told(&participant, end).unwrap_or_else(dropped);
                }
                Step::Follow(mut participant) => {
                    let end = wait(&mut participant).await;
                    if let Some(told) = told(&participant, end) {
                        return told;
                    }
                }
            }
        }
    }
}

async fn wait<V>(participant: &mut Participant<Told<V>>) -> Result<Told<V>, Unanswered>
where
    V: Clone + Send + Sync + 'static,
{
    let mut never = Alarm::never();
    poll_fn(|cx| participant.poll(cx, &mut never)).await
}

/// What a participant is told. `None`: nothing, the call was dropped.
fn told<V>(
    participant: &Participant<Told<V>>,
    end: Result<Told<V>, Unanswered>,
) -> Option<Result<Shared<V>, GroupError>>
where
    V: Clone + Send + Sync + 'static,
{
    Some(match end {
        Ok(Ok(value)) => Ok(Shared { value, shared: participant.flight().is_shared() }),
        Ok(Err(message)) => Err(GroupError::Panicked(message)),
        Err(Unanswered::TimedOut) => Err(GroupError::TimedOut),
        Err(Unanswered::Closed) => return None,
    })
}

/// The right and duty to end a call.
struct Lead<K, V, S> {
    group: Group<K, V, S>,
    entry: Arc<Entry<K, Told<V>>>,
    ended: bool,
}

impl<K, V, S> Lead<K, V, S> {
    fn end(mut self, told: Told<V>) {
        self.ended = true;
        self.conclude(told);
    }

    /// Makes room for the next call, then tells all who wait.
    fn conclude(&self, told: Told<V>) {
        let Inner { calls, running } = &*self.group.inner;
        calls.remove(&self.entry);
        running.fetch_sub(1, Relaxed);
        self.entry.flight().complete(told);
    }
}

impl<K, V, S> Drop for Lead<K, V, S> {
    fn drop(&mut self) {
        if !self.ended {
            // The last one has left.
            self.conclude(Err(DROPPED.into()));
        }
    }
}

impl<K, V, S> Lead<K, V, S>
where
    V: Clone + Send + Sync + 'static,
{
    fn run(self, call: impl FnOnce() -> V) -> Result<Shared<V>, GroupError> {
        let flight = Arc::clone(self.entry.flight());
        match catch_unwind(AssertUnwindSafe(|| flight.lead(call))) {
            Ok(value) => {
                self.end(Ok(value));
                // A clone of the user's may panic: only now, when all have been told.
                let value = flight.answer().and_then(|told| told.as_ref().ok()).cloned();
                let value = value.expect("it was just put there");
                Ok(Shared { value, shared: flight.is_shared() })
            }
            Err(panic) => {
                self.end(Err(message(&*panic)));
                resume_unwind(panic)
            }
        }
    }

    /// Makes the future, and the flight its owner.
    fn launch<F>(self, call: impl FnOnce() -> F) -> Result<Participant<Told<V>>, GroupError>
    where
        K: Send + Sync + 'static,
        S: Send + Sync + 'static,
        F: Future<Output = V> + Send + 'static,
    {
        let flight = Arc::clone(self.entry.flight());
        let future = match catch_unwind(AssertUnwindSafe(|| flight.lead(call))) {
            Ok(future) => future,
            Err(panic) => {
                let message = message(&*panic);
                self.end(Err(Arc::clone(&message)));
                return Err(GroupError::Panicked(message));
            }
        };
        flight.install(Box::pin(drive(self, future)));
        let mut participant = flight.first();
        // Of a flight that is new this finds no circle; it lets others find theirs.
        let _ = participant.check_circle();
        Ok(participant)
    }
}

/// A shared call.
async fn drive<K, V, S, F: Future<Output = V>>(lead: Lead<K, V, S>, future: F) {
    let mut future = Box::pin(future);
    let told = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(message(&*panic))),
    })
    .await;
    // What it holds is let go before those who wait go on; its destructors may panic too.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
    lead.end(told);
}
