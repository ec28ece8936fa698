//! What coalesces loads: each subject's own get-or-load, blocking and async.
//!
//! quick_cache's `get_or_insert_with` and `get_or_insert_async` are its `get_value_or_guard` and
//! `get_value_or_guard_async` with the guard filled, so these stand for both.

use crate::subjects::{Hasher, Value};
use ahash::RandomState;
use quick_cache::UnitWeighter;
use quick_cache::sync::DefaultLifecycle;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use tokio::sync::OnceCell;

fn hasher() -> Hasher {
    RandomState::with_seeds(0x5ea_3a11, 0x0c0f_fee0, 0xb1ea_c4ed, 0x7e57_ab1e)
}

/// Loads on the calling thread; callers of the same key wait for the first one.
pub trait Blocking<V: Value>: Send + Sync + 'static {
    const NAME: &'static str;

    fn build(capacity: u64) -> Self;
    fn get(&self, key: u64, origin: impl FnOnce() -> V) -> V;
}

/// Loads by a future; callers of the same key wait for the first one's.
pub trait Shared<V: Value>: Send + Sync + 'static {
    /// What a call returns; in it the value.
    type Answer: Send;

    fn build(capacity: u64) -> Self;
    fn get<F: Future<Output = V> + Send + 'static>(
        &'static self,
        key: &'static u64,
        origin: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Self::Answer> + Send + 'static;
    fn value(answer: Self::Answer) -> V;
}

fn seawall<V: Value>(capacity: u64) -> seawall::Cache<u64, V, Hasher> {
    let builder = seawall::Cache::builder().max_entries(capacity).hasher(hasher());
    builder.build().expect("a valid configuration")
}

pub struct Seawall<V: Value>(seawall::Cache<u64, V, Hasher>);

impl<V: Value> Blocking<V> for Seawall<V> {
    const NAME: &'static str = "seawall";

    fn build(capacity: u64) -> Self {
        Seawall(seawall(capacity))
    }

    #[inline]
    fn get(&self, key: u64, origin: impl FnOnce() -> V) -> V {
        self.0.get_or_load(&key, origin).expect("the origin does not fail")
    }
}

impl<V: Value> Shared<V> for Seawall<V> {
    type Answer = Result<V, seawall::LoadError<Infallible>>;

    fn build(capacity: u64) -> Self {
        Seawall(seawall(capacity))
    }

    fn get<F: Future<Output = V> + Send + 'static>(
        &'static self,
        key: &'static u64,
        origin: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Self::Answer> + Send + 'static {
        self.0.get_or_load_async(key, origin)
    }

    fn value(answer: Self::Answer) -> V {
        answer.expect("the origin does not fail")
    }
}

/// Reads that never load: what a hit costs without the possibility.
pub struct SeawallGetWith<V: Value>(seawall::Cache<u64, V, Hasher>);

impl<V: Value> Blocking<V> for SeawallGetWith<V> {
    const NAME: &'static str = "seawall-get_with";

    fn build(capacity: u64) -> Self {
        SeawallGetWith(seawall(capacity))
    }

    #[inline]
    fn get(&self, key: u64, origin: impl FnOnce() -> V) -> V {
        self.0.get_with(&key, |entry| entry.value().clone()).unwrap_or_else(|| {
            let value = origin();
            let _ = self.0.insert(key, value.clone());
            value
        })
    }
}

pub struct QuickCache<V>(
    quick_cache::sync::Cache<u64, V, UnitWeighter, Hasher, DefaultLifecycle<u64, V>>,
);

impl<V: Value> QuickCache<V> {
    fn new(capacity: u64) -> Self {
        QuickCache(quick_cache::sync::Cache::with(
            capacity as usize,
            capacity,
            UnitWeighter,
            hasher(),
            DefaultLifecycle::default(),
        ))
    }
}

fn good<V>(result: Result<V, Infallible>) -> V {
    let Ok(value) = result;
    value
}

impl<V: Value> Blocking<V> for QuickCache<V> {
    const NAME: &'static str = "quick_cache";

    fn build(capacity: u64) -> Self {
        QuickCache::new(capacity)
    }

    #[inline]
    fn get(&self, key: u64, origin: impl FnOnce() -> V) -> V {
        good(self.0.get_or_insert_with(&key, || Ok(origin())))
    }
}

impl<V: Value> Shared<V> for QuickCache<V> {
    type Answer = Result<V, Infallible>;

    fn build(capacity: u64) -> Self {
        QuickCache::new(capacity)
    }

    fn get<F: Future<Output = V> + Send + 'static>(
        &'static self,
        key: &'static u64,
        origin: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Self::Answer> + Send + 'static {
        self.0.get_or_insert_async(key, async { Ok(origin().await) })
    }

    fn value(answer: Self::Answer) -> V {
        good(answer)
    }
}

pub struct Moka<V>(moka::sync::Cache<u64, V, Hasher>);

impl<V: Value> Blocking<V> for Moka<V> {
    const NAME: &'static str = "moka";

    fn build(capacity: u64) -> Self {
        Moka(moka::sync::Cache::builder().max_capacity(capacity).build_with_hasher(hasher()))
    }

    #[inline]
    fn get(&self, key: u64, origin: impl FnOnce() -> V) -> V {
        self.0.get_with(key, origin)
    }
}

pub struct MokaFuture<V>(moka::future::Cache<u64, V, Hasher>);

impl<V: Value> Shared<V> for MokaFuture<V> {
    type Answer = V;

    fn build(capacity: u64) -> Self {
        let builder = moka::future::Cache::builder().max_capacity(capacity);
        MokaFuture(builder.build_with_hasher(hasher()))
    }

    fn get<F: Future<Output = V> + Send + 'static>(
        &'static self,
        key: &'static u64,
        origin: impl FnOnce() -> F + Send + 'static,
    ) -> impl Future<Output = Self::Answer> + Send + 'static {
        self.0.get_with(*key, async { origin().await })
    }

    fn value(answer: V) -> V {
        answer
    }
}

/// The usual home-made one: a map of cells that are filled once. It keeps all.
pub struct Cells<C>(dashmap::DashMap<u64, Arc<C>, Hasher>);

impl<C: Default> Cells<C> {
    fn new(capacity: u64) -> Self {
        Cells(dashmap::DashMap::with_capacity_and_hasher(capacity as usize, hasher()))
    }

    #[inline]
    fn cell(&self, key: u64) -> Arc<C> {
        if let Some(cell) = self.0.get(&key) {
            return Arc::clone(&cell);
        }
        Arc::clone(&self.0.entry(key).or_default())
    }
}

impl<V: Value> Blocking<V> for Cells<OnceLock<V>> {
    const NAME: &'static str = "dashmap";

    fn build(capacity: u64) -> Self {
        Cells::new(capacity)
    }

    #[inline]
    fn get(&self, key: u64, origin: impl FnOnce() -> V) -> V {
        self.cell(key).get_or_init(origin).clone()
    }
}

impl<V: Value> Shared<V> for Cells<OnceCell<V>> {
    type Answer = V;

    fn build(capacity: u64) -> Self {
        Cells::new(capacity)
    }

    async fn get<F: Future<Output = V> + Send + 'static>(
        &'static self,
        key: &'static u64,
        origin: impl FnOnce() -> F + Send + 'static,
    ) -> V {
        let cell = self.cell(*key);
        cell.get_or_init(origin).await.clone()
    }

    fn value(answer: V) -> V {
        answer
    }
}
