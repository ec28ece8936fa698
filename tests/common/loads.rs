//! What tests of loads share: gates that hold loaders, callers of every form, tasks that a test polls
//! itself, executors, and what must be true of a cache when no load runs.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use seawall::{Cache, IntoLoad, LoadError};

use super::{audit, lock};

/// Spins until something is so, and fails in place of spinning for ever.
#[track_caller]
pub(crate) fn until(mut so: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < PATIENCE, "it does not come");
        thread::yield_now();
    }
}

/// Holds loaders until the test says what they return. Stays open then: who comes later passes at once.
pub(crate) struct Gate<R>(Arc<State<R>>);

struct State<R> {
    inner: Mutex<Inner<R>>,
    opened: Condvar,
    entered: AtomicUsize,
    inside: AtomicUsize,
    most: AtomicUsize,
}

struct Inner<R> {
    order: Option<Order<R>>,
    wakers: Vec<Waker>,
}

#[derive(Clone)]
enum Order<R> {
    Return(R),
    Panic(&'static str),
}

/// A loader that is inside; leaves however it ends.
struct Inside<R>(Arc<State<R>>);

impl<R> Drop for Inside<R> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

impl<R> Clone for Gate<R> {
    fn clone(&self) -> Self {
        Gate(Arc::clone(&self.0))
    }
}

impl<R> fmt::Debug for Gate<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("entered", &self.0.entered).finish_non_exhaustive()
    }
}

impl<R: Clone> Gate<R> {
    pub(crate) fn new() -> Self {
        let inner = Mutex::new(Inner { order: None, wakers: Vec::new() });
        let (entered, inside, most) = Default::default();
        Gate(Arc::new(State { inner, opened: Condvar::new(), entered, inside, most }))
    }

    /// One that is open from the start: a loader that is only counted.
    pub(crate) fn opened(result: R) -> Self {
        let gate = Gate::new();
        gate.open(result);
        gate
    }

    /// How many loaders have come here.
    pub(crate) fn entered(&self) -> usize {
        self.0.entered.load(SeqCst)
    }

    /// How many of them have neither returned nor been dropped.
    pub(crate) fn inside(&self) -> usize {
        self.0.inside.load(SeqCst)
    }

    /// The most that were inside at the same time.
    pub(crate) fn most(&self) -> usize {
        self.0.most.load(SeqCst)
    }

    #[track_caller]
    pub(crate) fn until_entered(&self, loaders: usize) {
        until(|| self.entered() >= loaders);
    }

    /// All loaders return this, those that wait and those to come.
    pub(crate) fn open(&self, result: R) {
        self.order(Order::Return(result));
    }

    /// All loaders panic, those that wait and those to come.
    pub(crate) fn open_to_panic(&self, message: &'static str) {
        self.order(Order::Panic(message));
    }

