//! Settings, checked before a cache is made of them.

mod origin;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use self::origin::Origin;
use crate::cache::Cache;
use crate::clock::{Clock, millis};
use crate::engine::{Config, Weigher};
use crate::error::ConfigError;
use crate::freshness::{Durations, NEVER};
use crate::guard::Limits;
use crate::listener::{Listener, RemovalCause};
use crate::options::is_too_short;
use crate::table::reclaim;

/// Makes a [`Cache`] from settings; [`build`](Self::build) checks them.
///
/// Exactly one budget must be set: [`max_entries`](Self::max_entries) or
/// [`max_weight`](Self::max_weight). Everything else has a default.
///
/// ```
/// use std::time::Duration;
/// use seawall::Cache;
///
/// let cache: Cache<String, Vec<u8>> = Cache::builder()
///     .max_weight(64 << 20)
///     .weigher(|key: &String, value: &Vec<u8>| (key.len() + value.len()) as u64)
///     .time_to_live(Duration::from_secs(60))
///     .stale_while_revalidate(Duration::from_secs(30))
///     .jitter(0.1)
///     .build()?;
/// # Ok::<(), seawall::ConfigError>(())
/// ```
#[must_use = "a builder does nothing before `build`"]
pub struct Builder<K, V, S = ahash::RandomState> {
    max_entries: Option<u64>,
    max_weight: Option<u64>,
    estimated_entries: u64,
    weigher: Option<Box<Weigher<K, V>>>,
    listener: Option<Listener<K, V>>,
    time_to_live: Option<Duration>,
    stale_while_revalidate: Duration,
    stale_if_error: Duration,
    time_to_idle: Option<Duration>,
    jitter: f64,
    early_refresh: Duration,
    small_share: f64,
    clock: Option<Clock>,
    hasher: S,
    origin: Origin<K, V>,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Builder<K, V> {
    pub(crate) fn new() -> Self {
        Builder {
            max_entries: None,
            max_weight: None,
            estimated_entries: 0,
            weigher: None,
            listener: None,
            time_to_live: None,
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            time_to_idle: None,
            jitter: 0.0,
            early_refresh: Duration::ZERO,
            small_share: 0.05,
            clock: None,
            hasher: ahash::RandomState::new(),
            origin: Origin::new(),
            of: PhantomData,
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// Bounds the cache by the number of entries. Zero is legal: nothing is kept. More than 2^61 count as
    /// 2^61; [`Cache::capacity`] says what counts.
    pub fn max_entries(mut self, entries: u64) -> Self {
        self.max_entries = Some(entries);
        self
    }

    /// Bounds the cache by the sum of its entries' weights, in the unit of the
    /// [`weigher`](Self::weigher). Zero is legal: nothing is kept. More than 2^61 counts as 2^61;
    /// [`Cache::capacity`] says what counts. The heaviest value that can be stored is as heavy as that.
    ///
    /// Nothing is allocated up front for it; the table grows with the number of entries.
    pub fn max_weight(mut self, weight: u64) -> Self {
        self.max_weight = Some(weight);
        self
    }

    /// How many entries a cache that is bounded by weight is expected to hold, so that its table need
    /// not grow. Only a hint; what is evicted depends a little on the size of the table.
    pub fn estimated_entries(mut self, entries: u64) -> Self {
        self.estimated_entries = entries;
        self
    }

    /// How heavy an entry is; called once for each value that is to be stored, before anything else is
    /// done with it. It may call the cache. Every entry weighs at least 1, so that entries without
    /// weight cannot pile up. Without a weigher every entry weighs 1.
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.weigher = Some(Box::new(weigher));
        self
    }

    /// How long a value is fresh, counted from the call that stores it: from before a predicate of
    /// [`Cache::replace_if`] is asked, after the weigher. Without it, values are fresh until they are replaced or
    /// invalidated, and no clock is read. Zero means: stale at once (see
    /// [`stale_while_revalidate`](Self::stale_while_revalidate)), or dead at once without a window.
    /// [`Duration::MAX`] means: for ever.
    pub fn time_to_live(mut self, ttl: Duration) -> Self {
        self.time_to_live = Some(ttl);
        self
    }

    /// How long after its freshness a value is still served, marked stale, while it is loaded anew.
    /// Counted from the end of freshness, never from a failed attempt (RFC 5861). Zero by default:
    /// nothing stale is served. [`Duration::MAX`] means: for ever.
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.stale_while_revalidate = window;
        self
    }

    /// How long after its freshness a value may stand in for an error. Counted from the end of
    /// freshness (RFC 5861). Plain reads do not see a value for which only this window is open; see
    /// [`Cache::get_on_error`]. A value that may still be served stale anyway covers an error too. Zero by default: no error is hidden. [`Duration::MAX`] means: for ever.
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.stale_if_error = window;
        self
    }

