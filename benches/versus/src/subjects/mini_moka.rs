//! `mini_moka::sync::Cache`. Reads clone the value: it has no other way.

use super::{Config, Hasher, Key, Kind, Subject, Value, hasher};
use mini_moka::sync::{Cache, ConcurrentCacheExt};

pub struct MiniMoka<K, V>(Cache<K, V, Hasher>);

impl<K: Key, V: Value> Subject<K, V> for MiniMoka<K, V> {
    const NAME: &'static str = "mini_moka";
    const KIND: Kind = Kind::Cache;
    const TTL: bool = true;

    fn build(config: &Config) -> Self {
        let mut builder = Cache::builder().max_capacity(config.capacity);
        if let Some(ttl) = config.ttl {
            builder = builder.time_to_live(ttl);
        }
        MiniMoka(builder.build_with_hasher(hasher()))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get(key).map(|value| f(&value))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.insert(key, value);
    }

    fn settle(&self) {
        self.0.sync();
    }
}
