//! Choosing what to evict.

use arrayvec::ArrayVec;

use super::ghost::{self, Id};
use super::{AGES, Evict, Hand, Judge, Victim, distance};
use crate::listener::RemovalCause;
use crate::sync::Relaxed;
use crate::table::reclaim::Guard;
use crate::table::word::Policy;
use crate::table::{Found, Map, Node, Rehash, Sampled};

/// Stamps at least this old are moved up to [`CLAMPED`], lest they wrap round and look young.
const CLAMP: u8 = 28;
const CLAMPED: u8 = 22;
/// Uses in the small region that make an entry worth keeping.
const PROMOTE: u8 = 1;
/// How many units younger an entry of main counts for each use.
const CREDIT: u8 = 3;
/// How many entries a hand looks at before it chooses.
const SAMPLE: usize = 12;
/// Buckets that a hand looks at beyond that for an entry of the small region, while that is over its
/// share: a scan must not wear main down for want of one in a sample.
const FURTHER: usize = 3;
/// Entries of a chain, at most.
const CHAIN: usize = 24;
/// Room for a sample that a full chain overfills, and one chain more.
const ROOM: usize = SAMPLE + 2 * CHAIN;
/// Entries that may be spared (promoted, or counted down) before one is evicted regardless.
const SPARED: usize = 24;
/// Entries that may be counted down for a key that returned, before it is held to be worth no more than
/// they are.
const SPARED_FOR_RETURNED: usize = 3;

type Sample<'g, N> = ArrayVec<Sampled<'g, N>, ROOM>;

/// What a sample says, apart from its order.
struct Survey {
    has_small: bool,
    /// The entry of main that is next to go.
    main: Option<Policy>,
}

/// One eviction in progress.
struct Choice<'a, 'g, N, H, J>
where
    N: Node,
{
    evict: &'a Evict,
    map: &'g Map<N, H>,
    judge: &'a J,
    protect: *const N,
    guard: &'g Guard,
    hand: &'a Hand,
    now: u8,
    spared: usize,
    /// Hash of the protected entry, and how many units ago it was evicted, if it came back to main.
    returned: Option<(u64, u8)>,
}

impl Evict {
    /// Evicts one entry other than `protect`; `None` if there is none.
    ///
    /// Looks at a few buckets; at all of them only if nearly all are empty. Goes on for as long as other
    /// threads take away what it chose: then they have made progress.
    pub(crate) fn evict<'g, N: Node, H: Rehash<N>>(
        &self,
        map: &'g Map<N, H>,
        judge: &impl Judge<N>,
        protect: *const N,
        guard: &'g Guard,
    ) -> Option<Victim<'g, N>> {
        let (hand, _) = self.hands.of(guard.stripe());
        let (now, returned) = (self.now(guard), hand.returned.take());
        Choice { evict: self, map, judge, protect, guard, hand, now, spared: 0, returned }.run()
    }
}

