//! What stands in front of the origin, as a cache's callers meet it: breaker (BRK), throttle (THR), limits
//! (LIM, OVR), what failures leave behind (MEM, ACC, CLO), and loads at the edges of capacity and life
//! (EVI-12, CAP-04, PER, SHU).

mod common;
#[path = "common/paced.rs"]
mod paced;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use common::loads::{
    Form, Gate, Polled, Runtime, assert_at_rest, assert_no_load_runs, until, until_waiting,
};
use common::{Census, Counted, Later, Told, ignore, must_end};
use paced::{
    Background, FORMS, Paused, Said, good_for_errors, never, on_threads, secs, stale_for_a_minute,
};
use seawall::guard::{Backoff, BreakerOptions, BreakerState, Rate, Refusal};
use seawall::{
    Builder, Cache, Clock, EntryState, InsertOptions, Load, LoadError, ManualClock, RemovalCause,
    Source, WhyStale,
};

type Answer = Result<u64, LoadError<&'static str>>;

fn down() -> Gate<Said> {
    Gate::opened(Err("down"))
}

fn says(value: u64) -> Gate<Said> {
    Gate::opened(Ok(Load::Value(value)))
}

/// An async load of a key; not yet polled.
fn load(cache: &Cache<u64, u64>, key: u64, gate: &Gate<Said>) -> Polled<'static, Answer> {
    let (cache, gate) = (cache.clone(), gate.clone());
    Polled::new(async move { cache.get_or_load_async(&key, || gate.pass_async()).await })
}

/// Polls async loads of many keys once each; returns those that wait, and what the others were told.
fn begin_all(
    cache: &Cache<u64, u64>,
    keys: impl IntoIterator<Item = u64>,
    gate: &Gate<Said>,
) -> (Vec<Polled<'static, Answer>>, Vec<Answer>) {
    let (mut waiting, mut told) = (Vec::new(), Vec::new());
    for key in keys {
        let mut load = load(cache, key, gate);
        match load.poll() {
            Poll::Pending => waiting.push(load),
            Poll::Ready(answer) => told.push(answer),
        }
    }
    (waiting, told)
}

