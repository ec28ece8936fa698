//! The public face: reads, writes, invalidation.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use equivalent::Equivalent;
use futures_core::Stream;

use crate::builder::Builder;
use crate::engine::{self, Config, Count, Decision, Engine, Rule, Stored, View};
use crate::entry::{Entry, EntryState};
use crate::error::{ConfigError, Refused};
use crate::freshness::Freshness;
use crate::guard::Limits;
use crate::iter::{Iter, PinnedIter};
use crate::listener::RemovalCause;
use crate::load::{
    Core, IntoLoad, KeyStream, LoadError, LoadRequest, LoadStats, Loads, Outcome, WarmUp, bulk,
};
use crate::options::InsertOptions;
use crate::stats::Stats;
use crate::table::reclaim::{Guard, pin};

/// A concurrent, bounded cache.
///
/// A handle is one pointer: clone it, and share it between threads and tasks. No method takes a lock
/// or waits for another thread, whatever the others are doing or wherever they have been stopped.
///
/// Keys are looked up by any form that is [`Equivalent`] to them and hashes as they do (`str` for
/// `String`, say).
///
/// ```
/// use seawall::Cache;
///
/// let cache: Cache<String, u64> = Cache::new(1_000);
/// cache.insert("answer".to_owned(), 42)?;
/// assert_eq!(cache.get("answer"), Some(42));
/// assert_eq!(cache.get_with("answer", |entry| entry.value() + 1), Some(43));
/// assert_eq!(cache.remove("answer"), Some(42));
/// # Ok::<(), seawall::Refused<u64>>(())
/// ```
pub struct Cache<K, V, S = ahash::RandomState> {
    core: Arc<Core<K, V, S>>,
}

/// What became of a value that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Inserted {
    /// It was stored under a key that was not there, or whose entry was dead.
    New,
    /// It replaced a live value.
    Replaced,
    /// It was dropped: the capacity is zero, or (with a hash function that puts more than 24 keys in
    /// one place) there was no room for it.
    NotKept,
}

/// What is to become of an entry; returned by the closure of [`Cache::compute`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Compute<V> {
    /// Leave it as it is.
    Keep,
    /// Store this value in its place.
    Insert(V),
    /// Store this value with options of its own.
    InsertWith(V, InsertOptions),
    /// Take it out.
    Remove,
}

/// What [`Cache::compute`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Computed {
    /// Nothing: [`Compute::Keep`], or [`Compute::Remove`] of an absent key.
    Kept,
    /// The entry was taken out.
    Removed,
    /// A value was stored.
    Inserted(Inserted),
}

impl From<Stored> for Inserted {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::New => Inserted::New,
            Stored::Replaced => Inserted::Replaced,
            Stored::NotKept => Inserted::NotKept,
        }
    }
}

impl<K, V> Cache<K, V> {
    /// Returns settings to make a cache from.
    pub fn builder() -> Builder<K, V> {
        Builder::new()
    }

    /// Returns a cache of up to `max_entries` entries without deadlines.
    ///
    /// # Panics
    /// If there is not enough memory for the table; use the [`builder`](Self::builder) to get an error
    /// instead.
    pub fn new(max_entries: u64) -> Self
    where
        K: Hash + Eq,
    {
        Self::builder().max_entries(max_entries).build().expect("memory for the table")
    }
}

impl<K, V, S> Cache<K, V, S> {
    #[inline]
    pub(crate) fn engine(&self) -> &Engine<K, V, S> {
        &self.core.engine
    }

    /// Returns the limits in front of the origin, to read and to change while the cache is in use.
    pub fn limits(&self) -> &Limits {
        &self.core.engine.limits
    }

    /// Returns what this cache's loads have done and are doing.
    pub fn load_stats(&self) -> LoadStats {
        let limits = self.limits();
        LoadStats {
            in_flight: limits.in_flight(),
            waiting: limits.waiters(),
            ..self.core.report.snapshot()
        }
    }
}

impl<K, V, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Self {
        Cache { core: Arc::clone(&self.core) }
    }
}

