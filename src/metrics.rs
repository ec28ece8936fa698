//! Counters and gauges for the `metrics` facade.

use std::hash::{BuildHasher, Hash};

use metrics::{SharedString, counter, gauge};

use crate::cache::Cache;
use crate::guard::Refusals;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Hands all counters and gauges of this cache to the recorder that the `metrics` crate has, with a
    /// label `cache`. To be called when they are asked for, or every few seconds: counting itself costs
    /// hits nothing. Load times and ages of stale values are recorded as they happen.
    ///
    /// Names begin with `seawall_`; counters end with `_total`.
    pub fn publish_metrics(&self, cache: impl Into<SharedString>) {
        let cache = cache.into();
        let (stats, loads, guards) = (self.stats(), self.load_stats(), self.limits().counts());
        let count = |name: &'static str, kind: &'static str, value: u64| {
            counter!(name, "cache" => cache.clone(), "kind" => kind).absolute(value);
        };
        for (kind, value) in [
            ("fresh", stats.hits_fresh),
            ("stale", stats.hits_stale),
            ("absent", stats.hits_absent),
            ("miss", stats.misses),
        ] {
            count("seawall_lookups_total", kind, value);
        }
        for (kind, value) in
            [("inserted", stats.inserts), ("replaced", stats.replaced), ("refused", stats.refused)]
        {
            count("seawall_writes_total", kind, value);
        }
        for (kind, value) in [
            ("removed", stats.removed),
            ("invalidated", stats.invalidated),
            ("expired", stats.expired),
            ("evicted", stats.evicted),
        ] {
            count("seawall_removals_total", kind, value);
        }
        for (kind, value) in [
            ("loaded", loads.loaded),
            ("absent", loads.absent),
            ("failed", loads.failed),
            ("panicked", loads.panicked),
            ("timed_out", loads.timed_out),
            ("abandoned", loads.abandoned),
        ] {
            count("seawall_loads_total", kind, value);
        }
        for (kind, value) in [
            ("joined", loads.joined),
            ("timed_out", loads.waits_timed_out),
            ("served_stale", loads.served_stale),
            ("screened", loads.screened),
            ("screen_unsure", loads.screen_unsure),
        ] {
            count("seawall_waits_total", kind, value);
        }
        count("seawall_background_refreshes_total", "begun", loads.refreshes);
        count("seawall_breaker_openings_total", "opened", self.limits().breaker().openings());
        for (name, refusals) in [
            ("seawall_refusals_total", guards.refused),
            ("seawall_observed_refusals_total", guards.observed),
        ] {
            reasons(refusals).into_iter().for_each(|(kind, value)| count(name, kind, value));
        }
        for (name, value) in [
            ("seawall_entries", stats.entries),
            ("seawall_weight", stats.weight),
            ("seawall_capacity", self.capacity()),
            ("seawall_garbage", stats.garbage),
            ("seawall_loads_in_flight", loads.in_flight),
            ("seawall_waiting", loads.waiting),
        ] {
            gauge!(name, "cache" => cache.clone()).set(value as f64);
        }
    }
}

fn reasons(refusals: Refusals) -> [(&'static str, u64); 6] {
    [
        ("in_flight", refusals.in_flight),
        ("background_share", refusals.background_share),
        ("waiters", refusals.waiters),
        ("rate", refusals.rate),
        ("breaker_open", refusals.breaker_open),
        ("throttled", refusals.throttled),
    ]
}
