//! Tests of the guards by themselves; names of failure cases begin with the case's id.

mod breaker;
mod limits;
mod rate;
mod stalled;
mod throttle;
mod unlimited;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use super::{BreakerOptions, Classified, LimitSettings, Limits, Permit, Priority, Refusal};

/// How often a race is repeated.
const ROUNDS: u32 = if cfg!(miri) { 5 } else { 1_000 };

/// The pause of the breakers here, in milliseconds.
const PAUSE: u64 = 10_000;

fn limits(settings: LimitSettings) -> Arc<Limits> {
    settings.check().unwrap();
    Arc::new(Limits::new(&settings))
}

fn unlimited() -> Arc<Limits> {
    limits(LimitSettings::default())
}

/// With a breaker and nothing else.
fn with_breaker(options: BreakerOptions) -> Arc<Limits> {
    let options = options.open_for(millis(PAUSE));
    limits(LimitSettings { breaker: Some(options), ..LimitSettings::default() })
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn start(limits: &Arc<Limits>, now: u64) -> Permit {
    limits.admit(Priority::Foreground, now).unwrap()
}

fn refusal(limits: &Arc<Limits>, now: u64) -> Refusal {
    limits.admit(Priority::Foreground, now).expect_err("it should be refused")
}

/// One call that starts and ends at a moment.
fn call(limits: &Arc<Limits>, result: Classified, now: u64) {
    start(limits, now).finish(result, || now);
}

fn calls(limits: &Arc<Limits>, number: u32, result: Classified, now: u64) {
    for _ in 0..number {
        call(limits, result, now);
    }
}

/// Runs something in several threads that are let go together; returns what they returned.
fn together<T: Send>(threads: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let run = |index| {
            let (barrier, body) = (&barrier, &body);
            scope.spawn(move || {
                barrier.wait();
                body(index)
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
