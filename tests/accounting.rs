//! What the cache counts, what it keeps in memory, and what it tells its listener.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Weak};
use std::thread;

use seawall::{
    Builder, Cache, Clock, Compute, Computed, InsertOptions, Inserted, ManualClock, RemovalCause,
};

use self::support::{
    Census, Constant, Counted, Log, alone, assert_consistent, assert_consistent_by_weight,
    free_garbage, ms, secs,
};

/// How much may be waiting to be freed while nobody is pinned for longer than a call.
const BACKLOG: i64 = 500;

/// Settings for values that are their own weight.
fn weighing(capacity: u64) -> Builder<u64, u64> {
    Cache::builder().max_weight(capacity).weigher(|_, weight| *weight)
}

fn timed(builder: Builder<u64, u64>) -> (Builder<u64, u64>, ManualClock) {
    let (clock, hand) = Clock::manual();
    (builder.clock(clock), hand)
}

/// ACC-02
#[test]
fn acc_02_what_expires_leaves_no_weight_behind() {
    let _alone = alone();
    let (builder, hand) = timed(weighing(100));
    let cache = builder.time_to_live(secs(1)).build().unwrap();
    for _ in 0..300 {
        for key in 0..10 {
            cache.insert(key, 5).unwrap();
        }
        assert_eq!(cache.weight(), 50);
        hand.advance(secs(2));
        assert_eq!(cache.sweep(usize::MAX), 10);
        assert_eq!((cache.weight(), cache.len()), (0, 0));
    }
    for key in 0..20 {
        cache.insert(key, 5).unwrap();
    }
    assert_eq!((cache.weight(), cache.len(), cache.stats().evicted), (100, 20, 0));
    assert_consistent_by_weight(&cache, |_, weight| *weight);
}

/// ACC-02
#[test]
fn acc_02_what_is_replaced_when_dead_leaves_no_weight_behind() {
    let _alone = alone();
    let (builder, hand) = timed(weighing(100));
    let cache = builder.time_to_live(secs(1)).build().unwrap();
    for cycle in 0..300 {
        let weight = 1 + cycle % 100;
        cache.insert(1, weight).unwrap();
        assert_eq!((cache.weight(), cache.len()), (weight, 1));
        hand.advance(secs(2));
    }
    cache.sweep(usize::MAX);
    assert_eq!((cache.weight(), cache.stats().expired, cache.stats().evicted), (0, 300, 0));
    assert_consistent_by_weight(&cache, |_, weight| *weight);
}

/// ACC-04
#[test]
fn acc_04_each_counter_counts_what_it_says_and_nothing_else() {
    let _alone = alone();
    let (builder, hand) = timed(weighing(100));
    let (builder, log) = Log::of(builder);
    let cache = builder.build().unwrap();
    let mut expected = cache.stats();
    for key in 0..10 {
        cache.insert(key, 10).unwrap();
    }
    (expected.inserts, expected.entries, expected.weight) = (10, 10, 100);
    cache.insert(0, 10).unwrap();
    cache.replace_if(1, 10, |_| true).unwrap();
    cache.compute(2, |_| Compute::Insert(10)).unwrap();
    expected.replaced = 3;
    cache.insert(0, 101).unwrap_err();
    cache.insert_if_absent(0, 10).unwrap_err();
    cache.replace_if(0, 10, |_| false).unwrap_err();
    cache.replace_if(10, 10, |_| true).unwrap_err();
    cache.compute(0, |_| Compute::Insert(101)).unwrap_err();
    expected.refused = 5;
    assert_eq!(cache.remove(&3), Some(10));
    assert_eq!(cache.remove(&3), None);
    assert_eq!(cache.compute(4, |_| Compute::Remove).unwrap(), Computed::Removed);
    assert_eq!(cache.compute(4, |_| Compute::Remove).unwrap(), Computed::Kept);
    (expected.removed, expected.entries, expected.weight) = (2, 8, 80);
    assert!(cache.invalidate(&5));
    assert!(!cache.invalidate(&5));
    assert_eq!(cache.invalidate_if(|key, _| *key == 6), 1);
    (expected.invalidated, expected.entries, expected.weight) = (2, 6, 60);
    let brief = InsertOptions::new().time_to_live(ms(1));
    cache.insert_with(11, 40, brief).unwrap();
    hand.advance(ms(1));
    assert_eq!(cache.get(&11), None);
    cache.sweep(usize::MAX);
    (expected.inserts, expected.expired, expected.misses) = (11, 1, 1);
    assert_eq!((cache.get(&0), cache.get(&12), cache.peek(&0)), (Some(10), None, Some(10)));
    assert!(cache.contains_key(&0));
    (expected.hits_fresh, expected.misses) = (1, 2);
    cache.insert(13, 50).unwrap();
    (expected.inserts, expected.evicted, expected.evicted_weight) = (12, 1, 10);
    (expected.entries, expected.weight) = (6, 100);

    free_garbage(&cache);
    assert_eq!(cache.stats(), expected);
    assert_consistent_by_weight(&cache, |_, weight| *weight);
    log.assert_matches_stats(&cache);
}

