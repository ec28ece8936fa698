//! Eviction: one exact budget for the whole cache, and a sampled S3-FIFO without queues.
//!
//! Each thread has a hand that reads bucket after bucket. The policy's state is in the slot words, so
//! judging an entry reads no node. New entries are in the *small* region; those used often enough by
//! the time they come up for eviction move to *main*; keys that come back soon after their eviction
//! (ghosts) go to main at once. Of the entries a hand sees, the one with the oldest age stamp is next:
//! from the small region while that is over its share, else from main.
//!
//! After Yang et al., "FIFO queues are all you need for cache eviction" (SOSP 2023); why sampling from
//! buckets takes the place of queues is in DESIGN.md section 8.

mod ghost;

use arrayvec::ArrayVec;

use self::ghost::Id;
use crate::listener::RemovalCause;
use crate::sync::{AtomicI64, AtomicU64, Cell, Padded, Relaxed, Striped};
use crate::table::reclaim::Guard;
use crate::table::word::Policy;
use crate::table::{Found, Map, Node, Rehash, Sampled};

/// Values of an age stamp; they wrap.
const AGES: u8 = Policy::AGES;
/// Ages per capacity: one unit of age is a sixteenth of the capacity in inserted weight.
const UNITS: u64 = 16;
/// Stamps at least this old are moved up to [`CLAMPED`], lest they wrap round and look young.
const CLAMP: u8 = 28;
const CLAMPED: u8 = 22;
/// Uses in the small region that make an entry worth keeping.
const PROMOTE: u8 = 2;
/// How many units younger an entry of main counts for each use.
const CREDIT: u8 = 6;
/// The part of the capacity that each thread may keep waiting to be freed.
const WAITING: u64 = 64;
/// Entries that a hand gathers at most before it tells the shared counters.
const BATCH: i64 = 64;
/// Buckets that a hand looks at beyond that for an entry of the small region, while that is over its
/// share: a scan must not wear main down for want of one in a sample.
const FURTHER: usize = 6;
/// How many entries a hand looks at before it chooses.
const SAMPLE: usize = 8;
/// Room for a sample that a full chain overfills.
const ROOM: usize = 40;
/// Entries that may be spared (promoted, or counted down) before one is evicted regardless.
const SPARED: usize = 24;

/// How many units of age lie between a stamp and now.
fn distance(now: u8, stamp: u8) -> u8 {
    now.wrapping_sub(stamp) % AGES
}

/// What the policy must be told about nodes.
pub(crate) trait Judge<N> {
    /// The weight that the node was accounted with.
    fn weight(&self, node: &N) -> u64;
    /// Whether nodes must be looked at: there may be dead ones among them.
    fn may_be_dead(&self) -> bool;
    /// Why the node is of no use to anyone any more, if it is not.
    fn death(&self, node: &N) -> Option<RemovalCause>;
}

/// An entry that was taken out of the table.
pub(crate) struct Victim<'g, N> {
    pub(crate) found: Found<'g, N>,
    pub(crate) cause: RemovalCause,
}

/// The budget, the regions' sizes and the hands.
#[derive(Debug)]
pub(crate) struct Evict {
    limits: Padded<Limits>,
    /// Weight accounted so far. Live weight is this plus the debts of operations in progress.
    used: Padded<AtomicI64>,
    /// Weight ever inserted: the clock of the age stamps.
    clock: Padded<AtomicU64>,
    /// Weight in the small region.
    small: Padded<AtomicI64>,
    /// Entries, roughly: for deciding when to grow.
    entries: Padded<AtomicI64>,
    /// The bucket that is looked at next for dead entries, by whichever thread.
    broom: Padded<AtomicU64>,
    hands: Striped<Hand>,
}

/// Read by every insert, written when the capacity is changed.
#[derive(Debug)]
struct Limits {
    capacity: AtomicU64,
    small: AtomicI64,
    unit: AtomicU64,
    /// Weight that a hand gathers before it tells the shared counters.
    batch: AtomicI64,
    small_share: f64,
}

#[derive(Debug, Default)]
struct Hand {
    position: AtomicU64,
    clock: Cell,
    small: Cell,
    entries: Cell,
    /// Weight retired since garbage was last handed over.
    retired: Cell,
}

impl Hand {
    /// Where the hand is: hands that have not moved yet begin far from each other.
    fn position(&self, guard: &Guard) -> u64 {
        match self.position.load(Relaxed) {
            0 => 1 + (guard.stripe().index() as u64).wrapping_mul(0x9E37_79B9) % (1 << 32),
            position => position,
        }
    }
}

type Sample<'g, N> = ArrayVec<Sampled<'g, N>, ROOM>;

impl Evict {
    pub(crate) fn new(capacity: u64, small_share: f64) -> Self {
        let evict = Evict {
            limits: Padded(Limits {
                capacity: AtomicU64::new(0),
                small: AtomicI64::new(0),
                unit: AtomicU64::new(1),
                batch: AtomicI64::new(1),
                small_share,
            }),
            used: Padded::default(),
            clock: Padded::default(),
            small: Padded::default(),
            entries: Padded::default(),
            broom: Padded::default(),
            hands: Striped::new(),
        };
        evict.set_capacity(capacity);
        evict
    }

