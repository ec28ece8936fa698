//! Every key and value is dropped exactly once, and in time (CLO); the end of a cache (SHU).

mod common;

use std::cell::RefCell;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use common::{Census, Counted, Few, Later, Told, alone_in_a_process, lock, must_end};
use seawall::{Cache, Clock, Compute, InsertOptions, Inserted, Refused, RefusedReason};

type Key = Counted<u32>;
type Value = Counted<u32>;

/// One test at a time: a pin of any thread of the process delays what others wait to see freed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}

/// Sweeps, and sees that as many values are alive then. One sweep suffices, unless a thread of a test
/// that is over is just ending: it pins once more.
#[track_caller]
fn sweep_leaves<K, V>(cache: &Cache<K, V>, alive: i64, values: &Census)
where
    K: Hash + Eq,
{
    for _ in 0..1_000 {
        cache.sweep(0);
        if values.alive() == alive {
            return;
        }
        thread::yield_now();
    }
    assert_eq!(values.alive(), alive);
}

// CLO-01

/// A cache in which entries have met with everything that can happen to them.
fn eventful(keys: &Census, values: &Census) -> Cache<Key, Value> {
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(1_000)
        .time_to_live(Duration::from_secs(60))
        .stale_if_error(Duration::from_secs(60))
        .clock(clock)
        .build()
        .unwrap();
    let insert = |key, options| {
        cache.insert_with(keys.make(key), values.make(key), options).unwrap();
    };
    for key in 0..1_500 {
        let options = match key % 7 {
            0 => InsertOptions::new().time_to_live(Duration::from_secs(1)),
            1 => InsertOptions::new().tag("tag").version(u64::from(key)),
            2 => InsertOptions::new().no_deadline(),
            _ => InsertOptions::new(),
        };
        insert(key, options);
    }
    for key in (0..1_500).step_by(3) {
        cache.invalidate(&keys.make(key));
        cache.mark_stale(&keys.make(key + 1));
        drop(cache.remove(&keys.make(key + 2)));
    }
    hand.advance(Duration::from_secs(61));
    cache.invalidate_tag("tag");
    cache.invalidate_if(|key, _| key.it % 11 == 0);
    for key in 0..700 {
        insert(key, InsertOptions::new());
        insert(key, InsertOptions::new());
    }
    cache.invalidate_all();
    for key in 0..100 {
        insert(key, InsertOptions::new());
    }
    cache
}

#[test]
fn clo_01_all_keys_and_values_are_dropped_with_the_cache() {
    let _alone = alone();
    let (keys, values) = (Census::default(), Census::default());
    let cache = eventful(&keys, &values);
    assert!(values.alive() >= 100);
    drop(cache);
    assert_eq!((keys.alive(), values.alive()), (0, 0));
}

#[test]
fn clo_01_all_are_dropped_with_the_last_handle_and_none_before() {
    let _alone = alone();
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(100);
    for key in 0..50 {
        cache.insert(key, values.make(key)).unwrap();
    }
    let second = cache.clone();
    drop(cache);
    assert_eq!(values.dropped(), 0);
    drop(second);
    assert_eq!(values.alive(), 0);
}

#[test]
fn clo_01_all_are_dropped_at_whatever_point_of_a_growth_the_cache_goes() {
    let _alone = alone();
    for entries in 60..260 {
        let values = Census::default();
        let cache = Cache::builder().max_weight(1_000_000).build().unwrap();
        for key in 0..entries {
            cache.insert(key, values.make(key)).unwrap();
            if key % 5 == 0 {
                cache.invalidate(&(key / 2));
            }
        }
        drop(cache);
        assert_eq!(values.alive(), 0, "after {entries} inserts");
    }
}

#[test]
fn clo_01_all_are_dropped_from_a_full_chain_of_equal_hashes() {
    let _alone = alone();
    let (keys, values) = (Census::default(), Census::default());
    let cache = Cache::builder().max_entries(1_000).hasher(Few(1)).build().unwrap();
    for key in 0..200 {
        cache.insert(keys.make(key), values.make(key)).unwrap();
    }
    drop(cache);
    assert_eq!((keys.alive(), values.alive()), (0, 0));
}

