//! What a load does to the table: claims the key's place, or the stale entry, and puts there what came.
//!
//! A load is known by its flight, which the node's state names: never by an address, since it holds no
//! pin. What it brings is stored only if the node it began from still stands, and its flight in it.
//!
//! * A key without a value gets a *pending* node: hollow, not accounted for, spared by evictions. The load
//!   fills it, and one CAS of the slot's policy bits makes it an entry.
//! * A stale entry keeps its node; the flight is attached to its state. The load replaces the node.

use std::hash::{BuildHasher, Hash};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use equivalent::Equivalent;

use super::{After, Engine, Judgement, View};
use crate::answer::{Answer, KeyFlight};
use crate::flight::{Circle, Join, Participant, Phase};
use crate::freshness::{Deadlines, Freshness, Generation, Inline, NEVER};
use crate::guard::{Attempt, Place, Priority, Refusal};
use crate::listener::RemovalCause;
use crate::node::{self, Extra, Initial, Node};
use crate::options::InsertOptions;
use crate::stats::Event;
use crate::sync::Relaxed;
use crate::table::reclaim::Guard;
use crate::table::word::Policy;
use crate::table::{Commit, Found, Owned, Probe};

/// What a caller wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) priority: Priority,
    /// Load also if the value is fresh.
    pub(crate) refresh: bool,
}

/// Why a load is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Missing,
    Expired,
    Stale,
    StaleOnError,
    Early,
    Asked,
}

/// A copy of a value that may be served.
#[derive(Clone, Debug)]
pub(crate) struct Served<V> {
    pub(crate) value: V,
    pub(crate) freshness: Freshness,
    pub(crate) age: Option<Duration>,
    pub(crate) version: Option<u64>,
    /// From when on it may not even stand in for an error.
    pub(crate) dead_at: u64,
}

/// The right to answer a key's flight.
pub(crate) struct Ticket<V> {
    pub(crate) flight: Arc<KeyFlight<V>>,
    /// When the load began: the number of `invalidate_all`s and of tags' invalidations.
    generation: Generation,
    invalidations: u64,
    /// The attempt before this one.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) why: Why,
}

/// What a caller of get-or-load has to do.
pub(crate) enum Claim<K, V> {
    Hit(Served<V>),
    Absent,
    /// Serve this; a load is not wanted now, for a reason: a refusal, or that one is going on.
    Stale(Served<V>, Option<Refusal>),
    /// Load the key. With a stale value: serve that meanwhile, or if the load fails.
    Lead(Ticket<V>, K, Option<Served<V>>),
    /// Wait. With a stale value, to serve if the load fails.
    Follow(Participant<Answer<V>>, Place, Option<Served<V>>),
    Done(Answer<V>),
    Refused(Refusal),
    Circle,
}

