//! Huge budgets: what they take before anything is stored, and weights at the end of the range. And
//! other things that are counted in bytes.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use seawall::{Cache, RefusedReason};

use self::support::{alone, assert_consistent, assert_consistent_by_weight};

const MIB: u64 = 1 << 20;
const A_FEW_MIB: u64 = 4 * MIB;

/// Bytes ever allocated: filled by the program, and zeroed by the system, whose pages take no
/// memory until they are written to.
static FILLED: AtomicU64 = AtomicU64::new(0);
static ZEROED: AtomicU64 = AtomicU64::new(0);
/// The most memory that the process had in use when it gave a block of a mebibyte or more back.
static IN_USE_WHEN_FREED: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        FILLED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ZEROED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() as u64 >= MIB {
            IN_USE_WHEN_FREED.fetch_max(in_use().unwrap_or(0), Ordering::Relaxed);
        }
        // SAFETY: by the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Bytes of memory that the process has in use, where the system tells. Allocates nothing.
fn in_use() -> Option<u64> {
    use std::io::Read;

    let mut text = [0; 128];
    let len = std::fs::File::open("/proc/self/statm").ok()?.read(&mut text).ok()?;
    let pages = std::str::from_utf8(&text[..len]).ok()?.split(' ').nth(1)?;
    Some(pages.parse::<u64>().ok()? * 4096)
}

/// What was allocated meanwhile, filled and zeroed.
fn allocated(by: impl FnOnce()) -> (u64, u64) {
    let counts = || (FILLED.load(Ordering::Relaxed), ZEROED.load(Ordering::Relaxed));
    let before = counts();
    by();
    let after = counts();
    (after.0 - before.0, after.1 - before.1)
}

/// The largest capacity, as documented; larger ones count as this.
const MOST: u64 = 1 << 61;

/// CAP-06
#[test]
fn cap_06_a_huge_budget_by_weight_allocates_nothing_up_front() {
    let _alone = alone();
    for budget in [64 << 30, 1 << 63, u64::MAX] {
        let (filled, zeroed) = allocated(|| {
            let settings = Cache::builder().max_weight(budget).weigher(|_, bytes| *bytes);
            let cache = settings.build().unwrap();
            assert_eq!(cache.capacity(), budget.min(MOST));
            for key in 0..10 {
                cache.insert(key, 1 << 30).unwrap();
            }
            assert_eq!((cache.len(), cache.weight()), (10, 10 << 30));
            assert_consistent_by_weight(&cache, |_, bytes| *bytes);
        });
        assert!(filled + zeroed < A_FEW_MIB, "{filled} + {zeroed} bytes for {budget}");
    }
}

/// CAP-06: documented: of a table for millions of entries the system provides the pages as they are
/// used.
#[test]
fn cap_06_a_huge_number_of_entries_takes_no_memory_up_front() {
    let _alone = alone();
    for entries in [1 << 20, 1 << 63, u64::MAX] {
        let (filled, _) = allocated(|| {
            let cache = Cache::new(entries);
            assert_eq!(cache.capacity(), entries.min(MOST));
            for key in 0..10 {
                cache.insert(key, ()).unwrap();
            }
            assert_eq!(cache.len(), 10);
        });
        assert!(filled < A_FEW_MIB, "{filled} bytes for {entries}");
    }
}

/// CAP-06
#[test]
fn cap_06_an_estimate_of_any_size_takes_no_memory_up_front() {
    let _alone = alone();
    let (filled, _) = allocated(|| {
        let settings = Cache::<u64, ()>::builder().max_weight(10).estimated_entries(u64::MAX);
        assert!(settings.build().unwrap().is_empty());
    });
    assert!(filled < A_FEW_MIB, "{filled} bytes");
}

/// CAP-06
#[test]
#[cfg(target_os = "linux")]
fn cap_06_dropping_a_cache_of_huge_capacity_takes_no_memory() {
    let _alone = alone();
    let cache = Cache::new(1 << 22);
    cache.insert(1, ()).unwrap();
    let before = in_use().expect("the memory in use");
    IN_USE_WHEN_FREED.store(0, Ordering::Relaxed);
    drop(cache);
    let after = IN_USE_WHEN_FREED.load(Ordering::Relaxed);
    assert!(after < before + A_FEW_MIB, "from {before} to {after} bytes");
}

/// CAP-06
#[test]
fn cap_06_weights_at_the_end_of_the_range_do_not_overflow() {
    let _alone = alone();
    for capacity in [MOST - 1, MOST] {
        let settings = Cache::builder().max_weight(capacity).weigher(|_, weight| *weight);
        let cache = settings.build().unwrap();
        let weights = [capacity, 1, capacity, capacity / 2, capacity / 2, capacity - 1, 3];
        for (key, weight) in (0..).zip(weights) {
            cache.insert(key, weight).unwrap();
            let sum: u128 = cache.iter().map(|(_, weight)| u128::from(weight)).sum();
            assert!(sum <= u128::from(capacity), "{sum} in {capacity}");
            assert_eq!(u128::from(cache.weight()), sum, "in {capacity}");
        }
        for key in 0..weights.len() as u64 {
            cache.remove(&key);
        }
        assert_eq!((cache.weight(), cache.len()), (0, 0));
        assert_consistent_by_weight(&cache, |_, weight| *weight);
    }
}

/// CAP-06
#[test]
fn cap_06_light_entries_beside_a_huge_one_do_not_overflow() {
    let _alone = alone();
    let capacity = MOST;
    let cache = Cache::builder().max_weight(capacity).weigher(|_, weight| *weight).build().unwrap();
    cache.insert(0, capacity - 10).unwrap();
    for key in 1..100 {
        cache.insert(key, key).unwrap();
    }
    assert_consistent_by_weight(&cache, |_, weight| *weight);
}

/// CAP-06
#[test]
fn cap_06_a_weight_above_any_budget_is_handed_back() {
    let _alone = alone();
    let cache = Cache::builder().max_weight(u64::MAX).weigher(|_, ()| u64::MAX).build().unwrap();
    let refused = cache.insert(1, ()).unwrap_err();
    assert_eq!(refused.reason(), RefusedReason::TooHeavy { weight: u64::MAX, capacity: MOST });
    assert_consistent(&cache);
}

/// CAP-06
#[test]
fn cap_06_a_capacity_may_be_raised_to_the_maximum() {
    let _alone = alone();
    let (filled, zeroed) = allocated(|| {
        let cache = Cache::new(10);
        cache.set_capacity(u64::MAX);
        for key in 0..1_000 {
            cache.insert(key, ()).unwrap();
        }
        assert_eq!((cache.len(), cache.capacity()), (1_000, MOST));
        assert_consistent(&cache);
    });
    assert!(filled + zeroed < A_FEW_MIB, "{filled} + {zeroed} bytes");
}

/// MEM-03
#[test]
fn mem_03_garbage_that_a_pin_holds_costs_each_write_the_same_however_much_it_is() {
    let _alone = alone();
    let bytes_while_pinned = |writes| {
        let cache = Cache::new(10);
        let _pinned = cache.pin();
        let write = || (0..writes).for_each(|value: u64| _ = cache.insert(0, value).unwrap());
        let (filled, zeroed) = allocated(write);
        filled + zeroed
    };
    let (few, many) = (bytes_while_pinned(5_000), bytes_while_pinned(20_000));
    assert!(many < 8 * few, "{few} bytes for 5,000 writes, {many} for 20,000");
}