    fn order(&self, order: Order<R>) {
        let wakers = {
            let mut inner = lock(&self.0.inner);
            inner.order = Some(order);
            std::mem::take(&mut inner.wakers)
        };
        self.0.opened.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes those who wait, without need.
    pub(crate) fn rattle(&self) {
        let wakers = std::mem::take(&mut lock(&self.0.inner).wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How many async loaders have left a waker since the gate was last opened or rattled.
    pub(crate) fn wakers(&self) -> usize {
        lock(&self.0.inner).wakers.len()
    }

    fn enter(&self) -> Inside<R> {
        let inside = self.0.inside.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(inside, SeqCst);
        // Last: who waits for it counts those inside.
        self.0.entered.fetch_add(1, SeqCst);
        Inside(Arc::clone(&self.0))
    }

    /// A loader that blocks its thread.
    pub(crate) fn pass(&self) -> R {
        let _inside = self.enter();
        let mut inner = lock(&self.0.inner);
        let order = loop {
            match &inner.order {
                Some(order) => break order.clone(),
                None => inner = self.0.opened.wait(inner).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(inner);
        order.obey()
    }

    /// A loader that is a future. It has entered when it has been polled.
    pub(crate) fn pass_async(&self) -> impl Future<Output = R> + Send + use<R>
    where
        R: Send + 'static,
    {
        let gate = self.clone();
        let mut inside = None;
        poll_fn(move |cx| {
            inside.get_or_insert_with(|| gate.enter());
            let mut inner = lock(&gate.0.inner);
            let order = match &inner.order {
                Some(order) => order.clone(),
                None => {
                    inner.wakers.push(cx.waker().clone());
                    return Poll::Pending;
                }
            };
            drop(inner);
            inside = None;
            Poll::Ready(order.obey())
        })
    }
}

impl<R> Order<R> {
    fn obey(self) -> R {
        match self {
            Order::Return(result) => result,
            Order::Panic(message) => panic!("{message}"),
        }
    }
}

/// The forms of a call that loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// On a thread.
    Blocking,
    /// A future, whose load any caller may drive.
    Shared,
    /// A future that drives its load itself.
    Local,
}

impl Form {
    pub(crate) const ALL: [Form; 3] = [Form::Blocking, Form::Shared, Form::Local];

    /// Calls get-or-load with a loader that passes the gate, on this thread.
    pub(crate) fn call<K, V, S, R>(
        self,
        cache: &Cache<K, V, S>,
        key: &K,
        gate: &Gate<R>,
    ) -> Result<V, LoadError<R::Error>>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
        R: IntoLoad<V> + Clone + Send + 'static,
        R::Error: Clone + Send + Sync + 'static,
    {
        match self {
            Form::Blocking => cache.get_or_load(key, || gate.pass()),
            Form::Shared => block_on(cache.get_or_load_async(key, || gate.pass_async())),
            Form::Local => {
                let load = cache.load(key).run_local(|_| gate.pass_async());
                block_on(load)?.value.ok_or(LoadError::Absent)
            }
        }
    }

    /// As [`call`](Self::call), on a thread of its own.
    pub(crate) fn begin<K, V, S, R>(
        self,
        cache: &Cache<K, V, S>,
        key: K,
        gate: &Gate<R>,
    ) -> JoinHandle<Result<V, LoadError<R::Error>>>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
        R: IntoLoad<V> + Clone + Send + 'static,
        R::Error: Clone + Send + Sync + 'static,
    {
        let (cache, gate) = (cache.clone(), gate.clone());
        thread::spawn(move || self.call(&cache, &key, &gate))
    }
}

/// Waits until as many callers wait for loads of others: those who have joined.
#[track_caller]
pub(crate) fn until_waiting<K, V, S>(cache: &Cache<K, V, S>, callers: u64) {
    until(|| cache.load_stats().waiting == callers);
}

/// A waker that counts.
#[derive(Debug, Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A future that the test polls when it likes. Not fused: not to be polled after it is ready.
pub(crate) struct Polled<'f, T> {
    future: Pin<Box<dyn Future<Output = T> + 'f>>,
    wakes: Arc<Wakes>,
}

impl<T> fmt::Debug for Polled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polled").field("wakes", &self.wakes).finish_non_exhaustive()
    }
}

impl<'f, T> Polled<'f, T> {
    pub(crate) fn new(future: impl Future<Output = T> + 'f) -> Self {
        Polled { future: Box::pin(future), wakes: Arc::default() }
    }

