//! Get-or-load: the way from a miss to the origin, and everything that stands in between.
//!
//! The order (DESIGN.md section 7): lookup; throttle; join the key's flight if there is one, else
//! breaker, rate, permit; load, with a deadline; classify; store; give the permit back; wake.
//!
//! One algorithm ([`request`]) with a blocking and two async faces: what differs is who runs the loader
//! ([`drive`]) and how one waits.

pub(crate) mod bulk;
mod core;
mod drive;
mod end;
mod lead;
mod loader;
mod outcome;
mod refresh;
mod report;
mod request;
mod warm;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

pub(crate) use self::core::Core;
pub(crate) use self::end::AnyError;
pub use self::loader::{IntoLoad, Load, LoadContext, Reason};
pub use self::outcome::{ErrorClass, LoadError, Outcome, Source, WhyStale};
use self::refresh::Pool;
pub use self::refresh::{BoxFuture, Spawn};
use self::report::Report;
pub use self::report::{Histogram, LoadStats};
pub use self::request::LoadRequest;
pub use self::warm::{KeyStream, Keys, WarmUp, WarmUpControl, WarmUpProgress};
use crate::freshness::NEVER;

/// The loader of refreshes that run on the cache's own threads.
pub(crate) type Refresher<K, V> =
    dyn Fn(LoadContext<K, V>) -> Result<Load<V>, AnyError> + Send + Sync;

type Classify = dyn Fn(&(dyn Any + Send + Sync)) -> Option<ErrorClass> + Send + Sync;

/// How a cache loads.
pub(crate) struct Loads<K, V> {
    /// Milliseconds; [`NEVER`] for no limit.
    pub(crate) load_timeout: u64,
    pub(crate) wait_timeout: u64,
    /// Loads go on when nobody waits any more.
    pub(crate) detached: bool,
    pub(crate) spawner: Option<Arc<dyn Spawn>>,
    pub(crate) refresher: Option<Arc<Refresher<K, V>>>,
    pub(crate) refresh_threads: usize,
    pub(crate) classifiers: Vec<Box<Classify>>,
}

impl<K, V> Loads<K, V> {
    pub(crate) fn new() -> Self {
        Loads {
            load_timeout: NEVER,
            wait_timeout: NEVER,
            detached: false,
            spawner: None,
            refresher: None,
            refresh_threads: 2,
            classifiers: Vec::new(),
        }
    }

    fn classify(&self, error: &(dyn Any + Send + Sync)) -> ErrorClass {
        self.classifiers.iter().find_map(|classify| classify(error)).unwrap_or(ErrorClass::Outage)
    }
}

impl<K, V> fmt::Debug for Loads<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loads").field("detached", &self.detached).finish_non_exhaustive()
    }
}
