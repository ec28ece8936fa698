//! User code that calls the cache again (REE), panics (PAN), or runs while something is held (DED).

mod common;

use std::cell::Cell;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use common::{
    Census, Counted, Few, Fuse, Later, Told, audit, audit_entries, ignore, must_end, panics,
};
use seawall::{
    Cache, Clock, Compute, Computed, InsertOptions, Inserted, ManualClock, RefusedReason,
    RemovalCause,
};

type Action = (&'static str, fn(&Cache<u32, u32>));

// REE-02

#[test]
fn ree_02_a_compute_may_store_the_key_that_it_computes() {
    must_end(|| {
        let cache: Cache<u32, u32> = Cache::new(10);
        let mut shown = Vec::new();
        let computed = cache.compute(1, |entry| {
            let seen = entry.map(|entry| *entry.value());
            shown.push(seen);
            if seen.is_none() {
                cache.insert(1, 10).unwrap();
            }
            Compute::Insert(seen.unwrap_or(0) + 1)
        });
        assert_eq!(computed, Ok(Computed::Inserted(Inserted::Replaced)));
        assert_eq!(shown, [None, Some(10)], "the first decision was overtaken");
        assert_eq!(cache.get(&1), Some(11));
    });
}

#[test]
fn ree_02_a_compute_within_a_compute_of_the_same_key_is_not_lost() {
    fn count(cache: &Cache<u32, u32>, depth: u32) {
        let mut nested = false;
        cache
            .compute(1, |entry| {
                if depth > 0 && !nested {
                    nested = true;
                    count(cache, depth - 1);
                }
                Compute::Insert(entry.map_or(0, |entry| *entry.value()) + 1)
            })
            .unwrap();
    }

    must_end(|| {
        let cache = Cache::new(10);
        count(&cache, 5);
        assert_eq!(cache.get(&1), Some(6));
    });
}

#[test]
fn ree_02_a_replacement_may_be_judged_by_a_closure_that_changes_the_key() {
    must_end(|| {
        let cache: Cache<u32, u32> = Cache::new(10);
        cache.insert(1, 1).unwrap();
        let mut shown = Vec::new();
        let done = cache.replace_if(1, 9, |entry| {
            shown.push(*entry.value());
            if shown.len() == 1 {
                cache.insert(1, 2).unwrap();
            }
            true
        });
        assert_eq!(done, Ok(Inserted::Replaced));
        assert_eq!(shown, [1, 2]);
        assert_eq!(cache.get(&1), Some(9));
    });
}

// REE-04

/// What a listener may do.
const CALLS: [Action; 15] = [
    ("len", |cache| assert!(cache.len() <= 100)),
    ("stats", |cache| assert!(cache.stats().entries <= 100)),
    ("get", |cache| assert!(cache.get(&2).is_none_or(|value| value % 100 == 2))),
    ("get_many", |cache| assert_eq!(cache.get_many([&2, &3, &4]).len(), 3)),
    ("pinned walk", |cache| assert!(cache.pin().iter().count() <= 100)),
    ("walk", |cache| assert!(cache.iter().count() <= 100)),
    ("insert new", |cache| ignore(cache.insert(50, 50))),
    ("replace", |cache| ignore(cache.insert(2, 102))),
    ("invalidate", |cache| ignore(cache.invalidate(&3))),
    ("remove", |cache| ignore(cache.remove(&4))),
    ("invalidate_all", |cache| cache.invalidate_all()),
    ("invalidate_if", |cache| ignore(cache.invalidate_if(|key, _| *key == 5))),
    ("sweep", |cache| ignore(cache.sweep(usize::MAX))),
    ("set_capacity", |cache| cache.set_capacity(8)),
    ("compute", |cache| ignore(cache.compute(6, |_| Compute::Insert(6)))),
];

/// What makes a cache of ten entries call its listener.
const TRIGGERS: [(&str, fn(&Cache<u32, u32>, &ManualClock)); 13] = [
    ("replace", |cache, _| ignore(cache.insert(1, 101))),
    ("replace_if", |cache, _| ignore(cache.replace_if(1, 101, |_| true))),
    ("remove", |cache, _| ignore(cache.remove(&1))),
    ("invalidate", |cache, _| ignore(cache.invalidate(&1))),
    ("compute insert", |cache, _| ignore(cache.compute(1, |_| Compute::Insert(101)))),
    ("compute remove", |cache, _| ignore(cache.compute(1, |_| Compute::Remove))),
    ("evict", |cache, _| (20..30).for_each(|key| ignore(cache.insert(key, key)))),
    ("lower the capacity", |cache, _| cache.set_capacity(3)),
    ("expire by sweep", |cache, hand| {
        hand.advance(Duration::from_secs(60));
        cache.sweep(usize::MAX);
    }),
    ("expire by insert", |cache, hand| {
        hand.advance(Duration::from_secs(60));
        (0..20).for_each(|key| ignore(cache.insert(key, key)));
    }),
    ("invalidate_all", |cache, _| {
        cache.invalidate_all();
        cache.sweep(usize::MAX);
    }),
    ("invalidate_if", |cache, _| ignore(cache.invalidate_if(|key, _| key % 2 == 1))),
    ("invalidate_tag", |cache, _| {
        cache.invalidate_tag("tag");
        cache.sweep(usize::MAX);
    }),
];

thread_local! {
    /// How many listeners are running in one another.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn ree_04_a_listener_may_make_any_call_whatever_made_it_run() {
    for (trigger, pull) in TRIGGERS {
        for (call, make) in CALLS {
            must_end(move || {
                let told = Arc::new(AtomicU64::new(0));
                let handle: Later<Cache<u32, u32>> = Later::new();
                let listener = {
                    let (told, handle) = (Arc::clone(&told), handle.clone());
                    move |_: &u32, _: &u32, _| {
                        told.fetch_add(1, SeqCst);
                        let depth = DEPTH.get();
                        if let (0..=1, Some(cache)) = (depth, handle.get()) {
                            DEPTH.set(depth + 1);
                            make(&cache);
                            DEPTH.set(depth);
                        }
                    }
                };
                let (clock, hand) = Clock::manual();
                let cache = Cache::builder()
                    .max_entries(10)
                    .time_to_live(Duration::from_secs(60))
                    .clock(clock)
                    .removal_listener(listener)
                    .build()
                    .unwrap();
                for key in 0..10 {
                    cache.insert_with(key, key, InsertOptions::new().tag("tag")).unwrap();
                }
                assert_eq!(told.load(SeqCst), 0);
                handle.set(cache.clone());
                pull(&cache, &hand);
                handle.take();
                let what = format!("{call} from a listener that ran because of: {trigger}");
                let stats = audit_entries(&cache);
                let left = stats.replaced
                    + stats.removed
                    + stats.invalidated
                    + stats.expired
                    + stats.evicted;
                assert!(left > 0, "{what}");
                assert_eq!(told.load(SeqCst), left, "{what}");
            });
        }
    }
}

#[test]
fn ree_04_a_listener_sees_the_cache_after_the_operation() {
    let handle: Later<Cache<u32, u32>> = Later::new();
    let told = Told::new();
    let listener = {
        let (handle, note) = (handle.clone(), told.listener());
        move |key: &u32, _: &u32, cause| {
            if let Some(cache) = handle.get() {
                note(key, &(cache.get(key), cache.len()), cause);
            }
        }
    };
    let cache = Cache::builder().max_entries(10).removal_listener(listener).build().unwrap();
    handle.set(cache.clone());
    cache.insert(1, 1).unwrap();
    cache.insert(1, 2).unwrap();
    cache.remove(&1);
    handle.take();
    let expected =
        [(1, (Some(2), 1), RemovalCause::Replaced), (1, (None, 0), RemovalCause::Removed)];
    assert_eq!(told.take(), expected);
}

#[test]
fn ree_04_a_value_may_call_its_cache_when_it_is_dropped() {
    struct Caller(u32, Later<Cache<u32, Caller>>);

    impl Drop for Caller {
        fn drop(&mut self) {
            if let Some(cache) = self.1.get() {
                cache.get_with(&self.0, |_| ());
                cache.invalidate(&(self.0 + 1));
                if self.0 % 2 == 0 {
                    cache.insert(self.0 + 1_000, Caller(1, Later::new())).unwrap();
                }
                cache.sweep(5);
            }
        }
    }

    must_end(|| {
        let handle = Later::new();
        let cache = Cache::new(100);
        handle.set(cache.clone());
        for key in 0..2_000 {
            cache.insert(key % 150, Caller(key, handle.clone())).unwrap();
        }
        cache.sweep(usize::MAX);
        handle.take();
        assert!(cache.len() <= 100);
        drop(cache);
    });
}

#[test]
fn ree_04_a_value_may_call_its_cache_when_it_is_cloned() {
    struct Caller(u32, Later<Cache<u32, Caller>>);

    impl Clone for Caller {
        fn clone(&self) -> Self {
            if let Some(cache) = self.1.get() {
                cache.invalidate(&(self.0 + 1));
                cache.insert(self.0 + 1_000, Caller(1, Later::new())).unwrap();
            }
            Caller(self.0, self.1.clone())
        }
    }

    must_end(|| {
        let handle = Later::new();
        let cache = Cache::builder()
            .max_entries(50)
            .removal_listener(|_: &u32, _: &Caller, _| ())
            .build()
            .unwrap();
        handle.set(cache.clone());
        for key in 0..500 {
            cache.insert(key, Caller(key, handle.clone())).unwrap();
            cache.get(&key);
            cache.remove(&(key / 2));
        }
        assert!(cache.iter().count() <= 100);
        handle.take();
        audit_entries(&cache);
    });
}

/// A hasher that calls the cache whose keys it hashes.
#[derive(Clone)]
struct Nosy(Later<Cache<u32, u32, Nosy>>);

struct NosyHasher(DefaultHasher, Nosy);

impl BuildHasher for Nosy {
    type Hasher = NosyHasher;

    fn build_hasher(&self) -> NosyHasher {
        NosyHasher(DefaultHasher::new(), self.clone())
    }
}

impl Hasher for NosyHasher {
    fn finish(&self) -> u64 {
        let depth = DEPTH.get();
        if let (0, Some(cache)) = (depth, self.1.0.get()) {
            DEPTH.set(1);
            cache.insert(self.0.finish() as u32 % 64, 0).unwrap();
            cache.invalidate(&7);
            DEPTH.set(0);
        }
        self.0.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

#[test]
fn ree_04_a_hash_function_may_call_the_cache_also_while_the_table_grows() {
    must_end(|| {
        let handle = Later::new();
        let cache =
            Cache::builder().max_weight(100_000).hasher(Nosy(handle.clone())).build().unwrap();
        handle.set(cache.clone());
        for key in 100..2_000 {
            cache.insert(key, key).unwrap();
            assert_eq!(cache.get(&key), Some(key));
        }
        handle.take();
        assert!((100..2_000).all(|key| cache.get(&key) == Some(key)));
        audit_entries(&cache);
    });
}

// REE-06

#[test]
fn ree_06_a_weigher_may_read_and_write_other_keys() {
    must_end(|| {
        let handle: Later<Cache<u32, u32>> = Later::new();
        let weigher = {
            let handle = handle.clone();
            move |key: &u32, value: &u32| {
                if let (0..1_000, Some(cache)) = (*key, handle.get()) {
                    cache.insert(key + 1_000, 1).unwrap();
                    assert_eq!(cache.get(key), None, "its entry is not there yet");
                }
                u64::from(*value)
            }
        };
        let cache = Cache::builder().max_weight(1_000_000).weigher(weigher).build().unwrap();
        handle.set(cache.clone());
        thread::scope(|scope| {
            for thread in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for key in (thread..1_000).step_by(4) {
                        cache.insert(key, 3).unwrap();
                    }
                });
            }
        });
        handle.take();
        assert_eq!(cache.len(), 2_000);
        audit(&cache, |_, value| u64::from(*value));
    });
}

