//! Invalidations and updates that race with other writers (INV).

mod common;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Fixed, Told, audit_entries, ignore, lock, must_end};
use seawall::{
    Builder, Cache, Clock, Compute, Computed, EntryState, InsertOptions, ManualClock, RemovalCause,
};

const MINUTE: Duration = Duration::from_secs(60);

// INV-05

/// Builders of caches that keep different things with an entry, on a clock that stands still.
fn kinds() -> [Builder<u32, u32>; 4] {
    [
        Cache::builder().max_entries(2_000),
        Cache::builder().max_entries(2_000).time_to_live(MINUTE),
        Cache::builder().max_entries(2_000).time_to_idle(MINUTE),
        Cache::builder().max_weight(2_000).time_to_live(MINUTE).stale_if_error(MINUTE).jitter(0.5),
    ]
    .map(|builder| builder.clock(Clock::manual().0))
}

/// Options that keep different things with an entry.
fn options() -> [InsertOptions; 6] {
    [
        InsertOptions::new(),
        InsertOptions::new().no_deadline(),
        InsertOptions::new().time_to_live(MINUTE * 2).stale_while_revalidate(MINUTE),
        InsertOptions::new().version(3),
        InsertOptions::new().tag("tag"),
        InsertOptions::new().age(MINUTE / 4),
    ]
}

#[test]
fn inv_05_an_entry_stored_just_before_an_invalidation_of_all_is_gone_and_one_after_is_there() {
    for builder in kinds() {
        let cache = builder.build().unwrap();
        for round in 0..1_100 {
            for (key, options) in options().into_iter().enumerate() {
                cache.insert_with(key as u32, round, options).unwrap();
            }
            assert!((0..6).all(|key| cache.get(&key) == Some(round)), "round {round}");
            cache.invalidate_all();
            assert!((0..6).all(|key| cache.get(&key).is_none()), "round {round}");
        }
    }
}

/// Invalidations are numbered with few bits next to the millisecond in which they began.
#[test]
fn inv_05_an_invalidated_entry_never_comes_back_however_many_invalidations_follow() {
    for builder in kinds() {
        let cache = builder.build().unwrap();
        for (key, options) in options().into_iter().enumerate() {
            cache.insert_with(key as u32, 0, options).unwrap();
        }
        for count in 1..=1_100 {
            cache.invalidate_all();
            for key in 0..6 {
                assert_eq!(cache.get(&key), None, "key {key} after {count} invalidations");
            }
        }
    }
}

#[test]
fn inv_05_an_entry_stored_just_before_an_invalidation_by_tag_is_gone_and_one_after_is_there() {
    for builder in kinds() {
        let cache = builder.build().unwrap();
        for round in 0..600 {
            let tagged = InsertOptions::new().tag("other").tag("tag");
            cache.insert_with(1, round, tagged).unwrap();
            cache.insert_with(2, round, InsertOptions::new().tag("other")).unwrap();
            assert!(cache.invalidate_tag("tag"));
            assert_eq!(cache.get(&1), None);
            assert_eq!(cache.get(&2), Some(round));
        }
        assert!(!cache.invalidate_tag("unknown"));
    }
}

#[test]
fn inv_05_an_entry_stored_just_before_an_invalidation_by_predicate_is_gone_and_one_after_is_there()
{
    for builder in kinds() {
        let cache = builder.build().unwrap();
        for round in 0..100 {
            cache.insert(1, round).unwrap();
            cache.insert(2, round).unwrap();
            assert_eq!(cache.invalidate_if(|key, value| (*key, *value) == (1, round)), 1);
            assert_eq!((cache.get(&1), cache.get(&2)), (None, Some(round)));
        }
    }
}

#[test]
fn inv_05_an_entry_that_was_marked_stale_is_gone_after_an_invalidation_too() {
    let cache = Cache::builder()
        .max_entries(10)
        .time_to_live(MINUTE)
        .stale_while_revalidate(MINUTE)
        .clock(Clock::manual().0)
        .build()
        .unwrap();
    for key in [1, 2] {
        cache.insert_with(key, key, InsertOptions::new().tag("tag")).unwrap();
        assert!(cache.mark_stale(&key));
        assert_eq!(cache.get_with(&key, |entry| entry.state()), Some(EntryState::Stale));
        if key == 1 {
            cache.invalidate_all();
        } else {
            ignore(cache.invalidate_tag("tag"));
        }
        assert_eq!(cache.get(&key), None);
        assert!(!cache.mark_stale(&key));
    }
}

