//! Loads within loads, and user code that loads while a load is being begun or ended (DED, REE).

mod common;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::loads::{
    Form, Gate, PLANNED, Polled, Runtime, assert_at_rest, assert_at_rest_weighing,
    assert_no_load_runs, hush, until, until_waiting,
};
use common::{Later, lock, must_end};
use futures_lite::future::{block_on, yield_now, zip};
use seawall::{Cache, Clock, ErrorClass, LoadError, RemovalCause, Source, WhyStale};

type Numbers = Cache<u32, u32>;
/// What a load says whose loader asks for other keys.
type Nested = Result<u32, String>;
type Told = Result<u32, LoadError<String>>;

fn numbers(entries: u64) -> Numbers {
    Cache::new(entries)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The innermost of nested errors.
fn said(told: Told) -> Nested {
    told.map_err(|error| match error {
        LoadError::Failed(inner) => inner,
        LoadError::Reentrant => "reentrant".to_owned(),
        other => format!("{other:?}"),
    })
}

/// Asks for the first key with a loader that asks for the second, and so on; the last one's loader runs
/// `innermost`. Each level in a form of its own.
fn chain(cache: &Numbers, keys: &[(u32, Form)], innermost: &dyn Fn() -> Nested) -> Nested {
    let Some((&(key, form), rest)) = keys.split_first() else { return innermost() };
    let load = || chain(cache, rest, innermost);
    said(match form {
        Form::Blocking => cache.get_or_load(&key, load),
        // Its future runs the rest on this thread, when it is polled.
        Form::Local => block_on(cache.load(&key).run_local(|_| async { load() }))
            .map(|outcome| outcome.value.unwrap()),
        Form::Shared => unreachable!("its future owns what it uses"),
    })
}

type BoxedNested = Pin<Box<dyn Future<Output = Nested> + Send>>;

/// As [`chain`], with shared futures.
fn chain_async(cache: Numbers, keys: Vec<u32>, innermost: BoxedNested) -> BoxedNested {
    Box::pin(async move {
        let Some((&key, rest)) = keys.split_first() else { return innermost.await };
        let next = chain_async(cache.clone(), rest.to_vec(), innermost);
        said(cache.get_or_load_async(&key, || next).await)
    })
}

// REE-02

#[test]
fn ree_02_a_loader_that_asks_for_its_own_key_is_told_so() {
    use Form::{Blocking, Local};
    must_end(|| {
        let cache = numbers(10);
        let none = || unreachable!("the circle is found before");
        for first in [Blocking, Local] {
            for second in [Blocking, Local] {
                let chain = |keys: &[u32]| {
                    let forms = [first, second].into_iter().cycle();
                    let keys: Vec<_> = keys.iter().copied().zip(forms).collect();
                    chain(&cache, &keys, &none)
                };
                for keys in [&[1, 1][..], &[1, 2, 1], &[1, 2, 3, 4, 5, 6, 3], &[1, 2, 2]] {
                    assert_eq!(chain(keys), Err("reentrant".to_owned()), "{keys:?}");
                    assert_at_rest(&cache);
                    assert!(cache.is_empty());
                }
            }
        }
        assert_eq!(Blocking.call(&cache, &1, &Gate::opened(3)), Ok(3), "it is usable");
    });
}

#[test]
fn ree_02_a_future_that_asks_for_its_own_key_is_told_so() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            for keys in [&[1, 1][..], &[1, 2, 1], &[1, 2, 3, 4, 5, 6, 3], &[1, 2, 2]] {
                let cache = numbers(10);
                let none = Box::pin(async { unreachable!("the circle is found before") });
                let told = runtime.block_on(chain_async(cache.clone(), keys.to_vec(), none));
                assert_eq!(told, Err("reentrant".to_owned()), "{name}, {keys:?}");
                assert!(cache.is_empty());
                assert_eq!(Form::Shared.call(&cache, &1, &Gate::opened(3)), Ok(3));
                assert_at_rest(&cache);
            }
        }
    });
}

