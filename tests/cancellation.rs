//! Callers that leave, or stay and are not polled (CAN).

mod common;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::loads::{
    Form, Gate, Polled, Runtime, Task, Wakes, assert_at_rest, assert_no_load_runs, until,
    until_waiting,
};
use common::{lock, must_end};
use futures_lite::future::{block_on, or, poll_once, yield_now};
use seawall::{BoxFuture, Cache, Clock, LoadError, Source, WhyStale};

type Numbers = Cache<u32, u32>;
type Answer = Result<u32, LoadError<std::convert::Infallible>>;

fn numbers(entries: u64) -> Numbers {
    Cache::new(entries)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn shared(cache: &Numbers, key: u32, gate: &Gate<u32>) -> Answer {
    cache.get_or_load_async(&key, || gate.pass_async()).await
}

async fn local(cache: &Numbers, key: u32, gate: &Gate<u32>) -> Answer {
    let outcome = cache.load(&key).run_local(|_| gate.pass_async()).await?;
    Ok(outcome.value.unwrap())
}

fn begin<'c>(form: Form, cache: &'c Numbers, gate: &'c Gate<u32>) -> Polled<'c, Answer> {
    match form {
        Form::Local => Polled::begun(local(cache, 1, gate)),
        _ => Polled::begun(shared(cache, 1, gate)),
    }
}

// CAN-01

#[test]
fn can_01_when_the_leader_is_dropped_the_load_goes_on_for_those_who_wait() {
    must_end(|| {
        let cache = numbers(10);
        let (gate, never) = (Gate::new(), Gate::new());
        let first = begin(Form::Shared, &cache, &gate);
        let second = begin(Form::Shared, &cache, &never);
        let blocked = Form::Blocking.begin(&cache, 1, &never);
        until_waiting(&cache, 2);
        drop(first);
        assert_eq!(gate.inside(), 1, "it goes on");
        gate.open(5);
        assert_eq!(second.finish(), Ok(5));
        assert_eq!(blocked.join().unwrap(), Ok(5));
        assert_eq!((gate.entered(), never.entered()), (1, 0));
        assert_eq!(Form::Blocking.call(&cache, &1, &never), Ok(5), "a hit");
        assert_at_rest(&cache);
    });
}

#[test]
fn can_01_when_the_leader_of_a_load_of_its_own_is_dropped_another_begins_anew() {
    must_end(|| {
        for follower in Form::ALL {
            let cache = numbers(10);
            let (gate, next) = (Gate::new(), Gate::opened(6));
            let first = begin(Form::Local, &cache, &gate);
            let second = follower.begin(&cache, 1, &next);
            until_waiting(&cache, 1);
            drop(first);
            assert_eq!(second.join().unwrap(), Ok(6), "{follower:?}");
            assert_eq!((gate.entered(), gate.inside(), next.entered()), (1, 0, 1));
            assert_eq!(Form::Blocking.call(&cache, &1, &gate), Ok(6), "a hit");
            assert_eq!(cache.load_stats().abandoned, 1);
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn can_01_when_the_last_one_leaves_the_load_is_dropped() {
    let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
    let gate = Gate::new();
    let [leader, first, second] = [(); 3].map(|()| begin(Form::Shared, &cache, &gate));
    assert_eq!(cache.load_stats().waiting, 2);
    drop(first);
    assert_eq!((gate.inside(), cache.load_stats().waiting), (1, 1));
    drop(leader);
    assert_eq!((gate.inside(), cache.load_stats().waiting), (1, 1));
    assert_eq!(cache.load_stats().in_flight, 1);
    drop(second);
    assert_eq!(gate.inside(), 0);
    assert_eq!(cache.load_stats().abandoned, 1);
    assert_eq!(cache.stats().entries, 0);
    assert_at_rest(&cache);
    assert_eq!(Form::Blocking.call(&cache, &1, &Gate::opened(7)), Ok(7));
    assert_at_rest(&cache);
}

/// Whoever leaves, and in whatever order, at whatever stage of a load that takes a few polls.
#[test]
fn can_01_callers_may_leave_in_any_order_at_any_poll() {
    async fn steps() -> u32 {
        for _ in 0..3 {
            yield_now().await;
        }
        7
    }

    const CALLERS: usize = 3;
    // Each digit of a number says who is polled or dropped next.
    const PLANS: usize = (2 * CALLERS).pow(4);
    for plan in (0..PLANS).step_by(if cfg!(miri) { 31 } else { 1 }) {
        let cache = numbers(10);
        let loads = AtomicUsize::new(0);
        let mut callers: Vec<Option<Polled<'_, Answer>>> = (0..CALLERS)
            .map(|_| {
                Some(Polled::new(cache.get_or_load_async(&1, || {
                    loads.fetch_add(1, SeqCst);
                    steps()
                })))
            })
            .collect();
        assert!(callers[0].as_mut().unwrap().poll().is_pending());
        let mut left = plan;
        for _ in 0..4 {
            let (who, what) = (left % CALLERS, left / CALLERS % 2);
            left /= 2 * CALLERS;
            match (&mut callers[who], what) {
                (Some(caller), 0) => {
                    if let Poll::Ready(answer) = caller.poll() {
                        assert_eq!(answer, Ok(7));
                        callers[who] = None;
                    }
                }
                (place, _) => *place = None,
            }
        }
        for caller in callers.into_iter().flatten() {
            assert_eq!(caller.finish(), Ok(7), "plan {plan}");
        }
        assert_at_rest(&cache);
        assert_eq!(block_on(cache.get_or_load_async(&1, steps)), Ok(7));
        let stats = cache.load_stats();
        assert_eq!(stats.loaded, 1, "plan {plan}");
        assert_at_rest(&cache);
    }
}

/// The last one leaves while others come: who comes never joins a load that is being dropped.
#[test]
#[cfg_attr(miri, ignore = "a race that is run many times")]
fn can_01_nobody_joins_a_load_that_is_being_dropped() {
    const ROUNDS: u32 = 3_000;
    must_end(|| {
        let cache = numbers(u64::from(ROUNDS));
        let barrier = Barrier::new(3);
        thread::scope(|scope| {
            scope.spawn(|| {
                for key in 0..ROUNDS {
                    let gate = Gate::new();
                    let first = Polled::begun(shared(&cache, key, &gate));
                    barrier.wait();
                    drop(first);
                }
            });
            for form in [Form::Blocking, Form::Shared] {
                let (cache, barrier) = (&cache, &barrier);
                scope.spawn(move || {
                    // A load that nobody would finish: they must begin one of their own, or have
                    // joined in time and begin it when it is dropped; or keep it alive, and then the
                    // other one opens no gate for it.
                    for key in 0..ROUNDS {
                        barrier.wait();
                        let mut call = pin!(cache.get_or_load_async(&key, || async { 1 }));
                        match form {
                            Form::Shared => {
                                let _ = block_on(poll_once(call.as_mut()));
                            }
                            _ => {
                                let timeout = Duration::ZERO;
                                let _ = cache.load(&key).timeout(timeout).run(|_| 1);
                            }
                        }
                    }
                });
            }
        });
        assert_no_load_runs(&cache);
        for key in 0..ROUNDS {
            assert_eq!(cache.get_or_load(&key, || 1), Ok(1), "the key is usable");
        }
        assert_at_rest(&cache);
    });
}

/// A loader's future whose destructor is held: meanwhile its key is free.
#[test]
fn can_01_while_a_load_is_being_dropped_its_key_can_be_loaded() {
    struct SlowDrop(Gate<u32>);

    impl Drop for SlowDrop {
        fn drop(&mut self) {
            self.0.pass();
        }
    }

    must_end(|| {
        let cache = numbers(10);
        let gate = Gate::new();
        let slow = SlowDrop(gate.clone());
        let dropping = {
            let cache = cache.clone();
            thread::spawn(move || {
                let load = async move {
                    let _slow = slow;
                    std::future::pending::<u32>().await
                };
                drop(Polled::begun(cache.get_or_load_async(&1, || load)));
            })
        };
        gate.until_entered(1);
        for form in Form::ALL {
            assert_eq!(form.call(&cache, &1, &Gate::opened(8)), Ok(8));
        }
        cache.invalidate(&1);
        assert_eq!(Form::Shared.call(&cache, &1, &Gate::opened(9)), Ok(9));
        gate.open(0);
        dropping.join().unwrap();
        assert_eq!(cache.get(&1), Some(9), "the dropped load takes out nothing of others");
        assert_eq!((cache.load_stats().abandoned, cache.load_stats().loaded), (1, 2));
        assert_at_rest(&cache);
    });
}

// CAN-03

#[test]
fn can_03_a_leader_that_is_not_polled_holds_up_nobody() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            let cache = numbers(10);
            let gate = Gate::new();
            let mut forgotten = begin(Form::Shared, &cache, &gate);
            let task = {
                let (cache, gate) = (cache.clone(), gate.clone());
                runtime.spawn(async move { shared(&cache, 1, &gate).await })
            };
            gate.open(5);
            assert_eq!(runtime.block_on(task.end()), Ok(5), "{name}");
            assert_eq!(gate.entered(), 1);
            assert_eq!(forgotten.poll(), Poll::Ready(Ok(5)), "what it finds when it is polled");
            drop(forgotten);
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn can_03_a_blocked_thread_drives_the_load_of_a_leader_that_is_not_polled() {
    must_end(|| {
        let cache = numbers(10);
        let gate = Gate::new();
        let forgotten = begin(Form::Shared, &cache, &gate);
        let blocked = Form::Blocking.begin(&cache, 1, &gate);
        until_waiting(&cache, 1);
        gate.open(5);
        assert_eq!(blocked.join().unwrap(), Ok(5));
        assert_eq!(gate.entered(), 1);
        drop(forgotten);
        assert_at_rest(&cache);
    });
}

#[test]
fn can_03_a_load_with_several_steps_is_driven_by_whoever_is_polled() {
    let cache = numbers(10);
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let steps = gates.clone();
    let load = async move {
        let mut sum = 0;
        for gate in steps {
            sum += gate.pass_async().await;
        }
        sum
    };
    let never = Gate::new();
    let first = Polled::begun(cache.get_or_load_async(&1, || load));
    let mut callers =
        [first, begin(Form::Shared, &cache, &never), begin(Form::Shared, &cache, &never)];
    // Each step is driven by another one.
    for (n, gate) in gates.iter().enumerate() {
        gate.open(1 << n);
        assert!(callers.iter().all(|caller| caller.wakes() > 0));
        assert_eq!(gate.entered(), 1);
        assert_eq!(callers[n].poll().is_ready(), n == 2);
    }
    assert_eq!((cache.get(&1), never.entered()), (Some(7), 0));
    let [first, second, _] = callers;
    assert_eq!(first.finish(), Ok(7));
    assert_eq!(second.finish(), Ok(7));
    assert_at_rest(&cache);
}

#[test]
fn can_03_two_callers_in_one_select_of_which_the_second_must_end_first() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            let cache = numbers(10);
            let gate = Gate::new();
            let answer = runtime.block_on(async {
                let mut first = pin!(shared(&cache, 1, &gate));
                assert!(poll_once(first.as_mut()).await.is_none());
                let opener = {
                    let gate = gate.clone();
                    runtime.spawn(async move {
                        yield_now().await;
                        gate.open(5);
                    })
                };
                // The first branch is never polled again.
                let second = or(shared(&cache, 1, &gate), std::future::pending()).await;
                opener.end().await;
                second
            });
            assert_eq!(answer, Ok(5), "{name}");
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn can_03_who_waits_for_a_load_that_only_its_caller_drives_has_a_bounded_wait() {
    must_end(|| {
        let (clock, hand) = Clock::manual();
        let cache: Numbers =
            Cache::builder().max_entries(10).wait_timeout(secs(3)).clock(clock).build().unwrap();
        let gate = Gate::new();
        let mut forgotten = begin(Form::Local, &cache, &gate);
        let task = begin(Form::Shared, &cache, &gate);
        let blocked = Form::Blocking.begin(&cache, 1, &gate);
        until(|| hand.sleepers() == 3);
        hand.advance(secs(3));
        assert_eq!(task.finish(), Err(LoadError::TimedOut));
        assert_eq!(blocked.join().unwrap(), Err(LoadError::TimedOut));
        assert_eq!(cache.load_stats().waits_timed_out, 2);
        assert_eq!(gate.entered(), 1);
        // Its own time is up, too.
        assert_eq!(forgotten.poll(), Poll::Ready(Err(LoadError::TimedOut)));
        drop(forgotten);
        assert_eq!(hand.sleepers(), 0);
        assert_at_rest(&cache);
    });
}

/// A loader that yields lets the executor run others, also those that it waits for.
#[test]
fn can_03_a_loader_that_yields_until_another_task_has_run_does_not_keep_it_from_running() {
    const PATIENCE: usize = 100_000;
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            let cache = numbers(10);
            let ready = Arc::new(AtomicBool::new(false));
            let wait = {
                let ready = Arc::clone(&ready);
                async move {
                    let mut polls = 0;
                    while !ready.load(SeqCst) {
                        polls += 1;
                        assert!(polls < PATIENCE, "nobody else runs");
                        yield_now().await;
                    }
                    1
                }
            };
            let task = {
                let cache = cache.clone();
                runtime.spawn(async move { cache.get_or_load_async(&1, || wait).await })
            };
            let other = runtime.spawn(async move {
                yield_now().await;
                ready.store(true, SeqCst);
            });
            let answer = runtime.block_on(async {
                let answer = task.end().await;
                other.end().await;
                answer
            });
            assert_eq!(answer, Ok(1), "{name}");
            assert_at_rest(&cache);
        }
    });
}

/// Wakes that come while the load is being polled, with callers that leave at any time.
#[test]
fn can_03_a_wake_in_the_midst_of_a_poll_is_not_lost() {
    let cache = numbers(10);
    let turns = Arc::new(AtomicUsize::new(0));
    let load = {
        let turns = Arc::clone(&turns);
        poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if turns.fetch_add(1, SeqCst) >= 20 { Poll::Ready(1) } else { Poll::Pending }
        })
    };
    let mut callers = vec![Polled::new(cache.get_or_load_async(&1, || load))];
    callers.extend((0..4).map(|_| Polled::new(cache.get_or_load_async(&1, || async { 2 }))));
    // Each is polled once and forgotten; each knows that there is more to do.
    for caller in &mut callers {
        assert!(caller.poll().is_pending());
        assert!(caller.wakes() > 0);
    }
    assert!(turns.load(SeqCst) < 20);
    let last = callers.pop().unwrap();
    assert_eq!(last.finish(), Ok(1));
    assert_eq!(callers.remove(0).finish(), Ok(1), "all were told");
    drop(callers);
    assert_at_rest(&cache);
}

