use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{GuardCounts, Rate, Refusals};
use super::Classified::{Failure, Success};
use super::*;

fn with_permits(max_in_flight: u64) -> Arc<Limits> {
    limits(LimitSettings { max_in_flight, ..LimitSettings::default() })
}

fn with_places(max_waiters: u64) -> Arc<Limits> {
    limits(LimitSettings { max_waiters, ..LimitSettings::default() })
}

/// As many permits as can be had, up to a number.
fn fill(limits: &Arc<Limits>, priority: Priority, most: usize) -> Vec<Permit> {
    (0..most).map_while(|_| limits.admit(priority, 0).ok()).collect()
}

fn assert_at_rest(limits: &Limits) {
    assert_eq!((limits.in_flight(), limits.waiters()), (0, 0));
}

#[test]
fn a_permit_comes_back_on_every_path() {
    let limits = with_permits(1);
    start(&limits, 0).finish(Success, || 0);
    drop(start(&limits, 0));
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _permit = start(&limits, 0);
        let _place = limits.wait();
        panic!("the loader");
    }));
    assert!(panic.is_err());
    assert_at_rest(&limits);
    drop(start(&limits, 0));
}

#[test]
fn lim_01_refused_and_cancelled_calls_swallow_no_permits() {
    let limits = with_permits(8);
    for _ in 0..ROUNDS.min(100) {
        let running = fill(&limits, Priority::Foreground, 9);
        assert_eq!((running.len(), limits.in_flight()), (8, 8));
        for _ in 0..100 {
            let place = limits.wait().unwrap();
            assert_eq!(refusal(&limits, 0), Refusal::InFlight { limit: 8 });
            drop(place);
        }
        drop(running);
        assert_at_rest(&limits);
    }
}

#[test]
fn lim_03_nobody_is_refused_while_there_is_room() {
    let limits = limits(LimitSettings {
        max_in_flight: 4,
        background_share: 0.5,
        max_waiters: 4,
        rate: Some(Rate::per_second(1e9).unwrap().burst(1_000_000)),
        breaker: Some(BreakerOptions::new()),
        ..LimitSettings::default()
    });
    // Four threads that hold one each, two of them in the background: there is room for all.
    let held = AtomicU64::new(0);
    together(4, |index| {
        let background = index % 2 == 1;
        let priority = if background { Priority::Background } else { Priority::Foreground };
        for _ in 0..ROUNDS {
            let place = limits.wait().expect("at most four wait");
            let permit = limits.admit(priority, 0).expect("at most four run");
            assert!(held.fetch_add(1, Ordering::SeqCst) < 4);
            held.fetch_sub(1, Ordering::SeqCst);
            permit.finish(Success, || 0);
            drop(place);
        }
    });
    assert_at_rest(&limits);
    assert_eq!(limits.counts().refused, Refusals::default());
}

#[test]
fn lim_03_those_who_are_refused_take_nothing_from_others() {
    let limits = with_permits(5);
    let full: Vec<_> = fill(&limits, Priority::Background, 9);
    assert_eq!(full.len(), 2);
    let done = AtomicU64::new(0);
    together(4, |index| {
        if index < 2 {
            for _ in 0..ROUNDS {
                drop(limits.admit(Priority::Foreground, 0).expect("three of five are free"));
            }
            done.fetch_add(1, Ordering::SeqCst);
        } else {
            while done.load(Ordering::SeqCst) < 2 {
                let refusal = limits.admit(Priority::Background, 0).unwrap_err();
                assert_eq!(refusal, Refusal::BackgroundShare { limit: 2 });
                // Two in the background and two that come and go: one is always free.
                assert_eq!(limits.would_refuse(Priority::Foreground, 0), None);
            }
        }
    });
    drop(full);
    assert_at_rest(&limits);
}

#[test]
fn lim_03_places_and_permits_never_exceed_their_limits() {
    let limits =
        limits(LimitSettings { max_in_flight: 2, max_waiters: 2, ..LimitSettings::default() });
    let (running, waiting) = (AtomicU64::new(0), AtomicU64::new(0));
    together(4, |_| {
        for _ in 0..ROUNDS {
            if let Ok(_permit) = limits.admit(Priority::Foreground, 0) {
                assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
                running.fetch_sub(1, Ordering::SeqCst);
            }
            if let Ok(_place) = limits.wait() {
                assert!(waiting.fetch_add(1, Ordering::SeqCst) < 2);
                waiting.fetch_sub(1, Ordering::SeqCst);
            }
        }
    });
    assert_at_rest(&limits);
    let counts = limits.counts();
    let calls = 4 * u64::from(ROUNDS);
    assert_eq!(counts.admitted + counts.refused.in_flight, calls);
    assert_eq!(counts.waiters_admitted + counts.refused.waiters, calls);
}