#[test]
fn ree_02_a_loader_may_nest_a_load_in_another_form() {
    must_end(|| {
        let cache = numbers(10);
        // A future in a blocking loader, which asks for the key of that.
        let told = cache.get_or_load(&1, || {
            said(block_on(cache.get_or_load_async(&2, || {
                let cache = cache.clone();
                async move { said(cache.get_or_load(&1, || Ok::<u32, String>(0))) }
            })))
        });
        assert_eq!(said(told), Err("reentrant".to_owned()));
        let told = cache.get_or_load(&1, || {
            said(block_on(cache.get_or_load_async(&2, || async { Ok::<u32, String>(2) })))
        });
        assert_eq!(told, Ok(2));
        assert_at_rest(&cache);
    });
}

#[test]
fn ree_02_loads_of_different_keys_may_nest_deeply() {
    must_end(|| {
        let cache = numbers(1_000);
        let forms = [Form::Blocking, Form::Local].into_iter().cycle();
        let keys: Vec<_> = (0..40).zip(forms).collect();
        assert_eq!(chain(&cache, &keys, &|| Ok(7)), Ok(7));
        assert_eq!(cache.len(), 40);
        let keys = (100..140).collect();
        let told = block_on(chain_async(cache.clone(), keys, Box::pin(async { Ok(8) })));
        assert_eq!((told, cache.len()), (Ok(8), 80));
        assert_at_rest(&cache);
    });
}

#[test]
fn ree_02_a_loader_may_use_a_key_of_its_own_when_that_has_a_value() {
    let (clock, hand) = Clock::manual();
    let cache: Numbers = Cache::builder()
        .max_entries(10)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(10))
        .stale_if_error(secs(30))
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(15));
    let told = cache.get_or_load(&1, || cache.get_or_load(&1, || 100).unwrap() + 1);
    assert_eq!(told, Ok(2), "the stale value");
    hand.advance(secs(25));
    let told =
        cache.load(&1).run(|_| cache.get_or_load(&1, || 100).map_err(|it| format!("{it:?}")));
    assert_eq!(told.unwrap().source, Source::Stale(WhyStale::Failed), "past that there is none");
    cache.insert(1, 1).unwrap();
    let told = cache.load(&1).refresh().run(|_| cache.get_or_load(&1, || 100).unwrap() + 5);
    assert_eq!(told.unwrap().value, Some(6), "a fresh one, while it is loaded on demand");
    assert_at_rest(&cache);
}

#[test]
fn ree_02_a_refresh_of_the_key_from_within_its_loader_does_not_wait_for_itself() {
    must_end(|| {
        let cache = numbers(10);
        // Missing.
        let told = cache.load(&1).run(|_| cache.load(&1).refresh().run(|_| 1).map(|it| it.value));
        assert_eq!(told.unwrap_err(), LoadError::Failed(LoadError::Reentrant));
        let load = {
            let cache = cache.clone();
            async move { cache.load(&1).refresh().run_async(|_| async { 1 }).await.map(|it| it.value) }
        };
        let told = block_on(cache.load(&1).run_async(|_| load));
        assert_eq!(told.unwrap_err(), LoadError::Failed(LoadError::Reentrant));
        // With a value.
        cache.insert(1, 1).unwrap();
        let inner = cache.load(&1).refresh().run(|_| {
            let inner = cache.load(&1).refresh().run(|_| -> u32 { unreachable!() });
            match inner {
                Ok(outcome) => outcome.value.ok_or(LoadError::Absent),
                Err(error) => Err(error),
            }
        });
        match inner {
            Ok(outcome) => assert_eq!(outcome.value, Some(1)),
            Err(error) => assert_eq!(error, LoadError::Failed(LoadError::Reentrant)),
        }
        assert_at_rest(&cache);
    });
}