#[test]
fn ree_06_a_weigher_may_store_the_very_key_that_it_weighs() {
    must_end(|| {
        let handle: Later<Cache<u32, u32>> = Later::new();
        let weigher = {
            let handle = handle.clone();
            move |key: &u32, _: &u32| {
                if let Some(cache) = handle.take() {
                    cache.insert(*key, 1).unwrap();
                }
                1
            }
        };
        let cache = Cache::builder().max_weight(10).weigher(weigher).build().unwrap();
        handle.set(cache.clone());
        assert_eq!(cache.insert(1, 2), Ok(Inserted::Replaced));
        assert_eq!(cache.get(&1), Some(2));
        handle.set(cache.clone());
        let refused = cache.insert_if_absent(2, 2).unwrap_err();
        assert_eq!(refused.reason(), RefusedReason::Present);
        assert_eq!(cache.get(&2), Some(1));
    });
}

/// A key that lowers a cache's capacity when it is compared.
#[derive(Clone, Debug)]
struct Meddler(u32, u64, Later<Cache<Meddler, u32, Few>>);

impl PartialEq for Meddler {
    fn eq(&self, other: &Self) -> bool {
        if let Some(cache) = self.2.take() {
            cache.set_capacity(self.1);
        }
        self.0 == other.0
    }
}