/// ACC-04
#[test]
fn acc_04_counters_of_several_threads_add_up() {
    let _alone = alone();
    let (builder, log) = Log::of(weighing(500));
    let cache = builder.build().unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for count in 0..3_000 {
                    let key = (count * 7 + thread * 31) % 200;
                    match count % 5 {
                        0 => _ = cache.remove(&key),
                        1 => _ = cache.invalidate(&key),
                        2 => _ = cache.get(&key),
                        _ => _ = cache.insert(key, 1 + count % 10),
                    }
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.hits_fresh + stats.misses, 4 * 600);
    assert_eq!(stats.inserts + stats.replaced, 4 * 1_200);
    assert_consistent_by_weight(&cache, |_, weight| *weight);
    log.assert_matches_stats(&cache);
}

/// ACC-04
#[test]
fn acc_04_what_is_not_kept_is_neither_an_insert_nor_refused() {
    let _alone = alone();
    let cache = weighing(0).build().unwrap();
    assert_eq!(cache.insert(1, 1).unwrap(), Inserted::NotKept);
    assert_eq!(cache.insert_if_absent(1, 1).unwrap(), Inserted::NotKept);
    let stats = cache.stats();
    assert_eq!((stats.inserts, stats.refused, stats.evicted), (0, 0, 0));
    assert_consistent_by_weight(&cache, |_, weight| *weight);
}

/// Fills a cache, has `evict` drive some out, and checks that each victim counts with its weight.
fn assert_victims_are_weighed<R>(evict: impl FnOnce(&Cache<u64, u64, Constant>) -> R) {
    let (builder, log) = Log::of(weighing(1_000));
    let cache = builder.hasher(Constant).build().unwrap();
    for key in 0..20 {
        cache.insert(key, 40 + key).unwrap();
    }
    assert_eq!((cache.weight(), cache.stats().evicted), (990, 0));
    evict(&cache);
    let told = log.take();
    let victims: Vec<u64> = told
        .iter()
        .filter(|(_, _, cause)| *cause == RemovalCause::Evicted)
        .map(|(_, weight, _)| *weight)
        .collect();
    let stats = cache.stats();
    assert!(stats.evicted > 0);
    assert_eq!(stats.evicted, victims.len() as u64);
    assert_eq!(stats.evicted_weight, victims.iter().sum());
    assert_consistent_by_weight(&cache, |_, weight| *weight);
}

/// ACC-06
#[test]
fn acc_06_a_victim_counts_with_its_weight_whatever_drove_it_out() {
    let _alone = alone();
    assert_victims_are_weighed(|cache| cache.insert(20, 100).unwrap());
    assert_victims_are_weighed(|cache| cache.insert(0, 500).unwrap());
    assert_victims_are_weighed(|cache| cache.insert_if_absent(20, 100).unwrap());
    assert_victims_are_weighed(|cache| cache.replace_if(0, 500, |_| true).unwrap());
    assert_victims_are_weighed(|cache| cache.compute(20, |_| Compute::Insert(100)).unwrap());
    assert_victims_are_weighed(|cache| cache.compute(0, |_| Compute::Insert(500)).unwrap());
    assert_victims_are_weighed(|cache| cache.set_capacity(300));
    assert_victims_are_weighed(|cache| cache.set_capacity(0));
}

/// ACC-06
#[test]
fn acc_06_a_victim_of_a_full_place_counts_with_its_weight() {
    let _alone = alone();
    assert_victims_are_weighed(|cache| {
        // The budget has room for all of these, but the one place of their hash has not.
        cache.set_capacity(10_000);
        for key in 20..40 {
            cache.insert(key, 100 + key).unwrap();
        }
        assert_eq!(cache.stats().evicted, 16);
    });
}

