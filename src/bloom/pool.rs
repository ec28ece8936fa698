//! The memory of a filter's generations: kept and used again, never freed while the filter lives.
//!
//! That is what lets a query read a generation without announcing itself (no lock, no reference count,
//! no pin): the worst that can happen to it is that the memory is cleared for the next generation, and
//! that it can find out (see `rebuild`).

use std::fmt;
use std::sync::OnceLock;

use super::error::SizeError;
use super::filter::Filter;
use super::sizing::Plan;

/// At least two for each time that the size doubles.
const SLOTS: usize = 64;

/// A place of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u8);

pub(super) struct Pool {
    slots: Box<[OnceLock<Filter>; SLOTS]>,
    seed: u64,
}

impl Pool {
    /// Returns a pool with one filter, and its place.
    pub(super) fn new(first: Filter) -> (Self, Slot) {
        let seed = first.seed();
        let pool = Pool { slots: Box::new([const { OnceLock::new() }; SLOTS]), seed };
        let slot = pool.put(first).expect("the pool is empty");
        (pool, slot)
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The filter of a place that was returned by `new` or `prepare`.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> &Filter {
        self.slots[usize::from(slot.0) % SLOTS].get().expect("a place in use is filled")
    }

    /// Returns the place of an empty filter of at least a plan's size that is not `used`. One caller at a
    /// time.
    ///
    /// It is the smallest of those that are free, or else a new one. That is at least twice as large as
    /// the largest of those that were free and too small, so that there are few of them.
    pub(super) fn prepare(&self, plan: &Plan, used: Slot) -> Result<Slot, SizeError> {
        let free = || self.filled().filter(|&(slot, _)| slot != used);
        let fitting = free().filter(|(_, filter)| filter.blocks() >= plan.blocks());
        if let Some((slot, filter)) = fitting.min_by_key(|(_, filter)| filter.blocks()) {
            filter.reset(items_for(plan, filter.blocks()));
            return Ok(slot);
        }
        let largest = free().map(|(_, filter)| filter.blocks()).max().unwrap_or(0);
        let blocks = plan.blocks().max(2 * largest);
        let filter = Filter::with_blocks(blocks, self.seed, items_for(plan, blocks))?;
        self.put(filter).ok_or(SizeError::TooLarge)
    }

    /// Returns how many bytes all of them have.
    pub(super) fn bytes(&self) -> usize {
        self.filled().map(|(_, filter)| filter.bytes()).sum()
    }

    fn filled(&self) -> impl Iterator<Item = (Slot, &Filter)> {
        (0..).zip(&*self.slots).filter_map(|(i, slot)| Some((Slot(i), slot.get()?)))
    }

    fn put(&self, mut filter: Filter) -> Option<Slot> {
        for (i, slot) in (0..).zip(&*self.slots) {
            match slot.set(filter) {
                Ok(()) => return Some(Slot(i)),
                Err(back) => filter = back,
            }
        }
        None
    }
}

/// How many keys a filter of more blocks than a plan's has room for at the plan's rate.
fn items_for(plan: &Plan, blocks: usize) -> u64 {
    let items = u128::from(plan.items()) * blocks as u128 / plan.blocks() as u128;
    u64::try_from(items).unwrap_or(u64::MAX)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.filled().map(|(_, filter)| filter)).finish()
    }
}

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;
    use crate::bloom::plan;

    fn sized(items: u64) -> Plan {
        plan(items, 0.01).unwrap()
    }

    #[test]
    fn two_generations_of_one_size_take_turns() {
        let (pool, first) = Pool::new(Filter::new(&sized(10_000)).unwrap());
        let second = pool.prepare(&sized(10_000), first).unwrap();
        assert_ne!(first, second);
        for _ in 0..10 {
            assert_eq!(pool.prepare(&sized(10_000), second), Ok(first));
            assert_eq!(pool.prepare(&sized(10_000), first), Ok(second));
        }
        assert_eq!(pool.bytes(), 2 * sized(10_000).bytes());
    }

    #[test]
    fn memory_that_is_used_again_is_empty_and_has_the_new_plan() {
        let (pool, first) = Pool::new(Filter::new(&sized(10_000)).unwrap());
        let second = pool.prepare(&sized(9_000), first).unwrap();
        pool.get(first).insert("key");
        assert_eq!(pool.prepare(&sized(5_000), second), Ok(first));
        assert!(!pool.get(first).contains("key"));
        assert!((9_900..10_100).contains(&pool.get(first).items()), "room for as many as before");
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes hours")]
    fn a_filter_that_grows_slowly_neither_runs_out_of_places_nor_of_memory() {
        let (pool, mut used) = Pool::new(Filter::new(&sized(100)).unwrap());
        let mut items = 100;
        while items < 2_000_000 {
            items += items / 50 + 1;
            used = pool.prepare(&sized(items), used).unwrap();
            let needed = 2 * sized(items).bytes();
            assert!(pool.bytes() <= 5 * needed, "{} for {needed}", pool.bytes());
        }
    }

    #[test]
    fn sizes_that_rise_and_fall_use_what_there_is() {
        let (pool, mut used) = Pool::new(Filter::new(&sized(1_000)).unwrap());
        for round in 0..300u64 {
            let items = 1_000 + round * 7_919 % 500_000;
            used = pool.prepare(&sized(items), used).unwrap();
        }
        assert!(pool.bytes() <= 8 * sized(500_000).bytes(), "{}", pool.bytes());
    }
}
