//! The rights to load and to wait, given back on every path.

use std::ops::Deref;
use std::sync::Arc;

use super::Limits;
use super::breaker::Pass;
use super::pool::Taken;

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

/// What a permit consists of. Made a [`Permit`] at the latest when the load ends: until then nobody need
/// refer to the limits, whose count of references would be a line that the loads of all keys write.
#[must_use = "what was taken has to be given back"]
#[derive(Debug)]
pub(crate) struct Admission {
    taken: Taken,
    started: u64,
    pass: Pass,
}

impl Admission {
    /// Of a permit already taken from the pool.
    pub(super) fn new(taken: Taken, started: u64, pass: Pass) -> Self {
        Admission { taken, started, pass }
    }
}

/// The right to have one load in flight. Given back by drop, on every path.
///
/// Dropped without a result (a panic, a caller that left), the load counts as cancelled: never as a
/// failure. What is leaked with [`std::mem::forget`] is never given back.
#[must_use = "dropped at once, it counts as a cancelled load"]
#[derive(Debug)]
pub(crate) struct Permit<L: Deref<Target = Limits> = Arc<Limits>> {
    limits: L,
    admission: Admission,
    /// The breaker knows the result.
    told: bool,
}

impl<L: Deref<Target = Limits>> Permit<L> {
    pub(crate) fn new(limits: L, admission: Admission) -> Self {
        Permit { limits, admission, told: false }
    }

    /// Tells the breaker how the load ended, then gives the permit back. Reads the clock only if there is a
    /// breaker that watches the load.
    pub(crate) fn finish(mut self, result: Classified, now: impl FnOnce() -> u64) {
        let Admission { pass, started, .. } = self.admission;
        let now = if pass.is_watched() { now() } else { started };
        self.told = true;
        self.limits.ended(pass, result, now.saturating_sub(started), now);
    }
}

impl<L: Deref<Target = Limits>> Drop for Permit<L> {
    fn drop(&mut self) {
        if !self.told {
            self.limits.cancelled(self.admission.pass);
        }
        self.limits.give_permit_back(self.admission.taken);
    }
}

/// One caller's place among those that wait for loads of others. Given back by drop.
#[must_use = "dropped at once, it keeps no place"]
#[derive(Debug)]
pub(crate) struct Place<L: Deref<Target = Limits> = Arc<Limits>> {
    limits: L,
    taken: Taken,
}

impl<L: Deref<Target = Limits>> Place<L> {
    /// Of a place already taken from the pool.
    pub(super) fn new(limits: L, taken: Taken) -> Self {
        Place { limits, taken }
    }
}

impl<L: Deref<Target = Limits>> Drop for Place<L> {
    fn drop(&mut self) {
        self.limits.give_place_back(self.taken);
    }
}