/// ACC-06
#[test]
fn acc_06_a_heavy_dead_entry_is_not_counted_as_evicted_however_it_is_replaced() {
    let _alone = alone();
    let (builder, hand) = timed(weighing(100));
    let cache = builder.time_to_live(secs(1)).build().unwrap();
    type Replaces = fn(&Cache<u64, u64>) -> bool;
    let ways: [Replaces; 4] = [
        |cache| cache.insert(1, 2) == Ok(Inserted::New),
        |cache| cache.insert_if_absent(1, 2) == Ok(Inserted::New),
        |cache| {
            let computed = cache.compute(1, |_| Compute::Insert(2));
            computed == Ok(Computed::Inserted(Inserted::New))
        },
        |cache| {
            let undying = InsertOptions::new().no_deadline();
            cache.insert_with(1, 2, undying) == Ok(Inserted::New)
        },
    ];
    for (count, replaces) in (1..).zip(ways) {
        cache.insert(1, 100).unwrap();
        hand.advance(secs(1));
        assert!(replaces(&cache), "way {count}");
        assert_eq!((cache.get(&1), cache.weight(), cache.len()), (Some(2), 2, 1));
        assert_eq!((cache.stats().expired, cache.stats().replaced), (count, count - 1));
    }
    assert_eq!((cache.stats().evicted, cache.stats().evicted_weight), (0, 0));
    assert_consistent_by_weight(&cache, |_, weight| *weight);
}

/// MEM-01
#[test]
fn mem_01_a_cache_with_a_listener_keeps_no_key_of_what_left_it() {
    let _alone = alone();
    let census = Census::default();
    let builder = Cache::builder().max_entries(100).removal_listener(|_, _, _| {});
    let cache: Cache<Counted, u64> = builder.build().unwrap();
    for key in 0..50_000 {
        cache.insert(census.make(key), key).unwrap();
        assert!(census.living() <= 100 + BACKLOG, "{} after {key}", census.living());
    }
    free_garbage(&cache);
    assert_eq!(census.living(), 100);
    assert_consistent(&cache);
}

/// MEM-01
#[test]
fn mem_01_tags_that_no_entry_has_any_more_are_forgotten() {
    let _alone = alone();
    let cache = Cache::new(100);
    let mut tags: Vec<Weak<str>> = Vec::new();
    for key in 0..20_000 {
        let tag: Arc<str> = format!("tag {key}").into();
        tags.push(Arc::downgrade(&tag));
        cache.insert_with(key, (), InsertOptions::new().tag(tag)).unwrap();
    }
    free_garbage(&cache);
    let living = tags.iter().filter(|tag| tag.strong_count() > 0).count();
    assert!(living <= 2_000, "{living} tags for 100 entries");
    assert_consistent(&cache);
}

/// MEM-03
#[test]
fn mem_03_nothing_of_an_evicted_entry_is_kept_until_its_deadline() {
    let _alone = alone();
    let census = Census::default();
    let (clock, _hand) = Clock::manual();
    let builder = Cache::builder().max_entries(1_000).time_to_live(secs(3_600)).clock(clock);
    let cache = builder.build().unwrap();
    for key in 0..50_000 {
        cache.insert(census.make(key), census.make(key)).unwrap();
        assert!(census.living() <= 2 * (1_000 + BACKLOG), "{} after {key}", census.living());
    }
    free_garbage(&cache);
    assert_eq!(census.living(), 2_000);
    cache.invalidate_all();
    cache.sweep(usize::MAX);
    free_garbage(&cache);
    assert_eq!((census.living(), cache.len(), cache.weight()), (0, 0, 0));
    assert_consistent(&cache);
}

/// MEM-03
#[test]
fn mem_03_a_key_rewritten_with_ever_new_deadlines_is_kept_once() {
    let _alone = alone();
    let census = Census::default();
    let cache = Cache::new(1_000);
    for time in 1..50_000 {
        let ttl = InsertOptions::new().time_to_live(ms(time));
        cache.insert_with(census.make(1), census.make(time), ttl).unwrap();
        assert!(census.living() <= 2 * (1 + BACKLOG), "{} after {time}", census.living());
    }
    cache.insert(census.make(1), census.make(0)).unwrap();
    free_garbage(&cache);
    assert_eq!((census.living(), cache.len()), (2, 1));
    assert_consistent(&cache);
}