#[test]
fn clo_01_what_other_threads_retired_is_dropped_with_the_cache() {
    let _alone = alone();
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(100);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for key in 0..300 {
                    cache.insert(key % 150, values.make(key)).unwrap();
                    cache.invalidate(&(key % 7));
                }
            });
        }
    });
    drop(cache);
    assert_eq!(values.alive(), 0);
}

#[test]
fn clo_01_the_listener_is_not_told_of_what_the_cache_still_held() {
    let _alone = alone();
    let told = Told::new();
    let cache = Cache::builder().max_entries(10).removal_listener(told.listener()).build().unwrap();
    cache.insert(1, 1).unwrap();
    cache.insert(2, 2).unwrap();
    cache.remove(&1);
    drop(cache);
    assert_eq!(told.take().len(), 1);
}

// CLO-03

#[test]
fn clo_03_a_removed_value_is_dropped_by_the_next_sweep() {
    let _alone = alone();
    let (keys, values) = (Census::default(), Census::default());
    let cache: Cache<Key, Value> = Cache::new(10);
    cache.insert(keys.make(1), values.make(1)).unwrap();
    cache.invalidate(&keys.make(1));
    assert_eq!(cache.stats().garbage, 1);
    sweep_leaves(&cache, 0, &values);
    assert_eq!(keys.alive(), 0);
    assert_eq!(cache.stats().garbage, 0);
}

