//! How a load ends: what it brought is stored, if the node it began from still stands, with its flight in
//! the state.
//!
//! * A pending node is filled, and one CAS of the slot's policy bits makes it an entry. Whoever
//!   invalidates meanwhile takes the node out, so that this CAS fails.
//! * A stale entry's node is replaced. Its successor is a *product*: it names the flight as long as it takes to
//!   see what was said of the load meanwhile (`mark_stale`, `invalidate_if`), which counts for the product
//!   from the moment it was said.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::{After, Engine, Judgement, Ticket};
use crate::freshness::{Deadlines, Inline, NEVER};
use crate::guard::Attempt;
use crate::listener::RemovalCause;
use crate::node::{self, Extra, Initial, Node};
use crate::options::InsertOptions;
use crate::stats::Event;
use crate::sync::Relaxed;
use crate::table::reclaim::{self, Guard};
use crate::table::{Found, Probe};

/// What is to become of a key whose load has ended.
pub(crate) enum Content<'o, V> {
    Value(V, &'o InsertOptions),
    /// Keep the value, with new deadlines.
    Unchanged(&'o InsertOptions),
    Absent(Option<u64>),
    /// Nothing new; and what is to be remembered of the attempt.
    Nothing(Option<Attempt>),
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concluded {
    /// The cache has it.
    Stored,
    NotStored,
    /// Not stored: one of its tags was invalidated after the load had begun.
    Outdated,
}

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// The node of a load, if it still stands.
    fn standing<'e>(
        &'e self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        guard: &'e Guard,
    ) -> Option<(Found<'e, Node<K, V>>, Judgement<'e, V>)> {
        let Probe::Found(found) = self.map.probe(hash, |node| node.key() == key, guard) else {
            return None;
        };
        let judgement = self.judge(found.node(), guard);
        let flight = judgement.state.flight()?;
        Arc::ptr_eq(flight, &ticket.flight).then_some((found, judgement))
    }

    /// Ends a load: stores what came, or takes its traces out. Runs the weigher.
    pub(crate) fn conclude(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        content: Content<'_, V>,
    ) -> Concluded
    where
        K: Clone,
    {
        let concluded = match content {
            Content::Value(value, options) => self.store_loaded(hash, key, ticket, value, options),
            Content::Unchanged(options) => self.keep(hash, key, ticket, options),
            Content::Absent(ttl) => self.store_absence(hash, key, ticket, ttl),
            Content::Nothing(attempt) => {
                self.withdraw(hash, key, ticket, attempt);
                return Concluded::NotStored;
            }
        };
        if concluded != Concluded::Stored {
            self.withdraw(hash, key, ticket, None);
        }
        concluded
    }

    fn store_loaded(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        value: V,
        options: &InsertOptions,
    ) -> Concluded
    where
        K: Clone,
    {
        let weight = self.weigh(key, &value, options);
        let too_heavy = weight > self.capacity() && self.capacity() > 0;
        if too_heavy || self.check_options(options).is_err() {
            self.recorder.count(Event::Refused, reclaim::stripe());
            return Concluded::NotStored;
        }
        if self.capacity() == 0 {
            return Concluded::NotStored;
        }
        let mut value = Some(value);
        self.operate(|guard, after| {
            let mut node = None;
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                if judgement.invalid || ticket.flight.is_void() {
                    return Concluded::NotStored;
                }
                let (state, now) = self.initial_state(options, ticket.generation);
                if self.outdated(&state, ticket) {
                    return Concluded::Outdated;
                }
                if found.is_pending() {
                    let value = value.take().expect("a pending node is filled once");
                    self.set_weight(found.node(), weight, now);
                    // SAFETY: the node stands with our flight in its state, which we alone answer.
                    let old = unsafe { found.node().fill(value, state) };
                    self.retire_extra(old, guard);
                    return self.place(hash, found, guard, after);
                }
                let newer = judgement.version().filter(|_| judgement.has_value());
                if newer.zip(options.version).is_some_and(|(old, new)| new < old) {
                    return Concluded::NotStored;
                }
                let (product, inline) = self.product(state, ticket);
                let new = node.take().unwrap_or_else(|| {
                    self.allocate(product, key.clone(), value.take(), weight, now)
                });
                match self.map.replace(&found, new, found.policy().used(), guard) {
                    Ok(new) => {
                        self.settle_replace(&found, &new, weight, &judgement, guard, after);
                        self.finish(new, inline, ticket, guard, after);
                        return Concluded::Stored;
                    }
                    Err(back) => node = Some(back),
                }
            }
            Concluded::NotStored
        })
    }

    /// Makes an entry of a node that was just filled, unless its place was taken meanwhile.
    fn place<'e>(
        &'e self,
        hash: u64,
        mut found: Found<'e, Node<K, V>>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Concluded {
        let node = found.node();
        while found.is_pending() {
            if self.place_loaded(hash, &found, guard, after).is_some() {
                break;
            }
            match self.again(node, guard) {
                Some(again) => found = again,
                None => return Concluded::NotStored,
            }
        }
        Concluded::Stored
    }

    fn set_weight(&self, node: &Node<K, V>, weight: u64, now: u64) {
        if self.flags.is_heavy() {
            // SAFETY: all nodes of this cache are allocated with a tail.
            let tail = unsafe { node.tail() };
            tail.weight.store(weight, Relaxed);
            tail.touched.store(now, Relaxed);
        }
    }

    /// The first state of a product, and its last one if that is a word.
    fn product(&self, state: Initial<V>, ticket: &Ticket<V>) -> (Initial<V>, Option<Inline>) {
        let (extra, inline) = match state {
            Initial::Extra(extra) => (*extra, None),
            Initial::Inline(word) => {
                (self.extra_of(node::State::Inline(word), ticket.generation), Some(word))
            }
        };
        let flight = Some(Arc::clone(&ticket.flight));
        self.set_timed();
        (Initial::Extra(Box::new(Extra { flight, product: true, ..extra })), inline)
    }

    /// Ends a product's time as one: from now on its own state says what was said of the load.
    fn finish<'e>(
        &'e self,
        mut found: Found<'e, Node<K, V>>,
        inline: Option<Inline>,
        ticket: &Ticket<V>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) {
        let node = found.node();
        loop {
            let state = node.state(guard);
            if !state.flight().is_some_and(|flight| Arc::ptr_eq(flight, &ticket.flight)) {
                // Somebody marked it himself.
                return;
            }
            if ticket.flight.is_void() {
                if self.take(&found, RemovalCause::Invalidated, guard, after) {
                    return;
                }
                match self.again(node, guard) {
                    Some(again) => found = again,
                    None => return,
                }
                continue;
            }
            let last = match (ticket.flight.marked(), inline) {
                (None, Some(word)) => Initial::Inline(word),
                (marked, _) => {
                    let extra = self.extra_of(state, ticket.generation);
                    let deadlines = marked.map_or(extra.deadlines, |marked| {
                        extra.deadlines.stale_from(marked, self.durations)
                    });
                    let extra = Extra { flight: None, product: false, deadlines, ..extra };
                    Initial::Extra(Box::new(extra))
                }
            };
            if let Ok(old) = node.change_state(state, last) {
                return self.retire_extra(old, guard);
            }
        }
    }

    /// Whether one of a state's tags was invalidated after the load had begun.
    fn outdated(&self, state: &Initial<V>, ticket: &Ticket<V>) -> bool {
        match state {
            Initial::Inline(_) => false,
            Initial::Extra(extra) => {
                !extra.tags.is_empty() && self.tags.changed(&extra.tags, ticket.invalidations)
            }
        }
    }

    /// "Unchanged": the entry stays, with new deadlines.
    fn keep(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        options: &InsertOptions,
    ) -> Concluded {
        if self.check_options(options).is_err() {
            self.recorder.count(Event::Refused, reclaim::stripe());
            return Concluded::NotStored;
        }
        self.operate(|guard, _| {
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                if found.is_pending() || judgement.invalid || ticket.flight.is_void() {
                    return Concluded::NotStored;
                }
                let state = self.kept_state(judgement, options, ticket);
                if self.outdated(&state, ticket) {
                    return Concluded::Outdated;
                }
                // Who marks the entry changes this very state.
                if let Ok(old) = found.node().change_state(judgement.state, state) {
                    self.retire_extra(old, guard);
                    self.touch(found.node(), self.now());
                    return Concluded::Stored;
                }
            }
            Concluded::NotStored
        })
    }

    /// The state of an entry that is kept: new deadlines, its old tags and more, no lower version.
    fn kept_state(
        &self,
        judgement: Judgement<'_, V>,
        options: &InsertOptions,
        ticket: &Ticket<V>,
    ) -> Initial<V> {
        let old = self.extra_of(judgement.state, ticket.generation);
        let version = options.version.max(old.version);
        let marked = ticket.flight.marked();
        let new = match self.initial_state(options, ticket.generation).0 {
            Initial::Inline(word)
                if version.is_none() && old.tags.is_empty() && marked.is_none() =>
            {
                return Initial::Inline(word);
            }
            Initial::Inline(word) => {
                self.extra_of(node::State::Inline(word), ticket.generation)
            }
            Initial::Extra(extra) => *extra,
        };
        let tags = old.tags.iter().chain(new.tags.iter()).cloned().collect();
        let deadlines = marked
            .map_or(new.deadlines, |marked| new.deadlines.stale_from(marked, self.durations));
        self.set_timed();
        Initial::Extra(Box::new(Extra { version, tags, deadlines, ..new }))
    }

    /// Remembers that the origin has no such key, if absences are remembered.
    fn store_absence(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        ttl: Option<u64>,
    ) -> Concluded
    where
        K: Clone,
    {
        let mut durations = self.absent;
        durations.fresh = ttl.unwrap_or(durations.fresh);
        if durations.fresh == 0 || self.absence_weight() > self.capacity() {
            self.remove_loaded(hash, key, ticket);
            return Concluded::NotStored;
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
        self.store_hollow(hash, key, ticket, &|| match inline {
            Some(word) => Initial::Inline(word),
            None => Initial::Extra(Box::new(Extra {
                flags,
                content: node::Content::Absent,
                generation: ticket.generation.number(),
                deadlines: durations.from(birth, self.draw()),
                version: None,
                tags: [].into(),
                flight: None,
                product: false,
                attempt: None,
            })),
        })
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
    ) -> Concluded
    where
        K: Clone,
    {
        let weight = self.absence_weight();
        self.operate(|guard, after| {
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
        })
    }

    /// Takes out what the load was for: the origin has it no more, and that is not remembered.
    fn remove_loaded(&self, hash: u64, key: &K, ticket: &Ticket<V>) {
        self.operate(|guard, after| {
            while let Some((found, _)) = self.standing(hash, key, ticket, guard) {
                if self.take(&found, RemovalCause::Removed, guard, after) {
                    return;
                }
            }
        });
    }

    /// Takes a load's traces out. An entry it was attached to stays as it was, but for the attempt; of a
    /// key without a value the attempt is remembered in an entry of its own, if it is to be.
    fn withdraw(&self, hash: u64, key: &K, ticket: &Ticket<V>, attempt: Option<Attempt>) {
        self.operate(|guard, after| {
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
        });
    }

    /// The state of a key that could not be loaded. It outlives the time that it has to wait once more,
    /// so that failures in a row are known as such.
    fn failed_state(&self, ticket: &Ticket<V>, attempt: Attempt) -> Initial<V> {
        self.set_timed();
        let now = self.now();
        let interval = self.limits.throttle(attempt, now).map_or(0, crate::clock::millis);
        let soft = now.saturating_add(interval);
        let end = soft.saturating_add(interval).saturating_add(1);
        Initial::Extra(Box::new(Extra {
            flags: self.flags.hollow(),
            content: node::Content::Nothing,
            generation: ticket.generation.number(),
            deadlines: Deadlines {
                birth: attempt.started,
                refresh: NEVER,
                soft,
                revalidate: end,
                on_error: end,
            },
            version: None,
            tags: [].into(),
            flight: None,
            product: false,
            attempt: Some(attempt),
        }))
    }
}