#[test]
fn can_03_a_caller_may_be_polled_with_another_waker_each_time() {
    let cache = numbers(10);
    let gate = Gate::new();
    let mut callers = [begin(Form::Shared, &cache, &gate), begin(Form::Shared, &cache, &gate)];
    let wakes: Vec<Arc<Wakes>> = (0..10).map(|_| Arc::default()).collect();
    for wakes in &wakes {
        for caller in &mut callers {
            assert!(caller.poll_with(&Waker::from(Arc::clone(wakes))).is_pending());
        }
    }
    assert!(wakes.iter().all(|wakes| Arc::strong_count(wakes) == 1 || wakes.count() == 0));
    gate.open(3);
    let (last, before) = wakes.split_last().unwrap();
    assert_eq!(last.count(), 2, "both with the waker that was given last");
    assert!(before.iter().all(|wakes| wakes.count() == 0));
    let [first, second] = callers;
    assert_eq!(second.finish(), Ok(3));
    assert_eq!(first.finish(), Ok(3));
    assert!(wakes.iter().all(|wakes| Arc::strong_count(wakes) == 1), "no waker is kept");
    assert_at_rest(&cache);
}

#[test]
fn can_03_wakes_without_need_do_no_harm() {
    let cache = numbers(10);
    let gate = Gate::new();
    let mut callers = [begin(Form::Shared, &cache, &gate), begin(Form::Shared, &cache, &gate)];
    for _ in 0..10 {
        gate.rattle();
        for caller in &mut callers {
            assert!(caller.poll().is_pending());
        }
    }
    gate.open(3);
    assert!(callers.into_iter().all(|caller| caller.finish() == Ok(3)));
    assert_eq!(gate.entered(), 1);
    assert_at_rest(&cache);
}

