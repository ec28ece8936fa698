//! What the load of a key comes to, as all who waited for it are told.

use std::any::Any;
use std::sync::Arc;

use crate::flight::Flight;
use crate::guard::Refusal;

/// The flight of a key of a cache.
pub(crate) type KeyFlight<V> = Flight<Answer<V>>;

pub(crate) type Answer<V> = Result<Loaded<V>, Failure>;

/// What the origin said.
#[derive(Clone, Debug)]
pub(crate) struct Loaded<V> {
    /// None: there is no such key.
    pub(crate) value: Option<V>,
    pub(crate) version: Option<u64>,
    /// Milliseconds; how old the value was when it came.
    pub(crate) age: u64,
    /// Whether the cache has it.
    pub(crate) stored: bool,
    /// One of the value's tags was invalidated after the load had begun: how many invalidations there had
    /// been then.
    pub(crate) outdated: Option<u64>,
}

impl<V> Loaded<V> {
    pub(crate) fn nothing() -> Self {
        Loaded { value: None, version: None, age: 0, stored: false, outdated: None }
    }

    /// Whether it must not be told to one who came when there had been so many invalidations.
    pub(crate) fn is_outdated(&self, invalidations: u64) -> bool {
        self.outdated.is_some_and(|since| invalidations > since)
    }
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The loader's error, and whether a stale value may cover it.
    Failed(Arc<dyn Any + Send + Sync>, bool),
    Panicked(Arc<str>),
    Refused(Refusal),
    TimedOut,
    /// The load was dropped by the one caller that could drive it.
    Abandoned,
    /// "Unchanged", without a value to keep.
    NothingToKeep,
}
