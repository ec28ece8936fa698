//! Removing and invalidating, one entry or many, and sweeping out what is dead.

use std::hash::{BuildHasher, Hash};
use std::ptr::{self, NonNull};

use equivalent::Equivalent;

use super::{After, Engine, Outlet, View};
use crate::answer::KeyFlight;
use crate::flight::Phase;
use crate::freshness::{Freshness, Generation};
use crate::listener::RemovalCause;
use crate::node::{Content, Extra, Initial, Node, State};
use crate::sync::barrier;
use crate::sync::{AcqRel, Relaxed};
use crate::table::reclaim::{Guard, Kind, pin};
use crate::table::{Found, Hit, Probe};

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Takes out the entry of a key. Returns what `keep` makes of it, if it was not dead.
    pub(crate) fn remove<Q, R>(
        &self,
        key: &Q,
        cause: RemovalCause,
        keep: impl FnOnce(&V) -> R,
    ) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.hash(key);
        self.operate(|guard, after| {
            loop {
                let probe = self.probe(hash, |node| key.equivalent(node.key()), guard, after);
                let Probe::Found(found) = probe else { return None };
                let judgement = self.judge(found.node(), guard);
                let cause =
                    if judgement.is_dead() { Self::cause_of_death(&judgement) } else { cause };
                if self.take(&found, cause, guard, after) {
                    let live = judgement.has_value() && !found.is_pending();
                    return live.then(|| keep(found.node().value()));
                }
            }
        })
    }

    pub(crate) fn invalidate_all(&self) {
        let mut raw = self.shared.generation.load(Relaxed);
        loop {
            let (next, sweep) = Generation::from_raw(raw).next(self.now());
            if sweep {
                self.sweep(usize::MAX);
            }
            // ORDERING: AcqRel only so that two invalidations are ordered; see `generation`.
            let swap = self.shared.generation.compare_exchange(raw, next.raw(), AcqRel, Relaxed);
            match swap {
                Ok(_) => break,
                Err(now) => raw = now,
            }
        }
        self.note_debris();
    }

    pub(crate) fn invalidate_tag(&self, tag: &str) -> bool {
        let known = self.tags.invalidate(tag);
        if known {
            self.note_debris();
        }
        known
    }

    /// Has the coming inserts look for dead entries, twice round the table.
    fn note_debris(&self) {
        let buckets = self.map.buckets(&pin());
        self.shared.debris.store(2 * buckets as i64, Relaxed);
        barrier::after_changes();
    }

    /// Takes out the entries for which `condemn` returns true, of those that were there when this
    /// began; exactly the ones it was shown.
    pub(crate) fn invalidate_if(&self, mut condemn: impl FnMut(&K, &V) -> bool) -> usize {
        let outlet = Outlet::default();
        let mut taken = 0;
        let mut next = Some(0);
        while let Some(hash) = next {
            let mut after = After::new(self, &outlet);
            let guard = after.pin();
            next = self.map.visit(hash, &guard, |found| {
                taken += usize::from(self.invalidate_one(found, &mut condemn, &guard, &mut after));
            });
        }
        outlet.resume();
        taken
    }

    /// Takes an entry out if it is condemned. What is being loaded meanwhile may be condemned too when
    /// it comes: it is not stored.
    fn invalidate_one<'e>(
        &'e self,
        found: Found<'e, Node<K, V>>,
        condemn: &mut impl FnMut(&K, &V) -> bool,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> bool {
        let node = found.node();
        let judgement = self.judge(node, guard);
        if !found.is_pending() && judgement.state.flight().is_none() {
            return judgement.has_value()
                && condemn(node.key(), node.value())
                && self.take_node(found, guard, after);
        }
        self.invalidate_loaded(node, condemn, guard, after)
    }

    /// As [`Self::invalidate_one`], for a key with a load: until it is certain that the load has been told
    /// or has ended.
    fn invalidate_loaded<'e>(
        &'e self,
        mut node: &'e Node<K, V>,
        condemn: &mut impl FnMut(&K, &V) -> bool,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> bool {
        let hash = self.hash(node.key());
        let mut told = None;
        loop {
            let eq = |other: &Node<K, V>| other.key() == node.key();
            let Probe::Found(found) = self.probe(hash, eq, guard, after) else { return false };
            node = found.node();
            let judgement = self.judge(node, guard);
            if found.is_pending() {
                // Nothing to condemn, and nothing to keep.
                if self.take(&found, RemovalCause::Invalidated, guard, after) {
                    return false;
                }
                continue;
            }
            let product = judgement.state.product_of().is_some();
            let value =
                judgement.has_value() || (product && judgement.state.content() == Content::Value);
            if value && told != Some(ptr::from_ref(node)) && condemn(node.key(), node.value()) {
                if self.take(&found, RemovalCause::Invalidated, guard, after) {
                    return true;
                }
                continue;
            }
            let flight = judgement.state.flight().filter(|_| !product);
            match flight {
                Some(flight) if told != Some(ptr::from_ref(node)) => {
                    flight.make_void();
                    told = Some(ptr::from_ref(node));
                }
                _ => return false,
            }
        }
    }

    /// Invalidates a node, also if its policy bits change meanwhile. Returns false if it was replaced
    /// or taken by another thread.
    pub(super) fn take_node<'e>(
        &'e self,
        found: Found<'e, Node<K, V>>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> bool {
        let mut found = Some(found);
        while let Some(now) = found {
            if self.take(&now, RemovalCause::Invalidated, guard, after) {
                return true;
            }
            found = self.again(now.node(), guard);
        }
        false
    }

    /// The same node in its slot as it is now, if it is still there.
    pub(super) fn again<'g>(
        &'g self,
        node: &'g Node<K, V>,
        guard: &'g Guard,
    ) -> Option<Found<'g, Node<K, V>>> {
        let hash = self.hash(node.key());
        match self.map.probe(hash, |other| ptr::eq(other, node), guard) {
            Probe::Found(found) => Some(found),
            Probe::Vacant(_) => None,
        }
    }

    /// Ends an entry's freshness now; returns whether it was there.
    pub(crate) fn mark_stale<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.hash(key);
        self.operate(|guard, after| {
            loop {
                let eq = |node: &Node<K, V>| key.equivalent(node.key());
                let Some(hit) = self.map.find(hash, eq, guard) else { return false };
                let node = hit.node();
                let state = node.state(guard);
                if state.is_loading() {
                    // What is being loaded is outdated too, and there is no window that it is in.
                    if let Probe::Found(found) = self.probe(hash, eq, guard, after) {
                        let loading = found.is_pending();
                        if loading && self.take(&found, RemovalCause::Invalidated, guard, after) {
                            return false;
                        }
                    }
                    continue;
                }
                // Taken before the entry is judged: if all are invalidated meanwhile, so is the
                // successor.
                let generation = self.generation();
                if let Some(flight) = state.flight() {
                    flight.mark(self.now());
                }
                let live = state.is_valid(generation) && self.judge(node, guard).has_value();
                if live {
                    // If it fails: marked by another thread at the same time, or a load has ended.
                    let Ok(old) = node.change_state(state, self.stale(state, generation)) else {
                        continue;
                    };
                    self.retire_extra(old, guard);
                }
                // A load that was told of the mark heeds it. If it had ended before that, its value is
                // another node, and marked in the next round.
                let again = state.flight().is_some() && state.product_of().is_none();
                let same = |hit: Hit<'_, Node<K, V>>| ptr::eq(hit.node(), node);
                if !again || self.map.find(hash, eq, guard).is_some_and(same) {
                    return live;
                }
            }
        })
    }

    /// A state's successor whose freshness ends now.
    pub(super) fn stale(&self, state: State<'_, V>, generation: Generation) -> Initial<V> {
        self.set_timed();
        let deadlines = state.deadlines(&self.profiles).stale_from(self.now(), self.durations);
        let extra = self.extra_of(state, generation);
        // A product becomes an entry as any other.
        let flight = extra.flight.clone().filter(|_| !extra.product);
        Initial::Extra(Box::new(Extra { deadlines, flight, product: false, ..extra }))
    }

    /// What an extra block of an entry in this state says.
    pub(super) fn extra_of(&self, state: State<'_, V>, generation: Generation) -> Extra<V> {
        let deadlines = state.deadlines(&self.profiles);
        match state {
            State::Inline(word) => {
                Extra::new(word.flags(), state.content(), generation.number(), deadlines)
            }
            State::Extra(extra) => extra.clone(),
            State::Loading(loading) => {
                let generation = loading.flight().generation();
                let extra = Extra::new(loading.flags(), state.content(), generation, deadlines);
                Extra { flight: state.own_flight(), ..extra }
            }
        }
    }

    /// Retires what a state has pointed to.
    pub(super) fn retire_extra(&self, old: Option<NonNull<()>>, guard: &Guard) {
        if let Some(old) = old {
            // SAFETY: the CAS took the block out of the node's state word, once; who read it before
            // is pinned.
            unsafe { self.map.limbo().retire(old.as_ptr(), Kind::Extra, guard) };
            self.note_garbage(1, guard);
        }
    }

    /// Looks at one bucket for dead entries, if there may be any.
    pub(super) fn sweep_one<'e>(&'e self, guard: &'e Guard, after: &mut After<'_, K, V, S>) {
        let debris = self.shared.debris.load(Relaxed);
        if debris > 0 {
            self.shared.debris.fetch_sub(1, Relaxed);
        } else if !self.shared.timed.load(Relaxed) {
            return;
        }
        let position = self.evict.next_to_sweep();
        self.sweep_bucket(position, guard, after);
    }

    /// Takes the dead out of a bucket. Returns how many entries were there and how many were dead.
    fn sweep_bucket<'e>(
        &'e self,
        position: u64,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> (usize, usize) {
        let (mut seen, mut taken) = (0, 0);
        self.map.visit_at(position, guard, |found| {
            seen += 1;
            let judgement = self.judge(found.node(), guard);
            let ended = |flight: &KeyFlight<V>| flight.phase() != Phase::Running;
            if found.is_pending() {
                // The places of loads that have ended are taken out by them; but for all cases.
                if judgement.state.is_loading() && judgement.state.flight().is_some_and(ended) {
                    self.take(&found, RemovalCause::Invalidated, guard, after);
                }
            } else if judgement.is_reclaimable() {
                let cause = Self::cause_of_death(&judgement);
                taken += usize::from(self.take(&found, cause, guard, after));
            }
        });
        (seen, taken)
    }

    /// Looks at about `budget` entries for dead ones, going on where the last look stopped; at no bucket
    /// twice. Returns how many it took out.
    pub(crate) fn sweep(&self, budget: usize) -> usize {
        let outlet = Outlet::default();
        let mut taken = 0;
        let mut looked_at = 0;
        let mut buckets = 0;
        loop {
            let mut after = After::new(self, &outlet);
            let guard = after.pin();
            if looked_at >= budget || buckets >= self.map.buckets(&guard) {
                break;
            }
            let (seen, dead) = self.sweep_bucket(self.evict.next_to_sweep(), &guard, &mut after);
            looked_at += seen.max(1);
            taken += dead;
            buckets += 1;
        }
        self.map.limbo().flush();
        self.tags.flush();
        outlet.resume();
        taken
    }

    /// Calls `visit` with the entries of a hash's bucket that a plain read would return; returns where the
    /// next bucket begins.
    pub(crate) fn visit<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        mut visit: impl FnMut(View<'g, K, V>),
    ) -> Option<u64> {
        self.map.visit(hash, guard, |found: Found<'g, Node<K, V>>| {
            let judgement = self.judge(found.node(), guard);
            let live = matches!(judgement.freshness, Freshness::Fresh | Freshness::Stale);
            if live && judgement.has_value() {
                visit(self.view(found.node(), judgement));
            }
        })
    }
}
