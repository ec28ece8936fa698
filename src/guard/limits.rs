//! All guards of one origin, adjustable while they work.
//!
//! All of it is atomics: a thread stopped anywhere keeps no other from being admitted or refused. Times
//! are milliseconds of the cache's clock; where that steps back, no time has passed.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | G1 | a limit is changed: the change count of its pool's word is raised | the word is loaded | the new limit and share |
//! | G2 | a permit is given back | it is taken | what its call told the breaker before |
//! | G3 | the breaker's word is changed | it is loaded | its settings; the extended pause of a half-open era |
//! | G4 | a rate is set: the word of its bucket is replaced or marked | it is loaded | the new rate |
//! | G5 | a word of the breaker that carries an era is written | it is loaded | that the breaker's word has come to that era |
//! | G6 | a permit or a token is taken, or a probe's pause begins, after the load has claimed its key | `look` finds none left | the claim |

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ConfigError;
use crate::sync::{AtomicBool, AtomicU64, Relaxed, Stripe};

use super::attempt::{Attempt, Backoff, BackoffSettings};
use super::breaker::{Breaker, BreakerOptions, Pass};
use super::counts::{Counters, GuardCounts};
use super::millis_up;
use super::permit::{Admission, Classified, Permit, Place};
use super::pool::{Full, Pool, Taken};
use super::rate::{Bucket, Rate};
use super::refusal::{Priority, Refusal};

/// What the guards start with. 0 and `None` mean: no limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LimitSettings {
    pub(crate) max_in_flight: u64,
    pub(crate) background_share: f64,
    pub(crate) max_waiters: u64,
    pub(crate) min_retry_interval: Duration,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) rate: Option<Rate>,
    pub(crate) breaker: Option<BreakerOptions>,
    pub(crate) observe_only: bool,
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings {
            max_in_flight: 0,
            background_share: 0.5,
            max_waiters: 0,
            min_retry_interval: Duration::ZERO,
            backoff: None,
            rate: None,
            breaker: None,
            observe_only: false,
        }
    }
}

impl LimitSettings {
    /// The other settings are checked where they are made.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check_share(self.background_share)
    }
}

fn check_share(share: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&share) {
        Ok(())
    } else {
        Err(ConfigError::Fraction("background_share", share))
    }
}

/// The limits in front of an origin. They can be read and changed at any time, by any thread; a change
/// takes effect at once, and never blocks or ends what runs already.
///
/// 0 means no limit, for all of them. A change to several settings is not one step.
#[derive(Debug)]
pub struct Limits {
    permits: Pool,
    places: Pool,
    rate: Bucket,
    breaker: Breaker,
    min_retry_interval: AtomicU64,
    backoff: BackoffSettings,
    observe_only: AtomicBool,
    counters: Counters,
}

/// Settings and gauges.
impl Limits {
    pub(crate) fn new(settings: &LimitSettings) -> Limits {
        Self::counted_by(settings, || Stripe::SHARED)
    }

    /// Counts by thread: `stripe` is the calling thread's. Without it, all threads share one line.
    pub(crate) fn counted_by(settings: &LimitSettings, stripe: fn() -> Stripe) -> Limits {
        Limits {
            permits: Pool::new(settings.max_in_flight, settings.background_share, stripe),
            places: Pool::new(settings.max_waiters, 1.0, stripe),
            rate: Bucket::new(settings.rate),
            breaker: Breaker::new(settings.breaker),
            min_retry_interval: AtomicU64::new(millis_up(settings.min_retry_interval)),
            backoff: BackoffSettings::new(settings.backoff),
            observe_only: AtomicBool::new(settings.observe_only),
            counters: Counters::new(stripe),
        }
    }

    /// Returns how many loads may run at once. 0: no limit.
    pub fn max_in_flight(&self) -> u64 {
        self.permits.limit()
    }

    /// Sets how many loads may run at once; 0 for no limit. If more are running, they go on, and none
    /// starts until fewer are.
    pub fn set_max_in_flight(&self, loads: u64) {
        self.permits.set_limit(loads);
    }

    /// Returns how many callers may wait for loads of others. 0: no limit.
    pub fn max_waiters(&self) -> u64 {
        self.places.limit()
    }

    /// Sets how many callers may wait for loads of others, in all; 0 for no limit.
    pub fn set_max_waiters(&self, waiters: u64) {
        self.places.set_limit(waiters);
    }

    /// Returns the share of [`max_in_flight`](Self::max_in_flight) that background loads may use.
    pub fn background_share(&self) -> f64 {
        self.permits.share()
    }

