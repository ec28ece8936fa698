//! What a loader is told and what it returns.

use std::convert::Infallible;
use std::time::Duration;

pub use crate::engine::Reason;
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
