//! Starts per second: the generic cell rate algorithm, a token bucket in one word.
//!
//! The word is the moment at which the bucket is full again, in units of 2^-20 milliseconds, modulo
//! 2^64 (so differences count, not values). A start moves it on by the time that one token takes to come
//! back; a start that would move it further ahead of the clock than the whole bucket is refused, and
//! writes nothing. Its lowest bit marks that the rate was changed since: a debt made under a slower rate
//! is then cut to what the new bucket can owe.

use std::time::Duration;

use crate::error::ConfigError;
use crate::sync::{Acquire, AtomicU64, Padded, Relaxed, Release};

/// Units in a millisecond, as a shift.
const UNITS: u32 = 20;

/// The longest time that the word may run ahead of the clock.
const FARTHEST: u64 = 1 << 62;

/// A bucket that nobody has taken from. Also what is left of it when marked.
const FULL: u64 = 0;
const MARK: u64 = 1;

/// How many loads may start in a time: a token bucket.
///
/// A start takes a token; tokens come back one by one, evenly. The bucket holds [`burst`](Self::burst)
/// of them, and is full at first. As the cache's clock counts in milliseconds, a burst of less than the
/// starts of one millisecond limits the rate more than its interval does.
///
/// ```
/// use std::time::Duration;
/// use seawall::guard::Rate;
///
/// // Five hundred a second, but no more than 20 at once.
/// let rate = Rate::per_second(500.0)?.burst(20);
/// assert_eq!(rate.interval(), Duration::from_millis(2));
/// assert_eq!(Rate::new(1, Duration::from_secs(60))?.interval(), Duration::from_secs(60));
/// # Ok::<(), seawall::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a setting does nothing by itself"]
pub struct Rate {
    /// Units from one token to the next; even, above zero.
    interval: u64,
    burst: u64,
}

impl Rate {
    /// Returns a rate of so many starts per second, in bursts of up to a second's worth (at least one).
    ///
    /// # Errors
    /// [`ConfigError::Number`] unless it is a finite number above zero.
    pub fn per_second(starts: f64) -> Result<Self, ConfigError> {
        if !(starts.is_finite() && starts > 0.0) {
            return Err(ConfigError::Number("rate", starts));
        }
        let units = (1_000_u64 << UNITS) as f64 / starts;
        Ok(Rate { interval: even(units.ceil() as u64), burst: (starts as u64).max(1) })
    }

    /// Returns a rate of so many starts in a duration, in bursts of up to all of them.
    ///
    /// # Errors
    /// [`ConfigError::Number`] if `starts` is zero, [`ConfigError::TooShort`] if `per` is.
    pub fn new(starts: u64, per: Duration) -> Result<Self, ConfigError> {
        if starts == 0 {
            return Err(ConfigError::Number("rate", 0.0));
        }
        if per.is_zero() {
            return Err(ConfigError::TooShort("rate"));
        }
        let nanos = per.as_nanos().min(u128::from(u64::MAX)) << UNITS;
        let units = nanos.div_ceil(u128::from(starts) * 1_000_000);
        Ok(Rate { interval: even(u64::try_from(units).unwrap_or(u64::MAX)), burst: starts })
    }

    /// How many starts may come at once after a pause. At least 1 counts.
    pub fn burst(mut self, burst: u64) -> Self {
        self.burst = burst.max(1);
        self
    }

    /// Returns the time from one token to the next.
    pub fn interval(&self) -> Duration {
        let nanos = (u128::from(self.interval) * 1_000_000) >> UNITS;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns how many starts may come at once.
    pub fn burst_size(&self) -> u64 {
        self.burst
    }

    /// How far the word may run ahead of the clock.
    fn depth(&self) -> u64 {
        self.interval.saturating_mul(self.burst).min(FARTHEST)
    }
}

/// Rounds up to what the word can hold next to its mark.
fn even(units: u64) -> u64 {
    units.min(FARTHEST - 1).next_multiple_of(2).max(2)
}

/// The bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    word: Padded<AtomicU64>,
    /// 0: no limit.
    interval: AtomicU64,
    burst: AtomicU64,
}