impl Eq for Meddler {}

impl Hash for Meddler {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn ree_06_a_capacity_that_is_lowered_in_the_midst_of_an_insert_holds() {
    for capacity in [0, 2] {
        let cache = Cache::builder()
            .max_weight(10)
            .weigher(|_: &Meddler, _: &u32| 5)
            .hasher(Few(1))
            .build()
            .unwrap();
        let handle = Later::new();
        cache.insert(Meddler(1, capacity, handle.clone()), 1).unwrap();
        handle.set(cache.clone());
        let _ = cache.insert(Meddler(2, capacity, handle.clone()), 2);
        assert_eq!(cache.capacity(), capacity);
        assert!(cache.weight() <= capacity, "{} of {capacity}", cache.weight());
    }
}

// PAN-05

#[test]
fn pan_05_a_weigher_that_panics_changes_nothing() {
    let (keys, values) = (Census::default(), Census::default());
    let cache = Cache::builder()
        .max_weight(1_000)
        .weigher(|_: &Counted<u32>, value: &Counted<u32>| {
            assert_ne!(value.it, 13, "unlucky");
            u64::from(value.it)
        })
        .build()
        .unwrap();
    cache.insert(keys.make(1), values.make(5)).unwrap();
    let before = cache.stats();
    let unlucky = || values.make(13);

    assert!(panics(|| cache.insert(keys.make(1), unlucky())));
    assert!(panics(|| cache.insert(keys.make(2), unlucky())));
    assert!(panics(|| cache.insert_if_absent(keys.make(2), unlucky())));
    assert!(panics(|| cache.replace_if(keys.make(1), unlucky(), |_| true)));
    assert!(panics(|| cache.compute(keys.make(1), |_| Compute::Insert(unlucky()))));

    assert_eq!(cache.stats(), before);
    assert_eq!(cache.get_with(&keys.make(1), |entry| entry.value().it), Some(5));
    assert!(!cache.contains_key(&keys.make(2)));
    assert_eq!((keys.alive(), values.alive()), (1, 1));
    for key in 100..200 {
        cache.insert(keys.make(key), values.make(1)).unwrap();
    }
    assert_eq!(cache.weight(), 105);
    audit(&cache, |_, value| u64::from(value.it));
}

#[test]
fn pan_05_a_listener_that_panics_is_told_of_the_other_entries_all_the_same() {
    let told = Told::new();
    let listener = {
        let note = told.listener();
        move |key: &u32, value: &u32, cause| {
            note(key, value, cause);
            assert_ne!(*value, 0, "unlucky");
        }
    };
    // All weigh 1 but the newcomer, for which many must go.
    let cache = Cache::builder()
        .max_weight(10)
        .weigher(|key: &u32, _: &u32| if *key == 100 { 10 } else { 1 })
        .removal_listener(listener)
        .build()
        .unwrap();
    for key in 0..10 {
        cache.insert(key, key % 2).unwrap();
    }
    assert!(panics(|| cache.insert(100, 7)), "the first panic goes on");
    assert_eq!(told.take().len(), 10);
    assert_eq!(cache.get(&100), Some(7), "the operation had taken effect");
    audit(&cache, |_, _| 10);
}

/// A full cache whose listener panics at the first entry that it is told of.
fn with_a_listener_that_panics_once() -> (Cache<u32, u32>, Told<u32, u32>) {
    let (told, fuse) = (Told::new(), Fuse::default());
    let listener = {
        let (note, fuse) = (told.listener(), fuse.clone());
        move |key: &u32, value: &u32, cause| {
            note(key, value, cause);
            fuse.burn();
        }
    };
    let cache = Cache::builder().max_entries(100).removal_listener(listener).build().unwrap();
    for key in 0..100 {
        cache.insert(key, key).unwrap();
    }
    fuse.arm(1);
    (cache, told)
}

#[test]
fn pan_05_a_listener_that_panics_does_not_cut_an_invalidation_short() {
    let (cache, told) = with_a_listener_that_panics_once();
    assert!(panics(|| cache.invalidate_if(|_, _| true)));
    assert_eq!(told.take().len(), 100, "told of all entries of that operation");
    assert_eq!(cache.len(), 0);
}

#[test]
fn pan_05_a_listener_that_panics_does_not_keep_the_capacity_from_being_lowered() {
    let (cache, told) = with_a_listener_that_panics_once();
    assert!(panics(|| cache.set_capacity(10)));
    assert_eq!(told.take().len(), 90, "told of all entries of that operation");
    assert!(cache.weight() <= cache.capacity(), "{} of {}", cache.weight(), cache.capacity());
}

#[test]
fn pan_05_a_listener_that_panics_does_not_cut_a_sweep_short() {
    let (cache, told) = with_a_listener_that_panics_once();
    cache.invalidate_all();
    assert!(panics(|| cache.sweep(usize::MAX)));
    assert_eq!(told.take().len(), 100, "told of all entries of that operation");
    assert_eq!(cache.len(), 0);
}

#[test]
fn pan_05_a_removed_value_is_not_leaked_when_the_listener_panics() {
    let values = Census::default();
    let cache: Cache<u32, Counted<u32>> = Cache::builder()
        .max_entries(10)
        .removal_listener(|_, _, _| panic!("unlucky"))
        .build()
        .unwrap();
    cache.insert(1, values.make(1)).unwrap();
    assert!(panics(|| cache.remove(&1)));
    assert!(!cache.contains_key(&1));
    drop(cache);
    assert_eq!(values.alive(), 0);
}

/// A value whose clone panics when its fuse blows.
#[derive(Debug)]
struct Brittle(u32, Fuse);

impl Clone for Brittle {
    fn clone(&self) -> Self {
        self.1.burn();
        Brittle(self.0, self.1.clone())
    }
}

/// A cache of ten values of weight 10, and a listener that gets copies.
fn of_brittle_values(fuse: &Fuse) -> (Cache<u32, Brittle, Few>, Told<u32, u32>) {
    let told = Told::new();
    let note = told.listener();
    let cache = Cache::builder()
        .max_weight(100)
        .weigher(|_: &u32, value: &Brittle| u64::from(value.0))
        .removal_listener(move |key, value: &Brittle, cause| note(key, &value.0, cause))
        .hasher(Few(100))
        .build()
        .unwrap();
    for key in 0..10 {
        cache.insert(key, Brittle(10, fuse.clone())).unwrap();
    }
    (cache, told)
}

#[test]
fn pan_05_a_value_whose_clone_panics_can_still_be_read_by_reference() {
    let fuse = Fuse::default();
    let (cache, _) = of_brittle_values(&fuse);
    fuse.arm(1);
    assert!(panics(|| cache.get(&1)));
    assert_eq!(cache.get_with(&1, |entry| entry.value().0), Some(10));
    fuse.arm(5);
    let mut walk = cache.iter();
    let mut seen = 0;
    while !panics(|| walk.next().map(|_| seen += 1).expect("the end")) || fuse.is_armed() {
        assert!(seen < 100);
    }
    audit(&cache, |_, value| u64::from(value.0));
}

#[test]
fn pan_05_a_copy_for_the_listener_that_panics_leaves_a_removal_accounted_for() {
    let fuse = Fuse::default();
    type Call = fn(&Cache<u32, Brittle, Few>, &Fuse);
    let calls: [Call; 5] = [
        |cache, _| ignore(cache.invalidate(&1)),
        |cache, _| ignore(cache.compute(1, |_| Compute::Remove)),
        |cache, _| ignore(cache.invalidate_if(|key, _| *key == 1)),
        |cache, fuse| ignore(cache.insert(1, Brittle(20, fuse.clone()))),
        |cache, fuse| ignore(cache.replace_if(1, Brittle(5, fuse.clone()), |_| true)),
    ];
    for call in calls {
        let (cache, _) = of_brittle_values(&fuse);
        fuse.arm(1);
        assert!(panics(|| call(&cache, &fuse)));
        fuse.disarm();
        audit(&cache, |_, value| u64::from(value.0));
    }
}

#[test]
fn pan_05_a_copy_for_the_listener_that_panics_leaves_an_eviction_accounted_for() {
    let fuse = Fuse::default();
    let (cache, _) = of_brittle_values(&fuse);
    fuse.arm(1);
    assert!(panics(|| cache.insert(100, Brittle(30, fuse.clone()))));
    fuse.disarm();
    audit(&cache, |_, value| u64::from(value.0));
}

#[test]
fn pan_05_a_copy_for_the_listener_that_panics_leaves_a_lowered_capacity_accounted_for() {
    let fuse = Fuse::default();
    let (cache, _) = of_brittle_values(&fuse);
    fuse.arm(1);
    assert!(panics(|| cache.set_capacity(50)));
    fuse.disarm();
    cache.set_capacity(50);
    audit(&cache, |_, value| u64::from(value.0));
}

#[test]
fn pan_05_a_copy_for_the_listener_that_panics_leaves_a_full_chain_accounted_for() {
    let fuse = Fuse::default();
    let cache = Cache::builder()
        .max_entries(1_000)
        .removal_listener(|_: &u32, _: &Brittle, _| ())
        .hasher(Few(1))
        .build()
        .unwrap();
    for key in 0..24 {
        cache.insert(key, Brittle(1, fuse.clone())).unwrap();
    }
    fuse.arm(1);
    assert!(panics(|| cache.insert(100, Brittle(1, fuse.clone()))));
    fuse.disarm();
    audit_entries(&cache);
}

// PAN-07

#[test]
fn pan_07_a_predicate_that_panics_leaves_what_it_condemned_gone_and_the_rest_intact() {
    let told = Told::new();
    let cache =
        Cache::builder().max_entries(1_000).removal_listener(told.listener()).build().unwrap();
    for key in 0..100 {
        cache.insert(key, key * 10).unwrap();
    }
    let mut condemned = Vec::new();
    assert!(panics(|| {
        cache.invalidate_if(|key, _| {
            assert!(condemned.len() < 49, "the 50th call");
            condemned.push(*key);
            true
        })
    }));
    let mut notified: Vec<u32> = told.take().into_iter().map(|(key, _, _)| key).collect();
    notified.sort_unstable();
    condemned.sort_unstable();
    assert_eq!(notified, condemned);
    assert_eq!(cache.stats().invalidated, 49);
    for key in 0..100 {
        let gone = condemned.contains(&key);
        assert_eq!(cache.get(&key), (!gone).then_some(key * 10));
    }
    audit_entries(&cache);
}

#[test]
fn pan_07_closures_that_panic_change_nothing() {
    let cache: Cache<u32, u32> = Cache::new(10);
    cache.insert(1, 1).unwrap();
    let before = cache.stats();
    assert!(panics(|| cache.compute(1, |_| panic!("unlucky"))));
    assert!(panics(|| cache.compute(2, |_| panic!("unlucky"))));
    assert!(panics(|| cache.replace_if(1, 2, |_| panic!("unlucky"))));
    assert_eq!(cache.stats(), before);
    assert!(panics(|| cache.get_with(&1, |_| panic!("unlucky"))));
    assert!(panics(|| cache.peek_with(&1, |_| panic!("unlucky"))));
    assert!(panics(|| cache.get_many_with(&[1, 2], |_, _| panic!("unlucky"))));
    assert_eq!(cache.get(&1), Some(1));
    audit_entries(&cache);
}

// PAN-09

/// A key whose equality, and a hasher whose hash function, panic when their fuse blows.
#[derive(Clone, Debug)]
struct BrittleKey(u32, Fuse);

impl PartialEq for BrittleKey {
    fn eq(&self, other: &Self) -> bool {
        self.1.burn();
        self.0 == other.0
    }
}

impl Eq for BrittleKey {}

impl Hash for BrittleKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[derive(Clone, Debug, Default)]
struct BrittleHash(Fuse);

impl BuildHasher for BrittleHash {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.burn();
        DefaultHasher::new()
    }
}