    pub(crate) fn set_capacity(&self, capacity: u64) {
        let capacity = capacity.min(MOST);
        let small = (capacity as f64 * self.limits.small_share) as i64;
        self.limits.capacity.store(capacity, Relaxed);
        self.limits.small.store(small.max(1), Relaxed);
        self.limits.unit.store((capacity / UNITS).max(1), Relaxed);
        self.limits.batch.store(i64::try_from(capacity / 1024).unwrap_or(i64::MAX).max(1), Relaxed);
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.limits.capacity.load(Relaxed)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed).max(0).unsigned_abs()
    }

    /// Takes weight out of the account.
    pub(crate) fn discharge(&self, weight: i64) {
        if weight != 0 {
            // ORDERING: Relaxed, as all accounting: the table's CAS decided; a sum publishes nothing.
            self.used.fetch_sub(weight, Relaxed);
        }
    }

    /// Accounts for a debt if the budget has room for it, or regardless.
    pub(crate) fn charge(&self, debt: i64, regardless: bool) -> bool {
        let mut used = self.used.load(Relaxed);
        loop {
            let sum = used.saturating_add(debt);
            if !regardless && sum > self.capacity() as i64 {
                return false;
            }
            match self.used.compare_exchange(used, sum, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => used = now,
            }
        }
    }

    /// Whether more is accounted than the capacity: it was lowered.
    pub(crate) fn is_over(&self) -> bool {
        self.used() > self.capacity()
    }

    /// Where a new key goes: to main if it was evicted lately, else to the small region.
    pub(crate) fn place<N: Node, H: Rehash<N>>(
        &self,
        map: &Map<N, H>,
        hash: u64,
        guard: &Guard,
    ) -> Policy {
        let now = self.now(guard);
        let (words, place) = map.ghosts(hash, guard);
        let tag = (crate::table::word::Word::tag_of(hash) >> 48) as u8;
        Policy::new(ghost::take(words, Id::new(place, tag), now), 0, now)
    }

    /// Accounts for an entry that came into a region. Returns the rough number of entries when it was
    /// brought up to date.
    pub(crate) fn entered(&self, weight: u64, policy: Policy, guard: &Guard) -> Option<u64> {
        let (hand, own) = self.hands.of(guard.stripe());
        let weight = i64::try_from(weight).unwrap_or(i64::MAX);
        let clock = hand.clock.add(weight, own);
        let entries = hand.entries.add(1, own);
        if !policy.is_main() {
            hand.small.add(weight, own);
        }
        if clock < self.limits.batch.load(Relaxed) && entries.abs() < BATCH {
            return None;
        }
        self.clock.fetch_add(hand.clock.take(own).unsigned_abs(), Relaxed);
        self.small.fetch_add(hand.small.take(own), Relaxed);
        let change = hand.entries.take(own);
        let entries = self.entries.fetch_add(change, Relaxed).wrapping_add(change);
        Some(entries.max(0).unsigned_abs())
    }

    /// Accounts for an entry that left its region.
    pub(crate) fn left(&self, weight: u64, policy: Policy, guard: &Guard) {
        let (hand, own) = self.hands.of(guard.stripe());
        hand.entries.add(-1, own);
        if !policy.is_main() {
            self.move_small(hand, own, -i64::try_from(weight).unwrap_or(i64::MAX));
        }
    }

    /// Accounts for a change of an entry's weight.
    pub(crate) fn reweighed(&self, change: i64, policy: Policy, guard: &Guard) {
        if change != 0 && !policy.is_main() {
            let (hand, own) = self.hands.of(guard.stripe());
            self.move_small(hand, own, change);
        }
    }

    /// Notes weight that was retired; returns whether so much of the capacity waits that it should be
    /// handed over.
    pub(crate) fn retired(&self, weight: u64, guard: &Guard) -> bool {
        let (hand, own) = self.hands.of(guard.stripe());
        let sum = hand.retired.add(i64::try_from(weight).unwrap_or(i64::MAX), own);
        let much = sum.unsigned_abs() > self.capacity() / WAITING;
        if much {
            hand.retired.take(own);
        }
        much
    }

    fn move_small(&self, hand: &Hand, own: bool, change: i64) {
        if hand.small.add(change, own).abs() >= self.limits.batch.load(Relaxed) {
            self.small.fetch_add(hand.small.take(own), Relaxed);
        }
    }

    fn now(&self, guard: &Guard) -> u8 {
        let (hand, _) = self.hands.of(guard.stripe());
        let clock = self.clock.load(Relaxed).wrapping_add(hand.clock.get().unsigned_abs());
        (clock / self.limits.unit.load(Relaxed)) as u8 % AGES
    }

    fn small_is_over(&self, guard: &Guard) -> bool {
        let (hand, _) = self.hands.of(guard.stripe());
        self.small.load(Relaxed).wrapping_add(hand.small.get()) > self.limits.small.load(Relaxed)
    }

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
        let now = self.now(guard);
        let mut spared = 0;
        let mut empty = 0;
        let mut sample = Sample::new();
        loop {
            let buckets = map.buckets(guard);
            let small_first = self.small_is_over(guard);
            let mut looked_at = 0;
            while sample.len() < SAMPLE && looked_at <= buckets {
                self.look(map, &mut sample, |policy| rank(policy, now, small_first), guard);
                looked_at += 1;
            }
            if small_first {
                let is_main = |sampled: &Sampled<'_, N>| sampled.policy().is_main();
                let most = looked_at + FURTHER;
                while sample.iter().all(is_main) && looked_at < most && looked_at <= buckets {
                    self.look(map, &mut sample, |policy| rank(policy, now, small_first), guard);
                    looked_at += 1;
                }
            }
            if judge.may_be_dead() {
                let dead = Self::take_dead(map, judge, &mut sample, guard);
                if dead.is_some() {
                    return dead;
                }
            }
            let mut met = false;
            while let Some(mut next) = Self::choose(&mut sample) {
                if next.is(protect) {
                    continue;
                }
                met = true;
                if let Some(policy) = clamped(next.policy(), now) {
                    next.stamp(policy);
                }
                let found = next.found(guard);
                // A small cache is gone round several times before all uses are counted down.
                if spared < SPARED && self.spare(judge, &found, now, guard) {
                    spared += 1;
                } else if map.remove(&found, guard) {
                    if !found.policy().is_main() {
                        let (words, place) = map.ghosts_at(next.bucket(), guard);
                        ghost::put(words, Id::new(place, found.tag()), now);
                    }
                    return Some(Victim { found, cause: RemovalCause::Evicted });
                }
            }
            // Once round the table without meeting anything. Again, since buckets that were just being
            // changed were passed over.
            empty += u8::from(!met && looked_at > buckets);
            if empty == 2 {
                return None;
            }
        }
    }

    /// Adds the entries of the next bucket to a sample, each with its rank.
    #[inline]
    fn look<'g, N: Node, H: Rehash<N>>(
        &self,
        map: &'g Map<N, H>,
        sample: &mut Sample<'g, N>,
        rank: impl Fn(Policy) -> u8,
        guard: &'g Guard,
    ) {
        let (hand, _) = self.hands.of(guard.stripe());
        let position = hand.position(guard);
        let next = map.sample(position, sample, rank, guard);
        hand.position.store(next, Relaxed);
    }

    /// Takes the entry of the highest rank out of the sample.
    #[inline]
    fn choose<'g, N>(sample: &mut Sample<'g, N>) -> Option<Sampled<'g, N>> {
        let mut best = (0, usize::MAX);
        for (index, sampled) in sample.iter().enumerate() {
            if sampled.rank() > best.0 {
                best = (sampled.rank(), index);
            }
        }
        sample.swap_pop(best.1)
    }

    /// Lets an entry stay if it was used: promotes it from small to main, or counts it down in main.
    /// Returns whether it stays.
    fn spare<'g, N: Node>(
        &self,
        judge: &impl Judge<N>,
        found: &Found<'g, N>,
        now: u8,
        guard: &'g Guard,
    ) -> bool {
        let policy = found.policy();
        if policy.is_main() {
            let used = policy.frequency();
            if used == 0 {
                return false;
            }
            // Lost race: it was used again, or it is gone; either way not ours to evict now.
            let _ = found.stamp(Policy::new(true, used - 1, now));
            return true;
        }
        if policy.frequency() < PROMOTE {
            return false;
        }
        if found.stamp(Policy::new(true, 0, now)).is_some() {
            let weight = i64::try_from(judge.weight(found.node())).unwrap_or(i64::MAX);
            let (hand, own) = self.hands.of(guard.stripe());
            self.move_small(hand, own, -weight);
        }
        true
    }

    fn take_dead<'g, N: Node, H: Rehash<N>>(
        map: &'g Map<N, H>,
        judge: &impl Judge<N>,
        sample: &mut Sample<'g, N>,
        guard: &'g Guard,
    ) -> Option<Victim<'g, N>> {
        let mut index = 0;
        while index < sample.len() {
            let found = sample[index].found(guard);
            if let Some(cause) = judge.death(found.node()) {
                sample.swap_remove(index);
                if map.remove(&found, guard) {
                    return Some(Victim { found, cause });
                }
            } else {
                index += 1;
            }
        }
        None
    }

    /// Moves the broom on by one bucket and returns its position.
    pub(crate) fn next_to_sweep(&self) -> u64 {
        self.broom.fetch_add(1, Relaxed)
    }
}

/// The largest capacity: sums of weights must stay far from overflowing.
const MOST: u64 = 1 << 61;

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