impl<'g, N: Node, H: Rehash<N>, J: Judge<N>> Choice<'_, 'g, N, H, J> {
    fn run(mut self) -> Option<Victim<'g, N>> {
        let mut sample = Sample::new();
        let (mut empty, mut steered) = (0, false);
        loop {
            let small_first = self.evict.small_is_over(self.guard);
            let looked_at = self.gather(&mut sample, small_first);
            if self.judge.may_be_dead() {
                let dead = self.take_dead(&mut sample);
                if dead.is_some() {
                    return dead;
                }
            }
            let survey = self.survey(&sample);
            if small_first && !survey.has_small {
                self.look_at_recent(&mut sample);
            }
            if let Some(main) = survey.main.filter(|_| !steered) {
                self.steer(main);
                steered = true;
            }
            let mut met = false;
            while let Some(next) = Self::choose(&mut sample) {
                if next.is(self.protect) {
                    continue;
                }
                met = true;
                if !small_first && self.is_refused(next.policy()) {
                    self.demote_returned();
                    sample.clear();
                } else if let Some(victim) = self.evict_or_spare(next) {
                    return Some(victim);
                }
            }
            // Once round the table without meeting anything. Again, since buckets that were just being
            // changed were passed over.
            empty += u8::from(!met && looked_at > self.map.buckets(self.guard));
            if empty == 2 {
                return None;
            }
        }
    }

    /// Fills a sample; returns how many buckets were looked at.
    #[inline]
    fn gather(&self, sample: &mut Sample<'g, N>, small_first: bool) -> usize {
        let buckets = self.map.buckets(self.guard);
        let mut looked_at = 0;
        while sample.len() < SAMPLE && looked_at <= buckets {
            self.look(sample, small_first);
            looked_at += 1;
        }
        if small_first {
            let most = (looked_at + FURTHER).min(buckets + 1);
            while looked_at < most && sample.len() < ROOM - CHAIN && !self.survey(sample).has_small
            {
                self.look(sample, small_first);
                looked_at += 1;
            }
        }
        looked_at
    }

    /// Adds the entries of the next bucket to a sample, each with its rank.
    #[inline]
    fn look(&self, sample: &mut Sample<'g, N>, small_first: bool) {
        let position = self.hand.position(self.guard);
        let next = self.look_at(position, sample, small_first);
        self.hand.position.store(next, Relaxed);
    }

    #[inline]
    fn look_at(&self, position: u64, sample: &mut Sample<'g, N>, small_first: bool) -> u64 {
        let now = self.now;
        self.map.sample(position, sample, |policy| rank(policy, now, small_first), self.guard)
    }

    /// Adds the buckets of this thread's last new entries, until there is one of the small region.
    #[cold]
    fn look_at_recent(&self, sample: &mut Sample<'g, N>) {
        while let Some(hash) = self.hand.recent.take() {
            sample.truncate(ROOM - CHAIN);
            let buckets = self.map.buckets(self.guard) as u128;
            let position = ((u128::from(hash) * buckets) >> 64) as u64;
            self.look_at(position, sample, true);
            if self.survey(sample).has_small {
                return;
            }
        }
    }

    #[inline]
    fn survey(&self, sample: &Sample<'g, N>) -> Survey {
        let mut survey = Survey { has_small: false, main: None };
        let mut highest = 0;
        for sampled in sample {
            let policy = sampled.policy();
            if sampled.is(self.protect) {
                continue;
            }
            if !policy.is_main() {
                survey.has_small = true;
            } else if sampled.rank() > highest {
                highest = sampled.rank();
                survey.main = Some(policy);
            }
        }
        survey
    }

    /// Tells the small region's share what main would lose.
    fn steer(&self, main: Policy) {
        let (hand, own) = self.evict.hands.of(self.guard.stripe());
        let units = distance(self.now, main.age());
        self.evict.share.evicting(main.frequency(), units, &hand.pull, own);
    }

    /// Takes the entry of the highest rank out of the sample.
    #[inline]
    fn choose(sample: &mut Sample<'g, N>) -> Option<Sampled<'g, N>> {
        let mut best = (0, usize::MAX);
        for (index, sampled) in sample.iter().enumerate() {
            if sampled.rank() > best.0 {
                best = (sampled.rank(), index);
            }
        }
        sample.swap_pop(best.1)
    }

    /// Whether the protected entry, which came back to main, is worth no more than the one of main that
    /// would have to go for it.
    ///
    /// It was used once in as many units as it was away. The other is credited with half a use beyond
    /// what was counted, and stays if it was used at least three quarters as often.
    fn is_refused(&self, policy: Policy) -> bool {
        let Some((_, away)) = self.returned else { return false };
        let (uses, units) = (policy.frequency(), distance(self.now, policy.age()));
        let often = 2 * (2 * u16::from(uses) + 1) * u16::from(away.max(1)) >= 3 * u16::from(units);
        policy.is_main() && (often || uses > 0 && self.spared >= SPARED_FOR_RETURNED)
    }

    /// Moves the protected entry, which came back to main, to the small region.
    #[cold]
    fn demote_returned(&mut self) {
        let Some((hash, _)) = self.returned.take() else { return };
        let mut returned = None;
        self.map.visit(hash, self.guard, |found| {
            if std::ptr::eq(found.node(), self.protect) {
                returned = Some(found);
            }
        });
        let Some(found) = returned.filter(|found| found.policy().is_main()) else { return };
        let policy = Policy::new(false, found.policy().frequency(), found.policy().age());
        if found.stamp(policy).is_some() {
            self.change_small(&found, 1);
            self.hand.recent.note(hash);
        }
    }

    fn change_small(&self, found: &Found<'g, N>, sign: i64) {
        let weight = i64::try_from(self.judge.weight(found.node())).unwrap_or(i64::MAX);
        let (hand, own) = self.evict.hands.of(self.guard.stripe());
        self.evict.move_small(hand, own, sign * weight);
    }

    /// Evicts an entry, unless it deserves to stay or is not to be had any more.
    fn evict_or_spare(&mut self, mut next: Sampled<'g, N>) -> Option<Victim<'g, N>> {
        if let Some(policy) = clamped(next.policy(), self.now) {
            next.stamp(policy);
        }
        let found = next.found(self.guard);
        // A small cache is gone round several times before all uses are counted down.
        if self.spared < SPARED && self.spare(&found) {
            self.spared += 1;
            return None;
        }
        if !self.map.remove(&found, self.guard) {
            return None;
        }
        if !found.policy().is_main() {
            let (words, place) = self.map.ghosts_at(next.bucket(), self.guard);
            ghost::put(words, Id::new(place, found.tag()), self.now);
        }
        Some(Victim { found, cause: RemovalCause::Evicted })
    }

    /// Lets an entry stay if it was used: promotes it from small to main, or counts it down in main.
    /// Returns whether it stays.
    fn spare(&self, found: &Found<'g, N>) -> bool {
        let policy = found.policy();
        if policy.is_main() {
            let used = policy.frequency();
            if used == 0 {
                return false;
            }
            // Lost race: it was used again, or it is gone; either way not ours to evict now.
            let _ = found.stamp(Policy::new(true, used - 1, self.now));
            return true;
        }
        if policy.frequency() < PROMOTE {
            return false;
        }
        if found.stamp(Policy::new(true, 0, self.now)).is_some() {
            self.change_small(found, -1);
        }
        true
    }

    fn take_dead(&self, sample: &mut Sample<'g, N>) -> Option<Victim<'g, N>> {
        let mut index = 0;
        while index < sample.len() {
            let found = sample[index].found(self.guard);
            if let Some(cause) = self.judge.death(found.node()) {
                sample.swap_remove(index);
                if self.map.remove(&found, self.guard) {
                    return Some(Victim { found, cause });
                }
            } else {
                index += 1;
            }
        }
        None
    }
}

/// How much an entry is due to go, above zero: first the region that is to shrink; in it the oldest,
/// where each use counts for some units of youth.
#[inline]
fn rank(policy: Policy, now: u8, small_first: bool) -> u8 {
    let credit = if policy.is_main() { CREDIT * policy.frequency() } else { 0 };
    let wanted = if policy.is_main() == small_first { 0 } else { AGES };
    1 + wanted + distance(now, policy.age()).saturating_sub(credit)
}

/// Keeps a very old stamp from wrapping round: the policy to give the entry instead, if it has one.
#[inline]
fn clamped(policy: Policy, now: u8) -> Option<Policy> {
    (distance(now, policy.age()) >= CLAMP).then(|| {
        let age = now.wrapping_sub(CLAMPED) % AGES;
        Policy::new(policy.is_main(), policy.frequency(), age)
    })
}