    /// Sets the share of [`max_in_flight`](Self::max_in_flight) that background loads (refreshes,
    /// warm-up) may use. A share above 0 is good for one load at least; 0 for no background loads.
    /// Without a limit on loads it has no effect.
    ///
    /// # Errors
    /// [`ConfigError::Fraction`] unless it is a number from 0 to 1.
    pub fn set_background_share(&self, share: f64) -> Result<(), ConfigError> {
        check_share(share)?;
        self.permits.set_share(share);
        Ok(())
    }

    /// Returns the time from one attempt to load a key to the next. Zero: no limit.
    pub fn min_retry_interval(&self) -> Duration {
        Duration::from_millis(self.min_retry_interval.load(Relaxed))
    }

    /// Sets the least time from the start of one attempt to load a key to the start of the next, whatever
    /// came of the first; zero for none. Counts in whole milliseconds, rounded up.
    pub fn set_min_retry_interval(&self, interval: Duration) {
        self.min_retry_interval.store(millis_up(interval), Relaxed);
    }

    /// Returns the pause after failures. `None`: none.
    pub fn backoff(&self) -> Option<Backoff> {
        self.backoff.load()
    }

    /// Sets the pause after failures of a key; `None` for none. Pauses that are running are cut to the
    /// new limit.
    pub fn set_backoff(&self, backoff: Option<Backoff>) {
        self.backoff.store(backoff);
    }

    /// Returns how many loads may start in a time. `None`: no limit.
    pub fn rate(&self) -> Option<Rate> {
        self.rate.rate()
    }

    /// Sets how many loads may start in a time; `None` for no limit. A first rate starts with a full
    /// bucket; a change keeps what was taken, up to what the new bucket holds.
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.rate.set_rate(rate);
    }

    /// Returns the breaker.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// With `true`, nothing is refused any more: what would have been is counted in
    /// [`GuardCounts::observed`]. To try limits out before they bite.
    pub fn set_observe_only(&self, on: bool) {
        self.observe_only.store(on, Relaxed);
    }

    /// Returns whether nothing is refused, only counted.
    pub fn is_observe_only(&self) -> bool {
        self.observe_only.load(Relaxed)
    }

    /// Returns how many loads are running.
    pub fn in_flight(&self) -> u64 {
        self.permits.in_use()
    }

    /// Returns how many callers are waiting for loads of others.
    pub fn waiters(&self) -> u64 {
        self.places.in_use()
    }

    /// Returns what was admitted and refused so far.
    pub fn counts(&self) -> GuardCounts {
        self.counters.snapshot()
    }
}

/// The decisions.
impl Limits {
    /// Lets a load start, or says why not: breaker, rate, permit. The permit is given back by drop.
    pub(crate) fn admit(self: &Arc<Self>, priority: Priority, now: u64) -> Result<Permit, Refusal> {
        self.admission(priority, now).map(|admission| Permit::new(Arc::clone(self), admission))
    }

    /// As [`admit`](Self::admit), for who makes a permit of it later.
    pub(crate) fn admission(&self, priority: Priority, now: u64) -> Result<Admission, Refusal> {
        let (pass, taken) = match self.enter(priority, now) {
            Ok(entered) => entered,
            Err(refusal) => {
                self.refuse_or_observe(refusal)?;
                // The breaker would not have seen this call.
                (Pass::UNWATCHED, self.permits.take_regardless(priority))
            }
        };
        self.counters.admitted(priority);
        Ok(Admission::new(taken, now, pass))
    }

    fn enter(&self, priority: Priority, now: u64) -> Result<(Pass, Taken), Refusal> {
        loop {
            let pass = self.breaker.enter(now).map_err(breaker_open)?;
            match self.enter_behind_breaker(pass, priority, now) {
                Ok(Some(taken)) => return Ok((pass, taken)),
                // The breaker has changed meanwhile: ask it again.
                Ok(None) => {}
                Err(refusal) => {
                    self.breaker.leave(pass);
                    return Err(refusal);
                }
            }
        }
    }

    /// Returns `None`, having taken nothing, if the pass is out of date.
    fn enter_behind_breaker(
        &self,
        pass: Pass,
        priority: Priority,
        now: u64,
    ) -> Result<Option<Taken>, Refusal> {
        // The token is taken last, so that it need not be given back.
        self.rate.look(now).map_err(rate)?;
        let taken = self.permits.take(priority).map_err(in_flight)?;
        // This permit may be that of a call whose failure has just opened the breaker.
        if !self.breaker.is_current(pass) {
            self.permits.give_back(taken);
            return Ok(None);
        }
        if let Err(left) = self.rate.take(now) {
            self.permits.give_back(taken);
            return Err(rate(left));
        }
        Ok(Some(taken))
    }

