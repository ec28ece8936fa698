use super::super::{Attempt, Backoff, GuardCounts};
use super::*;

fn with_interval(interval: u64) -> Arc<Limits> {
    limits(LimitSettings { min_retry_interval: millis(interval), ..LimitSettings::default() })
}

fn backoff(first: u64, max: u64) -> Backoff {
    Backoff::new(millis(first), millis(max)).unwrap().jitter(0.0).unwrap()
}

fn with_backoff(backoff: Backoff) -> Arc<Limits> {
    limits(LimitSettings { backoff: Some(backoff), ..LimitSettings::default() })
}

#[test]
fn thr_01_a_running_attempt_counts() {
    let limits = with_interval(5_000);
    let running = Attempt::begin(None, 1_000);
    assert_eq!(limits.throttle(running, 2_000), Some(millis(4_000)));
    assert_eq!(limits.throttle(running, 5_999), Some(millis(1)));
    assert_eq!(limits.throttle(running, 6_000), None);
    // It fails in the end: the interval still counts from its start.
    let failed = limits.after_failure(None, 1_000, 31_000);
    assert_eq!(failed, Attempt { started: 1_000, failures: 1, not_before: 0 });
    assert_eq!(limits.throttle(failed, 31_000), None);
    // Looking counts nothing; nor does it when nothing is refused.
    limits.set_observe_only(true);
    assert_eq!(limits.pause_after(running, 2_000), 4_000);
    assert_eq!(limits.counts(), GuardCounts::default());
}

#[test]
fn thr_03_the_refusal_has_a_type_and_the_time_left() {
    let limits = with_interval(5_000);
    let failed = limits.after_failure(None, 0, 10);
    let refusal = limits.throttled(limits.throttle(failed, 1_000).unwrap());
    assert_eq!(refusal, Refusal::Throttled { retry_after: millis(4_000) });
    assert_eq!(refusal.retry_after(), Some(millis(4_000)));
    assert_eq!(limits.counts().refused.throttled, 1);
}

#[test]
fn thr_05_a_failure_does_not_delay_the_next_attempt_beyond_the_interval() {
    let limits = with_interval(1_000);
    let failed = limits.after_failure(None, 10_000, 10_200);
    assert_eq!(limits.throttle(failed, 10_999), Some(millis(1)));
    assert_eq!(limits.throttle(failed, 11_500), None);
}

#[test]
fn thr_07_failures_of_one_key_do_not_slow_another() {
    let limits = with_backoff(backoff(1_000, 10_000));
    let mut failing = None;
    for _ in 0..5 {
        failing = Some(limits.after_failure(failing, 0, 0));
    }
    let other = limits.after_failure(None, 0, 0);
    assert_eq!(limits.throttle(failing.unwrap(), 0), Some(millis(10_000)));
    assert_eq!(limits.throttle(other, 0), Some(millis(1_000)));
}

#[test]
fn every_attempt_counts_success_too_and_a_success_ends_the_row() {
    let limits = with_interval(100);
    limits.set_backoff(Some(backoff(1_000, 60_000)));
    let first = limits.after_failure(None, 0, 0);
    let again = Attempt::begin(Some(first), 2_000);
    assert_eq!((again.failures, limits.throttle(again, 2_050)), (1, Some(millis(50))));
    let second = limits.after_failure(Some(again), 2_000, 2_300);
    assert_eq!((second.failures, limits.throttle(second, 2_300)), (2, Some(millis(2_000))));
    let succeeded = Attempt::begin(None, 5_000);
    assert_eq!(limits.throttle(succeeded, 5_099), Some(millis(1)));
    assert_eq!(limits.throttle(succeeded, 5_100), None);
    assert_eq!(limits.after_failure(Some(succeeded), 5_100, 5_100).failures, 1);
}

#[test]
fn the_backoff_grows_to_its_limit() {
    let doubling = backoff(100, 1_500);
    let delays = [0, 1, 2, 3, 4, 5, 6, u32::MAX].map(|failures| doubling.delay(failures, 0.0));
    assert_eq!(delays, [0, 100, 200, 400, 800, 1_500, 1_500, 1_500]);
    let steady = doubling.factor(1.0).unwrap();
    assert_eq!([1, 2, u32::MAX].map(|failures| steady.delay(failures, 0.0)), [100; 3]);
    let steep = doubling.factor(1e300).unwrap();
    assert_eq!([1, 2, u32::MAX].map(|failures| steep.delay(failures, 0.0)), [100, 1_500, 1_500]);
}