#[track_caller]
fn ready<T>(load: &mut Polled<'_, T>) -> T {
    match load.poll() {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

fn is_breaker_open<E>(told: &Result<u64, LoadError<E>>) -> bool {
    matches!(told, Err(LoadError::Refused(Refusal::BreakerOpen { .. })))
}

fn is_in_flight<E>(told: &Result<u64, LoadError<E>>) -> bool {
    matches!(told, Err(LoadError::Refused(Refusal::InFlight { .. })))
}

fn is_waiters<E>(told: &Result<u64, LoadError<E>>) -> bool {
    matches!(told, Err(LoadError::Refused(Refusal::Waiters { .. })))
}

fn is_throttled<E>(told: &Result<u64, LoadError<E>>) -> bool {
    matches!(told, Err(LoadError::Refused(Refusal::Throttled { .. })))
}

fn on_a_clock() -> (Builder<u64, u64>, ManualClock) {
    let (clock, hand) = Clock::manual();
    (Cache::builder().max_entries(1_000).clock(clock), hand)
}

/// A cache with a breaker that opens at `failures` in a row, for ten seconds.
fn breaking(failures: u32, probes: u32) -> (Cache<u64, u64>, ManualClock) {
    let (builder, hand) = on_a_clock();
    let options =
        BreakerOptions::new().consecutive_failures(failures).probes(probes).open_for(secs(10));
    (builder.breaker(options).build().unwrap(), hand)
}

fn breaker(cache: &Cache<u64, u64>) -> BreakerState {
    cache.limits().breaker().state()
}

// BRK-01

#[test]
fn brk_01_half_open_lets_the_quota_in_and_refuses_all_others_at_once() {
    for quota in [1, 3] {
        for well in [true, false] {
            let (cache, hand) = breaking(1, quota);
            ignore(Form::Blocking.call(&cache, &0, &down()));
            assert_eq!(breaker(&cache), BreakerState::Open);
            assert!(is_breaker_open(&Form::Blocking.call(&cache, &1, &says(1))));
            hand.advance(secs(10));
            let gate = Gate::new();
            let (mut probes, refused) = begin_all(&cache, 1..=100, &gate);
            assert_eq!(
                (gate.entered(), probes.len(), refused.len()),
                (quota as usize, quota as usize, 100 - quota as usize)
            );
            assert!(refused.iter().all(is_breaker_open));
            assert_eq!(breaker(&cache), BreakerState::HalfOpen);
            gate.open(if well { Ok(Load::Value(5)) } else { Err("down") });
            let told: Vec<_> = probes.iter_mut().map(ready).collect();
            drop(probes);
            assert!(told.iter().all(|told| told.is_ok() == well));
            if well {
                assert_eq!(breaker(&cache), BreakerState::Closed);
                assert_eq!(Form::Blocking.call(&cache, &200, &says(1)), Ok(1));
            } else {
                assert_eq!(breaker(&cache), BreakerState::Open);
                hand.advance(Duration::from_millis(9_999));
                assert!(is_breaker_open(&Form::Blocking.call(&cache, &200, &says(1))));
            }
            assert_at_rest(&cache);
        }
    }
}

#[test]
fn brk_01_threads_that_come_together_do_not_exceed_the_quota() {
    for quota in [1, 3] {
        must_end(move || {
            let (cache, hand) = breaking(1, quota);
            for round in 0..20 {
                ignore(Form::Blocking.call(&cache, &(round * 100), &down()));
                hand.advance(secs(10));
                let gate: Gate<Said> = Gate::new();
                let barrier = Arc::new(Barrier::new(16));
                let threads: Vec<_> = (1..=16)
                    .map(|key| {
                        let (cache, gate, barrier) =
                            (cache.clone(), gate.clone(), Arc::clone(&barrier));
                        thread::spawn(move || {
                            barrier.wait();
                            Form::Blocking.call(&cache, &(round * 100 + key), &gate)
                        })
                    })
                    .collect();
                gate.until_entered(quota as usize);
                until(|| {
                    threads.iter().filter(|it| it.is_finished()).count() == 16 - quota as usize
                });
                assert_eq!(gate.entered(), quota as usize);
                gate.open(Ok(Load::Value(1)));
                let told: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
                assert_eq!(told.iter().filter(|told| told.is_ok()).count(), quota as usize);
                assert_eq!(breaker(&cache), BreakerState::Closed);
            }
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn brk_01_stale_values_are_served_while_it_is_open() {
    for form in Form::ALL {
        for (builder, hand) in [stale_for_a_minute(), good_for_errors()] {
            let cache =
                builder.breaker(BreakerOptions::new().consecutive_failures(1)).build().unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(10));
            ignore(Form::Blocking.call(&cache, &0, &down()));
            let outcome = cache.load(&1).run(|_| never()).unwrap();
            assert_eq!(outcome.value, Some(1));
            let Source::Stale(WhyStale::Refused(refusal)) = outcome.source else {
                panic!("{outcome:?}")
            };
            assert_eq!(refusal, Refusal::BreakerOpen { retry_after: secs(10) });
            assert_eq!(form.call(&cache, &1, &down()), Ok(1));
            assert_eq!(cache.load_stats().started, 1);
        }
    }
}

// BRK-03

#[test]
fn brk_03_a_late_result_of_an_earlier_era_changes_nothing() {
    for well in [true, false] {
        for form in Form::ALL {
            must_end(move || {
                let (cache, hand) = breaking(3, 2);
                let slow = Gate::new();
                let late = form.begin(&cache, 1_000, &slow);
                slow.until_entered(1);
                for key in 0..3 {
                    ignore(Form::Blocking.call(&cache, &key, &down()));
                }
                hand.advance(secs(10));
                let gate = Gate::new();
                let (mut probes, _) = begin_all(&cache, 10..11, &gate);
                assert_eq!(breaker(&cache), BreakerState::HalfOpen);
                slow.open(if well { Ok(Load::Value(1)) } else { Err("down") });
                ignore(late.join().unwrap());
                assert_eq!(breaker(&cache), BreakerState::HalfOpen, "{form:?}");
                let (second, refused) = begin_all(&cache, 11..14, &gate);
                assert_eq!((second.len(), refused.len()), (1, 2), "one probe was left");
                probes.extend(second);
                gate.open(Ok(Load::Value(1)));
                probes.iter_mut().for_each(|probe| assert_eq!(ready(probe), Ok(1)));
                drop(probes);
                assert_eq!(
                    (breaker(&cache), cache.limits().breaker().openings()),
                    (BreakerState::Closed, 1)
                );
                assert_at_rest(&cache);
            });
        }
    }
}

// BRK-05

#[test]
fn brk_05_a_failed_probe_opens_it_again_although_the_rate_is_not_reached() {
    for form in Form::ALL {
        let (builder, hand) = on_a_clock();
        let options = BreakerOptions::new()
            .consecutive_failures(0)
            .failure_rate(0.5, 10, 10)
            .unwrap()
            .open_for(secs(10));
        let cache = builder.breaker(options).build().unwrap();
        for key in 0..10 {
            let gate = if key < 4 { says(key) } else { down() };
            ignore(form.call(&cache, &key, &gate));
        }
        assert_eq!(breaker(&cache), BreakerState::Open, "{form:?}");
        hand.advance(secs(10));
        assert_eq!(form.call(&cache, &20, &down()), Err(LoadError::Failed("down")));
        assert_eq!(breaker(&cache), BreakerState::Open);
        hand.advance(Duration::from_millis(9_999));
        assert!(is_breaker_open(&form.call(&cache, &20, &says(1))));
        hand.advance(Duration::from_millis(1));
        assert_eq!(form.call(&cache, &20, &says(1)), Ok(1));
        assert_eq!(breaker(&cache), BreakerState::Closed);
        assert_at_rest(&cache);
    }
}

// BRK-07

#[test]
fn brk_07_callers_that_leave_are_no_failures() {
    let (cache, _hand) = breaking(1, 1);
    let gate = Gate::new();
    for key in 0..1_000 {
        let mut load = load(&cache, key, &gate);
        assert!(load.poll().is_pending());
    }
    assert_eq!(gate.entered(), 1_000);
    let counts = cache.limits().counts();
    assert_eq!((counts.cancelled, counts.failed), (1_000, 0));
    assert_eq!((breaker(&cache), cache.load_stats().abandoned), (BreakerState::Closed, 1_000));
    assert_at_rest(&cache);
}

#[test]
fn brk_07_callers_whose_patience_ends_are_no_failures() {
    for form in [Form::Shared, Form::Local] {
        let (cache, hand) = breaking(1, 1);
        let gate: Gate<Said> = Gate::new();
        for key in 0..100 {
            let request = cache.load(&key).timeout(secs(1));
            let mut load = match form {
                Form::Shared => Polled::begun(request.run_async(|_| gate.pass_async())),
                _ => Polled::begun(request.run_local(|_| gate.pass_async())),
            };
            hand.advance(secs(1));
            assert_eq!(ready(&mut load).unwrap_err(), LoadError::TimedOut);
        }
        let counts = cache.limits().counts();
        assert_eq!((counts.cancelled, counts.failed), (100, 0), "{form:?}");
        assert_eq!(breaker(&cache), BreakerState::Closed, "{form:?}");
        assert_eq!(cache.load_stats().timed_out, 0, "of the loads; {form:?}");
        assert_at_rest(&cache);
    }
}

#[test]
fn brk_07_a_local_callers_patience_does_not_end_the_waiting_of_others() {
    let (cache, hand) = breaking(1, 1);
    let gate: Gate<Said> = Gate::new();
    let request = cache.load(&1).timeout(secs(1));
    let mut leader = Polled::begun(request.run_local(|_| gate.pass_async()));
    let mut follower = load(&cache, 1, &gate);
    assert!(follower.poll().is_pending());
    hand.advance(secs(1));
    assert_eq!(ready(&mut leader), Err(LoadError::TimedOut));
    drop(leader);
    gate.open(Ok(Load::Value(7)));
    assert_eq!(follower.finish(), Ok(7), "it begins anew");
    assert_at_rest(&cache);
}

#[test]
fn brk_07_followers_that_leave_are_no_failures() {
    must_end(|| {
        let (cache, hand) = breaking(1, 1);
        let gate: Gate<Said> = Gate::new();
        let leader = Form::Blocking.begin(&cache, 1, &gate);
        gate.until_entered(1);
        let (followers, _) = begin_all(&cache, [1; 100], &gate);
        assert_eq!(cache.load_stats().waiting, 100);
        drop(followers);
        let mut impatient =
            Polled::begun(cache.load(&1).timeout(secs(1)).run_async(|_| gate.pass_async()));
        hand.advance(secs(1));
        assert_eq!(ready(&mut impatient), Err(LoadError::TimedOut));
        drop(impatient);
        assert_eq!((cache.load_stats().waiting, breaker(&cache)), (0, BreakerState::Closed));
        gate.open(Ok(Load::Value(1)));
        assert_eq!(leader.join().unwrap(), Ok(1));
        assert_eq!(cache.limits().counts().failed, 0);
        assert_at_rest(&cache);
    });
}

#[test]
fn brk_07_a_loads_own_timeout_is_a_failure() {
    for form in [Form::Shared, Form::Local] {
        must_end(move || {
            let (builder, hand) = on_a_clock();
            let cache = builder
                .breaker(BreakerOptions::new().consecutive_failures(1))
                .load_timeout(secs(5))
                .build()
                .unwrap();
            let gate: Gate<Said> = Gate::new();
            let leader = form.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let follower = Form::Blocking.begin(&cache, 1, &gate);
            until_waiting(&cache, 1);
            until(|| hand.sleepers() >= 2);
            hand.advance(secs(5));
            assert_eq!(leader.join().unwrap(), Err(LoadError::TimedOut), "{form:?}");
            assert_eq!(follower.join().unwrap(), Err(LoadError::TimedOut), "{form:?}");
            assert_eq!((breaker(&cache), cache.load_stats().timed_out), (BreakerState::Open, 1));
            assert_eq!(gate.inside(), 0, "the loader was dropped");
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn brk_07_a_loads_own_timeout_is_a_failure_also_if_only_blocked_callers_are_left() {
    for _ in 0..20 {
        must_end(|| {
            let (builder, hand) = on_a_clock();
            let cache = builder
                .breaker(BreakerOptions::new().consecutive_failures(1))
                .load_timeout(secs(5))
                .build()
                .unwrap();
            let gate: Gate<Said> = Gate::new();
            let mut leader = load(&cache, 1, &gate);
            assert!(leader.poll().is_pending());
            let follower = Form::Blocking.begin(&cache, 1, &gate);
            until_waiting(&cache, 1);
            drop(leader);
            // The load's own deadline, and that of the one who waits.
            until(|| hand.sleepers() == 2);
            hand.advance(secs(5));
            assert_eq!(follower.join().unwrap(), Err(LoadError::TimedOut));
            let stats = cache.load_stats();
            assert_eq!((stats.timed_out, stats.abandoned), (1, 0));
            assert_eq!(breaker(&cache), BreakerState::Open);
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn brk_07_a_panic_is_a_failure_and_a_refusal_of_our_own_is_none() {
    let (cache, _hand) = breaking(2, 1);
    cache.limits().set_max_in_flight(1);
    let gate: Gate<Said> = Gate::new();
    let mut held = load(&cache, 1, &gate);
    assert!(held.poll().is_pending());
    let (_, refused) = begin_all(&cache, 2..=50, &gate);
    assert_eq!(refused.iter().filter(|told| is_in_flight(told)).count(), 49);
    assert_eq!((cache.limits().counts().failed, breaker(&cache)), (0, BreakerState::Closed));
    gate.open_to_panic("down");
    assert!(matches!(ready(&mut held), Err(LoadError::Panicked(_))));
    drop(held);
    assert_eq!(cache.limits().counts().failed, 1);
    assert!(common::panics(|| ignore(Form::Blocking.call(&cache, &1, &gate))));
    assert_eq!(breaker(&cache), BreakerState::Open);
    assert_at_rest(&cache);
}

// BRK-09

#[test]
fn brk_09_it_opens_at_exactly_the_threshold_and_once() {
    for form in Form::ALL {
        let (cache, _hand) = breaking(5, 1);
        for key in 0..5 {
            assert_eq!(breaker(&cache), BreakerState::Closed);
            ignore(form.call(&cache, &key, &down()));
        }
        assert_eq!((breaker(&cache), cache.limits().breaker().openings()), (BreakerState::Open, 1));
    }
}

#[test]
fn brk_09_failures_that_land_together_open_it_once() {
    must_end(|| {
        for round in 0..100 {
            let (cache, _hand) = breaking(5, 1);
            let gate: Gate<Said> = Gate::new();
            let loads: Vec<_> =
                (0..5).map(|key| Form::ALL[round % 3].begin(&cache, key, &gate)).collect();
            gate.until_entered(5);
            gate.open(Err("down"));
            loads.into_iter().for_each(|load| ignore(load.join().unwrap()));
            assert_eq!(
                (breaker(&cache), cache.limits().breaker().openings()),
                (BreakerState::Open, 1)
            );
        }
    });
    let (cache, _hand) = breaking(5, 1);
    let gate = Gate::new();
    let (mut loads, _) = begin_all(&cache, 0..100, &gate);
    gate.open(Err("down"));
    loads.iter_mut().for_each(|load| ignore(ready(load)));
    assert_eq!((loads.len(), cache.limits().breaker().openings()), (100, 1));
}

// BRK-11

#[test]
fn brk_11_an_order_holds_until_it_is_released() {
    for form in Form::ALL {
        let (cache, hand) = breaking(2, 1);
        let rule = || cache.limits().breaker();
        (0..2).for_each(|key| ignore(form.call(&cache, &key, &down())));
        rule().force_open();
        hand.advance(secs(1_000));
        assert!(is_breaker_open(&form.call(&cache, &1, &says(1))));
        assert_eq!(rule().state(), BreakerState::ForcedOpen);
        rule().force_closed();
        for key in 0..20 {
            assert_eq!(form.call(&cache, &key, &down()), Err(LoadError::Failed("down")));
        }
        assert_eq!(rule().state(), BreakerState::ForcedClosed);
        rule().release();
        assert_eq!(rule().state(), BreakerState::Closed);
        ignore(form.call(&cache, &1, &down()));
        assert_eq!(rule().state(), BreakerState::Closed, "counts anew");
        ignore(form.call(&cache, &1, &down()));
        assert_eq!(rule().state(), BreakerState::Open);
        assert_at_rest(&cache);
    }
}

// BRK-13

#[test]
fn brk_13_slow_failures_start_no_more_loads_than_the_limit_and_the_threshold_allow() {
    let (cache, hand) = breaking(3, 1);
    cache.limits().set_max_in_flight(8);
    let gates: Vec<Gate<Said>> = (0..100).map(|_| Gate::new()).collect();
    let mut loads = Vec::new();
    let begin = |loads: &mut Vec<(usize, Polled<'static, Answer>)>| {
        for (key, gate) in gates.iter().enumerate() {
            let mut load = load(&cache, key as u64, gate);
            if gate.entered() == 0 && load.poll().is_pending() {
                loads.push((key, load));
            }
        }
    };
    begin(&mut loads);
    assert_eq!((loads.len(), cache.limits().in_flight()), (8, 8));
    for failures in 1..=3 {
        let (key, mut load) = loads.remove(0);
        gates[key].open(Err("down"));
        assert_eq!(ready(&mut load), Err(LoadError::Failed("down")));
        drop(load);
        begin(&mut loads);
        let expected = if failures < 3 { 8 } else { 7 };
        assert_eq!(loads.len(), expected, "after {failures} failures");
    }
    assert_eq!(cache.load_stats().started, 10);
    let late: Vec<_> = loads.drain(..4).collect();
    let fail = |(key, mut load): (usize, Polled<'static, Answer>)| {
        gates[key].open(Err("down"));
        ignore(ready(&mut load));
    };
    late.into_iter().for_each(fail);
    assert_eq!((breaker(&cache), cache.limits().breaker().openings()), (BreakerState::Open, 1));
    hand.advance(secs(10));
    let probe_gate = Gate::new();
    let (mut probe, _) = begin_all(&cache, 500..501, &probe_gate);
    assert_eq!(breaker(&cache), BreakerState::HalfOpen, "no pause was lengthened");
    loads.into_iter().for_each(fail);
    assert_eq!(breaker(&cache), BreakerState::HalfOpen, "no probe has failed");
    probe_gate.open(Ok(Load::Value(1)));
    assert_eq!(ready(&mut probe[0]), Ok(1));
    drop(probe);
    assert_eq!((breaker(&cache), cache.limits().breaker().openings()), (BreakerState::Closed, 1));
    assert_at_rest(&cache);
}

#[test]
fn a_probe_that_never_answers_is_given_up_after_a_pause() {
    let (cache, hand) = breaking(1, 1);
    ignore(Form::Blocking.call(&cache, &0, &down()));
    hand.advance(secs(10));
    let hanging = Gate::new();
    let mut probe = load(&cache, 1, &hanging);
    assert!(probe.poll().is_pending());
    hand.advance(Duration::from_millis(9_999));
    assert!(is_breaker_open(&Form::Blocking.call(&cache, &2, &says(2))));
    hand.advance(Duration::from_millis(1));
    assert_eq!(Form::Blocking.call(&cache, &2, &says(2)), Ok(2));
    assert_eq!(breaker(&cache), BreakerState::Closed);
    hanging.open(Err("down"));
    ignore(ready(&mut probe));
    assert_eq!(breaker(&cache), BreakerState::Closed, "an earlier era");
}

#[test]
fn a_probe_whose_caller_leaves_makes_room_for_another() {
    let (cache, hand) = breaking(1, 1);
    ignore(Form::Blocking.call(&cache, &0, &down()));
    hand.advance(secs(10));
    let gate = Gate::new();
    for key in 1..=10 {
        let mut probe = load(&cache, key, &gate);
        assert!(probe.poll().is_pending(), "the probe of key {key}");
    }
    assert_eq!(breaker(&cache), BreakerState::HalfOpen);
    assert_eq!(Form::Blocking.call(&cache, &20, &says(2)), Ok(2));
    assert_eq!(breaker(&cache), BreakerState::Closed);
    assert_at_rest(&cache);
}

// THR-01

#[test]
fn thr_01_a_hanging_attempt_holds_up_nobody_who_has_good_data_at_hand() {
    for form in Form::ALL {
        for (builder, hand) in [stale_for_a_minute(), good_for_errors()] {
            must_end(move || {
                let cache = builder.min_retry_interval(secs(5)).build().unwrap();
                cache.insert(1, 1).unwrap();
                hand.advance(secs(10));
                let gate: Gate<Said> = Gate::new();
                let attempt = form.begin(&cache, 1, &gate);
                gate.until_entered(1);
                hand.advance(secs(1));
                for other in Form::ALL {
                    for _ in 0..34 {
                        assert_eq!(other.call(&cache, &1, &gate), Ok(1), "{form:?}");
                    }
                }
                assert_eq!((cache.load_stats().joined, gate.entered()), (0, 1));
                gate.open(Err("down"));
                assert_eq!(attempt.join().unwrap(), Ok(1));
                hand.advance(secs(3));
                for _ in 0..100 {
                    assert_eq!(form.call(&cache, &1, &gate), Ok(1), "{form:?}");
                }
                assert_eq!(gate.entered(), 1);
                hand.advance(secs(1));
                assert_eq!(form.call(&cache, &1, &gate), Ok(1));
                assert_eq!(gate.entered(), 2);
                assert_no_load_runs(&cache);
            });
        }
    }
}

#[test]
fn thr_01_without_data_a_hanging_attempt_is_joined() {
    must_end(|| {
        let (builder, _hand) = on_a_clock();
        let cache = builder.min_retry_interval(secs(5)).build().unwrap();
        let gate: Gate<Said> = Gate::new();
        let loads: Vec<_> = Form::ALL.map(|form| form.begin(&cache, 1, &gate)).into();
        until(|| gate.entered() == 1 && cache.load_stats().waiting == 2);
        gate.open(Ok(Load::Value(1)));
        loads.into_iter().for_each(|load| assert_eq!(load.join().unwrap(), Ok(1)));
        assert_at_rest(&cache);
    });
}

// THR-03

#[test]
fn thr_03_a_throttled_answer_is_no_absence_and_says_how_long() {
    for form in Form::ALL {
        let (builder, hand) = on_a_clock();
        let cache =
            builder.min_retry_interval(secs(5)).absent_time_to_live(secs(30)).build().unwrap();
        assert_eq!(form.call(&cache, &1, &down()), Err(LoadError::Failed("down")));
        hand.advance(secs(2));
        let refusal = Refusal::Throttled { retry_after: secs(3) };
        assert_eq!(form.call(&cache, &1, &says(1)), Err(LoadError::Refused(refusal)));
        let absent = Gate::opened(Ok::<_, &str>(Load::<u64>::Absent));
        for _ in 0..2 {
            assert_eq!(form.call(&cache, &2, &absent), Err(LoadError::Absent));
        }
        hand.advance(secs(3));
        assert_eq!(form.call(&cache, &1, &says(1)), Ok(1), "nothing negative was stored");
        assert_eq!(cache.limits().counts().refused.throttled, 1);
    }
}

// THR-05

#[test]
fn thr_05_a_failed_refresh_is_tried_again_after_the_interval_and_renews_nothing() {
    for form in Form::ALL {
        let (builder, hand) = stale_for_a_minute();
        let cache = builder.min_retry_interval(secs(1)).build().unwrap();
        cache.insert(1, 1).unwrap();
        let origin = down();
        hand.set(secs(10));
        assert_eq!(form.call(&cache, &1, &origin), Ok(1));
        hand.set(Duration::from_millis(11_500));
        let seen = cache.get_with(&1, |entry| (entry.state(), entry.age()));
        assert_eq!(seen, Some((EntryState::Stale, Some(Duration::from_millis(11_500)))));
        assert_eq!(form.call(&cache, &1, &origin), Ok(1));
        assert_eq!(origin.entered(), 2, "{form:?}");
        hand.set(secs(70));
        assert_eq!(form.call(&cache, &1, &origin), Err(LoadError::Failed("down")));
        assert_no_load_runs(&cache);
    }
}

// THR-07

#[test]
fn thr_07_a_keys_failure_is_its_own() {
    for form in Form::ALL {
        let (builder, _hand) = on_a_clock();
        let cache = builder.min_retry_interval(secs(5)).build().unwrap();
        assert_eq!(form.call(&cache, &1, &down()), Err(LoadError::Failed("down")));
        cache.insert(2, 2).unwrap();
        assert!(cache.invalidate(&2));
        assert_eq!(cache.get(&2), None);
        cache.insert(3, 3).unwrap();
        assert_eq!(cache.remove(&3), Some(3));
        assert_eq!(form.call(&cache, &3, &says(4)), Ok(4), "{form:?}");
        assert!(is_throttled(&form.call(&cache, &1, &says(1))));
        assert_no_load_runs(&cache);
    }
}

// The interval, whatever a load brings

/// Loads of which nothing new is stored, or nothing that shows when it was loaded.
fn answers() -> Vec<(&'static str, Said)> {
    let with = |options| Ok(Load::With(2, options));
    vec![
        ("an error", Err("down")),
        ("a value that is not to be stored", Ok(Load::NotStored(2))),
        ("an absence", Ok(Load::Absent)),
        ("an absence for no time", Ok(Load::AbsentFor(Duration::ZERO))),
        ("nothing new", Ok(Load::Unchanged)),
        ("a value that is too heavy", with(InsertOptions::new().weight(1_000_000))),
        ("an older version", with(InsertOptions::new().version(1))),
        ("a value that is dead at once", with(InsertOptions::new().time_to_live(Duration::ZERO))),
        ("an old value", with(InsertOptions::new().age(secs(8)).time_to_live(secs(9)))),
        ("options that make no sense", with(InsertOptions::new().time_to_live(TOO_SHORT))),
    ]
}

const TOO_SHORT: Duration = Duration::from_micros(10);

#[test]
fn a_key_is_loaded_once_in_an_interval_whatever_its_loads_bring() {
    let mut wrong = Vec::new();
    for stale in [false, true] {
        for (name, answer) in answers() {
            let (clock, hand) = Clock::manual();
            let cache: Cache<u64, u64> = Cache::builder()
                .max_weight(1_000)
                .time_to_live(secs(10))
                .stale_while_revalidate(secs(60))
                .min_retry_interval(secs(5))
                .clock(clock)
                .build()
                .unwrap();
            if stale {
                cache.insert_with(1, 1, InsertOptions::new().version(3)).unwrap();
                hand.advance(secs(10));
            }
            let gate = Gate::opened(answer);
            for _ in 0..5 {
                ignore(Form::Blocking.call(&cache, &1, &gate));
                hand.advance(secs(1));
            }
            if gate.entered() != 1 {
                wrong.push((name, if stale { "stale" } else { "missing" }, gate.entered()));
            }
            ignore(Form::Blocking.call(&cache, &1, &gate));
            assert!(gate.entered() >= 1);
            assert_no_load_runs(&cache);
        }
    }
    assert_eq!(wrong, [], "what was loaded, what there was before, loads in five seconds");
}

#[test]
fn a_load_that_no_longer_holds_its_key_counts_for_the_interval_too() {
    for stale in [false, true] {
        let (builder, hand) = good_for_errors();
        let cache = builder.min_retry_interval(secs(5)).lead_timeout(secs(2)).build().unwrap();
        if stale {
            cache.insert(1, 1).unwrap();
        }
        hand.advance(secs(10));
        let gate: Gate<Said> = Gate::new();
        let mut hanging = load(&cache, 1, &gate);
        assert!(hanging.poll().is_pending());
        hand.advance(secs(2));
        let told = Form::Blocking.call(&cache, &1, &says(2));
        assert!(if stale { told == Ok(1) } else { is_throttled(&told) }, "{told:?}");
        hand.advance(secs(3));
        assert_eq!(Form::Blocking.call(&cache, &1, &says(2)), Ok(2));
    }
}

#[test]
fn a_value_without_a_deadline_counts_for_the_interval_too() {
    let (clock, hand) = Clock::manual();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(10)
        .stale_while_revalidate(secs(60))
        .min_retry_interval(secs(5))
        .clock(clock)
        .build()
        .unwrap();
    hand.advance(secs(1));
    let gate = says(1);
    for _ in 0..5 {
        assert_eq!(Form::Blocking.call(&cache, &1, &gate), Ok(1));
        cache.mark_stale(&1);
        hand.advance(secs(1));
    }
    assert_eq!(gate.entered(), 1, "one load in five seconds");
    assert_eq!(Form::Blocking.call(&cache, &1, &says(2)), Ok(2));
}

#[test]
fn backoff_lengthens_from_failure_to_failure_and_a_success_ends_it() {
    for form in Form::ALL {
        let (builder, hand) = on_a_clock();
        let backoff = Backoff::new(secs(1), secs(60)).unwrap().jitter(0.0).unwrap();
        let cache = builder.backoff(backoff).build().unwrap();
        let origin = down();
        for (failures, pause) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16)] {
            assert_eq!(form.call(&cache, &1, &origin), Err(LoadError::Failed("down")));
            assert_eq!(origin.entered(), failures, "{form:?}");
            let refusal = Refusal::Throttled { retry_after: secs(pause) };
            assert_eq!(form.call(&cache, &1, &origin), Err(LoadError::Refused(refusal)));
            hand.advance(secs(pause));
        }
        assert_eq!(form.call(&cache, &1, &says(1)), Ok(1));
        cache.invalidate(&1);
        assert_eq!(form.call(&cache, &1, &origin), Err(LoadError::Failed("down")));
        let refusal = Refusal::Throttled { retry_after: secs(1) };
        assert_eq!(form.call(&cache, &1, &origin), Err(LoadError::Refused(refusal)));
    }
}

#[test]
fn observe_only_counts_what_would_have_been_refused_and_nothing_else() {
    let (builder, hand) = on_a_clock();
    let cache =
        builder.min_retry_interval(secs(5)).max_in_flight(1).observe_only(true).build().unwrap();
    assert_eq!(Form::Blocking.call(&cache, &1, &down()), Err(LoadError::Failed("down")));
    assert_eq!(cache.limits().counts().observed.total(), 0, "nothing would have been refused");
    hand.advance(secs(1));
    assert_eq!(Form::Blocking.call(&cache, &1, &says(1)), Ok(1));
    assert_eq!(cache.limits().counts().observed.throttled, 1);
    let gate = Gate::new();
    let (mut loads, _) = begin_all(&cache, 2..=5, &gate);
    assert_eq!((loads.len(), cache.limits().counts().observed.in_flight), (4, 3));
    gate.open(Ok(Load::Value(1)));
    loads.iter_mut().for_each(|load| assert_eq!(ready(load), Ok(1)));
    drop(loads);
    assert_eq!(cache.limits().counts().refused.total(), 0);
    assert_no_load_runs(&cache);
}

#[test]
fn a_rate_is_taken_by_loads_and_not_by_those_who_join_or_hit() {
    must_end(|| {
        let (builder, hand) = on_a_clock();
        let rate = Rate::new(2, secs(10)).unwrap();
        let cache = builder.rate_limit(rate).build().unwrap();
        let gate: Gate<Said> = Gate::new();
        let first = Form::Blocking.begin(&cache, 1, &gate);
        gate.until_entered(1);
        let followers: Vec<_> = Form::ALL.iter().map(|form| form.begin(&cache, 1, &gate)).collect();
        until_waiting(&cache, 3);
        gate.open(Ok(Load::Value(1)));
        assert_eq!(first.join().unwrap(), Ok(1));
        followers.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), Ok(1)));
        (0..10).for_each(|_| assert_eq!(Form::Shared.call(&cache, &1, &says(2)), Ok(1)));
        assert_eq!(Form::Blocking.call(&cache, &2, &says(2)), Ok(2));
        let refused = Form::Blocking.call(&cache, &3, &says(3));
        assert_eq!(refused, Err(LoadError::Refused(Refusal::Rate { retry_after: secs(5) })));
        hand.advance(secs(5));
        assert_eq!(Form::Blocking.call(&cache, &3, &says(3)), Ok(3));
        assert_at_rest(&cache);
    });
}

// LIM-01

#[test]
fn lim_01_callers_that_give_up_swallow_no_permit_and_no_place() {
    let (builder, hand) = on_a_clock();
    let cache = builder.max_in_flight(8).max_waiters(50).wait_timeout(secs(1)).build().unwrap();
    for round in 0..30 {
        let begin = round * 1_000;
        let gate: Gate<Said> = Gate::new();
        let (mut held, _) = begin_all(&cache, begin..begin + 8, &gate);
        assert_eq!(held.len(), 8);
        let (_, refused) = begin_all(&cache, begin + 8..begin + 108, &gate);
        assert!(refused.len() == 100 && refused.iter().all(is_in_flight));
        // Never polled; polled once; polled until their time is up.
        drop((0..50).map(|_| load(&cache, begin, &gate)).collect::<Vec<_>>());
        let (waiting, _) = begin_all(&cache, [begin; 50], &gate);
        assert_eq!((waiting.len(), cache.load_stats().waiting), (50, 50));
        drop(waiting);
        let (mut waiting, _) = begin_all(&cache, [begin + 1; 50], &gate);
        held.extend(begin_all(&cache, [begin + 2], &gate).0);
        assert_eq!((held.len(), cache.load_stats().waiting), (8, 50));
        hand.advance(secs(1));
        waiting.iter_mut().for_each(|it| assert_eq!(ready(it), Err(LoadError::TimedOut)));
        drop(waiting);
        held.iter_mut().for_each(|it| assert_eq!(ready(it), Err(LoadError::TimedOut)));
        drop(held);
        assert_eq!((cache.limits().in_flight(), cache.limits().waiters()), (0, 0));
        let gate = Gate::new();
        let (mut loads, refused) = begin_all(&cache, begin + 200..begin + 209, &gate);
        assert_eq!((loads.len(), refused.len(), gate.inside()), (8, 1, 8));
        gate.open(Ok(Load::Value(1)));
        loads.iter_mut().for_each(|it| assert_eq!(ready(it), Ok(1)));
    }
    assert_at_rest(&cache);
}

#[test]
fn lim_01_threads_and_tasks_that_come_and_go_leave_all_permits_free() {
    must_end(|| {
        let cache: Cache<u64, u64> =
            Cache::builder().max_entries(100).max_in_flight(4).max_waiters(4).build().unwrap();
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (cache, next) = (&cache, &next);
                scope.spawn(move || {
                    for round in 0..300 {
                        let key = next.fetch_add(1, SeqCst) / 3;
                        let gate = if round % 3 == 0 { Gate::new() } else { says(key) };
                        let mut task = load(cache, key, &gate);
                        match (round + thread) % 4 {
                            0 => drop(task),
                            1 => drop(task.poll()),
                            2 => {
                                drop(task.poll());
                                gate.open(Err("down"));
                                drop(task);
                            }
                            _ => {
                                gate.open(Ok(Load::Value(key)));
                                ignore(Form::Blocking.call(cache, &key, &gate));
                            }
                        }
                        // Another thread may have joined, and so drive what this one has left.
                        gate.open(Ok(Load::Value(key)));
                    }
                });
            }
        });
        assert_no_load_runs(&cache);
        let gate = Gate::new();
        let (loads, refused) = begin_all(&cache, 100_000..100_005, &gate);
        assert_eq!((loads.len(), refused.len()), (4, 1));
        drop(loads);
        assert_at_rest(&cache);
    });
}

// LIM-03

#[test]
fn lim_03_nobody_is_refused_because_of_others_who_are_refused() {
    must_end(|| {
        let cache: Cache<u64, u64> = Cache::builder()
            .max_entries(100)
            .max_in_flight(4)
            .background_share(0.0)
            .build()
            .unwrap();
        let gate: Gate<Said> = Gate::new();
        let (held, _) = begin_all(&cache, 0..3, &gate);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 1..=2 {
                let (cache, over) = (&cache, &over);
                scope.spawn(move || {
                    while !over.load(SeqCst) {
                        let refused = cache.load(&(thread * 1_000)).background().run(|_| never());
                        assert!(matches!(refused, Err(LoadError::Refused(_))));
                    }
                });
            }
            let mut refused = 0;
            for key in 10_000..14_000 {
                refused += usize::from(cache.get_or_load(&key, || key).is_err());
            }
            over.store(true, SeqCst);
            assert_eq!(refused, 0, "a permit was free all the time");
        });
        drop(held);
        assert_at_rest(&cache);
    });
}

// LIM-05

#[test]
fn lim_05_no_more_callers_wait_than_may_and_all_leave_in_time() {
    for sort in [Form::Shared, Form::Blocking] {
        must_end(move || {
            let (builder, hand) = on_a_clock();
            let cache = builder.max_waiters(100).wait_timeout(secs(1)).build().unwrap();
            let gate: Gate<Said> = Gate::new();
            let leader = sort.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let (mut waiting, refused) = begin_all(&cache, [1; 2_000], &gate);
            assert_eq!((waiting.len(), refused.len()), (100, 1_900));
            assert!(refused.iter().all(is_waiters));
            assert!(is_waiters(&Form::Blocking.call(&cache, &1, &gate)));
            until(|| hand.sleepers() >= 100);
            hand.advance(secs(1));
            waiting.iter_mut().for_each(|it| assert_eq!(ready(it), Err(LoadError::TimedOut)));
            drop(waiting);
            assert_eq!(cache.limits().waiters(), 0);
            if sort == Form::Shared {
                assert_eq!(leader.join().unwrap(), Err(LoadError::TimedOut));
            } else {
                let threads: Vec<_> =
                    (0..10).map(|_| Form::Blocking.begin(&cache, 1, &gate)).collect();
                until_waiting(&cache, 10);
                until(|| hand.sleepers() == 10);
                hand.advance(secs(1));
                for thread in threads {
                    assert_eq!(thread.join().unwrap(), Err(LoadError::TimedOut));
                }
                gate.open(Ok(Load::Value(1)));
                assert_eq!(leader.join().unwrap(), Ok(1));
            }
            assert_eq!(hand.sleepers(), 0);
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn lim_05_who_may_not_wait_is_served_a_stale_value_if_there_is_one() {
    must_end(|| {
        let (builder, hand) = good_for_errors();
        let cache = builder.max_waiters(2).build().unwrap();
        cache.insert(1, 1).unwrap();
        hand.advance(secs(10));
        let gate: Gate<Said> = Gate::new();
        let leader = Form::Blocking.begin(&cache, 1, &gate);
        gate.until_entered(1);
        let (mut waiting, served) = begin_all(&cache, [1; 10], &gate);
        assert_eq!((waiting.len(), served), (2, vec![Ok(1); 8]));
        gate.open(Ok(Load::Value(2)));
        assert_eq!(leader.join().unwrap(), Ok(2));
        waiting.iter_mut().for_each(|it| assert_eq!(ready(it), Ok(2)));
        drop(waiting);
        assert_eq!(cache.limits().counts().refused.waiters, 8);
        assert_at_rest(&cache);
    });
}

// LIM-07

#[test]
fn lim_07_a_limit_of_zero_is_no_limit() {
    let (builder, _hand) = on_a_clock();
    let cache =
        builder.max_in_flight(0).max_waiters(0).min_retry_interval(Duration::ZERO).build().unwrap();
    for set in [false, true] {
        if set {
            cache.limits().set_max_in_flight(1);
            cache.limits().set_max_waiters(1);
            cache.limits().set_max_in_flight(0);
            cache.limits().set_max_waiters(0);
        }
        let gate: Gate<Said> = Gate::new();
        let (mut loads, refused) = begin_all(&cache, (0..200).map(|at| at / 2), &gate);
        assert_eq!((loads.len(), refused.len(), gate.entered()), (200, 0, 100));
        assert_eq!((cache.limits().in_flight(), cache.limits().waiters()), (100, 100));
        gate.open(Err("down"));
        loads.iter_mut().for_each(|it| assert_eq!(ready(it), Err(LoadError::Failed("down"))));
        drop(loads);
        assert_at_rest(&cache);
    }
}

// LIM-09

#[test]
fn lim_09_an_async_caller_that_may_not_load_does_not_stop_its_executor() {
    for (name, runtime) in Runtime::each() {
        let cache: Cache<u64, u64> =
            Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
        let gate: Gate<Said> = Gate::new();
        runtime.block_on(async {
            let beats = Arc::new(AtomicUsize::new(0));
            let over = Arc::new(AtomicBool::new(false));
            let (count, stop) = (Arc::clone(&beats), Arc::clone(&over));
            let heart = runtime.spawn(async move {
                while !stop.load(SeqCst) {
                    count.fetch_add(1, SeqCst);
                    futures_lite::future::yield_now().await;
                }
            });
            let (handle, held) = (cache.clone(), gate.clone());
            let first = runtime
                .spawn(async move { handle.get_or_load_async(&1, || held.pass_async()).await });
            while gate.entered() == 0 {
                futures_lite::future::yield_now().await;
            }
            let second = cache.get_or_load_async(&2, || async { Ok::<u64, &str>(2) }).await;
            assert!(is_in_flight(&second), "{name}: refused at once");
            let seen = beats.load(SeqCst);
            while beats.load(SeqCst) < seen + 10 {
                futures_lite::future::yield_now().await;
            }
            gate.open(Ok(Load::Value(1)));
            assert_eq!(first.end().await, Ok(1), "{name}");
            let second = cache.get_or_load_async(&2, || async { Ok::<u64, &str>(2) }).await;
            assert_eq!(second, Ok(2), "{name}");
            over.store(true, SeqCst);
            heart.end().await;
        });
        assert_at_rest(&cache);
    }
}

// LIM-11

#[test]
fn lim_11_a_limit_may_change_while_it_is_exhausted() {
    let (builder, _hand) = on_a_clock();
    let cache = builder.max_in_flight(10).build().unwrap();
    let gates: Vec<Gate<Said>> = (0..8).map(|_| Gate::new()).collect();
    let mut held: Vec<_> =
        gates.iter().zip(0..).map(|(gate, key)| load(&cache, key, gate)).collect();
    assert!(held.iter_mut().all(|it| it.poll().is_pending()));
    cache.limits().set_max_in_flight(4);
    assert!(is_in_flight(&Form::Blocking.call(&cache, &100, &says(1))));
    for (gate, mut it) in gates.iter().zip(held.drain(..5).collect::<Vec<_>>()) {
        assert!(is_in_flight(&Form::Blocking.call(&cache, &100, &says(1))), "4 or more run");
        gate.open(Ok(Load::Value(1)));
        assert_eq!(ready(&mut it), Ok(1));
    }
    let gate = Gate::new();
    let (more, refused) = begin_all(&cache, 100..103, &gate);
    assert_eq!((more.len(), refused.len()), (1, 2));
    cache.limits().set_max_in_flight(20);
    let (most, refused) = begin_all(&cache, 200..220, &gate);
    assert_eq!((most.len(), refused.len()), (16, 4));
    cache.limits().set_max_in_flight(0);
    let (any, refused) = begin_all(&cache, 300..400, &gate);
    assert_eq!((any.len(), refused.len()), (100, 0), "0 is no limit");
    cache.limits().set_max_in_flight(5);
    assert!(is_in_flight(&Form::Blocking.call(&cache, &500, &says(1))));
    drop((held, more, most, any));
    assert_eq!(Form::Blocking.call(&cache, &500, &says(1)), Ok(1));
    assert_at_rest(&cache);
}

// OVR-05, OVR-01

#[test]
fn ovr_05_any_limits_together_work() {
    for loads in [1, 10, u64::MAX] {
        for waiters in [0, 1, u64::MAX] {
            let (builder, _hand) = on_a_clock();
            let cache = builder.max_in_flight(loads).max_waiters(waiters).build().unwrap();
            assert_eq!(Form::Blocking.call(&cache, &0, &says(1)), Ok(1));
            let gate = Gate::new();
            let keys = loads.saturating_add(1).min(100);
            let (running, refused) = begin_all(&cache, 1..=keys, &gate);
            assert_eq!(running.len() as u64, keys.min(loads));
            assert_eq!(refused.len() as u64, keys - keys.min(loads));
            let (waiting, refused) = begin_all(&cache, [1; 3], &gate);
            let most = if waiters == 1 { 1 } else { 3 };
            assert_eq!((waiting.len(), refused.len()), (most, 3 - most));
            drop((running, waiting));
            assert_at_rest(&cache);
        }
    }
}

#[test]
fn ovr_01_durations_of_any_length_mean_what_they_say() {
    let year = secs(31_557_600);
    for start in [Duration::ZERO, secs(1), year * 1_000_000, Duration::MAX] {
        for long in [Duration::MAX, year * 1_000, Duration::from_millis(u64::MAX - 1)] {
            for form in Form::ALL {
                let (clock, hand) = Clock::manual();
                hand.set(start);
                let cache = Cache::builder()
                    .max_entries(10)
                    .time_to_live(long)
                    .stale_while_revalidate(long)
                    .stale_if_error(long)
                    .jitter(if long == Duration::MAX { 0.0 } else { 0.5 })
                    .absent_time_to_live(long)
                    .min_retry_interval(long)
                    .backoff(Backoff::new(long, long).unwrap())
                    .breaker(BreakerOptions::new().consecutive_failures(1).open_for(long))
                    .load_timeout(long)
                    .lead_timeout(long)
                    .wait_timeout(long)
                    .clock(clock)
                    .build()
                    .unwrap();
                assert_eq!(form.call(&cache, &1, &says(1)), Ok(1));
                let absent = Gate::opened(Ok::<_, &str>(Load::<u64>::Absent));
                assert_eq!(form.call(&cache, &2, &absent), Err(LoadError::Absent));
                assert_eq!(form.call(&cache, &2, &says(2)), Err(LoadError::Absent));
                cache.sweep(usize::MAX);
                assert_eq!(form.call(&cache, &3, &down()), Err(LoadError::Failed("down")));
                assert!(is_breaker_open(&form.call(&cache, &4, &says(4))));
                cache.limits().breaker().configure(None);
                let throttled = form.call(&cache, &3, &says(3));
                let ended = start == Duration::MAX;
                assert!(is_throttled(&throttled) || ended, "{start:?} {long:?}: {throttled:?}");
                assert_eq!(cache.get(&1), Some(1), "{start:?} {long:?}");
                cache.mark_stale(&1);
                ignore(form.call(&cache, &1, &down()));
                assert_no_load_runs(&cache);
            }
        }
    }
}

#[test]
fn ovr_01_a_callers_own_patience_may_be_endless() {
    must_end(|| {
        let (builder, hand) = on_a_clock();
        let cache = builder.build().unwrap();
        hand.set(secs(1_000));
        let gate: Gate<Said> = Gate::new();
        let (handle, held) = (cache.clone(), gate.clone());
        let leader = thread::spawn(move || {
            handle.load(&1).timeout(Duration::MAX).run(|_| held.pass()).unwrap().value
        });
        gate.until_entered(1);
        let patient = cache.load(&1).timeout(Duration::MAX).run_async(|_| gate.pass_async());
        let patient = Polled::begun(patient);
        hand.advance(Duration::from_millis(u64::MAX / 2));
        gate.open(Ok(Load::Value(1)));
        assert_eq!(leader.join().unwrap(), Some(1));
        assert_eq!(patient.finish().unwrap().value, Some(1));
        assert_at_rest(&cache);
    });
}

// MEM-05

#[test]
fn mem_05_what_is_remembered_of_failing_keys_is_bounded_and_ends() {
    for answer in [Err("down"), Ok(Load::Absent), Ok(Load::NotStored(1))] {
        let (clock, hand) = Clock::manual();
        let keys = Census::default();
        let cache: Cache<Counted<u64>, u64> = Cache::builder()
            .max_entries(100)
            .min_retry_interval(secs(5))
            .absent_time_to_live(secs(5))
            .clock(clock)
            .build()
            .unwrap();
        let mut most = 0;
        for key in 0..20_000 {
            let key = keys.make(key);
            ignore(cache.get_or_load(&key, || answer.clone()));
            drop(key);
            most = most.max(cache.len());
        }
        assert_eq!(most, 100, "{answer:?}");
        hand.advance(secs(3_600));
        for _ in 0..10_000 {
            cache.sweep(usize::MAX);
            if keys.alive() == 0 {
                break;
            }
            thread::yield_now();
        }
        assert_eq!((cache.len(), cache.weight(), keys.alive()), (0, 0, 0), "{answer:?}");
        assert_no_load_runs(&cache);
    }
}

#[test]
fn mem_05_what_is_remembered_of_failing_keys_weighs_what_it_should() {
    let (clock, _hand) = Clock::manual();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_weight(1_000)
        .absence_weight(100)
        .min_retry_interval(secs(5))
        .absent_time_to_live(secs(5))
        .clock(clock)
        .build()
        .unwrap();
    for key in 0..5 {
        ignore(Form::Blocking.call(&cache, &key, &down()));
        ignore(cache.get_or_load(&(key + 100), || None::<u64>));
    }
    assert_eq!((cache.len(), cache.weight()), (10, 1_000));
    ignore(Form::Blocking.call(&cache, &50, &down()));
    assert_eq!((cache.len(), cache.weight()), (10, 1_000));
}

// MEM-07

/// Threads of this process that refresh.
#[cfg(target_os = "linux")]
fn refreshing_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "seawall-refresh")
        .count()
}

#[test]
#[ignore = "counts this process's threads; run by the test below"]
#[cfg(target_os = "linux")]
fn refreshes_that_fail_and_caches_that_go_leave_no_threads() {
    let it = Background::with(Form::Blocking, |builder| builder.refresh_threads(2));
    it.gate.open(Err("down"));
    for _ in 0..2_000 {
        ignore(it.ask());
        it.until_rest();
        assert!(refreshing_threads() <= 2);
    }
    drop(it);
    until(|| refreshing_threads() == 0);
    // SHU-03: with a refresh still running in each.
    for _ in 0..50 {
        let it = Background::new(Form::Blocking);
        assert_eq!(it.ask(), Ok(1));
        let gate = it.gate.clone();
        drop(it);
        gate.open(Ok(Load::Value(2)));
    }
    until(|| refreshing_threads() == 0);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
#[cfg(target_os = "linux")]
fn mem_07_shu_03_no_thread_outlives_its_refreshes_and_its_cache() {
    common::alone_in_a_process("refreshes_that_fail_and_caches_that_go_leave_no_threads");
}

#[test]
fn mem_07_failing_loads_leave_no_timers_and_no_tasks() {
    let (builder, hand) = stale_for_a_minute();
    let paused = Paused::default();
    let cache = builder
        .spawner(paused.spawner())
        .load_timeout(secs(5))
        .wait_timeout(secs(5))
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    let (failing, hanging) = (down(), Gate::new());
    for round in 0..1_000 {
        let gate = if round % 2 == 0 { &failing } else { &hanging };
        assert_eq!(Form::Shared.call(&cache, &1, gate), Ok(1));
        assert_eq!(paused.len(), 1);
        if round % 2 == 0 {
            paused.run();
        } else {
            paused.discard();
        }
        let mut cold = load(&cache, round + 10, &hanging);
        assert!(cold.poll().is_pending());
        assert_eq!(hand.sleepers(), 2, "its own, and the load's");
        drop(cold);
        assert_eq!(hand.sleepers(), 0);
    }
    assert_no_load_runs(&cache);
}

// PER-05

#[test]
fn per_05_who_waits_with_a_deadline_sleeps() {
    must_end(|| {
        let reads = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reads);
        let clock = Clock::from_fn(move || {
            count.fetch_add(1, SeqCst);
            secs(1)
        });
        let cache: Cache<u64, u64> =
            Cache::builder().max_entries(10).wait_timeout(secs(600)).clock(clock).build().unwrap();
        for leader in Form::ALL {
            let gate: Gate<Said> = Gate::new();
            let leader = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let waiters: Vec<_> = (0..20).map(|_| Form::Blocking.begin(&cache, 1, &gate)).collect();
            until_waiting(&cache, 20);
            let before = reads.load(SeqCst);
            // Time enough to spin in.
            for key in 100..3_000 {
                cache.insert(key, key).unwrap();
                thread::yield_now();
            }
            let spent = reads.load(SeqCst) - before;
            assert!(spent < 20 * 20, "{spent} looks at the clock by 20 sleepers");
            gate.open(Ok(Load::NotStored(1)));
            waiters.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), Ok(1)));
            assert_eq!(leader.join().unwrap(), Ok(1));
        }
    });
}

#[test]
fn per_05_a_waiting_task_is_woken_when_there_is_something_to_do_and_not_else() {
    let (builder, hand) = on_a_clock();
    let cache = builder.wait_timeout(secs(600)).build().unwrap();
    let gate: Gate<Said> = Gate::new();
    let (waiting, _) = begin_all(&cache, [1; 20], &gate);
    for key in 100..200 {
        cache.insert(key, key).unwrap();
        cache.invalidate_all();
        hand.advance(secs(1));
    }
    assert!(waiting.iter().all(|it| it.wakes() == 0));
}

// PER-03

#[test]
fn per_03_a_listener_that_blocks_holds_up_no_follower() {
    for form in Form::ALL {
        must_end(move || {
            let (entered, leave) = (Arc::new(AtomicBool::new(false)), Gate::<()>::new());
            let (told, held) = (Arc::clone(&entered), leave.clone());
            let cache: Cache<u64, u64> = Cache::builder()
                .max_entries(1)
                .removal_listener(move |_, _, _| {
                    told.store(true, SeqCst);
                    held.pass();
                })
                .build()
                .unwrap();
            cache.insert(9, 9).unwrap();
            let gate: Gate<Said> = Gate::new();
            let leader = form.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let follower = Form::Blocking.begin(&cache, 1, &gate);
            until_waiting(&cache, 1);
            gate.open(Ok(Load::Value(1)));
            until(|| entered.load(SeqCst));
            // The listener may block its own thread only.
            let mut looks = 0;
            while !follower.is_finished() && looks < 200_000 {
                looks += 1;
                thread::yield_now();
            }
            let held_up = !follower.is_finished();
            let in_flight = cache.limits().in_flight();
            leave.open(());
            assert_eq!(follower.join().unwrap(), Ok(1));
            assert_eq!(leader.join().unwrap(), Ok(1));
            assert!(!held_up, "{form:?}: the follower waits for the listener");
            assert_eq!(in_flight, 0, "{form:?}: and the origin has long answered");
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn a_listener_that_panics_takes_no_answer_from_those_who_waited() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(1)
        .removal_listener(|_, _, _| panic!("the listener"))
        .build()
        .unwrap();
    cache.insert(9, 9).unwrap();
    let gate: Gate<Said> = Gate::new();
    let (mut loads, _) = begin_all(&cache, [1; 2], &gate);
    gate.open(Ok(Load::Value(1)));
    // Whoever drives the load may get the panic; the other gets the value, which is stored.
    let told: Vec<_> = loads
        .iter_mut()
        .map(|it| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ready(it))))
        .collect();
    assert_eq!(cache.get(&1), Some(1));
    assert!(told.iter().any(|told| matches!(told, Ok(Ok(1)))), "{told:?}");
    drop(loads);
    assert_at_rest(&cache);
}

// EVI-12

#[test]
fn evi_12_more_loads_than_the_cache_holds_all_get_their_values() {
    for loads in [6, 100] {
        for builder in [Cache::builder().max_entries(5), Cache::builder().max_weight(5)] {
            let cache: Cache<u64, u64> = builder.build().unwrap();
            let gates: Vec<Gate<Said>> = (0..loads).map(|_| Gate::new()).collect();
            let mut running: Vec<_> =
                gates.iter().zip(0..).map(|(gate, key)| load(&cache, key, gate)).collect();
            assert!(running.iter_mut().all(|it| it.poll().is_pending()));
            for key in 1_000..1_020 {
                cache.insert(key, key).unwrap();
            }
            let seven = |key: usize| (key * 7 + 3) % loads as usize;
            for key in (0..loads as usize).map(seven) {
                gates[key].open(Ok(Load::Value(key as u64)));
            }
            for (key, it) in running.iter_mut().enumerate() {
                assert_eq!(ready(it), Ok(key as u64));
                assert!(cache.len() <= 5);
            }
            drop(running);
            assert!(gates.iter().all(|gate| gate.entered() == 1), "no load was aborted");
            assert_eq!(cache.len(), 5);
            assert_at_rest(&cache);
        }
    }
}

// PER-07

#[test]
fn per_07_a_scan_of_loads_does_no_more_harm_than_a_scan_of_inserts() {
    let hits = |scan: fn(&Cache<u64, u64, common::Fixed>, u64)| {
        let cache: Cache<u64, u64, common::Fixed> =
            Cache::builder().max_entries(1_000).hasher(common::Fixed::default()).build().unwrap();
        for _ in 0..5 {
            for key in 0..500 {
                if cache.get(&key).is_none() {
                    cache.insert(key, key).unwrap();
                }
            }
        }
        for key in 10_000..30_000 {
            scan(&cache, key);
            ignore(cache.get(&(key * 7 % 500)));
        }
        (0..500).filter(|key| cache.peek(key).is_some()).count()
    };
    let inserted = hits(|cache, key| ignore(cache.insert(key, key)));
    let loaded = hits(|cache, key| ignore(cache.get_or_load(&key, || key)));
    let awaited = hits(|cache, key| {
        let load = cache.get_or_load_async(&key, || async move { key });
        ignore(futures_lite::future::block_on(load));
    });
    assert!(inserted > 450, "{inserted} of 500");
    assert!(loaded + 25 > inserted && awaited + 25 > inserted, "{inserted} {loaded} {awaited}");
}

// CAP-04, with loads

#[test]
fn cap_04_the_capacity_may_go_through_zero_while_loads_run() {
    let told = Told::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_weight(100)
        .removal_listener(told.listener())
        .min_retry_interval(secs(5))
        .build()
        .unwrap();
    for (step, capacity) in (0..).zip([100, 0, 100, 1, 1_000_000]) {
        let begin = step * 1_000;
        let gates: Vec<Gate<Said>> = (0..10).map(|_| Gate::new()).collect();
        let mut running: Vec<_> =
            gates.iter().zip(begin..).map(|(gate, key)| load(&cache, key, gate)).collect();
        assert!(running.iter_mut().all(|it| it.poll().is_pending()));
        for key in begin + 100..begin + 150 {
            cache.insert(key, key).unwrap();
        }
        cache.set_capacity(capacity);
        assert!(cache.weight() <= capacity);
        for (at, (gate, it)) in gates.iter().zip(&mut running).enumerate() {
            gate.open(match at % 3 {
                0 => Ok(Load::Value(1)),
                1 => Err("down"),
                _ => Ok(Load::With(1, InsertOptions::new().weight(2))),
            });
            let answer = ready(it);
            assert_eq!(answer.is_ok(), at % 3 != 1, "{answer:?} at a capacity of {capacity}");
            assert!(cache.weight() <= capacity, "{} of {capacity}", cache.weight());
            if capacity == 0 {
                let key = begin + at as u64;
                assert!(cache.get(&key).is_none() && cache.is_empty());
            }
        }
        drop(running);
        assert!(told.take().iter().all(|(_, _, cause)| *cause == RemovalCause::Evicted));
        assert_no_load_runs(&cache);
        cache.set_capacity(100);
    }
}

#[test]
fn cap_04_a_cache_of_nothing_still_coalesces() {
    must_end(|| {
        let cache: Cache<u64, u64> = Cache::new(0);
        let gate: Gate<Said> = Gate::new();
        let callers: Vec<_> = Form::ALL.map(|form| form.begin(&cache, 1, &gate)).into();
        until(|| cache.load_stats().waiting == 2);
        gate.open(Ok(Load::Value(1)));
        callers.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), Ok(1)));
        assert_eq!((gate.entered(), cache.len(), cache.get(&1)), (1, 0, None));
        assert_at_rest(&cache);
    });
}

