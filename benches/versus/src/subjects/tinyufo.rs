//! `tinyufo::TinyUfo`. Reads clone the value. It takes no hasher: its own is ahash, seeded at
//! random.

use super::{Config, Key, Kind, Subject, Value};

pub struct TinyUfo<K: Key, V: Value>(tinyufo::TinyUfo<K, V>);

impl<K: Key, V: Value> Subject<K, V> for TinyUfo<K, V> {
    const NAME: &'static str = "tinyufo";
    const KIND: Kind = Kind::Cache;

    fn build(config: &Config) -> Self {
        let capacity = config.capacity as usize;
        TinyUfo(tinyufo::TinyUfo::new(capacity, capacity))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get(key).map(|value| f(&value))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        drop(self.0.put(key, value, 1));
    }
}
