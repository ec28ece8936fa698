//! Eviction: one exact budget for the whole cache, and a policy without queues or locks.
//!
//! Each thread has a hand that reads bucket after bucket. The policy's state is in the slot words, so
//! judging an entry reads no node. New entries are in the *small* region; those used by the time they
//! come up for eviction move to *main*. Keys that come back soon after their eviction (ghosts) go to main
//! at once, unless what would have to go for them is used as often as they are. Of the entries a hand
//! sees, the one with the oldest age stamp is next: from the small region while that is over its share,
//! else from main. The share follows what is lost at either region's end.
//!
//! The regions and ghosts are after Yang et al., "FIFO queues are all you need for cache eviction" (SOSP
//! 2023); comparing how long ago a key was there with how often what it displaces is used, after Jiang and
//! Zhang, "LIRS" (SIGMETRICS 2002). Why sampling takes the place of queues is in DESIGN.md section 8.

mod choice;
mod ghost;
mod recent;
mod share;

use self::ghost::Id;
use self::recent::Recent;
use self::share::{Share, Stay};
use crate::listener::RemovalCause;
use crate::sync::{AtomicI64, AtomicU64, Cell, Padded, Relaxed, Striped};
use crate::table::reclaim::Guard;
use crate::table::word::{Policy, Word};
use crate::table::{Found, Map, Node, Rehash};

/// Values of an age stamp; they wrap.
const AGES: u8 = Policy::AGES;
/// Ages per capacity: one unit of age is a fourteenth of the capacity in inserted weight.
const UNITS: u64 = 14;
/// The part of the capacity that each thread may keep waiting to be freed.
const WAITING: u64 = 64;
/// Entries that a hand gathers at most before it tells the shared counters.
const BATCH: i64 = 64;
/// A cache counts as filling up while at least this part of its capacity is free.
const FREE: u64 = 16;

/// How many units of age lie between a stamp and now.
const fn distance(now: u8, stamp: u8) -> u8 {
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

/// An entry whose place is being paid for: spared meanwhile, and counted among the small region only when
/// that is done. While small seems too large, other threads let keys into main without asking whether they
/// are worth it.
pub(crate) struct Newcomer<'e, N> {
    evict: &'e Evict,
    guard: &'e Guard,
    node: *const N,
    /// What it will add to the small region.
    small: i64,
    /// Its hash, and how many units ago it was inserted before, if it came back to main and was not judged yet.
    returned: Option<(u64, u8)>,
}

impl<N> Drop for Newcomer<'_, N> {
    fn drop(&mut self) {
        if self.small != 0 {
            self.evict.move_small(self.small, self.guard);
        }
    }
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
    /// How large the small region may be.
    share: Share,
    hands: Striped<Hand>,
}

/// Read by every insert, written when the capacity is changed.
#[derive(Debug)]
struct Limits {
    capacity: AtomicU64,
    unit: AtomicU64,
    /// Weight that a hand gathers before it tells the shared counters.
    batch: AtomicI64,
}

#[derive(Debug, Default)]
struct Hand {
    position: AtomicU64,
    clock: Cell,
    small: Cell,
    entries: Cell,
    /// Weight retired since garbage was last handed over.
    retired: Cell,
    /// What was gathered for moving the small region's share.
    pull: Cell,
    recent: Recent,
    stay: Stay,
    returned: Returned,
}

/// The key that a hand was last asked to place, if it came back from its ghost.
#[derive(Debug, Default)]
struct Returned {
    hash: AtomicU64,
    /// How many units of age ago it was inserted before, plus one; zero: it did not come back.
    interval: AtomicU64,
}

impl Returned {
    fn set(&self, hash: u64, interval: Option<u8>) {
        self.hash.store(hash, Relaxed);
        self.interval.store(interval.map_or(0, |interval| u64::from(interval) + 1), Relaxed);
    }

    fn take(&self) -> Option<(u64, u8)> {
        let interval = self.interval.load(Relaxed).checked_sub(1)?;
        self.interval.store(0, Relaxed);
        Some((self.hash.load(Relaxed), interval as u8))
    }
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

impl Evict {
    pub(crate) fn new(capacity: u64, small_share: f64) -> Self {
        let evict = Evict {
            limits: Padded(Limits {
                capacity: AtomicU64::new(0),
                unit: AtomicU64::new(1),
                batch: AtomicI64::new(1),
            }),
            used: Padded::default(),
            clock: Padded::default(),
            small: Padded::default(),
            entries: Padded::default(),
            broom: Padded::default(),
            share: Share::new(small_share, capacity),
            hands: Striped::new(),
        };
        evict.set_capacity(capacity);
        evict
    }

