//! Get-or-load of many keys with one call of a loader.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use equivalent::Equivalent;

use super::core::Core;
use super::end::End;
use super::lead::Lead;
use super::loader::{IntoLoad, Load};
use super::outcome::{LoadError, Outcome, Source};
use super::request::{Failed, Follower, LoadRequest, Step};
use crate::engine::Served;
use crate::flight::{Leading, message};

type Leads<'c, K, V, S> = Vec<(usize, Lead<'c, K, V, S>, Option<Box<Served<V>>>)>;
type Follows<'c, V> = Vec<(usize, Follower<'c, V>)>;
type Told<V> = Result<Outcome<V>, Failed>;

/// A call for many keys, between two rounds.
struct Bulk<'c, Q: ?Sized, K, V, S> {
    requests: Vec<LoadRequest<'c, Q, K, V, S>>,
    told: Vec<Option<Told<V>>>,
    until: u64,
}

impl<'c, Q, K, V, S> Bulk<'c, Q, K, V, S>
where
    Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn new(core: &'c Arc<Core<K, V, S>>, keys: impl IntoIterator<Item = &'c Q>) -> Self {
        let requests: Vec<_> = keys.into_iter().map(|key| LoadRequest::new(core, key)).collect();
        let told = requests.iter().map(|request| request.hit(request.hash()).map(Ok)).collect();
        let until = requests.first().map_or(0, LoadRequest::until);
        Bulk { requests, told, until }
    }

    /// Claims what nobody is loading, and joins the rest.
    fn claim(&mut self) -> (Leads<'c, K, V, S>, Follows<'c, V>) {
        let (mut leads, mut follows) = (Vec::new(), Vec::new());
        for (place, request) in self.requests.iter().enumerate() {
            if self.told[place].is_some() {
                continue;
            }
            match request.begin(request.hash()) {
                Step::Done(told) => self.told[place] = Some(told),
                Step::Lead(lead, stale) => leads.push((place, lead, stale)),
                Step::Follow(follower) => follows.push((place, follower)),
            }
        }
        (leads, follows)
    }

    /// Answers the loads of a batch.
    fn end(&mut self, leads: Leads<'c, K, V, S>, mut end: impl FnMut(&K) -> End<V>) {
        let mut panic = None;
        for (place, lead, stale) in leads {
            let end = end(lead.key());
            let answer = lead.end_keeping(end, &mut panic);
            self.told[place] = Some(self.requests[place].answered(answer, Source::Loaded, stale));
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn end_batch<E>(&mut self, leads: Leads<'c, K, V, S>, batch: Result<HashMap<K, Load<V>>, E>)
    where
        E: Send + Sync + 'static,
    {
        match batch {
            Ok(mut loaded) => {
                self.end(leads, |key| End::Loaded(loaded.remove(key).unwrap_or(Load::Absent)));
            }
            Err(error) => {
                let error: Arc<E> = Arc::new(error);
                self.end(leads, |_| End::Failed(error.clone()));
            }
        }
    }

    /// Whether all keys have been told.
    fn is_done(&self) -> bool {
        self.told.iter().all(Option::is_some)
    }

    fn finish<E: Clone + 'static>(self) -> Vec<Result<Outcome<V>, LoadError<E>>> {
        let told = self.told.into_iter().flatten();
        told.map(|told| told.map_err(|failed| failed.typed())).collect()
    }
}

fn collect<K, V, L, E>(
    batch: Result<impl IntoIterator<Item = (K, L)>, E>,
) -> Result<HashMap<K, Load<V>>, E>
where
    K: Hash + Eq,
    L: IntoLoad<V, Error = Infallible>,
{
    let load = |loaded: L| match loaded.into_load() {
        Ok(load) => load,
        Err(never) => match never {},
    };
    batch.map(|items| items.into_iter().map(|(key, loaded)| (key, load(loaded))).collect())
}

fn keys_of<K: Hash + Eq + Clone, V: Clone + Send + Sync + 'static, S: BuildHasher>(
    leads: &Leads<'_, K, V, S>,
) -> Vec<K> {
    leads.iter().map(|(_, lead, _)| lead.key().clone()).collect()
}

