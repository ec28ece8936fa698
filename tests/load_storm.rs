//! Storms of loads: thousands of tasks and dozens of threads on few keys, with loaders that yield, fail,
//! panic, hang or find nothing, callers that leave at any point or whose time is up, and all that may be
//! said of a key meanwhile.
//!
//! What each caller is told is checked as it comes; at the end nothing may be left over. Which
//! interleavings occur is up to the machine; what each caller does is the same in every run.

#![cfg(not(miri))]

mod common;

use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use common::loads::{Gate, PLANNED, Polled, assert_at_rest, hush, message, until};
use common::{Few, Fixed, ignore, must_end};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use seawall::guard::{Backoff, Rate};
use seawall::{
    BoxFuture, Builder, Cache, Clock, InsertOptions, Load, LoadContext, LoadError, ManualClock,
    Outcome,
};

const KEYS: u64 = 6;
const THREADS: u64 = 24;
const TASKS: u64 = if cfg!(debug_assertions) { 4_000 } else { 20_000 };
/// Calls of each thread; of each task there are [`TASK_CALLS`].
const THREAD_CALLS: u64 = if cfg!(debug_assertions) { 200 } else { 2_000 };
const TASK_CALLS: u64 = 4;

type Said = Result<Load<u64>, &'static str>;
type Told = Result<Outcome<u64>, LoadError<&'static str>>;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a value tells of itself: its key, how it came to be, and what the time of the origin was then.
#[derive(Clone, Copy)]
struct Stamp(u64);

impl Stamp {
    const INSERTED: u64 = 1 << 8;
    const TAGGED: u64 = 1 << 9;

    fn of(key: u64, flags: u64, time: u64) -> u64 {
        time << 10 | flags | key
    }

    fn key(self) -> u64 {
        self.0 & 0xFF
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn time(self) -> u64 {
        self.0 >> 10
    }
}

/// From when on (the origin's time) values of a key are of use: all of them, and those with its tag.
#[derive(Default)]
struct Needed {
    any: AtomicU64,
    tagged: AtomicU64,
}

#[derive(Default)]
struct Origin {
    /// Moves with every invalidation.
    time: AtomicU64,
    needed: [Needed; KEYS as usize],
}

impl Origin {
    /// Reads what a caller who comes now must get at least.
    fn needed(&self, key: u64) -> (u64, u64) {
        let needed = &self.needed[key as usize];
        (needed.any.load(SeqCst), needed.tagged.load(SeqCst))
    }

    /// A value as it is now.
    fn value(&self, key: u64, flags: u64) -> u64 {
        Stamp::of(key, flags, self.time.load(SeqCst))
    }
}

fn tag_of(key: u64) -> &'static str {
    ["even", "odd"][key as usize % 2]
}

/// What a loader does, decided before it begins.
#[derive(Clone, Copy)]
struct Plan {
    yields: u32,
    end: u32,
}

impl Plan {
    /// Ends of loaders that hang until their time is up; only futures can.
    const HANGS: u32 = 30;

    fn new(random: &mut SmallRng) -> Plan {
        Plan { yields: random.random_range(0..4), end: random.random_range(0..=Self::HANGS) }
    }

    /// For a thread.
    fn blocking(random: &mut SmallRng) -> Plan {
        let plan = Plan::new(random);
        Plan { end: plan.end.min(Self::HANGS - 1), ..plan }
    }

    fn end(self, key: u64, value: impl Fn(u64) -> u64) -> Said {
        let tagged = InsertOptions::new().tag(tag_of(key));
        Ok(match self.end {
            0..8 => Load::Value(value(0)),
            8..14 => Load::With(value(Stamp::TAGGED), tagged),
            14..16 => Load::With(value(0), InsertOptions::new().no_deadline()),
            16 => Load::With(value(0), InsertOptions::new().time_to_live(ms(3))),
            17 => Load::NotStored(value(0)),
            18..21 => Load::Absent,
            21 => Load::AbsentFor(ms(2)),
            22..24 => Load::Unchanged,
            24..27 => return Err("down"),
            27 => Load::UnchangedWith(tagged),
            _ => panic!("{PLANNED}"),
        })
    }
}

async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Drops a future that is not ready after a number of polls.
struct Leaving<F> {
    future: Option<Pin<Box<F>>>,
    polls: u32,
}