#[test]
fn lim_05_the_waiting_line_is_bounded() {
    let limits = with_places(100);
    let callers = if cfg!(miri) { 200 } else { 10_000 };
    let results: Vec<_> = (0..callers).map(|_| limits.wait()).collect();
    assert_eq!(limits.waiters(), 100);
    let refused = results.iter().filter_map(|result| result.as_ref().err());
    assert!(refused.clone().all(|refusal| *refusal == Refusal::Waiters { limit: 100 }));
    assert_eq!(refused.count(), callers - 100);
    drop(results);
    assert_eq!(limits.waiters(), 0);
    assert!(limits.wait().is_ok());
}

/// In this crate 0 means no limit, as is documented for each setting.
#[test]
fn lim_07_a_limit_of_zero_is_no_limit() {
    let limits = unlimited();
    let running = fill(&limits, Priority::Background, 100);
    let waiting: Vec<_> = (0..100).map_while(|_| limits.wait().ok()).collect();
    assert_eq!((running.len(), waiting.len()), (100, 100));
    assert_eq!((limits.in_flight(), limits.waiters()), (100, 100));
    assert_eq!(limits.would_refuse(Priority::Background, 0), None);
    drop((running, waiting));
    assert_at_rest(&limits);
}

#[test]
fn lim_11_a_limit_changes_while_it_is_exhausted() {
    let limits = with_permits(10);
    let mut running = fill(&limits, Priority::Foreground, 8);
    limits.set_max_in_flight(4);
    for _ in 0..5 {
        assert_eq!(refusal(&limits, 0), Refusal::InFlight { limit: 4 });
        running.pop();
    }
    running.push(start(&limits, 0));
    assert_eq!(refusal(&limits, 0), Refusal::InFlight { limit: 4 });
    limits.set_max_in_flight(20);
    running.extend(fill(&limits, Priority::Foreground, 100));
    assert_eq!(running.len(), 20);
    limits.set_max_in_flight(0);
    running.extend(fill(&limits, Priority::Foreground, 100));
    limits.set_max_in_flight(1);
    assert_eq!((running.len(), limits.max_in_flight()), (120, 1));
    assert!(limits.admit(Priority::Foreground, 0).is_err());
    drop(running);
    assert_eq!(fill(&limits, Priority::Foreground, 9).len(), 1);

    let waiting: Vec<_> = (0..3).map(|_| limits.wait().unwrap()).collect();
    limits.set_max_waiters(2);
    assert_eq!(limits.wait().unwrap_err(), Refusal::Waiters { limit: 2 });
    drop(waiting);
    assert_eq!(limits.waiters(), 0);
}

/// Once the limit is lowered, the number in flight does not grow any more.
#[test]
fn lim_11_nothing_starts_after_a_limit_was_lowered() {
    for _ in 0..ROUNDS {
        let limits = with_permits(6);
        let grew = together(3, |index| {
            if index == 0 {
                limits.set_max_in_flight(2);
                let seen = [0; 20].map(|_| limits.in_flight());
                return seen.is_sorted_by(|earlier, later| *later <= (*earlier).max(2));
            }
            drop(fill(&limits, Priority::Foreground, 3));
            true
        });
        assert_eq!(grew, [true; 3]);
        assert_at_rest(&limits);
    }
}

