//! The rights to load and to wait, given back on every path.

use std::fmt;
use std::sync::Arc;

use super::breaker::Pass;
use super::{Limits, Priority};

/// How a load ended, as the breaker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Classified {
    /// The origin did its work.
    Success,
    /// The origin is to blame: an error, a timeout of the load itself.
    Failure,
    /// Says nothing about the origin: the user's classification, "not found", a refusal of our own.
    Ignored,
}

/// The right to have one load in flight. Given back by drop, on every path.
///
/// Dropped without a result (a panic, a caller that left), the load counts as cancelled: never as a
/// failure. What is leaked with [`std::mem::forget`] is never given back.
#[must_use = "dropped at once, it counts as a cancelled load"]
pub struct Permit {
    limits: Arc<Limits>,
    priority: Priority,
    started: u64,
    /// `None` once the result is known.
    pass: Option<Pass>,
}

impl Permit {
    /// Of a permit already taken from the pool.
    pub(super) fn new(limits: &Arc<Limits>, priority: Priority, started: u64, pass: Pass) -> Self {
        Permit { limits: Arc::clone(limits), priority, started, pass: Some(pass) }
    }

    /// Tells the breaker how the load ended, then gives the permit back. Reads the clock only if there is a
    /// breaker that watches the load.
    pub(crate) fn finish(mut self, result: Classified, now: impl FnOnce() -> u64) {
        let watched = self.pass.is_some_and(Pass::is_watched);
        let now = if watched { now() } else { self.started };
        if let Some(pass) = self.pass.take() {
            let took = now.saturating_sub(self.started);
            self.limits.ended(pass, result, took, now);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.limits.cancelled(pass);
        }
        self.limits.give_permit_back(self.priority);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("priority", &self.priority)
            .field("started", &self.started)
            .finish_non_exhaustive()
    }
}

/// One caller's place among those that wait for loads of others. Given back by drop.
#[must_use = "dropped at once, it keeps no place"]
pub struct Place {
    limits: Arc<Limits>,
}

impl Place {
    /// Of a place already taken from the pool.
    pub(super) fn new(limits: &Arc<Limits>) -> Self {
        Place { limits: Arc::clone(limits) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limits.give_place_back();
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}
