//! `dashmap::DashMap`, a plain map, read under its shard lock.

use super::{Config, Hasher, Key, Kind, Subject, Value, hasher};

pub struct DashMap<K, V>(dashmap::DashMap<K, V, Hasher>);

impl<K: Key, V: Value> Subject<K, V> for DashMap<K, V> {
    const NAME: &'static str = "dashmap";
    const KIND: Kind = Kind::Map;

    fn build(config: &Config) -> Self {
        DashMap(dashmap::DashMap::with_capacity_and_hasher(config.capacity as usize, hasher()))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get(key).map(|entry| f(entry.value()))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.insert(key, value);
    }
}
