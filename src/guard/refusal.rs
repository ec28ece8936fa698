//! Why the origin is not asked.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// How urgent a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// A caller waits for it.
    #[default]
    Foreground,
    /// Nobody waits for it: a refresh of a stale value, a warm-up. Only a share of the permits is open
    /// to it; see [`Limits::background_share`](super::Limits::background_share).
    Background,
}

/// Why the origin is not asked. Returned at once: nothing waits in a line.
///
/// ```
/// use std::time::Duration;
/// use seawall::guard::Refusal;
///
/// let refusal = Refusal::Rate { retry_after: Duration::from_millis(20) };
/// assert_eq!(refusal.retry_after(), Some(Duration::from_millis(20)));
/// assert_eq!(refusal.to_string(), "too many loads per second, try again in 20ms");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// As many loads are running as may run at once.
    InFlight {
        /// The limit.
        limit: u64,
    },
    /// As many background loads are running as may run at once. Others may still be let in.
    BackgroundShare {
        /// The share of the limit that background loads may use, in loads.
        limit: u64,
    },
    /// As many callers are waiting for loads of others as may wait.
    Waiters {
        /// The limit.
        limit: u64,
    },
    /// Too many loads were started lately.
    Rate {
        /// When the next one may start, if no other caller is faster.
        retry_after: Duration,
    },
    /// The breaker is open: too many loads have failed lately.
    BreakerOpen {
        /// When the next probe may start, at the latest. While an operator holds the breaker open: the
        /// length of its pause, which is only a guess.
        retry_after: Duration,
    },
    /// The last attempt for this key is too recent.
    Throttled {
        /// When the next attempt may be made.
        retry_after: Duration,
    },
}

impl Refusal {
    /// Returns how long to wait before trying again, where that is known. It may be millions of years:
    /// for ever.
    pub fn retry_after(&self) -> Option<Duration> {
        match *self {
            Self::InFlight { .. } | Self::BackgroundShare { .. } | Self::Waiters { .. } => None,
            Self::Rate { retry_after }
            | Self::BreakerOpen { retry_after }
            | Self::Throttled { retry_after } => Some(retry_after),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight { limit } => write!(f, "{limit} loads are in flight, as many as may be"),
            Self::BackgroundShare { limit } => {
                write!(f, "{limit} background loads are in flight, as many as may be")
            }
            Self::Waiters { limit } => write!(f, "{limit} callers are waiting, as many as may be"),
            Self::Rate { retry_after } => {
                write!(f, "too many loads per second, try again in {retry_after:?}")
            }
            Self::BreakerOpen { retry_after } => {
                write!(f, "the breaker is open, try again in {retry_after:?}")
            }
            Self::Throttled { retry_after } => {
                write!(f, "the last attempt is too recent, try again in {retry_after:?}")
            }
        }
    }
}

impl Error for Refusal {}