impl<F: Future> Future for Leaving<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if let Some(Poll::Ready(output)) = self.future.as_mut().map(|it| it.as_mut().poll(cx)) {
            return Poll::Ready(Some(output));
        }
        self.polls -= 1;
        if self.polls > 0 {
            return Poll::Pending;
        }
        self.future = None;
        Poll::Ready(None)
    }
}

struct Storm<S> {
    cache: Cache<u64, u64, S>,
    hand: ManualClock,
    origin: Arc<Origin>,
    told: AtomicU64,
    left: AtomicU64,
}

impl<S: BuildHasher + Clone + Send + Sync + 'static> Storm<S> {
    fn new(builder: Builder<u64, u64, S>) -> Arc<Self> {
        let (clock, hand) = Clock::manual();
        let cache = builder
            .time_to_live(ms(10))
            .stale_while_revalidate(ms(10))
            .stale_if_error(ms(30))
            .absent_time_to_live(ms(5))
            .load_timeout(ms(40))
            .lead_timeout(ms(60))
            .clock(clock)
            .build()
            .unwrap();
        let (told, left) = Default::default();
        Arc::new(Storm { cache, hand, origin: Arc::default(), told, left })
    }

    fn load_blocking(&self, plan: Plan, context: &LoadContext<u64, u64>) -> Said {
        let time = self.origin.time.load(SeqCst);
        (0..plan.yields).for_each(|_| thread::yield_now());
        plan.end(context.key, |flags| Stamp::of(context.key, flags, time))
    }

    fn load_async(
        &self,
        plan: Plan,
        context: &LoadContext<u64, u64>,
    ) -> impl Future<Output = Said> + Send + use<S> {
        let (origin, key) = (Arc::clone(&self.origin), context.key);
        async move {
            let time = origin.time.load(SeqCst);
            for _ in 0..plan.yields {
                yield_now().await;
            }
            if plan.end == Plan::HANGS {
                std::future::pending::<()>().await;
            }
            plan.end(key, |flags| Stamp::of(key, flags, time))
        }
    }

    /// Checks what a caller was told, who came when values were needed from these times on.
    fn check(&self, key: u64, needed: (u64, u64), told: &Told) {
        self.told.fetch_add(1, SeqCst);
        match told {
            Ok(Outcome { value: Some(value), source, .. }) => {
                let stamp = Stamp(*value);
                assert_eq!(stamp.key(), key, "the value of another key");
                let old = !stamp.has(Stamp::INSERTED) && stamp.time() < needed.0
                    || stamp.has(Stamp::TAGGED) && stamp.time() < needed.1;
                assert!(!old, "{source:?}: of {}, needed {needed:?}", stamp.time());
            }
            Ok(_) => {}
            Err(LoadError::Failed(error)) => assert_eq!(*error, "down"),
            Err(LoadError::Panicked(message)) => assert_eq!(&**message, PLANNED),
            Err(LoadError::Refused(_) | LoadError::TimedOut | LoadError::NothingToKeep) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn call_async(&self, random: &mut SmallRng) {
        let key = random.random_range(0..KEYS);
        let plan = Plan::new(random);
        let (form, patience) = (random.random_range(0..6), ms(random.random_range(1..30)));
        let needed = self.origin.needed(key);
        let request = self.cache.load(&key).timeout(patience);
        let load = |context: LoadContext<u64, u64>| self.load_async(plan, &context);
        let call = async {
            match form {
                0 => request.run_local(load).await,
                1 => request.refresh().run_async(load).await,
                2 => request.background().run_async(load).await,
                3 => request.run_async(load).await,
                _ => self.cache.load(&key).run_async(load).await,
            }
        };
        let call = AssertCaught(Box::pin(call));
        let told = if random.random_range(0..3) == 0 {
            let polls = random.random_range(1..6);
            Leaving { future: Some(Box::pin(call)), polls }.await
        } else {
            Some(call.await)
        };
        match told {
            Some(Some(told)) => self.check(key, needed, &told),
            // Its own loader's panic.
            Some(None) => ignore(self.told.fetch_add(1, SeqCst)),
            None => ignore(self.left.fetch_add(1, SeqCst)),
        }
    }

    fn call_blocking(&self, random: &mut SmallRng) {
        let key = random.random_range(0..KEYS);
        let plan = Plan::blocking(random);
        let form = random.random_range(0..4);
        let needed = self.origin.needed(key);
        let request = self.cache.load(&key);
        let request = match form {
            0 => request.timeout(ms(random.random_range(1..30))),
            1 => request.refresh(),
            2 => request.background(),
            _ => request,
        };
        let call = || request.run(|context| self.load_blocking(plan, &context));
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(told) => self.check(key, needed, &told),
            Err(panic) => {
                assert_eq!(message(&*panic), PLANNED);
                self.told.fetch_add(1, SeqCst);
            }
        }
    }

    /// Does something about a key that makes what was loaded before useless.
    fn invalidate(&self, random: &mut SmallRng) {
        let (cache, key) = (&self.cache, random.random_range(0..KEYS));
        let time = self.origin.time.fetch_add(1, SeqCst) + 1;
        let needed = |key: u64| &self.origin.needed[key as usize];
        match random.random_range(0..10) {
            0..4 => ignore(cache.invalidate(&key)),
            4 => ignore(cache.remove(&key)),
            5 | 6 => ignore(cache.invalidate_if(|other, _| *other == key)),
            7 => {
                cache.invalidate_tag(tag_of(key));
                (key % 2..KEYS).step_by(2).for_each(|key| {
                    needed(key).tagged.fetch_max(time, SeqCst);
                });
                return;
            }
            _ => {
                cache.invalidate_all();
                (0..KEYS).for_each(|key| {
                    needed(key).any.fetch_max(time, SeqCst);
                });
                return;
            }
        }
        needed(key).any.fetch_max(time, SeqCst);
    }

    fn meddle(&self, random: &mut SmallRng) {
        let (cache, key) = (&self.cache, random.random_range(0..KEYS));
        let value = |flags| self.origin.value(key, Stamp::INSERTED | flags);
        match random.random_range(0..20) {
            0..5 => self.invalidate(random),
            5 => ignore(cache.insert(key, value(0))),
            6 => {
                let options = InsertOptions::new().no_deadline().tag(tag_of(key));
                ignore(cache.insert_with(key, value(0), options));
            }
            7 => ignore(cache.insert_if_absent(key, value(0))),
            8..11 => ignore(cache.mark_stale(&key)),
            11 => ignore(cache.sweep(3)),
            12 => ignore(cache.get(&key)),
            13..17 => self.hand.advance(ms(random.random_range(1..4))),
            _ => self.change_limits(random),
        }
    }

    fn meddle_seldom(&self, random: &mut SmallRng) {
        if random.random_range(0..4) == 0 {
            self.meddle(random);
        }
    }

    fn change_limits(&self, random: &mut SmallRng) {
        let limits = self.cache.limits();
        let some = random.random_range(0..3) == 0;
        match random.random_range(0..7) {
            0 => limits.set_max_in_flight([0, 1, 2, 100][random.random_range(0..4)]),
            1 => limits.set_max_waiters([0, 3, 50, 1_000][random.random_range(0..4)]),
            2 => limits.set_background_share([0.1, 0.5, 1.0][random.random_range(0..3)]).unwrap(),
            3 => limits.set_observe_only(some),
            4 => limits.set_min_retry_interval(if some { ms(2) } else { Duration::ZERO }),
            5 => limits.set_backoff(some.then(|| Backoff::new(ms(1), ms(4)).unwrap())),
            _ => limits.set_rate(some.then(|| Rate::new(500, Duration::from_secs(1)).unwrap())),
        }
    }

    /// Meddles and moves the clock until the storm is over.
    fn weather(&self, over: &AtomicBool, seed: u64) {
        let mut random = SmallRng::seed_from_u64(seed);
        while !over.load(SeqCst) {
            self.meddle(&mut random);
            (0..20).for_each(|_| thread::yield_now());
        }
    }

    fn run(self: Arc<Self>, runtime: tokio::runtime::Runtime, seed: u64) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = AtEnd(&over);
            (0..2).for_each(|number| {
                let (this, over) = (&self, &over);
                scope.spawn(move || this.weather(over, seed + number));
            });
            let threads: Vec<_> = (0..THREADS)
                .map(|number| {
                    let mut random = SmallRng::seed_from_u64(seed + 100 + number);
                    let this = &self;
                    scope.spawn(move || {
                        for _ in 0..THREAD_CALLS {
                            this.call_blocking(&mut random);
                            this.meddle_seldom(&mut random);
                        }
                    })
                })
                .collect();
            let tasks: Vec<_> = (0..TASKS)
                .map(|number| {
                    let mut random = SmallRng::seed_from_u64(seed + 1_000 + number);
                    let this = Arc::clone(&self);
                    runtime.spawn(async move {
                        for _ in 0..TASK_CALLS {
                            this.call_async(&mut random).await;
                            this.meddle_seldom(&mut random);
                        }
                    })
                })
                .collect();
            runtime.block_on(async {
                for task in tasks {
                    task.await.unwrap();
                }
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // Loads that nobody waits for end when their time is up: the clock is still moving.
            until(|| self.cache.load_stats().in_flight == 0);
        });
        drop(runtime);
        self.settle();
    }

    /// When all is over.
    fn settle(&self) {
        let calls = THREADS * THREAD_CALLS + TASKS * TASK_CALLS;
        let (told, left) = (self.told.load(SeqCst), self.left.load(SeqCst));
        assert_eq!(told + left, calls, "every caller was told, or left");
        assert!(told > calls / 2 && left > 0, "{told} told, {left} left");
        assert_eq!(self.hand.sleepers(), 0, "nobody waits for a deadline");
        let stats = self.cache.load_stats();
        assert!(stats.loaded > 0 && stats.absent > 0 && stats.failed > 0, "{stats:?}");
        assert!(stats.panicked > 0 && stats.timed_out > 0 && stats.joined > 0, "{stats:?}");
        // Absences and failures count, but are not iterated over.
        self.hand.advance(Duration::from_secs(1_000));
        assert_at_rest(&self.cache);
        let weather = |it: &Self| it.cache.limits().counts().admitted;
        let before = weather(self);
        let limits = self.cache.limits();
        limits.set_max_in_flight(0);
        limits.set_rate(None);
        self.cache.invalidate_all();
        for key in 0..KEYS {
            let value = self.cache.get_or_load(&key, || key);
            assert_eq!(value, Ok(key), "no key is left with a load that never ends");
        }
        assert_eq!(weather(self) - before, KEYS);
    }
}

