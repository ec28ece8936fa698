//! What a reader sees of an entry.

use std::fmt;
use std::time::Duration;

use crate::engine::View;
use crate::freshness::Freshness;

/// Whether a value is still fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryState {
    /// Before its soft deadline, or without one.
    Fresh,
    /// After its soft deadline, inside the stale-while-revalidate window.
    Stale,
    /// After that, inside the stale-if-error window: it may only stand in for an error.
    StaleOnError,
}

/// An entry as it was found, borrowed from the cache while a pin is held.
///
/// It stays as it is, whatever other threads do to the key meanwhile. Holding it for long keeps
/// replaced and removed values of all caches of this crate in the process from being freed; it keeps
/// nobody from doing anything.
pub struct Entry<'a, K, V>(View<'a, K, V>);

impl<'a, K, V> Entry<'a, K, V> {
    #[inline]
    pub(crate) fn new(view: View<'a, K, V>) -> Self {
        Entry(view)
    }

    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &'a K {
        self.0.node.key()
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> &'a V {
        self.0.node.value()
    }

    /// Returns whether the value was fresh when it was looked up.
    pub fn state(&self) -> EntryState {
        match self.0.judgement.freshness {
            Freshness::Fresh => EntryState::Fresh,
            Freshness::Stale => EntryState::Stale,
            Freshness::StaleOnError => EntryState::StaleOnError,
            Freshness::Dead => unreachable!("the dead are not shown"),
        }
    }

    /// Returns how old the value was when it was looked up, counting the age that it was inserted
    /// with. `None` for entries that were inserted without a deadline, age, version or tag: for these no
    /// time is kept.
    pub fn age(&self) -> Option<Duration> {
        self.0.age()
    }

    /// Returns how long the value was still fresh when it was looked up (zero if it was stale), or
    /// `None` if it has no deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.remaining()
    }

    /// Returns the version that the value was inserted with.
    pub fn version(&self) -> Option<u64> {
        self.0.judgement.version()
    }

    /// Returns whether it is time to load the value anew: it is stale, or its moment for an early
    /// refresh has come; see [`Builder::early_refresh`](crate::Builder::early_refresh).
    pub fn is_refresh_due(&self) -> bool {
        self.0.is_refresh_due()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Entry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", self.key())
            .field("value", self.value())
            .field("state", &self.state())
            .finish()
    }
}