// ACC-06

#[test]
fn acc_06_a_refresh_whose_store_fails_is_counted_as_a_failure() {
    for form in FORMS {
        must_end(move || {
            let it = weighing(form);
            ignore(it.ask());
            it.gate.open(Ok(Load::Value(666)));
            it.gate.until_entered(1);
            it.until_rest();
            let stats = it.cache.load_stats();
            assert_eq!((stats.panicked, stats.loaded), (1, 0), "{form:?}");
            let state = it.cache.get_on_error(&1);
            assert_eq!(state, Some((1, EntryState::Stale)), "what was there is there");
            assert_at_rest(&it.cache);
        });
    }
}

/// As [`Background::new`], with a weigher that panics for 666.
fn weighing(form: Form) -> Background {
    let (clock, hand) = Clock::manual();
    let gate: Gate<Said> = Gate::new();
    let refresher = gate.clone();
    let builder = Cache::builder()
        .max_weight(100)
        .weigher(|_: &u64, value: &u64| {
            assert_ne!(*value, 666, "the weigher");
            1
        })
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(60))
        .clock(clock);
    let builder = match form {
        Form::Blocking => builder.refresh_with(move |_| refresher.pass()),
        _ => builder.spawner(on_threads()),
    };
    let cache = builder.build().unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    Background { cache, hand, gate, form }
}

