//! How a load begins: it claims the key's place, or the stale entry. How it ends is in `publish`.
//!
//! A load is known by its flight, which the node's state names: never by an address, since it holds no
//! pin.
//!
//! * A key without a value gets a *pending* node: hollow, not accounted for, spared by evictions.
//! * A stale entry keeps its node; the flight is attached to its state.

use std::hash::{BuildHasher, Hash};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use equivalent::Equivalent;

use super::{After, Engine, Judgement, View};
use crate::answer::{Answer, KeyFlight};
use crate::flight::{Circle, Join, Participant, Phase};
use crate::freshness::{Deadlines, Freshness, Generation, NEVER};
use crate::guard::{Attempt, Place, Priority, Refusal};
use crate::listener::RemovalCause;
use crate::node::{self, Extra, Initial, Node};
use crate::table::reclaim::Guard;
use crate::table::word::Policy;
use crate::table::{Commit, Found, Owned, Probe};
use crate::tags::Stamps;

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
    pub(super) generation: Generation,
    pub(crate) invalidations: u64,
    /// The attempt before this one.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) why: Why,
}

impl<V> Drop for Ticket<V> {
    fn drop(&mut self) {
        // A ticket that got lost before there was a lead (a listener's panic) leaves a place that the next
        // caller takes over.
        self.flight.close();
    }
}

/// What a caller of get-or-load has to do.
pub(crate) enum Claim<K, V> {
    Hit(Served<V>),
    Absent,
    /// Serve this; a load is not wanted now, for a reason: a refusal, or that one is going on.
    Stale(Served<V>, Option<Refusal>),
    /// Load the key. With a stale value: serve that meanwhile, or if the load fails.
    Lead(Ticket<V>, K, Option<Served<V>>),
    /// Wait. With a stale value, to serve if the load fails; and with how many invalidations of tags there
    /// had been.
    Follow(Participant<Answer<V>>, Place, Option<Served<V>>, u64),
    Done(Answer<V>),
    Refused(Refusal),
    Circle,
}

