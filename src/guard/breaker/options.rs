//! When the breaker opens, and for how long.

use std::time::Duration;

use crate::error::ConfigError;
use crate::guard::{MILLION, millis_up};
use crate::sync::{AtomicU64, Relaxed};

use super::window::{self, Totals};
use super::word::{MOST_FAILURES, MOST_PROBES};

/// When a [`Breaker`](super::Breaker) opens, for how long, and how it tries again.
///
/// ```
/// use std::time::Duration;
/// use seawall::guard::BreakerOptions;
///
/// let options = BreakerOptions::new()
///     .consecutive_failures(5)
///     .failure_rate(0.5, 100, 20)?
///     .slow_call(Duration::from_secs(2), 0.8)?
///     .open_for(Duration::from_secs(5))
///     .probes(2);
/// # let _ = options;
/// # Ok::<(), seawall::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing by themselves"]
pub struct BreakerOptions(Rules);

impl BreakerOptions {
    /// Returns the defaults: open after five failures in a row, for ten seconds, then one probe.
    pub fn new() -> Self {
        BreakerOptions(Rules {
            consecutive: 5,
            failure_rate: 0,
            slow_rate: 0,
            slow: u64::MAX,
            half: 50,
            min_calls: 20,
            pause: 10_000,
            pause_jitter: 0,
            probes: 1,
        })
    }

    /// Opens at this many failures in a row, as they end; 5 by default, at most 65,535, 0 for never. A
    /// success in between starts the count anew.
    pub fn consecutive_failures(mut self, failures: u32) -> Self {
        self.0.consecutive = failures.min(MOST_FAILURES);
        self
    }

    /// Opens when at least this part of the last calls failed. The rate is taken over a window that
    /// moves on by halves, so over the last `window / 2` to `window` calls, once there are `min_calls`.
    /// A window has an even number of calls, up to 2,046. A rate of 0, the default, means never.
    ///
    /// # Errors
    /// [`ConfigError::Fraction`] unless `rate` is a number from 0 to 1; [`ConfigError::Order`] if
    /// `min_calls` is more than `window`.
    pub fn failure_rate(
        mut self,
        rate: f64,
        window: u32,
        min_calls: u32,
    ) -> Result<Self, ConfigError> {
        self.0.failure_rate = checked_parts("failure_rate", rate)?;
        if min_calls > window {
            return Err(ConfigError::Order("min_calls", "window"));
        }
        self.0.half = u64::from(window).div_ceil(2).clamp(1, window::MOST);
        self.0.min_calls = u64::from(min_calls).clamp(1, 2 * self.0.half);
        Ok(self)
    }

    /// Opens when at least this part of the last calls took so long or longer, failed or not. The
    /// window is that of [`failure_rate`](Self::failure_rate): 100 calls, of them at least 20, if that
    /// is not set. A probe that takes so long counts as failed. A rate of 0, the default, means never.
    ///
    /// # Errors
    /// [`ConfigError::Fraction`] unless `rate` is a number from 0 to 1.
    pub fn slow_call(mut self, slow: Duration, rate: f64) -> Result<Self, ConfigError> {
        self.0.slow_rate = checked_parts("slow_call", rate)?;
        self.0.slow = millis_up(slow);
        Ok(self)
    }

    /// How long it stays open; ten seconds by default. Counts in whole milliseconds, rounded up, and at
    /// least one. [`Duration::MAX`] means: until [`configure`](super::Breaker::configure) or an operator
    /// ends it.
    pub fn open_for(mut self, pause: Duration) -> Self {
        self.0.pause = millis_up(pause).max(1);
        self
    }

    /// Shortens each opening at random, uniformly by up to this part of it, so that many processes do
    /// not probe together. None by default.
    ///
    /// # Errors
    /// [`ConfigError::Fraction`] unless it is a number from 0 to 1.
    pub fn open_jitter(mut self, jitter: f64) -> Result<Self, ConfigError> {
        self.0.pause_jitter = checked_parts("open_jitter", jitter)?;
        Ok(self)
    }

    /// How many calls may try the origin when it was open long enough, and must all succeed to close
    /// it; 1 by default, at most 255, and at least 1.
    pub fn probes(mut self, probes: u32) -> Self {
        self.0.probes = probes.clamp(1, MOST_PROBES);
        self
    }

