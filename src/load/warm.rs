//! Warming a cache up: loads of many keys at background priority, inside a budget.

use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::hash::{BuildHasher, Hash};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;

use super::core::Core;
use super::loader::{IntoLoad, LoadContext};
use super::outcome::{LoadError, Outcome, Source};
use super::request::LoadRequest;
use crate::clock::millis;
use crate::flight::block_on;
use crate::freshness::NEVER;
use crate::guard::{LimitSettings, Limits, Priority, Rate, Refusal};

/// How long a warm-up gives way to an origin that has no room and does not say for how long.
const GIVE_WAY: Duration = Duration::from_millis(50);

/// How far a warm-up has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmUpProgress {
    /// Keys done with: the sum of the next four.
    pub done: u64,
    /// Keys whose values were loaded.
    pub loaded: u64,
    /// Keys that the cache had already, or that another caller loaded.
    pub present: u64,
    /// Keys that the origin does not have.
    pub absent: u64,
    /// Keys whose loads failed.
    pub failed: u64,
    /// How often the warm-up gave way: the origin was at its limits, or its breaker open.
    pub gave_way: u64,
}

/// Pauses, resumes and ends a warm-up; clones control the same one.
#[derive(Clone, Debug, Default)]
pub struct WarmUpControl {
    shared: Arc<Mutex<Control>>,
}

#[derive(Debug, Default)]
struct Control {
    paused: bool,
    ended: bool,
    wakers: Vec<Waker>,
}

impl Control {
    fn watch(&mut self, cx: &mut Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }
}

impl WarmUpControl {
    /// Begins no further loads, until [`resume`](Self::resume). Those in progress go on.
    pub fn pause(&self) {
        self.lock().paused = true;
    }

    /// Goes on.
    pub fn resume(&self) {
        self.change(|control| control.paused = false);
    }

    /// Begins no further loads at all: the warm-up returns when those in progress are done.
    pub fn end(&self) {
        self.change(|control| control.ended = true);
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Control)) {
        let wakers = {
            let mut control = self.lock();
            change(&mut control);
            std::mem::take(&mut control.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn is_ended(&self) -> bool {
        self.lock().ended
    }

    /// Returns whether to go on, when it is not paused.
    fn poll_go_on(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut control = self.lock();
        if control.paused && !control.ended {
            control.watch(cx);
            return Poll::Pending;
        }
        Poll::Ready(!control.ended)
    }

    /// Whether it was ended; else `end` wakes who asked.
    fn poll_ended(&self, cx: &mut Context<'_>) -> bool {
        let mut control = self.lock();
        if !control.ended {
            control.watch(cx);
        }
        control.ended
    }
}

/// Where a warm-up's keys come from: an iterator, or a [`KeyStream`].
pub trait Keys<K>: private::Sealed {
    #[doc(hidden)]
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<K>>;
}

mod private {
    pub trait Sealed {}
}

impl<I: Iterator> private::Sealed for I {}

impl<K, I: Iterator<Item = K>> Keys<K> for I {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<K>> {
        Poll::Ready(self.next())
    }
}

/// The keys of a [`Cache::warm_up_stream`](crate::Cache::warm_up_stream).
pub struct KeyStream<T> {
    /// `None` after its end: a stream must not be polled again.
    stream: Option<Pin<Box<T>>>,
}

impl<T> KeyStream<T> {
    pub(crate) fn new(stream: T) -> Self {
        KeyStream { stream: Some(Box::pin(stream)) }
    }
}

impl<T> fmt::Debug for KeyStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyStream").field("ended", &self.stream.is_none()).finish()
    }
}

impl<T> private::Sealed for KeyStream<T> {}

impl<T: Stream> Keys<T::Item> for KeyStream<T> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T::Item>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let next = stream.as_mut().poll_next(cx);
        if let Poll::Ready(None) = next {
            self.stream = None;
        }
        next
    }
}

/// A warm-up that is being put together; made by [`Cache::warm_up`](crate::Cache::warm_up) or
/// [`Cache::warm_up_stream`](crate::Cache::warm_up_stream).
///
/// Its loads are background work: they use only their
/// [share](crate::Builder::background_share) of the permits, and wait when the origin is at its limits.
#[must_use = "a warm-up does nothing before it is run"]
pub struct WarmUp<'c, I, K, V, S = ahash::RandomState> {
    core: &'c Arc<Core<K, V, S>>,
    keys: Mutex<I>,
    concurrency: usize,
    budget: Arc<Limits>,
    control: WarmUpControl,
    progress: Mutex<WarmUpProgress>,
    tell: Box<dyn Fn(&WarmUpProgress) + Send + Sync + 'c>,
}

impl<I, K, V, S> fmt::Debug for WarmUp<'_, I, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WarmUp").field("concurrency", &self.concurrency).finish_non_exhaustive()
    }
}

