//! What acts and settings are called, and what they are.

use crate::record::{Act, Setting};

pub(super) const ACTS: [Act; 6] =
    [Act::Steady, Act::Midnight, Act::Outage, Act::Flood, Act::Loss, Act::HangUp];

pub(super) const SETTINGS: [Setting; 5] =
    [Setting::None, Setting::Coalescing, Setting::CoalescingStale, Setting::All, Setting::Moka];

/// An act in words.
pub(super) struct ActWords {
    /// Its anchor in the page.
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    /// For a heading.
    pub(super) brief: &'static str,
    pub(super) happens: &'static str,
    pub(super) look: &'static str,
}

pub(super) fn act(act: Act) -> ActWords {
    let (id, name, brief, happens, look) = match act {
        Act::Steady => (
            "steady",
            "Steady state",
            "nothing happens",
            "Nothing happens: clients ask for popular articles far more often than for others, \
             and nearly all requests find a copy in the cache.",
            "what the edge costs while all is well: its latency, and the calls it sends on.",
        ),
        Act::Midnight => (
            "midnight",
            "Midnight",
            "all hot copies expire at once",
            "All hot articles are updated, and all copies of them expire, in the same instant.",
            "how many calls reach the origin at once, and how long they keep it above what it \
             bears.",
        ),
        Act::Outage => (
            "outage",
            "Outage",
            "the origin hangs, then fails",
            "The origin hangs, then answers with errors, then recovers, while copies expire.",
            "what clients get in the meantime, and whether the origin gets back on its feet.",
        ),
        Act::Flood => (
            "flood",
            "Flood",
            "articles that do not exist",
            "A crowd asks for articles that do not exist: for ever new ones, and for the same \
             ones again.",
            "how many of these requests get through to the origin, and whether those for \
             existing articles suffer.",
        ),
        Act::Loss => (
            "loss",
            "Loss of the cache",
            "nothing is left in it",
            "The edge loses its whole cache: every article must be loaded again.",
            "how many calls reach the origin at once, and what clients get until the cache is \
             warm.",
        ),
        Act::HangUp => (
            "hang-up",
            "Hang-up",
            "callers leave in mid-load",
            "The clients that started a load hang up in the middle of it.",
            "whether those who wait for the same article get it, and whether the origin is asked \
             again.",
        ),
    };
    ActWords { id, name, brief, happens, look }
}

pub(super) fn setting(setting: Setting) -> &'static str {
    match setting {
        Setting::None => "no guard",
        Setting::Coalescing => "coalescing",
        Setting::CoalescingStale => "coalescing + stale",
        Setting::All => "all guards",
        Setting::Moka => "moka",
    }
}

pub(super) fn explained(setting: Setting) -> &'static str {
    match setting {
        Setting::None => "On a miss, each request asks the origin and inserts what it gets.",
        Setting::Coalescing => "One load for each key; the others wait for it.",
        Setting::CoalescingStale => {
            "The same, and stale copies while a refresh runs or the origin fails."
        }
        Setting::All => {
            "The same, with limits, retry interval, backoff, breaker, absences and Bloom screen."
        }
        Setting::Moka => "Another cache for comparison, by its try_get_with.",
    }
}