/// A future whose panic is its result.
struct AssertCaught<F>(Pin<Box<F>>);

impl<F: Future> Future for AssertCaught<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Some),
            Err(panic) => {
                assert_eq!(message(&*panic), PLANNED);
                Poll::Ready(None)
            }
        }
    }
}

/// Sets a flag when it is dropped, also by a panic.
struct AtEnd<'f>(&'f AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn storm<S>(seed: u64, build: impl FnOnce(&tokio::runtime::Handle) -> Builder<u64, u64, S>)
where
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    hush();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).build().unwrap();
    let storm = Storm::new(build(runtime.handle()));
    must_end(move || storm.run(runtime, seed));
}

#[test]
fn a_storm_leaves_nothing_behind() {
    storm(1, |_| Cache::builder().max_entries(100).hasher(Fixed::default()));
}

#[test]
fn a_storm_with_refreshes_and_detached_loads_leaves_nothing_behind() {
    storm(2, |handle| {
        let handle = handle.clone();
        let spawn = move |load: BoxFuture| drop(handle.spawn(load));
        Cache::builder()
            .max_entries(100)
            .hasher(Fixed::default())
            .spawner(spawn)
            .detached_loads(true)
    });
}

#[test]
fn a_storm_on_keys_of_one_hash_in_a_tiny_cache_leaves_nothing_behind() {
    storm(3, |_| Cache::builder().max_entries(3).hasher(Few(1)));
}