thread_local! {
    /// How deep wakers poll within one another.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A task that its waker polls at once, as some executors do; in the midst of its own poll, later.
struct Inline {
    future: Mutex<Option<BoxFuture>>,
    again: AtomicBool,
}

impl Inline {
    fn begin(future: impl Future<Output = ()> + Send + 'static) -> Arc<Inline> {
        let future = Mutex::new(Some(Box::pin(future) as BoxFuture));
        let task = Arc::new(Inline { future, again: AtomicBool::new(false) });
        Arc::clone(&task).wake();
        task
    }

    fn is_done(&self) -> bool {
        self.future.try_lock().is_ok_and(|future| future.is_none())
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.again.store(true, SeqCst);
        while self.again.load(SeqCst) {
            let Ok(mut place) = self.future.try_lock() else { return };
            self.again.store(false, SeqCst);
            let Some(future) = &mut *place else { return };
            let waker = Waker::from(Arc::clone(&self));
            DEPTH.set(DEPTH.get() + 1);
            assert!(DEPTH.get() < 100, "wakers do not wake one another for ever");
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            DEPTH.set(DEPTH.get() - 1);
            if polled.is_ready() {
                *place = None;
            }
        }
    }
}

#[test]
fn can_03_wakers_may_poll_at_once() {
    must_end(|| {
        for within_a_loader in [false, true] {
            let cache = numbers(10);
            let gate = Gate::new();
            let told = Arc::new(Mutex::new(Vec::new()));
            let tasks: Vec<_> = (0..4)
                .map(|_| {
                    let (cache, gate, told) = (cache.clone(), gate.clone(), Arc::clone(&told));
                    Inline::begin(async move {
                        let answer = shared(&cache, 1, &gate).await;
                        lock(&told).push(answer);
                        // It goes on from within the waker: with another load, and the same key again.
                        cache.invalidate(&1);
                        let again = shared(&cache, 1, &Gate::opened(6)).await;
                        lock(&told).push(again);
                        let other = shared(&cache, 2, &Gate::opened(7)).await;
                        lock(&told).push(other);
                    })
                })
                .collect();
            if within_a_loader {
                // From within a loader of another key.
                assert_eq!(
                    cache.get_or_load(&3, || {
                        gate.open(5);
                        3
                    }),
                    Ok(3)
                );
            } else {
                gate.open(5);
            }
            assert!(tasks.iter().all(|task| task.is_done()));
            let told = lock(&told).clone();
            assert_eq!(told.iter().filter(|it| **it == Ok(5)).count(), 4);
            assert_eq!(told.iter().filter(|it| **it == Ok(7)).count(), 4);
            assert_eq!(told.iter().filter(|it| **it == Ok(6)).count(), 4);
            assert_eq!(gate.entered(), 1);
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn can_03_wakers_that_poll_at_once_meet_a_leader_that_is_dropped() {
    must_end(|| {
        let cache = numbers(10);
        let leader = begin_owned(&cache, &Gate::new());
        let gate = Gate::new();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (cache, gate, told) = (cache.clone(), gate.clone(), Arc::clone(&told));
                Inline::begin(async move {
                    let answer = local(&cache, 1, &gate).await;
                    lock(&told).push(answer);
                })
            })
            .collect();
        drop(leader);
        assert_eq!((gate.entered(), lock(&told).len()), (1, 0), "one began anew");
        gate.open(5);
        assert!(tasks.iter().all(|task| task.is_done()));
        assert_eq!(*lock(&told), [Ok(5), Ok(5), Ok(5), Ok(5)]);
        assert_at_rest(&cache);
    });
}

fn begin_owned(cache: &Numbers, gate: &Gate<u32>) -> Polled<'static, Answer> {
    let (cache, gate) = (cache.clone(), gate.clone());
    Polled::begun(async move { local(&cache, 1, &gate).await })
}

/// A waker that drops another caller.
struct Drops(Mutex<Option<BoxFuture>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let dropped = lock(&self.0).take();
        drop(dropped);
    }
}

#[test]
fn can_03_wakers_may_drop_other_callers() {
    let cache = numbers(10);
    let gate = Gate::new();
    let (mut first, mut last) =
        (begin(Form::Shared, &cache, &gate), begin(Form::Shared, &cache, &gate));
    for caller in [&mut first, &mut last] {
        let (cache, gate) = (cache.clone(), gate.clone());
        let mut victim: BoxFuture = Box::pin(async move {
            let _ = shared(&cache, 1, &gate).await;
        });
        assert!(block_on(poll_once(&mut victim)).is_none());
        let waker = Waker::from(Arc::new(Drops(Mutex::new(Some(victim)))));
        assert!(caller.poll_with(&waker).is_pending());
    }
    assert_eq!(cache.load_stats().waiting, 3);
    gate.open(4);
    assert_eq!(cache.load_stats().waiting, 1, "both are gone");
    assert_eq!(last.poll(), Poll::Ready(Ok(4)));
    assert_eq!(first.poll(), Poll::Ready(Ok(4)));
    assert_at_rest(&cache);
}

// CAN-05

fn stale_cache(
    spawner: impl Fn(BoxFuture) + Send + Sync + 'static,
) -> (Numbers, seawall::ManualClock) {
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(10)
        .max_in_flight(2)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(20))
        .spawner(spawner)
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(15));
    (cache, hand)
}