#[test]
fn background_work_has_a_share() {
    for (limit, share, most) in [
        (10, 0.5, 5),
        (10, 0.99, 9),
        (10, 1.0, 10),
        (10, 0.001, 1),
        (1, 0.5, 1),
        (10, 0.0, 0),
        (3, 0.5, 1),
    ] {
        let limits = with_permits(limit);
        limits.set_background_share(share).unwrap();
        let background = fill(&limits, Priority::Background, 20);
        assert_eq!(background.len(), most, "{share} of {limit}");
        let foreground = fill(&limits, Priority::Foreground, 20);
        assert_eq!((background.len() + foreground.len()) as u64, limit);
        assert_eq!(refusal(&limits, 0), Refusal::InFlight { limit });
        let counts = limits.counts();
        assert_eq!((counts.background_admitted, counts.admitted), (most as u64, limit));
        drop(background);
        assert_eq!(fill(&limits, Priority::Background, 20).len(), most);
        drop(foreground);
        assert_at_rest(&limits);
    }
    for share in [-0.5, 1.5, f64::NAN] {
        assert!(unlimited().set_background_share(share).is_err());
        let settings = LimitSettings { background_share: share, ..LimitSettings::default() };
        assert!(settings.check().is_err());
    }
    assert_eq!(unlimited().background_share(), 0.5);
}

#[test]
fn ovr_05_the_largest_limits_are_no_limits() {
    for max_in_flight in [1, 10, u64::MAX] {
        for max_waiters in [0, 1, u64::MAX] {
            let limits =
                limits(LimitSettings { max_in_flight, max_waiters, ..LimitSettings::default() });
            let running = fill(&limits, Priority::Foreground, 11);
            assert_eq!(running.len() as u64, max_in_flight.min(11));
            let waiting: Vec<_> = (0..11).map_while(|_| limits.wait().ok()).collect();
            assert_eq!(waiting.len(), if max_waiters == 1 { 1 } else { 11 });
            drop((running, waiting));
            let background = fill(&limits, Priority::Background, 11);
            let share = if max_in_flight == u64::MAX { 11 } else { (max_in_flight / 2).max(1) };
            assert_eq!(background.len() as u64, share);
            drop(background);
            assert_at_rest(&limits);
        }
    }
}

#[test]
fn ovr_03_any_number_of_changes_leaves_the_gauges_right() {
    let limits = with_permits(5);
    let running = [Priority::Foreground, Priority::Background].map(|p| limits.admit(p, 0).unwrap());
    let places = limits.wait().unwrap();
    for limit in 0..if cfg!(miri) { 300 } else { 70_000 } {
        limits.set_max_in_flight(limit);
        limits.set_max_waiters(limit);
    }
    assert_eq!((limits.in_flight(), limits.waiters()), (2, 1));
    drop((running, places));
    assert_at_rest(&limits);
}

#[test]
fn a_refused_start_leaves_no_trace_in_the_other_guards() {
    let rate = Rate::new(2, Duration::from_secs(1)).unwrap();
    let limits = limits(LimitSettings {
        max_in_flight: 1,
        rate: Some(rate),
        breaker: Some(BreakerOptions::new().consecutive_failures(1).open_for(millis(10))),
        ..LimitSettings::default()
    });
    // The permit refuses: no token is taken.
    let running = start(&limits, 0);
    for _ in 0..10 {
        assert_eq!(refusal(&limits, 0), Refusal::InFlight { limit: 1 });
    }
    running.finish(Failure, || 0);
    // The breaker refuses: neither token nor permit is taken.
    for _ in 0..10 {
        assert!(matches!(refusal(&limits, 0), Refusal::BreakerOpen { .. }));
        assert_eq!(limits.in_flight(), 0);
    }
    // The second token, for a probe that is given up.
    drop(start(&limits, 10));
    // The rate refuses: the place of the probe is not taken, nor the permit.
    for _ in 0..10 {
        assert_eq!(refusal(&limits, 10), Refusal::Rate { retry_after: millis(490) });
        assert_eq!(limits.in_flight(), 0);
    }
    start(&limits, 500).finish(Success, || 500);
    assert_eq!(limits.breaker().state(), super::super::BreakerState::Closed);
}

/// One refusal for each reason.
fn refuse_for_every_reason(limits: &Arc<Limits>) -> usize {
    limits.set_max_in_flight(2);
    limits.set_max_waiters(1);
    let held = (limits.admit(Priority::Background, 0).unwrap(), limits.wait().unwrap());
    let mut refused = Vec::new();
    refused.push(limits.admit(Priority::Background, 0).map(drop));
    let other = start(limits, 0);
    refused.push(limits.admit(Priority::Foreground, 0).map(drop));
    refused.push(limits.wait().map(drop));
    drop(other);
    limits.set_rate(Some(Rate::new(1, Duration::from_secs(1)).unwrap()));
    drop(start(limits, 0));
    refused.push(limits.admit(Priority::Foreground, 0).map(drop));
    limits.breaker().force_open();
    refused.push(limits.admit(Priority::Foreground, 0).map(drop));
    drop(held);
    limits.set_min_retry_interval(Duration::from_secs(1));
    let attempt = super::super::Attempt::begin(None, 0);
    refused.push(match limits.throttle(attempt, 0) {
        Some(left) => Err(limits.throttled(left)),
        None => Ok(()),
    });
    assert_at_rest(limits);
    refused.iter().filter(|result| result.is_err()).count()
}

