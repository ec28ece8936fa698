//! How a load ends that brought no value: an absence is remembered, or the attempt, or nothing.

use std::hash::{BuildHasher, Hash};

use super::publish::Concluded;
use super::{After, Engine, Judgement, Ticket};
use crate::freshness::{Deadlines, Inline, NEVER};
use crate::guard::Attempt;
use crate::listener::RemovalCause;
use crate::node::{self, Extra, Initial, Node};
use crate::table::Found;
use crate::table::reclaim::Guard;

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Remembers that the origin has no such key, if absences are remembered.
    pub(super) fn store_absence(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        ttl: Option<u64>,
        then: impl FnOnce(&Concluded),
    ) -> Concluded
    where
        K: Clone,
    {
        let mut durations = self.absent;
        durations.fresh = ttl.unwrap_or(durations.fresh);
        if durations.fresh == 0 || self.absence_weight() > self.capacity() {
            return self.operate_then(
                |guard, after| {
                    while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                        if found.is_pending()
                            || self.remove_loaded(&found, key, &judgement, ticket, guard, after)
                        {
                            break;
                        }
                    }
                    Concluded::NotStored
                },
                |_| {},
            );
        }
        let birth = self.now().max(ticket.generation.start());
        let flags = self.flags.hollow();
        let profile = (!durations.is_unlimited())
            .then(|| self.profiles.number(durations.with_jitter(self.jitter)));
        let inline = match profile {
            None => Some(Inline::without_deadlines(flags, ticket.generation)),
            Some(profile) => profile.and_then(|profile| {
                Inline::with_deadlines(flags, ticket.generation, profile, self.draw(), birth)
            }),
        };
        self.set_timed();
        let state = || match inline {
            Some(word) => Initial::Inline(word),
            None => {
                let deadlines = durations.from(birth, self.draw());
                let generation = ticket.generation.number();
                let extra = Extra::new(flags, node::Content::Absent, generation, deadlines);
                Initial::Extra(Box::new(extra))
            }
        };
        self.store_hollow(hash, key, ticket, &state, then)
    }

    /// What a remembered absence, or failure, weighs: never nothing, so that they are bounded.
    fn absence_weight(&self) -> u64 {
        match self.absence_weight {
            _ if !self.weighted => 1,
            Some(weight) => weight.max(1),
            None => (self.capacity() / 1_024).clamp(1, 64),
        }
    }

    /// Stores a node without a value for a key that was loaded.
    fn store_hollow(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        state: &dyn Fn() -> Initial<V>,
        then: impl FnOnce(&Concluded),
    ) -> Concluded
    where
        K: Clone,
    {
        let weight = self.absence_weight();
        let store = |guard: &Guard, after: &mut After<'_, K, V, S>| {
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                if judgement.invalid || ticket.flight.is_void() {
                    return Concluded::NotStored;
                }
                if found.is_pending() {
                    self.set_weight(found.node(), weight, judgement.now);
                    let old = found.node().set_state(state());
                    self.retire_extra(old, guard);
                    return self.place(hash, found, guard, after);
                }
                let (product, inline) = self.product(state(), ticket);
                let new = self.allocate(product, key.clone(), None, weight, judgement.now);
                if let Ok(new) = self.map.replace(&found, new, found.policy(), guard) {
                    self.settle_replace(&found, &new, weight, &judgement, guard, after);
                    self.finish(new, inline, ticket, guard, after);
                    return Concluded::Stored;
                }
            }
            Concluded::NotStored
        };
        self.operate_then(store, then)
    }

    /// Takes out what the load was for: the origin has it no more, and that is not remembered. What is left
    /// of it is the attempt, if attempts count.
    fn remove_loaded<'e>(
        &'e self,
        found: &Found<'e, Node<K, V>>,
        key: &K,
        judgement: &Judgement<'e, V>,
        ticket: &Ticket<V>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> bool
    where
        K: Clone,
    {
        let weight = self.absence_weight();
        let attempt = self.attempt(ticket).filter(|_| weight <= self.capacity());
        let Some(attempt) = attempt.filter(|_| !judgement.invalid && !ticket.flight.is_void())
        else {
            return self.take(found, RemovalCause::Removed, guard, after);
        };
        let state = self.failed_state(ticket, attempt);
        let new = self.allocate(state, key.clone(), None, weight, judgement.now);
        match self.map.replace(found, new, found.policy(), guard) {
            Ok(new) => {
                self.settle_replace(found, &new, weight, judgement, guard, after);
                true
            }
            Err(_) => false,
        }
    }

    /// Takes a load's traces out. An entry it was attached to stays as it was, but for the attempt; of a
    /// key without a value the attempt is remembered in an entry of its own, if it is to be.
    pub(super) fn withdraw(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        attempt: Option<Attempt>,
        then: impl FnOnce(),
    ) {
        let withdraw = |guard: &Guard, after: &mut After<'_, K, V, S>| {
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                let attempt = attempt.filter(|_| !judgement.invalid && !ticket.flight.is_void());
                if found.is_pending() {
                    let state = attempt
                        .filter(|_| self.absence_weight() <= self.capacity())
                        .map(|attempt| self.failed_state(ticket, attempt));
                    if let Some(state) = state {
                        self.set_weight(found.node(), self.absence_weight(), judgement.now);
                        let old = found.node().set_state(state);
                        self.retire_extra(old, guard);
                        self.place(hash, found, guard, after);
                        return;
                    }
                    if self.map.remove(&found, guard) {
                        return;
                    }
                } else {
                    let extra = Extra {
                        flight: None,
                        attempt,
                        ..self.extra_of(judgement.state, ticket.generation)
                    };
                    let state = Initial::Extra(Box::new(extra));
                    if let Ok(old) = found.node().change_state(judgement.state, state) {
                        self.retire_extra(old, guard);
                        return;
                    }
                }
            }
        };
        self.operate_then(withdraw, |()| then());
    }

    /// The state of a key that could not be loaded. It outlives the time that it has to wait once more,
    /// so that failures in a row are known as such.
    fn failed_state(&self, ticket: &Ticket<V>, attempt: Attempt) -> Initial<V> {
        self.set_timed();
        let now = self.now();
        let interval = self.limits.pause_after(attempt, now);
        let soft = now.saturating_add(interval);
        let end = soft.saturating_add(interval).saturating_add(1);
        let birth = attempt.started;
        let deadlines = Deadlines { birth, refresh: NEVER, soft, revalidate: end, on_error: end };
        let (flags, generation) = (self.flags.hollow(), ticket.generation.number());
        let extra = Extra::new(flags, node::Content::Nothing, generation, deadlines);
        Initial::Extra(Box::new(Extra { attempt: Some(attempt), ..extra }))
    }
}