/// Every kind of call works, on this thread and on another one.
fn works<K, S>(cache: &Cache<K, u32, S>, key: impl Fn(u32) -> K + Sync)
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Send + Sync,
{
    let all = || {
        for it in 0..100 {
            cache.insert(key(it), it).unwrap();
            assert_eq!(cache.get(&key(it)), Some(it));
            cache.compute(key(it), |_| Compute::Insert(it + 1)).unwrap();
            assert_eq!(cache.remove(&key(it)), Some(it + 1));
            assert!(!cache.invalidate(&key(it)));
        }
    };
    all();
    thread::scope(|scope| scope.spawn(all).join().unwrap());
}

#[test]
fn pan_09_after_a_weigher_panicked_all_calls_work() {
    let fuse = Fuse::default();
    let weigher = {
        let fuse = fuse.clone();
        move |_: &u32, _: &u32| {
            fuse.burn();
            1
        }
    };
    let cache = Cache::builder().max_weight(1_000).weigher(weigher).build().unwrap();
    fuse.arm(1);
    assert!(panics(|| cache.insert(1, 1)));
    works(&cache, |it| it);
    audit_entries(&cache);
}

#[test]
fn pan_09_after_a_listener_panicked_all_calls_work() {
    let fuse = Fuse::default();
    let listener = {
        let fuse = fuse.clone();
        move |_: &u32, _: &u32, _| fuse.burn()
    };
    let cache = Cache::builder().max_entries(1_000).removal_listener(listener).build().unwrap();
    cache.insert(1, 1).unwrap();
    fuse.arm(1);
    assert!(panics(|| cache.insert(1, 2)));
    assert_eq!(cache.get(&1), Some(2));
    works(&cache, |it| it);
    audit_entries(&cache);
}