fn one_of_each() -> Refusals {
    Refusals {
        in_flight: 1,
        background_share: 1,
        waiters: 1,
        rate: 1,
        breaker_open: 1,
        throttled: 1,
    }
}

#[test]
fn each_refusal_is_counted_once() {
    let limits = unlimited();
    assert_eq!(refuse_for_every_reason(&limits), 6);
    let counts = limits.counts();
    assert_eq!((counts.refused, counts.refused.total()), (one_of_each(), 6));
    assert_eq!(counts.observed, Refusals::default());
    let expected = GuardCounts {
        admitted: 3,
        background_admitted: 1,
        waiters_admitted: 1,
        cancelled: 3,
        refused: one_of_each(),
        ..GuardCounts::default()
    };
    assert_eq!(counts, expected);
}

#[test]
fn observe_only_refuses_nothing_and_counts_what_it_would_have() {
    let limits = unlimited();
    limits.set_observe_only(true);
    assert_eq!((limits.is_observe_only(), refuse_for_every_reason(&limits)), (true, 0));
    let counts = limits.counts();
    assert_eq!((counts.refused, counts.observed), (Refusals::default(), one_of_each()));
    assert_eq!((counts.admitted, counts.waiters_admitted), (7, 2));
    assert_eq!(limits.would_refuse(Priority::Foreground, 0), None);
}

#[test]
fn observe_only_leaves_the_breaker_as_it_would_be() {
    let limits = with_breaker(BreakerOptions::new().consecutive_failures(1));
    limits.set_observe_only(true);
    call(&limits, Failure, 0);
    // Calls that would not have been made tell it nothing.
    calls(&limits, 3, Failure, 1);
    assert_eq!(limits.counts().observed.breaker_open, 3);
    assert_eq!(limits.breaker().openings(), 1);
    call(&limits, Success, PAUSE);
    assert_eq!(limits.breaker().state(), super::super::BreakerState::Closed);
}

#[test]
fn a_look_says_what_admit_would_say_and_takes_nothing() {
    let limits = limits(LimitSettings {
        max_in_flight: 1,
        rate: Some(Rate::new(2, Duration::from_secs(1)).unwrap()),
        breaker: Some(BreakerOptions::new().consecutive_failures(1).open_for(millis(10))),
        ..LimitSettings::default()
    });
    let look = |now| limits.would_refuse(Priority::Foreground, now);
    for _ in 0..10 {
        assert_eq!(look(0), None);
    }
    let running = start(&limits, 0);
    assert_eq!(look(0), Some(Refusal::InFlight { limit: 1 }));
    running.finish(Failure, || 0);
    assert_eq!(look(9), Some(Refusal::BreakerOpen { retry_after: millis(1) }));
    for _ in 0..10 {
        assert_eq!(look(10), None, "the first probe");
    }
    let probe = start(&limits, 10);
    assert_eq!(look(10), Some(Refusal::BreakerOpen { retry_after: millis(10) }));
    probe.finish(Success, || 10);
    assert_eq!(look(10), Some(Refusal::Rate { retry_after: millis(490) }));
    assert_eq!(limits.counts().refused.total(), 0, "a look counts nothing");
}

#[test]
fn counts_by_thread_add_up() {
    let stripe = crate::table::reclaim::stripe;
    let limits = Arc::new(Limits::counted_by(&LimitSettings::default(), stripe));
    limits.breaker().force_open();
    together(4, |_| {
        for _ in 0..ROUNDS {
            assert!(limits.admit(Priority::Foreground, 0).is_err());
            drop(limits.wait());
        }
    });
    let counts = limits.counts();
    let calls = 4 * u64::from(ROUNDS);
    assert_eq!((counts.refused.breaker_open, counts.waiters_admitted), (calls, calls));
}
