//! Loom models of the guards; the real code throughout.
//!
//! Run with `RUSTFLAGS="--cfg seawall_loom" cargo test --release --lib loom_guard`.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

use super::{
    BreakerOptions, BreakerState, Classified, LimitSettings, Limits, Permit, Priority, Rate,
    Refusal,
};

const PAUSE: u64 = 100;

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.max_branches = 10_000;
    builder.check(body);
}

fn limits(settings: LimitSettings) -> Arc<Limits> {
    Arc::new(Limits::new(&settings))
}

fn options() -> BreakerOptions {
    BreakerOptions::new().consecutive_failures(1).open_for(Duration::from_millis(PAUSE))
}

fn with_breaker(options: BreakerOptions) -> Arc<Limits> {
    limits(LimitSettings { breaker: Some(options), ..LimitSettings::default() })
}

fn admit(limits: &Arc<Limits>, now: u64) -> Option<Permit> {
    limits.admit(Priority::Foreground, now).ok()
}

/// Open since 0.
fn tripped(options: BreakerOptions) -> Arc<Limits> {
    let limits = with_breaker(options);
    admit(&limits, 0).unwrap().finish(Classified::Failure, || 0);
    limits
}

fn spawn<T: 'static>(
    limits: &Arc<Limits>,
    body: impl FnOnce(&Arc<Limits>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let limits = Arc::clone(limits);
    thread::spawn(move || body(&limits))
}

fn state(limits: &Limits) -> (BreakerState, u64) {
    (limits.breaker().state(), limits.breaker().openings())
}

/// Never more permits than the limit, and none is lost; nobody is refused while there is room.
#[test]
fn loom_guard_permits_never_exceed_the_limit() {
    model(|| {
        let limits = limits(LimitSettings { max_in_flight: 2, ..LimitSettings::default() });
        let running = Arc::new(AtomicU64::new(0));
        let load = |limits: &Arc<Limits>, running: &AtomicU64| {
            let Some(permit) = admit(limits, 0) else { return false };
            assert!(running.fetch_add(1, Relaxed) < 2, "a third one runs");
            running.fetch_sub(1, Relaxed);
            permit.finish(Classified::Success, || 0);
            true
        };
        let threads = [0, 1].map(|_| {
            let running = Arc::clone(&running);
            spawn(&limits, move |limits| load(limits, &running))
        });
        let mine = load(&limits, &running);
        let others = threads.map(|thread| thread.join().unwrap());
        assert!(usize::from(mine) + others.map(usize::from).iter().sum::<usize>() >= 2);
        assert_eq!(limits.in_flight(), 0);
        assert_eq!([0, 0, 0].map(|now| admit(&limits, now)).iter().flatten().count(), 2);
    });
}

/// Two callers and room for two: nobody who is about to be refused (here: background work beyond its
/// share) takes the room of another.
#[test]
fn loom_guard_nobody_is_refused_while_there_is_room() {
    model(|| {
        let limits = limits(LimitSettings {
            max_in_flight: 2,
            background_share: 0.5,
            max_waiters: 2,
            ..LimitSettings::default()
        });
        let _background = limits.admit(Priority::Background, 0).unwrap();
        let beyond = spawn(&limits, |limits| {
            assert!(limits.admit(Priority::Background, 0).is_err());
            limits.wait().map(drop).expect("two may wait");
        });
        drop(admit(&limits, 0).expect("one of two runs"));
        limits.wait().map(drop).expect("two may wait");
        beyond.join().unwrap();
        assert_eq!((limits.in_flight(), limits.waiters()), (1, 0));
    });
}

/// Once a limit is lowered, nothing starts.
#[test]
fn loom_guard_nothing_starts_after_a_limit_was_lowered() {
    model(|| {
        let limits = limits(LimitSettings { max_in_flight: 3, ..LimitSettings::default() });
        let _running = [0, 0].map(|now| admit(&limits, now).unwrap());
        let starter = spawn(&limits, |limits| admit(limits, 0));
        limits.set_max_in_flight(1);
        let then = limits.in_flight();
        let permit = starter.join().unwrap();
        assert_eq!(permit.is_some(), then == 3, "it started afterwards");
        assert_eq!(limits.in_flight(), then);
    });
}

