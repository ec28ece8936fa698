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

use equivalent::Equivalent;

use super::{After, Ask, Claim, Engine, Judgement, Reason, Served, Ticket};
use crate::answer::KeyFlight;
use crate::clock::Start;
use crate::flight::{Circle, Join, Phase};
use crate::freshness::{Deadlines, Freshness, Generation, NEVER};
use crate::guard::{Attempt, Limits, Priority, Refusal};
use crate::node::{self, Extra, Initial, Node};
use crate::table::reclaim::Guard;
use crate::table::word::Policy;
use crate::table::{Commit, Found, Owned, Probe, Vacant};

/// What a caller asks for, and how to make the key its own.
struct Wanted<'w, K> {
    ask: Ask,
    own: &'w dyn Fn() -> K,
}

/// An entry that a claim found.
struct Sight<'e, K, V> {
    hash: u64,
    found: Found<'e, Node<K, V>>,
    judgement: Judgement<'e, V>,
    /// Taken before the entry was judged: if all are invalidated meanwhile, the state that it is given
    /// must be outdated too.
    generation: Generation,
    now: u64,
    /// The flight that holds the key.
    running: Option<&'e KeyFlight<V>>,
}

impl<K, V> Sight<'_, K, V> {
    /// Whether nobody has changed the entry since, or attached a flight to it.
    fn is_unchanged(&self) -> bool {
        self.found.is_unchanged() && self.found.node().is_state(self.judgement.state)
    }

    /// Whether it is a remembered absence.
    fn is_absence(&self) -> bool {
        self.judgement.state.content() == node::Content::Absent
            && self.judgement.freshness == Freshness::Fresh
            && !self.found.is_pending()
    }
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
    ) -> Claim<'_, K, V>
    where
        Q: Equivalent<K> + ?Sized,
        V: Clone + Send + Sync + 'static,
    {
        let wanted = Wanted { ask, own: &|| own(key) };
        let eq = |node: &Node<K, V>| key.equivalent(node.key());
        self.operate(|guard, after| {
            let claim = loop {
                let claim = match self.probe(hash, eq, guard, after) {
                    Probe::Vacant(vacant) => {
                        self.claim_vacant(hash, &vacant, &wanted, guard, after)
                    }
                    Probe::Found(found) => self.claim_found(hash, found, &wanted, guard, after),
                };
                if let Some(claim) = claim {
                    break claim;
                }
            };
            if let (Claim::Lead(ticket, ..), true) = (&claim, after.runs_user_code()) {
                // What the listener is told of is this load's doing: if it asks for the key, it asks for
                // itself.
                after.leading = Some(ticket.flight.leading());
            }
            claim
        })
    }

    /// About a key that is not there. `None`: look again.
    fn claim_vacant<'e, 'c: 'e>(
        &'c self,
        hash: u64,
        vacant: &Vacant<'e>,
        wanted: &Wanted<'_, K>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Option<Claim<'c, K, V>>
    where
        V: Send + Sync + 'static,
    {
        let (now, began) = self.now_and_start();
        if let Err(refusal) = self.may_begin(wanted.ask.priority, now, || vacant.is_unchanged()) {
            return refusal.map(Claim::Refused);
        }
        // User code runs before the claim: nothing may come between that and the lead.
        let mine = (wanted.own)();
        let (ticket, node) = self.pending((wanted.own)(), None, Reason::Missing, now, began);
        match self.map.commit(vacant, node, Policy::PENDING, guard) {
            Commit::Done(_) => Some(Claim::Lead(ticket, mine, None)),
            Commit::Lost(_) => None,
            // All of the chain are being loaded: alone, then, and not stored.
            Commit::Full(_) if !self.make_room(hash, guard, after) => {
                Some(Claim::Lead(ticket, mine, None))
            }
            Commit::Full(_) => None,
        }
    }

    /// About a key that is there, in whatever state. `None`: look again.
    fn claim_found<'e, 'c: 'e>(
        &'c self,
        hash: u64,
        found: Found<'e, Node<K, V>>,
        wanted: &Wanted<'_, K>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Option<Claim<'c, K, V>>
    where
        V: Clone + Send + Sync + 'static,
    {
        let sight = self.sight(hash, found, guard)?;
        if sight.judgement.has_value() {
            return self.claim_live(&sight, wanted, guard);
        }
        let absence = sight.is_absence();
        if absence && !wanted.ask.refresh {
            return Some(Claim::Absent);
        }
        if sight.running.is_some() {
            return self.follow(&sight, None);
        }
        if !absence {
            return self.claim_dead(&sight, wanted, guard, after);
        }
        let is_unchanged = || sight.is_unchanged();
        if let Err(refusal) = self.may_begin(wanted.ask.priority, sight.now, is_unchanged) {
            return refusal.map(Claim::Refused);
        }
        let (ticket, mine) = self.attach(&sight, Reason::Asked, wanted, guard)?;
        Some(Claim::Lead(ticket, mine, None))
    }

    /// Whether the limits let a load begin, as far as that can be known before it is claimed. `Err(None)`:
    /// they do not, but perhaps for the very load of this key that another caller has begun since: look
    /// again.
    fn may_begin(
        &self,
        priority: Priority,
        now: u64,
        is_unchanged: impl FnOnce() -> bool,
    ) -> Result<(), Option<Refusal>> {
        match self.limits.would_refuse(priority, now) {
            None => Ok(()),
            Some(refusal) if is_unchanged() => Err(Some(self.limits.refused(refusal))),
            Some(_) => Err(None),
        }
    }

    /// Judges what was found. `None`: its load has been answered, and it is about to change.
    fn sight<'e>(
        &self,
        hash: u64,
        found: Found<'e, Node<K, V>>,
        guard: &'e Guard,
    ) -> Option<Sight<'e, K, V>> {
        let generation = self.generation();
        let judgement = self.judge_timed(found.node(), guard);
        let flight = judgement.state.flight();
        // A load takes its flight out of a node that stays before it answers.
        if flight.is_some_and(|flight| flight.phase() == Phase::Done) {
            return None;
        }
        let now = if judgement.now == 0 { self.now() } else { judgement.now };
        let running = flight.filter(|flight| !judgement.invalid && self.holds(flight, now));
        Some(Sight { hash, found, judgement, generation, now, running })
    }

    /// Whether a flight still holds its key.
    fn holds(&self, flight: &KeyFlight<V>, now: u64) -> bool {
        flight.phase() == Phase::Running
            && !flight.is_void()
            && now.saturating_sub(flight.started()) < self.lead_timeout
    }

    /// About a key that has a live value. `None`: look again.
    fn claim_live<'e, 'c: 'e>(
        &'c self,
        sight: &Sight<'e, K, V>,
        wanted: &Wanted<'_, K>,
        guard: &'e Guard,
    ) -> Option<Claim<'c, K, V>>
    where
        V: Clone + Send + Sync + 'static,
    {
        let &Sight { judgement, now, .. } = sight;
        let view = self.view(sight.found.node(), judgement);
        let reason = match judgement.freshness {
            _ if wanted.ask.refresh => Reason::Asked,
            Freshness::Fresh if view.is_refresh_due() => Reason::Early,
            Freshness::Fresh => return Some(Claim::Hit(Served::of(&view))),
            Freshness::Stale => Reason::Stale,
            _ => Reason::StaleOnError,
        };
        let served = Served::of(&view);
        if let Some(flight) = sight.running {
            return match reason {
                Reason::Stale | Reason::Early => Some(Claim::Stale(served, None)),
                Reason::StaleOnError => self.follow_or_serve(sight, flight, served),
                _ => self.follow(sight, Some(served)),
            };
        }
        let throttled = self
            .last_attempt(&judgement)
            .filter(|_| reason != Reason::Asked)
            .and_then(|last| self.limits.throttle(last, now))
            .map(|left| self.limits.throttled(left));
        let may_begin = match throttled {
            Some(refusal) => Err(Some(refusal)),
            None => self.may_begin(wanted.ask.priority, now, || sight.is_unchanged()),
        };
        if let Err(refusal) = may_begin {
            let refusal = refusal?;
            // Who asked for a newer value than a fresh one is not told that he has it.
            let fresh = reason == Reason::Asked && served.freshness == Freshness::Fresh;
            return Some(if fresh {
                Claim::Refused(refusal)
            } else {
                Claim::Stale(served, Some(refusal))
            });
        }
        let (ticket, mine) = self.attach(sight, reason, wanted, guard)?;
        Some(Claim::Lead(ticket, mine, Some(Box::new(served))))
    }

    /// About a value that may stand in for an error, while it is being loaded: nobody with good data at
    /// hand waits for an origin that may hang.
    fn follow_or_serve<'c>(
        &'c self,
        sight: &Sight<'_, K, V>,
        flight: &KeyFlight<V>,
        served: Served<V>,
    ) -> Option<Claim<'c, K, V>>
    where
        V: Clone + Send + Sync + 'static,
    {
        match self.limits.throttle(Attempt::begin(None, flight.started()), sight.now) {
            Some(left) => Some(Claim::Stale(served, Some(self.limits.throttled(left)))),
            None => self.follow(sight, Some(served)),
        }
    }

    /// Attaches a flight to an entry that stays. `None`: look again.
    fn attach<'e>(
        &'e self,
        sight: &Sight<'e, K, V>,
        reason: Reason,
        wanted: &Wanted<'_, K>,
        guard: &'e Guard,
    ) -> Option<(Ticket<V>, K)>
    where
        V: Send + Sync + 'static,
    {
        let Sight { found, judgement, generation, .. } = sight;
        if !judgement.state.is_valid(*generation) {
            return None;
        }
        let attempt = judgement.state.attempt();
        let ticket = self.ticket(attempt, reason, *generation, sight.now, Start::now());
        let extra = Extra {
            flight: Some(Arc::clone(&ticket.flight)),
            product: false,
            ..self.extra_of(judgement.state, *generation)
        };
        self.set_timed();
        let mine = (wanted.own)();
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
        self.map.find(sight.hash, |other| ptr::eq(other, node), guard)?;
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
    fn claim_dead<'e, 'c: 'e>(
        &'c self,
        sight: &Sight<'e, K, V>,
        wanted: &Wanted<'_, K>,
        guard: &'e Guard,
        after: &mut After<'_, K, V, S>,
    ) -> Option<Claim<'c, K, V>> {
        let Sight { found, judgement, now, .. } = sight;
        let Ask { priority, refresh } = wanted.ask;
        let last = if judgement.invalid { None } else { self.last_attempt(judgement) };
        let throttled = last
            .filter(|_| !refresh)
            .and_then(|last| self.limits.throttle(last, *now))
            .map(|left| self.limits.throttled(left));
        if let Some(refusal) = throttled {
            return Some(Claim::Refused(refusal));
        }
        if let Err(refusal) = self.may_begin(priority, *now, || sight.is_unchanged()) {
            return refusal.map(Claim::Refused);
        }
        let reason = if found.is_pending() { Reason::Missing } else { Reason::Expired };
        let mine = (wanted.own)();
        let attempt = judgement.state.attempt();
        let (ticket, node) = self.pending((wanted.own)(), attempt, reason, *now, Start::now());
        self.map.replace(found, node, Policy::PENDING, guard).ok()?;
        if !found.is_pending() {
            let cause = Self::cause_of_death(judgement);
            let weight = self.gone(found.node(), found.policy(), cause, guard, after);
            self.evict.discharge(i64::try_from(weight).unwrap_or(i64::MAX));
        }
        Some(Claim::Lead(ticket, mine, None))
    }

    fn follow<'c>(
        &'c self,
        sight: &Sight<'_, K, V>,
        stale: Option<Served<V>>,
    ) -> Option<Claim<'c, K, V>>
    where
        V: Clone + Send + Sync + 'static,
    {
        let mut participant = match sight.judgement.state.own_flight()?.join() {
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
        Some(match (Limits::place(&*self.limits), stale) {
            (Ok(place), stale) => Claim::Follow(participant, place, stale.map(Box::new), joined_at),
            (Err(refusal), Some(served)) => Claim::Stale(served, Some(refusal)),
            (Err(refusal), None) => Claim::Refused(refusal),
        })
    }

    fn ticket(
        &self,
        attempt: Option<Attempt>,
        reason: Reason,
        generation: Generation,
        now: u64,
        began: Start,
    ) -> Ticket<V> {
        let invalidations = self.tags.invalidations_so_far();
        let flight = KeyFlight::in_generation(now, generation.number());
        Ticket { flight, generation, invalidations, attempt, reason, began }
    }

    /// A node for a key that is being loaded.
    fn pending(
        &self,
        key: K,
        attempt: Option<Attempt>,
        reason: Reason,
        now: u64,
        began: Start,
    ) -> (Ticket<V>, Owned<'_, Node<K, V>>) {
        let ticket = self.ticket(attempt, reason, self.generation(), now, began);
        let flight = Arc::clone(&ticket.flight);
        let node = Node::allocate_pending(flight, self.flags, key, self.tail(1, now));
        // SAFETY: just allocated, and freed as it was by `Node::free`.
        let node = unsafe { Owned::from_raw(node, self.map.limbo()) };
        (ticket, node)
    }
}