/// The loaders of two keys ask for each other's, at the same time: one is told, and both end.
fn cross(outer: [&'static [u32]; 2], shared: bool) {
    let cache = numbers(10);
    let barrier = Arc::new(Barrier::new(2));
    let threads: Vec<_> = (0..2)
        .map(|n| {
            let (cache, barrier) = (cache.clone(), Arc::clone(&barrier));
            let mine = outer[n];
            let target = outer[1 - n][0];
            thread::spawn(move || {
                if shared {
                    let inner = cache.clone();
                    let innermost = Box::pin(async move {
                        barrier.wait();
                        said(
                            inner
                                .get_or_load_async(&target, || async { Ok::<u32, String>(0) })
                                .await,
                        )
                    });
                    return block_on(chain_async(cache, mine.to_vec(), innermost));
                }
                let keys: Vec<_> = mine.iter().map(|&key| (key, Form::Blocking)).collect();
                chain(&cache, &keys, &|| {
                    barrier.wait();
                    said(cache.get_or_load(&target, || Ok::<u32, String>(0)))
                })
            })
        })
        .collect();
    let told: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
    // Who is told ends, and its key's load with its error, which the other one gets or loads anew after.
    assert!(told.contains(&Err("reentrant".to_owned())), "{told:?}");
    let known = [Ok(0), Err("reentrant".to_owned())];
    assert!(told.iter().all(|told| known.contains(told)), "{told:?}");
    assert_no_load_runs(&cache);
    for key in outer.concat() {
        assert!(cache.get_or_load(&key, || 1).is_ok(), "it is usable");
    }
    assert_at_rest(&cache);
}

#[test]
#[cfg_attr(miri, ignore = "a race that is run many times")]
fn ree_02_two_threads_whose_loaders_ask_for_each_others_keys() {
    must_end(|| {
        for shared in [false, true] {
            for _ in 0..100 {
                cross([&[1], &[2]], shared);
                // The circle goes through a load that a thread runs within another.
                cross([&[1, 11], &[2]], shared);
                cross([&[1, 11, 12], &[2, 21]], shared);
            }
        }
    });
}

/// As above, one after the other: the second one to wait is told, for certain.
#[test]
fn ree_02_the_one_who_would_close_a_circle_is_told() {
    must_end(|| {
        for keys in [&[(1, Form::Blocking)][..], &[(1, Form::Blocking), (11, Form::Blocking)]] {
            for form in [Form::Blocking, Form::Local] {
                let keys: Vec<_> = keys.iter().map(|&(key, _)| (key, form)).collect();
                let cache = numbers(10);
                let gate = Gate::new();
                let first = {
                    let (cache, gate) = (cache.clone(), gate.clone());
                    thread::spawn(move || {
                        chain(&cache, &keys, &|| {
                            gate.pass();
                            said(cache.get_or_load(&2, || Ok::<u32, String>(0)))
                        })
                    })
                };
                gate.until_entered(1);
                let told = cache.get_or_load(&2, || {
                    gate.open(());
                    // It waits for this load.
                    until_waiting(&cache, 1);
                    said(cache.get_or_load(&1, || Ok::<u32, String>(0)))
                });
                assert_eq!(said(told), Err("reentrant".to_owned()));
                assert_eq!(first.join().unwrap(), Err("reentrant".to_owned()), "told in turn");
                assert_at_rest(&cache);
            }
        }
    });
}

#[test]
fn ree_02_three_threads_in_a_circle() {
    must_end(|| {
        for _ in 0..50 {
            let cache = numbers(10);
            let barrier = Arc::new(Barrier::new(3));
            let threads: Vec<_> = (0..3_u32)
                .map(|n| {
                    let (cache, barrier) = (cache.clone(), Arc::clone(&barrier));
                    thread::spawn(move || {
                        said(cache.get_or_load(&n, || {
                            barrier.wait();
                            said(cache.get_or_load(&((n + 1) % 3), || Ok::<u32, String>(0)))
                        }))
                    })
                })
                .collect();
            let told: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
            assert!(told.contains(&Err("reentrant".to_owned())), "{told:?}");
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn ree_02_two_tasks_in_a_circle_on_any_executor() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            for _ in 0..20 {
                let cache = numbers(10);
                let task = |mine: u32, other: u32| {
                    let cache = cache.clone();
                    let inner = cache.clone();
                    runtime.spawn(async move {
                        let load = async move {
                            // Both keys are being loaded by now.
                            while inner.load_stats().started < 2 {
                                yield_now().await;
                            }
                            said(
                                inner
                                    .get_or_load_async(&other, || async { Ok::<u32, String>(0) })
                                    .await,
                            )
                        };
                        said(cache.get_or_load_async(&mine, || load).await)
                    })
                };
                let tasks = (task(1, 2), task(2, 1));
                let told = runtime.block_on(zip(tasks.0.end(), tasks.1.end()));
                let reentrant = Err("reentrant".to_owned());
                assert!(told.0 == reentrant || told.1 == reentrant, "{name}: {told:?}");
                assert_at_rest(&cache);
            }
        }
    });
}

#[test]
fn ree_02_no_circle_is_seen_where_there_is_none() {
    must_end(|| {
        let cache = numbers(100);
        // Two loaders that ask for the same third key; one that asks for many; one that asks twice.
        let gate = Gate::new();
        let third = Form::Shared.begin(&cache, 3, &gate);
        gate.until_entered(1);
        let threads: Vec<_> = [1, 2]
            .map(|key| {
                let (cache, gate) = (cache.clone(), gate.clone());
                thread::spawn(move || {
                    said(cache.get_or_load(&key, || {
                        let first = Form::Blocking.call(&cache, &3, &gate);
                        let second = Form::Shared.call(&cache, &3, &gate);
                        assert_eq!(first, second);
                        (10..20)
                            .for_each(|key| assert_eq!(cache.get_or_load(&key, || key), Ok(key)));
                        first.map_err(|error| format!("{error:?}"))
                    }))
                })
            })
            .into();
        until_waiting(&cache, 2);
        // One that waits for those, while it is waited for by nobody.
        let last = {
            let cache = cache.clone();
            thread::spawn(move || {
                said(cache.get_or_load(&4, || said(cache.get_or_load(&1, || Ok::<u32, String>(0)))))
            })
        };
        until_waiting(&cache, 3);
        gate.open(9);
        assert_eq!(third.join().unwrap(), Ok(9));
        assert!(threads.into_iter().all(|it| it.join().unwrap() == Ok(9)));
        assert_eq!(last.join().unwrap(), Ok(9));
        assert_at_rest(&cache);
    });
}

/// A loader that has stopped waiting for a key may be waited for by that.
#[test]
fn ree_02_what_a_loader_waited_for_before_counts_no_more() {
    must_end(|| {
        let cache = numbers(10);
        let (gate, up) = (Gate::<u32>::new(), Gate::<()>::new());
        let second = {
            let (cache, gate) = (cache.clone(), gate.clone());
            thread::spawn(move || {
                said(cache.get_or_load(&2, || {
                    gate.pass();
                    // The loader of 1 waited for this one, and has given up.
                    said(cache.get_or_load(&1, || Ok::<u32, String>(0)))
                }))
            })
        };
        gate.until_entered(1);
        let first = {
            let (cache, up) = (cache.clone(), up.clone());
            thread::spawn(move || {
                let (inner, held) = (cache.clone(), up.clone());
                let load = async move {
                    {
                        let mut call = std::pin::pin!(inner.get_or_load_async(&2, || async { 0 }));
                        assert!(futures_lite::future::poll_once(call.as_mut()).await.is_none());
                    }
                    held.pass_async().await;
                    Ok::<u32, String>(5)
                };
                said(block_on(cache.get_or_load_async(&1, || load)))
            })
        };
        up.until_entered(1);
        gate.open(0);
        until_waiting(&cache, 1);
        up.open(());
        assert_eq!(first.join().unwrap(), Ok(5));
        assert_eq!(second.join().unwrap(), Ok(5));
        assert_at_rest(&cache);
    });
}

// REE-04, REE-06: user code at the beginning and at the end of a load.

/// Loads a key, bounded in time: what would wait for itself fails and does not hang.
fn load_within(cache: &Numbers, key: u32) -> Result<Option<u32>, LoadError<Infallible>> {
    cache.load(&key).timeout(secs(2)).run(|_| 70).map(|outcome| outcome.value)
}

/// What user code that loads the very key whose load is beginning or ending may be told.
fn is_no_hang(told: &Result<Option<u32>, LoadError<Infallible>>) -> bool {
    matches!(told, Ok(_) | Err(LoadError::Reentrant))
}

/// A cache whose entries expire, and what makes them: a clock of real time, so that timeouts end, which can
/// be set forward.
fn expiring(
    listener: impl Fn(&u32, &u32, RemovalCause) + Send + Sync + 'static,
) -> (Numbers, Arc<AtomicU64>) {
    let (begin, ahead) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let secs_ahead = Arc::clone(&ahead);
    let cache = Cache::builder()
        .max_entries(10)
        .max_in_flight(3)
        .time_to_live(secs(1_000))
        .removal_listener(listener)
        .clock(Clock::from_fn(move || begin.elapsed() + secs(secs_ahead.load(SeqCst))))
        .build()
        .unwrap();
    (cache, ahead)
}

#[test]
fn ree_04_a_listener_may_load_also_the_key_that_it_is_told_of() {
    must_end(|| {
        for form in Form::ALL {
            let later: Later<Numbers> = Later::new();
            let told: Arc<Mutex<Vec<_>>> = Arc::default();
            let (cache, ahead) = {
                let (later, told) = (later.clone(), Arc::clone(&told));
                let busy = AtomicBool::new(false);
                expiring(move |key, _, _| {
                    let Some(cache) = later.get() else { return };
                    if !busy.swap(true, SeqCst) {
                        let other = load_within(&cache, key + 100);
                        let same = load_within(&cache, *key);
                        lock(&told).extend([other, same]);
                        busy.store(false, SeqCst);
                    }
                })
            };
            later.set(cache.clone());
            // A load that finds it expired.
            cache.insert(1, 1).unwrap();
            ahead.store(1_500, SeqCst);
            assert_eq!(form.call(&cache, &1, &Gate::opened(2)), Ok(2));
            // Replaced by a load, removed, invalidated.
            let outcome = cache.load(&1).refresh().run(|_| 3).unwrap();
            assert_eq!(outcome.value, Some(3));
            cache.remove(&1);
            cache.insert(2, 1).unwrap();
            cache.invalidate(&2);
            // Taken out by a load that says that it is absent.
            cache.insert(3, 1).unwrap();
            let outcome = cache.load(&3).refresh().run(|_| None::<u32>).unwrap();
            assert_eq!(outcome.value, None);
            // Evicted by a load.
            cache.set_capacity(1);
            assert_eq!(form.call(&cache, &4, &Gate::opened(2)), Ok(2));
            later.take();
            let told = lock(&told).clone();
            assert!(told.len() >= 10, "{}", told.len());
            assert!(told.iter().all(is_no_hang), "{form:?}: {told:?}");
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn ree_06_a_weigher_may_load_also_the_key_that_it_weighs() {
    must_end(|| {
        for form in Form::ALL {
            let later: Later<Numbers> = Later::new();
            let told: Arc<Mutex<Vec<_>>> = Arc::default();
            let cache: Numbers = {
                let (later, told) = (later.clone(), Arc::clone(&told));
                let busy = AtomicBool::new(false);
                Cache::builder()
                    .max_weight(100)
                    .max_in_flight(3)
                    .weigher(move |key: &u32, _| {
                        let Some(cache) = later.get() else { return 1 };
                        if !busy.swap(true, SeqCst) {
                            let other = load_within(&cache, key + 100);
                            let same = load_within(&cache, *key);
                            lock(&told).extend([other, same]);
                            busy.store(false, SeqCst);
                        }
                        1
                    })
                    .build()
                    .unwrap()
            };
            later.set(cache.clone());
            assert_eq!(form.call(&cache, &1, &Gate::opened(2)), Ok(2), "{form:?}");
            later.take();
            let told = lock(&told).clone();
            assert_eq!(told.len(), 2);
            assert!(told.iter().all(is_no_hang), "{form:?}: {told:?}");
            assert_at_rest_weighing(&cache, |_, _| 1);
        }
    });
}

#[test]
fn ree_06_a_classifier_may_load_also_the_key_whose_error_it_classifies() {
    must_end(|| {
        for form in Form::ALL {
            let later: Later<Numbers> = Later::new();
            let told: Arc<Mutex<Vec<_>>> = Arc::default();
            let cache: Numbers = {
                let (later, told) = (later.clone(), Arc::clone(&told));
                Cache::builder()
                    .max_entries(10)
                    .classify_errors(move |_: &&'static str| {
                        let cache = later.get().unwrap();
                        lock(&told).extend([load_within(&cache, 2), load_within(&cache, 1)]);
                        ErrorClass::Outage
                    })
                    .build()
                    .unwrap()
            };
            later.set(cache.clone());
            let gate: Gate<Result<u32, &'static str>> = Gate::opened(Err("down"));
            assert_eq!(form.call(&cache, &1, &gate), Err(LoadError::Failed("down")));
            later.take();
            let told = lock(&told).clone();
            assert!(told.len() == 2 && told.iter().all(is_no_hang), "{form:?}: {told:?}");
            assert_at_rest(&cache);
        }
    });
}

/// A value that loads when it is copied or dropped.
#[derive(Debug)]
struct Busy(u32, Later<(Cache<u32, Busy>, Arc<Mutex<Vec<bool>>>)>);

impl Busy {
    fn load(&self) {
        let Some((cache, told)) = self.1.get() else { return };
        // Only once.
        drop(self.1.take());
        for key in [2, 1] {
            let value = || Busy(7, Later::new());
            let outcome = cache.load(&key).timeout(secs(2)).run(|_| value());
            lock(&told).push(matches!(outcome, Ok(_) | Err(LoadError::Reentrant)));
        }
    }
}

impl Clone for Busy {
    fn clone(&self) -> Self {
        self.load();
        Busy(self.0, self.1.clone())
    }
}

#[test]
fn ree_06_a_value_may_load_also_its_own_key_when_it_is_copied() {
    must_end(|| {
        for form in Form::ALL {
            let cache: Cache<u32, Busy> = Cache::new(10);
            let told: Arc<Mutex<Vec<bool>>> = Arc::default();
            let later = Later::new();
            later.set((cache.clone(), Arc::clone(&told)));
            let gate = Gate::<()>::new();
            gate.open(());
            let value = Busy(1, later.clone());
            let told_value = match form {
                Form::Blocking => cache.get_or_load(&1, || value),
                Form::Shared => block_on(cache.get_or_load_async(&1, || async { value })),
                Form::Local => block_on(cache.load(&1).run_local(|_| async { value }))
                    .map(|outcome| outcome.value.unwrap()),
            };
            assert_eq!(told_value.unwrap().0, 1);
            drop(later.take());
            assert_eq!(*lock(&told), [true, true], "{form:?}");
            assert_no_load_runs(&cache);
        }
    });
}

/// What a loader's future holds, which loads when it is dropped.
struct Parting(Numbers, Arc<Mutex<Vec<Result<Option<u32>, LoadError<Infallible>>>>>);

impl Drop for Parting {
    fn drop(&mut self) {
        lock(&self.1).extend([load_within(&self.0, 2), load_within(&self.0, 1)]);
    }
}

#[test]
fn ree_06_a_loaders_future_may_load_also_its_own_key_when_it_is_dropped() {
    must_end(|| {
        for form in [Form::Shared, Form::Local] {
            for ends in [true, false] {
                let cache = numbers(10);
                let told: Arc<Mutex<Vec<_>>> = Arc::default();
                let gate = Gate::new();
                let (passed, parting) =
                    (gate.pass_async(), Parting(cache.clone(), Arc::clone(&told)));
                let load = async move {
                    let _parting = parting;
                    passed.await
                };
                let caller = match form {
                    Form::Local => Polled::begun(cache.load(&1).run_local(|_| load)),
                    _ => Polled::begun(cache.load(&1).run_async(|_| load)),
                };
                if ends {
                    gate.open(3);
                    assert_eq!(caller.finish().unwrap().value, Some(3));
                } else {
                    drop(caller);
                }
                let told = lock(&told).clone();
                assert!(
                    told.len() == 2 && told.iter().all(is_no_hang),
                    "{form:?}, {ends}: {told:?}"
                );
                assert_at_rest(&cache);
            }
        }
    });
}

// DED-01

#[test]
fn ded_01_loads_work_while_the_same_thread_holds_an_entry() {
    must_end(|| {
        let cache = Cache::builder().max_entries(100).hasher(common::Few(1)).build().unwrap();
        cache.insert(1_u32, 1_u32).unwrap();
        let pinned = cache.pin();
        let held = pinned.get(&1).unwrap();
        for (key, form) in (2..50).zip(Form::ALL.into_iter().cycle()) {
            assert_eq!(form.call(&cache, &key, &Gate::opened(key)), Ok(key));
        }
        cache.invalidate(&1);
        assert_eq!(Form::Blocking.call(&cache, &1, &Gate::opened(5)), Ok(5));
        let nested = cache.get_with(&1, |entry| {
            cache.get_or_load(&60, || *entry.value() + cache.get_or_load(&61, || 1).unwrap())
        });
        assert_eq!(nested, Some(Ok(6)));
        assert_eq!(*held.value(), 1);
        drop(pinned);
        assert_at_rest(&cache);
    });
}

// DED-03

#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn ded_03_nested_loads_in_a_cache_that_evicts_at_each_step() {
    const THREADS: u32 = 16;
    const ROUNDS: u32 = 400;
    must_end(|| {
        for capacity in [1, 3] {
            let cache = numbers(capacity);
            let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            thread::scope(|scope| {
                let loaders: Vec<_> = (0..THREADS)
                    .map(|n| {
                        let (cache, done) = (&cache, &done);
                        scope.spawn(move || {
                            for round in 0..ROUNDS {
                                nest(cache, n * 7 + round, Form::ALL[(n + round) as usize % 3]);
                                done.fetch_add(1, SeqCst);
                            }
                        })
                    })
                    .collect();
                let (cache, halt) = (&cache, &stop);
                scope.spawn(move || {
                    let mut key = 1_000;
                    while !halt.load(SeqCst) {
                        key += 1;
                        cache.insert(key, key).unwrap();
                        thread::yield_now();
                    }
                });
                loaders.into_iter().for_each(|loader| loader.join().unwrap());
                stop.store(true, SeqCst);
            });
            assert_eq!(done.load(SeqCst), u64::from(THREADS * ROUNDS));
            assert_at_rest(&cache);
        }
    });
}

/// Key A loads key B, both of a few; circles are told.
fn nest(cache: &Numbers, seed: u32, form: Form) {
    let (a, b) = (seed % 5, seed / 5 % 5);
    let inner = move |cache: &Numbers| said(cache.get_or_load(&b, || Ok::<u32, String>(0)));
    let told = said(match form {
        Form::Blocking => cache.get_or_load(&a, || inner(cache)),
        Form::Shared => {
            let owned = cache.clone();
            let load = async move {
                yield_now().await;
                said(owned.get_or_load_async(&b, || async { Ok::<u32, String>(0) }).await)
            };
            block_on(cache.get_or_load_async(&a, || load))
        }
        Form::Local => block_on(cache.load(&a).run_local(|_| async {
            yield_now().await;
            inner(cache)
        }))
        .map(|outcome| outcome.value.unwrap()),
    });
    assert!(told == Ok(0) || told == Err("reentrant".to_owned()), "{told:?}");
}

// DED-05

#[test]
fn ded_05_a_load_may_begin_on_one_thread_and_end_on_another() {
    must_end(|| {
        for form in [Form::Shared, Form::Local] {
            let cache = numbers(10);
            let gate = Gate::new();
            let (sender, receiver) = channel();
            let begins = {
                let (cache, gate) = (cache.clone(), gate.clone());
                thread::spawn(move || {
                    let mut call: Pin<Box<dyn Future<Output = u32> + Send>> =
                        Box::pin(async move {
                            match form {
                                Form::Local => {
                                    let load = cache.load(&1).run_local(|_| gate.pass_async());
                                    load.await.unwrap().value.unwrap()
                                }
                                _ => {
                                    cache.get_or_load_async(&1, || gate.pass_async()).await.unwrap()
                                }
                            }
                        });
                    let polled = block_on(futures_lite::future::poll_once(&mut call));
                    assert_eq!(polled, None);
                    sender.send(call).unwrap();
                })
            };
            let call = receiver.recv().unwrap();
            begins.join().unwrap();
            gate.open(4);
            let ends = thread::spawn(move || block_on(call));
            assert_eq!(ends.join().unwrap(), 4);
            assert_eq!(cache.get(&1), Some(4));
            cache.invalidate(&1);
            assert_eq!(form.call(&cache, &1, &Gate::opened(5)), Ok(5));
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn ded_05_a_blocking_loader_may_have_its_work_done_by_another_thread() {
    must_end(|| {
        let cache = numbers(10);
        let (jobs, queue) = channel::<Box<dyn FnOnce() -> u32 + Send>>();
        let (results, loaded) = channel();
        let pool = thread::spawn(move || {
            for job in queue {
                results.send(job()).unwrap();
            }
        });
        for round in 0..3 {
            let told = cache.get_or_load(&1, || {
                let cache = cache.clone();
                // The worker loads another key: the circle that it is not in must not be seen.
                let job = move || cache.get_or_load(&2, || round).unwrap() + 10;
                jobs.send(Box::new(job)).unwrap();
                loaded.recv().unwrap()
            });
            assert_eq!(told, Ok(round + 10));
            cache.invalidate_all();
        }
        drop(jobs);
        pool.join().unwrap();
        assert_at_rest(&cache);
    });
}

#[test]
fn ded_05_a_load_wanders_between_the_threads_of_a_runtime() {
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            let cache = numbers(10);
            let tasks: Vec<_> = (0..20)
                .map(|_| {
                    let cache = cache.clone();
                    runtime.spawn(async move {
                        let load = || async {
                            for _ in 0..50 {
                                yield_now().await;
                            }
                            1
                        };
                        for _ in 0..20 {
                            assert_eq!(cache.get_or_load_async(&1, load).await, Ok(1));
                            cache.invalidate(&1);
                        }
                    })
                })
                .collect();
            runtime.block_on(async {
                for task in tasks {
                    task.end().await;
                }
            });
            assert_no_load_runs(&cache);
            assert_eq!(Form::Blocking.call(&cache, &1, &Gate::opened(2)), Ok(2), "{name}");
            assert_at_rest(&cache);
        }
    });
}

// DED-07

/// How a load of a stale entry goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    Fails,
    Panics,
}

#[test]
fn ded_07_a_failed_load_of_a_stale_entry_lets_all_go_on() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            for covers in [true, false] {
                for trouble in [Trouble::Fails, Trouble::Panics] {
                    failed_revalidation(leader, trouble, covers);
                }
            }
        }
    });
}

