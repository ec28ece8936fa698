//! `scc::HashCache`, read with `get_sync`: the read that keeps its LRU order (`read_sync` does
//! not). It rounds the capacity up to a power of two.

use super::{Config, Hasher, Key, Kind, Subject, Value, hasher};
use scc::hash_cache::{Entry, HashCache};

pub struct Scc<K, V>(HashCache<K, V, Hasher>);

impl<K: Key, V: Value> Subject<K, V> for Scc<K, V> {
    const NAME: &'static str = "scc";
    const KIND: Kind = Kind::Cache;

    fn build(config: &Config) -> Self {
        Scc(HashCache::with_capacity_and_hasher(0, config.capacity as usize, hasher()))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get_sync(key).map(|entry| f(entry.get()))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        match self.0.entry_sync(key) {
            Entry::Occupied(mut entry) => *entry.get_mut() = value,
            Entry::Vacant(entry) => drop(entry.put_entry(value)),
        }
    }
}