#[test]
fn can_05_a_refresh_goes_on_when_its_caller_is_aborted() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            let spawned: Arc<Mutex<Vec<BoxFuture>>> = Arc::default();
            let queue = Arc::clone(&spawned);
            let (cache, hand) = stale_cache(move |future| lock(&queue).push(future));
            let gate = Gate::new();
            let task = {
                let (cache, gate) = (cache.clone(), gate.clone());
                runtime.spawn(async move {
                    let outcome = cache.load(&1).run_async(|_| gate.pass_async()).await.unwrap();
                    assert_eq!(outcome.source, Source::Stale(WhyStale::Refreshing));
                    std::future::pending::<()>().await;
                })
            };
            let refresh: Task<()> = runtime.block_on(async {
                while lock(&spawned).is_empty() {
                    yield_now().await;
                }
                let refresh = lock(&spawned).pop().unwrap();
                task.abort().await;
                runtime.spawn(refresh)
            });
            hand.advance(secs(30));
            assert_eq!(cache.get(&1), None, "too old by now");
            gate.open(2);
            runtime.block_on(refresh.end());
            assert_eq!(runtime.block_on(shared(&cache, 1, &gate)), Ok(2), "{name}");
            assert_eq!(gate.entered(), 1);
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn can_05_a_refresh_that_the_spawner_drops_leaves_the_key_free() {
    must_end(|| {
        let (cache, hand) = stale_cache(drop);
        for _ in 0..5 {
            let outcome = block_on(cache.load(&1).run_async(|_| Gate::<u32>::new().pass_async()));
            assert_eq!(outcome.unwrap().source, Source::Stale(WhyStale::Refreshing));
        }
        hand.advance(secs(30));
        for form in [Form::Shared, Form::Local, Form::Blocking] {
            cache.invalidate(&1);
            assert_eq!(form.call(&cache, &1, &Gate::opened(3)), Ok(3));
        }
        assert_at_rest(&cache);
    });
}

