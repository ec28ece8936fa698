//! The crate under test, read in three ways.

use super::{Config, Hasher, Key, Kind, Subject, Value, hasher};
use seawall::Cache;

fn cache<K: Key, V: Value>(config: &Config) -> Cache<K, V, Hasher> {
    let mut builder = Cache::builder().max_entries(config.capacity).hasher(hasher());
    if let Some(ttl) = config.ttl {
        builder = builder.time_to_live(ttl);
    }
    builder.build().expect("a valid configuration")
}

#[inline]
fn insert<K: Key, V: Value>(cache: &Cache<K, V, Hasher>, key: K, value: V) {
    // A cache may refuse; a bench has nothing to do about it.
    let _ = cache.insert(key, value);
}

/// Reads with a closure, by reference.
pub struct Seawall<K: Key, V: Value>(Cache<K, V, Hasher>);

impl<K: Key, V: Value> Subject<K, V> for Seawall<K, V> {
    const NAME: &'static str = "seawall";
    const KIND: Kind = Kind::Ours;
    const TTL: bool = true;

    fn build(config: &Config) -> Self {
        Seawall(cache(config))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get_with(key, |entry| f(entry.value()))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        insert(&self.0, key, value);
    }
}

/// Reads a clone of the value.
pub struct SeawallClone<K: Key, V: Value>(Cache<K, V, Hasher>);

impl<K: Key, V: Value> Subject<K, V> for SeawallClone<K, V> {
    const NAME: &'static str = "seawall-clone";
    const KIND: Kind = Kind::Ours;
    const TTL: bool = true;

    fn build(config: &Config) -> Self {
        SeawallClone(cache(config))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get(key).map(|value| f(&value))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        insert(&self.0, key, value);
    }
}

/// Reads many keys in one call, by reference.
pub struct SeawallMany<K: Key, V: Value>(Cache<K, V, Hasher>);

impl<K: Key, V: Value> Subject<K, V> for SeawallMany<K, V> {
    const NAME: &'static str = "seawall-many";
    const KIND: Kind = Kind::Ours;
    const TTL: bool = true;
    const MANY: bool = true;

    fn build(config: &Config) -> Self {
        SeawallMany(cache(config))
    }

    #[inline]
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get_with(key, |entry| f(entry.value()))
    }

    #[inline]
    fn read_many(&self, keys: &[K], mut f: impl FnMut(&V)) {
        self.0.get_many_with(keys, |_, entry| {
            if let Some(entry) = entry {
                f(entry.value());
            }
        });
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        insert(&self.0, key, value);
    }
}
