//! What a caller may say about one value.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::millis;
use crate::freshness::NEVER;

/// What to note with a value beside what the builder set; for
/// [`Cache::insert_with`](crate::Cache::insert_with).
///
/// ```
/// use std::time::Duration;
/// use seawall::{Cache, InsertOptions};
///
/// let cache: Cache<&str, &str> = Cache::new(100);
/// let options = InsertOptions::new()
///     .time_to_live(Duration::from_secs(5))
///     .version(7)
///     .tag("user:42");
/// cache.insert_with("profile", "...", options)?;
/// assert!(cache.invalidate_tag("user:42"));
/// assert_eq!(cache.get("profile"), None);
/// # Ok::<(), seawall::Refused<&str>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing by themselves"]
pub struct InsertOptions {
    pub(crate) fresh: Option<u64>,
    pub(crate) revalidate: Option<u64>,
    pub(crate) on_error: Option<u64>,
    pub(crate) too_short: bool,
    pub(crate) weight: Option<u64>,
    pub(crate) age: u64,
    pub(crate) version: Option<u64>,
    pub(crate) tags: Vec<Arc<str>>,
}

impl InsertOptions {
    /// Returns options that change nothing.
    pub fn new() -> Self {
        Self::default()
    }

    fn checked(&mut self, duration: Duration) -> u64 {
        self.too_short |= is_too_short(duration);
        millis(duration)
    }

    /// How long this value is fresh; see [`Builder::time_to_live`](crate::Builder::time_to_live). The cache's jitter applies.
    pub fn time_to_live(mut self, ttl: Duration) -> Self {
        self.fresh = Some(self.checked(ttl));
        self
    }

    /// This value is fresh until it is replaced or invalidated.
    pub fn no_deadline(mut self) -> Self {
        self.fresh = Some(NEVER);
        self
    }

    /// See [`Builder::stale_while_revalidate`](crate::Builder::stale_while_revalidate).
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.revalidate = Some(self.checked(window));
        self
    }

    /// See [`Builder::stale_if_error`](crate::Builder::stale_if_error).
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.on_error = Some(self.checked(window));
        self
    }

    /// The weight of this entry, in place of the weigher's. At least 1 is counted.
    pub fn weight(mut self, weight: u64) -> Self {
        self.weight = Some(weight);
        self
    }

    /// How old the value is already; its deadlines count from then.
    pub fn age(mut self, age: Duration) -> Self {
        self.age = millis(age);
        self
    }

    /// The value's version: it will not replace a live value with a higher one.
    pub fn version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// Adds a tag, for [`Cache::invalidate_tag`](crate::Cache::invalidate_tag).
    pub fn tag(mut self, tag: impl Into<Arc<str>>) -> Self {
        self.tags.push(tag.into());
        self
    }
}

/// Above zero, but below the unit of all deadlines.
pub(crate) fn is_too_short(duration: Duration) -> bool {
    !duration.is_zero() && duration < Duration::from_millis(1)
}