impl<K, V, S> Engine<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Finds out what a caller has to do about a key, and claims the load if there is one to do.
    pub(crate) fn claim<Q>(
        &self,
        hash: u64,
        key: &Q,
        ask: Ask,
        own: &dyn Fn(&Q) -> K,
    ) -> Claim<K, V>
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
                        let judgement = self.judge_timed(found.node(), guard);
                        if judgement.state.flight().is_some_and(|it| it.phase() == Phase::Done) {
                            // A load takes its flight out of a node that stays before it answers.
                            continue;
                        }
                        let running = judgement
                            .state
                            .flight()
                            .filter(|flight| !judgement.invalid && self.holds(flight, now));
                        let own = || own(key);
                        if judgement.has_value() {
                            self.claim_live(
                                hash, &found, judgement, generation, running, &own, ask, now, guard,
                            )
                        } else if Self::is_absence(&found, &judgement) && !ask.refresh {
                            Some(Claim::Absent)
                        } else if let Some(flight) = running {
                            self.follow(flight, None)
                        } else if Self::is_absence(&found, &judgement) {
                            match self.limits.would_refuse(ask.priority, now) {
                                Some(refusal) => Some(Claim::Refused(refusal)),
                                None => self
                                    .attach(
                                        hash,
                                        &found,
                                        judgement,
                                        generation,
                                        Why::Asked,
                                        &own,
                                        now,
                                        guard,
                                    )
                                    .map(|(ticket, mine)| Claim::Lead(ticket, mine, None)),
                            }
                        } else {
                            self.claim_dead(&found, judgement, &own, ask, now, guard, after)
                        }
                    }
                };
                if let Some(claim) = claim {
                    if let (Claim::Lead(ticket, ..), true) = (&claim, after.runs_user_code()) {
                        // What the listener is told of is this load's doing: if it asks for the key, it
                        // asks for itself.
                        after.leading = Some(ticket.flight.leading());
                    }
                    return claim;
                }
            }
        })
    }

    /// Whether what was found is a remembered absence.
    fn is_absence(found: &Found<'_, Node<K, V>>, judgement: &Judgement<'_, V>) -> bool {
        judgement.state.content() == node::Content::Absent
            && judgement.freshness == Freshness::Fresh
            && !found.is_pending()
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
        hash: u64,
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
            _ if ask.refresh => Why::Asked,
            Freshness::Fresh if view.is_refresh_due() => Why::Early,
            Freshness::Fresh => return Some(Claim::Hit(Served::of(&view))),
            Freshness::Stale => Why::Stale,
            _ => Why::StaleOnError,
        };
        let served = Served::of(&view);
        if let Some(flight) = running {
            let recent = Attempt::begin(None, flight.started());
            let throttled = self.limits.throttle(recent, now);
            return match (why, throttled) {
                (Why::Stale | Why::Early, _) => Some(Claim::Stale(served, None)),
                // Nobody with good data at hand waits for an origin that may hang.
                (Why::StaleOnError, Some(left)) => {
                    Some(Claim::Stale(served, Some(self.limits.throttled(left))))
                }
                _ => self.follow(flight, Some(served)),
            };
        }
        let throttled = self
            .last_attempt(&judgement)
            .filter(|_| why != Why::Asked)
            .and_then(|last| self.limits.throttle(last, now))
            .map(|left| self.limits.throttled(left));
        if let Some(refusal) = throttled.or_else(|| self.limits.would_refuse(ask.priority, now)) {
            // Who asked for a newer value than a fresh one is not told that he has it.
            let fresh = why == Why::Asked && served.freshness == Freshness::Fresh;
            return Some(if fresh {
                Claim::Refused(refusal)
            } else {
                Claim::Stale(served, Some(refusal))
            });
        }
        self.attach(hash, found, judgement, generation, why, own, now, guard)
            .map(|(ticket, mine)| Claim::Lead(ticket, mine, Some(served)))
    }

    /// Attaches a flight to an entry that stays. `None`: look again.
    #[expect(clippy::too_many_arguments, reason = "as `claim_live`")]
    fn attach<'e>(
        &'e self,
        hash: u64,
        found: &Found<'e, Node<K, V>>,
        judgement: Judgement<'e, V>,
        generation: Generation,
        why: Why,
        own: &dyn Fn() -> K,
        now: u64,
        guard: &'e Guard,
    ) -> Option<(Ticket<V>, K)> {
        if !judgement.state.is_valid(generation) {
            return None;
        }
        let mut ticket = self.ticket(judgement.state.attempt(), why, now);
        ticket.generation = generation;
        let extra = Extra {
            flight: Some(Arc::clone(&ticket.flight)),
            product: false,
            ..self.extra_of(judgement.state, generation)
        };
        self.set_timed();
        let mine = own();
        let overrun = judgement.state.flight();
        if let Some(overrun) = overrun {
            overrun.make_void();
        }
        let state = Initial::Extra(Box::new(extra));
        let node = found.node();
        let old = node.change_state(judgement.state, state).ok()?;
        self.retire_extra(old, guard);
        if overrun.is_some() {
            // It may be just about to store what it brought: then it finds another word.
            found.stamp(found.policy().touched())?;
        }
        // Of a node that was replaced meanwhile nothing can be refreshed. Who joined sees the ticket go.
        self.map.find(hash, |other| ptr::eq(other, node), guard)?;
        Some((ticket, mine))
    }

    /// The last attempt to load what an entry holds, or its birth: every attempt counts, also one that goes
    /// on but does not hold the key any more.
    fn last_attempt(&self, judgement: &Judgement<'_, V>) -> Option<Attempt> {
        let running = judgement
            .state
            .flight()
            .filter(|flight| flight.phase() == Phase::Running && !flight.is_void())
            .map(|flight| Attempt::begin(judgement.state.attempt(), flight.started()));
        let known = judgement.state.attempt().or_else(|| {
            let Deadlines { birth, .. } = judgement.state.deadlines(&self.profiles);
            (birth != NEVER).then(|| Attempt::begin(None, birth))
        });
        running.into_iter().chain(known).max_by_key(|attempt| attempt.started)
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
        let last = if judgement.invalid { None } else { self.last_attempt(&judgement) };
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
            Join::Done(Ok(loaded)) if loaded.is_outdated(self.tags.invalidations_so_far()) => {
                return None;
            }
            Join::Done(answer) => return Some(Claim::Done(answer)),
            Join::Closed => return None,
        };
        let joined_at = self.tags.invalidations_so_far();
        if let Err(Circle) = participant.check_circle() {
            return Some(Claim::Circle);
        }
        Some(match (self.limits.wait(), stale) {
            (Ok(place), stale) => Claim::Follow(participant, place, stale, joined_at),
            (Err(refusal), Some(served)) => Claim::Stale(served, Some(refusal)),
            (Err(refusal), None) => Claim::Refused(refusal),
        })
    }

    fn ticket(&self, attempt: Option<Attempt>, why: Why, now: u64) -> Ticket<V> {
        Ticket {
            flight: KeyFlight::new(now),
            generation: self.generation(),
            invalidations: self.tags.invalidations_so_far(),
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
            tags: Stamps::default(),
            flight: Some(Arc::clone(&ticket.flight)),
            product: false,
            attempt: None,
        };
        let node = self.allocate(Initial::Extra(Box::new(extra)), key, None, 1, now);
        (ticket, node)
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
