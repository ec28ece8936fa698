//! What a caller of get-or-load is told.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::answer::{Failure, Loaded};
use crate::engine::Served;
use crate::freshness::Freshness;
use crate::guard::Refusal;

/// Where an [`Outcome`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The cache had it, fresh (or the absence, remembered).
    Cached,
    /// The cache had it, stale.
    Stale(WhyStale),
    /// This caller's loader.
    Loaded,
    /// A load that another caller had begun.
    Joined,
    /// The [`screen`](crate::Builder::screen): such a key certainly does not exist.
    Screened,
}

/// Why a stale value was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyStale {
    /// It may still be served, and a load of a newer one is going on.
    Refreshing,
    /// A load is not allowed now: see the refusal.
    Refused(Refusal),
    /// The load failed, with an error that stale values may cover.
    Failed,
    /// The load panicked.
    Panicked,
    /// The load, or this caller's patience, took too long.
    TimedOut,
}

/// What a caller of [`load`](crate::Cache::load) gets: a value or an absence, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome<V> {
    /// The value; `None` if there is no such key.
    pub value: Option<V>,
    /// Where it comes from.
    pub source: Source,
    /// How old the value is, if that is known: zero if it was just loaded.
    pub age: Option<Duration>,
    /// The value's version, if it has one.
    pub version: Option<u64>,
}

impl<V> Outcome<V> {
    /// Returns whether the value is stale.
    pub fn is_stale(&self) -> bool {
        matches!(self.source, Source::Stale(_))
    }

    pub(crate) fn cached(served: Served<V>) -> Self {
        let source = match served.freshness {
            Freshness::Fresh => Source::Cached,
            _ => Source::Stale(WhyStale::Refreshing),
        };
        Outcome { value: Some(served.value), source, age: served.age, version: served.version }
    }

    pub(crate) fn stale(served: Served<V>, why: WhyStale) -> Self {
        // An early refresh that is refused leaves a value that is fresh.
        let source = match served.freshness {
            Freshness::Fresh => Source::Cached,
            _ => Source::Stale(why),
        };
        Outcome { value: Some(served.value), source, age: served.age, version: served.version }
    }

    pub(crate) fn absent() -> Self {
        Outcome { value: None, source: Source::Cached, age: None, version: None }
    }

    pub(crate) fn screened() -> Self {
        Outcome { value: None, source: Source::Screened, age: None, version: None }
    }

    pub(crate) fn loaded(loaded: Loaded<V>, source: Source) -> Self {
        let age = loaded.value.is_some().then(|| Duration::from_millis(loaded.age));
        Outcome { value: loaded.value, source, age, version: loaded.version }
    }

    /// The value, where an absence counts as an error.
    pub(crate) fn into_value<E>(self) -> Result<V, LoadError<E>> {
        self.value.ok_or(LoadError::Absent)
    }
}

/// Why a caller of get-or-load gets no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError<E> {
    /// The loader's error. All who waited for that load get a copy.
    Failed(E),
    /// There is no such key: the loader said so, now or lately. Only from calls that return just a value.
    Absent,
    /// The origin was not asked.
    Refused(Refusal),
    /// The load, or this caller's patience, took too long.
    TimedOut,
    /// The loader panicked, in another caller or in the load's own task.
    Panicked(Arc<str>),
    /// The load was for this very call: a loader asked for the key that it was loading, itself or
    /// through loads of other keys.
    Reentrant,
    /// The load was dropped, and nobody was left who could begin it again.
    Abandoned,
    /// A load that another call had begun failed, with an error of another type than this call's.
    Foreign,
    /// The loader said "unchanged", but there is no value to keep.
    NothingToKeep,
}

impl<E: fmt::Display> fmt::Display for LoadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the load failed: {error}"),
            Self::Absent => f.write_str("there is no such key"),
            Self::Refused(refusal) => write!(f, "the origin was not asked: {refusal}"),
            Self::TimedOut => f.write_str("the load took too long"),
            Self::Panicked(message) => write!(f, "the loader panicked: {message}"),
            Self::Reentrant => f.write_str("the loader waits for its own load"),
            Self::Abandoned => f.write_str("the load was dropped"),
            Self::Foreign => f.write_str("the load failed with an error of another type"),
            Self::NothingToKeep => f.write_str("unchanged, but there is no value to keep"),
        }
    }
}

impl<E: Error + 'static> Error for LoadError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl<E: Clone + 'static> LoadError<E> {
    pub(crate) fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Failed(error, _) => {
                let error: &(dyn Any + Send + Sync) = &**error;
                error.downcast_ref().cloned().map_or(Self::Foreign, Self::Failed)
            }
            Failure::Panicked(message) => Self::Panicked(Arc::clone(message)),
            Failure::Refused(refusal) => Self::Refused(*refusal),
            Failure::TimedOut => Self::TimedOut,
            Failure::Abandoned => Self::Abandoned,
            Failure::NothingToKeep => Self::NothingToKeep,
        }
    }
}

/// What an error says about the origin; see
/// [`Builder::classify_errors`](crate::Builder::classify_errors).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The origin could not answer. Counts as a failure for the breaker and the backoff, and may be
    /// covered by a stale value.
    Outage,
    /// The origin answered, and this is its answer ("forbidden", say): given to the callers, and no
    /// failure.
    Answer,
}
