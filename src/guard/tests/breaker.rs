use super::super::{Breaker, BreakerState};
use super::Classified::{Failure, Ignored, Success};
use super::*;

fn after(failures: u32) -> BreakerOptions {
    BreakerOptions::new().consecutive_failures(failures)
}

fn open_for(left: u64) -> Refusal {
    Refusal::BreakerOpen { retry_after: millis(left) }
}

fn state(limits: &Limits) -> BreakerState {
    limits.breaker().state()
}

/// Open since `now`.
fn tripped(options: BreakerOptions, now: u64) -> Arc<Limits> {
    let limits = with_breaker(options.consecutive_failures(1));
    call(&limits, Failure, now);
    assert_eq!(state(&limits), BreakerState::Open);
    limits
}

#[test]
fn it_counts_failures_in_a_row_only() {
    let limits = with_breaker(after(3));
    for _ in 0..10 {
        calls(&limits, 2, Failure, 0);
        call(&limits, Success, 0);
    }
    assert_eq!(state(&limits), BreakerState::Closed);
    calls(&limits, 2, Failure, 0);
    calls(&limits, 10, Ignored, 0);
    call(&limits, Failure, 0);
    assert_eq!((state(&limits), refusal(&limits, 1)), (BreakerState::Open, open_for(PAUSE - 1)));
}

#[test]
fn brk_01_half_open_lets_exactly_the_quota_through() {
    for quota in [1, 3] {
        let limits = tripped(BreakerOptions::new().probes(quota), 0);
        for left in [PAUSE, 1] {
            assert_eq!(refusal(&limits, PAUSE - left), open_for(left));
        }
        let loads = if cfg!(miri) { 8 } else { 100 };
        let results = together(loads, |_| limits.admit(Priority::Foreground, PAUSE));
        let mut probes: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
        assert_eq!(probes.len(), quota as usize);
        assert_eq!(state(&limits), BreakerState::HalfOpen);

        // One that fails opens it for a full pause, whatever the others do later.
        probes.pop().unwrap().finish(Failure, || PAUSE + 5);
        for probe in probes {
            probe.finish(Success, || PAUSE + 6);
        }
        assert_eq!((state(&limits), limits.breaker().openings()), (BreakerState::Open, 2));
        assert_eq!(refusal(&limits, PAUSE + 5), open_for(PAUSE));

        // All of them are needed to close it; answered ones are not replaced.
        let now = 2 * PAUSE + 5;
        let probes: Vec<_> = (0..quota).map(|_| start(&limits, now)).collect();
        for probe in probes {
            assert_eq!(state(&limits), BreakerState::HalfOpen);
            assert!(matches!(refusal(&limits, now), Refusal::BreakerOpen { .. }));
            probe.finish(Success, || now);
        }
        assert_eq!(state(&limits), BreakerState::Closed);
        start(&limits, now).finish(Success, || now);
    }
}

#[test]
fn brk_03_a_late_result_of_an_earlier_era_changes_nothing() {
    for result in [Some(Success), Some(Failure), Some(Ignored), None] {
        let end = |permit: Permit| match result {
            Some(result) => permit.finish(result, || PAUSE),
            None => drop(permit),
        };
        let limits = with_breaker(after(2).probes(2));
        let early = [0, 0, 0, 0].map(|now| start(&limits, now));
        let [while_open, while_half_open, with_probes_out, when_closed] = early;
        calls(&limits, 2, Failure, 0);

        end(while_open);
        assert_eq!((state(&limits), limits.breaker().openings()), (BreakerState::Open, 1));
        assert_eq!(refusal(&limits, 0), open_for(PAUSE), "{result:?} moved the pause");

        let probe = start(&limits, PAUSE);
        end(while_half_open);
        assert_eq!(state(&limits), BreakerState::HalfOpen, "{result:?}");
        let other = start(&limits, PAUSE);
        end(with_probes_out);
        assert!(matches!(refusal(&limits, PAUSE), Refusal::BreakerOpen { .. }), "{result:?}");

        probe.finish(Success, || PAUSE);
        other.finish(Success, || PAUSE);
        call(&limits, Failure, PAUSE);
        end(when_closed);
        assert_eq!(state(&limits), BreakerState::Closed, "{result:?} counted as second failure");
        call(&limits, Failure, PAUSE);
        assert_eq!(state(&limits), BreakerState::Open, "{result:?} cleared the first failure");
        assert_eq!(limits.in_flight(), 0);
    }
}