fn outage_cache(covers: bool) -> Numbers {
    let (clock, hand) = Clock::manual();
    let class = if covers { ErrorClass::Outage } else { ErrorClass::Answer };
    let cache: Numbers = Cache::builder()
        .max_entries(10)
        .max_in_flight(1)
        .time_to_live(secs(10))
        .stale_if_error(secs(20))
        .classify_errors(move |_: &&'static str| class)
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(15));
    cache
}

fn failed_revalidation(leader: Form, trouble: Trouble, covers: bool) {
    let cache = outage_cache(covers);
    // A panic is an outage, whatever the errors are.
    let covered = covers || trouble == Trouble::Panics;
    let gate: Gate<Result<u32, &'static str>> = Gate::new();
    let first = leader.begin(&cache, 1, &gate);
    gate.until_entered(1);
    let before: Vec<_> = (0..5).map(|n| Form::ALL[n % 3].begin(&cache, 1, &gate)).collect();
    until_waiting(&cache, 5);
    match trouble {
        Trouble::Panics => gate.open_to_panic(PLANNED),
        Trouble::Fails => gate.open(Err("down")),
    }
    let expected = if covered { Ok(1) } else { Err(LoadError::Failed("down")) };
    match first.join() {
        Ok(told) => assert_eq!(told, expected),
        Err(_) => assert!(trouble == Trouble::Panics && leader != Form::Shared),
    }
    assert!(before.into_iter().all(|caller| caller.join().unwrap() == expected));
    assert_eq!(gate.entered(), 1);
    assert_no_load_runs(&cache);
    let down: Gate<Result<u32, &'static str>> = Gate::opened(Err("down"));
    let after = if covers { Ok(1) } else { Err(LoadError::Failed("down")) };
    for n in 0..5 {
        assert_eq!(Form::ALL[n % 3].call(&cache, &1, &down), after, "those who come after");
    }
    assert_eq!(leader.call(&cache, &1, &Gate::opened(Ok::<_, &str>(2))), Ok(2));
    assert_eq!(cache.get(&1), Some(2));
    assert_at_rest(&cache);
}

