//! What is measured: one adaptor per cache or map, all behind [`Subject`].
//!
//! The trait is only ever used as a type parameter, so that every loop is compiled once per
//! subject and the call of the cache can be inlined into it.

mod dashmap;
mod foyer;
mod mini_moka;
mod moka;
mod papaya;
mod quick_cache;
mod scc;
mod seawall;
mod tinyufo;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// What every key of a bench can do.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {}
impl<T: Hash + Eq + Clone + Send + Sync + 'static> Key for T {}

/// What every value of a bench can do.
pub trait Value: Clone + Send + Sync + 'static {}
impl<T: Clone + Send + Sync + 'static> Value for T {}

/// The value of the throughput and latency benches.
pub type Block = Arc<[u64; 4]>;

/// A new [`Block`] for `key`.
#[inline]
pub fn block(key: u64) -> Block {
    Arc::new([key, 1, 2, 3])
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of ours.
    Ours,
    /// A bounded cache of somebody else's.
    Cache,
    /// A map that never evicts.
    Map,
}

/// How an instance is to be built.
#[derive(Clone, Copy)]
pub struct Config {
    /// Entries to keep (of a map: entries to make room for).
    pub capacity: u64,
    /// Time to live of all entries.
    pub ttl: Option<Duration>,
}

impl Config {
    pub fn entries(capacity: u64) -> Self {
        Config { capacity, ttl: None }
    }
}

pub trait Subject<K: Key, V: Value>: Send + Sync + 'static {
    const NAME: &'static str;
    const KIND: Kind;
    /// Whether entries can have a time to live.
    const TTL: bool = false;
    /// Whether [`Subject::read_many`] is more than a loop.
    const MANY: bool = false;

    fn build(config: &Config) -> Self;

    /// Looks `key` up the way a hit is counted by the policy and lets `f` see the value.
    fn read<R>(&self, key: &K, f: impl FnOnce(&V) -> R) -> Option<R>;

    /// Looks all the keys up and lets `f` see each value found.
    #[inline]
    fn read_many(&self, keys: &[K], mut f: impl FnMut(&V)) {
        for key in keys {
            self.read(key, &mut f);
        }
    }

    /// Inserts or replaces.
    fn insert(&self, key: K, value: V);

    /// Does the maintenance that is still pending, where the subject lets its user ask for it.
    fn settle(&self) {}
}

/// The hasher of every subject that takes one; fixed, so that runs can be repeated.
pub type Hasher = ahash::RandomState;

pub fn hasher() -> Hasher {
    Hasher::with_seeds(0x5ea_3a11, 0x0c0f_fee0, 0xb1ea_c4ed, 0x7e57_ab1e)
}

/// Something to be done with each subject.
pub trait Visit<K: Key, V: Value> {
    fn visit<S: Subject<K, V>>(&mut self);
}

/// Shows `visitor` every subject, ours first.
pub fn each<K: Key, V: Value>(visitor: &mut impl Visit<K, V>) {
    visitor.visit::<seawall::Seawall<K, V>>();
    visitor.visit::<seawall::SeawallClone<K, V>>();
    visitor.visit::<seawall::SeawallMany<K, V>>();
    visitor.visit::<quick_cache::QuickCache<K, V>>();
    visitor.visit::<moka::Moka<K, V>>();
    visitor.visit::<mini_moka::MiniMoka<K, V>>();
    visitor.visit::<tinyufo::TinyUfo<K, V>>();
    visitor.visit::<foyer::Foyer<K, V>>();
    visitor.visit::<scc::Scc<K, V>>();
    visitor.visit::<dashmap::DashMap<K, V>>();
    visitor.visit::<papaya::Papaya<K, V>>();
    visitor.visit::<papaya::PapayaClone<K, V>>();
}

/// The names of all subjects.
pub fn names() -> Vec<&'static str> {
    struct Names(Vec<&'static str>);
    impl Visit<u64, u64> for Names {
        fn visit<S: Subject<u64, u64>>(&mut self) {
            self.0.push(S::NAME);
        }
    }
    let mut names = Names(Vec::new());
    each(&mut names);
    names.0
}