#[test]
fn clo_03_an_overwritten_value_and_its_key_are_dropped_by_the_next_sweep() {
    let _alone = alone();
    let (keys, values) = (Census::default(), Census::default());
    let cache: Cache<Key, Value> = Cache::new(10);
    for value in 0..5 {
        cache.insert(keys.make(1), values.make(value)).unwrap();
    }
    sweep_leaves(&cache, 1, &values);
    assert_eq!(keys.alive(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn clo_03_few_replaced_values_wait_at_any_time() {
    alone_in_a_process("few_replaced_values_wait");
}

#[test]
#[ignore = "a pin of another test's thread would make more wait"]
fn few_replaced_values_wait() {
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(10);
    for value in 0..10_000 {
        cache.insert(value % 10, values.make(value)).unwrap();
        assert!(values.alive() <= 10 + 128, "{} values alive", values.alive());
    }
}

#[test]
fn clo_03_a_reader_that_sleeps_after_its_read_holds_nothing() {
    let _alone = alone();
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(10);
    cache.insert(1, values.make(1)).unwrap();
    let ((read, has_read), (wake, sleep)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let cache = &cache;
        let reader = scope.spawn(move || {
            assert_eq!(cache.get_with(&1, |entry| entry.value().it), Some(1));
            read.send(()).unwrap();
            let _ = sleep.recv();
        });
        has_read.recv().unwrap();
        cache.invalidate(&1);
        sweep_leaves(cache, 0, &values);
        drop(wake);
        reader.join().unwrap();
    });
}

/// Has a thread do something and then sleep while something else is done.
fn while_asleep(first: impl FnOnce() + Send, then: impl FnOnce()) {
    let ((end, has_ended), (wake, sleep)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let sleeper = scope.spawn(move || {
            first();
            end.send(()).unwrap();
            let _ = sleep.recv();
        });
        has_ended.recv().unwrap();
        then();
        drop(wake);
        sleeper.join().unwrap();
    });
}

#[test]
fn clo_03_a_sweep_drops_what_a_sleeping_thread_removed() {
    let _alone = alone();
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(10);
    let remove = || {
        cache.insert(1, values.make(1)).unwrap();
        cache.invalidate(&1);
    };
    while_asleep(remove, || sweep_leaves(&cache, 0, &values));
}

/// Nobody calls `sweep`: what one thread left behind goes while another works.
#[test]
fn clo_03_what_a_sleeping_thread_removed_is_dropped_while_others_work() {
    let _alone = alone();
    let (left_behind, values) = (Census::default(), Census::default());
    let cache: Cache<u32, Value> = Cache::new(10);
    let remove = || {
        for key in 0..5 {
            cache.insert(key, left_behind.make(1)).unwrap();
            cache.invalidate(&key);
        }
    };
    while_asleep(remove, || {
        // At most 65 stripes, each looked at twice, with 32 retired values between two looks.
        for value in 0..3 * 65 * 32 {
            cache.insert(7, values.make(value)).unwrap();
        }
        assert_eq!(left_behind.alive(), 0);
    });
}

/// Garbage is freed step by step, by the thread that made it: not if that has stopped in between.
#[test]
fn clo_03_what_a_sleeping_thread_was_dropping_is_dropped_while_others_work() {
    let _alone = alone();
    let batch = if cfg!(miri) { 4 } else { 256 };
    let (left_behind, values) = (Census::default(), Census::default());
    // So large that whole batches are gathered.
    let cache: Cache<u32, Value> = Cache::new(1_000_000);
    let replace = || {
        for value in 0..10 * batch + batch / 2 {
            cache.insert(1, left_behind.make(value)).unwrap();
        }
        cache.invalidate(&1);
    };
    while_asleep(replace, || {
        // At most 65 stripes, each looked at twice, with a batch of retired values between two looks.
        for value in 0..3 * 65 * batch {
            cache.insert(7, values.make(value)).unwrap();
        }
        assert_eq!(left_behind.alive(), 0);
    });
}

#[test]
fn clo_03_what_an_ended_thread_removed_is_dropped_by_a_sweep() {
    let _alone = alone();
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(10);
    let remover = {
        let (cache, values) = (cache.clone(), values.clone());
        thread::spawn(move || {
            cache.insert(1, values.make(1)).unwrap();
            cache.invalidate(&1);
        })
    };
    remover.join().unwrap();
    sweep_leaves(&cache, 0, &values);
}

#[test]
fn clo_03_a_held_session_keeps_what_it_found_and_a_repin_lets_go() {
    let _alone = alone();
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(10);
    cache.insert(1, values.make(1)).unwrap();
    let mut pinned = cache.pin();
    {
        let entry = pinned.get(&1).unwrap();
        cache.invalidate(&1);
        cache.sweep(usize::MAX);
        assert_eq!(entry.value().it, 1);
        assert_eq!(values.dropped(), 0);
    }
    pinned.repin();
    for _ in 0..1_000 {
        cache.sweep(0);
        pinned.repin();
    }
    assert_eq!(values.alive(), 0);
    assert_eq!(pinned.iter().count(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn clo_03_a_sweep_after_a_long_session_drops_all_that_waited_for_it() {
    alone_in_a_process("a_sweep_after_a_session");
}

#[test]
#[ignore = "a pin of another test's thread would make more wait"]
fn a_sweep_after_a_session() {
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(10);
    let session = cache.pin();
    for value in 0..5_000 {
        cache.insert(value % 10, values.make(value)).unwrap();
    }
    drop(session);
    cache.sweep(usize::MAX);
    assert_eq!(values.alive(), 10, "no thread is reading");
}

#[test]
fn clo_03_values_that_wait_while_a_session_is_held_are_dropped_with_the_cache() {
    let _alone = alone();
    let values = Census::default();
    let other: Cache<u32, u32> = Cache::new(10);
    let session = other.pin();
    let cache: Cache<u32, Value> = Cache::new(10);
    for value in 0..1_000 {
        cache.insert(1, values.make(value)).unwrap();
    }
    assert_eq!(cache.stats().garbage, 999);
    drop(cache);
    assert_eq!(values.alive(), 0, "nobody can hold anything of a cache that is gone");
    drop(session);
}

// CLO-05

/// Takes the value out of a refusal.
fn refused<T>(result: Result<Inserted, Refused<T>>, reason: RefusedReason) -> T {
    match result {
        Err(refused) => {
            assert_eq!(refused.reason(), reason);
            refused.into_value()
        }
        Ok(done) => panic!("{done:?} in place of {reason:?}"),
    }
}

#[test]
fn clo_05_a_value_for_a_present_key_is_handed_back_once() {
    let _alone = alone();
    let (keys, values) = (Census::default(), Census::default());
    let cache: Cache<Key, Value> = Cache::new(10);
    cache.insert(keys.make(1), values.make(0)).unwrap();
    for value in 1..=1_000 {
        let result = cache.insert_if_absent(keys.make(1), values.make(value));
        assert_eq!(refused(result, RefusedReason::Present).it, value);
        assert_eq!((keys.alive(), values.alive()), (1, 1));
    }
    assert_eq!(values.made(), 1_001, "nothing was cloned");
}

#[test]
fn clo_05_every_kind_of_refusal_hands_the_value_back_once() {
    let _alone = alone();
    let (keys, values) = (Census::default(), Census::default());
    let cache = Cache::builder().max_weight(10).build().unwrap();
    let newer = InsertOptions::new().version(9);
    cache.insert_with(keys.make(1), values.make(0), newer).unwrap();
    let with = |options| cache.insert_with(keys.make(1), values.make(7), options);
    let heavy = RefusedReason::TooHeavy { weight: 11, capacity: 10 };
    let older = RefusedReason::Older { than: 9 };
    let answers = [
        refused(with(InsertOptions::new().weight(11)), heavy),
        refused(with(InsertOptions::new().version(8)), older),
        refused(
            with(InsertOptions::new().time_to_live(Duration::from_nanos(1))),
            RefusedReason::TooShort,
        ),
        refused(cache.replace_if(keys.make(2), values.make(7), |_| true), RefusedReason::Absent),
        refused(
            cache.replace_if(keys.make(1), values.make(7), |_| false),
            RefusedReason::Predicate,
        ),
    ];
    assert!(answers.iter().all(|value| value.it == 7));
    drop(answers);
    assert_eq!((keys.alive(), values.alive()), (1, 1));
    assert_eq!((keys.made(), values.made()), (6, 6), "nothing was cloned");
    assert_eq!(cache.stats().refused, 5);
}

#[test]
fn clo_05_a_value_that_a_compute_offers_and_the_cache_refuses_is_handed_back() {
    let _alone = alone();
    let values = Census::default();
    let cache = Cache::builder().max_weight(10).build().unwrap();
    let heavy = || Compute::InsertWith(values.make(7), InsertOptions::new().weight(11));
    let refused = cache.compute(1, |_| heavy()).unwrap_err();
    assert_eq!(refused.into_value().it, 7);
    assert_eq!((values.made(), values.alive()), (1, 0));
}

#[test]
fn clo_05_a_value_that_is_not_kept_is_dropped_once() {
    let _alone = alone();
    let (keys, values) = (Census::default(), Census::default());
    let cache: Cache<Key, Value> = Cache::new(0);
    assert_eq!(cache.insert(keys.make(1), values.make(1)), Ok(Inserted::NotKept));
    assert_eq!(cache.insert_if_absent(keys.make(1), values.make(1)), Ok(Inserted::NotKept));
    let _ = cache.compute(keys.make(1), |_| Compute::Insert(values.make(1)));
    assert_eq!((keys.alive(), values.alive()), (0, 0));
    assert_eq!(values.made(), 3);
}

#[test]
fn clo_05_of_racing_values_one_is_stored_and_the_others_come_back() {
    let _alone = alone();
    let values = Census::default();
    let cache: Cache<u32, Value> = Cache::new(1_000);
    let start = Barrier::new(4);
    let handed_back: usize = thread::scope(|scope| {
        let race = || {
            start.wait();
            (0..500)
                .filter(|&key| match cache.insert_if_absent(key, values.make(key)) {
                    Ok(_) => false,
                    Err(refused) => refused.into_value().it == key,
                })
                .count()
        };
        let racers: Vec<_> = (0..4).map(|_| scope.spawn(race)).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    });
    assert_eq!(handed_back, 3 * 500);
    assert_eq!(values.alive(), 500);
    assert_eq!(values.made(), 2_000, "nothing was cloned");
}

// SHU-01

#[test]
fn shu_01_every_operation_works_after_the_first_handle_is_dropped() {
    let _alone = alone();
    let first: Cache<u32, u32> = Cache::new(100);
    let cache = first.clone();
    first.insert(1, 1).unwrap();
    drop(first);
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(cache.get_many([&1, &2]), [Some(1), None]);
    assert_eq!(cache.insert(1, 2), Ok(Inserted::Replaced));
    cache.compute(1, |entry| Compute::Insert(entry.map_or(0, |e| e.value() + 1))).unwrap();
    assert_eq!(cache.pin().iter().count(), 1);
    assert_eq!(cache.iter().collect::<Vec<_>>(), [(1, 3)]);
    cache.set_capacity(50);
    assert!(cache.mark_stale(&1), "it was live; without windows it is dead now");
    assert_eq!(cache.remove(&1), None);
    cache.invalidate_all();
    assert_eq!(cache.invalidate_if(|_, _| true), 0);
    cache.sweep(usize::MAX);
    assert!(cache.is_empty());
}

#[test]
fn shu_01_threads_go_on_while_owners_drop_their_handles() {
    let _alone = alone();
    let values = Census::default();
    for _ in 0..20 {
        let owner: Cache<u32, Value> = Cache::new(50);
        let start = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let (cache, start, values) = (owner.clone(), Arc::clone(&start), values.clone());
                thread::spawn(move || {
                    start.wait();
                    for key in 0..100 {
                        cache.insert(key, values.make(key)).unwrap();
                        cache.get(&(key / 2));
                        cache.invalidate(&(key / 3 + thread));
                    }
                })
            })
            .collect();
        start.wait();
        drop(owner);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(values.alive(), 0);
    }
}

// SHU-03

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "starts a process")]
fn shu_03_caches_leave_no_threads_behind() {
    alone_in_a_process("a_thousand_caches_start_no_thread");
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "counts the threads of its process, so it needs one of its own"]
fn a_thousand_caches_start_no_thread() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for _ in 0..1_000 {
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(Duration::from_secs(1))
            .time_to_idle(Duration::from_secs(1))
            .build()
            .unwrap();
        for key in 0..20 {
            cache.insert(key, key).unwrap();
        }
        assert_eq!(threads(), before);
    }
    assert_eq!(threads(), before);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn shu_03_a_process_ends_with_a_live_cache() {
    must_end(|| alone_in_a_process("a_cache_is_never_dropped"));
}