/// MEM-03
#[test]
fn mem_03_marking_entries_over_and_over_leaves_nothing_behind() {
    let _alone = alone();
    let (builder, hand) = timed(Cache::builder().max_entries(10));
    let cache = builder.stale_while_revalidate(secs(3_600)).build().unwrap();
    cache.insert(1, 1).unwrap();
    for back in (0..10_000).rev() {
        // Each time is earlier than the last, so that there is something to change.
        hand.set(ms(back));
        assert!(cache.mark_stale(&1));
        assert!(cache.stats().garbage <= BACKLOG as u64);
    }
    free_garbage(&cache);
    assert_consistent(&cache);
}

/// MEM-03
#[test]
fn mem_03_garbage_of_a_thread_that_does_nothing_more_is_freed_by_others() {
    let _alone = alone();
    let census = Census::default();
    let cache = Cache::new(1_000);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..10 {
                cache.insert(key, census.make(key)).unwrap();
                cache.invalidate(&key);
            }
            while !done.load(Ordering::Acquire) {
                thread::yield_now();
            }
        });
        while cache.stats().invalidated < 10 {
            thread::yield_now();
        }
        free_garbage(&cache);
        assert_eq!(census.living(), 0);
        done.store(true, Ordering::Release);
    });
    assert_consistent(&cache);
}

/// MEM-03: a thread that read once and has had nothing to do since holds nothing back. It costs those who
/// write a call of the system, so they wait for a few batches first.
#[test]
fn mem_03_a_thread_that_only_waits_holds_no_garbage() {
    let _alone = alone();
    let cache = Cache::new(10);
    let (ready, done) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(cache.get(&0), None);
            ready.wait();
            done.wait();
        });
        ready.wait();
        let most = (0..50_000_u64)
            .map(|value| {
                cache.insert(0, value).unwrap();
                cache.stats().garbage
            })
            .max();
        done.wait();
        assert!(most.unwrap() <= BACKLOG as u64, "{most:?} waited");
    });
    free_garbage(&cache);
    assert_consistent(&cache);
}

/// MEM-03
#[test]
fn mem_03_a_pin_holds_garbage_only_as_long_as_it_is_held() {
    let _alone = alone();
    let census = Census::default();
    let cache = Cache::new(10);
    cache.insert(0, census.make(0)).unwrap();
    let pinned = cache.pin();
    let held = pinned.get(&0).unwrap();
    for value in 1..1_000 {
        cache.insert(0, census.make(value)).unwrap();
    }
    cache.sweep(0);
    assert_eq!((held.value().value, census.living()), (0, 1_000));
    assert_eq!(cache.stats().garbage, 999);
    drop(pinned);
    free_garbage(&cache);
    assert_eq!(census.living(), 1);
    assert_consistent(&cache);
}

/// LIS-02
#[test]
fn lis_02_each_removal_is_told_with_its_cause() {
    let _alone = alone();
    let (builder, hand) = timed(Cache::builder().max_entries(100));
    let (builder, log) = Log::of(builder);
    let cache = builder.time_to_live(secs(1)).build().unwrap();
    for _ in 0..20 {
        log.take();
        for key in 0..100 {
            cache.insert(key, key).unwrap();
        }
        for key in 0..100 {
            assert_eq!(cache.remove(&key), Some(key));
        }
        cache.sweep(usize::MAX);
        hand.advance(secs(2));
        assert_eq!(log.take(), Vec::from_iter((0..100).map(|k| (k, k, RemovalCause::Removed))));
    }
    assert_eq!(cache.stats().removed, 2_000);
    assert_consistent(&cache);
}

/// LIS-02
#[test]
fn lis_02_reads_of_the_dead_in_between_change_no_cause() {
    let _alone = alone();
    let (builder, hand) = timed(Cache::builder().max_entries(200));
    let (builder, log) = Log::of(builder);
    let cache = builder.build().unwrap();
    for key in 0..100 {
        let second = InsertOptions::new().time_to_live(secs(1));
        cache.insert_with(100 + key, 0, second).unwrap();
    }
    for key in 0..100 {
        cache.insert(key, 0).unwrap();
    }
    hand.advance(secs(1));
    for key in 0..100 {
        assert_eq!(cache.get(&(100 + key)), None);
        assert!(cache.invalidate(&key));
        assert!(!cache.invalidate(&(100 + key)));
    }
    let mut told = log.take();
    told.sort_unstable_by_key(|(key, ..)| *key);
    let expected = (0..200).map(|key| {
        (key, 0, if key < 100 { RemovalCause::Invalidated } else { RemovalCause::Expired })
    });
    assert_eq!(told, Vec::from_iter(expected));
    assert_consistent(&cache);
}