#[test]
fn acc_06_what_a_load_evicts_or_replaces_counts_with_its_weight() {
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let cache: Cache<u64, u64> =
            Cache::builder().max_weight(100).time_to_live(secs(10)).clock(clock).build().unwrap();
        let heavy = |weight| Gate::opened(Ok::<_, &str>(Load::With(1, weigh(weight))));
        assert_eq!(form.call(&cache, &1, &heavy(60)), Ok(1));
        assert_eq!(form.call(&cache, &2, &heavy(70)), Ok(1));
        assert_eq!((cache.stats().evicted, cache.stats().evicted_weight), (1, 60), "{form:?}");
        hand.advance(secs(10));
        assert_eq!(form.call(&cache, &2, &heavy(80)), Ok(1));
        let stats = cache.stats();
        assert_eq!((stats.expired, stats.evicted, stats.weight), (1, 1, 80), "{form:?}");
        assert_no_load_runs(&cache);
    }
}

fn weigh(weight: u64) -> InsertOptions {
    InsertOptions::new().weight(weight)
}

// CLO-05

#[test]
fn clo_05_every_value_that_a_load_brings_is_dropped_once() {
    let census = Census::default();
    let (clock, hand) = Clock::manual();
    let cache: Cache<u64, Counted<u64>> = Cache::builder()
        .max_weight(100)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(60))
        .clock(clock)
        .build()
        .unwrap();
    let make = |value| census.make(value);
    for key in 0..50 {
        ignore(cache.get_or_load(&key, || make(1)));
        // Loses against a write, an invalidation; too heavy; not to be stored; unchanged; older.
        ignore(cache.load(&(key + 100)).run(|_| {
            ignore(cache.insert(key + 100, make(2)));
            make(3)
        }));
        ignore(cache.load(&(key + 200)).run(|_| {
            cache.invalidate_all();
            make(4)
        }));
        ignore(cache.load(&(key + 300)).run(|_| Load::With(make(5), weigh(1_000))));
        ignore(cache.load(&(key + 400)).run(|_| Load::NotStored(make(6))));
        ignore(cache.insert_with(key, make(7), InsertOptions::new().version(9)));
        hand.advance(secs(10));
        ignore(cache.load(&key).run(|_| Load::With(make(8), InsertOptions::new().version(8))));
        ignore(cache.load(&key).run(|_| Load::<Counted<u64>>::Unchanged));
    }
    assert_at_rest_weighing_one(&cache);
    drop(cache);
    until(|| {
        // Another cache's work moves the epoch on.
        ignore(Cache::<u64, u64>::new(1).sweep(1));
        census.alive() == 0
    });
    assert_eq!(census.made(), census.dropped());
}