/// What is to become of a key whose load has ended.
pub(crate) enum Content<'o, V> {
    Value(V, &'o InsertOptions),
    /// Keep the value, with new deadlines.
    Unchanged(&'o InsertOptions),
    Absent(Option<u64>),
    /// Nothing new; and what is to be remembered of the attempt.
    Nothing(Option<Attempt>),
}

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Finds out what a caller has to do about a key, and claims the load if there is one to do.
    pub(crate) fn claim<Q>(&self, hash: u64, key: &Q, ask: Ask, own: &dyn Fn(&Q) -> K) -> Claim<K, V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone + Send + Sync + 'static,
    {
        self.operate(|guard, after| {
            loop {
                let now = self.now();
                let eq = |node: &Node<K, V>| key.equivalent(node.key());
                let claim = match self.probe(hash, eq, guard, after) {
                    Probe::Vacant(vacant) => {
                        if let Some(refusal) = self.limits.would_refuse(ask.priority, now) {
                            return Claim::Refused(refusal);
                        }
                        // User code runs before the claim: nothing may come between that and the lead.
                        let mine = own(key);
                        let (ticket, node) = self.pending(own(key), None, Why::Missing, now);
                        match self.map.commit(&vacant, node, Policy::PENDING, guard) {
                            Commit::Done(_) => Some(Claim::Lead(ticket, mine, None)),
                            Commit::Lost(_) => None,
                            // All of the chain are being loaded: alone, then, and not stored.
                            Commit::Full(_) if !self.make_room(hash, guard, after) => {
                                Some(Claim::Lead(ticket, mine, None))
                            }
                            Commit::Full(_) => None,
                        }
                    }
                    Probe::Found(found) => {
                        // Taken before the entry is judged: if all are invalidated meanwhile, the state
                        // that it is given must be outdated too.
                        let generation = self.generation();
                        let judgement = self.judge(found.node(), guard);
                        let running = judgement
                            .state
                            .flight()
                            .filter(|flight| !judgement.invalid && self.holds(flight, now));
                        if judgement.has_value() {
                            let own = || own(key);
                            self.claim_live(&found, judgement, generation, running, &own, ask, now, guard)
                        } else if let Some(flight) = running {
                            self.follow(flight, None)
                        } else {
                            self.claim_dead(&found, judgement, &|| own(key), ask, now, guard, after)
                        }
                    }
                };
                if let Some(claim) = claim {
                    return claim;
                }
            }
        })
    }

    /// Whether a flight still holds its key.
    fn holds(&self, flight: &KeyFlight<V>, now: u64) -> bool {
        flight.phase() == Phase::Running
            && !flight.is_void()
            && now.saturating_sub(flight.started()) < self.lead_timeout
    }

    /// About a key that has a live value. `None`: look again.
    #[expect(clippy::too_many_arguments, reason = "one caller; a struct for it would say no more")]
    fn claim_live<'e>(
        &'e self,
        found: &Found<'e, Node<K, V>>,
        judgement: Judgement<'e, V>,
        generation: Generation,
        running: Option<&Arc<KeyFlight<V>>>,
        own: &dyn Fn() -> K,
        ask: Ask,
        now: u64,
        guard: &'e Guard,
    ) -> Option<Claim<K, V>>
    where
        V: Clone + Send + Sync + 'static,
    {
        let view = self.view(found.node(), judgement);
        let why = match judgement.freshness {
            Freshness::Fresh if ask.refresh => Why::Asked,
            Freshness::Fresh if view.is_refresh_due() => Why::Early,
            Freshness::Fresh => return Some(Claim::Hit(Served::of(&view))),
            Freshness::Stale => Why::Stale,
            _ => Why::StaleOnError,
        };
        let served = Served::of(&view);
        let last = self.last_attempt(&judgement);
        if let Some(flight) = running {
            let recent = Attempt { started: flight.started(), failures: 0, not_before: 0 };
            return if why != Why::StaleOnError {
                Some(Claim::Stale(served, None))
            } else if let Some(retry_after) = self.limits.throttle(recent, now) {
                // Nobody with good data at hand waits for an origin that may hang.
                Some(Claim::Stale(served, Some(self.limits.throttled(retry_after))))
            } else {
                self.follow(flight, Some(served))
            };
        }
        let throttled = last
            .filter(|_| why != Why::Asked)
            .and_then(|last| self.limits.throttle(last, now))
            .map(|left| self.limits.throttled(left));
        if let Some(refusal) = throttled.or_else(|| self.limits.would_refuse(ask.priority, now)) {
            return Some(Claim::Stale(served, Some(refusal)));
        }
        if !judgement.state.is_valid(generation) {
            return None;
        }
        let ticket = Ticket { generation, ..self.ticket(judgement.state.attempt(), why, now) };
        let extra = Extra {
            flight: Some(Arc::clone(&ticket.flight)),
            ..self.extra_of(judgement.state, generation)
        };
        self.set_timed();
        let mine = own();
        let state = Initial::Extra(Box::new(extra));
        let old = found.node().change_state(judgement.state, state).ok()?;
        self.retire_extra(old, guard);
        Some(Claim::Lead(ticket, mine, Some(served)))
    }

    /// The last attempt to load what an entry holds, or its birth: every attempt counts.
    fn last_attempt(&self, judgement: &Judgement<'_, V>) -> Option<Attempt> {
        judgement.state.attempt().or_else(|| {
            let Deadlines { birth, .. } = judgement.state.deadlines(&self.profiles);
            (birth != NEVER).then_some(Attempt { started: birth, failures: 0, not_before: 0 })
        })
    }

    /// About a key that has no live value and no load. `None`: look again.
    #[expect(clippy::too_many_arguments, reason = "one caller; a struct for it would say no more")]
    fn claim_dead<'e>(
        &'e self,
        found: &Found<'e, Node<K, V>>,
        judgement: Judgement<'e, V>,
        own: &dyn Fn() -> K,
        ask: Ask,
        now: u64,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Option<Claim<K, V>> {
        let content = judgement.state.content();
        let live = judgement.freshness == Freshness::Fresh && !found.is_pending();
        if content == node::Content::Absent && live && !ask.refresh {
            return Some(Claim::Absent);
        }
        let last = if found.is_pending() || judgement.invalid {
            None
        } else {
            self.last_attempt(&judgement)
        };
        let throttled = last
            .filter(|_| !ask.refresh)
            .and_then(|last| self.limits.throttle(last, now))
            .map(|left| self.limits.throttled(left));
        if let Some(refusal) = throttled.or_else(|| self.limits.would_refuse(ask.priority, now)) {
            return Some(Claim::Refused(refusal));
        }
        let why = if found.is_pending() { Why::Missing } else { Why::Expired };
        let mine = own();
        let (ticket, node) = self.pending(own(), judgement.state.attempt(), why, now);
        self.map.replace(found, node, Policy::PENDING, guard).ok()?;
        if !found.is_pending() {
            let cause = match content {
                _ if judgement.is_dead() => Self::cause_of_death(&judgement),
                _ => RemovalCause::Expired,
            };
            let weight = self.gone(found.node(), found.policy(), cause, guard, after);
            self.evict.discharge(i64::try_from(weight).unwrap_or(i64::MAX));
        }
        Some(Claim::Lead(ticket, mine, None))
    }

    fn follow(&self, flight: &Arc<KeyFlight<V>>, stale: Option<Served<V>>) -> Option<Claim<K, V>>
    where
        V: Clone + Send + Sync + 'static,
    {
        let mut participant = match flight.join() {
            Join::Running(participant) => participant,
            Join::Done(answer) => return Some(Claim::Done(answer)),
            Join::Closed => return None,
        };
        if let Err(Circle) = participant.check_circle() {
            return Some(Claim::Circle);
        }
        Some(match (self.limits.wait(), stale) {
            (Ok(place), stale) => Claim::Follow(participant, place, stale),
            (Err(refusal), Some(served)) => Claim::Stale(served, Some(refusal)),
            (Err(refusal), None) => Claim::Refused(refusal),
        })
    }

    fn ticket(&self, attempt: Option<Attempt>, why: Why, now: u64) -> Ticket<V> {
        Ticket {
            flight: KeyFlight::new(now),
            generation: self.generation(),
            invalidations: self.tags.invalidations(),
            attempt,
            why,
        }
    }

    /// A node for a key that is being loaded.
    fn pending(
        &self,
        key: K,
        attempt: Option<Attempt>,
        why: Why,
        now: u64,
    ) -> (Ticket<V>, Owned<'_, Node<K, V>>) {
        let ticket = self.ticket(attempt, why, now);
        let extra = Extra {
            flags: self.flags.hollow(),
            content: node::Content::Nothing,
            generation: ticket.generation.number(),
            deadlines: Deadlines::NONE,
            version: None,
            tags: [].into(),
            flight: Some(Arc::clone(&ticket.flight)),
            attempt: None,
        };
        let node = self.allocate(Initial::Extra(Box::new(extra)), key, None, 1, now);
        (ticket, node)
    }

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

    /// Ends a load: stores what came, or takes its traces out. Returns whether it was stored (or kept).
    /// Runs the weigher.
    pub(crate) fn conclude(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        content: Content<'_, V>,
    ) -> bool
    where
        K: Clone,
    {
        match content {
            Content::Value(value, options) => self.store_loaded(hash, key, ticket, value, options),
            Content::Unchanged(options) => self.keep(hash, key, ticket, options),
            Content::Absent(ttl) => self.store_absence(hash, key, ticket, ttl),
            Content::Nothing(attempt) => {
                self.withdraw(hash, key, ticket, attempt);
                false
            }
        }
    }

    fn store_loaded(
        &self,
        hash: u64,
        key: &K,
        ticket: &Ticket<V>,
        value: V,
        options: &InsertOptions,
    ) -> bool
    where
        K: Clone,
    {
        let weight = self.weigh(key, &value, options);
        let refused = match self.check_options(options) {
            Err(reason) => Some(reason),
            Ok(()) if weight > self.capacity() && self.capacity() > 0 => {
                Some(self.too_heavy(weight))
            }
            Ok(()) => None,
        };
        if refused.is_some() || self.capacity() == 0 {
            if refused.is_some() {
                self.recorder.count(Event::Refused, crate::table::reclaim::stripe());
            }
            self.withdraw(hash, key, ticket, None);
            return false;
        }
        let mut value = Some(value);
        let stored = self.operate(|guard, after| {
            let mut node = None;
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                let (state, now) = self.loaded_state(options, ticket);
                if judgement.invalid || ticket.flight.is_void() || self.outdated(&state, ticket) {
                    return None;
                }
                if found.is_pending() {
                    let value = value.take().expect("a pending node is filled once");
                    let filled = found.node();
                    self.set_weight(filled, weight, now);
                    // SAFETY: the node stands with our flight in its state, which we alone answer.
                    let old = unsafe { filled.fill(value, state) };
                    self.retire_extra(old, guard);
                    return self.place(hash, found, guard, after);
                }
                if let Some(old) = judgement.version() {
                    if options.version.is_some_and(|new| new < old) && judgement.has_value() {
                        return None;
                    }
                }
                let new = match node.take() {
                    Some(new) => new,
                    None => self.allocate(state, key.clone(), value.take(), weight, now),
                };
                match self.map.replace(&found, new, found.policy().used(), guard) {
                    Ok(new) => {
                        self.settle_replace(&found, &new, weight, &judgement, guard, after);
                        return Some(ptr::from_ref(new.node()));
                    }
                    Err(back) => node = Some(back),
                }
            }
            None
        });
        drop(value);
        match stored {
            Some(node) => self.heed(hash, key, ticket, node),
            None => self.withdraw(hash, key, ticket, None),
        }
        stored.is_some()
    }

    /// Makes an entry of a node that was just filled, unless its place was taken meanwhile.
    fn place<'e>(
        &'e self,
        hash: u64,
        found: Found<'e, Node<K, V>>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Option<*const Node<K, V>> {
        let node = found.node();
        let mut found = found;
        while found.is_pending() {
            if self.place_loaded(hash, &found, guard, after).is_some() {
                break;
            }
            found = self.again(node, guard)?;
        }
        Some(ptr::from_ref(node))
    }

    fn set_weight(&self, node: &Node<K, V>, weight: u64, now: u64) {
        if self.flags.is_heavy() {
            // SAFETY: all nodes of this cache are allocated with a tail.
            let tail = unsafe { node.tail() };
            tail.weight.store(weight, Relaxed);
            tail.touched.store(now, Relaxed);
        }
    }

    /// The first state of a loaded value: of the generation in which the load began.
    fn loaded_state(&self, options: &InsertOptions, ticket: &Ticket<V>) -> (Initial<V>, u64) {
        let (state, now) = self.initial_state(options, ticket.generation);
        let Some(marked) = ticket.flight.marked() else { return (state, now) };
        let extra = match state {
            Initial::Extra(extra) => *extra,
            Initial::Inline(word) => self.extra_of(node::State::Inline(word), ticket.generation),
        };
        let deadlines = extra.deadlines.stale_from(marked, self.durations);
        self.set_timed();
        (Initial::Extra(Box::new(Extra { deadlines, ..extra })), now)
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

    /// Does to a value that was just stored what was said of its load too late to be heeded.
    fn heed(&self, hash: u64, key: &K, ticket: &Ticket<V>, node: *const Node<K, V>) {
        if ticket.flight.marked().is_none() && !ticket.flight.is_void() {
            return;
        }
        self.operate(|guard, after| {
            let eq = |other: &Node<K, V>| ptr::eq(other, node) && other.key() == key;
            while let Probe::Found(found) = self.probe(hash, eq, guard, after) {
                if ticket.flight.is_void() {
                    if self.take(&found, RemovalCause::Invalidated, guard, after) {
                        return;
                    }
                    continue;
                }
                let state = found.node().state(guard);
                match found.node().change_state(state, self.stale(state, ticket.generation)) {
                    Ok(old) => return self.retire_extra(old, guard),
                    Err(_) => continue,
                }
            }
        });
    }

    /// "Unchanged": the entry stays, with new deadlines. Returns whether there was one to keep.
    fn keep(&self, hash: u64, key: &K, ticket: &Ticket<V>, options: &InsertOptions) -> bool {
        let kept = self.operate(|guard, _| {
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                if found.is_pending() || judgement.invalid || ticket.flight.is_void() {
                    return None;
                }
                let (state, _) = self.loaded_state(options, ticket);
                let old = self.extra_of(judgement.state, ticket.generation);
                let version = options.version.or(old.version);
                let state = match state {
                    Initial::Inline(word) if version.is_none() && old.tags.is_empty() => {
                        Initial::Inline(word)
                    }
                    state => {
                        let new = match state {
                            Initial::Extra(extra) => *extra,
                            Initial::Inline(word) => {
                                self.extra_of(node::State::Inline(word), ticket.generation)
                            }
                        };
                        let tags = old.tags.iter().chain(new.tags.iter()).cloned().collect();
                        Initial::Extra(Box::new(Extra { version, tags, ..new }))
                    }
                };
                if self.outdated(&state, ticket) {
                    return None;
                }
                if let Ok(old) = found.node().change_state(judgement.state, state) {
                    self.retire_extra(old, guard);
                    return Some(ptr::from_ref(found.node()));
                }
            }
            None
        });
        match kept {
            Some(node) => self.heed(hash, key, ticket, node),
            None => self.withdraw(hash, key, ticket, None),
        }
        kept.is_some()
    }

    /// Remembers that the origin has no such key, if absences are remembered.
    fn store_absence(&self, hash: u64, key: &K, ticket: &Ticket<V>, ttl: Option<u64>) -> bool
    where
        K: Clone,
    {
        let mut durations = self.absent;
        durations.fresh = ttl.unwrap_or(durations.fresh);
        let weight = self.absence_weight();
        if durations.fresh == 0 || weight > self.capacity() {
            self.remove_loaded(hash, key, ticket);
            return false;
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
            None => Initial::Extra(Box::new(Extra {
                flags,
                content: node::Content::Absent,
                generation: ticket.generation.number(),
                deadlines: durations.from(birth, self.draw()),
                version: None,
                tags: [].into(),
                flight: None,
                attempt: None,
            })),
        };
        self.store_hollow(hash, key, ticket, weight, &state)
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
        weight: u64,
        state: &dyn Fn() -> Initial<V>,
    ) -> bool
    where
        K: Clone,
    {
        let stored = self.operate(|guard, after| {
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                if judgement.invalid || ticket.flight.is_void() {
                    return false;
                }
                if found.is_pending() {
                    self.set_weight(found.node(), weight, judgement.now);
                    let old = found.node().set_state(state());
                    self.retire_extra(old, guard);
                    return self.place(hash, found, guard, after).is_some();
                }
                let new = self.allocate(state(), key.clone(), None, weight, judgement.now);
                if let Ok(new) = self.map.replace(&found, new, found.policy(), guard) {
                    self.settle_replace(&found, &new, weight, &judgement, guard, after);
                    return true;
                }
            }
            false
        });
        if !stored {
            self.withdraw(hash, key, ticket, None);
        }
        stored
    }

    /// Takes out what the load was for: the origin has it no more, and that is not remembered.
    fn remove_loaded(&self, hash: u64, key: &K, ticket: &Ticket<V>) {
        self.operate(|guard, after| {
            while let Some((found, judgement)) = self.standing(hash, key, ticket, guard) {
                if judgement.invalid || self.take(&found, RemovalCause::Removed, guard, after) {
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
                if found.is_pending() {
                    let state = attempt
                        .filter(|_| !judgement.invalid && self.absence_weight() <= self.capacity())
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
            attempt: Some(attempt),
        }))
    }
}

impl<V: Clone> Served<V> {
    pub(crate) fn of<K>(view: &View<'_, K, V>) -> Served<V> {
        Served {
            value: view.node.value().clone(),
            freshness: view.judgement.freshness,
            age: view.age(),
            version: view.judgement.version(),
            dead_at: view.dead_at(),
        }
    }
}
