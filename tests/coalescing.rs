//! One load per key (COA).

mod common;

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use common::loads::{
    Form, Gate, Polled, Runtime, assert_at_rest, assert_no_load_runs, until, until_waiting,
};
use common::{Few, Fixed, must_end, panics};
use futures_lite::future::{block_on, yield_now};
use seawall::{
    Cache, Clock, InsertOptions, Load, LoadError, Outcome, Source, WhyStale, guard::Refusal,
};

type Numbers<S = ahash::RandomState> = Cache<u32, u32, S>;
type Answer = Result<u32, &'static str>;

fn numbers(entries: u64) -> Numbers {
    Cache::new(entries)
}

// COA-01

/// Pairs of callers ask for one fresh key after the other, each pair at the same moment.
fn race(forms: [Form; 2], rounds: u32) {
    const PAIRS: u32 = 3;
    let cache = numbers(u64::from(2 * PAIRS * rounds));
    let loads: Arc<Vec<AtomicU32>> =
        Arc::new((0..PAIRS * rounds).map(|_| AtomicU32::new(0)).collect());
    thread::scope(|scope| {
        for pair in 0..PAIRS {
            let barrier = Arc::new(Barrier::new(2));
            for form in forms {
                let (cache, loads, barrier) = (&cache, &loads, Arc::clone(&barrier));
                scope.spawn(move || {
                    for key in pair * rounds..(pair + 1) * rounds {
                        barrier.wait();
                        assert_eq!(count_and_load(form, cache, key, loads), Ok(key));
                    }
                });
            }
        }
    });
    assert!(loads.iter().all(|loads| loads.load(SeqCst) == 1), "{forms:?}");
    assert_eq!(cache.load_stats().started, u64::from(PAIRS * rounds));
    assert_at_rest(&cache);
}

fn count_and_load(
    form: Form,
    cache: &Numbers,
    key: u32,
    loads: &Arc<Vec<AtomicU32>>,
) -> Result<u32, LoadError<std::convert::Infallible>> {
    let loads = Arc::clone(loads);
    let load = move || {
        loads[key as usize].fetch_add(1, SeqCst);
        key
    };
    match form {
        Form::Blocking => cache.get_or_load(&key, load),
        Form::Shared => block_on(cache.get_or_load_async(&key, || async move { load() })),
        Form::Local => block_on(cache.load(&key).run_local(|_| async move { load() }))
            .map(|outcome| outcome.value.unwrap()),
    }
}

#[test]
#[cfg_attr(miri, ignore = "a race that is run many times")]
fn coa_01_of_two_callers_at_the_same_moment_one_loads() {
    must_end(|| {
        race([Form::Blocking, Form::Blocking], 15_000);
        race([Form::Shared, Form::Shared], 15_000);
        race([Form::Blocking, Form::Shared], 15_000);
        race([Form::Local, Form::Local], 10_000);
        race([Form::Local, Form::Blocking], 10_000);
    });
}

#[test]
#[cfg_attr(miri, ignore = "a race that is run many times")]
fn coa_01_of_two_tasks_at_the_same_moment_one_loads() {
    const KEYS: u32 = 3_000;
    must_end(|| {
        for (name, runtime) in Runtime::each() {
            let cache = numbers(u64::from(2 * KEYS));
            let loads: Arc<Vec<AtomicU32>> =
                Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
            let ask = |key: u32| {
                let (cache, loads) = (cache.clone(), Arc::clone(&loads));
                runtime.spawn(async move {
                    let load = async move {
                        loads[key as usize].fetch_add(1, SeqCst);
                        if key % 3 == 0 {
                            yield_now().await;
                        }
                        key
                    };
                    cache.get_or_load_async(&key, || load).await
                })
            };
            runtime.block_on(async {
                for key in 0..KEYS {
                    let tasks = [ask(key), ask(key)];
                    for task in tasks {
                        assert_eq!(task.end().await, Ok(key));
                    }
                }
            });
            assert!(loads.iter().all(|loads| loads.load(SeqCst) == 1), "{name}");
            assert_at_rest(&cache);
        }
    });
}

// COA-03

#[test]
fn coa_03_the_end_of_an_invalidated_load_leaves_its_successor_alone() {
    must_end(|| {
        for first in Form::ALL {
            for second in Form::ALL {
                successor_stays(first, second, |cache| {
                    cache.invalidate(&1);
                });
                successor_stays(first, second, |cache| {
                    cache.remove(&1);
                });
                successor_stays(first, second, Cache::invalidate_all);
                successor_stays(first, second, |cache| {
                    cache.insert(1, 5).unwrap();
                    cache.invalidate(&1);
                });
            }
        }
    });
}