/// Who is refused for a permit that was taken while there was no limit sees what came before that, as its
/// load's claim; and who gets it after that call, what the call did.
#[test]
fn loom_guard_what_was_taken_without_a_limit_counts_under_one() {
    model(|| {
        let limits = limits(LimitSettings::default());
        let (claimed, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let other = {
            let (claimed, ended) = (Arc::clone(&claimed), Arc::clone(&ended));
            spawn(&limits, move |limits| {
                claimed.store(1, Relaxed);
                let Some(permit) = admit(limits, 0) else { return };
                ended.store(1, Relaxed);
                drop(permit);
            })
        };
        limits.set_max_in_flight(1);
        let before = limits.in_flight();
        match limits.admit(Priority::Foreground, 0) {
            Ok(_permit) if before == 1 => assert_eq!(ended.load(Relaxed), 1, "it runs still"),
            Ok(_permit) => {}
            Err(refusal) => {
                assert_eq!(refusal, Refusal::InFlight { limit: 1 });
                assert_eq!(claimed.load(Relaxed), 1, "for nothing");
            }
        }
        other.join().unwrap();
        assert_eq!(limits.in_flight(), 0);
        assert_eq!([0, 0].map(|now| admit(&limits, now)).iter().flatten().count(), 1);
    });
}

/// The call that opens the breaker gives its permit to nobody.
#[test]
fn loom_guard_the_permit_of_the_call_that_opened_admits_nobody() {
    model(|| {
        let limits = limits(LimitSettings {
            max_in_flight: 1,
            breaker: Some(options()),
            ..LimitSettings::default()
        });
        let failing = admit(&limits, 0).unwrap();
        let other = spawn(&limits, |limits| admit(limits, 0).is_some());
        failing.finish(Classified::Failure, || 0);
        assert!(!other.join().unwrap(), "it started after the failure was known");
        assert_eq!((state(&limits), limits.in_flight()), ((BreakerState::Open, 1), 0));
    });
}

/// As above, where the other has seen the permit free before the failing call took it.
#[test]
fn loom_guard_a_permit_that_was_free_before_and_after_a_failure_admits_nobody() {
    model(|| {
        let limits = limits(LimitSettings {
            max_in_flight: 1,
            breaker: Some(options()),
            ..LimitSettings::default()
        });
        let other = spawn(&limits, |limits| admit(limits, 0));
        let mine = admit(&limits, 0);
        let failed = mine.is_some();
        if let Some(permit) = mine {
            permit.finish(Classified::Failure, || 0);
        }
        // The other keeps its permit, so if both had one, this was the first.
        let other = other.join().unwrap();
        assert!(!(failed && other.is_some()), "it started after the failure was known");
    });
}

/// Racing first calls after the pause: exactly as many probes as there may be.
fn probes(quota: u32, threads: usize) {
    let limits = tripped(options().probes(quota));
    let others: Vec<_> =
        (1..threads).map(|_| spawn(&limits, |limits| admit(limits, PAUSE))).collect();
    let mine = admit(&limits, PAUSE);
    let others = others.into_iter().map(|thread| thread.join().unwrap());
    let probes: Vec<_> = others.chain([mine]).flatten().collect();
    assert_eq!(probes.len(), quota as usize);
    assert_eq!(state(&limits), (BreakerState::HalfOpen, 1));
    for probe in probes {
        assert!(admit(&limits, PAUSE).is_none());
        probe.finish(Classified::Success, || PAUSE);
    }
    assert_eq!(state(&limits), (BreakerState::Closed, 1));
}

#[test]
fn loom_guard_half_open_admits_exactly_one_probe() {
    model(|| probes(1, 3));
}

#[test]
fn loom_guard_half_open_admits_exactly_two_probes() {
    model(|| probes(2, 3));
}

/// A probe that is given up while another caller asks: its place is neither lost nor given twice.
#[test]
fn loom_guard_a_cancelled_probe_gives_its_place_back() {
    model(|| {
        let limits = tripped(options());
        let probe = admit(&limits, PAUSE).unwrap();
        let other = spawn(&limits, |limits| admit(limits, PAUSE));
        drop(probe);
        let mine = admit(&limits, PAUSE);
        let other = other.join().unwrap();
        assert!(mine.is_some() != other.is_some(), "{mine:?} {other:?}");
        drop((mine, other));
        admit(&limits, PAUSE).expect("a place").finish(Classified::Success, || PAUSE);
        assert_eq!(state(&limits), (BreakerState::Closed, 1));
    });
}

/// Two probes of one era fail, or one fails and one succeeds: one opening, and a full pause.
#[test]
fn loom_guard_one_opening_for_two_probes() {
    model(|| {
        let limits = tripped(options().probes(2));
        let [one, other] = [PAUSE, PAUSE].map(|now| admit(&limits, now).unwrap());
        let thread = thread::spawn(move || one.finish(Classified::Failure, || PAUSE));
        other.finish(Classified::Failure, || PAUSE);
        thread.join().unwrap();
        assert_eq!(state(&limits), (BreakerState::Open, 2));
        let refused = limits.admit(Priority::Foreground, PAUSE).unwrap_err();
        assert_eq!(refused.retry_after(), Some(Duration::from_millis(PAUSE)));
    });
}

/// A result of an earlier era comes while the breaker goes from open through half-open to closed.
fn late(result: Option<Classified>) {
    let limits = with_breaker(options());
    let late = admit(&limits, 0).unwrap();
    admit(&limits, 0).unwrap().finish(Classified::Failure, || 0);
    let thread = thread::spawn(move || match result {
        Some(result) => late.finish(result, || PAUSE),
        None => drop(late),
    });
    let probe = admit(&limits, PAUSE).expect("the pause is as long as it was");
    assert!(admit(&limits, PAUSE).is_none(), "the place of a probe was given back for another");
    probe.finish(Classified::Success, || PAUSE);
    assert_eq!(state(&limits), (BreakerState::Closed, 1));
    thread.join().unwrap();
    assert_eq!(state(&limits), (BreakerState::Closed, 1));
}

#[test]
fn loom_guard_a_late_failure_changes_nothing() {
    model(|| late(Some(Classified::Failure)));
}

#[test]
fn loom_guard_a_late_success_changes_nothing() {
    model(|| late(Some(Classified::Success)));
}

#[test]
fn loom_guard_a_late_cancellation_changes_nothing() {
    model(|| late(None));
}

/// A failure of an earlier era does not get into the window of the present one.
#[test]
fn loom_guard_a_late_failure_is_not_in_the_window() {
    model(|| {
        let options = options().consecutive_failures(0).failure_rate(1.0, 4, 2).unwrap();
        let limits = with_breaker(options);
        let late = admit(&limits, 0).unwrap();
        let thread = thread::spawn(move || late.finish(Classified::Failure, || 0));
        limits.breaker().configure(Some(options));
        admit(&limits, 0).unwrap().finish(Classified::Failure, || 0);
        thread.join().unwrap();
        assert_eq!(state(&limits), (BreakerState::Closed, 0));
        admit(&limits, 0).unwrap().finish(Classified::Failure, || 0);
        assert_eq!(state(&limits), (BreakerState::Open, 1));
    });
}

/// Two failures at once meet a threshold of two, by count or by rate: open, once.
fn two_failures(options: BreakerOptions) {
    let limits = with_breaker(options);
    let [one, other] = [0, 0].map(|now| admit(&limits, now).unwrap());
    let thread = thread::spawn(move || one.finish(Classified::Failure, || 0));
    other.finish(Classified::Failure, || 0);
    thread.join().unwrap();
    assert_eq!(state(&limits), (BreakerState::Open, 1));
    let refused = limits.admit(Priority::Foreground, 0).unwrap_err();
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(PAUSE)));
}