#[test]
fn jitter_only_shortens_the_backoff() {
    for (jitter, least) in [(0.0, 1_000), (0.5, 500), (1.0, 0)] {
        let backoff = backoff(1_000, 1_000).jitter(jitter).unwrap();
        assert_eq!((backoff.delay(1, 0.0), backoff.delay(1, 1.0)), (1_000, least));
        let limits = with_backoff(backoff);
        let draws = if cfg!(miri) { 30 } else { 1_000 };
        let drawn = (0..draws).map(|_| limits.after_failure(None, 0, 5).not_before - 5);
        let (low, high) =
            drawn.fold((u64::MAX, 0), |(low, high), delay| (low.min(delay), high.max(delay)));
        assert!(low >= least && high <= 1_000, "{low} to {high}");
        assert!(high - low >= (1_000 - least) / 4, "{low} to {high}");
    }
}

#[test]
fn settings_change_at_run_time() {
    let limits = with_interval(1_000);
    let failed = limits.after_failure(None, 0, 0);
    limits.set_min_retry_interval(Duration::from_micros(1_500));
    assert_eq!(limits.throttle(failed, 0), Some(millis(2)));
    assert_eq!(limits.min_retry_interval(), millis(2));
    limits.set_min_retry_interval(Duration::ZERO);
    assert_eq!((limits.throttle(failed, 0), limits.backoff()), (None, None));
    limits.set_backoff(Some(backoff(60_000, 60_000)));
    assert_eq!(limits.backoff(), Some(backoff(60_000, 60_000)));
    let failed = limits.after_failure(None, 0, 0);
    assert_eq!(limits.throttle(failed, 0), Some(millis(60_000)));
    limits.set_backoff(Some(backoff(1, 100)));
    assert_eq!(limits.throttle(failed, 0), Some(millis(100)));
    limits.set_backoff(None);
    assert_eq!(limits.throttle(failed, 0), None);
}

#[test]
fn a_clock_that_steps_back_stretches_no_interval() {
    let limits = with_interval(1_000);
    assert_eq!(limits.throttle(Attempt::begin(None, 5_000), 4_000), Some(millis(1_000)));
    let limits = with_backoff(backoff(1_000, 1_000));
    assert_eq!(limits.throttle(limits.after_failure(None, 5_000, 5_000), 0), Some(millis(1_000)));
}

#[test]
fn ovr_01_intervals_without_end() {
    for longest in [Duration::MAX, millis(u64::MAX - 5)] {
        let limits = unlimited();
        limits.set_min_retry_interval(longest);
        limits.set_backoff(Some(Backoff::new(longest, longest).unwrap()));
        for now in [0, 5, u64::MAX] {
            let mut attempt = limits.after_failure(None, now, now);
            attempt = limits.after_failure(Some(attempt), now, now);
            assert!(limits.throttle(attempt, now).unwrap() > Duration::from_secs(1 << 50));
        }
    }
}

#[test]
fn ovr_03_any_number_of_failures() {
    let limits = with_backoff(backoff(1, 1_000));
    let most = Attempt { started: 0, failures: u32::MAX, not_before: 0 };
    assert_eq!(limits.after_failure(Some(most), 0, 0).failures, u32::MAX);
}

#[test]
fn nonsense_is_refused() {
    use crate::ConfigError::{Fraction, Number, Order, TooShort};
    assert_eq!(Backoff::new(Duration::ZERO, millis(1)), Err(TooShort("backoff")));
    let swapped = Err(Order("first backoff", "longest backoff"));
    assert_eq!(Backoff::new(millis(2), millis(1)), swapped);
    let backoff = backoff(1, 2);
    for factor in [0.9, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(backoff.factor(factor), Err(Number("backoff factor", _))));
    }
    for jitter in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(backoff.jitter(jitter), Err(Fraction("backoff jitter", _))));
    }
}