/// What a plain read may return.
#[inline]
fn served<'g, K, V>(view: View<'g, K, V>) -> Option<Entry<'g, K, V>> {
    matches!(view.judgement.freshness, Freshness::Fresh | Freshness::Stale)
        .then(|| Entry::new(view))
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    pub(crate) fn from_config(
        config: Config<K, V, S>,
        loads: Loads<K, V>,
    ) -> Result<Self, ConfigError> {
        Ok(Cache { core: Arc::new(Core::new(Engine::new(config)?, loads)) })
    }

    /// Returns a copy of a key's value: fresh, or stale inside the stale-while-revalidate window.
    ///
    /// For values that are expensive to clone use [`get_with`](Self::get_with), or an `Arc`. Cloning an
    /// `Arc` writes to a line that all cores share; for a very hot key `get_with` is several times
    /// faster. Runs `Hash`, `Equivalent` and `Clone`, nothing else; allocates nothing itself.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.get_with(key, |entry| entry.value().clone())
    }

    /// Calls a closure with a key's entry and returns what it returns: the cheapest way to read one
    /// value. `None` if there is nothing that [`get`](Self::get) would return.
    ///
    /// The closure runs while the thread is pinned: the longer it takes, the longer replaced and
    /// removed values wait to be freed. It may block and call the cache all the same.
    #[inline]
    pub fn get_with<Q, R>(&self, key: &Q, read: impl FnOnce(Entry<'_, K, V>) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.engine().hash(key);
        let guard = pin();
        self.engine().lookup(key, hash, Count::Use, &guard, |view| Some(read(served(view)?)))
    }

    /// Returns a copy of a key's value even if it may only stand in for an error: fresh, or inside
    /// either stale window. Leaves no trace in the eviction policy or the statistics.
    pub fn get_on_error<Q>(&self, key: &Q) -> Option<(V, EntryState)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        let hash = self.engine().hash(key);
        let guard = pin();
        self.engine().lookup(key, hash, Count::Nothing, &guard, |view| {
            let entry = Entry::new(view);
            Some((entry.value().clone(), entry.state()))
        })
    }

    /// Pins the thread, for several reads under one pin.
    ///
    /// The session cannot be sent to another thread, so it cannot be held across an `.await` of a
    /// task that moves between threads. Drop it soon, or [`repin`](Pinned::repin): while it is held,
    /// nothing that any cache of this crate in the process retires is freed.
    ///
    /// ```
    /// # let cache: seawall::Cache<u32, String> = seawall::Cache::new(10);
    /// # let _ = cache.insert(1, "one".to_owned());
    /// let pinned = cache.pin();
    /// let total: usize =
    ///     [1, 2, 3].iter().filter_map(|key| pinned.get(key)).map(|e| e.value().len()).sum();
    /// assert_eq!(total, 3);
    /// ```
    pub fn pin(&self) -> Pinned<'_, K, V, S> {
        Pinned { engine: self.engine(), guard: pin() }
    }

    /// Returns copies of the values of several keys, in their order.
    ///
    /// Faster than as many calls of [`get`](Self::get): keys are hashed and their places in memory
    /// requested ahead, so that the waits for memory overlap.
    pub fn get_many<'q, Q>(&self, keys: impl IntoIterator<Item = &'q Q>) -> Vec<Option<V>>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'q,
        V: Clone,
    {
        let keys: Vec<&Q> = keys.into_iter().collect();
        let mut values = Vec::with_capacity(keys.len());
        self.read_many::<Q, _>(&keys, |_, entry| {
            values.push(entry.map(|entry| entry.value().clone()));
        });
        values
    }

    /// Calls a closure with each key's position and entry, in the order of the keys; see
    /// [`get_many`](Self::get_many) and [`get_with`](Self::get_with).
    pub fn get_many_with<Q>(&self, keys: &[Q], read: impl FnMut(usize, Option<Entry<'_, K, V>>))
    where
        Q: Hash + Equivalent<K>,
    {
        self.read_many::<Q, _>(keys, read);
    }

    fn read_many<Q, B>(&self, keys: &[B], mut read: impl FnMut(usize, Option<Entry<'_, K, V>>))
    where
        Q: Hash + Equivalent<K> + ?Sized,
        B: AsKey<Q>,
    {
        const AHEAD: usize = 16;
        let mut hashes = [0; AHEAD];
        let mut guard = pin();
        for (chunk, keys) in keys.chunks(AHEAD).enumerate() {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.engine().hash(key.as_key());
                self.engine().prefetch_bucket(*hash);
            }
            for hash in &hashes[..keys.len()] {
                self.engine().prefetch_node(*hash, &guard);
            }
            for (place, (key, hash)) in keys.iter().zip(hashes).enumerate() {
                let entry = self.engine().lookup(key.as_key(), hash, Count::Use, &guard, served);
                read(chunk * AHEAD + place, entry);
            }
            guard.repin();
        }
    }

    /// As [`get`](Self::get), but leaves no trace: not in the eviction policy, the time to idle or the
    /// statistics.
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.peek_with(key, |entry| entry.value().clone())
    }

    /// As [`get_with`](Self::get_with), but leaves no trace; see [`peek`](Self::peek).
    pub fn peek_with<Q, R>(&self, key: &Q, read: impl FnOnce(Entry<'_, K, V>) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.engine().hash(key);
        let guard = pin();
        self.engine().lookup(key, hash, Count::Nothing, &guard, |view| Some(read(served(view)?)))
    }

    /// Returns whether [`peek`](Self::peek) would return a value.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.peek_with(key, |_| ()).is_some()
    }

    /// Stores a value, in place of what the key had before.
    ///
    /// Other threads see either the old or the new value, never neither. Evicts until the budget
    /// holds again. An eviction looks at a few buckets, usually two; at more of them only where nearly all
    /// are empty, after the capacity was lowered or most entries were removed.
    ///
    /// The value it replaces, and what it evicts, is dropped when no thread can be reading it any more: by
    /// this or another thread's later operations that store or remove, by [`sweep`](Self::sweep), or with
    /// the cache. While no thread stays pinned, what waits is about a thirtieth of the capacity for each
    /// thread that writes, or a hundred entries if that is more, or a few hundred if that is less (see
    /// [`Stats::garbage`]).
    ///
    /// # Errors
    /// Hands the value back if it is heavier than the whole budget. The old value stays.
    pub fn insert(&self, key: K, value: V) -> Result<Inserted, Refused<V>> {
        self.insert_with(key, value, InsertOptions::new())
    }

    /// Stores a value with deadlines, weight, age, version or tags of its own.
    ///
    /// # Errors
    /// Hands the value back if it is too heavy, if the cache holds a higher version, or if an option
    /// makes no sense for this cache; see [`RefusedReason`](crate::RefusedReason).
    #[expect(clippy::needless_pass_by_value, reason = "options are made for one call")]
    pub fn insert_with(
        &self,
        key: K,
        value: V,
        options: InsertOptions,
    ) -> Result<Inserted, Refused<V>> {
        self.engine().insert(key, value, &options, Rule::Any, |_| true).map(Inserted::from)
    }

    /// Stores a value if the key has none (or only a dead one).
    ///
    /// # Errors
    /// Hands the value back with [`RefusedReason::Present`](crate::RefusedReason::Present) if the key
    /// has a value, and for the reasons that [`insert`](Self::insert) has.
    pub fn insert_if_absent(&self, key: K, value: V) -> Result<Inserted, Refused<V>> {
        self.insert_if_absent_with(key, value, InsertOptions::new())
    }

    /// As [`insert_if_absent`](Self::insert_if_absent), with options.
    ///
    /// # Errors
    /// See [`insert_if_absent`](Self::insert_if_absent) and [`insert_with`](Self::insert_with).
    #[expect(clippy::needless_pass_by_value, reason = "options are made for one call")]
    pub fn insert_if_absent_with(
        &self,
        key: K,
        value: V,
        options: InsertOptions,
    ) -> Result<Inserted, Refused<V>> {
        self.engine().insert(key, value, &options, Rule::IfAbsent, |_| true).map(Inserted::from)
    }

    /// Stores a value in place of the one that `allow` said yes to: the value that is replaced is the
    /// very one that it saw last. `allow` may be called more than once, with newer entries. It runs while
    /// the thread is pinned, and may call the cache.
    ///
    /// # Errors
    /// Hands the value back if the key is absent or `allow` says no, and for the reasons that
    /// [`insert`](Self::insert) has.
    pub fn replace_if(
        &self,
        key: K,
        value: V,
        mut allow: impl FnMut(&Entry<'_, K, V>) -> bool,
    ) -> Result<Inserted, Refused<V>> {
        let options = InsertOptions::new();
        let allow = |view: &View<'_, K, V>| allow(&Entry::new(*view));
        self.engine().insert(key, value, &options, Rule::IfPresent, allow).map(Inserted::from)
    }

    /// Reads a key's entry and replaces, removes or keeps it as the closure says, as one step.
    ///
    /// The closure is shown the live entry, or `None`. Its decision is applied only if the key still
    /// has that very entry (or still none); otherwise it is called again with the new one. So
    /// concurrent computes of a key happen one after the other, in some order, and no update is lost.
    /// It may be called any number of times, runs while the thread is pinned, holds no lock, and may call
    /// the cache.
    ///
    /// ```
    /// use seawall::{Cache, Compute};
    ///
    /// let cache: Cache<&str, u32> = Cache::new(10);
    /// for _ in 0..3 {
    ///     cache.compute("visits", |entry| Compute::Insert(entry.map_or(0, |e| *e.value()) + 1))?;
    /// }
    /// assert_eq!(cache.get("visits"), Some(3));
    /// # Ok::<(), seawall::Refused<u32>>(())
    /// ```
    ///
    /// # Errors
    /// Hands a value that the closure returned back for the reasons that
    /// [`insert_with`](Self::insert_with) has.
    #[expect(clippy::needless_pass_by_value, reason = "as the other methods that store a key")]
    pub fn compute(
        &self,
        key: K,
        mut decide: impl FnMut(Option<Entry<'_, K, V>>) -> Compute<V>,
    ) -> Result<Computed, Refused<V>>
    where
        K: Clone,
    {
        let decide = |view: Option<View<'_, K, V>>| match decide(view.map(Entry::new)) {
            Compute::Keep => Decision::Keep,
            Compute::Remove => Decision::Remove,
            Compute::Insert(value) => Decision::Store(value, InsertOptions::new()),
            Compute::InsertWith(value, options) => Decision::Store(value, options),
        };
        self.engine().compute(&key, decide).map(|computed| match computed {
            engine::Computed::Kept => Computed::Kept,
            engine::Computed::Removed => Computed::Removed,
            engine::Computed::Stored(stored) => Computed::Inserted(stored.into()),
        })
    }

    /// Returns a key's value, from the cache or from `load`, on this thread; the short form of
    /// [`load`](Self::load).
    ///
    /// Of all callers, blocking and async, that miss a key at the same time one calls its loader; the
    /// others wait for it.
    ///
    /// ```
    /// use seawall::{Cache, LoadError};
    ///
    /// let cache: Cache<String, usize> = Cache::new(100);
    /// assert_eq!(cache.get_or_load("four", || 4), Ok(4));
    /// assert_eq!(cache.get_or_load("four", || 5), Ok(4));
    ///
    /// let down = || Err::<usize, _>("down");
    /// assert_eq!(cache.get_or_load("five", down), Err(LoadError::Failed("down")));
    /// assert_eq!(cache.get_or_load("six", || None::<usize>), Err(LoadError::Absent));
    /// ```
    ///
    /// # Errors
    /// [`LoadError::Absent`] if there is no such key; else as [`LoadRequest::run`].
    #[inline]
    pub fn get_or_load<Q, R>(
        &self,
        key: &Q,
        load: impl FnOnce() -> R,
    ) -> Result<V, LoadError<R::Error>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        K: Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: Send + Sync + 'static,
        R: IntoLoad<V>,
        R::Error: Clone + Send + Sync + 'static,
    {
        self.load(key).run_for_value(load)
    }

    /// As [`get_or_load`](Self::get_or_load), for a loader that is a future; see
    /// [`LoadRequest::run_async`].
    ///
    /// # Cancel safety
    /// Dropping the returned future at any point leaves the load, and gives every place back at once.
    ///
    /// # Errors
    /// As [`get_or_load`](Self::get_or_load).
    pub fn get_or_load_async<'c, Q, F, R>(
        &'c self,
        key: &'c Q,
        load: impl FnOnce() -> F,
    ) -> impl Future<Output = Result<V, LoadError<R::Error>>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        K: Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: Send + Sync + 'static,
        F: Future<Output = R> + Send + 'static,
        R: IntoLoad<V> + 'static,
        R::Error: Clone + Send + Sync + 'static,
    {
        self.load(key).run_async_then(|_| load(), |told| told?.into_value())
    }

    /// Gets or loads several keys, with one call of a loader for those that nobody has and nobody is
    /// loading; returns what became of each key, in their order.
    ///
    /// Each key is coalesced with all other callers'. `load` is given the keys to load and returns pairs of
    /// key and value (or [`Load`](crate::Load)); a key that it does not return is absent, one that it was not asked for is
    /// ignored. It is not called if there is nothing to load; more than once only if another caller, whose
    /// loads this one waited for, gave up. Values that are stale are loaded with the others.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use seawall::Cache;
    ///
    /// let cache: Cache<u32, u32> = Cache::new(100);
    /// let squares = |keys: Vec<u32>| Ok::<_, ()>(keys.into_iter().map(|key| (key, key * key)));
    /// let outcomes = cache.get_or_load_many(&[2, 3], squares);
    /// let values: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap().value).collect();
    /// assert_eq!(values, [Some(4), Some(9)]);
    /// ```
    ///
    /// # Panics
    /// If `load` does; those who wait for its keys get
    /// [`LoadError::Panicked`](crate::LoadError::Panicked).
    pub fn get_or_load_many<'k, Q, I, L, E>(
        &'k self,
        keys: impl IntoIterator<Item = &'k Q>,
        load: impl FnMut(Vec<K>) -> Result<I, E>,
    ) -> Vec<Result<Outcome<V>, LoadError<E>>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized + 'k,
        K: Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: Send + Sync + 'static,
        I: IntoIterator<Item = (K, L)>,
        L: IntoLoad<V, Error = Infallible>,
        E: Clone + Send + Sync + 'static,
    {
        bulk::run(&self.core, keys, load)
    }

    /// As [`get_or_load_many`](Self::get_or_load_many), for a loader that is a future. Only this caller
    /// drives it: if it is dropped, those who wait for its keys begin their loads anew.
    ///
    /// # Cancel safety
    /// Dropping the returned future ends its loads and gives every place back at once.
    ///
    /// # Panics
    /// As [`get_or_load_many`](Self::get_or_load_many).
    pub async fn get_or_load_many_async<'k, Q, F, I, L, E>(
        &'k self,
        keys: impl IntoIterator<Item = &'k Q>,
        load: impl FnMut(Vec<K>) -> F,
    ) -> Vec<Result<Outcome<V>, LoadError<E>>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized + 'k,
        K: Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: Send + Sync + 'static,
        F: Future<Output = Result<I, E>>,
        I: IntoIterator<Item = (K, L)>,
        L: IntoLoad<V, Error = Infallible>,
        E: Clone + Send + Sync + 'static,
    {
        bulk::run_async(&self.core, keys, load).await
    }

    /// Begins to load keys ahead of need, in the background: at a bounded concurrency and rate, giving way
    /// to real misses. The keys are taken from the iterator one by one as they are loaded; see [`WarmUp`].
    ///
    /// ```
    /// use seawall::Cache;
    ///
    /// let cache: Cache<u32, u32> = Cache::new(1_000);
    /// let progress = cache.warm_up(0..100).concurrency(2).run(|context| context.key * 2);
    /// assert_eq!((progress.done, progress.loaded), (100, 100));
    /// assert_eq!(cache.get(&99), Some(198));
    /// ```
    pub fn warm_up<I>(&self, keys: I) -> WarmUp<'_, I::IntoIter, K, V, S>
    where
        I: IntoIterator<Item = K>,
        K: Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: Send + Sync + 'static,
    {
        WarmUp::new(&self.core, keys.into_iter())
    }

    /// As [`warm_up`](Self::warm_up), for keys that come as a stream, say from a database or a message
    /// queue. It can be run [async](WarmUp::run_async) only, and waits for the next key if there is none
    /// yet, until it is [ended](crate::WarmUpControl::end).
    ///
    /// ```
    /// use futures_lite::{future::block_on, stream};
    /// use seawall::Cache;
    ///
    /// let cache: Cache<u32, u32> = Cache::new(1_000);
    /// let warm_up = cache.warm_up_stream(stream::iter(0..100));
    /// let progress = block_on(warm_up.run_async(|context| async move { context.key * 2 }));
    /// assert_eq!(progress.loaded, 100);
    /// ```
    pub fn warm_up_stream<T>(&self, keys: T) -> WarmUp<'_, KeyStream<T>, K, V, S>
    where
        T: Stream<Item = K>,
        K: Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: Send + Sync + 'static,
    {
        WarmUp::new(&self.core, KeyStream::new(keys))
    }

    /// Begins a call of get-or-load that can say more about what it wants, and be told more; see
    /// [`LoadRequest`].
    pub fn load<'c, Q>(&'c self, key: &'c Q) -> LoadRequest<'c, Q, K, V, S>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        K: Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: Send + Sync + 'static,
    {
        LoadRequest::new(&self.core, key)
    }

    /// Takes out a key's entry and returns a copy of its value, if it was not dead.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.engine().remove(key, RemovalCause::Removed, V::clone)
    }

    /// Takes out a key's entry; returns whether there was one that was not dead.
    ///
    /// A read that starts after this returned does not see the entry, nor what a load brings that began
    /// before: those who wait for it get that, and it is not stored. So with all that invalidates.
    pub fn invalidate<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.engine().remove(key, RemovalCause::Invalidated, |_| ()).is_some()
    }

    /// Makes all entries dead, in constant time (but for one call in many millions, or in 256 within
    /// one millisecond, that sweeps the table).
    ///
    /// Reads that start after this returned see none of them. They are counted in
    /// [`len`](Self::len) and [`weight`](Self::weight) until they are reclaimed: by inserts as they
    /// go by, by evictions, which take a dead entry that they come across before a live one, or by
    /// [`sweep`](Self::sweep).
    pub fn invalidate_all(&self) {
        self.engine().invalidate_all();
    }

    /// Takes out every entry for which a predicate returns true; returns how many. Exactly the entries
    /// that it was shown are taken, never a newer one of the same key.
    ///
    /// Walks over the whole table. Entries stored while it runs may be shown or not; every entry that
    /// was there before and still is, is shown. If the predicate panics, the entries that it has
    /// condemned so far are gone, the others stay.
    ///
    /// What loads bring that were in progress is not stored, whatever their keys, as it cannot be shown.
    pub fn invalidate_if(&self, condemn: impl FnMut(&K, &V) -> bool) -> usize {
        self.engine().invalidate_if(condemn)
    }

    /// Makes all entries dead that were stored with a tag, in constant time; returns whether the tag
    /// is known. They are reclaimed as after [`invalidate_all`](Self::invalidate_all).
    pub fn invalidate_tag(&self, tag: &str) -> bool {
        self.engine().invalidate_tag(tag)
    }

    /// Ends an entry's freshness now, so that its stale windows begin (without windows it is dead).
    /// Returns whether there was a live entry. Never lengthens an entry's life.
    ///
    /// What a load brings that is going on is stale too, from now on; if the key has no value yet, it is not
    /// stored.
    pub fn mark_stale<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.engine().mark_stale(key)
    }

    /// Returns an iterator over copies of all entries that a plain read would return.
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter::new(self)
    }

    /// Returns the number of entries, dead ones that are not yet reclaimed included. Sums up counters
    /// of all threads: while others work it may be too high by what they take out meanwhile.
    pub fn len(&self) -> usize {
        usize::try_from(self.engine().len()).unwrap_or(usize::MAX)
    }

    /// Returns whether [`len`](Self::len) is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the weight of the entries (their number, in a cache that is bounded by entries), dead
    /// ones included.
    ///
    /// Neither it nor what is really held exceeds the capacity, but for what operations in progress have
    /// just stored or taken out: one entry for each thread that is in the middle of one.
    pub fn weight(&self) -> u64 {
        self.engine().used()
    }

    /// Returns the budget.
    pub fn capacity(&self) -> u64 {
        self.engine().capacity()
    }

    /// Changes the budget, and evicts what exceeds it before it returns. Zero is legal: nothing is kept
    /// any more. The table does not shrink. If the listener panics, all is evicted and told first.
    pub fn set_capacity(&self, capacity: u64) {
        self.engine().set_capacity(capacity);
    }

    /// Looks for dead entries among about `budget` entries, going on where the last look stopped, and
    /// takes them out; returns how many. `usize::MAX` looks at all. Then frees what
    /// waits to be freed, as far as no thread is reading.
    ///
    /// Nobody needs to call it: inserts and replacements look at a bucket each, and an eviction takes a
    /// dead entry that it comes across before a live one. It gives memory back while nothing is inserted.
    pub fn sweep(&self, budget: usize) -> usize {
        self.engine().sweep(budget)
    }

    /// Returns what the cache has done and what it holds.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }
}

