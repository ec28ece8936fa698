//! The caches that take weights: the value of an entry is its size, and so is its weight.

use crate::subjects::{Hasher, hasher};
use mini_moka::sync::ConcurrentCacheExt;
use quick_cache::sync::DefaultLifecycle;

/// What a cache is built for.
pub struct Budget {
    /// At least 1.
    pub bytes: u64,
    /// How many entries of mean size it has room for: what a user would estimate.
    pub entries: u64,
    /// The greatest weight that will be inserted.
    pub heaviest: u32,
}

/// A cache of sizes by key.
pub trait Subject: Send + Sync {
    const NAME: &'static str;

    fn build(budget: &Budget) -> Self;

    /// Whether `key` is there, looked up the way a hit is counted by the policy.
    fn hit(&self, key: u64) -> bool;

    fn insert(&self, key: u64, size: u32);

    /// Does the maintenance that is still pending, where the subject lets its user ask for it.
    fn settle(&self) {}
}

pub struct Seawall(seawall::Cache<u64, u32, Hasher>);

impl Subject for Seawall {
    const NAME: &'static str = "seawall";

    fn build(budget: &Budget) -> Self {
        let builder = seawall::Cache::builder()
            .max_weight(budget.bytes)
            .estimated_entries(budget.entries)
            .weigher(|_, size: &u32| u64::from(*size))
            .hasher(hasher());
        Seawall(builder.build().expect("a valid configuration"))
    }

    fn hit(&self, key: u64) -> bool {
        self.0.get_with(&key, |_| ()).is_some()
    }

    fn insert(&self, key: u64, size: u32) {
        // A cache may refuse; a bench has nothing to do about it.
        let _ = self.0.insert(key, size);
    }
}

#[derive(Clone)]
struct Size;

impl quick_cache::Weighter<u64, u32> for Size {
    fn weight(&self, _: &u64, size: &u32) -> u64 {
        u64::from(*size)
    }
}

pub struct QuickCache(quick_cache::sync::Cache<u64, u32, Size, Hasher, DefaultLifecycle<u64, u32>>);

impl Subject for QuickCache {
    const NAME: &'static str = "quick_cache";

    fn build(budget: &Budget) -> Self {
        QuickCache(quick_cache::sync::Cache::with(
            budget.entries as usize,
            budget.bytes,
            Size,
            hasher(),
            DefaultLifecycle::default(),
        ))
    }

    fn hit(&self, key: u64) -> bool {
        self.0.get(&key).is_some()
    }

    fn insert(&self, key: u64, size: u32) {
        self.0.insert(key, size);
    }
}

pub struct Moka(moka::sync::Cache<u64, u32, Hasher>);

impl Subject for Moka {
    const NAME: &'static str = "moka";

    fn build(budget: &Budget) -> Self {
        let builder = moka::sync::Cache::builder();
        let builder = builder.max_capacity(budget.bytes).weigher(|_, size: &u32| *size);
        Moka(builder.build_with_hasher(hasher()))
    }

    fn hit(&self, key: u64) -> bool {
        self.0.get(&key).is_some()
    }

    fn insert(&self, key: u64, size: u32) {
        self.0.insert(key, size);
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}

pub struct MiniMoka(mini_moka::sync::Cache<u64, u32, Hasher>);

impl Subject for MiniMoka {
    const NAME: &'static str = "mini_moka";

    fn build(budget: &Budget) -> Self {
        let builder = mini_moka::sync::Cache::builder();
        let builder = builder.max_capacity(budget.bytes).weigher(|_, size: &u32| *size);
        MiniMoka(builder.build_with_hasher(hasher()))
    }

    fn hit(&self, key: u64) -> bool {
        self.0.get(&key).is_some()
    }

    fn insert(&self, key: u64, size: u32) {
        self.0.insert(key, size);
    }

    fn settle(&self) {
        self.0.sync();
    }
}

/// Its weights have 16 bits: they count units that the heaviest entry fits into, rounded up, so
/// that it never holds more bytes than it may.
pub struct TinyUfo {
    cache: tinyufo::TinyUfo<u64, u32>,
    unit: u32,
}

impl Subject for TinyUfo {
    const NAME: &'static str = "tinyufo";

    fn build(budget: &Budget) -> Self {
        let unit = budget.heaviest.div_ceil(u32::from(u16::MAX));
        let units = (budget.bytes / u64::from(unit)) as usize;
        TinyUfo { cache: tinyufo::TinyUfo::new(units, budget.entries as usize), unit }
    }

    fn hit(&self, key: u64) -> bool {
        self.cache.get(&key).is_some()
    }

    fn insert(&self, key: u64, size: u32) {
        drop(self.cache.put(key, size, size.div_ceil(self.unit) as u16));
    }
}

pub struct Foyer(foyer_memory::Cache<u64, u32, Hasher, foyer_memory::CacheProperties>);

impl Subject for Foyer {
    const NAME: &'static str = "foyer";

    fn build(budget: &Budget) -> Self {
        Foyer(
            foyer_memory::CacheBuilder::new(budget.bytes as usize)
                .with_eviction_config(foyer_memory::S3FifoConfig::default())
                .with_weighter(|_: &u64, size: &u32| *size as usize)
                .with_hash_builder(hasher())
                .build(),
        )
    }

    fn hit(&self, key: u64) -> bool {
        self.0.get(&key).is_some()
    }

    fn insert(&self, key: u64, size: u32) {
        drop(self.0.insert(key, size));
    }
}