fn leading<K: Hash + Eq + Clone, V: Clone + Send + Sync + 'static, S: BuildHasher>(
    leads: &Leads<'_, K, V, S>,
) -> Vec<Leading> {
    leads.iter().map(|(_, lead, _)| lead.flight().leading()).collect()
}

pub(crate) fn run<'c, Q, K, V, S, I, L, E>(
    core: &'c Arc<Core<K, V, S>>,
    keys: impl IntoIterator<Item = &'c Q>,
    mut load: impl FnMut(Vec<K>) -> Result<I, E>,
) -> Vec<Result<Outcome<V>, LoadError<E>>>
where
    Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized + 'c,
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    I: IntoIterator<Item = (K, L)>,
    L: IntoLoad<V, Error = Infallible>,
    E: Clone + Send + Sync + 'static,
{
    let mut bulk = Bulk::new(core, keys);
    while !bulk.is_done() {
        let (leads, follows) = bulk.claim();
        if !leads.is_empty() {
            let batch = catch_unwind(AssertUnwindSafe(|| {
                let _leading = leading(&leads);
                collect(load(keys_of(&leads)))
            }));
            match batch {
                Ok(batch) => bulk.end_batch(leads, batch),
                Err(panic) => {
                    let message = message(&*panic);
                    bulk.end(leads, |_| End::Panicked(message.clone()));
                    resume_unwind(panic);
                }
            }
        }
        // Only now, when nobody waits for us any more.
        for (place, mut follower) in follows {
            let request = &bulk.requests[place];
            let end = request.wait_blocking(&mut follower, bulk.until);
            bulk.told[place] = request.told(follower, bulk.until, end);
        }
    }
    bulk.finish()
}

pub(crate) async fn run_async<'c, Q, K, V, S, F, I, L, E>(
    core: &'c Arc<Core<K, V, S>>,
    keys: impl IntoIterator<Item = &'c Q>,
    mut load: impl FnMut(Vec<K>) -> F,
) -> Vec<Result<Outcome<V>, LoadError<E>>>
where
    Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized + 'c,
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Future<Output = Result<I, E>>,
    I: IntoIterator<Item = (K, L)>,
    L: IntoLoad<V, Error = Infallible>,
    E: Clone + Send + Sync + 'static,
{
    let mut bulk = Bulk::new(core, keys);
    while !bulk.is_done() {
        let (leads, follows) = bulk.claim();
        if !leads.is_empty() {
            let batch = load_batch(&leads, &mut load).await;
            match batch {
                Ok(batch) => bulk.end_batch(leads, batch),
                Err(panic) => {
                    let message = message(&*panic);
                    bulk.end(leads, |_| End::Panicked(message.clone()));
                    resume_unwind(panic);
                }
            }
        }
        for (place, mut follower) in follows {
            let request = &bulk.requests[place];
            let end = request.wait_async(&mut follower, bulk.until).await;
            bulk.told[place] = request.told(follower, bulk.until, end);
        }
    }
    bulk.finish()
}

/// Runs the batch loader as that of all these loads. Catches its panic.
async fn load_batch<K, V, S, F, I, L, E>(
    leads: &Leads<'_, K, V, S>,
    load: &mut impl FnMut(Vec<K>) -> F,
) -> std::thread::Result<Result<HashMap<K, Load<V>>, E>>
where
    K: Hash + Eq + Clone,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
    F: Future<Output = Result<I, E>>,
    I: IntoIterator<Item = (K, L)>,
    L: IntoLoad<V, Error = Infallible>,
{
    let made = catch_unwind(AssertUnwindSafe(|| {
        let _leading = leading(leads);
        load(keys_of(leads))
    }));
    let mut future = pin!(made?);
    std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _leading = leading(leads);
            future.as_mut().poll(cx).map(collect)
        }));
        match polled {
            Ok(Poll::Ready(batch)) => Poll::Ready(Ok(batch)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