#[test]
fn pan_09_after_an_equality_panicked_all_calls_work() {
    let fuse = Fuse::default();
    let key = |it| BrittleKey(it, fuse.clone());
    let cache = Cache::builder().max_entries(1_000).hasher(Few(7)).build().unwrap();
    for it in 0..100 {
        cache.insert(key(it), it).unwrap();
    }
    let before = cache.stats();
    let calls: [&dyn Fn(); 6] = [
        &|| ignore(cache.insert(key(1), 1)),
        &|| ignore(cache.get(&key(1))),
        &|| ignore(cache.remove(&key(1))),
        &|| ignore(cache.invalidate(&key(1))),
        &|| ignore(cache.compute(key(1), |_| Compute::Remove)),
        &|| ignore(cache.mark_stale(&key(1))),
    ];
    for call in calls {
        fuse.arm(1);
        assert!(panics(call));
        assert_eq!(cache.stats(), before);
    }
    works(&cache, key);
    audit_entries(&cache);
}

#[test]
fn pan_09_after_a_hash_function_panicked_all_calls_work() {
    let hasher = BrittleHash::default();
    let fuse = hasher.0.clone();
    let cache = Cache::builder().max_entries(1_000).hasher(hasher).build().unwrap();
    cache.insert(1, 1).unwrap();
    let before = cache.stats();
    let calls: [&dyn Fn(); 5] = [
        &|| ignore(cache.insert(1, 1)),
        &|| ignore(cache.get(&1)),
        &|| ignore(cache.remove(&1)),
        &|| ignore(cache.get_many([&2, &1])),
        &|| ignore(cache.compute(1, |_| Compute::Remove)),
    ];
    for call in calls {
        fuse.arm(1);
        assert!(panics(call));
        assert_eq!(cache.stats(), before);
    }
    works(&cache, |it| it);
    audit_entries(&cache);
}

