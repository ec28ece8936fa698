//! A Bloom filter in front of the loader: keys that certainly do not exist are not asked for.

use std::fmt;
use std::sync::Arc;

use crate::bloom::{Answer, BloomKey, RebuildingFilter};

/// A user's filter, and how a key is looked up in it.
pub(crate) struct Screen<K> {
    filter: Arc<RebuildingFilter>,
    hash: fn(&RebuildingFilter, &K) -> u128,
}

impl<K> fmt::Debug for Screen<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").finish_non_exhaustive()
    }
}

impl<K> Screen<K> {
    pub(crate) fn new(filter: Arc<RebuildingFilter>) -> Self
    where
        K: BloomKey,
    {
        Screen { filter, hash: |filter, key| filter.hash(key) }
    }

    pub(crate) fn check(&self, key: &K) -> Answer {
        self.filter.check_hash((self.hash)(&self.filter, key))
    }

    /// Notes that a key exists.
    pub(crate) fn teach(&self, key: &K) {
        self.filter.insert_hash((self.hash)(&self.filter, key));
    }
}
