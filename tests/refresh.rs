//! What is served when a value is stale, and how it is loaded anew: refreshes (REF), stale windows
//! (EXP-15), remembered absences (NEG), and what else a clock decides about loads (EXP, ZER, LIS-04).

mod common;
#[path = "common/paced.rs"]
mod paced;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use common::loads::{
    Form, Gate, Polled, Runtime, assert_at_rest, assert_no_load_runs, until, until_waiting,
};
use common::{Few, Told, ignore, must_end};
use paced::{
    Background, FORMS, Paused, Said, good_for_errors, never, on_threads, secs, stale_for_a_minute,
};
use seawall::{
    Cache, Clock, ConfigError, EntryState, ErrorClass, InsertOptions, Load, LoadError, Outcome,
    Reason, RemovalCause, Source, WhyStale,
};

const REFRESHING: Source = Source::Stale(WhyStale::Refreshing);

fn down() -> Gate<Said> {
    Gate::opened(Err("down"))
}

fn says(value: u64) -> Gate<Said> {
    Gate::opened(Ok(Load::Value(value)))
}

fn state(cache: &Cache<u64, u64>) -> Option<(u64, EntryState)> {
    cache.get_on_error(&1)
}

// REF-01

#[test]
fn ref_01_all_readers_of_a_stale_value_get_it_at_once_while_one_refreshes() {
    for form in FORMS {
        must_end(move || {
            let it = Background::with(form, |builder| builder.wait_timeout(secs(5)));
            for _ in 0..50 {
                assert_eq!(it.ask(), Ok(1), "{form:?}");
            }
            it.gate.until_entered(1);
            for _ in 0..50 {
                assert_eq!(it.ask(), Ok(1), "{form:?}");
            }
            assert_eq!(it.cache.load_stats().waiting, 0);
            it.gate.open(Ok(Load::Value(2)));
            until(|| it.cache.get(&1) == Some(2));
            it.until_rest();
            let stats = it.cache.load_stats();
            assert_eq!((it.gate.entered(), stats.started, stats.refreshes), (1, 1, 1));
            assert_eq!((stats.joined, stats.waits_timed_out), (0, 0));
            assert_eq!((stats.served_stale, stats.stale_age.count()), (100, 100));
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn ref_01_without_a_background_one_caller_refreshes_and_all_others_are_served_at_once() {
    for form in Form::ALL {
        must_end(move || {
            let (builder, hand) = stale_for_a_minute();
            let cache = builder.wait_timeout(secs(5)).build().unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(10));
            let gate = Gate::new();
            let first = form.begin(&cache, 1, &gate);
            gate.until_entered(1);
            for other in Form::ALL {
                for _ in 0..20 {
                    assert_eq!(other.call(&cache, &1, &gate), Ok(1), "{form:?}, {other:?}");
                }
            }
            gate.open(Ok::<_, &str>(Load::Value(2)));
            assert_eq!(first.join().unwrap(), Ok(2));
            assert_eq!((gate.entered(), cache.get(&1)), (1, Some(2)));
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn ref_01_readers_that_come_together_start_one_refresh() {
    for form in FORMS {
        must_end(move || {
            let it = Arc::new(Background::new(form));
            let readers: Vec<_> = (0..16)
                .map(|_| {
                    let it = Arc::clone(&it);
                    thread::spawn(move || assert_eq!(it.ask(), Ok(1)))
                })
                .collect();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            it.gate.open(Ok(Load::Value(2)));
            until(|| it.cache.get(&1) == Some(2));
            it.until_rest();
            assert_eq!((it.gate.entered(), it.cache.load_stats().started), (1, 1));
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn ref_01_tasks_on_every_runtime_are_served_while_a_task_refreshes() {
    for (name, runtime) in Runtime::each() {
        let (builder, hand) = stale_for_a_minute();
        let spawned = Paused::default();
        let cache = builder.spawner(spawned.spawner()).build().unwrap();
        cache.insert(1, 1).unwrap();
        hand.advance(secs(10));
        let gate = Gate::opened(Ok::<_, &str>(Load::Value(2)));
        runtime.block_on(async {
            let tasks: Vec<_> = (0..20)
                .map(|_| {
                    let (cache, gate) = (cache.clone(), gate.clone());
                    runtime.spawn(
                        async move { cache.get_or_load_async(&1, || gate.pass_async()).await },
                    )
                })
                .collect();
            for task in tasks {
                assert_eq!(task.end().await, Ok(1), "{name}");
            }
        });
        assert_eq!((spawned.len(), gate.entered()), (1, 0), "{name}");
        spawned.run();
        assert_eq!((gate.entered(), cache.get(&1)), (1, Some(2)), "{name}");
        assert_at_rest(&cache);
    }
}

// REF-03

#[test]
fn ref_03_every_refresh_is_stored_however_many_readers_look_meanwhile() {
    for form in FORMS {
        must_end(move || {
            let (builder, hand) = stale_for_a_minute();
            let origin = Arc::new(AtomicU64::new(1));
            let said = Arc::clone(&origin);
            let builder = builder.refresh_with(move |_| said.load(SeqCst)).spawner(on_threads());
            let cache = builder.build().unwrap();
            cache.insert(1, 1).unwrap();
            let (rounds, over) = (400, AtomicBool::new(false));
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while !over.load(SeqCst) {
                            let said = Arc::clone(&origin);
                            ignore(match form {
                                Form::Blocking => cache.get_or_load(&1, || said.load(SeqCst)),
                                _ => futures_lite::future::block_on(
                                    cache
                                        .get_or_load_async(&1, || async move { said.load(SeqCst) }),
                                ),
                            });
                            thread::yield_now();
                        }
                    });
                }
                for round in 2..=rounds {
                    origin.store(round, SeqCst);
                    hand.advance(secs(10));
                    until(|| state(&cache) == Some((round, EntryState::Fresh)));
                }
                over.store(true, SeqCst);
            });
            until(|| cache.load_stats().in_flight == 0);
            let stats = cache.load_stats();
            assert_eq!((stats.started, stats.not_stored), (rounds - 1, 0), "{form:?}");
            assert_eq!(cache.stats().replaced, rounds - 1);
            assert_at_rest(&cache);
        });
    }
}

/// A key that is compared slowly by a thread that was asked to: at one comparison, counted from 1.
#[derive(Clone, Debug)]
struct Compared(u64, Gate<()>);

thread_local! {
    static COMPARISONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl PartialEq for Compared {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.with(|left| {
            left.set(left.get().saturating_sub(usize::from(left.get() > 1)));
            if left.get() == 1 {
                left.set(0);
                self.1.pass();
            }
        });
        self.0 == other.0
    }
}

impl Eq for Compared {}

impl std::hash::Hash for Compared {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn ref_03_who_found_the_value_before_it_was_refreshed_begins_no_second_load() {
    // At each of the comparisons that a call makes.
    for comparison in 1..=4 {
        must_end(move || {
            let (clock, hand) = Clock::manual();
            let cache: Cache<Compared, u64> = Cache::builder()
                .max_entries(10)
                .time_to_live(secs(10))
                .stale_while_revalidate(secs(60))
                .clock(clock)
                .build()
                .unwrap();
            let (paused, gate) = (Gate::new(), Gate::new());
            let key = Compared(1, paused.clone());
            cache.insert(key.clone(), 1).unwrap();
            hand.advance(secs(10));
            thread::scope(|scope| {
                let leader = scope.spawn(|| cache.get_or_load(&key, || gate.pass()));
                gate.until_entered(1);
                let reader = scope.spawn(|| {
                    COMPARISONS.with(|left| left.set(comparison + 1));
                    cache.get_or_load(&key, || gate.pass())
                });
                until(|| paused.entered() == 1 || reader.is_finished());
                gate.open(2);
                assert_eq!(leader.join().unwrap(), Ok(2));
                paused.open(());
                assert!(matches!(reader.join().unwrap(), Ok(1 | 2)));
            });
            assert_eq!(gate.entered(), 1, "at comparison {comparison}");
            assert_eq!(cache.get(&key), Some(2));
            assert_at_rest(&cache);
        });
    }
}

// REF-05

#[test]
fn ref_05_a_refresh_that_finds_the_key_gone_ends_the_old_value() {
    for form in FORMS {
        for remembered in [false, true] {
            must_end(move || {
                let told = Told::new();
                let ttl = if remembered { secs(5) } else { Duration::ZERO };
                let it = Background::with(form, |builder| {
                    builder.absent_time_to_live(ttl).removal_listener(told.listener())
                });
                assert_eq!(it.ask(), Ok(1));
                it.gate.open(Ok(Load::Absent));
                it.until_rest();
                until(|| it.cache.load_stats().absent == 1 && it.cache.get(&1).is_none());
                assert_eq!(it.cache.get_on_error(&1), None);
                it.gate.until_entered(1);
                for _ in 0..10 {
                    assert_eq!(it.ask(), Err(LoadError::Absent), "{form:?}");
                }
                let loads = if remembered { 1 } else { 11 };
                assert_eq!(it.gate.entered(), loads, "{form:?}");
                it.hand.advance(secs(5));
                assert_eq!(it.ask(), Err(LoadError::Absent));
                assert_eq!(it.gate.entered(), loads + 1, "{form:?}");
                let told = told.take();
                assert_eq!(told.len(), 1, "{told:?}");
                assert_eq!((told[0].0, told[0].1), (1, 1));
                assert_no_load_runs(&it.cache);
            });
        }
    }
}

#[test]
fn ref_05_an_absence_found_by_a_caller_is_its_answer_although_a_stale_value_is_there() {
    for form in Form::ALL {
        for (builder, hand) in [stale_for_a_minute(), good_for_errors()] {
            let cache = builder.build().unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(10));
            let absent = Gate::opened(Ok::<_, &str>(Load::<u64>::Absent));
            assert_eq!(form.call(&cache, &1, &absent), Err(LoadError::Absent), "{form:?}");
            assert_eq!(state(&cache), None);
            assert_at_rest(&cache);
        }
    }
}

// REF-07

#[test]
fn ref_07_no_waiter_takes_a_load_that_ended_well_for_an_abandoned_one() {
    must_end(|| {
        for round in 0..300 {
            let cache: Cache<u64, u64> = Cache::new(10);
            let gate = Gate::new();
            let leader = Form::ALL[round % 3].begin(&cache, 1, &gate);
            gate.until_entered(1);
            let mut waiters: Vec<_> = (0..200)
                .map(|_| {
                    let (cache, gate) = (cache.clone(), gate.clone());
                    Polled::begun(
                        async move { cache.get_or_load_async(&1, || gate.pass_async()).await },
                    )
                })
                .collect();
            assert_eq!(cache.load_stats().waiting, 200);
            gate.open(7);
            // Polled while the leader is publishing.
            let mut told = 0;
            while told < 200 {
                waiters.retain_mut(|waiter| match waiter.poll() {
                    Poll::Ready(answer) => {
                        assert_eq!(answer, Ok(7));
                        told += 1;
                        false
                    }
                    Poll::Pending => true,
                });
            }
            assert_eq!(leader.join().unwrap(), Ok(7));
            let stats = cache.load_stats();
            assert_eq!((stats.started, stats.abandoned, gate.entered()), (1, 0, 1));
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn ref_07_no_blocked_waiter_takes_over_a_load_that_ended_well() {
    must_end(|| {
        for round in 0..60 {
            let cache: Cache<u64, u64> = Cache::new(10);
            let gate = Gate::new();
            let leader = Form::ALL[round % 3].begin(&cache, 1, &gate);
            gate.until_entered(1);
            let waiters: Vec<_> = (0..16).map(|_| Form::Blocking.begin(&cache, 1, &gate)).collect();
            until_waiting(&cache, 16);
            gate.open(7);
            waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), Ok(7)));
            assert_eq!(leader.join().unwrap(), Ok(7));
            assert_eq!((cache.load_stats().abandoned, gate.entered()), (0, 1));
            assert_at_rest(&cache);
        }
    });
}

// REF-09

#[test]
fn ref_09_stale_reads_while_the_executor_is_held_up_queue_one_refresh() {
    let (builder, hand) = stale_for_a_minute();
    let paused = Paused::default();
    let cache = builder.spawner(paused.spawner()).build().unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    let gate = Gate::opened(2);
    for _ in 0..100 {
        assert_eq!(Form::Shared.call(&cache, &1, &gate), Ok(1));
        assert_eq!((paused.len(), gate.entered()), (1, 0));
    }
    assert_eq!(cache.load_stats().in_flight, 1);
    paused.run();
    assert_eq!((gate.entered(), cache.get(&1)), (1, Some(2)));
    assert_eq!(cache.load_stats().started, 1);
    assert_at_rest(&cache);
}

#[test]
fn ref_09_stale_reads_while_the_caches_threads_are_busy_queue_one_refresh() {
    must_end(|| {
        let it = Background::with(Form::Blocking, |builder| builder.refresh_threads(1));
        it.cache.insert_with(2, 2, InsertOptions::new().age(secs(10))).unwrap();
        assert_eq!(it.ask(), Ok(1));
        it.gate.until_entered(1);
        for _ in 0..100 {
            assert_eq!(it.cache.get_or_load(&2, || Err::<u64, _>("not this one")), Ok(2));
        }
        assert_eq!(it.cache.load_stats().in_flight, 2);
        assert_eq!(it.gate.entered(), 1);
        it.gate.open(Ok(Load::Value(9)));
        until(|| it.cache.get(&2) == Some(9));
        it.until_rest();
        assert_eq!(it.cache.load_stats().started, 2);
        assert_at_rest(&it.cache);
    });
}

#[test]
fn ref_09_a_refresh_that_the_executor_drops_is_begun_anew() {
    let (builder, hand) = stale_for_a_minute();
    let paused = Paused::default();
    let cache = builder.spawner(paused.spawner()).build().unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    let gate = Gate::opened(2);
    assert_eq!(Form::Shared.call(&cache, &1, &gate), Ok(1));
    paused.discard();
    assert_eq!((cache.load_stats().abandoned, cache.load_stats().in_flight), (1, 0));
    assert_eq!(state(&cache), Some((1, EntryState::Stale)));
    assert_eq!(Form::Shared.call(&cache, &1, &gate), Ok(1));
    paused.run();
    assert_eq!(cache.get(&1), Some(2));
    assert_at_rest(&cache);
}

#[test]
fn an_executor_that_drops_what_it_is_given_at_once_harms_nobody() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.spawner(|future: seawall::BoxFuture| drop(future)).build().unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    for round in 1..=3 {
        assert_eq!(Form::Shared.call(&cache, &1, &says(2)), Ok(1));
        assert_eq!(cache.load_stats().abandoned, round);
    }
    assert_eq!(Form::Blocking.call(&cache, &1, &says(2)), Ok(2));
    assert_at_rest(&cache);
}

#[test]
fn a_refresh_that_panics_on_the_caches_thread_leaves_the_thread_and_the_value() {
    must_end(|| {
        let it = Background::with(Form::Blocking, |builder| builder.refresh_threads(1));
        it.gate.open_to_panic("the refresh");
        for panics in 1..=5 {
            assert_eq!(it.ask(), Ok(1));
            it.until_rest();
            until(|| it.cache.load_stats().panicked == panics);
        }
        assert_eq!(it.cache.limits().counts().failed, 5);
        it.gate.open(Ok(Load::Value(2)));
        assert_eq!(it.ask(), Ok(1));
        until(|| it.cache.get(&1) == Some(2));
        it.until_rest();
        assert_at_rest(&it.cache);
    });
}

#[test]
fn an_executor_that_runs_what_it_is_given_at_once_will_do() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder
        .spawner(|future: seawall::BoxFuture| futures_lite::future::block_on(future))
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    assert_eq!(Form::Shared.call(&cache, &1, &says(2)), Ok(1));
    assert_eq!(state(&cache), Some((2, EntryState::Fresh)));
    assert_at_rest(&cache);
}

#[test]
fn an_executor_that_panics_harms_nobody_but_its_caller() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.spawner(|_: seawall::BoxFuture| panic!("no executor")).build().unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    assert!(common::panics(|| ignore(Form::Shared.call(&cache, &1, &says(2)))));
    assert_no_load_runs(&cache);
    assert_eq!(Form::Blocking.call(&cache, &1, &says(2)), Ok(2));
    assert_at_rest(&cache);
}

// The windows

#[test]
fn each_window_ends_to_the_millisecond() {
    let millisecond = Duration::from_millis(1);
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(secs(10))
            .stale_while_revalidate(secs(20))
            .stale_if_error(secs(30))
            .clock(clock)
            .build()
            .unwrap();
        cache.insert(1, 1).unwrap();
        let ask = |at| {
            hand.set(at);
            form.call(&cache, &1, &down())
        };
        let loads = || cache.load_stats().started;
        assert_eq!(ask(secs(10) - millisecond), Ok(1), "{form:?}: fresh");
        assert_eq!((loads(), cache.get(&1)), (0, Some(1)));
        assert_eq!(ask(secs(10)), Ok(1), "{form:?}: stale");
        assert_eq!((loads(), cache.get(&1)), (1, Some(1)));
        assert_eq!(ask(secs(30) - millisecond), Ok(1), "{form:?}: stale");
        assert_eq!((loads(), cache.get(&1)), (2, Some(1)));
        assert_eq!(ask(secs(30)), Ok(1), "{form:?}: stands in for errors");
        assert_eq!((loads(), cache.get(&1)), (3, None));
        assert_eq!(ask(secs(40) - millisecond), Ok(1), "{form:?}: stands in for errors");
        assert_eq!(ask(secs(40)), Err(LoadError::Failed("down")), "{form:?}: dead");
        assert_eq!((loads(), state(&cache)), (5, None));
    }
}

#[test]
fn every_loader_is_told_why_it_is_called_and_what_there_was() {
    let (clock, hand) = Clock::manual();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(10)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(20))
        .stale_if_error(secs(30))
        .clock(clock)
        .build()
        .unwrap();
    let ask = |refresh: bool| {
        let mut told = None;
        let request = cache.load(&1);
        let request = if refresh { request.refresh() } else { request };
        ignore(request.run(|context| {
            told = Some((context.reason, context.previous, context.attempt));
            Err::<u64, _>("down")
        }));
        told
    };
    assert_eq!(ask(false), Some((Reason::Missing, None, 1)));
    cache.insert(1, 1).unwrap();
    assert_eq!(ask(false), None);
    assert_eq!(ask(true), Some((Reason::Asked, Some(1), 1)));
    hand.set(secs(10));
    assert_eq!(ask(false), Some((Reason::Stale, Some(1), 1)));
    hand.set(secs(30));
    assert_eq!(ask(false), Some((Reason::StaleOnError, Some(1), 1)));
    hand.set(secs(40));
    assert_eq!(ask(false), Some((Reason::Expired, None, 1)));
    assert_eq!(ask(false), Some((Reason::Missing, None, 1)));
}

#[test]
fn whatever_goes_wrong_a_value_that_may_stand_in_does() {
    let (builder, hand) = good_for_errors();
    let cache = builder.load_timeout(secs(5)).build().unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    let stale = |outcome: Result<Outcome<u64>, LoadError<&str>>| {
        let outcome = outcome.unwrap();
        assert_eq!(outcome.value, Some(1));
        outcome.source
    };
    let failed = cache.load(&1).run(|_| Err::<u64, _>("down"));
    assert_eq!(stale(failed), Source::Stale(WhyStale::Failed));
    let panicking: Gate<Result<u64, &str>> = Gate::new();
    panicking.open_to_panic("down");
    let panicked = cache.load(&1).run_async(|_| panicking.pass_async());
    let panicked: Result<Outcome<u64>, LoadError<&str>> = futures_lite::future::block_on(panicked);
    assert_eq!(stale(panicked), Source::Stale(WhyStale::Panicked));
    let hanging: Gate<Result<u64, &str>> = Gate::new();
    let mut load = Polled::begun(cache.load(&1).run_async(|_| hanging.pass_async()));
    hand.advance(secs(5));
    let Poll::Ready(timed_out) = load.poll() else { panic!("its time is up") };
    assert_eq!(stale(timed_out), Source::Stale(WhyStale::TimedOut));
    drop(load);
    let mut load =
        Polled::begun(cache.load(&1).timeout(secs(1)).run_async(|_| hanging.pass_async()));
    hand.advance(secs(1));
    let Poll::Ready(impatient) = load.poll() else { panic!("its patience is at its end") };
    assert_eq!(stale(impatient), Source::Stale(WhyStale::TimedOut));
    drop(load);
    cache.limits().breaker().force_open();
    let refused = cache.load(&1).run(|_| Err::<u64, _>("not asked"));
    assert!(matches!(stale(refused), Source::Stale(WhyStale::Refused(_))));
    cache.limits().breaker().release();
    assert_no_load_runs(&cache);
}

#[test]
fn answers_that_are_no_outage_are_given_and_not_covered() {
    for form in Form::ALL {
        for (builder, hand) in [stale_for_a_minute(), good_for_errors()] {
            let cache = builder
                .classify_errors(|error: &&str| match *error {
                    "forbidden" => ErrorClass::Answer,
                    _ => ErrorClass::Outage,
                })
                .build()
                .unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(10));
            let forbidden = Gate::opened(Err::<Load<u64>, _>("forbidden"));
            let told = form.call(&cache, &1, &forbidden);
            assert_eq!(told, Err(LoadError::Failed("forbidden")), "{form:?}");
            assert_eq!(form.call(&cache, &1, &down()), Ok(1), "{form:?}");
            assert_eq!(cache.limits().counts().failed, 1);
            assert_no_load_runs(&cache);
        }
    }
}

#[test]
fn a_window_that_ends_while_the_load_runs_covers_nothing() {
    for form in Form::ALL {
        must_end(move || {
            let (builder, hand) = good_for_errors();
            let cache = builder.build().unwrap();
            cache.insert(1, 1).unwrap();
            hand.set(secs(69));
            let gate: Gate<Said> = Gate::new();
            let first = form.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let second = form.begin(&cache, 1, &gate);
            until_waiting(&cache, 1);
            hand.set(secs(70));
            gate.open(Err("down"));
            for caller in [first, second] {
                assert_eq!(caller.join().unwrap(), Err(LoadError::Failed("down")), "{form:?}");
            }
        });
    }
}

#[test]
fn a_refresh_that_outlives_the_value_is_joined_and_not_begun_again() {
    for form in FORMS {
        must_end(move || {
            let it = Background::refreshing(form);
            it.hand.set(secs(70));
            assert_eq!(state(&it.cache), None);
            let late = form.begin(&it.cache, 1, &it.gate);
            until_waiting(&it.cache, 1);
            it.cache.sweep(usize::MAX);
            it.gate.open(Ok(Load::Value(2)));
            assert_eq!(late.join().unwrap(), Ok(2));
            assert_eq!((it.gate.entered(), it.cache.get(&1)), (1, Some(2)), "{form:?}");
            it.until_rest();
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn unchanged_gives_a_value_back_to_life_that_died_while_it_was_asked_for() {
    for form in FORMS {
        must_end(move || {
            let it = Background::refreshing(form);
            it.hand.set(secs(75));
            it.cache.sweep(usize::MAX);
            it.gate.open(Ok(Load::Unchanged));
            it.until_rest();
            assert_eq!(state(&it.cache), Some((1, EntryState::Fresh)), "{form:?}");
            it.hand.set(secs(85));
            assert_eq!(state(&it.cache), Some((1, EntryState::Stale)), "{form:?}");
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn unchanged_counts_as_a_use_where_there_is_a_time_to_idle() {
    for form in FORMS {
        must_end(move || {
            let it = Background::with(form, |builder| builder.time_to_idle(secs(20)));
            assert_eq!(it.ask(), Ok(1));
            it.gate.until_entered(1);
            it.hand.advance(secs(30));
            it.gate.open(Ok(Load::Unchanged));
            it.until_rest();
            assert_eq!(it.cache.load_stats().not_stored, 0);
            assert_eq!(state(&it.cache), Some((1, EntryState::Fresh)), "kept; {form:?}");
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn a_loader_sets_windows_of_its_own_for_one_value() {
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let cache: Cache<u64, u64> =
            Cache::builder().max_entries(10).time_to_live(secs(1)).clock(clock).build().unwrap();
        let options = InsertOptions::new()
            .time_to_live(secs(5))
            .stale_while_revalidate(secs(5))
            .stale_if_error(secs(10));
        let said = Gate::opened(Ok::<_, &str>(Load::With(1, options)));
        assert_eq!(form.call(&cache, &1, &said), Ok(1));
        let states = [4, 5, 9, 10, 14, 15].map(|at| {
            hand.set(secs(at));
            state(&cache).map(|(_, state)| state)
        });
        use EntryState::{Fresh, Stale, StaleOnError};
        let expected =
            [Some(Fresh), Some(Stale), Some(Stale), Some(StaleOnError), Some(StaleOnError), None];
        assert_eq!(states, expected, "{form:?}");
    }
}

#[test]
fn refreshes_without_a_share_of_the_permits_do_not_run_and_harm_nobody() {
    for form in FORMS {
        must_end(move || {
            let it = Background::with(form, |builder| {
                builder.max_in_flight(4).background_share(0.0).stale_if_error(secs(60))
            });
            for _ in 0..10 {
                assert_eq!(it.ask(), Ok(1), "{form:?}");
            }
            assert_eq!(it.gate.entered(), 0);
            let refused = it.cache.limits().counts().refused;
            assert_eq!((refused.background_share, refused.total()), (10, 10));
            assert_eq!(form.call(&it.cache, &2, &says(2)), Ok(2), "real misses load");
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn refreshes_take_their_share_of_the_permits_and_no_more() {
    must_end(|| {
        let it = Background::with(Form::Shared, |builder| {
            builder.max_in_flight(4).background_share(0.5)
        });
        for key in 2..=6 {
            it.cache.insert_with(key, key, InsertOptions::new().age(secs(10))).unwrap();
        }
        for key in 1..=6 {
            assert_eq!(Form::Shared.call(&it.cache, &key, &it.gate), Ok(key));
        }
        it.gate.until_entered(2);
        assert_eq!(it.cache.limits().in_flight(), 2);
        assert_eq!(it.cache.limits().counts().refused.background_share, 4);
        let misses: Vec<_> =
            (7..=8).map(|key| Form::Blocking.begin(&it.cache, key, &it.gate)).collect();
        it.gate.until_entered(4);
        assert_eq!((it.gate.inside(), it.cache.limits().in_flight()), (4, 4));
        it.gate.open(Ok(Load::Value(9)));
        misses.into_iter().for_each(|miss| assert_eq!(miss.join().unwrap(), Ok(9)));
        it.until_rest();
        assert_at_rest(&it.cache);
    });
}

// Asked for: `refresh()`

#[test]
fn a_refresh_that_is_asked_for_joins_one_that_is_going_on() {
    for form in Form::ALL {
        // Fresh; stale; good for errors only.
        for (at, (builder, hand)) in
            [(0, stale_for_a_minute()), (10, stale_for_a_minute()), (10, good_for_errors())]
        {
            must_end(move || {
                let cache = builder.build().unwrap();
                cache.insert(1, 1).unwrap();
                hand.set(secs(at));
                let gate = Gate::new();
                let (handle, held) = (cache.clone(), gate.clone());
                let first =
                    thread::spawn(move || handle.load(&1).refresh().run(|_| held.pass()).unwrap());
                gate.until_entered(1);
                let (handle, held) = (cache.clone(), gate.clone());
                let second = thread::spawn(move || {
                    let request = handle.load(&1).refresh();
                    match form {
                        Form::Blocking => request.run(|_| held.pass()),
                        Form::Shared => {
                            futures_lite::future::block_on(request.run_async(|_| held.pass_async()))
                        }
                        Form::Local => {
                            futures_lite::future::block_on(request.run_local(|_| held.pass_async()))
                        }
                    }
                    .unwrap()
                });
                until(|| cache.load_stats().waiting == 1 || second.is_finished());
                gate.open(2);
                assert_eq!(first.join().unwrap().value, Some(2));
                let second = second.join().unwrap();
                assert_eq!((second.value, second.source), (Some(2), Source::Joined), "at {at}");
                assert_eq!(gate.entered(), 1, "{form:?}");
                assert_at_rest(&cache);
            });
        }
    }
}

#[test]
fn a_refresh_that_is_asked_for_is_waited_for_although_a_stale_value_could_be_served() {
    for form in FORMS {
        must_end(move || {
            let it = Background::new(form);
            it.gate.open(Ok(Load::Value(2)));
            let request = it.cache.load(&1).refresh();
            let outcome = match form {
                Form::Blocking => request.run(|_| it.gate.pass()),
                _ => futures_lite::future::block_on(request.run_async(|_| it.gate.pass_async())),
            };
            let outcome = outcome.unwrap();
            assert_eq!((outcome.value, outcome.source), (Some(2), Source::Loaded), "{form:?}");
            it.until_rest();
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn a_refresh_that_is_asked_for_does_not_heed_the_throttle() {
    for at in [0, 10, 70] {
        let (builder, hand) = stale_for_a_minute();
        let cache = builder.min_retry_interval(secs(5)).build().unwrap();
        cache.insert(1, 1).unwrap();
        hand.set(secs(at));
        ignore(cache.load(&1).run(|_| Err::<u64, _>("down")));
        let outcome = cache.load(&1).refresh().run(|_| 2).unwrap();
        assert_eq!((outcome.value, outcome.source), (Some(2), Source::Loaded), "at {at}");
        assert_at_rest(&cache);
    }
}

#[test]
fn a_refresh_that_is_asked_for_and_fails_is_told_unless_the_value_is_stale() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.build().unwrap();
    cache.insert(1, 1).unwrap();
    let failed = cache.load(&1).refresh().run(|_| Err::<u64, _>("down"));
    assert_eq!(failed, Err(LoadError::Failed("down")), "the value is fresh: nothing to cover");
    assert_eq!(state(&cache), Some((1, EntryState::Fresh)), "and stays");
    hand.advance(secs(10));
    let outcome = cache.load(&1).refresh().run(|_| Err::<u64, _>("down")).unwrap();
    assert_eq!((outcome.value, outcome.source), (Some(1), Source::Stale(WhyStale::Failed)));
    assert_at_rest(&cache);
}

#[test]
fn a_refresh_that_is_asked_for_and_refused_is_told_unless_the_value_is_stale() {
    let (builder, _hand) = stale_for_a_minute();
    let cache = builder.build().unwrap();
    cache.insert(1, 1).unwrap();
    cache.limits().breaker().force_open();
    let refused = cache.load(&1).refresh().run(|_| never());
    assert!(matches!(refused, Err(LoadError::Refused(_))), "{refused:?}");
    assert_eq!(state(&cache), Some((1, EntryState::Fresh)), "and stays");
    assert_at_rest(&cache);
}

#[test]
fn a_refresh_that_is_asked_for_works_for_values_without_a_deadline() {
    type Make = fn() -> Cache<u64, u64>;
    let caches: [Make; 4] = [
        || Cache::new(10),
        || Cache::builder().max_weight(10).build().unwrap(),
        || {
            let cache = Cache::new(10);
            cache.invalidate_all();
            cache
        },
        || Cache::builder().max_entries(10).time_to_idle(secs(60)).build().unwrap(),
    ];
    for make in caches {
        must_end(move || {
            let cache = make();
            cache.insert(1, 1).unwrap();
            let outcome = cache.load(&1).refresh().run(|_| 2).unwrap();
            assert_eq!((outcome.value, outcome.source), (Some(2), Source::Loaded));
            assert_eq!(cache.get(&1), Some(2));
            let failed = cache.load(&1).refresh().run(|_| Err::<u64, _>("down"));
            assert_eq!(failed, Err(LoadError::Failed("down")));
            assert_eq!(cache.get(&1), Some(2));
            cache.load(&1).refresh().run(|_| Load::<u64>::Unchanged).unwrap();
            assert_eq!(cache.get(&1), Some(2));
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn a_failed_refresh_of_a_remembered_absence_leaves_it() {
    for form in Form::ALL {
        let (builder, _hand) = stale_for_a_minute();
        let cache = builder.absent_time_to_live(secs(5)).build().unwrap();
        ignore(cache.get_or_load(&1, || None::<u64>));
        ignore(cache.load(&1).refresh().run(|_| Err::<u64, _>("down")));
        assert_eq!(form.call(&cache, &1, &says(9)), Err(LoadError::Absent), "{form:?}");
    }
}

// Early refreshes

#[test]
fn an_early_refresh_runs_once_and_the_value_stays_fresh() {
    for form in FORMS {
        must_end(move || {
            let it = Background::with(form, |builder| builder.early_refresh(secs(10)));
            it.cache.invalidate_all();
            // Drawn when the value is stored: try until it is due some time before the end.
            let begin = loop {
                it.cache.insert(1, 1).unwrap();
                let begin = it.hand.now();
                it.hand.advance(secs(9));
                if it.cache.get_with(&1, |entry| entry.is_refresh_due()) == Some(true) {
                    break begin;
                }
            };
            for _ in 0..20 {
                assert_eq!(it.ask(), Ok(1), "{form:?}");
            }
            assert_eq!(it.cache.load_stats().served_stale, 0, "it is fresh");
            it.gate.open(Ok(Load::Value(2)));
            it.gate.until_entered(1);
            it.until_rest();
            assert_eq!((it.cache.get(&1), it.hand.now()), (Some(2), begin + secs(9)));
            assert_at_rest(&it.cache);
        });
    }
}

// EXP-01

#[test]
fn exp_01_a_caller_that_is_held_up_judges_by_the_time_when_it_goes_on() {
    // At the comparison of its lookup, and at that of its claim.
    for comparison in 1..=2 {
        must_end(move || {
            let (clock, hand) = Clock::manual();
            let cache: Cache<Compared, u64> = Cache::builder()
                .max_entries(10)
                .time_to_live(secs(10))
                .stale_while_revalidate(secs(1))
                .clock(clock)
                .build()
                .unwrap();
            let paused = Gate::new();
            let key = Compared(1, paused.clone());
            cache.insert(key.clone(), 1).unwrap();
            // Fresh, and served; for the second one just stale, which a claim would serve.
            hand.set(secs(8 + comparison as u64));
            thread::scope(|scope| {
                let caller = scope.spawn(|| {
                    COMPARISONS.with(|left| left.set(comparison + 1));
                    cache.get_or_load(&key, || 2)
                });
                paused.until_entered(1);
                hand.set(secs(11));
                paused.open(());
                assert_eq!(caller.join().unwrap(), Ok(2), "comparison {comparison}");
            });
            assert_eq!(cache.get(&key), Some(2));
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn exp_01_a_loaded_value_lives_from_when_it_came_and_not_from_when_it_was_asked_for() {
    for form in Form::ALL {
        must_end(move || {
            let (clock, hand) = Clock::manual();
            let weighing = hand.clone();
            let cache: Cache<u64, u64> = Cache::builder()
                .max_weight(10)
                .weigher(move |_, _| {
                    weighing.advance(secs(7));
                    1
                })
                .time_to_live(secs(10))
                .clock(clock)
                .build()
                .unwrap();
            let gate = Gate::new();
            let load = form.begin(&cache, 1, &gate);
            gate.until_entered(1);
            hand.advance(secs(100));
            gate.open(1);
            assert_eq!(load.join().unwrap(), Ok(1));
            let remaining = cache.get_with(&1, |entry| entry.remaining());
            assert_eq!(remaining, Some(Some(secs(10))), "{form:?}");
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn exp_01_a_slow_listener_takes_nothing_from_a_loaded_values_life() {
    let (clock, hand) = Clock::manual();
    let telling = hand.clone();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(1)
        .time_to_live(secs(10))
        .removal_listener(move |_, _, _| telling.advance(secs(1)))
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(9, 9).unwrap();
    assert_eq!(cache.get_or_load(&1, || 1), Ok(1));
    assert_eq!(hand.now(), secs(1), "the listener was told of the eviction");
    assert_eq!(cache.get_with(&1, |entry| entry.remaining()), Some(Some(secs(9))));
}

// EXP-03

#[test]
fn exp_03_a_value_loaded_after_the_old_one_died_is_new() {
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let cache: Cache<u64, u64> =
            Cache::builder().max_entries(10).time_to_live(secs(10)).clock(clock).build().unwrap();
        assert_eq!(form.call(&cache, &1, &says(1)), Ok(1));
        hand.advance(secs(11));
        assert_eq!(form.call(&cache, &1, &says(2)), Ok(2));
        assert_eq!(cache.stats().inserts, 2);
        assert_eq!((cache.stats().replaced, cache.stats().expired), (0, 1));
        hand.advance(secs(1));
        assert_eq!(cache.get_with(&1, |entry| entry.remaining()), Some(Some(secs(9))));
        hand.advance(secs(9));
        assert_eq!(cache.get(&1), None, "{form:?}");
        assert_at_rest(&cache);
    }
}

// EXP-07

#[test]
fn exp_07_a_load_that_never_ends_holds_up_no_dead_entry() {
    for form in Form::ALL {
        for builder in [Cache::builder().max_entries(20_000), Cache::builder().max_weight(20_000)] {
            must_end(move || {
                let (clock, hand) = Clock::manual();
                let expired = Arc::new(AtomicUsize::new(0));
                let count = Arc::clone(&expired);
                let cache: Cache<u64, u64> = builder
                    .time_to_live(secs(1))
                    .removal_listener(move |_, _, cause| {
                        assert_eq!(cause, RemovalCause::Expired);
                        count.fetch_add(1, SeqCst);
                    })
                    .clock(clock)
                    .build()
                    .unwrap();
                let gate = Gate::new();
                let load = form.begin(&cache, 0, &gate);
                gate.until_entered(1);
                for key in 1..=2_000 {
                    cache.insert(key, key).unwrap();
                }
                hand.advance(secs(10));
                cache.sweep(usize::MAX);
                assert_eq!((cache.len(), cache.weight(), expired.load(SeqCst)), (0, 0, 2_000));
                gate.open(7);
                assert_eq!(load.join().unwrap(), Ok(7), "{form:?}");
                assert_eq!(cache.get(&0), Some(7));
                assert_at_rest(&cache);
            });
        }
    }
}

#[test]
fn exp_07_a_refresh_that_never_ends_holds_up_no_dead_entry_but_its_own() {
    for form in FORMS {
        must_end(move || {
            let it = Background::refreshing(form);
            for key in 2..=50 {
                it.cache.insert(key, key).unwrap();
            }
            it.hand.advance(secs(100));
            it.cache.sweep(usize::MAX);
            assert!(it.cache.len() <= 1, "{}", it.cache.len());
            it.gate.open(Err("down"));
            it.until_rest();
            it.cache.sweep(usize::MAX);
            assert_eq!((it.cache.len(), it.cache.weight()), (0, 0), "{form:?}");
            assert_at_rest(&it.cache);
        });
    }
}

// EXP-09, with loads

#[test]
fn exp_09_a_clock_that_steps_back_disturbs_no_load() {
    for form in Form::ALL {
        must_end(move || {
            let (builder, hand) = stale_for_a_minute();
            let cache = builder
                .min_retry_interval(secs(5))
                .load_timeout(secs(30))
                .lead_timeout(secs(20))
                .absent_time_to_live(secs(5))
                .breaker(seawall::guard::BreakerOptions::new().consecutive_failures(1))
                .rate_limit(seawall::guard::Rate::per_second(1_000.0).unwrap())
                .build()
                .unwrap();
            hand.set(secs(100));
            assert_eq!(form.call(&cache, &1, &down()), Err(LoadError::Failed("down")));
            for at in [99, 98, 0] {
                hand.set(secs(at));
                assert!(matches!(form.call(&cache, &2, &says(2)), Err(LoadError::Refused(_))));
                assert!(matches!(form.call(&cache, &1, &says(2)), Err(LoadError::Refused(_))));
            }
            hand.set(secs(110));
            assert_eq!(form.call(&cache, &1, &says(2)), Ok(2), "{form:?}");
            let gate = Gate::new();
            let load = form.begin(&cache, 3, &gate);
            gate.until_entered(1);
            hand.set(secs(50));
            gate.open(Ok::<_, &str>(Load::Value(3)));
            assert_eq!(load.join().unwrap(), Ok(3));
            assert_eq!(cache.get(&3), Some(3));
            cache.sweep(usize::MAX);
            assert_no_load_runs(&cache);
        });
    }
}

// EXP-15

#[test]
fn exp_15_a_failing_origin_is_covered_to_the_end_of_the_window_and_no_longer() {
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(secs(1))
            .stale_if_error(secs(9))
            .clock(clock)
            .build()
            .unwrap();
        assert_eq!(form.call(&cache, &1, &says(1)), Ok(1));
        for at in 0..60 {
            hand.set(secs(at));
            let expected = if at < 10 { Ok(1) } else { Err(LoadError::Failed("down")) };
            assert_eq!(form.call(&cache, &1, &down()), expected, "{form:?} at {at}");
        }
        assert_eq!(cache.load_stats().served_stale, 9);
        assert_eq!(cache.load_stats().stale_age.sum(), secs((1..10).sum()));
    }
}

#[test]
fn exp_15_without_a_window_no_failure_is_covered() {
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let cache =
            Cache::builder().max_entries(10).time_to_live(secs(1)).clock(clock).build().unwrap();
        assert_eq!(form.call(&cache, &1, &says(1)), Ok(1));
        hand.set(secs(1));
        let failed = form.call(&cache, &1, &down());
        assert_eq!(failed, Err(LoadError::Failed("down")), "{form:?}");
        assert_eq!(cache.load_stats().served_stale, 0);
    }
}

#[test]
fn exp_15_an_unlimited_window_is_spelled_out_and_seen_in_the_statistics() {
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(secs(1))
            .stale_if_error(Duration::MAX)
            .clock(clock)
            .build()
            .unwrap();
        assert_eq!(form.call(&cache, &1, &says(1)), Ok(1));
        for day in 1..=60 {
            hand.set(secs(day * 86_400));
            assert_eq!(form.call(&cache, &1, &down()), Ok(1), "{form:?} on day {day}");
        }
        let stats = cache.load_stats();
        assert_eq!((stats.served_stale, stats.failed), (60, 60));
    }
}

// NEG-02

#[test]
fn neg_02_asking_again_does_not_lengthen_an_absence() {
    for form in Form::ALL {
        for idle in [false, true] {
            let (clock, hand) = Clock::manual();
            let builder = Cache::builder()
                .max_entries(10)
                .time_to_live(secs(100))
                .stale_while_revalidate(secs(100))
                .absent_time_to_live(secs(10))
                .clock(clock);
            let builder = if idle { builder.time_to_idle(secs(5)) } else { builder };
            let cache = builder.build().unwrap();
            let absent = Gate::opened(Ok::<_, &str>(Load::<u64>::Absent));
            assert_eq!(form.call(&cache, &1, &absent), Err(LoadError::Absent));
            let present = says(1);
            for at in [0, 3, 6, 9] {
                hand.set(secs(at));
                let told = form.call(&cache, &1, &present);
                assert_eq!(told, Err(LoadError::Absent), "{form:?} at {at}");
                assert!(!cache.mark_stale(&1) && cache.get(&1).is_none());
            }
            assert_eq!((present.entered(), cache.stats().hits_absent > 0), (0, true));
            hand.set(secs(10));
            assert_eq!(form.call(&cache, &1, &present), Ok(1), "{form:?}");
            assert_at_rest(&cache);
        }
    }
}

#[test]
fn neg_02_an_absence_of_its_own_time_lives_as_long_as_that() {
    for form in Form::ALL {
        for (time, at, known) in [
            (secs(20), 19, true),
            (secs(20), 20, false),
            (Duration::ZERO, 0, false),
            (Duration::MAX, 1_000_000, true),
        ] {
            let (clock, hand) = Clock::manual();
            let cache: Cache<u64, u64> = Cache::builder()
                .max_entries(10)
                .absent_time_to_live(secs(5))
                .clock(clock)
                .build()
                .unwrap();
            let absent = Gate::opened(Ok::<_, &str>(Load::<u64>::AbsentFor(time)));
            assert_eq!(form.call(&cache, &1, &absent), Err(LoadError::Absent));
            hand.set(secs(at));
            let again = form.call(&cache, &1, &says(1));
            let expected = if known { Err(LoadError::Absent) } else { Ok(1) };
            assert_eq!(again, expected, "{form:?}, {time:?} at {at}");
        }
    }
}

#[test]
fn neg_02_every_way_to_say_that_a_key_is_there_now_ends_an_absence() {
    let (clock, _hand) = Clock::manual();
    let cache: Cache<u64, u64> =
        Cache::builder().max_entries(10).absent_time_to_live(secs(5)).clock(clock).build().unwrap();
    let forget = |key| ignore(cache.get_or_load(&key, || None::<u64>));
    (1..=5).for_each(forget);
    cache.insert(1, 1).unwrap();
    cache.insert_if_absent(2, 2).unwrap();
    cache.invalidate(&3);
    cache.remove(&4);
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(1), Some(2)));
    assert_eq!(cache.get_or_load(&3, || 3), Ok(3));
    assert_eq!(cache.get_or_load(&4, || 4), Ok(4));
    cache.invalidate_all();
    assert_eq!(cache.get_or_load(&5, || 5), Ok(5));
}

#[test]
fn neg_02_absences_count_are_bounded_and_are_not_told_to_the_listener() {
    let told = Told::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(50)
        .absent_time_to_live(Duration::MAX)
        .removal_listener(told.listener())
        .build()
        .unwrap();
    for key in 0..5_000 {
        assert_eq!(cache.get_or_load(&key, || None::<u64>), Err(LoadError::Absent));
        assert!(cache.len() <= 50 && cache.weight() <= 50);
    }
    assert_eq!((cache.len(), cache.iter().count()), (50, 0));
    assert_eq!(told.take(), []);
    assert_no_load_runs(&cache);
}

// NEG-04

#[test]
fn neg_04_a_failure_hides_no_value_that_may_be_served() {
    for form in Form::ALL {
        for (builder, hand) in [stale_for_a_minute(), good_for_errors()] {
            let cache =
                builder.min_retry_interval(secs(5)).absent_time_to_live(secs(5)).build().unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(10));
            let origin = down();
            for _ in 0..100 {
                assert_eq!(form.call(&cache, &1, &origin), Ok(1), "{form:?}");
            }
            assert_eq!(origin.entered(), 1, "the failure only throttles");
            assert_eq!(cache.limits().counts().refused.throttled, 99);
            hand.advance(secs(5));
            assert_eq!(form.call(&cache, &1, &origin), Ok(1));
            assert_eq!(origin.entered(), 2);
            assert_no_load_runs(&cache);
        }
    }
}

// ZER-02, ZER-04

#[test]
fn zer_02_a_loaded_value_with_no_time_to_live_is_given_and_not_kept() {
    for form in Form::ALL {
        let (clock, _hand) = Clock::manual();
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(Duration::ZERO)
            .clock(clock)
            .build()
            .unwrap();
        for value in 1..=3 {
            assert_eq!(form.call(&cache, &1, &says(value)), Ok(value), "{form:?}");
            assert_eq!(cache.get(&1), None);
        }
        assert_eq!(cache.load_stats().started, 3);
    }
}

#[test]
fn zer_02_a_value_that_is_stale_at_once_is_refreshed_with_every_call() {
    for form in Form::ALL {
        let (clock, _hand) = Clock::manual();
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(Duration::ZERO)
            .stale_while_revalidate(secs(10))
            .clock(clock)
            .build()
            .unwrap();
        for value in 1..=3 {
            assert_eq!(form.call(&cache, &1, &says(value)), Ok(value), "{form:?}");
            assert_eq!(state(&cache), Some((value, EntryState::Stale)));
        }
    }
}

#[test]
fn zer_02_no_time_for_absences_means_that_none_is_remembered() {
    for form in Form::ALL {
        let cache: Cache<u64, u64> =
            Cache::builder().max_entries(10).absent_time_to_live(Duration::ZERO).build().unwrap();
        let absent = Gate::opened(Ok::<_, &str>(Load::<u64>::Absent));
        for asked in 1..=3 {
            assert_eq!(form.call(&cache, &1, &absent), Err(LoadError::Absent));
            assert_eq!((absent.entered(), cache.len()), (asked, 0), "{form:?}");
        }
        assert_at_rest(&cache);
    }
}

#[test]
fn zer_04_settings_of_loads_that_contradict_each_other_are_refused() {
    let (builder, _hand) = stale_for_a_minute();
    let refused = builder.min_retry_interval(secs(71)).build().map(drop).unwrap_err();
    assert!(matches!(refused, ConfigError::Order("min_retry_interval", _)), "{refused:?}");
    let (builder, _hand) = stale_for_a_minute();
    assert!(builder.min_retry_interval(secs(70)).build().is_ok());
    let short = Duration::from_micros(10);
    type With = fn(seawall::Builder<u64, u64>, Duration) -> seawall::Builder<u64, u64>;
    let settings: [(&str, With); 5] = [
        ("min_retry_interval", |it, time| it.min_retry_interval(time)),
        ("absent_time_to_live", |it, time| it.absent_time_to_live(time)),
        ("load_timeout", |it, time| it.load_timeout(time)),
        ("lead_timeout", |it, time| it.lead_timeout(time)),
        ("wait_timeout", |it, time| it.wait_timeout(time)),
    ];
    for (name, with) in settings {
        let built = with(Cache::builder().max_entries(10), short).build();
        assert_eq!(built.map(drop).unwrap_err(), ConfigError::TooShort(name));
    }
}

#[test]
fn zer_04_settings_that_have_no_effect_alone_are_refused() {
    let detached = Cache::<u64, u64>::builder().max_entries(10).detached_loads(true).build();
    assert!(matches!(detached.map(drop), Err(ConfigError::Needs("detached_loads", _))));
}

#[test]
fn zer_04_a_value_that_dies_before_it_may_be_loaded_again_is_refused_and_not_silently_absent() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.min_retry_interval(secs(5)).build().unwrap();
    let options = InsertOptions::new().time_to_live(secs(1)).stale_while_revalidate(Duration::ZERO);
    assert_eq!(cache.get_or_load(&1, || Load::With(1, options)), Ok(1));
    hand.advance(secs(2));
    let refused = cache.get_or_load(&1, || 2);
    let LoadError::Refused(refusal) = refused.unwrap_err() else { panic!("it is not told") };
    assert_eq!(refusal.retry_after(), Some(secs(3)));
    hand.advance(secs(3));
    assert_eq!(cache.get_or_load(&1, || 2), Ok(2));
}

// LIS-04

#[test]
fn lis_04_a_refresh_with_the_same_object_is_told_as_replaced_and_unchanged_is_not_told() {
    let (clock, hand) = Clock::manual();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let cache: Cache<u64, Arc<str>> = Cache::builder()
        .max_entries(10)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(60))
        .removal_listener(move |_, _, cause| {
            assert_eq!(cause, RemovalCause::Replaced);
            count.fetch_add(1, SeqCst);
        })
        .clock(clock)
        .build()
        .unwrap();
    let value: Arc<str> = "resource".into();
    cache.insert(1, Arc::clone(&value)).unwrap();
    hand.advance(secs(10));
    let same = Arc::clone(&value);
    assert_eq!(cache.get_or_load(&1, || same).unwrap(), value);
    assert_eq!(told.load(SeqCst), 1, "as every way to store it; see `Builder::removal_listener`");
    hand.advance(secs(10));
    let kept = cache.load(&1).run(|_| Load::<Arc<str>>::Unchanged).unwrap();
    assert!(Arc::ptr_eq(&kept.value.unwrap(), &value));
    assert_eq!(told.load(SeqCst), 1);
    assert_at_rest(&cache);
}

// HAS-01

#[test]
fn has_01_loads_refreshes_absences_and_failures_of_equal_hashes_are_their_keys_own() {
    for hashes in [1, 2] {
        must_end(move || {
            let (clock, hand) = Clock::manual();
            let cache: Cache<u64, u64, Few> = Cache::builder()
                .max_entries(100)
                .time_to_live(secs(10))
                .stale_while_revalidate(secs(60))
                .absent_time_to_live(secs(5))
                .min_retry_interval(secs(5))
                .hasher(Few(hashes))
                .clock(clock)
                .build()
                .unwrap();
            let gates: Vec<Gate<Said>> = (0..20).map(|_| Gate::new()).collect();
            let loads: Vec<_> = gates
                .iter()
                .zip(0..)
                .map(|(gate, key)| Form::Blocking.begin(&cache, key, gate))
                .collect();
            gates.iter().for_each(|gate| gate.until_entered(1));
            for (gate, key) in gates.iter().zip(0..) {
                gate.open(match key % 4 {
                    0 => Ok(Load::Absent),
                    1 => Err("down"),
                    _ => Ok(Load::Value(key * 10)),
                });
            }
            for (key, load) in (0..).zip(loads) {
                let told = load.join().unwrap();
                match key % 4 {
                    0 => assert_eq!(told, Err(LoadError::Absent)),
                    1 => assert_eq!(told, Err(LoadError::Failed("down"))),
                    _ => assert_eq!(told, Ok(key * 10)),
                }
            }
            let new = says(7);
            for key in 0..20 {
                let told = Form::Shared.call(&cache, &key, &new);
                match key % 4 {
                    0 => assert_eq!(told, Err(LoadError::Absent)),
                    1 => assert!(matches!(told, Err(LoadError::Refused(_)))),
                    _ => assert_eq!(told, Ok(key * 10)),
                }
            }
            assert_eq!(new.entered(), 0);
            hand.advance(secs(10));
            assert_eq!(Form::Shared.call(&cache, &2, &new), Ok(7), "refreshed");
            assert_eq!(cache.get(&3), Some(30));
            cache.invalidate(&3);
            assert_eq!((cache.get(&2), cache.get(&3), cache.get(&6)), (Some(7), None, Some(60)));
            assert_no_load_runs(&cache);
        });
    }
}

#[test]
fn has_01_more_keys_of_one_hash_than_find_a_place_are_loaded_and_told_all_the_same() {
    let cache: Cache<u64, u64, Few> =
        Cache::builder().max_entries(100).hasher(Few(1)).build().unwrap();
    let gates: Vec<Gate<u64>> = (0..40).map(|_| Gate::new()).collect();
    let mut loads: Vec<_> = gates
        .iter()
        .zip(0..)
        .map(|(gate, key)| {
            let (cache, gate) = (cache.clone(), gate.clone());
            Polled::begun(async move { cache.get_or_load_async(&key, || gate.pass_async()).await })
        })
        .collect();
    assert!(gates.iter().all(|gate| gate.entered() == 1));
    for (gate, key) in gates.iter().zip(0..) {
        gate.open(key * 10);
    }
    for (key, load) in (0..).zip(&mut loads) {
        assert_eq!(load.poll(), Poll::Ready(Ok(key * 10)));
    }
    drop(loads);
    assert_eq!(cache.len(), 24, "as many as a place holds");
    for key in 0..40 {
        assert!(cache.get(&key).is_none_or(|value| value == key * 10));
    }
    assert_at_rest(&cache);
}

#[test]
fn has_01_the_stale_value_of_an_outcome_is_that_of_its_key() {
    let cache: Cache<u64, u64, Few> = Cache::builder()
        .max_entries(100)
        .time_to_live(Duration::ZERO)
        .stale_while_revalidate(Duration::MAX)
        .hasher(Few(1))
        .spawner(Paused::default().spawner())
        .build()
        .unwrap();
    for key in 0..20 {
        cache.insert(key, key).unwrap();
    }
    for key in 0..20 {
        let load = cache.load(&key).run_async(|_| async { 99 });
        let outcome = futures_lite::future::block_on(load).unwrap();
        assert_eq!((outcome.value, outcome.source), (Some(key), REFRESHING));
    }
}
