//! What a loader is told and what it returns.

use std::convert::Infallible;
use std::time::Duration;

use crate::engine::Why;
use crate::options::InsertOptions;

/// What a loader may return beside a plain value.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Load<V> {
    /// A value, with the cache's own settings.
    Value(V),
    /// A value with deadlines, weight, age, version or tags of its own.
    With(V, InsertOptions),
    /// A value for those who wait for this load; not to be stored. What the cache had stays.
    NotStored(V),
    /// The origin answered that there is no such key. What the cache had goes. Remembered for
    /// [`absent_time_to_live`](crate::Builder::absent_time_to_live).
    Absent,
    /// As [`Absent`](Self::Absent), remembered for a time of its own. Zero: not remembered.
    AbsentFor(Duration),
    /// The previous value is still good: it is kept, with new deadlines.
    Unchanged,
    /// As [`Unchanged`](Self::Unchanged), with deadlines, version or further tags of its own.
    UnchangedWith(InsertOptions),
}

/// What a loader may return: a value, a [`Load`], an `Option` of a value (`None` is an absence), or a
/// `Result` of one of them.
pub trait IntoLoad<V> {
    /// The loader's error; [`Infallible`] if it has none.
    type Error;

    /// Returns what was loaded.
    ///
    /// # Errors
    /// The loader's error.
    fn into_load(self) -> Result<Load<V>, Self::Error>;
}

impl<V> IntoLoad<V> for V {
    type Error = Infallible;

    fn into_load(self) -> Result<Load<V>, Infallible> {
        Ok(Load::Value(self))
    }
}

impl<V> IntoLoad<V> for Load<V> {
    type Error = Infallible;

    fn into_load(self) -> Result<Load<V>, Infallible> {
        Ok(self)
    }
}

impl<V> IntoLoad<V> for Option<V> {
    type Error = Infallible;

    fn into_load(self) -> Result<Load<V>, Infallible> {
        Ok(self.map_or(Load::Absent, Load::Value))
    }
}

impl<V, E> IntoLoad<V> for Result<V, E> {
    type Error = E;

    fn into_load(self) -> Result<Load<V>, E> {
        self.map(Load::Value)
    }
}

impl<V, E> IntoLoad<V> for Result<Load<V>, E> {
    type Error = E;

    fn into_load(self) -> Result<Load<V>, E> {
        self
    }
}

impl<V, E> IntoLoad<V> for Result<Option<V>, E> {
    type Error = E;

    fn into_load(self) -> Result<Load<V>, E> {
        self.map(|value| value.map_or(Load::Absent, Load::Value))
    }
}

/// Why a loader is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The cache knows nothing of the key.
    Missing,
    /// What it had has expired, or was invalidated; or a load has failed lately.
    Expired,
    /// What it has is stale, and served meanwhile.
    Stale,
    /// What it has is stale, and may only stand in for an error.
    StaleOnError,
    /// What it has will be stale soon.
    Early,
    /// The caller asked for it, whatever the cache has.
    Asked,
}

impl Reason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Missing => "missing",
            Reason::Expired => "expired",
            Reason::Stale => "stale",
            Reason::StaleOnError => "stale_on_error",
            Reason::Early => "early",
            Reason::Asked => "asked",
        }
    }
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why {
            Why::Missing => Reason::Missing,
            Why::Expired => Reason::Expired,
            Why::Stale => Reason::Stale,
            Why::StaleOnError => Reason::StaleOnError,
            Why::Early => Reason::Early,
            Why::Asked => Reason::Asked,
        }
    }
}

/// What a loader may want to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadContext<K, V> {
    /// The key to load.
    pub key: K,
    /// The value that the cache still has, for a conditional request; see [`Load::Unchanged`].
    pub previous: Option<V>,
    /// Its version.
    pub previous_version: Option<u64>,
    /// Why the loader is called.
    pub reason: Reason,
    /// 1, and one more for each attempt that failed before this one, in a row.
    pub attempt: u32,
}