    /// Looks whether a load would be refused now; takes nothing, and counts nothing: a caller that refuses
    /// for it calls [`refused`](Self::refused). In observe-only mode there is no refusal.
    pub(crate) fn would_refuse(&self, priority: Priority, now: u64) -> Option<Refusal> {
        if self.is_observe_only() { None } else { self.look(priority, now).err() }
    }

    /// Counts a refusal.
    pub(crate) fn refused(&self, refusal: Refusal) -> Refusal {
        self.counters.refused(refusal)
    }

    fn look(&self, priority: Priority, now: u64) -> Result<(), Refusal> {
        self.breaker.look(now).map_err(breaker_open)?;
        self.rate.look(now).map_err(rate)?;
        self.permits.look(priority).map_err(in_flight)
    }

    /// Takes a place among the waiters of all flights. It is given back by drop.
    pub(crate) fn wait(self: &Arc<Self>) -> Result<Place, Refusal> {
        Self::place(Arc::clone(self))
    }

    /// As [`wait`](Self::wait), of limits that are borrowed or owned.
    pub(crate) fn place<L: Deref<Target = Limits>>(limits: L) -> Result<Place<L>, Refusal> {
        let taken = match limits.places.take(Priority::Foreground) {
            Ok(taken) => taken,
            Err(Full::All(limit) | Full::Background(limit)) => {
                limits.refuse_or_observe(Refusal::Waiters { limit })?;
                limits.places.take_regardless(Priority::Foreground)
            }
        };
        limits.counters.waiter_admitted();
        Ok(Place::new(limits, taken))
    }

    /// Returns the time left if it is too early for another attempt. Only looks, so that serving a stale
    /// value writes nothing: a caller that refuses for it calls [`throttled`](Self::throttled). In
    /// observe-only mode it is never too early, and what would have been is counted.
    pub(crate) fn throttle(&self, attempt: Attempt, now: u64) -> Option<Duration> {
        let left = self.pause_after(attempt, now);
        if left == 0 {
            return None;
        }
        let left = Duration::from_millis(left);
        if self.is_observe_only() {
            self.counters.observed(Refusal::Throttled { retry_after: left });
            return None;
        }
        Some(left)
    }

    /// Returns the milliseconds left until the next attempt may be made. Counts nothing in any mode.
    pub(crate) fn pause_after(&self, attempt: Attempt, now: u64) -> u64 {
        let interval = self.min_retry_interval.load(Relaxed);
        let elapsed = now.saturating_sub(attempt.started);
        let pause = match self.backoff.load() {
            Some(backoff) => attempt.not_before.saturating_sub(now).min(backoff.max),
            None => 0,
        };
        interval.saturating_sub(elapsed).max(pause)
    }

    /// Counts and returns a refusal for what [`throttle`](Self::throttle) has said.
    pub(crate) fn throttled(&self, left: Duration) -> Refusal {
        self.counters.refused(Refusal::Throttled { retry_after: left })
    }

    /// The record of an attempt that failed: the pause after it is drawn here, once.
    pub(crate) fn after_failure(
        &self,
        previous: Option<Attempt>,
        started: u64,
        now: u64,
    ) -> Attempt {
        let failures = previous.map_or(0, |previous| previous.failures).saturating_add(1);
        let not_before = match self.backoff.load() {
            Some(backoff) => now.saturating_add(backoff.delay(failures, rand::random())),
            None => 0,
        };
        Attempt { started, failures, not_before }
    }

    fn refuse_or_observe(&self, refusal: Refusal) -> Result<(), Refusal> {
        if self.is_observe_only() {
            self.counters.observed(refusal);
            return Ok(());
        }
        Err(self.counters.refused(refusal))
    }
}

/// What permits and places do when they end.
impl Limits {
    pub(super) fn ended(&self, pass: Pass, result: Classified, took: u64, now: u64) {
        if result == Classified::Failure {
            self.counters.failed();
        }
        self.breaker.ended(pass, result, took, now);
    }

    pub(super) fn cancelled(&self, pass: Pass) {
        self.counters.cancelled();
        self.breaker.leave(pass);
    }

    pub(super) fn give_permit_back(&self, permit: Taken) {
        self.permits.give_back(permit);
    }

    pub(super) fn give_place_back(&self, place: Taken) {
        self.places.give_back(place);
    }
}

fn breaker_open(left: u64) -> Refusal {
    Refusal::BreakerOpen { retry_after: Duration::from_millis(left) }
}

fn rate(left: u64) -> Refusal {
    Refusal::Rate { retry_after: Duration::from_millis(left) }
}

fn in_flight(full: Full) -> Refusal {
    match full {
        Full::All(limit) => Refusal::InFlight { limit },
        Full::Background(limit) => Refusal::BackgroundShare { limit },
    }
}
