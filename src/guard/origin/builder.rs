//! Settings of a guard that stands alone.

use std::fmt;
use std::time::Duration;

use super::{IsEmpty, OriginGuard};
use crate::clock::{Clock, millis};
use crate::error::ConfigError;
use crate::guard::limits::LimitSettings;
use crate::guard::{Backoff, BreakerOptions, Rate};

/// Makes an [`OriginGuard`] from settings; [`build`](Self::build) checks them. Limits of 0 mean: no limit.
/// All but the clock and the hasher can be changed later, see [`OriginGuard::limits`].
#[must_use = "a builder does nothing before `build`"]
pub struct OriginGuardBuilder<K, S = ahash::RandomState> {
    limits: LimitSettings,
    clock: Option<Clock>,
    is_empty: Box<IsEmpty<K>>,
    hasher: S,
}

impl<K, S> fmt::Debug for OriginGuardBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginGuardBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<K> OriginGuardBuilder<K> {
    pub(super) fn new(is_empty: Box<IsEmpty<K>>) -> Self {
        let hasher = ahash::RandomState::new();
        OriginGuardBuilder { limits: LimitSettings::default(), clock: None, is_empty, hasher }
    }
}

impl<K, S> OriginGuardBuilder<K, S> {
    /// Limits the keys that have a lead at the same time. Beyond it a caller is refused at once.
    pub fn max_in_flight(mut self, leads: u64) -> Self {
        self.limits.max_in_flight = leads;
        self
    }

    /// Limits the followers of all keys together. Beyond it a caller is refused at once.
    pub fn max_waiters(mut self, waiters: u64) -> Self {
        self.limits.max_waiters = waiters;
        self
    }

    /// The least time from one lead of a key to the next, whether it succeeds or fails. Within it a caller
    /// is refused ([`Refusal::Throttled`](crate::guard::Refusal::Throttled)).
    pub fn min_retry_interval(mut self, interval: Duration) -> Self {
        self.limits.min_retry_interval = interval;
        self
    }

    /// How long a key is left alone after it has failed.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.limits.backoff = Some(backoff);
        self
    }

    /// Limits how many leads are begun in a time.
    pub fn rate_limit(mut self, rate: Rate) -> Self {
        self.limits.rate = Some(rate);
        self
    }

    /// Leaves a sick origin alone but for a few probes.
    pub fn breaker(mut self, breaker: BreakerOptions) -> Self {
        self.limits.breaker = Some(breaker);
        self
    }

    /// Counts what would be refused, and refuses nothing. A key has one lead all the same.
    pub fn observe_only(mut self, observe: bool) -> Self {
        self.limits.observe_only = observe;
        self
    }

    /// Where the guard takes its time from; [`Clock::system`] by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How keys are hashed. With a hasher that can be made to collide, calls take as long as there are keys
    /// of one hash.
    pub fn hasher<H>(self, hasher: H) -> OriginGuardBuilder<K, H> {
        let OriginGuardBuilder { limits, clock, is_empty, .. } = self;
        OriginGuardBuilder { limits, clock, is_empty, hasher }
    }

    /// Makes the guard.
    ///
    /// # Errors
    /// [`ConfigError::TooShort`] if `min_retry_interval` is above zero and below one millisecond.
    pub fn build(self) -> Result<OriginGuard<K, S>, ConfigError> {
        let interval = self.limits.min_retry_interval;
        if !interval.is_zero() && millis(interval) == 0 {
            return Err(ConfigError::TooShort("min_retry_interval"));
        }
        self.limits.check()?;
        let clock = self.clock.unwrap_or_default();
        Ok(OriginGuard::new(&self.limits, clock, self.is_empty, self.hasher))
    }
}
