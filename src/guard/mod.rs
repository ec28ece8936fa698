//! What stands in front of the origin, beside coalescing: who may ask it, how many at once, how often.
//!
//! A cache's [`Limits`] bound the load on its origin. They can be changed while the cache works. Nothing
//! here waits: whoever may not go on is refused at once, with a [`Refusal`] that says why, and each
//! refusal is counted. In front of one load, in this order:
//!
//! | guard | protects from | setting |
//! |---|---|---|
//! | throttle | a key that is tried again too soon | [`min_retry_interval`](Limits::set_min_retry_interval), [`Backoff`] after failures |
//! | waiters | callers that pile up behind slow loads | [`max_waiters`](Limits::set_max_waiters) |
//! | breaker | load on an origin that fails or is slow | [`BreakerOptions`] |
//! | rate | too many starts per second | [`Rate`] |
//! | permits | too many loads at once; background work that starves callers | [`max_in_flight`](Limits::set_max_in_flight), [`background_share`](Limits::set_background_share) |
//!
//! A load that one of the last three refuses leaves no trace in the others: no probe is used up, no token
//! taken, no permit held.

mod attempt;
mod breaker;
mod counts;
mod limits;
#[cfg(all(test, seawall_loom))]
mod models;
mod origin;
mod permit;
mod pool;
mod rate;
mod refusal;
#[cfg(all(test, not(seawall_loom)))]
mod tests;

use std::time::Duration;

pub(crate) use self::attempt::Attempt;
pub use self::attempt::Backoff;
pub use self::breaker::{Breaker, BreakerOptions, BreakerState};
pub use self::counts::{GuardCounts, Refusals};
pub(crate) use self::limits::LimitSettings;
pub use self::limits::Limits;
pub use self::origin::{
    Acquired, Follower, Lead, LeadEnd, OriginGuard, OriginGuardBuilder, OriginResult,
};
pub(crate) use self::permit::{Admission, Classified, Permit, Place};
pub use self::rate::Rate;
pub use self::refusal::{Priority, Refusal};

/// Whole milliseconds, rounded up: nothing here ends early.
fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Fractions are kept as parts of it, so that comparing them is exact.
const MILLION: u64 = 1_000_000;
