//! Settings of loads, and of what stands in front of the origin.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Builder;
use crate::bloom::{BloomKey, RebuildingFilter};
use crate::clock::millis;
use crate::engine::Screen;
use crate::error::ConfigError;
use crate::freshness::{Durations, NEVER};
use crate::guard::{Backoff, BreakerOptions, LimitSettings, Rate};
use crate::load::{AnyError, ErrorClass, IntoLoad, LoadContext, Loads, Spawn};
use crate::options::is_too_short;

/// Of the builder, what concerns the origin.
pub(super) struct Origin<K, V> {
    absent_time_to_live: Duration,
    pub(super) absence_weight: Option<u64>,
    pub(super) lead_timeout: u64,
    pub(super) limits: LimitSettings,
    pub(super) loads: Loads<K, V>,
    pub(super) screen: Option<Screen<K>>,
    /// Names of durations that are above zero and too short.
    too_short: Vec<&'static str>,
}

impl<K, V> fmt::Debug for Origin<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<K, V> Origin<K, V> {
    pub(super) fn new() -> Self {
        Origin {
            absent_time_to_live: Duration::ZERO,
            absence_weight: None,
            lead_timeout: NEVER,
            limits: LimitSettings::default(),
            loads: Loads::new(),
            screen: None,
            too_short: Vec::new(),
        }
    }

    pub(super) fn absent_durations(&self) -> Durations {
        let fresh = millis(self.absent_time_to_live);
        Durations { fresh, revalidate: 0, on_error: 0, jitter: 0, early: 0 }
    }

    pub(super) fn check(&self, durations: &Durations) -> Result<(), ConfigError> {
        if let Some(name) = self.too_short.first() {
            return Err(ConfigError::TooShort(name));
        }
        self.limits.check()?;
        if self.loads.detached && self.loads.spawner.is_none() {
            return Err(ConfigError::Needs("detached_loads", "spawner"));
        }
        let interval = millis(self.limits.min_retry_interval);
        let window = durations.revalidate.max(durations.on_error);
        let life = durations.fresh.saturating_add(window);
        if !durations.is_unlimited() && interval > life {
            return Err(ConfigError::Order(
                "min_retry_interval",
                "time_to_live and its stale windows together",
            ));
        }
        Ok(())
    }

    fn duration(&mut self, name: &'static str, duration: Duration) -> u64 {
        if is_too_short(duration) {
            self.too_short.push(name);
        }
        millis(duration)
    }
}

/// Loads, and what stands in front of the origin. A limit of 0 on a number means: no limit. These can be
/// changed later, see [`Cache::limits`](crate::Cache::limits).
impl<K, V, S> Builder<K, V, S> {
    /// How long an absence that a loader reported is remembered; zero by default: not at all. Asking again
    /// does not lengthen it, and the time to live of values has no part in it. A loader can say otherwise for one key, see
    /// [`Load::AbsentFor`](crate::Load::AbsentFor). [`Duration::MAX`] means: for ever.
    pub fn absent_time_to_live(mut self, ttl: Duration) -> Self {
        self.origin.duration("absent_time_to_live", ttl);
        self.origin.absent_time_to_live = ttl;
        self
    }

    /// What a remembered absence, or failure, weighs in a cache that is bounded by weight; by default 64,
    /// or a thousandth of the capacity if that is less. At least 1 is counted: they are bounded as
    /// everything else.
    pub fn absence_weight(mut self, weight: u64) -> Self {
        self.origin.absence_weight = Some(weight);
        self
    }

    /// Limits the keys that are loaded at the same time. Beyond it a load is refused at once
    /// ([`Refusal::InFlight`](crate::guard::Refusal::InFlight)), or covered by a stale value.
    ///
    /// It counts loads, and cannot know whether an origin works on when its load has ended early: dropped
    /// with its last caller (see [`detached_loads`](Self::detached_loads)), or when its
    /// [time](Self::load_timeout) was up. For such an origin leave some room below what it bears; the
    /// [`breaker`](Self::breaker) bounds how many loads time out in a row.
    pub fn max_in_flight(mut self, loads: u64) -> Self {
        self.origin.limits.max_in_flight = loads;
        self
    }

    /// Limits the callers that wait for loads of others, of all keys together. Beyond it they are refused
    /// at once ([`Refusal::Waiters`](crate::guard::Refusal::Waiters)), or served a stale value.
    pub fn max_waiters(mut self, waiters: u64) -> Self {
        self.origin.limits.max_waiters = waiters;
        self
    }

    /// The share of [`max_in_flight`](Self::max_in_flight) that refreshes and other background loads may
    /// use, so that they do not starve real misses; 0.5 by default. Also of refreshes that a caller runs
    /// itself because there is no other place for them.
    pub fn background_share(mut self, share: f64) -> Self {
        self.origin.limits.background_share = share;
        self
    }

    /// The least time between two loads of a key, whether they succeed or fail. Within it a value that may
    /// be served stale is; without one the call is refused
    /// ([`Refusal::Throttled`](crate::guard::Refusal::Throttled)): also if it has a shorter time to live of its
    /// own than this. A value that was inserted counts as loaded then; an invalidation or a removal lets the key
    /// be loaded at once. Zero (the default) and no [`backoff`](Self::backoff): what fails is tried again with the next
    /// call, one load at a time.
    pub fn min_retry_interval(mut self, interval: Duration) -> Self {
        self.origin.duration("min_retry_interval", interval);
        self.origin.limits.min_retry_interval = interval;
        self
    }

