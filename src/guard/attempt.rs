//! When a key may be tried again.

use std::time::Duration;

use crate::error::ConfigError;
use crate::sync::{AtomicU64, Relaxed};

use super::millis_up;

/// The last attempt to load a key, the running one included. Plain data that the entry keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// When it began.
    pub(crate) started: u64,
    /// How many attempts up to this one failed in a row.
    pub(crate) failures: u32,
    /// Nothing before this moment; 0 if it did not fail.
    pub(crate) not_before: u64,
}

impl Attempt {
    /// An attempt that begins, or that began and succeeded if there is no `previous` one.
    pub(crate) fn begin(previous: Option<Attempt>, started: u64) -> Attempt {
        let failures = previous.map_or(0, |previous| previous.failures);
        Attempt { started, failures, not_before: 0 }
    }
}

/// The pause after failures in a row: exponential, with jitter.
///
/// After the first failure the pause is `first`; each further one multiplies it by the
/// [factor](Self::factor), up to `max`. [Jitter](Self::jitter) takes away up to a fraction of it, drawn
/// once for each failure, so that callers who failed together do not come back together.
///
/// ```
/// use std::time::Duration;
/// use seawall::guard::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30))?.jitter(1.0)?;
/// assert_eq!(backoff.longest_after(1), Duration::from_millis(100));
/// assert_eq!(backoff.longest_after(4), Duration::from_millis(800));
/// assert_eq!(backoff.longest_after(1_000), Duration::from_secs(30));
/// # Ok::<(), seawall::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a setting does nothing by itself"]
pub struct Backoff {
    /// In milliseconds, above zero.
    pub(super) first: u64,
    pub(super) max: u64,
    pub(super) factor: f64,
    pub(super) jitter: f64,
}

impl Backoff {
    /// Returns a backoff that doubles, with a jitter of one half ("equal jitter"). Durations count in
    /// whole milliseconds, rounded up.
    ///
    /// # Errors
    /// [`ConfigError::TooShort`] if `first` is zero; [`ConfigError::Order`] if it is longer than `max`.
    pub fn new(first: Duration, max: Duration) -> Result<Self, ConfigError> {
        if first.is_zero() {
            return Err(ConfigError::TooShort("backoff"));
        }
        if first > max {
            return Err(ConfigError::Order("first backoff", "longest backoff"));
        }
        Ok(Backoff { first: millis_up(first), max: millis_up(max), factor: 2.0, jitter: 0.5 })
    }

    /// By how much each further failure multiplies the pause; 2 by default.
    ///
    /// # Errors
    /// [`ConfigError::Number`] unless it is a finite number of at least 1.
    pub fn factor(mut self, factor: f64) -> Result<Self, ConfigError> {
        if !(factor.is_finite() && factor >= 1.0) {
            return Err(ConfigError::Number("backoff factor", factor));
        }
        self.factor = factor;
        Ok(self)
    }

    /// Which part of the pause is random: the pause is drawn uniformly from `1 - jitter` times its full
    /// length to its full length. 0 is none, 1 "full jitter" (the pause may be zero), 0.5 is the default.
    ///
    /// # Errors
    /// [`ConfigError::Fraction`] unless it is a number from 0 to 1.
    pub fn jitter(mut self, jitter: f64) -> Result<Self, ConfigError> {
        if !(0.0..=1.0).contains(&jitter) {
            return Err(ConfigError::Fraction("backoff jitter", jitter));
        }
        self.jitter = jitter;
        Ok(self)
    }

    /// Returns the pause after this many failures in a row, before jitter. Zero after none.
    pub fn longest_after(&self, failures: u32) -> Duration {
        Duration::from_millis(self.delay(failures, 0.0))
    }

    /// The pause in milliseconds, for a number drawn from 0 to 1.
    pub(super) fn delay(&self, failures: u32, draw: f64) -> u64 {
        let Some(times) = failures.checked_sub(1) else { return 0 };
        let times = i32::try_from(times).unwrap_or(i32::MAX);
        // Rounded, as powers of floating-point numbers are not exact. One that is too large for them is
        // above `max`.
        let full = self.first as f64 * self.factor.powi(times);
        let full = if full < self.max as f64 { full.round() as u64 } else { self.max };
        let full = full.clamp(self.first, self.max);
        full - ((full as f64 * self.jitter * draw) as u64).min(full)
    }
}

/// The pauses after failures, each setting in a word; `first` of 0 means none.
#[derive(Debug)]
pub(super) struct BackoffSettings {
    first: AtomicU64,
    max: AtomicU64,
    factor: AtomicU64,
    jitter: AtomicU64,
}

impl BackoffSettings {
    pub(super) fn new(backoff: Option<Backoff>) -> Self {
        let word = || AtomicU64::new(0);
        let settings =
            BackoffSettings { first: word(), max: word(), factor: word(), jitter: word() };
        settings.store(backoff);
        settings
    }

    // Relaxed throughout: a pause drawn while the settings change may mix them, and stays within the
    // longer of the two limits.
    pub(super) fn store(&self, backoff: Option<Backoff>) {
        if let Some(backoff) = backoff {
            self.max.store(backoff.max, Relaxed);
            self.factor.store(backoff.factor.to_bits(), Relaxed);
            self.jitter.store(backoff.jitter.to_bits(), Relaxed);
        }
        self.first.store(backoff.map_or(0, |backoff| backoff.first), Relaxed);
    }

    pub(super) fn load(&self) -> Option<Backoff> {
        let first = self.first.load(Relaxed);
        (first > 0).then(|| Backoff {
            first,
            max: self.max.load(Relaxed).max(first),
            factor: f64::from_bits(self.factor.load(Relaxed)).max(1.0),
            jitter: f64::from_bits(self.jitter.load(Relaxed)),
        })
    }
}
