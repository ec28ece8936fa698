//! `foyer_memory::Cache` with S3-FIFO, its number of shards left alone. A read is a counted
//! handle on the entry. No runtime is involved in `get` and `insert`.

use super::{Config, Hasher, Key, Kind, Subject, Value, hasher};
use foyer_memory::{Cache, CacheBuilder, CacheProperties, S3FifoConfig};

pub struct Foyer<K: Key, V: Value>(Cache<K, V, Hasher, CacheProperties>);

impl<K: Key, V: Value> Subject<K, V> for Foyer<K, V> {
    const NAME: &'static str = "foyer";
    const KIND: Kind = Kind::Cache;

    fn build(config: &Config) -> Self {
        Foyer(
            CacheBuilder::new(config.capacity as usize)
                .with_eviction_config(S3FifoConfig::default())
                .with_hash_builder(hasher())
                .build(),
        )
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get(key).map(|entry| f(entry.value()))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        drop(self.0.insert(key, value));
    }
}