fn successor_stays(first: Form, second: Form, forget: fn(&Numbers)) {
    let cache = numbers(10);
    let [gate_1, gate_2, gate_3] = [Gate::new(), Gate::new(), Gate::new()];
    let old = first.begin(&cache, 1, &gate_1);
    gate_1.until_entered(1);
    forget(&cache);
    let new = second.begin(&cache, 1, &gate_2);
    gate_2.until_entered(1);
    gate_1.open(10);
    assert_eq!(old.join().unwrap(), Ok(10), "who waited gets what was loaded");
    assert_eq!(cache.get(&1), None, "which is not stored");
    let third = Form::Blocking.begin(&cache, 1, &gate_3);
    until_waiting(&cache, 1);
    gate_2.open(20);
    assert_eq!(new.join().unwrap(), Ok(20));
    assert_eq!(third.join().unwrap(), Ok(20));
    assert_eq!(gate_3.entered(), 0, "the third caller joined");
    assert_eq!(cache.get(&1), Some(20));
    assert_eq!(cache.load_stats().started, 2);
    assert_at_rest(&cache);
}

#[test]
fn coa_03_those_who_wait_for_an_invalidated_load_are_not_mixed_with_those_of_the_next() {
    must_end(|| {
        let cache = numbers(10);
        let gates: Vec<Gate<u32>> = (0..4).map(|_| Gate::new()).collect();
        let mut callers = Vec::new();
        for (n, gate) in gates.iter().enumerate() {
            for _ in 0..3 {
                callers.push((n as u32, Form::Shared.begin(&cache, 1, gate)));
            }
            callers.push((n as u32, Form::Blocking.begin(&cache, 1, gate)));
            gate.until_entered(1);
            until_waiting(&cache, 3 * (n as u64 + 1));
            cache.invalidate(&1);
        }
        // The last of them holds the key again.
        let gate = Gate::new();
        let last = Form::Local.begin(&cache, 1, &gate);
        gate.until_entered(1);
        for (n, opened) in [2, 0, 3, 1].into_iter().enumerate() {
            gates[opened].open(opened as u32);
            assert_eq!(cache.get(&1), None);
            until_waiting(&cache, 9 - 3 * n as u64);
        }
        gate.open(9);
        assert_eq!(last.join().unwrap(), Ok(9));
        for (n, caller) in callers {
            assert_eq!(caller.join().unwrap(), Ok(n));
        }
        assert_eq!(cache.get(&1), Some(9));
        assert!(gates.iter().all(|gate| gate.entered() == 1));
        assert_at_rest(&cache);
    });
}

// COA-05