fn assert_at_rest_weighing_one(cache: &Cache<u64, Counted<u64>>) {
    common::loads::assert_at_rest_weighing(cache, |_, _| 1);
}

#[test]
fn clo_05_a_load_that_is_dropped_half_way_drops_what_it_held() {
    let census = Census::default();
    let cache: Cache<u64, Counted<u64>> = Cache::new(10);
    for key in 0..20 {
        let held = census.make(key);
        let load = cache.get_or_load_async(&key, || async move {
            futures_lite::future::pending::<()>().await;
            held
        });
        drop(Polled::begun(load));
    }
    assert_eq!((census.made(), census.alive()), (20, 0));
    assert_at_rest(&cache);
}

// SHU-01

#[test]
fn shu_01_loads_go_on_while_owners_drop_their_handles() {
    must_end(|| {
        for form in Form::ALL {
            let (builder, hand) = stale_for_a_minute();
            let gate: Gate<Said> = Gate::new();
            let refresher = gate.clone();
            let cache = builder
                .refresh_with(move |_| refresher.pass())
                .spawner(on_threads())
                .build()
                .unwrap();
            cache.insert(2, 2).unwrap();
            hand.advance(secs(10));
            let leader = form.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let follower = Form::Blocking.begin(&cache, 1, &gate);
            until_waiting(&cache, 1);
            ignore(Form::Blocking.call(&cache, &2, &gate));
            gate.until_entered(2);
            drop(cache);
            gate.open(Ok(Load::Value(7)));
            assert_eq!((leader.join().unwrap(), follower.join().unwrap()), (Ok(7), Ok(7)));
        }
    });
}