#[test]
fn brk_05_a_failed_probe_below_the_rate_opens_it_again() {
    let limits = with_breaker(after(0).failure_rate(0.5, 10, 10).unwrap());
    calls(&limits, 4, Success, 0);
    calls(&limits, 5, Failure, 0);
    assert_eq!(state(&limits), BreakerState::Closed);
    call(&limits, Failure, 0);
    assert_eq!(state(&limits), BreakerState::Open);
    call(&limits, Failure, PAUSE);
    assert_eq!((state(&limits), refusal(&limits, PAUSE)), (BreakerState::Open, open_for(PAUSE)));
    call(&limits, Success, 2 * PAUSE);
    assert_eq!(state(&limits), BreakerState::Closed);
    // The window is a fresh one.
    calls(&limits, 9, Failure, 2 * PAUSE);
    assert_eq!(state(&limits), BreakerState::Closed);
}

#[test]
fn brk_07_cancelled_calls_are_no_failures() {
    let limits = with_breaker(after(5).failure_rate(0.1, 10, 1).unwrap());
    for _ in 0..ROUNDS {
        drop(start(&limits, 0));
    }
    assert_eq!(state(&limits), BreakerState::Closed);
    assert_eq!((limits.counts().cancelled, limits.counts().failed), (u64::from(ROUNDS), 0));
    // A timeout of the load itself is a failure like any other.
    call(&limits, Failure, 0);
    assert_eq!((limits.counts().cancelled, limits.counts().failed), (u64::from(ROUNDS), 1));
    assert_eq!(state(&limits), BreakerState::Open);
}

#[test]
fn a_cancelled_or_ignored_probe_gives_its_place_to_another() {
    let limits = tripped(BreakerOptions::new(), 0);
    drop(start(&limits, PAUSE));
    start(&limits, PAUSE).finish(Ignored, || PAUSE);
    let probe = start(&limits, PAUSE);
    assert!(limits.admit(Priority::Foreground, PAUSE).is_err());
    probe.finish(Success, || PAUSE);
    assert_eq!(state(&limits), BreakerState::Closed);
}

#[test]
fn brk_09_the_threshold_is_met_exactly_once() {
    let limits = with_breaker(after(5));
    calls(&limits, 4, Failure, 0);
    assert_eq!(state(&limits), BreakerState::Closed);
    call(&limits, Failure, 0);
    assert_eq!(state(&limits), BreakerState::Open);

    let rate = after(0).failure_rate(1.0, 8, 5).unwrap();
    for (threads, options) in [(5, after(5)), (5, rate), (20, after(5))] {
        for _ in 0..ROUNDS / if threads > 5 { 10 } else { 1 } {
            let limits = with_breaker(options);
            let permits: Vec<_> = (0..threads).map(|_| std::sync::Mutex::new(None)).collect();
            for permit in &permits {
                *permit.lock().unwrap() = Some(start(&limits, 0));
            }
            together(threads, |index| {
                permits[index].lock().unwrap().take().unwrap().finish(Failure, || 0);
            });
            assert_eq!((state(&limits), limits.breaker().openings()), (BreakerState::Open, 1));
        }
    }
}