#[test]
#[ignore = "leaves a cache behind when its process ends"]
fn a_cache_is_never_dropped() {
    let cache: &'static Cache<u32, String> = Box::leak(Box::new(Cache::new(100)));
    for key in 0..200 {
        cache.insert(key, "value".to_owned()).unwrap();
    }
    assert_eq!(cache.len(), 100);
}

// SHU-05

#[test]
fn shu_05_a_listener_may_drop_the_last_handle_of_another_cache() {
    let _alone = alone();
    must_end(|| {
        let values = Census::default();
        let inner: Cache<u32, Value> = Cache::new(10);
        inner.insert(1, values.make(1)).unwrap();
        inner.invalidate(&1);
        inner.insert(2, values.make(2)).unwrap();
        let held = Later::new();
        held.set(inner);
        let cache = Cache::builder()
            .max_entries(1)
            .removal_listener(move |_, _, _| drop(held.take()))
            .build()
            .unwrap();
        cache.insert(1, 1).unwrap();
        cache.insert(2, 2).unwrap();
        assert_eq!(values.alive(), 0);
        assert_eq!(cache.get(&2), Some(2));
    });
}

#[test]
fn shu_05_a_weigher_a_compute_and_a_predicate_may_drop_the_last_handle_of_another_cache() {
    let _alone = alone();
    must_end(|| {
        let values = Census::default();
        let held = Later::new();
        let refill = || {
            let inner: Cache<u32, Value> = Cache::new(10);
            for key in 0..20 {
                inner.insert(key, values.make(key)).unwrap();
            }
            held.set(inner);
        };
        let weigher = {
            let held = held.clone();
            move |_: &u32, _: &u32| u64::from(held.take().is_some())
        };
        let cache = Cache::builder().max_weight(10).weigher(weigher).build().unwrap();
        refill();
        cache.insert(1, 1).unwrap();
        assert_eq!(values.alive(), 0, "dropped by the weigher");
        refill();
        cache
            .compute(1, |_| {
                drop(held.take());
                Compute::Insert(2)
            })
            .unwrap();
        assert_eq!(values.alive(), 0, "dropped by a compute");
        refill();
        let taken = cache.invalidate_if(|_, _| held.take().is_some());
        assert_eq!((values.alive(), taken), (0, 1), "dropped by a predicate");
    });
}