    pub(super) fn rules(&self) -> Rules {
        self.0
    }
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A fraction as parts of a million.
fn checked_parts(name: &'static str, fraction: f64) -> Result<u64, ConfigError> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(ConfigError::Fraction(name, fraction));
    }
    // Rounded down, so that three of ten do reach a rate of 0.3; but not to "never".
    let parts = (fraction * MILLION as f64) as u64;
    Ok(if fraction > 0.0 { parts.max(1) } else { 0 })
}

/// The settings, checked. Rates are parts of a million, times milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) consecutive: u32,
    failure_rate: u64,
    slow_rate: u64,
    slow: u64,
    pub(super) half: u64,
    min_calls: u64,
    pub(super) pause: u64,
    pub(super) pause_jitter: u64,
    pub(super) probes: u32,
}

impl Rules {
    pub(super) fn watches_rates(&self) -> bool {
        self.failure_rate > 0 || self.slow_rate > 0
    }

    pub(super) fn is_slow(&self, took: u64) -> bool {
        self.slow_rate > 0 && took >= self.slow
    }

    /// Whether a rate is reached.
    pub(super) fn is_reached(&self, totals: Totals) -> bool {
        let reached = |rate: u64, calls: u64| rate > 0 && calls * MILLION >= rate * totals.calls;
        totals.calls >= self.min_calls
            && (reached(self.failure_rate, totals.failed) || reached(self.slow_rate, totals.slow))
    }
}

/// The settings in force. Each is one word: of two changes at once, each setting is of one of them.
#[derive(Debug)]
pub(super) struct Settings {
    consecutive: AtomicU64,
    failure_rate: AtomicU64,
    slow_rate: AtomicU64,
    slow: AtomicU64,
    /// Half of the window in the upper half, calls needed in the lower: they must fit.
    window: AtomicU64,
    pause: AtomicU64,
    pause_jitter: AtomicU64,
    probes: AtomicU64,
}

impl Settings {
    pub(super) fn new(rules: &Rules) -> Self {
        Settings {
            consecutive: AtomicU64::new(u64::from(rules.consecutive)),
            failure_rate: AtomicU64::new(rules.failure_rate),
            slow_rate: AtomicU64::new(rules.slow_rate),
            slow: AtomicU64::new(rules.slow),
            window: AtomicU64::new(rules.half << 32 | rules.min_calls),
            pause: AtomicU64::new(rules.pause),
            pause_jitter: AtomicU64::new(rules.pause_jitter),
            probes: AtomicU64::new(u64::from(rules.probes)),
        }
    }

    /// The caller then changes the breaker's word, which publishes this (G3).
    pub(super) fn store(&self, rules: &Rules) {
        self.consecutive.store(u64::from(rules.consecutive), Relaxed);
        self.failure_rate.store(rules.failure_rate, Relaxed);
        self.slow_rate.store(rules.slow_rate, Relaxed);
        self.slow.store(rules.slow, Relaxed);
        self.window.store(rules.half << 32 | rules.min_calls, Relaxed);
        self.pause.store(rules.pause, Relaxed);
        self.pause_jitter.store(rules.pause_jitter, Relaxed);
        self.probes.store(u64::from(rules.probes), Relaxed);
    }

    pub(super) fn load(&self) -> Rules {
        let window = self.window.load(Relaxed);
        Rules {
            consecutive: self.consecutive.load(Relaxed) as u32,
            failure_rate: self.failure_rate.load(Relaxed),
            slow_rate: self.slow_rate.load(Relaxed),
            slow: self.slow.load(Relaxed),
            half: window >> 32,
            min_calls: window & u64::from(u32::MAX),
            pause: self.pause.load(Relaxed),
            pause_jitter: self.pause_jitter.load(Relaxed),
            probes: self.probes.load(Relaxed) as u32,
        }
    }

    pub(super) fn pause(&self) -> u64 {
        self.pause.load(Relaxed)
    }

    pub(super) fn probes(&self) -> u32 {
        self.probes.load(Relaxed) as u32
    }

    pub(super) fn consecutive(&self) -> u32 {
        self.consecutive.load(Relaxed) as u32
    }
}
