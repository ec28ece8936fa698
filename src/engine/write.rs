//! Storing: insert, replace, compute.

use std::hash::{BuildHasher, Hash};

use super::{After, Engine, Judgement, View};
use crate::error::{Refused, RefusedReason};
use crate::freshness::{DRAWS, Durations, Generation, Inline, NEVER};
use crate::listener::RemovalCause;
use crate::node::{Content, Extra, Initial, Node, Tail};
use crate::options::InsertOptions;
use crate::stats::Event;
use crate::sync::{AtomicU64, Relaxed};
use crate::table::reclaim::{self, Guard};
use crate::table::word::Policy;
use crate::table::{Commit, Found, Owned, Probe};
use crate::tags;

/// What may be in the place of a value that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Anything.
    Any,
    /// No live entry.
    IfAbsent,
    /// A live entry.
    IfPresent,
}

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    New,
    Replaced,
    NotKept,
}

/// What a compute wants done with the entry it saw.
pub(crate) enum Decision<V> {
    Keep,
    Remove,
    Store(V, InsertOptions),
}

/// A node that is ready to be stored.
struct Prepared<'e, K, V> {
    node: Owned<'e, Node<K, V>>,
    /// The generation that its state says.
    generation: Generation,
    weight: u64,
    version: Option<u64>,
}