/// Caches in caches: freeing a value ends the cache that it is.
#[test]
fn shu_05_a_value_may_be_the_last_handle_of_another_cache() {
    let _alone = alone();
    must_end(|| {
        let values = Census::default();
        let outer: Cache<u32, Cache<u32, Value>> = Cache::new(4);
        for key in 0..100 {
            let inner = Cache::new(4);
            for key in 0..10 {
                inner.insert(key, values.make(key)).unwrap();
            }
            outer.insert(key, inner).unwrap();
        }
        assert_eq!(outer.len(), 4);
        drop(outer);
        assert_eq!(values.alive(), 0);
    });
}

/// The caller's handle is the last one when its call returns.
#[test]
fn shu_05_a_listener_may_drop_the_owners_handle_of_its_own_cache() {
    let _alone = alone();
    must_end(|| {
        let values = Census::default();
        let owner = Later::new();
        let listener = {
            let owner = owner.clone();
            move |_: &u32, _: &Value, _| drop(owner.take())
        };
        let cache: Cache<u32, Value> =
            Cache::builder().max_entries(1).removal_listener(listener).build().unwrap();
        owner.set(cache.clone());
        cache.insert(1, values.make(1)).unwrap();
        cache.insert(2, values.make(2)).unwrap();
        assert!(owner.take().is_none(), "the listener ran");
        assert_eq!(cache.get_with(&2, |entry| entry.value().it), Some(2));
        drop(cache);
        assert_eq!(values.alive(), 0);
    });
}