#[test]
fn loom_guard_two_failures_in_a_row_open_once() {
    model(|| two_failures(options().consecutive_failures(2)));
}

#[test]
fn loom_guard_two_failures_in_the_window_open_once() {
    model(|| {
        let rate = options().consecutive_failures(0).failure_rate(1.0, 2, 2).unwrap();
        two_failures(rate.consecutive_failures(2));
        two_failures(rate);
    });
}

/// Whoever finds the breaker open finds a whole pause, even before the thread that opened it wrote its
/// end.
#[test]
fn loom_guard_an_opening_has_a_whole_pause() {
    model(|| {
        let limits = tripped(options());
        let probe = admit(&limits, PAUSE).unwrap();
        let opener = thread::spawn(move || probe.finish(Classified::Failure, || PAUSE));
        for now in [PAUSE, 2 * PAUSE - 1] {
            assert!(admit(&limits, now).is_none(), "it let a call through at {now}");
        }
        opener.join().unwrap();
        assert_eq!(state(&limits), (BreakerState::Open, 2));
    });
}

/// A probe is given a whole pause to answer, counted from its own start.
#[test]
fn loom_guard_a_second_probe_extends_the_time_to_answer() {
    model(|| {
        let limits = tripped(options().probes(2));
        let first = admit(&limits, PAUSE).unwrap();
        let second = spawn(&limits, |limits| admit(limits, PAUSE + 50));
        // If it has not started yet, this one is the second.
        let mine = admit(&limits, 2 * PAUSE);
        let second = second.join().unwrap();
        assert!(mine.is_none() || second.is_none(), "three probes of two");
        drop((first, mine, second));
    });
}

