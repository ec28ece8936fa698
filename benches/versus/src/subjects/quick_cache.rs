//! `quick_cache::sync::Cache`. Reads clone the value: it has no other way.

use super::{Config, Hasher, Key, Kind, Subject, Value, hasher};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

pub struct QuickCache<K, V>(Cache<K, V, UnitWeighter, Hasher, DefaultLifecycle<K, V>>);

impl<K: Key, V: Value> Subject<K, V> for QuickCache<K, V> {
    const NAME: &'static str = "quick_cache";
    const KIND: Kind = Kind::Cache;

    fn build(config: &Config) -> Self {
        QuickCache(Cache::with(
            config.capacity as usize,
            config.capacity,
            UnitWeighter,
            hasher(),
            DefaultLifecycle::default(),
        ))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get(key).map(|value| f(&value))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.insert(key, value);
    }
}