#[test]
fn brk_11_an_order_holds_until_released() {
    let limits = tripped(BreakerOptions::new().consecutive_failures(2), 0);
    let breaker: &Breaker = limits.breaker();
    breaker.force_open();
    assert_eq!(breaker.state(), BreakerState::ForcedOpen);
    for now in [0, PAUSE, 1_000 * PAUSE, u64::MAX] {
        assert_eq!(refusal(&limits, now), open_for(PAUSE));
    }
    breaker.force_closed();
    calls(&limits, 100, Failure, PAUSE);
    assert_eq!((breaker.state(), breaker.openings()), (BreakerState::ForcedClosed, 1));
    let during = start(&limits, PAUSE);
    breaker.configure(Some(after(2).open_for(millis(PAUSE))));
    assert_eq!(breaker.state(), BreakerState::ForcedClosed);
    breaker.release();
    // The rules are back, and nothing of what was before counts.
    assert_eq!(breaker.state(), BreakerState::Closed);
    during.finish(Failure, || PAUSE);
    call(&limits, Failure, PAUSE);
    assert_eq!(breaker.state(), BreakerState::Closed);
    call(&limits, Failure, PAUSE);
    assert_eq!((breaker.state(), breaker.openings()), (BreakerState::Open, 2));
    // Without an order, there is nothing to release.
    breaker.release();
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[test]
fn brk_13_no_call_starts_once_the_failure_is_known() {
    let limits = limits(LimitSettings {
        max_in_flight: 8,
        breaker: Some(after(3).open_for(millis(PAUSE))),
        ..LimitSettings::default()
    });
    let mut running: std::collections::VecDeque<_> = (0..8).map(|_| start(&limits, 0)).collect();
    assert_eq!(refusal(&limits, 0), Refusal::InFlight { limit: 8 });
    let mut started = 8;
    for _ in 0..100 {
        if let Some(oldest) = running.pop_front() {
            if running.len() < 4 {
                // These late ones end while it is half-open.
                running.push_front(oldest);
                break;
            }
            oldest.finish(Failure, || 1_000);
        }
        if let Ok(permit) = limits.admit(Priority::Foreground, 1_000) {
            started += 1;
            running.push_back(permit);
        }
    }
    assert_eq!((started, limits.breaker().openings()), (10, 1));
    assert_eq!(refusal(&limits, 1_000), open_for(PAUSE));
    let probe = start(&limits, 1_000 + PAUSE);
    for late in running {
        late.finish(Failure, || 1_000 + PAUSE);
    }
    assert_eq!((state(&limits), limits.breaker().openings()), (BreakerState::HalfOpen, 1));
    probe.finish(Success, || 1_000 + PAUSE);
    assert_eq!(state(&limits), BreakerState::Closed);
}

#[test]
fn brk_13_the_permit_of_the_call_that_opened_it_admits_nobody() {
    for _ in 0..ROUNDS {
        let limits = limits(LimitSettings {
            max_in_flight: 1,
            breaker: Some(after(1)),
            ..LimitSettings::default()
        });
        let failing = std::sync::Mutex::new(Some(start(&limits, 0)));
        let started = together(2, |index| {
            if index == 0 {
                failing.lock().unwrap().take().unwrap().finish(Failure, || 0);
                return false;
            }
            (0..20).any(|_| limits.admit(Priority::Foreground, 0).is_ok())
        });
        assert_eq!(started, [false, false]);
    }
}

#[test]
fn a_hanging_probe_does_not_shut_it_for_ever() {
    let limits = tripped(BreakerOptions::new().probes(2), 0);
    let hanging = start(&limits, PAUSE);
    start(&limits, PAUSE + 100).finish(Success, || PAUSE + 100);
    // A pause since the last probe has started.
    assert_eq!(refusal(&limits, PAUSE + 100), open_for(PAUSE));
    assert_eq!(refusal(&limits, 2 * PAUSE + 99), open_for(1));
    let next = start(&limits, 2 * PAUSE + 100);
    assert_eq!(refusal(&limits, 2 * PAUSE + 100), open_for(PAUSE), "only one may try instead");
    // The one that was given up counts no more; the answer that came does.
    hanging.finish(Failure, || 2 * PAUSE + 200);
    assert_eq!(state(&limits), BreakerState::HalfOpen);
    next.finish(Success, || 2 * PAUSE + 300);
    assert_eq!(state(&limits), BreakerState::Closed);
}

#[test]
fn slow_calls_open_it_and_slow_probes_fail() {
    let slow = |options: BreakerOptions| options.slow_call(millis(500), 0.5).unwrap();
    let limits = with_breaker(slow(after(5).failure_rate(0.0, 4, 4).unwrap()));
    let end = |took: u64, now: u64| start(&limits, now).finish(Success, || now + took);
    for took in [499, 500, 0] {
        end(took, 0);
        assert_eq!(state(&limits), BreakerState::Closed);
    }
    end(u64::MAX, 0);
    assert_eq!(state(&limits), BreakerState::Open);
    // The clock is at its end since; begin again.
    limits.breaker().configure(Some(slow(after(1)).open_for(millis(PAUSE))));
    call(&limits, Failure, 0);
    end(500, PAUSE);
    assert_eq!((state(&limits), limits.breaker().openings()), (BreakerState::Open, 3));
    end(499, 2 * PAUSE + 500);
    assert_eq!(state(&limits), BreakerState::Closed);
}

/// Opens at the call after which `failed` of the last calls failed.
fn opens_at(rate: f64, window: u32, min_calls: u32, results: &[Classified]) -> Option<usize> {
    let limits = with_breaker(after(0).failure_rate(rate, window, min_calls).unwrap());
    results.iter().position(|result| {
        call(&limits, *result, 0);
        state(&limits) == BreakerState::Open
    })
}

#[test]
#[cfg_attr(miri, ignore = "thousands of calls")]
fn rates_are_met_exactly() {
    for (failed, of) in [(3, 10), (7, 100), (2, 3), (29, 100), (1, 7), (57, 100), (1, 1)] {
        let rate = f64::from(failed) / f64::from(of);
        let mut results = vec![Success; (of - failed) as usize];
        results.extend(vec![Failure; failed as usize]);
        let last = results.len() - 1;
        assert_eq!(opens_at(rate, of, of, &results), Some(last), "{failed} of {of}");
        *results.last_mut().unwrap() = Success;
        assert_eq!(opens_at(rate, of, of, &results), None, "{failed} of {of}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of calls")]
fn the_window_forgets_by_halves() {
    // Twenty successes do not weigh on: half of the last ten, not of all.
    let mut results = vec![Success; 20];
    results.extend([Failure; 5]);
    assert_eq!(opens_at(0.5, 10, 10, &results), Some(24));
    // Failures of long ago do not either.
    let mut results = vec![Failure; 3];
    results.extend([Success; 8]);
    results.extend([Failure; 4]);
    assert_eq!(opens_at(0.45, 10, 8, &results), None);
    assert_eq!(opens_at(0.45, 30, 8, &results), Some(14));
    // The largest window: its fields are full, and do not run over.
    let mut results = vec![Success; 3_000];
    results.extend([Failure; 2_045]);
    assert!(opens_at(1.0, u32::MAX, u32::MAX, &results).is_none());
    let first = opens_at(0.5, 2_046, 1, &results).unwrap();
    assert!((3_000 + 1_023 / 2..3_000 + 1_023).contains(&first), "{first}");
}

#[test]
fn settings_change_at_run_time() {
    let limits = unlimited();
    let breaker = limits.breaker();
    calls(&limits, 100, Failure, 0);
    assert_eq!((breaker.state(), breaker.openings()), (BreakerState::Closed, 0));
    breaker.configure(Some(after(1).open_for(millis(5))));
    let early = start(&limits, 0);
    call(&limits, Failure, 0);
    assert_eq!(refusal(&limits, 0), open_for(5));
    breaker.configure(Some(after(2)));
    early.finish(Failure, || 0);
    call(&limits, Failure, 0);
    assert_eq!(breaker.state(), BreakerState::Closed);
    call(&limits, Failure, 0);
    assert_eq!(breaker.state(), BreakerState::Open);
    breaker.configure(None);
    calls(&limits, 100, Failure, 0);
    assert_eq!((breaker.state(), breaker.openings()), (BreakerState::Closed, 2));
    breaker.force_open();
    assert_eq!(breaker.state(), BreakerState::ForcedOpen);
    breaker.release();
    calls(&limits, 100, Failure, 0);
}

/// The pause and the window know their era by its lowest bits only.
#[test]
fn any_number_of_changes_leaves_pause_and_window_working() {
    for changes in [1, 1 << 12, 1 << 15, (1 << 15) + 1, 1 << 16] {
        let options = after(1).failure_rate(1.0, 4, 2).unwrap().open_for(millis(PAUSE));
        let limits = with_breaker(options);
        call(&limits, Failure, 0);
        let changes = if cfg!(miri) { changes.min(300) } else { changes };
        for _ in 0..changes {
            limits.breaker().configure(Some(options));
        }
        call(&limits, Failure, 7);
        assert_eq!(refusal(&limits, 8), open_for(PAUSE - 1), "after {changes} changes");
        limits.breaker().configure(Some(options.consecutive_failures(0)));
        calls(&limits, 2, Failure, 0);
        assert_eq!(state(&limits), BreakerState::Open, "after {changes} changes");
    }
}

#[test]
fn jitter_only_shortens_the_pause() {
    let rounds = if cfg!(miri) { 20 } else { 200 };
    let mut pauses: Vec<_> = (0..rounds)
        .map(|_| {
            let limits = tripped(BreakerOptions::new().open_jitter(0.5).unwrap(), 0);
            refusal(&limits, 0).retry_after().unwrap()
        })
        .collect();
    pauses.sort();
    let (shortest, longest) = (pauses[0], pauses[rounds - 1]);
    assert!(shortest >= millis(PAUSE / 2) && longest <= millis(PAUSE));
    assert!(longest - shortest > millis(PAUSE / 10), "no jitter in {pauses:?}");
}

#[test]
fn nonsense_is_refused() {
    use crate::ConfigError::{Fraction, Order};
    let options = BreakerOptions::new();
    for rate in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert!(matches!(options.failure_rate(rate, 10, 5), Err(Fraction("failure_rate", _))));
        assert!(matches!(options.slow_call(millis(1), rate), Err(Fraction("slow_call", _))));
        assert!(matches!(options.open_jitter(rate), Err(Fraction("open_jitter", _))));
    }
    assert_eq!(options.failure_rate(0.5, 10, 11), Err(Order("min_calls", "window")));
    // Numbers that have a meaning at their ends.
    let limits = with_breaker(options.probes(0).consecutive_failures(u32::MAX));
    limits.breaker().configure(Some(options.probes(u32::MAX).open_for(Duration::ZERO)));
    calls(&limits, 5, Failure, 0);
    let probes: Vec<_> =
        (0..300).map_while(|_| limits.admit(Priority::Foreground, 1).ok()).collect();
    assert_eq!(probes.len(), 255);
}

#[test]
fn ovr_01_a_pause_without_end() {
    for pause in [Duration::MAX, millis(u64::MAX), millis(u64::MAX - 1), millis(1 << 50)] {
        for now in [0, 5, u64::MAX - 1] {
            let limits = unlimited();
            limits.breaker().configure(Some(after(1).open_for(pause).open_jitter(0.0).unwrap()));
            call(&limits, Failure, now);
            for later in [now, now.saturating_add(1 << 47)] {
                let left = refusal(&limits, later).retry_after().unwrap();
                assert!(left > Duration::from_secs(1 << 40), "{left:?}");
            }
        }
    }
    // A clock that counts from anywhere, and one that goes through the end of what the word holds.
    for now in [(1 << 47) - 1, (1 << 48) - PAUSE, (1 << 48) - 1, u64::MAX - PAUSE - 2] {
        let limits = tripped(BreakerOptions::new(), now);
        assert_eq!(refusal(&limits, now), open_for(PAUSE));
        assert_eq!(refusal(&limits, now + PAUSE - 1), open_for(1));
        call(&limits, Success, now + PAUSE);
        assert_eq!(state(&limits), BreakerState::Closed);
    }
}

#[test]
fn a_clock_that_steps_back_neither_ends_nor_stretches_a_pause() {
    let limits = tripped(BreakerOptions::new(), 1_000);
    assert_eq!(refusal(&limits, 990), open_for(PAUSE + 10));
    let probe = start(&limits, 1_000 + PAUSE);
    probe.finish(Success, || 900);
    assert_eq!(state(&limits), BreakerState::Closed);
}