// Whatever user code panics in, an operation has either taken effect or changed nothing.
impl<K, V, S> UnwindSafe for Cache<K, V, S> {}
impl<K, V, S> RefUnwindSafe for Cache<K, V, S> {}

impl<K, V, S> fmt::Debug for Cache<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("len", &self.len())
            .field("weight", &self.weight())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// A key, or a reference to one.
trait AsKey<Q: ?Sized> {
    fn as_key(&self) -> &Q;
}

impl<Q> AsKey<Q> for Q {
    #[inline]
    fn as_key(&self) -> &Q {
        self
    }
}

impl<Q: ?Sized> AsKey<Q> for &Q {
    #[inline]
    fn as_key(&self) -> &Q {
        self
    }
}

/// A pinned thread's view of a cache; see [`Cache::pin`].
pub struct Pinned<'c, K, V, S = ahash::RandomState> {
    engine: &'c Engine<K, V, S>,
    guard: Guard,
}

impl<K, V, S> Pinned<'_, K, V, S> {
    pub(crate) fn parts(&self) -> (&Engine<K, V, S>, &Guard) {
        (self.engine, &self.guard)
    }
}

impl<K, V, S> Pinned<'_, K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Returns a key's entry, under the conditions of [`Cache::get`].
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<Entry<'_, K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.engine.hash(key);
        self.engine.lookup(key, hash, Count::Use, &self.guard, served)
    }

    /// Returns an iterator over all entries that a plain read would return.
    pub fn iter(&self) -> PinnedIter<'_, K, V, S> {
        PinnedIter::new(self)
    }

    /// Lets go of what the session has held so far, so that it can be freed, and pins anew.
    pub fn repin(&mut self) {
        self.guard.repin();
    }
}

impl<'p, K, V, S> IntoIterator for &'p Pinned<'_, K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    type Item = Entry<'p, K, V>;
    type IntoIter = PinnedIter<'p, K, V, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K, V, S> fmt::Debug for Pinned<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").finish_non_exhaustive()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