#[test]
fn a_storm_with_refreshes_on_the_caches_threads_leaves_nothing_behind() {
    storm(4, |_| {
        let number = AtomicU64::new(0);
        let load = move |context: LoadContext<u64, u64>| {
            if number.fetch_add(1, SeqCst) % 4 == 0 {
                return Err("down");
            }
            // Of a time that is never too old.
            Ok(Load::Value(Stamp::of(context.key, Stamp::INSERTED, 0)))
        };
        Cache::builder().max_entries(100).hasher(Fixed::default()).refresh_with(load)
    });
}

/// What was loaded before a tag's invalidation is not for who came after it, also if the load was
/// overtaken by an invalidation of the key itself.
#[test]
fn a_load_that_two_invalidations_overtake_is_not_for_who_came_between_them() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let gate: Gate<Load<u64>> = Gate::new();
    let tagged = || InsertOptions::new().tag("t");
    // So that the tag is known.
    cache.insert_with(2, 2, tagged()).unwrap();
    let first = Polled::begun(cache.load(&1).run_async(|_| gate.pass_async()));
    cache.invalidate_tag("t");
    let later = Polled::begun(cache.load(&1).run_async(|_| std::future::ready(20)));
    cache.invalidate(&1);
    gate.open(Load::With(10, tagged()));
    assert_eq!(first.finish().unwrap().value, Some(10));
    assert_eq!(later.finish().unwrap().value, Some(20));
}
