//! The flights of a [`Group`](super::Group) or of an [`OriginGuard`](crate::guard::OriginGuard), by key.
//!
//! A map from hashes to short lists of entries that are never changed, only replaced as a whole by a list
//! made from the very one that was seen. So the map's locks are held for a few instructions, and never
//! while keys are compared, entries dropped or waiters woken: that may run the user's code.
//!
//! **An entry is taken out by identity.** A flight that ends late never takes its successor's entry out.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as Place;
use equivalent::Equivalent;

use super::Flight;

/// One key's flight.
#[derive(Debug)]
pub(crate) struct Entry<K, T> {
    hash: u64,
    key: K,
    flight: Arc<Flight<T>>,
}

impl<K, T> Entry<K, T> {
    pub(crate) fn new(hash: u64, key: K, started: u64) -> Arc<Self> {
        Arc::new(Entry { hash, key, flight: Flight::new(started) })
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    pub(crate) fn flight(&self) -> &Arc<Flight<T>> {
        &self.flight
    }
}

/// All entries of one hash.
type List<K, T> = Arc<[Arc<Entry<K, T>>]>;

/// What is known of a key, and what it was found in.
pub(crate) struct Seen<K, T> {
    list: Option<List<K, T>>,
    /// Where in the list the key is.
    place: Option<usize>,
}

impl<K, T> Seen<K, T> {
    pub(crate) fn entry(&self) -> Option<&Arc<Entry<K, T>>> {
        self.list.as_ref()?.get(self.place?)
    }

    /// The list without the key's entry, and with another one.
    fn with(&self, new: Option<&Arc<Entry<K, T>>>) -> Option<List<K, T>> {
        let others = self.list.iter().flat_map(|list| list.iter().enumerate());
        let others = others.filter(|(place, _)| Some(*place) != self.place).map(|(_, entry)| entry);
        let list: List<K, T> = others.chain(new).map(Arc::clone).collect();
        (!list.is_empty()).then_some(list)
    }
}

/// Takes a hash for its own.
#[derive(Clone, Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are hashes");
    }

    fn write_u64(&mut self, hash: u64) {
        // The map takes its shards from other bits than its buckets.
        self.0 = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

type BuildHashed = std::hash::BuildHasherDefault<Hashed>;

pub(crate) struct Registry<K, T, S> {
    lists: DashMap<u64, List<K, T>, BuildHashed>,
    hasher: S,
}

impl<K, T, S> fmt::Debug for Registry<K, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl<K, T, S> Registry<K, T, S> {
    pub(crate) fn new(hasher: S) -> Self {
        Registry { lists: DashMap::with_hasher(BuildHashed::default()), hasher }
    }

    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        self.hasher.hash_one(key)
    }

    fn list(&self, hash: u64) -> Option<List<K, T>> {
        self.lists.get(&hash).map(|list| Arc::clone(&list))
    }

    /// Looks a key up. Runs its comparison, holding nothing.
    pub(crate) fn look<Q>(&self, hash: u64, key: &Q) -> Seen<K, T>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let list = self.list(hash);
        let same = |entry: &Arc<Entry<K, T>>| key.equivalent(&entry.key);
        let place = list.as_ref().and_then(|list| list.iter().position(same));
        Seen { list, place }
    }

    /// Enters a flight in place of what was seen for its key. Fails if anything has changed.
    pub(crate) fn enter(&self, seen: &Seen<K, T>, new: &Arc<Entry<K, T>>) -> bool {
        self.change(new.hash, seen.list.as_ref(), seen.with(Some(new)))
    }

    /// Takes an entry out, if it is still there.
    pub(crate) fn remove(&self, entry: &Arc<Entry<K, T>>) -> bool {
        loop {
            let list = self.list(entry.hash);
            let same = |other: &Arc<Entry<K, T>>| Arc::ptr_eq(other, entry);
            let place = list.as_ref().and_then(|list| list.iter().position(same));
            let seen = Seen { list, place };
            if place.is_none() {
                return false;
            }
            if self.change(entry.hash, seen.list.as_ref(), seen.with(None)) {
                return true;
            }
        }
    }

    /// Puts a list in the place of the one that was seen. One that is held cannot be freed and its address
    /// come back, so the same address means: unchanged.
    fn change(&self, hash: u64, from: Option<&List<K, T>>, to: Option<List<K, T>>) -> bool {
        // What is replaced is dropped when the map is free again: it may be the last reference to a key.
        let (changed, _old) = match (self.lists.entry(hash), from) {
            (Place::Occupied(mut place), Some(from)) if Arc::ptr_eq(place.get(), from) => {
                match to {
                    Some(to) => (true, Some(place.insert(to))),
                    None => (true, Some(place.remove())),
                }
            }
            (Place::Vacant(place), None) => {
                if let Some(to) = to {
                    place.insert(to);
                }
                (true, None)
            }
            _ => (false, None),
        };
        changed
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }
}