    pub(crate) fn set_capacity(&self, capacity: u64) {
        let capacity = capacity.min(MOST);
        self.limits.capacity.store(capacity, Relaxed);
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

    /// Where a new key goes: to main if it was evicted lately, or while that fills up; else to the small
    /// region.
    pub(crate) fn place<N: Node, H: Rehash<N>>(
        &self,
        map: &Map<N, H>,
        hash: u64,
        guard: &Guard,
    ) -> Policy {
        let (hand, _) = self.hands.of(guard.stripe());
        let now = self.now(guard);
        let (words, place) = map.ghosts(hash, guard);
        let tag = (Word::tag_of(hash) >> 48) as u8;
        let returned = ghost::take(words, Id::new(place, tag), now);
        hand.returned.set(hash, returned);
        let main = returned.is_some() || self.main_is_filling();
        if !main {
            hand.recent.note(hash);
        }
        Policy::new(main, 0, now)
    }

    /// Whether there is room in main that nothing has had to be evicted for yet.
    fn main_is_filling(&self) -> bool {
        let (used, capacity) = (self.used(), self.capacity());
        used < capacity - capacity / FREE && {
            let main = used as i64 - self.small.load(Relaxed);
            main < capacity as i64 - self.share.of(capacity)
        }
    }

    /// For a node that came into a region and adds weight to it.
    pub(crate) fn newcomer<'e, N>(
        &'e self,
        node: *const N,
        weight: i64,
        policy: Policy,
        guard: &'e Guard,
    ) -> Newcomer<'e, N> {
        let (hand, _) = self.hands.of(guard.stripe());
        let small = if policy.is_main() { 0 } else { weight };
        Newcomer { evict: self, guard, node, small, returned: hand.returned.take() }
    }

    /// Where nothing came in.
    pub(crate) fn nobody<'e, N>(&'e self, guard: &'e Guard) -> Newcomer<'e, N> {
        Newcomer { evict: self, guard, node: std::ptr::null(), small: 0, returned: None }
    }

    /// Accounts for a new entry, but for its region. Returns the rough number of entries when it was
    /// brought up to date.
    pub(crate) fn entered(&self, weight: i64, guard: &Guard) -> Option<u64> {
        let (hand, own) = self.hands.of(guard.stripe());
        let clock = hand.clock.add(weight, own);
        let entries = hand.entries.add(1, own);
        if clock < self.limits.batch.load(Relaxed) && entries.abs() < BATCH {
            return None;
        }
        self.clock.fetch_add(hand.clock.take(own).unsigned_abs(), Relaxed);
        self.small.fetch_add(hand.small.take(own), Relaxed);
        let change = hand.entries.take(own);
        let entries = self.entries.fetch_add(change, Relaxed).wrapping_add(change);
        let entries = entries.max(0).unsigned_abs();
        self.share.scale(entries);
        Some(entries)
    }

    /// Accounts for an entry that left its region.
    pub(crate) fn left(&self, weight: u64, policy: Policy, guard: &Guard) {
        let (hand, own) = self.hands.of(guard.stripe());
        hand.entries.add(-1, own);
        if !policy.is_main() {
            self.move_small(-i64::try_from(weight).unwrap_or(i64::MAX), guard);
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

    fn move_small(&self, change: i64, guard: &Guard) {
        let (hand, own) = self.hands.of(guard.stripe());
        if hand.small.add(change, own).abs() >= self.limits.batch.load(Relaxed) {
            self.small.fetch_add(hand.small.take(own), Relaxed);
        }
    }

    fn now(&self, guard: &Guard) -> u8 {
        let (hand, _) = self.hands.of(guard.stripe());
        let clock = self.clock.load(Relaxed).wrapping_add(hand.clock.get().unsigned_abs());
        (clock / self.limits.unit.load(Relaxed)) as u8 % AGES
    }

    /// Whether the small region is over its share, counting weight that is not yet accounted.
    fn small_is_over(&self, more: i64, guard: &Guard) -> bool {
        let (hand, _) = self.hands.of(guard.stripe());
        let small = self.small.load(Relaxed).wrapping_add(hand.small.get()).saturating_add(more);
        small > self.share.of(self.capacity())
    }

    /// Moves the broom on by one bucket and returns its position.
    pub(crate) fn next_to_sweep(&self) -> u64 {
        self.broom.fetch_add(1, Relaxed)
    }
}

/// The largest capacity: sums of weights must stay far from overflowing.
const MOST: u64 = 1 << 61;
