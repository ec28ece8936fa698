//! What the drill writes down, and what its table and its report are made of.

/// What happens to the servers while they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing happens.
    Steady,
    /// All hot articles are updated, and all their copies expire, in the same instant.
    Midnight,
    /// The origin hangs, then answers with errors, then recovers, while copies expire.
    Outage,
    /// Callers ask for articles that do not exist, ever new ones and the same ones.
    Flood,
    /// The edge loses its whole cache.
    Loss,
    /// The callers that started a load hang up in the middle of it.
    HangUp,
}

/// How the edge is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `get`, and on a miss ask the origin and `insert`.
    None,
    /// One load for each key.
    Coalescing,
    /// The same, and stale values while a refresh runs or the origin fails.
    CoalescingStale,
    /// The same, with limits, retry interval, backoff, breaker, absences and the Bloom screen.
    All,
    /// moka's `try_get_with`.
    Moka,
}

/// What was counted in one act under one setting.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Requests that clients made, retries not counted.
    pub requests: u64,
    /// Of those, by what they got in the end.
    pub fresh: u64,
    pub stale: u64,
    pub absent: u64,
    pub refused: u64,
    pub failed: u64,
    /// Requests for articles that exist, and how many of them were answered with one.
    pub existing: u64,
    pub existing_answered: u64,
    /// From a client's first attempt to its answer, retries included.
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    /// Calls that reached the origin, the most at once, and how many at once it bears.
    pub origin_calls: u64,
    pub origin_peak: u64,
    pub origin_limit: u64,
    /// The most requests at once that waited at the edge for an answer of the origin.
    pub waiters_peak: u64,
    /// Further attempts of clients.
    pub retries: u64,
    /// From the act's event until the origin was within its limit and without errors for good; `None`: not within the act.
    pub recovery_ms: Option<u64>,
}

/// A slice of an act's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// The slice's start since the act's start.
    pub at_ms: u64,
    /// The most calls at once in the origin within the slice.
    pub origin_peak: u64,
    /// Requests that ended within the slice, by what they got.
    pub fresh: u64,
    pub stale: u64,
    pub absent: u64,
    pub refused: u64,
    pub failed: u64,
    /// Latencies of these; 0 if there were none.
    pub p50_us: u64,
    pub p99_us: u64,
}

/// One act under one setting.
#[derive(Clone, Debug)]
pub struct Run {
    pub act: Act,
    pub setting: Setting,
    /// How long the act ran, and when within it something happened, with a word for it.
    pub length_ms: u64,
    pub events: Vec<(u64, &'static str)>,
    pub summary: Summary,
    /// In order of time, of equal length.
    pub samples: Vec<Sample>,
}

/// The whole drill.
#[derive(Clone, Debug)]
pub struct Drill {
    /// Cores, clients, requests a second: what the machine's size made of it, in words.
    pub scale: String,
    pub runs: Vec<Run>,
}