#[test]
fn ded_07_a_load_of_a_stale_entry_that_is_dropped_lets_all_go_on() {
    must_end(|| {
        for form in [Form::Shared, Form::Local] {
            let cache = outage_cache(true);
            let gate: Gate<Result<u32, &'static str>> = Gate::new();
            let down: Gate<Result<u32, &'static str>> = Gate::opened(Err("down"));
            let first = match form {
                Form::Local => Polled::begun(cache.load(&1).run_local(|_| gate.pass_async())),
                _ => Polled::begun(cache.load(&1).run_async(|_| gate.pass_async())),
            };
            let waiting: Vec<_> = match form {
                Form::Local => (0..5).map(|n| Form::ALL[n % 3].begin(&cache, 1, &down)).collect(),
                _ => Vec::new(),
            };
            until_waiting(&cache, waiting.len() as u64);
            drop(first);
            assert_eq!((gate.entered(), gate.inside()), (1, 0));
            assert!(waiting.into_iter().all(|caller| caller.join().unwrap() == Ok(1)));
            assert_eq!(Form::Shared.call(&cache, &1, &down), Ok(1));
            assert_eq!(form.call(&cache, &1, &Gate::opened(Ok::<_, &str>(2))), Ok(2));
            until(|| cache.load_stats().in_flight == 0);
            assert_at_rest(&cache);
        }
    });
}
