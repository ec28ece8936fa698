//! How each setting's cache is made.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use seawall::Cache;
use seawall::bloom::{RebuildingFilter, plan};
use seawall::guard::{Backoff, BreakerOptions};

use crate::record::Setting;
use crate::sizes::{BREAKER_FAILURES, BREAKER_PAUSE, CALL_TIMEOUT, Sizes, max_in_flight};

/// How long it is remembered that an article does not exist, where that is remembered at all.
pub const ABSENT_TIME_TO_LIVE: Duration = Duration::from_secs(1);

/// Yesterday's article is better than none for as long as it takes to refresh all of them ..
const STALE_WHILE_REVALIDATE: Duration = Duration::from_secs(5);
/// .. and better than an error for much longer.
const STALE_IF_ERROR: Duration = Duration::from_secs(60);

impl Setting {
    pub const ALL: [Setting; 5] =
        [Setting::None, Setting::Coalescing, Setting::CoalescingStale, Setting::All, Setting::Moka];

    pub fn name(self) -> &'static str {
        match self {
            Setting::None => "none",
            Setting::Coalescing => "coalescing",
            Setting::CoalescingStale => "coalescing+stale",
            Setting::All => "all",
            Setting::Moka => "moka",
        }
    }
}

/// seawall's cache for a setting that uses it.
pub fn cache(setting: Setting, sizes: &Sizes) -> Result<Cache<u64, Bytes>, Box<dyn Error>> {
    let mut builder =
        Cache::builder().max_entries(sizes.cache_entries()).time_to_live(sizes.time_to_live);
    if matches!(setting, Setting::CoalescingStale | Setting::All) {
        builder = builder
            .stale_while_revalidate(STALE_WHILE_REVALIDATE)
            .stale_if_error(STALE_IF_ERROR)
            .spawner(|load| drop(tokio::spawn(load)));
    }
    if setting == Setting::All {
        builder = builder
            .max_in_flight(max_in_flight(sizes.limit))
            // The origin works on when nobody waits any more: then let what it brings be stored, and the
            // permit be held as long as it works.
            .detached_loads(true)
            .load_timeout(CALL_TIMEOUT)
            // All that come while the origin hangs for one load's time: no more memory than that.
            .max_waiters((sizes.rate * CALL_TIMEOUT.as_secs_f64()).ceil() as u64)
            // A few times what a load takes.
            .min_retry_interval(Duration::from_millis(100))
            .backoff(Backoff::new(Duration::from_millis(200), Duration::from_secs(2))?)
            .breaker(
                BreakerOptions::new()
                    .consecutive_failures(BREAKER_FAILURES)
                    .open_for(BREAKER_PAUSE),
            )
            .absent_time_to_live(ABSENT_TIME_TO_LIVE)
            .screen(screen(sizes)?);
    }
    Ok(builder.build()?)
}

/// A Bloom filter of all articles that exist.
fn screen(sizes: &Sizes) -> Result<Arc<RebuildingFilter>, Box<dyn Error>> {
    let filter = RebuildingFilter::new(&plan(sizes.articles, 0.01)?)?;
    (0..sizes.articles).for_each(|id| _ = filter.insert(&id));
    filter.mark_complete();
    Ok(Arc::new(filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_makes_caches_that_are_allowed() {
        for rate in [100.0, 3_000.0, 20_000.0] {
            let sizes = Sizes::new(rate, 100, 1.0);
            for setting in Setting::ALL {
                cache(setting, &sizes).unwrap();
            }
        }
    }
}