#[test]
fn can_05_a_refresh_that_is_never_polled_is_driven_by_those_who_wait_for_it() {
    must_end(|| {
        let kept: Arc<Mutex<Vec<BoxFuture>>> = Arc::default();
        let queue = Arc::clone(&kept);
        let (cache, hand) = stale_cache(move |future| lock(&queue).push(future));
        let gate = Gate::new();
        assert_eq!(block_on(shared(&cache, 1, &gate)), Ok(1));
        assert_eq!((lock(&kept).len(), gate.entered()), (1, 0));
        hand.advance(secs(30));
        gate.open(2);
        assert_eq!(block_on(shared(&cache, 1, &Gate::new())), Ok(2));
        assert_eq!(gate.entered(), 1);
        lock(&kept).clear();
        assert_at_rest(&cache);
    });
}

#[test]
fn can_05_a_caller_that_refreshes_itself_may_leave() {
    must_end(|| {
        for form in [Form::Shared, Form::Local] {
            let (clock, hand) = Clock::manual();
            let cache: Numbers = Cache::builder()
                .max_entries(10)
                .max_in_flight(1)
                .time_to_live(secs(10))
                .stale_while_revalidate(secs(20))
                .clock(clock)
                .build()
                .unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(15));
            let gate = Gate::new();
            let caller = begin(form, &cache, &gate);
            assert_eq!(Form::Blocking.call(&cache, &1, &gate), Ok(1), "stale, without waiting");
            drop(caller);
            assert_eq!((gate.entered(), gate.inside()), (1, 0));
            assert_eq!(form.call(&cache, &1, &Gate::opened(2)), Ok(2), "the next one refreshes");
            hand.advance(secs(30));
            assert_eq!(form.call(&cache, &1, &Gate::opened(3)), Ok(3));
            assert_at_rest(&cache);
        }
    });
}