/// LIS-02
#[test]
fn lis_02_threads_that_remove_the_same_keys_are_told_of_each_once() {
    let _alone = alone();
    let (builder, log) = Log::of(Cache::builder().max_entries(1_000));
    let cache = builder.build().unwrap();
    for key in 0..500 {
        cache.insert(key, key).unwrap();
    }
    let removed: usize = thread::scope(|scope| {
        let remove = || (0..500).filter(|key| cache.remove(key).is_some()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(remove)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((removed, log.count(RemovalCause::Removed)), (500, 500));
    log.assert_matches_stats(&cache);
    assert_consistent(&cache);
}

/// LIS-02
#[test]
fn lis_02_what_an_invalidation_of_all_killed_is_told_once_however_it_is_reclaimed() {
    let _alone = alone();
    let (builder, log) = Log::of(Cache::builder().max_entries(100));
    let cache = builder.build().unwrap();
    for key in 0..100 {
        cache.insert(key, "old").unwrap();
    }
    cache.invalidate_all();
    for key in 50..100 {
        cache.insert(key, "new").unwrap();
    }
    assert!(!cache.invalidate(&0));
    cache.sweep(usize::MAX);
    let mut told = log.take();
    told.sort_unstable_by_key(|(key, ..)| *key);
    let expected = (0..100).map(|key| (key, "old", RemovalCause::Invalidated));
    assert_eq!(told, Vec::from_iter(expected));
    assert_consistent(&cache);
}

/// LIS-02
#[test]
fn lis_02_nothing_is_told_of_what_is_there_when_the_cache_is_dropped() {
    let _alone = alone();
    let (builder, log) = Log::of(Cache::builder().max_entries(100));
    let cache = builder.build().unwrap();
    for key in 0..100 {
        cache.insert(key, ()).unwrap();
    }
    cache.remove(&0);
    drop(cache);
    assert_eq!(log.take(), [(0, (), RemovalCause::Removed)]);
}

/// LIS-04: documented: storing a value in place of itself is a replacement like any other.
#[test]
fn lis_04_a_value_stored_in_place_of_itself_is_told_as_replaced_by_every_way_to_store() {
    let _alone = alone();
    let (builder, log) = Log::of(Cache::builder().max_entries(10));
    let cache = builder.stale_while_revalidate(secs(3_600)).build().unwrap();
    let resource = Arc::new("shared");
    let again = || Arc::clone(&resource);
    cache.insert(1, again()).unwrap();
    assert_eq!(cache.insert(1, again()).unwrap(), Inserted::Replaced);
    assert_eq!(cache.replace_if(1, again(), |_| true).unwrap(), Inserted::Replaced);
    let replaced = Computed::Inserted(Inserted::Replaced);
    assert_eq!(cache.compute(1, |_| Compute::Insert(again())).unwrap(), replaced);
    assert!(cache.mark_stale(&1));
    assert_eq!(cache.insert(1, again()).unwrap(), Inserted::Replaced);
    let told = log.take();
    assert_eq!(told.len(), 4);
    for (key, value, cause) in told {
        assert_eq!((key, cause), (1, RemovalCause::Replaced));
        assert!(Arc::ptr_eq(&value, &resource));
    }
    assert!(Arc::ptr_eq(&cache.get(&1).unwrap(), &resource));
    assert_consistent(&cache);
}

/// LIS-04
#[test]
fn lis_04_nothing_is_told_of_a_value_that_was_handed_back() {
    let _alone = alone();
    let (builder, log) = Log::of(weighing(10));
    let cache = builder.build().unwrap();
    cache.insert(1, 1).unwrap();
    cache.insert(1, 11).unwrap_err();
    cache.insert_if_absent(1, 2).unwrap_err();
    cache.replace_if(1, 2, |_| false).unwrap_err();
    cache.compute(1, |_| Compute::Keep).unwrap();
    assert_eq!((log.take(), cache.get(&1)), (vec![], Some(1)));
    assert_consistent_by_weight(&cache, |_, weight| *weight);
}