/// What one attempt of a compute came to.
pub(crate) enum Computed {
    Kept,
    Removed,
    Stored(Stored),
}

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    pub(crate) fn insert(
        &self,
        key: K,
        value: V,
        options: &InsertOptions,
        rule: Rule,
        mut allow: impl FnMut(&View<'_, K, V>) -> bool,
    ) -> Result<Stored, Refused<V>> {
        if self.capacity() == 0 && rule == Rule::Any && !options.too_short {
            // What is being loaded is older.
            self.remove(&key, RemovalCause::Removed, |_| ());
            return Ok(Stored::NotKept);
        }
        let hash = self.hash(&key);
        let prepared = self.prepare(key, value, options)?;
        self.operate(|guard, after| {
            self.store(hash, prepared, options, rule, &mut allow, guard, after)
        })
    }

    /// Builds the node, outside of any critical step. Runs the weigher.
    fn prepare(
        &self,
        key: K,
        value: V,
        options: &InsertOptions,
    ) -> Result<Prepared<'_, K, V>, Refused<V>> {
        let refuse = |value, reason| {
            self.recorder.count(Event::Refused, reclaim::stripe());
            Err(Refused::new(value, reason))
        };
        if let Err(reason) = self.check_options(options) {
            return refuse(value, reason);
        }
        let weight = self.weigh(&key, &value, options);
        if weight > self.capacity() && self.capacity() > 0 {
            return refuse(value, self.too_heavy(weight));
        }
        // Before anybody can find the value: its absence is not certain any more.
        if let Some(screen) = &self.screen {
            screen.teach(&key);
        }
        let generation = self.generation();
        let (state, now) = self.initial_state(options, generation);
        let node = self.allocate(state, key, Some(value), weight, now);
        Ok(Prepared { node, generation, weight, version: options.version })
    }

    pub(super) fn allocate(
        &self,
        state: Initial<V>,
        key: K,
        value: Option<V>,
        weight: u64,
        now: u64,
    ) -> Owned<'_, Node<K, V>> {
        let node = Node::allocate(state, key, value, self.tail(weight, now));
        // SAFETY: just allocated, and freed as it was by `Node::free`.
        unsafe { Owned::from_raw(node, self.map.limbo()) }
    }

    pub(super) fn tail(&self, weight: u64, now: u64) -> Option<Tail> {
        let tail = || Tail { weight: AtomicU64::new(weight), touched: AtomicU64::new(now) };
        self.flags.is_heavy().then(tail)
    }

    /// Whether options make sense for this cache.
    pub(super) fn check_options(&self, options: &InsertOptions) -> Result<(), RefusedReason> {
        let windows = options.revalidate.is_some() || options.on_error.is_some();
        if options.too_short {
            Err(RefusedReason::TooShort)
        } else if windows && self.durations_of(options).is_unlimited() {
            Err(RefusedReason::NoDeadline)
        } else if options.weight.is_some() && !self.weighted {
            Err(RefusedReason::Unweighted)
        } else {
            Ok(())
        }
    }

    /// Runs the weigher.
    pub(super) fn weigh(&self, key: &K, value: &V, options: &InsertOptions) -> u64 {
        let weight = match (&self.weigher, options.weight) {
            (_, Some(weight)) => weight,
            (Some(weigher), None) => weigher(key, value),
            (None, None) => 1,
        };
        weight.max(1)
    }

    pub(super) fn too_heavy(&self, weight: u64) -> RefusedReason {
        RefusedReason::TooHeavy { weight, capacity: self.capacity() }
    }

    /// The durations of an entry with these options; the caller's profile number is good if unchanged.
    pub(super) fn durations_of(&self, options: &InsertOptions) -> Durations {
        let Durations { fresh, revalidate, on_error, early, .. } = self.durations;
        Durations {
            fresh: options.fresh.unwrap_or(fresh),
            revalidate: options.revalidate.unwrap_or(revalidate),
            on_error: options.on_error.unwrap_or(on_error),
            jitter: 0,
            early,
        }
        .with_jitter(self.jitter)
    }

    /// The first state of an entry, and the time if it was needed (else zero).
    pub(super) fn initial_state(
        &self,
        options: &InsertOptions,
        generation: Generation,
    ) -> (Initial<V>, u64) {
        let overridden =
            options.fresh.is_some() || options.revalidate.is_some() || options.on_error.is_some();
        let durations = if overridden { self.durations_of(options) } else { self.durations };
        let extra = options.version.is_some() || !options.tags.is_empty();
        let unlimited = durations.is_unlimited();
        if unlimited && !extra && options.age == 0 {
            let now = if self.time_to_idle == NEVER { 0 } else { self.now() };
            return (Initial::Inline(Inline::without_deadlines(self.flags, generation)), now);
        }
        let now = self.now().max(generation.start());
        let birth = now.saturating_sub(options.age);
        let draw = if durations.jitter == 0 && durations.early == 0 { 0 } else { self.draw() };
        if !extra && !unlimited {
            let profile = if overridden { self.profiles.number(durations) } else { self.profile };
            self.set_timed();
            let inline = profile.and_then(|profile| {
                Inline::with_deadlines(self.flags, generation, profile, draw, birth)
            });
            if let Some(inline) = inline {
                return (Initial::Inline(inline), now);
            }
        }
        self.set_timed();
        let deadlines = durations.from(birth, draw);
        let extra = Extra {
            version: options.version,
            tags: tags::stamps(&self.tags, &options.tags),
            ..Extra::new(self.flags, Content::Value, generation.number(), deadlines)
        };
        (Initial::Extra(Box::new(extra)), now)
    }

    pub(super) fn set_timed(&self) {
        if !self.shared.timed.load(Relaxed) {
            self.shared.timed.store(true, Relaxed);
        }
    }

    /// A random number below [`DRAWS`].
    pub(super) fn draw(&self) -> u8 {
        rand::random::<u8>() % DRAWS
    }

    /// Stores a prepared node: probe, then replace or commit, until one of them is not overtaken.
    #[expect(clippy::too_many_arguments, reason = "one caller; a struct for it would say no more")]
    fn store<'e>(
        &'e self,
        hash: u64,
        prepared: Prepared<'e, K, V>,
        options: &InsertOptions,
        rule: Rule,
        allow: &mut impl FnMut(&View<'_, K, V>) -> bool,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Result<Stored, Refused<V>> {
        let Prepared { mut node, mut generation, weight, version } = prepared;
        let mut place = None;
        self.map.prefetch_ghosts(hash, guard);
        loop {
            let probe = self.probe(hash, |other| *other.key() == *node.node().key(), guard, after);
            if generation != self.generation() {
                // All were invalidated since the node was prepared. It must not take the place of an
                // entry that is newer than that.
                generation = self.generation();
                node.node().reset_state(self.initial_state(options, generation).0);
            }
            match probe {
                Probe::Found(found) => {
                    let judgement = self.judge(found.node(), guard);
                    if let Err(reason) = self.check(rule, weight, version, &found, judgement, allow)
                    {
                        self.recorder.count(Event::Refused, guard.stripe());
                        return Err(Refused::new(node.into_value(), reason));
                    }
                    match self.put_over(hash, &found, node, weight, &judgement, guard, after) {
                        Ok(stored) => return Ok(stored),
                        Err(back) => node = back,
                    }
                }
                Probe::Vacant(_) if rule == Rule::IfPresent => {
                    self.recorder.count(Event::Refused, guard.stripe());
                    return Err(Refused::new(node.into_value(), RefusedReason::Absent));
                }
                Probe::Vacant(_) if self.capacity() == 0 => return Ok(Stored::NotKept),
                Probe::Vacant(_) if weight > self.capacity() => {
                    // The capacity was lowered since the node was prepared.
                    let reason = self.too_heavy(weight);
                    self.recorder.count(Event::Refused, guard.stripe());
                    return Err(Refused::new(node.into_value(), reason));
                }
                Probe::Vacant(vacant) => {
                    let policy =
                        *place.get_or_insert_with(|| self.evict.place(&self.map, hash, guard));
                    match self.map.commit(&vacant, node, policy, guard) {
                        Commit::Done(found) => {
                            self.settle_insert(&found, weight, guard, after);
                            return Ok(Stored::New);
                        }
                        Commit::Lost(back) => node = back,
                        Commit::Full(back) => {
                            if !self.make_room(hash, guard, after) {
                                return Ok(Stored::NotKept);
                            }
                            node = back;
                        }
                    }
                }
            }
        }
    }

    /// Stores a node in place of what was found, or gives it back.
    #[expect(clippy::too_many_arguments, reason = "as `store`")]
    pub(super) fn put_over<'e>(
        &'e self,
        hash: u64,
        found: &Found<'e, Node<K, V>>,
        node: Owned<'e, Node<K, V>>,
        weight: u64,
        judgement: &Judgement<'_, V>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Result<Stored, Owned<'e, Node<K, V>>> {
        if self.capacity() == 0 && found.is_pending() {
            // Nothing is kept. But what is being loaded is older than what was to be stored.
            return if self.take(found, RemovalCause::Removed, guard, after) {
                Ok(Stored::NotKept)
            } else {
                Err(node)
            };
        }
        if found.is_pending() {
            let policy = self.evict.place(&self.map, hash, guard);
            let new = self.map.replace(found, node, policy, guard)?;
            self.settle_insert(&new, weight, guard, after);
            return Ok(Stored::New);
        }
        let new = self.map.replace(found, node, found.policy().used(), guard)?;
        self.settle_replace(found, &new, weight, judgement, guard, after);
        Ok(if judgement.has_value() { Stored::Replaced } else { Stored::New })
    }

    /// Whether a value may be stored in place of the one found.
    fn check<'e>(
        &'e self,
        rule: Rule,
        weight: u64,
        version: Option<u64>,
        found: &Found<'e, Node<K, V>>,
        judgement: Judgement<'e, V>,
        allow: &mut impl FnMut(&View<'_, K, V>) -> bool,
    ) -> Result<(), RefusedReason> {
        let live = judgement.has_value() && !found.is_pending();
        match rule {
            Rule::IfAbsent if live => return Err(RefusedReason::Present),
            Rule::IfPresent if !live => return Err(RefusedReason::Absent),
            _ => {}
        }
        if weight > self.capacity() && self.capacity() > 0 {
            return Err(self.too_heavy(weight));
        }
        if !live {
            return Ok(());
        }
        match (version, judgement.version()) {
            (Some(new), Some(old)) if new < old => return Err(RefusedReason::Older { than: old }),
            _ => {}
        }
        if allow(&self.view(found.node(), judgement)) {
            Ok(())
        } else {
            Err(RefusedReason::Predicate)
        }
    }

    /// Lets `decide` say what is to become of a key, until its decision meets the entry it was made
    /// for.
    pub(crate) fn compute(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<View<'_, K, V>>) -> Decision<V>,
    ) -> Result<Computed, Refused<V>>
    where
        K: Clone,
    {
        let hash = self.hash(key);
        loop {
            let attempt = self
                .operate(|guard, after| self.try_compute(hash, key, &mut decide, guard, after))?;
            if let Some(done) = attempt {
                return Ok(done);
            }
        }
    }

    /// One attempt of a compute; `None` if it was overtaken.
    fn try_compute<'e>(
        &'e self,
        hash: u64,
        key: &K,
        decide: &mut impl FnMut(Option<View<'_, K, V>>) -> Decision<V>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Result<Option<Computed>, Refused<V>>
    where
        K: Clone,
    {
        let probe = self.probe(hash, |node| node.key() == key, guard, after);
        let found = match &probe {
            Probe::Found(found) => Some((*found, self.judge(found.node(), guard))),
            Probe::Vacant(_) => None,
        };
        let live = found.filter(|(found, judgement)| judgement.has_value() && !found.is_pending());
        let view = live.map(|(found, judgement)| self.view(found.node(), judgement));
        match (decide(view), live) {
            (Decision::Keep, _) => Ok(Some(Computed::Kept)),
            (Decision::Remove, None) => {
                // What is being loaded is not there, and is not to come.
                let loading = found.filter(|(found, _)| found.is_pending());
                let done = loading.is_none_or(|(found, _)| {
                    self.take(&found, RemovalCause::Removed, guard, after)
                });
                Ok(done.then_some(Computed::Kept))
            }
            (Decision::Remove, Some((found, _))) => {
                let taken = self.take(&found, RemovalCause::Removed, guard, after);
                Ok(taken.then_some(Computed::Removed))
            }
            (Decision::Store(value, options), _) => {
                let prepared = self.prepare(key.clone(), value, &options)?;
                let stored = self.try_store(hash, &probe, found, prepared, guard, after)?;
                Ok(stored.map(Computed::Stored))
            }
        }
    }

    /// One attempt to store a node over exactly what was probed; `None` if it was overtaken.
    fn try_store<'e>(
        &'e self,
        hash: u64,
        probe: &Probe<'e, Node<K, V>>,
        found: Option<(Found<'e, Node<K, V>>, Judgement<'e, V>)>,
        prepared: Prepared<'e, K, V>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Result<Option<Stored>, Refused<V>> {
        let Prepared { node, weight, version, .. } = prepared;
        match probe {
            Probe::Found(old) => {
                let judgement = found.expect("it was found").1;
                if let Err(reason) = self.check(
                    Rule::Any,
                    weight,
                    version,
                    old,
                    judgement,
                    &mut |_: &View<'_, K, V>| true,
                ) {
                    self.recorder.count(Event::Refused, guard.stripe());
                    return Err(Refused::new(node.into_value(), reason));
                }
                Ok(self.put_over(hash, old, node, weight, &judgement, guard, after).ok())
            }
            Probe::Vacant(_) if self.capacity() == 0 => Ok(Some(Stored::NotKept)),
            Probe::Vacant(vacant) => {
                let policy: Policy = self.evict.place(&self.map, hash, guard);
                match self.map.commit(vacant, node, policy, guard) {
                    Commit::Done(found) => {
                        self.settle_insert(&found, weight, guard, after);
                        Ok(Some(Stored::New))
                    }
                    Commit::Lost(_) => Ok(None),
                    Commit::Full(_) if self.make_room(hash, guard, after) => Ok(None),
                    Commit::Full(_) => Ok(Some(Stored::NotKept)),
                }
            }
        }
    }
}
