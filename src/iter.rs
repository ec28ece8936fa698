//! Walking over all entries.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::cache::{Cache, Pinned};
use crate::entry::Entry;
use crate::table::reclaim::pin;

/// Copies of a cache's entries; made by [`Cache::iter`].
///
/// Holds no pin and no lock between two calls of `next`: it may be kept, forgotten, or sent to another
/// thread, and the cache may be changed meanwhile. An entry that is in the cache from the first call
/// to the last is returned exactly once, also if it is replaced (then either value is returned) and
/// while the table grows; one that comes or goes meanwhile at most once in each of its lives.
pub struct Iter<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    /// Where the next bucket begins.
    next: Option<u64>,
    ready: std::vec::IntoIter<(K, V)>,
}

impl<'c, K, V, S> Iter<'c, K, V, S> {
    pub(crate) fn new(cache: &'c Cache<K, V, S>) -> Self {
        Iter { cache, next: Some(0), ready: Vec::new().into_iter() }
    }
}

impl<K, V, S> Iterator for Iter<'_, K, V, S>
where
    K: Hash + Eq + Clone,
    V: Clone,
    S: BuildHasher,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(entry);
            }
            let hash = self.next?;
            let guard = pin();
            let mut ready = Vec::new();
            self.next = self.cache.engine().visit(hash, &guard, |view| {
                let entry = Entry::new(view);
                ready.push((entry.key().clone(), entry.value().clone()));
            });
            self.ready = ready.into_iter();
        }
    }
}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// A cache's entries under one pin; made by [`Pinned::iter`]. Promises what [`Iter`] promises.
pub struct PinnedIter<'p, K, V, S> {
    pinned: &'p Pinned<'p, K, V, S>,
    next: Option<u64>,
    ready: std::vec::IntoIter<Entry<'p, K, V>>,
}

impl<'p, K, V, S> PinnedIter<'p, K, V, S> {
    pub(crate) fn new(pinned: &'p Pinned<'p, K, V, S>) -> Self {
        PinnedIter { pinned, next: Some(0), ready: Vec::new().into_iter() }
    }
}

impl<'p, K, V, S> Iterator for PinnedIter<'p, K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    type Item = Entry<'p, K, V>;

    fn next(&mut self) -> Option<Entry<'p, K, V>> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(entry);
            }
            let hash = self.next?;
            let mut ready = Vec::new();
            let (engine, guard) = self.pinned.parts();
            self.next = engine.visit(hash, guard, |view| ready.push(Entry::new(view)));
            self.ready = ready.into_iter();
        }
    }
}

impl<K, V, S> fmt::Debug for PinnedIter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedIter").finish_non_exhaustive()
    }
}
