//! `papaya::HashMap`, a plain map, read in two ways; one pin per operation.

use super::{Config, Hasher, Key, Kind, Subject, Value, hasher};
use papaya::HashMap;

fn map<K: Key, V: Value>(config: &Config) -> HashMap<K, V, Hasher> {
    HashMap::builder().capacity(config.capacity as usize).hasher(hasher()).build()
}

/// Reads by reference, under the pin.
pub struct Papaya<K, V>(HashMap<K, V, Hasher>);

impl<K: Key, V: Value> Subject<K, V> for Papaya<K, V> {
    const NAME: &'static str = "papaya";
    const KIND: Kind = Kind::Map;

    fn build(config: &Config) -> Self {
        Papaya(map(config))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.pin().get(key).map(f)
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.pin().insert(key, value);
    }
}

/// Reads a clone of the value.
pub struct PapayaClone<K, V>(HashMap<K, V, Hasher>);

impl<K: Key, V: Value> Subject<K, V> for PapayaClone<K, V> {
    const NAME: &'static str = "papaya-clone";
    const KIND: Kind = Kind::Map;

    fn build(config: &Config) -> Self {
        PapayaClone(map(config))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        let value = self.0.pin().get(key).cloned();
        value.map(|value| f(&value))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.pin().insert(key, value);
    }
}