impl<'c, I, K, V, S> WarmUp<'c, I, K, V, S>
where
    I: Keys<K>,
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(crate) fn new(core: &'c Arc<Core<K, V, S>>, keys: I) -> Self {
        WarmUp {
            core,
            keys: Mutex::new(keys),
            concurrency: 4,
            budget: Arc::new(Limits::new(&LimitSettings::default())),
            control: WarmUpControl::default(),
            progress: Mutex::default(),
            tell: Box::new(|_| ()),
        }
    }

    /// How many keys are loaded at the same time; 4 by default, at least 1.
    pub fn concurrency(mut self, loads: usize) -> Self {
        self.concurrency = loads.max(1);
        self
    }

    /// How many loads are begun in a time; by default no limit but the cache's.
    pub fn rate(self, rate: Rate) -> Self {
        self.budget.set_rate(Some(rate));
        self
    }

    /// Is told after every key, on the thread or task that loaded it.
    pub fn on_progress(mut self, tell: impl Fn(&WarmUpProgress) + Send + Sync + 'c) -> Self {
        self.tell = Box::new(tell);
        self
    }

    /// Returns what pauses and ends this warm-up.
    pub fn control(&self) -> WarmUpControl {
        self.control.clone()
    }

    /// Loads the keys with a blocking loader, on threads of its own; returns when all are done.
    ///
    /// # Panics
    /// If the loader or the callback does: when the other keys in progress are done.
    pub fn run<R>(self, load: impl Fn(LoadContext<K, V>) -> R + Sync) -> WarmUpProgress
    where
        I: Iterator<Item = K> + Send,
        R: IntoLoad<V>,
        R::Error: Clone + Send + Sync + 'static,
    {
        let one = |key: K| ready(LoadRequest::new(self.core, &key).background().run(&load));
        std::thread::scope(|scope| {
            for _ in 1..self.concurrency {
                scope.spawn(|| block_on(pin!(self.work(&one))));
            }
            block_on(pin!(self.work(&one)));
        });
        self.so_far()
    }

    /// Loads the keys with a loader that is a future; the returned future drives all of them. A stream
    /// is asked for the next key when there is room to load it.
    ///
    /// # Cancel safety
    /// Dropping it ends the warm-up; loads that others wait for go on.
    pub async fn run_async<F, R>(self, load: impl Fn(LoadContext<K, V>) -> F) -> WarmUpProgress
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoLoad<V> + 'static,
        R::Error: Clone + Send + Sync + 'static,
    {
        let (core, load) = (self.core, &load);
        let one =
            |key: K| async move { LoadRequest::new(core, &key).background().run_async(load).await };
        let mut workers: Vec<_> =
            (0..self.concurrency).map(|_| Some(Box::pin(self.work(&one)))).collect();
        poll_fn(|cx| {
            let mut busy = false;
            for slot in &mut workers {
                if let Some(worker) = slot {
                    match worker.as_mut().poll(cx) {
                        Poll::Ready(()) => *slot = None,
                        Poll::Pending => busy = true,
                    }
                }
            }
            if busy { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        drop(workers);
        self.so_far()
    }

    fn so_far(&self) -> WarmUpProgress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads one key after the other, until there are no more.
    async fn work<F, E>(&self, one: &impl Fn(K) -> F)
    where
        F: Future<Output = Result<Outcome<V>, LoadError<E>>>,
    {
        while poll_fn(|cx| self.control.poll_go_on(cx)).await {
            let Some(key) = poll_fn(|cx| self.poll_key(cx)).await else { return };
            loop {
                self.take_turn().await;
                match one(key.clone()).await {
                    Err(LoadError::Refused(refusal)) if Self::gives_way(refusal) => {
                        self.note(|progress| progress.gave_way += 1);
                        self.sleep(refusal.retry_after().unwrap_or(GIVE_WAY)).await;
                        if self.control.is_ended() {
                            return;
                        }
                    }
                    told => break self.count(&told),
                }
            }
        }
    }

    fn poll_key(&self, cx: &mut Context<'_>) -> Poll<Option<K>> {
        let next = self.keys.lock().unwrap_or_else(PoisonError::into_inner).poll_next(cx);
        if next.is_pending() && self.control.poll_ended(cx) { Poll::Ready(None) } else { next }
    }

    /// Whether a refusal is about the origin and not about the key.
    fn gives_way(refusal: Refusal) -> bool {
        !matches!(refusal, Refusal::Throttled { .. } | Refusal::Waiters { .. })
    }

    /// Waits for the warm-up's own rate.
    async fn take_turn(&self) {
        while !self.control.is_ended() {
            let now = self.core.engine.clock().millis();
            match self.budget.admit(Priority::Foreground, now) {
                Ok(permit) => return drop(permit),
                Err(refusal) => self.sleep(refusal.retry_after().unwrap_or(GIVE_WAY)).await,
            }
        }
    }

    async fn sleep(&self, time: Duration) {
        let clock = self.core.engine.clock();
        let at = clock.millis().saturating_add(millis(time).max(1)).min(NEVER - 1);
        let mut alarm = clock.alarm(at);
        poll_fn(|cx| if alarm.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn note(&self, change: impl FnOnce(&mut WarmUpProgress)) -> WarmUpProgress {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut progress);
        *progress
    }

    fn count<E>(&self, told: &Result<Outcome<V>, LoadError<E>>) {
        let progress = self.note(|progress| {
            progress.done += 1;
            *match told {
                Ok(outcome) if outcome.value.is_none() => &mut progress.absent,
                Ok(outcome) if outcome.source == Source::Loaded => &mut progress.loaded,
                Ok(_) => &mut progress.present,
                Err(_) => &mut progress.failed,
            } += 1;
        });
        (self.tell)(&progress);
    }
}
