//! How a load ends: what it brought is stored, if the node it began from still stands, with its flight in
//! the state. What is done without a value is in `hollow`.
//!
//! * A pending node is filled, and one CAS of the slot's policy bits makes it an entry. Whoever
//!   invalidates meanwhile takes the node out, so that this CAS fails.
//! * A stale entry's node is replaced. Its successor is a *product*: it names the flight as long as it takes to
//!   see what was said of the load meanwhile (`mark_stale`, `invalidate_if`), which counts for the product
//!   from the moment it was said.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::{After, Engine, Judgement, Ticket};
use crate::flight::Said;
use crate::freshness::{Freshness, Inline, NEVER};
use crate::guard::Attempt;
use crate::node::{self, Extra, Initial, Node};
use crate::options::InsertOptions;
use crate::stats::Event;
use crate::sync::Relaxed;
use crate::table::reclaim::{self, Guard};
use crate::table::{Found, Probe};
use crate::tags::{self, Stamp};

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
    pub(super) fn standing<'e>(
        &'e self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        guard: &'e Guard,
    ) -> Option<(Found<'e, Node<K, V>>, Judgement<'e, V>)> {
        let Probe::Found(found) = self.map.probe(hash, |node| node.key() == key, guard) else {
            return None;
        };
        let state = found.node().state(guard);
        if !ticket.is_of(state.flight()) {
            return None;
        }
        if !found.is_pending() {
            return Some((found, self.judge_timed(found.node(), guard)));
        }
        // Only its generation is of interest, and the time if it has to be noted.
        let now = if self.time_to_idle == NEVER { 0 } else { self.now() };
        let invalid = !state.is_valid(self.generation());
        Some((found, Judgement { state, now, freshness: Freshness::Fresh, invalid }))
    }

    /// Ends a load: stores what came, or takes its traces out. Runs the weigher first; then, when all is
    /// done and the thread is not pinned, `tell`, once; and then the listener.
    pub(crate) fn conclude(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        content: Content<'_, V>,
        tell: &mut dyn FnMut(Concluded),
    ) where
        K: Clone,
    {
        let then = |concluded: &Concluded| {
            if *concluded == Concluded::Stored {
                tell(Concluded::Stored);
            }
        };
        let concluded = match content {
            Content::Value(value, options) => {
                match self.store_loaded(hash, key, ticket, value, options, then) {
                    // Also what is overtaken is not for those who came after the invalidation.
                    Concluded::NotStored if self.is_answer_outdated(options, ticket) => {
                        Concluded::Outdated
                    }
                    concluded => concluded,
                }
            }
            Content::Unchanged(options) => {
                match self.keep(hash, key, ticket, options, then) {
                    // Which tags the value had is not known any more.
                    Concluded::NotStored if self.tags_changed(ticket) => Concluded::Outdated,
                    concluded => concluded,
                }
            }
            Content::Absent(ttl) => self.store_absence(hash, key, ticket, ttl, then),
            Content::Nothing(attempt) => {
                return self.withdraw(hash, key, ticket, attempt, || tell(Concluded::NotStored));
            }
        };
        if concluded != Concluded::Stored {
            let attempt = self.attempt(ticket);
            self.withdraw(hash, key, ticket, attempt, || tell(concluded));
        }
    }

    fn store_loaded(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        value: V,
        options: &InsertOptions,
        then: impl FnOnce(&Concluded),
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
        let store = |guard: &Guard, after: &mut After<'_, K, V, S>| {
            self.map.prefetch_ghosts(hash, guard);
            let mut node = None;
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                if judgement.invalid || ticket.flight.is_void() {
                    return Concluded::NotStored;
                }
                let (state, now) = self.initial_state(options, ticket.generation);
                if self.is_state_outdated(&state, ticket) {
                    return Concluded::Outdated;
                }
                let state = self.with_attempt(state, options, ticket);
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
        };
        self.operate_then(store, then)
    }

    /// Notes the load in the state of its value, if attempts count and the value's birth does not tell.
    fn with_attempt(
        &self,
        state: Initial<V>,
        options: &InsertOptions,
        ticket: &Ticket<V>,
    ) -> Initial<V> {
        let Some(attempt) = self.attempt(ticket) else { return state };
        let extra = match state {
            Initial::Inline(word) if options.age == 0 && word.has_deadlines() => return state,
            Initial::Inline(word) => self.extra_of(node::State::Inline(word), ticket.generation),
            Initial::Extra(extra) => *extra,
        };
        Initial::Extra(Box::new(Extra { attempt: Some(attempt), ..extra }))
    }

    /// Makes an entry of a node that was just filled, unless its place was taken meanwhile.
    pub(super) fn place<'e>(
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

    pub(super) fn set_weight(&self, node: &Node<K, V>, weight: u64, now: u64) {
        if self.flags.is_heavy() {
            // SAFETY: all nodes of this cache are allocated with a tail.
            let tail = unsafe { node.tail() };
            tail.weight.store(weight, Relaxed);
            tail.touched.store(now, Relaxed);
        }
    }

    /// The first state of a product, and its last one if that is a word.
    pub(super) fn product(
        &self,
        state: Initial<V>,
        ticket: &Ticket<V>,
    ) -> (Initial<V>, Option<Inline>) {
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
    pub(super) fn finish<'e>(
        &'e self,
        found: Found<'e, Node<K, V>>,
        inline: Option<Inline>,
        ticket: &Ticket<V>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) {
        let node = found.node();
        loop {
            let state = node.state(guard);
            if !ticket.is_of(state.flight()) {
                // Somebody marked it himself.
                return;
            }
            let marked = match ticket.flight.heed() {
                Said::Nothing => None,
                Said::Marked(at) => Some(at),
                Said::Void => {
                    self.take_node(found, guard, after);
                    return;
                }
            };
            let last = match (marked, inline) {
                (None, Some(word)) => Initial::Inline(word),
                _ => {
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

    /// Whether any tag was invalidated after the load had begun.
    fn tags_changed(&self, ticket: &Ticket<V>) -> bool {
        self.tags.invalidations_so_far() > ticket.invalidations
    }

    /// Whether one of these tags was invalidated after the load had begun.
    fn is_answer_outdated(&self, options: &InsertOptions, ticket: &Ticket<V>) -> bool {
        !options.tags.is_empty()
            && self.tags_changed(ticket)
            && self.tags.changed(&tags::stamps(&self.tags, &options.tags), ticket.invalidations)
    }

    /// Whether one of a state's tags was invalidated after the load had begun.
    fn is_state_outdated(&self, state: &Initial<V>, ticket: &Ticket<V>) -> bool {
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
        then: impl FnOnce(&Concluded),
    ) -> Concluded {
        if self.check_options(options).is_err() {
            self.recorder.count(Event::Refused, reclaim::stripe());
            return Concluded::NotStored;
        }
        let keep = |guard: &Guard, _: &mut After<'_, K, V, S>| {
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                if found.is_pending() || judgement.invalid || ticket.flight.is_void() {
                    return Concluded::NotStored;
                }
                let state = self.kept_state(judgement, options, ticket);
                if self.is_state_outdated(&state, ticket) {
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
        };
        self.operate_then(keep, then)
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
                return self.with_attempt(Initial::Inline(word), options, ticket);
            }
            Initial::Inline(word) => self.extra_of(node::State::Inline(word), ticket.generation),
            Initial::Extra(extra) => *extra,
        };
        let is_old = |new: &Stamp| old.tags.iter().any(|old| old.is_of_the_tag_of(new));
        let more = new.tags.iter().filter(|new| !is_old(new));
        let tags = old.tags.iter().chain(more).cloned().collect();
        let deadlines =
            marked.map_or(new.deadlines, |marked| new.deadlines.stale_from(marked, self.durations));
        self.set_timed();
        let attempt = self.attempt(ticket);
        Initial::Extra(Box::new(Extra { version, tags, deadlines, attempt, ..new }))
    }
}
