//! What stands in front of the origin, but for coalescing: who may ask it, how many at once, how often.
//!
//! Nothing here waits: whoever may not go on is refused at once, with a [`Refusal`] that says why. All
//! of it is atomics; a thread stopped anywhere keeps no other from being admitted or refused. Times are
//! milliseconds of the cache's clock.
//!
//! The order in front of one load, cheapest and strictest first:
//!
//! 1. **throttle** ([`Limits::throttle`]): a key whose last attempt is too recent, or whose failures ask
//!    for a longer pause. The caller asks before it joins or starts a flight.
//! 2. **waiters** ([`Limits::wait`]): who joins another caller's flight takes a place.
//! 3. **breaker**: a sick origin is left alone but for a few probes.
//! 4. **rate**: starts per second.
//! 5. **permits**: loads at once, and the share of them that background work may use.
//!
//! Steps 3 to 5 are [`Limits::admit`]. A start that one of them refuses leaves no trace in the others:
//! no probe is used up, no token taken, no permit held.
//!
//! | pair | Release | Acquire | what becomes visible |
//! |---|---|---|---|
//! | G1 | a setting is changed: the change count of a pool's word is raised | who takes a permit or place loads the word | the new limit and share |
//! | G2 | a permit is given back | who takes a permit | what its call told the breaker before |
//! | G3 | a change of the breaker's word | every load of it | its settings; the extended end of a half-open phase |
//! | G5 | a word of the breaker that carries an era is written | it is loaded | the breaker's word has that era, or a later one |
//! | G4 | a rate is changed: the word of the bucket is marked | who takes a token loads the word | the new rate |

mod attempt;
mod breaker;
mod counts;
mod limits;
#[cfg(all(test, seawall_loom))]
mod models;
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
pub(crate) use self::permit::Classified;
pub use self::permit::{Permit, Place};
pub use self::rate::Rate;
pub use self::refusal::{Priority, Refusal};

/// Whole milliseconds, rounded up: nothing here ends early.
fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Fractions are kept as parts of it, so that comparing them is exact.
const MILLION: u64 = 1_000_000;