#[test]
fn pan_09_a_hash_function_may_panic_at_any_moment_of_a_growth() {
    for nth in (2..60).chain((60..1_200).step_by(37)) {
        let hasher = BrittleHash::default();
        let fuse = hasher.0.clone();
        let cache = Cache::builder().max_weight(1_000_000).hasher(hasher).build().unwrap();
        for key in 0..100 {
            cache.insert(key, key).unwrap();
        }
        fuse.arm(nth);
        let mut stored = 100;
        while fuse.is_armed() && stored < 1_500 {
            // Also a key whose insert panicked may be there: it was stored, then the table grew.
            panics(|| cache.insert(stored, stored));
            stored += 1;
        }
        fuse.disarm();
        for key in 0..stored - 1 {
            assert_eq!(cache.get(&key), Some(key), "after a panic of call {nth}");
        }
        works(&cache, |it| it + 1_000_000);
        audit_entries(&cache);
    }
}

#[test]
fn pan_09_destructors_that_panic_leak_nothing_and_reach_no_call() {
    struct Bad(Counted<u32>);

    impl Drop for Bad {
        fn drop(&mut self) {
            assert_ne!(self.0.it % 3, 0, "unlucky");
        }
    }

    let (keys, values) = (Census::default(), Census::default());
    let cache: Cache<Counted<u32>, Bad> = Cache::new(50);
    for key in 0..500 {
        cache.insert(keys.make(key % 100), Bad(values.make(key))).unwrap();
        cache.invalidate(&keys.make(key / 2));
    }
    cache.sweep(usize::MAX);
    drop(cache);
    assert_eq!((keys.alive(), values.alive()), (0, 0));
}

