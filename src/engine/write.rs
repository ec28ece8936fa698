//! Storing: insert, replace, compute, and the evictions that follow.

use std::hash::{BuildHasher, Hash};
use std::ptr;

use super::{After, Engine, Eye, GROW_LOAD_IN_TEN, Judgement, Outlet, View};
use crate::builder::InsertOptions;
use crate::error::{Refused, RefusedReason};
use crate::evict::{Evict, Judge, Victim};
use crate::freshness::{DRAWS, Durations, Generation, Inline, NEVER};
use crate::listener::RemovalCause;
use crate::node::{Extra, Initial, Node, Tail};
use crate::stats::Event;
use crate::sync::{AtomicU64, Relaxed};
use crate::table::reclaim::{self, Guard};
use crate::table::word::Policy;
use crate::table::{Commit, Found, Owned, Probe};
use crate::tags;

/// Entries that an insert evicts beyond its own need while the cache is over its capacity.
const SHRINK: usize = 2;

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
        if options.too_short {
            return refuse(value, RefusedReason::TooShort);
        }
        let windows = options.revalidate.is_some() || options.on_error.is_some();
        if windows && self.durations_of(options).is_unlimited() {
            return refuse(value, RefusedReason::NoDeadline);
        }
        if options.weight.is_some() && !self.weighted {
            return refuse(value, RefusedReason::Unweighted);
        }
        let weight = match (&self.weigher, options.weight) {
            (_, Some(weight)) => weight,
            (Some(weigher), None) => weigher(&key, &value),
            (None, None) => 1,
        };
        let weight = weight.max(1);
        if weight > self.capacity() && self.capacity() > 0 {
            return refuse(value, self.too_heavy(weight));
        }
        let generation = self.generation();
        let (state, now) = self.initial_state(options);
        let tail = self.flags.is_heavy().then(|| Tail { weight, touched: AtomicU64::new(now) });
        let node = Node::allocate(state, key, value, tail);
        // SAFETY: just allocated, and freed as it was by `Node::free`.
        let node = unsafe { Owned::from_raw(node, self.map.limbo()) };
        Ok(Prepared { node, generation, weight, version: options.version })
    }

    fn too_heavy(&self, weight: u64) -> RefusedReason {
        RefusedReason::TooHeavy { weight, capacity: self.capacity() }
    }

    /// The durations of an entry with these options; the caller's profile number is good if unchanged.
    fn durations_of(&self, options: &InsertOptions) -> Durations {
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
    fn initial_state(&self, options: &InsertOptions) -> (Initial, u64) {
        let generation = self.generation();
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
        let extra = Extra {
            flags: self.flags,
            generation: generation.number(),
            deadlines: durations.from(birth, draw),
            version: options.version,
            tags: tags::stamps(&self.tags, &options.tags),
        };
        (Initial::Extra(Box::new(extra)), now)
    }

    pub(super) fn set_timed(&self) {
        if !self.shared.timed.load(Relaxed) {
            self.shared.timed.store(true, Relaxed);
        }
    }

    /// A random number below [`DRAWS`].
    fn draw(&self) -> u8 {
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
        loop {
            let probe = self.map.probe(hash, |other| *other.key() == *node.node().key(), guard);
            if generation != self.generation() {
                // All were invalidated since the node was prepared. It must not take the place of an
                // entry that is newer than that.
                generation = self.generation();
                node.node().reset_state(self.initial_state(options).0);
            }
            match probe {
                Probe::Found(found) => {
                    let judgement = self.judge(found.node(), guard);
                    if let Err(reason) = self.check(rule, weight, version, &found, judgement, allow)
                    {
                        self.recorder.count(Event::Refused, guard.stripe());
                        return Err(Refused::new(node.into_value(), reason));
                    }
                    let policy = found.policy().used();
                    match self.map.replace(&found, node, policy, guard) {
                        Ok(new) => {
                            self.settle_replace(&found, &new, weight, &judgement, guard, after);
                            return Ok(if judgement.is_dead() {
                                Stored::New
                            } else {
                                Stored::Replaced
                            });
                        }
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

    /// Whether a value may be stored in place of the one found.
    fn check<'e>(
        &'e self,
        rule: Rule,
        weight: u64,
        version: Option<u64>,
        found: &Found<'e, Node<K, V>>,
        judgement: Judgement<'e>,
        allow: &mut impl FnMut(&View<'_, K, V>) -> bool,
    ) -> Result<(), RefusedReason> {
        let dead = judgement.is_dead();
        match rule {
            Rule::IfAbsent if !dead => return Err(RefusedReason::Present),
            Rule::IfPresent if dead => return Err(RefusedReason::Absent),
            _ => {}
        }
        if weight > self.capacity() && self.capacity() > 0 {
            return Err(self.too_heavy(weight));
        }
        if dead {
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

    fn settle_replace<'e>(
        &'e self,
        old: &Found<'e, Node<K, V>>,
        new: &Found<'e, Node<K, V>>,
        weight: u64,
        judgement: &Judgement<'_>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) {
        let cause = if judgement.is_dead() {
            self.recorder.count(Event::Insert, guard.stripe());
            Self::cause_of_death(judgement)
        } else {
            RemovalCause::Replaced
        };
        let old_weight = self.weight(old.node());
        let change = signed(weight) - signed(old_weight);
        self.evict.reweighed(change, new.policy(), guard);
        self.count_gone(cause, old_weight, guard);
        self.settle(change, ptr::from_ref(new.node()), guard, after);
        after.notice(old.node(), cause);
        if self.map.is_growing(guard) {
            self.map.help_growth(guard);
        }
        self.sweep_one(guard, after);
    }

    fn settle_insert<'e>(
        &'e self,
        found: &Found<'e, Node<K, V>>,
        weight: u64,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) {
        self.recorder.count(Event::Insert, guard.stripe());
        let entries = self.evict.entered(weight, found.policy(), guard);
        self.settle(signed(weight), ptr::from_ref(found.node()), guard, after);
        if entries.is_some_and(|n| n * 10 > self.map.buckets(guard) as u64 * GROW_LOAD_IN_TEN) {
            self.map.start_growth(guard);
        }
        if self.map.is_growing(guard) {
            self.map.help_growth(guard);
        }
        self.sweep_one(guard, after);
    }

    /// Pays for weight that was committed: from the free budget, or with the weight of others.
    fn settle<'e>(
        &'e self,
        debt: i64,
        protect: *const Node<K, V>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) {
        let mut debt = Debt { evict: &self.evict, left: debt };
        while debt.left > 0 && !debt.charge() {
            let Some(weight) = self.evict_one(protect, guard, after) else {
                // Nothing else is left: what is accounted is being taken out by other threads, which
                // have not yet said so.
                break;
            };
            debt.left -= signed(weight);
        }
        drop(debt);
        self.shrink(guard, after);
    }

    /// Evicts a little of what exceeds the capacity, if it was lowered or charged regardless.
    fn shrink<'e>(&'e self, guard: &'e Guard, after: &mut After<'_, K, V, S>) {
        for _ in 0..SHRINK {
            if !self.evict.is_over() {
                return;
            }
            let Some(weight) = self.evict_one(ptr::null(), guard, after) else { return };
            self.evict.discharge(signed(weight));
        }
    }

    /// Evicts one entry, or reclaims a dead one; returns its weight, which is still in the account.
    fn evict_one<'e>(
        &'e self,
        protect: *const Node<K, V>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Option<u64> {
        let Victim { found, cause } =
            self.evict.evict(&self.map, &Eye(self, guard), protect, guard)?;
        Some(self.gone(found.node(), found.policy(), cause, guard, after))
    }

    /// Makes room in a full chain: by growth if the table is due for it, else by evicting one of the
    /// chain. Returns false if there is nothing to evict.
    #[cold]
    fn make_room<'e>(
        &'e self,
        hash: u64,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> bool {
        if self.len() > 2 * self.map.buckets(guard) as u64 && self.map.start_growth(guard) {
            return true;
        }
        let eye = Eye(self, guard);
        let mut worst: Option<(u8, Victim<'e, Node<K, V>>)> = None;
        self.map.visit(hash, guard, |found| {
            let death = eye.death(found.node());
            let policy = found.policy();
            let worth = 1 + policy.frequency() + 4 * u8::from(policy.is_main());
            let rank = if death.is_some() { 0 } else { worth };
            if worst.as_ref().is_none_or(|(least, _)| rank < *least) {
                let cause = death.unwrap_or(RemovalCause::Evicted);
                worst = Some((rank, Victim { found, cause }));
            }
        });
        let Some((_, Victim { found, cause })) = worst else { return false };
        // If it fails, another thread changed the chain: there may be room now.
        self.take(&found, cause, guard, after);
        true
    }

    /// Changes the capacity; evicts at once what exceeds it.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        self.evict.set_capacity(capacity);
        let outlet = Outlet::default();
        while self.evict.is_over() {
            let mut after = After::new(self, &outlet);
            let guard = after.pin();
            let Some(weight) = self.evict_one(ptr::null(), &guard, &mut after) else { break };
            self.evict.discharge(signed(weight));
        }
        outlet.resume();
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
        let probe = self.map.probe(hash, |node| node.key() == key, guard);
        let found = match &probe {
            Probe::Found(found) => Some((*found, self.judge(found.node(), guard))),
            Probe::Vacant(_) => None,
        };
        let live = found.filter(|(_, judgement)| !judgement.is_dead());
        let view = live.map(|(found, judgement)| self.view(found.node(), judgement));
        match (decide(view), live) {
            (Decision::Keep, _) | (Decision::Remove, None) => Ok(Some(Computed::Kept)),
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
        found: Option<(Found<'e, Node<K, V>>, Judgement<'e>)>,
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
                let policy = old.policy().used();
                Ok(self.map.replace(old, node, policy, guard).ok().map(|new| {
                    self.settle_replace(old, &new, weight, &judgement, guard, after);
                    if judgement.is_dead() { Stored::New } else { Stored::Replaced }
                }))
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

    /// Takes a found entry out; returns whether this call did.
    pub(super) fn take<'e>(
        &'e self,
        found: &Found<'e, Node<K, V>>,
        cause: RemovalCause,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> bool {
        if !self.map.remove(found, guard) {
            return false;
        }
        let weight = self.weight(found.node());
        self.evict.discharge(signed(weight));
        self.gone(found.node(), found.policy(), cause, guard, after);
        true
    }
}

/// Committed weight that is not accounted yet. What is left of it when it is dropped is accounted
/// regardless, also when user code panics in between.
struct Debt<'e> {
    evict: &'e Evict,
    left: i64,
}

impl Debt<'_> {
    /// Pays it from the free budget, if that suffices.
    fn charge(&mut self) -> bool {
        let paid = self.evict.charge(self.left, false);
        if paid {
            self.left = 0;
        }
        paid
    }
}

impl Drop for Debt<'_> {
    fn drop(&mut self) {
        if self.left != 0 {
            self.evict.charge(self.left, true);
        }
    }
}

fn signed(weight: u64) -> i64 {
    i64::try_from(weight).unwrap_or(i64::MAX)
}