/// What the bucket says to one more start.
enum Verdict {
    /// The word if it goes ahead.
    Start(u64),
    /// Milliseconds to wait, and the word without its mark.
    Refuse(u64, u64),
}

impl Bucket {
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Bucket {
            word: Padded(AtomicU64::new(FULL)),
            interval: AtomicU64::new(rate.map_or(0, |rate| rate.interval)),
            burst: AtomicU64::new(rate.map_or(0, |rate| rate.burst)),
        }
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        match self.interval.load(Relaxed) {
            0 => None,
            interval => Some(Rate { interval, burst: self.burst.load(Relaxed).max(1) }),
        }
    }

    pub(super) fn set_rate(&self, rate: Option<Rate>) {
        if let Some(rate) = rate {
            self.burst.store(rate.burst, Relaxed);
        }
        let interval = rate.map_or(0, |rate| rate.interval);
        let was = self.interval.swap(interval, Relaxed);
        if was == 0 {
            // ORDERING (G4): Release; who loads this word, or one made from it, sees the new rate.
            self.word.swap(FULL, Release);
        } else {
            // ORDERING (G4): Release, as above.
            self.word.fetch_or(MARK, Release);
        }
    }

    /// Returns the milliseconds to wait if there is no token now.
    pub(super) fn look(&self, now: u64) -> Result<(), u64> {
        // ORDERING (G4): Acquire: the rate read next is no older than the mark. (G6): as in the pool's
        // `look`.
        let word = self.word.load(Acquire);
        match self.rate() {
            // A change that no start has seen: `take` deals with it.
            Some(_) if word & MARK != 0 => Ok(()),
            Some(rate) => match judge(word, &rate, now) {
                Verdict::Start(_) => Ok(()),
                Verdict::Refuse(left, _) => Err(left),
            },
            None => Ok(()),
        }
    }

    /// Takes a token, or returns the milliseconds to wait for one.
    pub(super) fn take(&self, now: u64) -> Result<(), u64> {
        // ORDERING (G4): Acquire: the rate read next is no older than the mark.
        let mut word = self.word.load(Acquire);
        loop {
            let Some(rate) = self.rate() else { return Ok(()) };
            let verdict = judge(word, &rate, now);
            let next = match verdict {
                Verdict::Start(next) => next,
                // The debt as it was: a refusal writes nothing.
                Verdict::Refuse(left, _) if word & MARK == 0 => return Err(left),
                Verdict::Refuse(_, next) => next,
            };
            // ORDERING (G4): Acquire on failure: the rate may have been changed. The other half of the
            // pair is kept by every read-modify-write of the word. (G6): Release: the place that the load
            // has claimed.
            match self.word.compare_exchange(word, next, Release, Acquire) {
                Ok(_) => {
                    return match verdict {
                        Verdict::Start(_) => Ok(()),
                        Verdict::Refuse(left, _) => Err(left),
                    };
                }
                // Another start, or another rate: look again.
                Err(now) => word = now,
            }
        }
    }
}

fn judge(word: u64, rate: &Rate, now: u64) -> Verdict {
    let now = now << UNITS;
    let moment = word & !MARK;
    // Behind the clock, the bucket is full, and has been for some time.
    let ahead = if moment == FULL { 0 } else { moment.wrapping_sub(now) as i64 };
    let mut ahead = ahead.max(0) as u64;
    let depth = rate.depth();
    if word & MARK != 0 {
        ahead = ahead.min(depth);
    }
    let at = |ahead: u64| match now.wrapping_add(ahead) & !MARK {
        // Not the mark of a bucket that nobody has used.
        FULL => 2,
        moment => moment,
    };
    let after = ahead.saturating_add(rate.interval);
    if after > depth {
        Verdict::Refuse((after - depth).div_ceil(1 << UNITS), at(ahead))
    } else {
        Verdict::Start(at(after))
    }
}