#[test]
fn shu_01_values_and_keys_go_with_the_cache_also_if_loads_were_running() {
    for way in 0..3 {
        let census = Census::default();
        let gate: Gate<Counted<u64>> = Gate::new();
        let cache: Cache<u64, Counted<u64>> = Cache::new(10);
        let (handle, held) = (cache.clone(), gate.clone());
        let mut load =
            Polled::begun(async move { handle.get_or_load_async(&1, || held.pass_async()).await });
        drop(cache);
        match way {
            0 => drop(load),
            1 => {
                gate.open(census.make(1));
                assert!(load.poll().is_ready());
                drop(load);
            }
            _ => {
                gate.open_to_panic("down");
                assert!(load.poll().is_ready());
                drop(load);
            }
        }
        drop(gate);
        until(|| {
            ignore(Cache::<u64, u64>::new(1).sweep(1));
            census.alive() == 0
        });
    }
}

// SHU-05

#[test]
fn shu_05_a_loader_may_drop_the_last_handle_of_its_own_cache() {
    must_end(|| {
        let owner: Later<Cache<u64, u64>> = Later::new();
        owner.set(Cache::new(10));
        let (cache, last) = (owner.get().unwrap(), owner.clone());
        // The call borrows this handle; the owner's goes first.
        let told = cache.get_or_load(&1, || {
            drop(last.take());
            7
        });
        assert_eq!(told, Ok(7));
        drop(cache);
        // An async load owns its cache: its caller's handle may go while it is suspended.
        let cache: Cache<u64, u64> = Cache::new(10);
        let gate: Gate<Said> = Gate::new();
        let (handle, held) = (cache, gate.clone());
        let load = Polled::begun(async move {
            let told = handle.get_or_load_async(&1, || held.pass_async()).await;
            drop(handle);
            told
        });
        gate.open(Ok(Load::Value(3)));
        assert_eq!(load.finish(), Ok(3));
    });
}