#[test]
fn inv_05_an_entry_stored_after_an_invalidation_is_there_also_if_the_clock_was_set_back() {
    for start in [0, 1_000_000] {
        let (clock, hand) = Clock::manual();
        hand.set(Duration::from_secs(start) + MINUTE);
        let cache =
            Cache::builder().max_entries(10).time_to_live(MINUTE).clock(clock).build().unwrap();
        cache.insert(1, 1).unwrap();
        cache.invalidate_all();
        hand.set(Duration::from_secs(start));
        assert_eq!(cache.get(&1), None);
        cache.insert(2, 2).unwrap();
        assert_eq!(cache.get(&2), Some(2));
        cache.invalidate_all();
        assert_eq!(cache.get(&2), None);
    }
}

#[test]
fn inv_05_the_listener_is_told_of_invalidated_entries_once_and_with_their_cause() {
    let told = Told::new();
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(1_000)
        .time_to_live(MINUTE)
        .clock(clock)
        .removal_listener(told.listener())
        .build()
        .unwrap();
    for key in 0..100 {
        cache.insert(key, key).unwrap();
    }
    cache.invalidate_all();
    hand.advance(MINUTE * 2);
    assert_eq!(told.take().len(), 0, "in constant time");
    for key in 50..60 {
        cache.insert(key, 0).unwrap();
    }
    cache.sweep(usize::MAX);
    let told = told.take();
    assert!(told.iter().all(|(_, _, cause)| *cause == RemovalCause::Invalidated));
    let keys: HashSet<u32> = told.iter().map(|(key, _, _)| *key).collect();
    assert_eq!((told.len(), keys.len()), (100, 100));
    assert_eq!(cache.len(), 10);
    audit_entries(&cache);
}

/// As the documentation of `invalidate_all` says: by inserts, before anything else is evicted.
#[test]
fn inv_05_what_was_invalidated_makes_room_before_anything_else_is_evicted() {
    let cache = Cache::builder().max_entries(1_000).hasher(Fixed::default()).build().unwrap();
    for key in 0..1_000 {
        cache.insert(key, key).unwrap();
    }
    cache.invalidate_all();
    for key in 2_000..3_000 {
        cache.insert(key, key).unwrap();
    }
    assert_eq!(cache.stats().evicted, 0);
    assert!((2_000..3_000).all(|key| cache.contains_key(&key)));
    assert_eq!(audit_entries(&cache).invalidated, 1_000);
}

#[test]
fn inv_05_what_was_invalidated_makes_room_first_also_when_many_threads_insert_by_turns() {
    let cache = Cache::builder().max_entries(1_000).hasher(Fixed::default()).build().unwrap();
    for key in 0..1_000 {
        cache.insert(key, key).unwrap();
    }
    cache.invalidate_all();
    thread::scope(|scope| {
        let cache = &cache;
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let ((give, take), (tell, hear)) = (channel(), channel());
                scope.spawn(move || {
                    for key in take {
                        cache.insert(key, key).unwrap();
                        tell.send(()).unwrap();
                    }
                });
                (give, hear)
            })
            .collect();
        for key in 2_000..3_000 {
            let (give, hear) = &workers[key as usize % 8];
            give.send(key).unwrap();
            hear.recv().unwrap();
        }
    });
    assert_eq!(cache.stats().evicted, 0);
    assert!((2_000..3_000).all(|key| cache.contains_key(&key)));
}

// INV-11