    /// Lets an entry die when it was not read for this long, whatever its deadlines say. Zero means: dead
    /// at once; [`Duration::MAX`] means: no limit. The time of
    /// the last read is kept to within a 64th of this duration, on the early side.
    pub fn time_to_idle(mut self, idle: Duration) -> Self {
        self.time_to_idle = Some(idle);
        self
    }

    /// Shortens each entry's time to live at random, uniformly by up to this fraction of it, so that
    /// what was stored together does not expire together. Never lengthens it, so a promised maximum
    /// age holds.
    pub fn jitter(mut self, fraction: f64) -> Self {
        self.jitter = fraction;
        self
    }

    /// Makes a refresh due at a random moment before the end of freshness, exponentially distributed
    /// with this mean (the time that a load takes is a good choice): "optimal probabilistic cache
    /// stampede prevention" (Vattani, Chierichetti, Lowenstein; VLDB 2015). The moment is drawn once,
    /// when the value is stored; see [`Entry::is_refresh_due`](crate::Entry::is_refresh_due). For an entry
    /// with a shorter time to live of its own, that is the mean.
    pub fn early_refresh(mut self, mean: Duration) -> Self {
        self.early_refresh = mean;
        self
    }

    /// The share of the budget for entries that have not proved their worth, to begin with; 0.05 by default. It
    /// follows what the cache sees: it grows while keys come back just after they were evicted from it, and shrinks while
    /// what has to go for it is in use. Every new entry is let in, however popular others are; it stays if
    /// it is used, or comes back soon after it was evicted.
    pub fn small_share(mut self, fraction: f64) -> Self {
        self.small_share = fraction;
        self
    }

    /// Where time comes from; [`Clock::system`] by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How keys are hashed; by default `ahash` with keys drawn at random for each cache.
    ///
    /// Keys that are equal must have equal hashes, and so must a borrowed form that is used to look
    /// them up. At most 24 keys that share the upper bits of their hash are kept: a constant hash makes
    /// a cache of 24 entries, not a slow one.
    pub fn hasher<S2>(self, hasher: S2) -> Builder<K, V, S2> {
        Builder {
            max_entries: self.max_entries,
            max_weight: self.max_weight,
            estimated_entries: self.estimated_entries,
            weigher: self.weigher,
            listener: self.listener,
            time_to_live: self.time_to_live,
            stale_while_revalidate: self.stale_while_revalidate,
            stale_if_error: self.stale_if_error,
            time_to_idle: self.time_to_idle,
            jitter: self.jitter,
            early_refresh: self.early_refresh,
            small_share: self.small_share,
            clock: self.clock,
            hasher,
            origin: self.origin,
            of: PhantomData,
        }
    }