#[test]
fn shu_05_a_refresh_on_the_caches_thread_may_be_the_last_to_use_it() {
    must_end(|| {
        for _ in 0..20 {
            let it = Background::refreshing(Form::Blocking);
            let gate = it.gate.clone();
            drop(it);
            gate.open(Ok(Load::Value(2)));
            until(|| gate.inside() == 0);
        }
    });
}

#[test]
fn shu_05_a_weigher_and_a_listener_may_drop_the_last_handle_during_a_load() {
    must_end(|| {
        for form in Form::ALL {
            let owner: Later<Cache<u64, u64>> = Later::new();
            let (weigher, listener) = (owner.clone(), owner.clone());
            let cache = Cache::builder()
                .max_weight(1)
                .weigher(move |_, value| {
                    if *value == 7 {
                        drop(weigher.take());
                    }
                    1
                })
                .removal_listener(move |_, _, _| drop(listener.take()))
                .build()
                .unwrap();
            cache.insert(9, 9).unwrap();
            owner.set(cache.clone());
            let gate: Gate<Said> = Gate::new();
            let leader = form.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let follower = form.begin(&cache, 1, &gate);
            until_waiting(&cache, 1);
            drop(cache);
            gate.open(Ok(Load::Value(7)));
            assert_eq!((leader.join().unwrap(), follower.join().unwrap()), (Ok(7), Ok(7)));
            assert!(owner.take().is_none());
        }
    });
}