#[test]
fn coa_05_all_who_waited_are_told_the_error() {
    must_end(|| {
        for leader in Form::ALL {
            let cache = numbers(10);
            let gate: Gate<Answer> = Gate::new();
            let mut callers = vec![leader.begin(&cache, 1, &gate)];
            gate.until_entered(1);
            callers.extend(Form::ALL.map(|form| form.begin(&cache, 1, &gate)));
            until_waiting(&cache, 3);
            gate.open(Err("down"));
            for caller in callers {
                assert_eq!(caller.join().unwrap(), Err(LoadError::Failed("down")), "{leader:?}");
            }
            assert_eq!((gate.entered(), cache.get(&1), cache.len()), (1, None, 0));
            let stats = cache.load_stats();
            assert_eq!((stats.failed, stats.joined), (1, 3));
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn coa_05_an_absence_is_told_as_such_to_all() {
    must_end(|| {
        for leader in Form::ALL {
            let cache = numbers(10);
            let gate: Gate<Option<u32>> = Gate::new();
            let mut callers = vec![leader.begin(&cache, 1, &gate)];
            gate.until_entered(1);
            callers.extend(Form::ALL.map(|form| form.begin(&cache, 1, &gate)));
            until_waiting(&cache, 3);
            gate.open(None);
            for caller in callers {
                assert_eq!(caller.join().unwrap(), Err(LoadError::Absent));
            }
            assert_eq!(cache.load_stats().absent, 1);
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn coa_05_a_caller_with_another_type_of_error_is_told_so() {
    must_end(|| {
        for leader in Form::ALL {
            let cache = numbers(10);
            let gate: Gate<Answer> = Gate::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let same = Form::Shared.begin(&cache, 1, &gate);
            let other: Gate<Result<u32, u8>> = Gate::new();
            let others = Form::ALL.map(|form| form.begin(&cache, 1, &other));
            let none = Gate::<u32>::new();
            let without = Form::ALL.map(|form| form.begin(&cache, 1, &none));
            until_waiting(&cache, 7);
            gate.open(Err("down"));
            assert_eq!(first.join().unwrap(), Err(LoadError::Failed("down")));
            assert_eq!(same.join().unwrap(), Err(LoadError::Failed("down")));
            for caller in others {
                assert_eq!(caller.join().unwrap(), Err(LoadError::Foreign));
            }
            for caller in without {
                assert_eq!(caller.join().unwrap(), Err(LoadError::Foreign));
            }
            assert_eq!(other.entered() + none.entered(), 0);
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn coa_05_a_value_is_for_callers_with_whatever_type_of_error() {
    must_end(|| {
        let cache = numbers(10);
        let gate: Gate<Answer> = Gate::new();
        let first = Form::Shared.begin(&cache, 1, &gate);
        gate.until_entered(1);
        let (other, none) = (Gate::<Result<u32, u8>>::new(), Gate::<Option<u32>>::new());
        let others = Form::ALL.map(|form| form.begin(&cache, 1, &other));
        let without = Form::ALL.map(|form| form.begin(&cache, 1, &none));
        until_waiting(&cache, 6);
        gate.open(Ok(4));
        assert_eq!(first.join().unwrap(), Ok(4));
        assert!(others.into_iter().all(|caller| caller.join().unwrap() == Ok(4)));
        assert!(without.into_iter().all(|caller| caller.join().unwrap() == Ok(4)));
        assert_at_rest(&cache);
    });
}

// COA-07

/// All callers of a load get its value, though it is not stored; those who come later load again.
fn not_queued(leader: Form, load: Load<u32>) {
    let cache = numbers(10);
    let gate: Gate<Load<u32>> = Gate::new();
    let mut callers = vec![leader.begin(&cache, 1, &gate)];
    gate.until_entered(1);
    for n in 0..49 {
        callers.push(Form::ALL[n % 3].begin(&cache, 1, &gate));
    }
    until_waiting(&cache, 49);
    gate.open(load);
    for caller in callers {
        assert_eq!(caller.join().unwrap(), Ok(7));
    }
    assert_eq!((gate.entered(), cache.get(&1)), (1, None), "{leader:?}");
    assert_eq!(leader.call(&cache, &1, &Gate::opened(8)), Ok(8));
    assert_eq!(cache.load_stats().started, 2);
    assert_at_rest(&cache);
}

#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn coa_07_a_value_that_is_not_stored_is_given_to_all_who_waited() {
    must_end(|| {
        for leader in Form::ALL {
            not_queued(leader, Load::NotStored(7));
        }
        let zero = || InsertOptions::new().time_to_live(Duration::ZERO);
        not_queued(Form::Blocking, Load::With(7, zero()));
        not_queued(Form::Shared, Load::With(7, zero()));
    });
}

#[test]
fn coa_07_a_cache_of_capacity_zero_coalesces_all_the_same() {
    must_end(|| {
        for leader in Form::ALL {
            let cache = numbers(0);
            let gate = Gate::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let others = Form::ALL.map(|form| form.begin(&cache, 1, &gate));
            until_waiting(&cache, 3);
            gate.open(6);
            assert_eq!(first.join().unwrap(), Ok(6));
            assert!(others.into_iter().all(|caller| caller.join().unwrap() == Ok(6)));
            assert_eq!((gate.entered(), cache.len(), cache.get(&1)), (1, 0, None));
            assert_at_rest(&cache);
        }
    });
}

// COA-09

const CROWD: usize = 500;

/// A leader of `form` and 500 tasks that wait for it, each with a loader that passes `next`.
struct Crowd<'c> {
    first: Gate<Answer>,
    next: Gate<Answer>,
    leader: Polled<'c, Result<u32, LoadError<&'static str>>>,
    waiting: Vec<Polled<'c, Result<u32, LoadError<&'static str>>>>,
}

async fn value(
    form: Form,
    cache: &Numbers,
    gate: &Gate<Answer>,
) -> Result<u32, LoadError<&'static str>> {
    match form {
        Form::Local => cache.load(&1).run_local(|_| gate.pass_async()).await.map(|it| it.value),
        _ => cache.load(&1).run_async(|_| gate.pass_async()).await.map(|it| it.value),
    }?
    .ok_or(LoadError::Absent)
}

impl<'c> Crowd<'c> {
    fn new(cache: &'c Numbers, form: Form) -> Self {
        let (first, next) = (Gate::new(), Gate::new());
        let ask = |form, gate: &Gate<Answer>| {
            let gate = gate.clone();
            Polled::begun(async move { value(form, cache, &gate).await })
        };
        let leader = ask(form, &first);
        let waiting = (0..CROWD).map(|_| ask(form, &next)).collect();
        Crowd { first, next, leader, waiting }
    }
}

#[test]
#[cfg_attr(miri, ignore = "many tasks")]
fn coa_09_when_a_leader_is_dropped_one_of_the_crowd_takes_over() {
    must_end(|| {
        let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
        let Crowd { first, next, leader, mut waiting } = Crowd::new(&cache, Form::Local);
        assert_eq!((first.inside(), cache.load_stats().waiting), (1, CROWD as u64));
        drop(leader);
        assert_eq!(first.inside(), 0);
        assert!(waiting.iter().all(|it| it.wakes() > 0), "all are told");
        assert!(waiting.iter_mut().all(|it| it.poll().is_pending()));
        assert_eq!((next.entered(), cache.load_stats().in_flight), (1, 1));
        assert_eq!(cache.load_stats().waiting, CROWD as u64 - 1);
        next.open(Ok(3));
        for caller in waiting {
            assert_eq!(caller.finish(), Ok(3));
        }
        assert_eq!((next.entered(), next.most()), (1, 1));
        assert_eq!(cache.load_stats().abandoned, 1);
        assert_at_rest(&cache);
    });
}

#[test]
#[cfg_attr(miri, ignore = "many tasks")]
fn coa_09_leaders_may_be_dropped_one_after_the_other() {
    must_end(|| {
        let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
        let Crowd { next, leader, mut waiting, .. } = Crowd::new(&cache, Form::Local);
        drop(leader);
        for round in 1..=50 {
            assert!(waiting.iter_mut().all(|it| it.poll().is_pending()));
            assert_eq!((next.entered(), next.inside()), (round, 1));
            // Whoever was polled first leads.
            drop(waiting.remove(0));
            assert_eq!(next.inside(), 0);
        }
        drop(waiting);
        assert_eq!((next.entered(), next.most()), (50, 1));
        assert_at_rest(&cache);
    });
}

#[test]
#[cfg_attr(miri, ignore = "many tasks")]
fn coa_09_the_panic_of_a_load_is_told_to_the_crowd_and_nobody_tries_again() {
    must_end(|| {
        for form in [Form::Shared, Form::Local] {
            let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
            let Crowd { first, next, mut leader, waiting } = Crowd::new(&cache, form);
            first.open_to_panic("origin");
            match form {
                Form::Local => assert!(panics(|| leader.poll())),
                _ => assert!(matches!(leader.finish(), Err(LoadError::Panicked(_)))),
            }
            for caller in waiting {
                let error = caller.finish().unwrap_err();
                assert_eq!(error, LoadError::Panicked("origin".into()), "{form:?}");
            }
            assert_eq!((first.entered(), next.entered()), (1, 0));
            assert_eq!(cache.load_stats().panicked, 1);
            assert_at_rest(&cache);
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "many tasks")]
fn coa_09_a_load_that_takes_too_long_is_told_to_the_crowd_and_nobody_tries_again() {
    must_end(|| {
        for form in [Form::Shared, Form::Local] {
            let (clock, hand) = Clock::manual();
            let cache: Numbers = Cache::builder()
                .max_entries(10)
                .max_in_flight(1)
                .load_timeout(Duration::from_secs(1))
                .clock(clock)
                .build()
                .unwrap();
            let Crowd { first, next, leader, waiting } = Crowd::new(&cache, form);
            hand.advance(Duration::from_secs(1));
            assert!(waiting.iter().all(|it| it.wakes() > 0));
            assert_eq!(leader.finish(), Err(LoadError::TimedOut), "{form:?}");
            assert_eq!(first.inside(), 0, "the load is dropped");
            for caller in waiting {
                assert_eq!(caller.finish(), Err(LoadError::TimedOut));
            }
            assert_eq!((first.entered(), next.entered()), (1, 0));
            assert_eq!(hand.sleepers(), 0);
            assert_eq!(value_now(&cache, &next), Ok(3));
            assert_at_rest(&cache);
        }
    });
}

fn value_now(cache: &Numbers, gate: &Gate<Answer>) -> Result<u32, LoadError<&'static str>> {
    gate.open(Ok(3));
    block_on(value(Form::Shared, cache, gate))
}

#[test]
fn coa_09_callers_beyond_the_budget_are_refused_at_once() {
    must_end(|| {
        let cache: Numbers = Cache::builder().max_entries(10).max_waiters(5).build().unwrap();
        let gate: Gate<Answer> = Gate::new();
        let leader = Polled::begun(value(Form::Shared, &cache, &gate));
        let waiting: Vec<_> =
            (0..5).map(|_| Polled::begun(value(Form::Shared, &cache, &gate))).collect();
        let full = Err(LoadError::Refused(Refusal::Waiters { limit: 5 }));
        assert_eq!(Polled::new(value(Form::Shared, &cache, &gate)).finish(), full);
        assert_eq!(Form::Blocking.call(&cache, &1, &gate), full);
        gate.open(Ok(3));
        assert_eq!(leader.finish(), Ok(3));
        assert!(waiting.into_iter().all(|it| it.finish() == Ok(3)));
        assert_at_rest(&cache);
    });
}

#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn coa_09_blocked_threads_take_over_from_a_leader_that_is_dropped_one_at_a_time() {
    must_end(|| {
        let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
        let (first, next) = (Gate::<Answer>::new(), Gate::<Answer>::new());
        let leader = Polled::begun(value(Form::Local, &cache, &first));
        let waiting: Vec<_> = (0..40).map(|_| Form::Blocking.begin(&cache, 1, &next)).collect();
        until_waiting(&cache, 40);
        drop(leader);
        next.until_entered(1);
        until_waiting(&cache, 39);
        next.open(Ok(3));
        assert!(waiting.into_iter().all(|it| it.join().unwrap() == Ok(3)));
        assert_eq!((next.entered(), next.most()), (1, 1));
        assert_at_rest(&cache);
    });
}

// COA-11

/// Everything that can be done to other keys, while a load is held.
fn all_calls<S>(cache: &Numbers<S>, keys: impl Iterator<Item = u32>)
where
    S: BuildHasher + Send + Sync + 'static,
{
    for key in keys {
        cache.insert(key, key).unwrap();
        cache.get(&key);
        let form = Form::ALL[key as usize % 3];
        cache.invalidate(&key);
        assert_eq!(form.call(cache, &key, &Gate::opened(key)), Ok(key));
        cache.get_or_load(&key, || key).unwrap();
        cache.mark_stale(&key);
        cache.remove(&key);
        cache.insert_with(key, key, InsertOptions::new().tag("t")).unwrap();
    }
    cache.invalidate_tag("t");
    cache.invalidate_if(|key, _| key % 7 == 0);
    cache.set_capacity(cache.capacity());
    cache.sweep(100);
    cache.iter().count();
}

fn others_go_on<S>(cache: &Numbers<S>, leader: Form, keys: u32)
where
    S: BuildHasher + Send + Sync + 'static,
{
    let gate = Gate::new();
    let first = leader.begin(cache, 0, &gate);
    gate.until_entered(1);
    let follower = Form::Blocking.begin(cache, 0, &gate);
    until_waiting(cache, 1);
    thread::scope(|scope| {
        for n in 0..3 {
            scope.spawn(move || all_calls(cache, (1 + n..=keys).step_by(3)));
        }
    });
    assert_eq!((gate.entered(), gate.inside()), (1, 1), "all of that without waiting");
    gate.open(1);
    assert_eq!(first.join().unwrap(), Ok(1));
    assert_eq!(follower.join().unwrap(), Ok(1));
    assert_eq!(cache.get(&0), None, "`invalidate_if` cannot know what the load will bring");
    assert_at_rest(cache);
}

#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn coa_11_a_held_load_holds_up_no_other_key() {
    must_end(|| {
        for leader in Form::ALL {
            let cache = Cache::builder().max_entries(500).hasher(Fixed::default()).build().unwrap();
            others_go_on(&cache, leader, 1_000);
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn coa_11_a_held_load_holds_up_no_other_key_of_its_bucket() {
    must_end(|| {
        for leader in Form::ALL {
            let cache = Cache::builder().max_entries(500).hasher(Few(1)).build().unwrap();
            others_go_on(&cache, leader, 400);
        }
    });
}

#[test]
fn coa_11_in_a_bucket_full_of_loads_a_further_key_is_loaded_alone() {
    must_end(|| {
        let cache = Cache::builder().max_entries(500).hasher(Few(1)).build().unwrap();
        let gate = Gate::new();
        let begin = |key| Polled::begun(load_of(&cache, key, &gate));
        let held: Vec<_> = (0..24).map(begin).collect();
        assert_eq!((gate.entered(), cache.len()), (24, 0));
        for form in Form::ALL {
            assert_eq!(form.call(&cache, &100, &Gate::opened(5)), Ok(5));
        }
        assert_eq!(cache.get(&100), None, "there is no place for it");
        // Two at the same time: not coalesced, and neither waits for the other.
        let alone = [begin(100), begin(100)];
        assert_eq!(gate.entered(), 26);
        let follower = begin(3);
        assert_eq!(gate.entered(), 26, "those that have a place are joined");
        gate.open(1);
        assert!(held.into_iter().all(|it| it.finish() == Ok(1)));
        assert!(alone.into_iter().all(|it| it.finish() == Ok(1)));
        assert_eq!(follower.finish(), Ok(1));
        assert_eq!(cache.len(), 24);
        assert_eq!(Form::Blocking.call(&cache, &100, &Gate::opened(5)), Ok(5));
        assert_eq!(cache.get(&100), Some(5));
        assert_at_rest(&cache);
    });
}

async fn load_of<S>(cache: &Numbers<S>, key: u32, gate: &Gate<u32>) -> Result<u32, ()>
where
    S: BuildHasher + Send + Sync + 'static,
{
    cache.get_or_load_async(&key, || gate.pass_async()).await.map_err(|_| ())
}

// COA-13

type Told = Vec<Result<Outcome<u32>, LoadError<&'static str>>>;

fn values(told: &Told) -> Vec<u32> {
    told.iter().map(|it| it.as_ref().unwrap().value.unwrap()).collect()
}

/// Calls for many keys with a batch loader that notes its keys, and is held at a gate.
fn bulk(
    cache: &Numbers,
    keys: &'static [u32],
    gate: &Gate<()>,
    asynchronous: bool,
) -> thread::JoinHandle<(Told, Vec<Vec<u32>>)> {
    let (cache, gate) = (cache.clone(), gate.clone());
    thread::spawn(move || {
        let mut batches = Vec::new();
        let pairs = |keys: Vec<u32>| keys.into_iter().map(|key| (key, key * 10));
        let told = if asynchronous {
            block_on(cache.get_or_load_many_async(keys, |keys| {
                batches.push(keys.clone());
                let passed = gate.pass_async();
                async move {
                    passed.await;
                    Ok::<_, &'static str>(pairs(keys))
                }
            }))
        } else {
            cache.get_or_load_many(keys, |keys| {
                batches.push(keys.clone());
                gate.pass();
                Ok::<_, &'static str>(pairs(keys))
            })
        };
        (told, batches)
    })
}

#[test]
fn coa_13_batches_that_overlap_load_each_key_once() {
    must_end(|| {
        for (first, second) in [(false, false), (true, true), (false, true), (true, false)] {
            let cache = numbers(100);
            let gates = [Gate::new(), Gate::new(), Gate::new()];
            let one = bulk(&cache, &[1, 2, 3], &gates[0], first);
            gates[0].until_entered(1);
            let two = bulk(&cache, &[1, 2, 5], &gates[1], second);
            gates[1].until_entered(1);
            let three = bulk(&cache, &[2, 5, 1, 5], &gates[2], second);
            until_waiting(&cache, 2 + 4);
            // The later one ends first.
            gates[1].open(());
            until(|| cache.get(&5).is_some());
            assert_eq!(cache.get(&1), None);
            gates[0].open(());
            let (told, batches) = one.join().unwrap();
            assert_eq!((values(&told), batches), (vec![10, 20, 30], vec![vec![1, 2, 3]]));
            let (told, batches) = two.join().unwrap();
            assert_eq!((values(&told), batches), (vec![10, 20, 50], vec![vec![5]]));
            let (told, batches) = three.join().unwrap();
            assert_eq!((values(&told), batches), (vec![20, 50, 10, 50], vec![]));
            assert_eq!(cache.load_stats().started, 4);
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn coa_13_batches_that_wait_for_each_other_both_end() {
    must_end(|| {
        // Each claims a key of its own and then meets one of the other's.
        for round in 0..200 {
            let cache = numbers(100);
            let open = Gate::opened(());
            let one = bulk(&cache, &[1, 2, 3, 4], &open, round % 2 == 0);
            let two = bulk(&cache, &[4, 3, 2, 1], &open, round % 3 == 0);
            assert_eq!(values(&one.join().unwrap().0), [10, 20, 30, 40]);
            assert_eq!(values(&two.join().unwrap().0), [40, 30, 20, 10]);
            assert_eq!(cache.load_stats().started, 4, "each key once");
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn coa_13_stale_keys_of_batches_that_overlap_are_loaded_once() {
    must_end(|| {
        let (clock, hand) = Clock::manual();
        let cache: Numbers = Cache::builder()
            .max_entries(100)
            .time_to_live(Duration::from_secs(10))
            .stale_while_revalidate(Duration::from_secs(10))
            .clock(clock)
            .build()
            .unwrap();
        for key in [1, 2, 3, 5] {
            cache.insert(key, key).unwrap();
        }
        hand.advance(Duration::from_secs(15));
        let gates = [Gate::new(), Gate::new()];
        let one = bulk(&cache, &[1, 2, 3], &gates[0], false);
        gates[0].until_entered(1);
        let two = bulk(&cache, &[1, 2, 5], &gates[1], true);
        gates[1].until_entered(1);
        gates[1].open(());
        let (told, batches) = two.join().unwrap();
        assert_eq!((values(&told), batches), (vec![1, 2, 50], vec![vec![5]]));
        assert_eq!(told[0].as_ref().unwrap().source, Source::Stale(WhyStale::Refreshing));
        gates[0].open(());
        let (told, batches) = one.join().unwrap();
        assert_eq!((values(&told), batches), (vec![10, 20, 30], vec![vec![1, 2, 3]]));
        assert_at_rest(&cache);
    });
}

#[test]
fn coa_13_a_batch_joins_single_loads_and_single_loads_join_a_batch() {
    must_end(|| {
        for form in Form::ALL {
            let cache = numbers(100);
            let (single, batch) = (Gate::new(), Gate::new());
            let one = form.begin(&cache, 1, &single);
            single.until_entered(1);
            let many = bulk(&cache, &[1, 2], &batch, form == Form::Local);
            batch.until_entered(1);
            let two = form.begin(&cache, 2, &single);
            until_waiting(&cache, 2);
            batch.open(());
            assert_eq!(two.join().unwrap(), Ok(20));
            single.open(7);
            assert_eq!(one.join().unwrap(), Ok(7));
            let (told, batches) = many.join().unwrap();
            assert_eq!((values(&told), batches), (vec![7, 20], vec![vec![2]]));
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn coa_13_a_batch_that_is_dropped_or_panics_leaves_no_key_behind() {
    must_end(|| {
        let cache = numbers(100);
        let gate: Gate<()> = Gate::new();
        let keys = [1, 2, 3];
        let held = gate.clone();
        let many = Polled::begun(cache.get_or_load_many_async(&keys, move |_| {
            let passed = held.pass_async();
            async move {
                passed.await;
                Ok::<[(u32, u32); 0], ()>([])
            }
        }));
        let (next, follower) = (Gate::opened(5), cache.clone());
        let follower = thread::spawn(move || Form::Blocking.call(&follower, &2, &next));
        until_waiting(&cache, 1);
        drop(many);
        assert_eq!(follower.join().unwrap(), Ok(5), "it loads itself");
        assert_no_load_runs(&cache);
        let loader = |_: Vec<u32>| -> Result<[(u32, u32); 1], ()> { panic!("origin") };
        assert!(panics(|| cache.get_or_load_many(&keys, loader)));
        assert_eq!(cache.get_or_load(&1, || 6), Ok(6));
        assert_at_rest(&cache);
    });
}

#[test]
fn coa_13_a_key_that_the_batch_does_not_return_is_absent_and_an_error_is_for_all() {
    must_end(|| {
        let cache = numbers(100);
        let told = cache.get_or_load_many(&[1, 2, 3], |_| Ok::<_, ()>([(2, 20), (9, 90)]));
        let seen: Vec<_> = told.into_iter().map(|it| it.unwrap().value).collect();
        assert_eq!(seen, [None, Some(20), None]);
        assert_eq!(cache.get(&9), None, "nobody asked for it");
        let told = cache.get_or_load_many(&[1, 2], |_| Err::<[(u32, u32); 0], _>("down"));
        assert_eq!(told[0], Err(LoadError::Failed("down")));
        assert_eq!(told[1].as_ref().unwrap().value, Some(20));
        let none: [u32; 0] = [];
        let told = cache.get_or_load_many(&none, |_| -> Result<[(u32, u32); 0], ()> {
            unreachable!("nothing to load")
        });
        assert!(told.is_empty());
        assert_at_rest(&cache);
    });
}

// COA-15

#[test]
fn coa_15_a_write_during_a_load_stands() {
    must_end(|| {
        for leader in Form::ALL {
            let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
            let gate = Gate::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let waiting = Form::ALL.map(|form| form.begin(&cache, 1, &gate));
            until_waiting(&cache, 3);
            cache.insert(1, 100).unwrap();
            assert_eq!(cache.load_stats().in_flight, 1, "the load still runs");
            for form in Form::ALL {
                assert_eq!(form.call(&cache, &1, &gate), Ok(100), "a hit");
            }
            assert_eq!(gate.entered(), 1);
            gate.open(1);
            assert_eq!(first.join().unwrap(), Ok(1));
            for caller in waiting {
                assert_eq!(caller.join().unwrap(), Ok(1), "what the load brought");
            }
            assert_eq!(cache.get(&1), Some(100));
            assert_eq!(cache.load_stats().not_stored, 1);
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn coa_15_the_permit_of_an_overtaken_load_is_held_until_it_ends() {
    must_end(|| {
        for leader in Form::ALL {
            let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
            let gate = Gate::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            cache.insert(1, 100).unwrap();
            cache.invalidate(&1);
            let full = Err(LoadError::Refused(Refusal::InFlight { limit: 1 }));
            assert_eq!(Form::Blocking.call(&cache, &1, &gate), full, "that would be a second one");
            gate.open(1);
            assert_eq!(first.join().unwrap(), Ok(1));
            assert_eq!(cache.get(&1), None);
            assert_eq!(Form::Blocking.call(&cache, &1, &gate), Ok(1));
            assert_at_rest(&cache);
        }
    });
}

// All of it at once.

/// Callers of all forms, writes and invalidations race on a few keys: a value is never older than what its
/// reader may have seen before, no two loads of a key overlap but by an invalidation, and all ends.
#[test]
#[cfg_attr(miri, ignore = "a race that is run many times")]
fn coa_01_loads_race_with_writes_and_with_callers_that_leave() {
    const KEYS: u32 = 4;
    must_end(|| {
        let cache: Numbers = Cache::builder().max_entries(3).max_in_flight(3).build().unwrap();
        let stop = AtomicBool::new(false);
        let loads = AtomicUsize::new(0);
        thread::scope(|scope| {
            let callers: Vec<_> = (0..6_u32)
                .map(|n| {
                    let (cache, loads) = (&cache, &loads);
                    scope.spawn(move || {
                        for round in 0..4_000_u32 {
                            call_somehow(cache, n, round, KEYS, loads);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut key = 0;
                while !stop.load(SeqCst) {
                    key = (key + 1) % KEYS;
                    cache.invalidate(&key);
                    cache.mark_stale(&key);
                    let _ = cache.insert((key + 1) % KEYS, 0);
                    thread::yield_now();
                }
            });
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            stop.store(true, SeqCst);
        });
        assert_at_rest(&cache);
    });
}

fn call_somehow(cache: &Numbers, n: u32, round: u32, keys: u32, loads: &AtomicUsize) {
    let key = (n + round) % keys;
    let answer = match (n + round) % 5 {
        0 => cache.get_or_load(&key, || {
            loads.fetch_add(1, SeqCst);
            Ok::<u32, &'static str>(0)
        }),
        1 => cache.get_or_load(&key, || {
            thread::yield_now();
            Err::<u32, _>("down")
        }),
        2 => {
            // Leaves after a poll or two.
            let slow = || async {
                yield_now().await;
                yield_now().await;
                Ok::<u32, &'static str>(0)
            };
            let mut call = Polled::new(cache.get_or_load_async(&key, slow));
            let _ = call.poll().is_ready() || (round % 2 == 0 && call.poll().is_ready());
            return;
        }
        3 => block_on(cache.get_or_load_async(&key, || async {
            yield_now().await;
            Ok::<u32, &'static str>(0)
        })),
        _ => block_on(cache.load(&key).run_local(|_| async {
            yield_now().await;
            Ok::<u32, &'static str>(0)
        }))
        .map(|outcome| outcome.value.unwrap()),
    };
    let full = LoadError::Refused(Refusal::InFlight { limit: 3 });
    let known = [Ok(0), Err(LoadError::Failed("down")), Err(full)];
    assert!(known.contains(&answer), "{answer:?}");
}