    /// Is told of each entry that leaves the cache, with the cause, exactly once.
    ///
    /// It is called on the thread whose operation took the entry out, after that operation has taken
    /// effect and holds nothing: it may block (its thread only) and call the cache. It gets copies,
    /// made by `Clone`; what cannot be copied, because `Clone` panics, it is not told of. Storing a value in place of an equal one, or of itself, is a replacement like
    /// any other. It is not told of what is still there when the cache is dropped. If it panics, it is
    /// still told of the other entries of that operation; then the panic goes on in the caller.
    pub fn removal_listener(
        mut self,
        listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone,
        V: Clone,
    {
        self.listener = Some(Listener::new(listener));
        self
    }

    fn checked_durations(&self) -> Result<Durations, ConfigError> {
        let fraction = |name, value: f64| match value {
            _ if (0.0..=1.0).contains(&value) => Ok(()),
            _ => Err(ConfigError::Fraction(name, value)),
        };
        fraction("jitter", self.jitter)?;
        fraction("small_share", self.small_share)?;
        for (name, duration) in [
            ("time_to_live", self.time_to_live.unwrap_or_default()),
            ("stale_while_revalidate", self.stale_while_revalidate),
            ("stale_if_error", self.stale_if_error),
            ("time_to_idle", self.time_to_idle.unwrap_or_default()),
            ("early_refresh", self.early_refresh),
        ] {
            if is_too_short(duration) {
                return Err(ConfigError::TooShort(name));
            }
        }
        match self.time_to_live {
            None if self.jitter > 0.0 => Err(ConfigError::Needs("jitter", "time_to_live")),
            None if !self.early_refresh.is_zero() => {
                Err(ConfigError::Needs("early_refresh", "time_to_live"))
            }
            Some(ttl) if self.early_refresh > ttl => {
                Err(ConfigError::Order("early_refresh", "time_to_live"))
            }
            _ => Ok(Durations {
                fresh: self.time_to_live.map_or(NEVER, millis),
                revalidate: millis(self.stale_while_revalidate),
                on_error: millis(self.stale_if_error),
                jitter: 0,
                early: millis(self.early_refresh),
            }
            .with_jitter(self.jitter)),
        }
    }

    fn budget(&self) -> Result<(u64, bool), ConfigError> {
        match (self.max_entries, self.max_weight) {
            (None, None) => Err(ConfigError::NoBudget),
            (Some(_), Some(_)) => Err(ConfigError::TwoBudgets),
            (Some(_), None) if self.weigher.is_some() => Err(ConfigError::WeigherWithoutWeight),
            (Some(entries), None) => Ok((entries, false)),
            (None, Some(weight)) => Ok((weight, true)),
        }
    }

    /// Makes the cache.
    ///
    /// Allocates a table for the entries that the cache is bounded by (up to a few million; beyond that
    /// it grows), of which the system provides the pages as they are used.
    ///
    /// # Errors
    /// [`ConfigError`] says which setting is missing, contradicts another one or makes no sense, or
    /// that there is not enough memory.
    pub fn build(self) -> Result<Cache<K, V, S>, ConfigError>
    where
        K: Hash + Eq,
        S: BuildHasher,
    {
        let durations = self.checked_durations()?;
        let (capacity, weighted) = self.budget()?;
        self.origin.check(&durations)?;
        let config = Config {
            capacity,
            weighted,
            estimated_entries: if weighted { self.estimated_entries } else { capacity },
            weigher: self.weigher,
            listener: self.listener,
            durations,
            jitter: self.jitter,
            time_to_idle: self.time_to_idle.map_or(NEVER, millis),
            small_share: self.small_share,
            clock: self.clock,
            hasher: self.hasher,
            absent: self.origin.absent_durations(),
            absence_weight: self.origin.absence_weight,
            lead_timeout: self.origin.lead_timeout,
            limits: Arc::new(Limits::counted_by(&self.origin.limits, reclaim::stripe)),
            screen: self.origin.screen,
        };
        Cache::from_config(config, self.origin.loads)
    }
}

impl<K, V, S> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("max_entries", &self.max_entries)
            .field("max_weight", &self.max_weight)
            .field("time_to_live", &self.time_to_live)
            .finish_non_exhaustive()
    }
}