    /// How long a key is left alone after its loads have failed.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.origin.limits.backoff = Some(backoff);
        self
    }

    /// Limits how many loads are begun in a time.
    pub fn rate_limit(mut self, rate: Rate) -> Self {
        self.origin.limits.rate = Some(rate);
        self
    }

    /// Leaves a sick origin alone but for a few probes.
    pub fn breaker(mut self, breaker: BreakerOptions) -> Self {
        self.origin.limits.breaker = Some(breaker);
        self
    }

    /// Counts what would be refused, and refuses nothing.
    pub fn observe_only(mut self, observe: bool) -> Self {
        self.origin.limits.observe_only = observe;
        self
    }

    /// Asks a Bloom filter before the origin: a key that it has certainly never seen is absent, without a
    /// load ([`Source::Screened`](crate::Source::Screened)). None by default.
    ///
    /// The filter is to have all keys of the origin: built from it, and taught each new one (inserts into
    /// this cache, and loads that find a value, teach it; others must be told to it before they are asked
    /// for). While it cannot tell, it lets through. It is asked after the cache: what that has fresh is
    /// served whatever the filter says.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use seawall::bloom::{RebuildingFilter, plan};
    /// use seawall::{Cache, LoadError};
    ///
    /// let filter = Arc::new(RebuildingFilter::new(&plan(1_000, 0.01)?)?);
    /// let cache: Cache<String, u32> =
    ///     Cache::builder().max_entries(100).screen(Arc::clone(&filter)).build()?;
    /// filter.insert("alice");
    /// filter.mark_complete();
    /// assert_eq!(cache.get_or_load("alice", || 1), Ok(1));
    /// assert_eq!(cache.get_or_load("no such user", || 2), Err(LoadError::Absent));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn screen(mut self, filter: Arc<RebuildingFilter>) -> Self
    where
        K: BloomKey,
    {
        self.origin.screen = Some(Screen::new(filter));
        self
    }

    /// The time a load has. An async load is dropped when it is up, which is a failure of the origin's. A blocking one
    /// cannot be, but those who wait for it are let go; whether it failed is what its loader says in the end (for
    /// slow ones see [`BreakerOptions::slow_call`](crate::guard::BreakerOptions::slow_call)). Both are told as
    /// [`LoadError::TimedOut`](crate::LoadError::TimedOut). Zero means: at once; without it, no limit.
    pub fn load_timeout(mut self, timeout: Duration) -> Self {
        self.origin.loads.load_timeout = self.origin.duration("load_timeout", timeout);
        self
    }

    /// The time a load holds its key: after it the next caller begins another one, and what the first one
    /// brings late is not stored. Zero means: every caller loads; without it, no limit.
    pub fn lead_timeout(mut self, timeout: Duration) -> Self {
        self.origin.lead_timeout = self.origin.duration("lead_timeout", timeout);
        self
    }

    /// How long a caller waits for a load, if it does not say otherwise; see
    /// [`LoadRequest::timeout`](crate::LoadRequest::timeout). Zero means: not at all; without it, no limit.
    pub fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.origin.loads.wait_timeout = self.origin.duration("wait_timeout", timeout);
        self
    }

    /// Where async loads run that no caller drives: refreshes of values that are served stale meanwhile.
    /// With the feature `tokio` a `tokio::runtime::Handle` will do. Without it, the one caller that finds
    /// such a value first waits for its load, and the others are served at once.
    pub fn spawner(mut self, spawner: impl Spawn + 'static) -> Self {
        self.origin.loads.spawner = Some(Arc::new(spawner));
        self
    }

    /// Lets async loads go on, on the [`spawner`](Self::spawner), when nobody waits for them any more: what they
    /// bring is stored, and they count as [in flight](Self::max_in_flight) for as long as the origin works on them.
    pub fn detached_loads(mut self, detached: bool) -> Self {
        self.origin.loads.detached = detached;
        self
    }

    /// The loader of refreshes on behalf of blocking callers; it runs on a few threads of the cache's own,
    /// started when needed. Without it the one blocking caller that finds a value stale first runs its
    /// own loader and waits for it, and the others are served at once.
    pub fn refresh_with<R>(
        mut self,
        loader: impl Fn(LoadContext<K, V>) -> R + Send + Sync + 'static,
    ) -> Self
    where
        R: IntoLoad<V>,
        R::Error: Send + Sync + 'static,
    {
        self.origin.loads.refresher = Some(Arc::new(move |context| {
            loader(context).into_load().map_err(|error| Arc::new(error) as AnyError)
        }));
        self
    }

    /// The number of threads for [`refresh_with`](Self::refresh_with), at most; 2 by default, at least 1.
    pub fn refresh_threads(mut self, threads: usize) -> Self {
        self.origin.loads.refresh_threads = threads;
        self
    }

    /// Says what errors of type `E` mean; by default every error is an
    /// [`Outage`](crate::ErrorClass::Outage).
    pub fn classify_errors<E: 'static>(
        mut self,
        classify: impl Fn(&E) -> ErrorClass + Send + Sync + 'static,
    ) -> Self {
        self.origin.loads.classifiers.push(Box::new(move |error: &(dyn Any + Send + Sync)| {
            error.downcast_ref().map(&classify)
        }));
        self
    }
}