// DED-01

fn writes_to_all(cache: &Cache<u32, u32, Few>) {
    cache.insert(1, 11).unwrap();
    cache.insert(2, 12).unwrap();
    cache.insert(100, 100).unwrap();
    cache.invalidate(&1);
    cache.remove(&2);
    cache.compute(3, |_| Compute::Remove).unwrap();
    cache.invalidate_if(|key, _| *key == 4);
    cache.set_capacity(5);
    cache.invalidate_all();
    cache.sweep(usize::MAX);
    assert_eq!(cache.len(), 0);
}

fn of_one_hash() -> Cache<u32, u32, Few> {
    let cache = Cache::builder().max_entries(100).hasher(Few(1)).build().unwrap();
    for key in 0..20 {
        cache.insert(key, key).unwrap();
    }
    cache
}

#[test]
fn ded_01_all_writes_work_while_the_same_thread_holds_an_entry() {
    must_end(|| {
        let cache = of_one_hash();
        let pinned = cache.pin();
        let entry = pinned.get(&1).unwrap();
        writes_to_all(&cache);
        assert_eq!((*entry.key(), *entry.value()), (1, 1), "it stays as it was found");

        let cache = of_one_hash();
        cache.get_with(&1, |entry| {
            writes_to_all(&cache);
            assert_eq!(*entry.value(), 1);
        });

        let cache = of_one_hash();
        cache.get_many_with(&[1, 2, 3], |place, entry| {
            if place == 0 {
                let entry = entry.unwrap();
                writes_to_all(&cache);
                assert_eq!(*entry.value(), 1);
            } else {
                assert!(entry.is_none());
            }
        });
    });
}