thread_local! {
    /// How many more times this thread reads the time before it is stopped there.
    static READS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A clock that stops a thread at one of its reads, and lets it go when `open` is dropped.
fn stoppable(entered: Sender<()>) -> (Clock, ManualClock, Sender<()>) {
    let (_, hand) = Clock::manual();
    let (open, gate) = channel::<()>();
    let (now, gate, entered) = (hand.clone(), Mutex::new(gate), Mutex::new(entered));
    let clock = Clock::from_fn(move || {
        let time = now.now();
        match READS.get() {
            Some(0) => {
                READS.set(None);
                lock(&entered).send(()).unwrap();
                let _ = lock(&gate).recv();
            }
            Some(left) => READS.set(Some(left - 1)),
            None => {}
        }
        time
    });
    (clock, hand, open)
}

type Call = fn(&Cache<u32, u32>);

/// Stops a call that meets the dead entry of key 1 at each moment when it reads the time (up to the
/// twentieth); stores a new value meanwhile; and shows `check` what came of it.
fn with_a_late(call: Call, capacity: u64, check: impl Fn(&Cache<u32, u32>, &Told<u32, u32>)) {
    for reads in 0..20 {
        let (enter, entered) = channel();
        let (clock, hand, open) = stoppable(enter.clone());
        let told = Told::new();
        let cache = Cache::builder()
            .max_entries(capacity)
            .time_to_live(MINUTE)
            .clock(clock)
            .removal_listener(told.listener())
            .build()
            .unwrap();
        cache.insert(1, 1).unwrap();
        hand.advance(MINUTE * 2);
        cache.insert_with(2, 2, InsertOptions::new().no_deadline()).unwrap();
        if cache.stats().expired > 0 {
            // The last insert came by the dead entry already.
            cache.insert_with(1, 1, InsertOptions::new().age(MINUTE)).unwrap();
        }
        let stopped = {
            let cache = cache.clone();
            thread::spawn(move || {
                READS.set(Some(reads));
                call(&cache);
                let through = READS.replace(None).is_some();
                let _ = enter.send(());
                through
            })
        };
        entered.recv().unwrap();
        cache.insert(1, 100).unwrap();
        drop(open);
        let through = stopped.join().unwrap();
        check(&cache, &told);
        if through {
            break;
        }
    }
}

#[test]
fn inv_11_a_late_call_that_met_an_expired_value_does_not_remove_its_fresh_replacement() {
    let calls: [Call; 8] = [
        |cache| ignore(cache.get(&1)),
        |cache| ignore(cache.get_on_error(&1)),
        |cache| ignore(cache.get_many([&1, &2])),
        |cache| assert!(cache.iter().count() <= 2),
        |cache| assert!(cache.sweep(usize::MAX) <= 1),
        |cache| assert_eq!(cache.invalidate_if(|_, value| *value == 1), 0),
        |cache| (10..200).for_each(|key| ignore(cache.insert(key, key))),
        |cache| {
            ignore(cache.compute(1, |entry| match entry {
                Some(_) => Compute::Keep,
                None => Compute::Remove,
            }));
        },
    ];
    must_end(move || {
        for call in calls {
            with_a_late(call, 1_000, |cache, told| {
                assert_eq!(cache.get(&1), Some(100));
                let lost = told.take().into_iter().any(|(_, value, _)| value == 100);
                assert!(!lost, "the listener was told of a value that is there");
                audit_entries(cache);
            });
        }
    });
}

#[test]
fn inv_11_a_late_insert_if_absent_that_met_an_expired_value_sees_its_fresh_replacement() {
    must_end(|| {
        with_a_late(
            |cache| ignore(cache.insert_if_absent(1, 50)),
            1_000,
            |cache, told| {
                assert_eq!(cache.get(&1), Some(100));
                let causes: Vec<_> = told.take().into_iter().filter(|it| it.1 == 100).collect();
                assert_eq!(causes, []);
            },
        );
    });
}

/// Of a full cache the fresh value may be evicted; but it is not taken for the dead one.
#[test]
fn inv_11_a_late_eviction_does_not_take_a_fresh_replacement_for_the_expired_value() {
    must_end(|| {
        with_a_late(
            |cache| ignore(cache.insert(3, 3)),
            2,
            |cache, told| {
                for (_, value, cause) in told.take() {
                    assert!(value != 100 || cause == RemovalCause::Evicted, "{value}: {cause:?}");
                }
                audit_entries(cache);
            },
        );
    });
}

// INV-15

const THREADS: u64 = 4;
const ROUNDS: u64 = 500;

#[test]
fn inv_15_concurrent_computes_lose_no_update_and_form_a_chain() {
    let cache: Cache<u32, u64> = Cache::new(10);
    let steps: Vec<(u64, u64)> = thread::scope(|scope| {
        let worker = || {
            let mut steps = Vec::new();
            for _ in 0..ROUNDS {
                let mut step = (0, 0);
                let done = cache.compute(1, |entry| {
                    let old = entry.map_or(0, |entry| *entry.value());
                    step = (old, old + 1);
                    Compute::Insert(old + 1)
                });
                assert!(matches!(done, Ok(Computed::Inserted(_))));
                // A read changes the entry's use count under the others' hands.
                assert!(cache.get(&1) >= Some(step.1));
                steps.push(step);
            }
            steps
        };
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(cache.get(&1), Some(THREADS * ROUNDS));
    let olds: HashSet<u64> = steps.iter().map(|step| step.0).collect();
    assert_eq!(olds, (0..THREADS * ROUNDS).collect());
}

#[test]
fn inv_15_computes_that_remove_and_create_lose_no_update() {
    let cache: Cache<u32, u64> = Cache::new(10);
    let removed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let mut took = 0;
                    let add = |old: u64| Compute::Insert(old + 1);
                    cache
                        .compute(1, |entry| match entry {
                            Some(entry) if round % 5 == 0 => {
                                took = *entry.value() + 1;
                                Compute::Remove
                            }
                            entry => {
                                took = 0;
                                add(entry.map_or(0, |entry| *entry.value()))
                            }
                        })
                        .unwrap();
                    removed.fetch_add(took, SeqCst);
                }
            });
        }
    });
    let left = cache.get(&1).unwrap_or(0);
    assert_eq!(removed.load(SeqCst) + left, THREADS * ROUNDS);
}

