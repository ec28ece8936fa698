//! The removal listener: told what left the cache and why, outside every critical step.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why an entry left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// Another value was stored under its key.
    Replaced,
    /// It was removed by [`remove`](crate::Cache::remove) or a compute.
    Removed,
    /// It was invalidated: by key, by predicate, by tag or with all others.
    Invalidated,
    /// Its time had passed.
    Expired,
    /// It was evicted to keep the budget.
    Evicted,
}

type Call<K, V> = dyn Fn(&K, &V, RemovalCause) + Send + Sync;
type Copy<K, V> = fn(&K, &V) -> (K, V);

/// A user's listener, with the way to copy what it is told of: it is called after the operation has
/// unpinned, when the entry itself may be freed.
pub(crate) struct Listener<K, V> {
    call: Box<Call<K, V>>,
    copy: Copy<K, V>,
}

impl<K: Clone, V: Clone> Listener<K, V> {
    pub(crate) fn new(call: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static) -> Self {
        Listener { call: Box::new(call), copy: |key, value| (key.clone(), value.clone()) }
    }
}

/// What one operation will tell the listener.
pub(crate) struct Notices<K, V>(Vec<(K, V, RemovalCause)>);

impl<K, V> Notices<K, V> {
    pub(crate) fn new() -> Self {
        Notices(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(
        &mut self,
        listener: &Listener<K, V>,
        key: &K,
        value: &V,
        cause: RemovalCause,
    ) {
        let (key, value) = (listener.copy)(key, value);
        self.0.push((key, value, cause));
    }

    /// Tells the listener everything; each of its panics goes to `panicked`.
    pub(crate) fn deliver(
        &mut self,
        listener: &Listener<K, V>,
        panicked: impl Fn(Box<dyn Any + Send>),
    ) {
        for (key, value, cause) in std::mem::take(&mut self.0) {
            let told = catch_unwind(AssertUnwindSafe(|| {
                (listener.call)(&key, &value, cause);
                drop((key, value));
            }));
            if let Err(panic) = told {
                panicked(panic);
            }
        }
    }
}