    /// Polled once, and pending.
    #[track_caller]
    pub(crate) fn begun(future: impl Future<Output = T> + 'f) -> Self {
        let mut polled = Polled::new(future);
        assert!(polled.poll().is_pending(), "it is not held");
        polled
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls with a waker of the caller's, in place of the own one.
    pub(crate) fn poll_with(&mut self, waker: &Waker) -> Poll<T> {
        self.future.as_mut().poll(&mut Context::from_waker(waker))
    }

    /// How often it has been woken.
    pub(crate) fn wakes(&self) -> usize {
        self.wakes.count()
    }

    /// Polls each time it is woken, and only then, until it is ready: finds wake-ups that are lost.
    #[track_caller]
    pub(crate) fn finish(mut self) -> T {
        loop {
            let seen = self.wakes();
            if let Poll::Ready(result) = self.poll() {
                return result;
            }
            until(|| self.wakes() != seen);
        }
    }

    /// As [`finish`](Self::finish), but it must have been woken since it was last polled.
    #[track_caller]
    pub(crate) fn finish_woken(self, seen: usize) -> T {
        until(|| self.wakes() != seen);
        self.finish()
    }
}

/// An executor.
pub(crate) enum Runtime {
    Tokio(tokio::runtime::Runtime),
    /// One thread runs it, of another kind than tokio's.
    Other(Arc<async_executor::Executor<'static>>),
}

/// A task on one of them.
pub(crate) enum Task<T> {
    Tokio(tokio::task::JoinHandle<T>),
    Other(async_executor::Task<T>),
}

impl Runtime {
    /// One of each kind, with its name.
    pub(crate) fn each() -> Vec<(&'static str, Runtime)> {
        let mut one = tokio::runtime::Builder::new_current_thread();
        let mut many = tokio::runtime::Builder::new_multi_thread();
        vec![
            ("tokio, one thread", Runtime::Tokio(one.enable_all().build().unwrap())),
            (
                "tokio, threads",
                Runtime::Tokio(many.worker_threads(3).enable_all().build().unwrap()),
            ),
            ("another", Runtime::Other(Arc::default())),
        ]
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        match self {
            Runtime::Tokio(tokio) => Task::Tokio(tokio.spawn(future)),
            Runtime::Other(other) => Task::Other(other.spawn(future)),
        }
    }

    /// Runs the tasks until this future is ready.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        match self {
            Runtime::Tokio(tokio) => tokio.block_on(future),
            Runtime::Other(other) => block_on(other.run(future)),
        }
    }
}

impl<T> Task<T> {
    /// Its result; a panic of its own goes on.
    pub(crate) async fn end(self) -> T {
        match self {
            Task::Tokio(task) => match task.await {
                Ok(result) => result,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            Task::Other(task) => task.await,
        }
    }

    /// Drops the task's future, if it is not done. Returns when that has happened.
    pub(crate) async fn abort(self) {
        match self {
            Task::Tokio(task) => {
                task.abort();
                let _ = task.await;
            }
            Task::Other(task) => drop(task.cancel().await),
        }
    }
}

/// What must be true when no load runs: nothing is in flight, nobody waits, every load that was begun has
/// ended, and the accounts of the entries agree.
#[track_caller]
pub(crate) fn assert_at_rest<K, V, S>(cache: &Cache<K, V, S>)
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    assert_at_rest_weighing(cache, |_, _| 1);
}

/// [`assert_at_rest`] of a cache that is bounded by weight. Not for caches that hold absences or failed
/// attempts: those count, and are not iterated over.
#[track_caller]
pub(crate) fn assert_at_rest_weighing<K, V, S>(
    cache: &Cache<K, V, S>,
    weigh: impl Fn(&K, &V) -> u64,
) where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    assert_no_load_runs(cache);
    audit(cache, weigh);
}

/// The part of [`assert_at_rest`] that says nothing of entries.
#[track_caller]
pub(crate) fn assert_no_load_runs<K, V, S>(cache: &Cache<K, V, S>) {
    let stats = cache.load_stats();
    assert_eq!((stats.in_flight, stats.waiting), (0, 0), "in flight, waiting");
    assert_eq!((cache.limits().in_flight(), cache.limits().waiters()), (0, 0));
    let brought = stats.loaded + stats.absent;
    let not = stats.failed + stats.panicked + stats.timed_out + stats.abandoned;
    assert_eq!(stats.started, brought + not, "each load that began has ended once: {stats:?}");
    assert_eq!(cache.limits().counts().admitted, stats.started);
    assert_eq!(stats.load_time.count(), stats.started);
}

/// A panic of this message, or of a [`Fuse`](super::Fuse), is meant to be: see [`hush`].
pub(crate) const PLANNED: &str = "planned";

/// Keeps the panics that are meant to be from being printed, with their backtraces, by the hundred.
pub(crate) fn hush() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let message = message(info.payload());
            if message != PLANNED && message != "the fuse blew" {
                print(info);
            }
        }));
    });
}

/// What a panic says.
pub(crate) fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("")
}