#[test]
fn inv_15_concurrent_conditional_replacements_lose_no_update() {
    let cache: Cache<u32, u64> = Cache::new(10);
    cache.insert(1, 0).unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    loop {
                        let seen = cache.get(&1).unwrap();
                        if cache.replace_if(1, seen + 1, |entry| *entry.value() == seen).is_ok() {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(cache.get(&1), Some(THREADS * ROUNDS));
}

/// What a compute replaces is what it was shown, also if others store without looking.
#[test]
fn inv_15_no_two_writers_start_from_the_same_value_while_another_stores_blindly() {
    let replaced: Arc<Mutex<Vec<u64>>> = Arc::default();
    let listener = {
        let replaced = Arc::clone(&replaced);
        move |_: &u32, value: &u64, cause| {
            assert_eq!(cause, RemovalCause::Replaced);
            lock(&replaced).push(*value);
        }
    };
    let cache = Cache::builder().max_entries(10).removal_listener(listener).build().unwrap();
    cache.insert(1, 0).unwrap();
    let unique = AtomicU64::new(1);
    let bases: Vec<u64> = thread::scope(|scope| {
        let (cache, unique) = (&cache, &unique);
        let computer = move || {
            let mut bases = Vec::new();
            for _ in 0..ROUNDS {
                let new = unique.fetch_add(1, SeqCst);
                let mut base = 0;
                cache
                    .compute(1, |entry| {
                        base = *entry.expect("it is always there").value();
                        Compute::Insert(new)
                    })
                    .unwrap();
                bases.push(base);
            }
            bases
        };
        let computers: Vec<_> = (0..3).map(|_| scope.spawn(computer)).collect();
        for _ in 0..ROUNDS {
            cache.insert(1, unique.fetch_add(1, SeqCst)).unwrap();
        }
        computers.into_iter().flat_map(|computer| computer.join().unwrap()).collect()
    });
    let distinct: HashSet<u64> = bases.iter().copied().collect();
    assert_eq!(distinct.len(), bases.len(), "two computes replaced the same value");
    let mut history = lock(&replaced).clone();
    history.push(cache.get(&1).unwrap());
    history.sort_unstable();
    assert_eq!(history, (0..unique.load(SeqCst)).collect::<Vec<_>>(), "each went exactly once");
}