// CAN-07

#[test]
fn can_07_loads_that_are_dropped_at_any_poll_leave_nothing_or_an_entry() {
    const KEYS: u32 = if cfg!(miri) { 60 } else { 1_000 };
    let cache = numbers(10);
    for form in [Form::Shared, Form::Local] {
        for key in 0..KEYS {
            let load = || async move {
                for _ in 0..3 {
                    yield_now().await;
                }
                key
            };
            let mut call = match form {
                Form::Local => Polled::new(async {
                    cache.load(&key).run_local(|_| load()).await.map(|it| it.value.unwrap())
                }),
                _ => Polled::new(cache.get_or_load_async(&key, load)),
            };
            let done = (0..key % 7).any(|_| call.poll().is_ready());
            drop(call);
            assert_eq!(cache.peek(&key).is_some(), done, "all or nothing");
        }
        assert_at_rest(&cache);
        for key in KEYS..2 * KEYS {
            cache.insert(key, key).unwrap();
        }
        assert_at_rest(&cache);
        assert_eq!(cache.len(), 10);
        // An entry that the evictions do not know of would stay.
        cache.set_capacity(0);
        assert_eq!((cache.iter().count(), cache.weight()), (0, 0), "none of them is immortal");
        cache.set_capacity(10);
        assert_at_rest(&cache);
    }
}