// Settings while in use

#[test]
fn settings_changed_in_the_middle_of_a_load_hold_from_the_next_call_on() {
    let (builder, hand) = good_for_errors();
    let cache = builder.build().unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    let gate = Gate::new();
    let mut running = load(&cache, 1, &gate);
    assert!(running.poll().is_pending());
    hand.advance(secs(1));
    cache.limits().set_min_retry_interval(secs(5));
    assert_eq!(Form::Blocking.call(&cache, &1, &gate), Ok(1), "throttled: served stale");
    gate.open(Err("down"));
    assert_eq!(ready(&mut running), Ok(1));
    assert_eq!(Form::Blocking.call(&cache, &1, &says(2)), Ok(1), "the attempt is remembered");
    cache.limits().set_min_retry_interval(Duration::ZERO);
    assert_eq!(Form::Blocking.call(&cache, &1, &says(2)), Ok(2));
    drop(running);
    assert_at_rest(&cache);
}

// The manual clock

/// A waker that looks at the clock when it is dropped.
struct Looks(ManualClock, Arc<Mutex<Vec<usize>>>);

impl std::task::Wake for Looks {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Looks {
    fn drop(&mut self) {
        common::lock(&self.1).push(self.0.sleepers());
    }
}

#[test]
fn a_waker_may_look_at_the_clock_that_drops_it() {
    must_end(|| {
        let (builder, hand) = on_a_clock();
        let cache = builder.wait_timeout(secs(5)).build().unwrap();
        let looked = Arc::default();
        let waker = || std::task::Waker::from(Arc::new(Looks(hand.clone(), Arc::clone(&looked))));
        let gate: Gate<Said> = Gate::new();
        let mut it = load(&cache, 1, &gate);
        assert!(it.poll_with(&waker()).is_pending());
        assert!(it.poll_with(&waker()).is_pending());
        hand.advance(secs(5));
        assert_eq!(it.poll_with(&waker()), Poll::Ready(Err(LoadError::TimedOut)));
        drop(it);
        assert!(common::lock(&looked).len() >= 2);
    });
}

#[test]
fn a_clock_that_two_threads_move_goes_as_far_as_both_say() {
    let (_, hand) = Clock::manual();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20_000).for_each(|_| hand.advance(Duration::from_millis(1))));
        }
    });
    assert_eq!(hand.now(), secs(40));
}

// What callers are told and counted for

#[test]
fn a_caller_that_has_to_join_twice_counts_once() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let gate: Gate<Said> = Gate::new();
    let leader = Polled::begun(cache.load(&1).run_local(|_| gate.pass_async()));
    let (mut followers, _) = begin_all(&cache, [1; 3], &gate);
    drop(leader);
    for follower in &mut followers {
        assert!(follower.poll().is_pending());
    }
    gate.open(Ok(Load::Value(1)));
    followers.iter_mut().for_each(|it| assert_eq!(ready(it), Ok(1)));
    drop(followers);
    assert_eq!(cache.load_stats().joined, 2, "the third was told by its own load");
    assert_at_rest(&cache);
}

/// What a loader returns, with a conversion that panics.
struct Bad;

impl seawall::IntoLoad<u64> for Bad {
    type Error = &'static str;

    fn into_load(self) -> Result<Load<u64>, &'static str> {
        panic!("the conversion")
    }
}

#[test]
fn a_conversion_that_panics_is_a_panic_of_the_loader() {
    let (cache, _hand) = breaking(100, 1);
    let held: Gate<()> = Gate::new();
    let bad = || {
        let held = held.clone();
        async move {
            held.pass_async().await;
            Bad
        }
    };
    let mut leader = Polled::begun(cache.get_or_load_async(&1, bad));
    let mut follower = load(&cache, 1, &says(5));
    assert!(follower.poll().is_pending());
    held.open(());
    let told = ready(&mut leader);
    assert!(matches!(told, Err(LoadError::Panicked(_))), "{told:?}");
    let told = ready(&mut follower);
    assert!(matches!(told, Err(LoadError::Panicked(_))), "{told:?}");
    drop((leader, follower));
    assert!(common::panics(|| ignore(cache.get_or_load(&2, || Bad))));
    let local = cache.load(&3).run_local(|_| async { Bad });
    assert!(common::panics(|| ignore(futures_lite::future::block_on(local))));
    let stats = cache.load_stats();
    assert_eq!((stats.panicked, stats.abandoned), (3, 0));
    assert_eq!(cache.limits().counts().failed, 3);
    assert_at_rest(&cache);
}