#[test]
fn shu_05_a_value_that_holds_its_own_cache_is_freed_once_it_is_removed() {
    let _alone = alone();

    #[derive(Clone)]
    struct Holder(#[expect(dead_code, reason = "held, not used")] Cache<u32, Holder>, Value);

    let values = Census::default();
    let cache: Cache<u32, Holder> = Cache::new(10);
    cache.insert(1, Holder(cache.clone(), values.make(1))).unwrap();
    assert_eq!(cache.get_with(&1, |entry| entry.value().1.it), Some(1));
    cache.invalidate(&1);
    sweep_leaves(&cache, 0, &values);
}

/// A thread's own data are torn down after the cache's record of the thread is.
#[test]
fn shu_05_a_thread_may_use_and_drop_its_cache_while_it_ends() {
    let _alone = alone();

    struct Goodbye(Cache<u32, Value>, Census, Arc<AtomicBool>);

    impl Drop for Goodbye {
        fn drop(&mut self) {
            let Goodbye(cache, values, done) = self;
            for key in 0..100 {
                cache.insert(key, values.make(key)).unwrap();
                assert_eq!(cache.get_with(&key, |entry| entry.value().it), Some(key));
                cache.invalidate(&(key / 2));
            }
            cache.sweep(usize::MAX);
            done.store(cache.iter().count() == cache.len(), SeqCst);
        }
    }

    thread_local! {
        static EARLY: RefCell<Option<Goodbye>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<Goodbye>> = const { RefCell::new(None) };
    }

    must_end(|| {
        let values = Census::default();
        let done = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
        let goodbyes = done.clone().map(|done| Goodbye(Cache::new(50), values.clone(), done));
        thread::spawn(move || {
            let [early, late] = goodbyes;
            // One is registered with the thread before the cache's own data are, one after.
            EARLY.set(Some(early));
            LATE.with_borrow_mut(|slot| {
                late.0.insert(1, late.1.make(1)).unwrap();
                *slot = Some(late);
            });
        })
        .join()
        .unwrap();
        assert!(done.iter().all(|done| done.load(SeqCst)));
        assert_eq!(values.alive(), 0);
    });
}
