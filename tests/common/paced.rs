//! What tests of refreshes and guards share: a cache whose refreshes run in the background and pass a
//! gate, executors that a test holds back, and a clock that it moves.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use seawall::{
    BoxFuture, Builder, Cache, Clock, InsertOptions, Load, LoadError, ManualClock, Spawn,
};

use crate::common::loads::{Form, Gate, until};
use crate::common::lock;

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A thread for each future.
pub(crate) fn on_threads() -> impl Spawn + 'static {
    |future: BoxFuture| drop(thread::spawn(|| block_on(future)))
}

/// An executor that keeps what it is given until the test runs it.
#[derive(Clone, Default)]
pub(crate) struct Paused(Arc<Mutex<Vec<BoxFuture>>>);

impl Paused {
    pub(crate) fn spawner(&self) -> impl Spawn + 'static {
        let this = self.clone();
        move |future: BoxFuture| lock(&this.0).push(future)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Runs all it was given, to their ends.
    pub(crate) fn run(&self) {
        let all = std::mem::take(&mut *lock(&self.0));
        all.into_iter().for_each(block_on);
    }

    /// Drops all it was given.
    pub(crate) fn discard(&self) {
        drop(std::mem::take(&mut *lock(&self.0)));
    }
}

/// Forms of callers whose refreshes can run in the background.
pub(crate) const FORMS: [Form; 2] = [Form::Blocking, Form::Shared];

/// Ten seconds fresh, then stale for a minute, on a clock that the test moves.
pub(crate) fn stale_for_a_minute() -> (Builder<u64, u64>, ManualClock) {
    let (clock, hand) = Clock::manual();
    let builder = Cache::builder()
        .max_entries(100)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(60))
        .clock(clock);
    (builder, hand)
}

/// As [`stale_for_a_minute`], but the stale value only stands in for errors.
pub(crate) fn good_for_errors() -> (Builder<u64, u64>, ManualClock) {
    let (clock, hand) = Clock::manual();
    let builder = Cache::builder()
        .max_entries(100)
        .time_to_live(secs(10))
        .stale_if_error(secs(60))
        .clock(clock);
    (builder, hand)
}

/// What a loader of these tests says.
pub(crate) type Said = Result<Load<u64>, &'static str>;

/// A cache that refreshes in the background with loaders that pass a gate. Key 1 is in it, 1, tagged
/// "t", and just stale.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) cache: Cache<u64, u64>,
    pub(crate) hand: ManualClock,
    pub(crate) gate: Gate<Said>,
    pub(crate) form: Form,
}

impl Background {
    pub(crate) fn new(form: Form) -> Self {
        Self::with(form, |builder| builder)
    }

    pub(crate) fn with(
        form: Form,
        more: impl FnOnce(Builder<u64, u64>) -> Builder<u64, u64>,
    ) -> Self {
        let (builder, hand) = stale_for_a_minute();
        let gate: Gate<Said> = Gate::new();
        let builder = match form {
            Form::Blocking => {
                let gate = gate.clone();
                builder.refresh_with(move |_| gate.pass())
            }
            _ => builder.spawner(on_threads()),
        };
        let cache = more(builder).build().unwrap();
        cache.insert_with(1, 1, InsertOptions::new().tag("t")).unwrap();
        hand.advance(secs(10));
        Background { cache, hand, gate, form }
    }

    /// In the middle of a refresh, whose loader is in front of the gate.
    pub(crate) fn refreshing(form: Form) -> Self {
        let it = Self::new(form);
        assert_eq!(it.ask(), Ok(1));
        it.gate.until_entered(1);
        it
    }

    /// Asks for the key; its loader passes the gate.
    pub(crate) fn ask(&self) -> Result<u64, LoadError<&'static str>> {
        self.form.call(&self.cache, &1, &self.gate)
    }

    pub(crate) fn until_rest(&self) {
        until(|| self.cache.load_stats().in_flight == 0);
    }
}

/// A loader that may not be called.
pub(crate) fn never() -> Result<u64, Infallible> {
    panic!("the origin is asked")
}
