//! What follows a compare-and-swap that stored or took out a node: counters, regions, the budget and the
//! evictions that it asks for.

use std::hash::{BuildHasher, Hash};

use super::{After, Engine, Eye, GROW_LOAD_IN_TEN, Judgement, Outlet};
use crate::evict::{Evict, Judge, Newcomer, Victim};
use crate::listener::RemovalCause;
use crate::node::Node;
use crate::stats::Event;
use crate::table::reclaim::Guard;
use crate::table::{Found, Probe};

/// Entries that an insert evicts beyond its own need while the cache is over its capacity.
const SHRINK: usize = 2;

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    pub(super) fn settle_replace<'e>(
        &'e self,
        old: &Found<'e, Node<K, V>>,
        new: &Found<'e, Node<K, V>>,
        weight: u64,
        judgement: &Judgement<'_, V>,
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
        self.count_gone(cause, old_weight, guard);
        self.note_garbage(old_weight, guard);
        // Before the evictions, so that nothing that panics there keeps the listener from hearing of it.
        after.notice(old.node(), cause, guard);
        self.settle(change, new, guard, after);
        self.do_a_share(guard, after);
    }

    pub(super) fn settle_insert<'e>(
        &'e self,
        found: &Found<'e, Node<K, V>>,
        weight: u64,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) {
        self.recorder.count(Event::Insert, guard.stripe());
        let entries = self.evict.entered(signed(weight), guard);
        self.settle(signed(weight), found, guard, after);
        if entries.is_some_and(|n| n * 10 > self.map.buckets(guard) as u64 * GROW_LOAD_IN_TEN) {
            self.map.start_growth(guard);
        }
        self.do_a_share(guard, after);
    }

    /// Each write's share of the common work: moving buckets of a growing table, sweeping out the dead.
    fn do_a_share<'e>(&'e self, guard: &'e Guard, after: &mut After<'_, K, V, S>) {
        if self.map.is_growing(guard) {
            self.map.help_growth(guard);
        }
        self.sweep_one(guard, after);
    }

    /// Pays for weight that was committed: from the free budget, or with the weight of others.
    fn settle<'e>(
        &'e self,
        debt: i64,
        of: &Found<'e, Node<K, V>>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) {
        let mut newcomer = self.evict.newcomer(of.node(), debt, of.policy(), guard);
        let mut debt = Debt { evict: &self.evict, left: debt };
        while debt.left > 0 && !debt.charge() {
            let Some(weight) = self.evict_one(&mut newcomer, guard, after) else {
                // Nothing else is left: what is accounted is being taken out by other threads, which
                // have not yet said so.
                break;
            };
            debt.left -= signed(weight);
        }
        drop((debt, newcomer));
        self.shrink(guard, after);
    }

    /// Evicts a little of what exceeds the capacity, if it was lowered or charged regardless.
    fn shrink<'e>(&'e self, guard: &'e Guard, after: &mut After<'_, K, V, S>) {
        for _ in 0..SHRINK {
            if !self.evict.is_over() {
                return;
            }
            let mut nobody = self.evict.nobody(guard);
            let Some(weight) = self.evict_one(&mut nobody, guard, after) else { return };
            self.evict.discharge(signed(weight));
        }
    }

    /// Evicts one entry, or reclaims a dead one; returns its weight, which is still in the account.
    fn evict_one<'e>(
        &'e self,
        newcomer: &mut Newcomer<'e, Node<K, V>>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Option<u64> {
        let Victim { found, cause } =
            self.evict.evict(&self.map, &Eye(self, guard), newcomer, guard)?;
        Some(self.gone(found.node(), found.policy(), cause, guard, after))
    }

    /// Makes room in a full chain: by growth if the table is due for it, else by evicting one of the
    /// chain. Returns false if there is nothing to evict.
    #[cold]
    pub(super) fn make_room<'e>(
        &'e self,
        hash: u64,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> bool {
        // Those that are being loaded are not among the entries, but take slots.
        let slots = self.len().saturating_add(self.limits.in_flight());
        if slots > 2 * self.map.buckets(guard) as u64 && self.map.start_growth(guard) {
            return true;
        }
        let eye = Eye(self, guard);
        let mut worst: Option<(u8, Victim<'e, Node<K, V>>)> = None;
        self.map.visit(hash, guard, |found| {
            if found.is_pending() {
                return;
            }
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
            let mut nobody = self.evict.nobody(&guard);
            let Some(weight) = self.evict_one(&mut nobody, &guard, &mut after) else { break };
            self.evict.discharge(signed(weight));
        }
        outlet.resume();
    }

    /// Makes an entry of a node whose load has ended: the one that the load's thread is about to make, or
    /// has left unmade. Returns it, unless another thread was quicker.
    pub(super) fn place_loaded<'e>(
        &'e self,
        hash: u64,
        found: &Found<'e, Node<K, V>>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Option<Found<'e, Node<K, V>>> {
        let placed = found.stamp(self.evict.place(&self.map, hash, guard))?;
        self.settle_insert(&placed, self.weight(placed.node()), guard, after);
        Some(placed)
    }

    /// As the table's `probe`, for those who change a key: what is found is an entry, or the place of one
    /// that is being loaded.
    pub(super) fn probe<'e>(
        &'e self,
        hash: u64,
        eq: impl Fn(&Node<K, V>) -> bool,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Probe<'e, Node<K, V>> {
        loop {
            match self.map.probe(hash, &eq, guard) {
                Probe::Found(found)
                    if found.is_pending() && !found.node().state(guard).is_loading() =>
                {
                    // Readers see its value already. Who loaded it may be stopped: not waited for.
                    self.place_loaded(hash, &found, guard, after);
                }
                probe => return probe,
            }
        }
    }

    /// Takes a found entry out; returns whether this call did. Of a key that is being loaded only the
    /// place is taken: it was not accounted for, and what the load brings will not be stored.
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
        if found.is_pending() {
            return true;
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
