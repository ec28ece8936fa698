//! A thread stopped before any atomic operation of any guard keeps nobody from finishing.

use std::sync::mpsc::channel;

use crate::sync::stall;

use super::super::{BreakerState, Rate};
use super::Classified::{Failure, Success};
use super::*;

type Operation = fn(&Arc<Limits>, u64);

fn options() -> BreakerOptions {
    let options = BreakerOptions::new().consecutive_failures(2).open_for(millis(PAUSE));
    options.failure_rate(0.9, 4, 2).unwrap()
}

fn attempt(limits: &Arc<Limits>, result: Option<Classified>, now: u64) {
    if let Ok(permit) = limits.admit(Priority::Foreground, now) {
        match result {
            Some(result) => permit.finish(result, || now),
            None => drop(permit),
        }
    }
}

const OPERATIONS: [(&str, Operation); 8] = [
    ("failures that open it", |limits, now| {
        attempt(limits, Some(Failure), now);
        attempt(limits, Some(Failure), now);
    }),
    ("a call, or a probe, that succeeds", |limits, now| {
        attempt(limits, Some(Success), now + PAUSE);
    }),
    ("a probe that fails", |limits, now| attempt(limits, Some(Failure), now + PAUSE)),
    ("a call that is given up", |limits, now| attempt(limits, None, now + PAUSE)),
    ("a waiter", |limits, _| drop(limits.wait())),
    ("new settings", |limits, _| {
        limits.set_max_in_flight(3);
        limits.set_rate(Some(Rate::per_second(1e6).unwrap().burst(1_000)));
        limits.breaker().configure(Some(options()));
    }),
    ("orders", |limits, _| {
        limits.breaker().force_open();
        limits.breaker().release();
    }),
    ("a look", |limits, now| {
        let _ = limits.would_refuse(Priority::Background, now);
    }),
];

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn a_stalled_thread_stops_no_guard() {
    for (name, operation) in OPERATIONS {
        let mut stop = 0;
        while stalled_before(name, operation, stop) {
            stop += 1;
        }
        assert!(stop > 0, "{name} has no atomic operation");
    }
}

/// Returns false if the operation ended before it came to its `stop`-th atomic operation.
fn stalled_before(name: &str, operation: Operation, stop: usize) -> bool {
    let limits = limits(LimitSettings {
        max_in_flight: 3,
        max_waiters: 3,
        rate: Some(Rate::per_second(1e6).unwrap().burst(1_000)),
        breaker: Some(options()),
        ..LimitSettings::default()
    });
    // Half of the runs begin with an open breaker, whose pause is over for the probes.
    if stop % 2 == 0 {
        calls(&limits, 2, Failure, 0);
    }
    let (stopped, is_stopped) = channel();
    let (release, may_go) = channel();
    let stalled = {
        let limits = Arc::clone(&limits);
        thread::spawn(move || {
            stall::stop_at(stop, stopped, may_go);
            operation(&limits, 0);
            stall::disarm();
        })
    };
    let came_to_stop = is_stopped.recv().is_ok();
    for round in 1..3 {
        for (_, operation) in OPERATIONS {
            operation(&limits, round * 10 * PAUSE);
        }
    }
    // Whatever it holds, the breaker closes again: one probe has two more permits to choose from.
    call_until_closed(name, stop, &limits);
    drop(release);
    stalled.join().unwrap();
    assert_eq!((limits.in_flight(), limits.waiters()), (0, 0), "{name} stopped at {stop}");
    call_until_closed(name, stop, &limits);
    came_to_stop
}

fn call_until_closed(name: &str, stop: usize, limits: &Arc<Limits>) {
    for round in 50..60 {
        attempt(limits, Some(Success), round * 10 * PAUSE);
        if limits.breaker().state() == BreakerState::Closed {
            return;
        }
    }
    panic!("{name} stopped at {stop}: {:?}", limits.breaker());
}