// CAN-09

#[test]
#[cfg_attr(miri, ignore = "a race that is run many times")]
fn can_09_the_first_follower_ever_is_told_by_the_first_load_ever() {
    const ROUNDS: usize = 3_000;
    must_end(|| {
        let caches: Vec<Numbers> = (0..ROUNDS).map(|_| numbers(2)).collect();
        for forms in [[Form::Blocking, Form::Blocking], [Form::Shared, Form::Blocking]] {
            let barrier = Barrier::new(2);
            thread::scope(|scope| {
                for form in forms {
                    let (caches, barrier) = (&caches, &barrier);
                    scope.spawn(move || {
                        for cache in caches {
                            cache.invalidate(&1);
                            barrier.wait();
                            assert_eq!(form.call(cache, &1, &Gate::opened(3)), Ok(3));
                            barrier.wait();
                        }
                    });
                }
            });
        }
        caches.iter().for_each(assert_at_rest);
    });
}

// CAN-11

#[test]
fn can_11_when_a_runtime_goes_those_on_others_take_the_load_over() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            for form in [Form::Shared, Form::Local] {
                let cache = numbers(10);
                let (gate, next) = (Gate::new(), Gate::new());
                let leader = {
                    let (cache, gate) = (cache.clone(), gate.clone());
                    runtime.spawn(async move {
                        match form {
                            Form::Local => local(&cache, 1, &gate).await,
                            _ => shared(&cache, 1, &gate).await,
                        }
                    })
                };
                runtime.block_on(async {
                    while gate.entered() == 0 {
                        yield_now().await;
                    }
                });
                let waiting: Vec<_> =
                    [Form::Blocking, Form::Shared, Form::Local, Form::Shared, Form::Blocking]
                        .map(|form| form.begin(&cache, 1, &next))
                        .into();
                until_waiting(&cache, 5);
                runtime.block_on(leader.abort());
                gate.open(4);
                next.open(5);
                let expected = if form == Form::Shared { 4 } else { 5 };
                for caller in waiting {
                    assert_eq!(caller.join().unwrap(), Ok(expected), "{name}, {form:?}");
                }
                assert_eq!(next.entered(), usize::from(form == Form::Local));
                assert_eq!(runtime.block_on(shared(&cache, 1, &next)), Ok(expected));
                assert_at_rest(&cache);
            }
        }
    });
}