/// A thread that was about to write the pause of an era comes too late: the present one stays as it is.
#[test]
fn loom_guard_a_late_helper_changes_no_pause() {
    model(|| {
        let limits = tripped(options());
        let probe = admit(&limits, PAUSE).unwrap();
        let helper = spawn(&limits, |limits| drop(admit(limits, PAUSE)));
        probe.finish(Classified::Failure, || PAUSE);
        admit(&limits, 2 * PAUSE).unwrap().finish(Classified::Failure, || 2 * PAUSE);
        helper.join().unwrap();
        assert!(admit(&limits, 3 * PAUSE - 1).is_none(), "the pause is shorter than it was");
        assert!(admit(&limits, 3 * PAUSE).is_some(), "the pause is longer than it was");
    });
}

/// New settings are seen by who is let through under them.
#[test]
fn loom_guard_new_settings_hold_for_the_calls_after_them() {
    model(|| {
        let limits = limits(LimitSettings::default());
        limits.breaker().force_open();
        let caller = spawn(&limits, |limits| {
            let Some(permit) = admit(limits, 0) else { return false };
            permit.finish(Classified::Failure, || 0);
            true
        });
        // The defaults are five failures and ten seconds.
        limits.breaker().configure(Some(options()));
        limits.breaker().release();
        if caller.join().unwrap() {
            assert_eq!(state(&limits), (BreakerState::Open, 1));
            let refused = limits.admit(Priority::Foreground, 0).unwrap_err();
            assert_eq!(refused.retry_after(), Some(Duration::from_millis(PAUSE)));
        }
    });
}

/// Never more than the burst at one moment, and no less.
#[test]
fn loom_guard_the_rate_admits_the_burst_at_one_moment() {
    model(|| {
        let rate = Rate::new(2, Duration::from_secs(1)).unwrap();
        let limits = limits(LimitSettings { rate: Some(rate), ..LimitSettings::default() });
        let threads = [0, 1].map(|_| spawn(&limits, |limits| admit(limits, 0).is_some()));
        let mine = admit(&limits, 0).is_some();
        let others = threads.map(|thread| thread.join().unwrap());
        assert_eq!(usize::from(mine) + others.map(usize::from).iter().sum::<usize>(), 2);
        let refused = limits.admit(Priority::Foreground, 0).unwrap_err();
        assert_eq!(refused, Refusal::Rate { retry_after: Duration::from_millis(500) });
        assert_eq!(limits.in_flight(), 0);
    });
}

/// A rate that is set while starts race: the bucket holds its burst, whole.
#[test]
fn loom_guard_a_new_rate_holds_for_the_starts_after_it() {
    model(|| {
        let limits = limits(LimitSettings::default());
        let starter = spawn(&limits, |limits| [0, 0].map(|now| admit(limits, now).is_some()));
        limits.set_rate(Some(Rate::new(1, Duration::from_secs(1)).unwrap()));
        let mine = [0, 0].map(|now| admit(&limits, now).is_some());
        assert!(!mine[1], "two starts after a rate of one was set");
        starter.join().unwrap();
        assert!(admit(&limits, 0).is_none());
    });
}

/// A start that clears the mark of a change goes by the new rate: no debt is longer than it allows.
#[test]
fn loom_guard_a_changed_rate_holds_for_the_starts_after_it() {
    model(|| {
        let slow = Rate::new(10, Duration::from_secs(100)).unwrap();
        let limits = limits(LimitSettings { rate: Some(slow), ..LimitSettings::default() });
        let starter = spawn(&limits, |limits| drop(admit(limits, 0)));
        limits.set_rate(Some(Rate::new(2, Duration::from_secs(2)).unwrap()));
        starter.join().unwrap();
        while admit(&limits, 0).is_some() {}
        let refused = limits.admit(Priority::Foreground, 0).unwrap_err();
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    });
}