#[test]
fn ded_01_two_threads_write_the_key_that_the_other_holds() {
    must_end(|| {
        let cache = of_one_hash();
        let both = Barrier::new(2);
        thread::scope(|scope| {
            for (mine, theirs) in [(1, 2), (2, 1)] {
                let (cache, both) = (&cache, &both);
                scope.spawn(move || {
                    let pinned = cache.pin();
                    let entry = pinned.get(&mine).unwrap();
                    both.wait();
                    for round in 0..100 {
                        cache.insert(theirs, round).unwrap();
                        cache.invalidate(&theirs);
                    }
                    both.wait();
                    assert_eq!(*entry.value(), mine, "it stays as it was found");
                });
            }
        });
    });
}

/// The closure of a compute is user code that may take for ever.
#[test]
fn ded_01_a_compute_that_is_stopped_half_way_holds_up_nobody() {
    must_end(|| {
        let cache = of_one_hash();
        let ((enter, entered), (open, gate)) = (channel(), channel::<()>());
        thread::scope(|scope| {
            let cache = &cache;
            let stopped = scope.spawn(move || {
                let mut calls = 0;
                let done = cache.compute(1, |entry| {
                    calls += 1;
                    if calls == 1 {
                        enter.send(()).unwrap();
                        let _ = gate.recv();
                    }
                    Compute::Insert(entry.map_or(0, |entry| *entry.value()) + 100)
                });
                (calls, done)
            });
            entered.recv().unwrap();
            cache.insert(1, 7).unwrap();
            assert_eq!(cache.get(&1), Some(7));
            drop(open);
            let (calls, done) = stopped.join().unwrap();
            assert_eq!(calls, 2, "it was overtaken");
            assert_eq!(done, Ok(Computed::Inserted(Inserted::Replaced)));
            assert_eq!(cache.get(&1), Some(107));
            writes_to_all(cache);
        });
    });
}