#[test]
fn can_11_when_a_runtime_is_dropped_with_all_its_tasks_the_key_is_free() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
            let gate = Gate::new();
            let tasks: Vec<_> = (0..6)
                .map(|_| {
                    let (cache, gate) = (cache.clone(), gate.clone());
                    runtime.spawn(async move { shared(&cache, 1, &gate).await })
                })
                .collect();
            runtime.block_on(async {
                while cache.load_stats().waiting < 5 {
                    yield_now().await;
                }
            });
            drop(tasks);
            drop(runtime);
            until(|| gate.inside() == 0);
            until_waiting(&cache, 0);
            assert_eq!(Form::Blocking.call(&cache, &1, &Gate::opened(2)), Ok(2), "{name}");
            assert_at_rest(&cache);
        }
    });
}

// CAN-13

#[test]
fn can_13_detached_loads_are_finished_and_stored_when_all_callers_have_left() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            let spawned: Arc<Mutex<Vec<BoxFuture>>> = Arc::default();
            let queue = Arc::clone(&spawned);
            let cache: Numbers = Cache::builder()
                .max_entries(10)
                .spawner(move |future| lock(&queue).push(future))
                .detached_loads(true)
                .build()
                .unwrap();
            let gates = [Gate::new(), Gate::new(), Gate::new()];
            let callers: Vec<_> = (0..3)
                .map(|key: u32| Polled::begun(shared(&cache, key, &gates[key as usize])))
                .collect();
            let tasks: Vec<_> =
                lock(&spawned).drain(..).map(|future| runtime.spawn(future)).collect();
            assert_eq!(tasks.len(), 3);
            drop(callers);
            assert_eq!(cache.load_stats().in_flight, 3, "they go on");
            for key in [1, 2, 0] {
                gates[key].open(key as u32 + 10);
            }
            runtime.block_on(async {
                for task in tasks {
                    task.end().await;
                }
            });
            for key in 0..3 {
                assert_eq!(cache.get(&key), Some(key + 10), "{name}");
            }
            assert!(gates.iter().all(|gate| gate.entered() == 1));
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn can_13_a_load_that_ends_after_its_leader_has_left_is_stored_if_one_still_waits() {
    let cache = numbers(10);
    let gate = Gate::new();
    let leader = begin(Form::Shared, &cache, &gate);
    let mut follower = begin(Form::Shared, &cache, &gate);
    drop(leader);
    gate.open(3);
    // It is polled, and leaves with its answer unread.
    assert!(follower.poll().is_ready());
    drop(follower);
    assert_eq!((cache.get(&1), gate.entered()), (Some(3), 1));
    assert_at_rest(&cache);
}

#[test]
fn can_13_a_spawner_that_runs_the_load_at_once_will_do() {
    let cache: Numbers = Cache::builder()
        .max_entries(10)
        .spawner(|future: BoxFuture| block_on(future))
        .detached_loads(true)
        .build()
        .unwrap();
    assert_eq!(block_on(shared(&cache, 1, &Gate::opened(3))), Ok(3));
    assert_eq!((cache.get(&1), cache.load_stats().started), (Some(3), 1));
    assert_at_rest(&cache);
}
