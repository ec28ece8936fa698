//! How large everything is: all of it follows from the requests a second that the machine bears.

use std::time::Duration;

/// The origin's time for a call, on average, while it is within its limit.
pub const SERVICE: Duration = Duration::from_millis(25);

/// How long the edge waits for the origin, under every setting: many times what a healthy origin takes.
pub const CALL_TIMEOUT: Duration = Duration::from_millis(400);

/// A client gives an attempt up after this time, and the request after `PATIENCE`.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(250);
pub const PATIENCE: Duration = Duration::from_millis(1_000);

/// Pauses before a client's further attempts, each made up to a half longer or shorter at random.
pub const RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(400)];

/// Traffic that precedes each act, so that connections are open when it begins. Not counted.
pub const LEAD_IN: Duration = Duration::from_millis(100);

/// The slices of the time lines.
pub const SLICE: Duration = Duration::from_millis(50);

/// Of the requests: for old articles, which are read once and then not again for long.
pub const OLD_SHARE: f64 = 0.003;
/// Of the requests: for articles that do not exist.
pub const MISSING_SHARE: f64 = 0.005;
/// The part of the hot articles' requests that finds its copy expired. With the two shares above, 98 % of the
/// requests are hits.
const EXPIRED_SHARE: f64 = 0.012;

/// Failures in a row that open the breaker of the setting `all`.
pub const BREAKER_FAILURES: u32 = 3;
/// How long it stays open.
pub const BREAKER_PAUSE: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Requests a second.
    pub rate: f64,
    /// Connections that the clients may have to the edge, and the edge to the origin.
    pub connections: usize,
    /// How many calls at once the origin bears.
    pub limit: u64,
    /// The articles that most requests are for; their numbers are the first ones.
    pub hot: u64,
    /// All articles that exist.
    pub articles: u64,
    pub time_to_live: Duration,
    /// Acts take this part of their full length.
    pub length: f64,
}

impl Sizes {
    /// For a process that may have so many files open at once.
    pub fn new(rate: f64, files: u64, length: f64) -> Self {
        // As many as there can be attempts at once, if that is allowed: a connection takes a file at either
        // end, and there may be one to the origin behind each.
        let attempts = rate * ATTEMPT_TIMEOUT.as_secs_f64();
        let connections =
            (attempts.ceil() as u64).min(files.saturating_sub(64) / 4).max(16) as usize;
        // An origin that bears ten times what a hit ratio of 98 % leaves for it.
        let limit = (rate * 0.02 * 10.0 * SERVICE.as_secs_f64()).round().max(8.0) as u64;
        // As many as the guarded origin brings in two thirds of a client's patience: a larger set would need
        // patient clients, or an origin with more room.
        let per_second = max_in_flight(limit) as f64 / SERVICE.as_secs_f64();
        let hot = (PATIENCE.as_secs_f64() * 0.67 * per_second) as u64;
        let time_to_live = Duration::from_secs_f64(hot as f64 / (rate * EXPIRED_SHARE));
        Sizes { rate, connections, limit, hot, articles: hot + 20_000, time_to_live, length }
    }

    /// Copies of everything hot, and as many others.
    pub fn cache_entries(&self) -> u64 {
        2 * self.hot
    }
}

/// How many loads at once to allow in front of an origin that bears `limit` calls.
///
/// Less than the limit, because a load that timed out has given its permit back while the origin may still be
/// working on it. How many of these can there be? Those whose failures open the breaker, and then one probe
/// for each of its pauses; two pauses are some time for an operator to be paged.
pub fn max_in_flight(limit: u64) -> u64 {
    let given_up = u64::from(BREAKER_FAILURES) + 2;
    limit.saturating_sub(given_up).max(limit.div_ceil(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_leave_room_for_those_given_up() {
        for limit in 8..100 {
            let loads = max_in_flight(limit);
            assert!(loads > 0 && loads + u64::from(BREAKER_FAILURES) + 2 <= limit, "{limit}");
        }
    }

    #[test]
    fn misses_are_a_fiftieth() {
        for rate in [500.0, 3_000.0, 10_000.0] {
            let sizes = Sizes::new(rate, 100, 1.0);
            let expired = sizes.hot as f64 / sizes.time_to_live.as_secs_f64() / rate;
            let missed = expired + OLD_SHARE + MISSING_SHARE;
            assert!((missed - 0.02).abs() < 0.001, "{missed}");
        }
    }
}
