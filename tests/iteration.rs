//! Walking over entries while they change (ITE).

mod common;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use common::{Few, Fixed, audit_entries, must_end};
use seawall::{Builder, Cache, Clock, Compute, EntryState, InsertOptions};

/// A cache of `entries` that each have ten times their key for a value.
fn filled(entries: u32) -> Cache<u32, u32> {
    let cache = Cache::new(10_000);
    for key in 0..entries {
        cache.insert(key, key * 10).unwrap();
    }
    cache
}

/// A cache with the smallest table there is, and a budget that is never reached.
fn growing() -> Cache<u32, u32, Fixed> {
    Cache::builder().max_weight(1_000_000).hasher(Fixed::default()).build().unwrap()
}

fn sorted<T: Ord>(entries: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut entries: Vec<T> = entries.into_iter().collect();
    entries.sort_unstable();
    entries
}

// ITE-02

#[test]
fn ite_02_the_loop_may_do_anything_to_the_cache_it_walks_over() {
    must_end(|| {
        let cache = Cache::builder().max_entries(200).hasher(Few(3)).build().unwrap();
        for key in 0..60_u32 {
            cache.insert(key, key).unwrap();
        }
        for (key, value) in cache.iter() {
            assert_eq!(key % 1_000, value % 1_000);
            cache.insert(key, value + 1_000).unwrap();
            cache.insert(key + 1_000, value).unwrap();
            cache.invalidate(&(key + 1));
            cache.remove(&(key + 2));
            cache.get(&key);
            let _ = cache.compute(key + 3, |_| Compute::Insert(key + 3));
            assert!(cache.len() <= 72, "at most 24 of each hash");
            cache.set_capacity(200 + u64::from(key));
            cache.sweep(10);
            if key % 7 == 0 {
                cache.invalidate_if(|other, _| other % 5 == 0);
            }
        }
        audit_entries(&cache);
    });
}

#[test]
fn ite_02_the_loop_may_clear_the_cache_it_walks_over() {
    let cache = filled(500);
    let mut walk = cache.iter();
    walk.next().unwrap();
    cache.invalidate_all();
    assert!(walk.count() <= 24, "at most what it had copied already");
    assert_eq!(cache.iter().count(), 0);
}

#[test]
fn ite_02_two_walks_at_once_see_every_entry_each() {
    let cache = filled(300);
    let expected = sorted((0..300).map(|key| (key, key * 10)));
    let (mut first, mut second) = (cache.iter(), cache.iter());
    let (mut seen_first, mut seen_second) = (Vec::new(), Vec::new());
    for step in 0..1_000 {
        if step % 3 == 0 {
            seen_first.extend(first.next());
        } else {
            seen_second.extend(second.next());
        }
    }
    assert_eq!(sorted(seen_first), expected);
    assert_eq!(sorted(seen_second), expected);
}

#[test]
fn ite_02_a_walk_that_is_forgotten_half_way_holds_up_nobody() {
    must_end(|| {
        let cache: &'static Cache<u32, u32> = Box::leak(Box::new(filled(300)));
        let mut walk = cache.iter();
        walk.nth(100).unwrap();
        Box::leak(Box::new(walk));
        cache.invalidate_all();
        cache.sweep(usize::MAX);
        assert_eq!(cache.len(), 0);
        thread::spawn(|| cache.insert(1, 1).unwrap()).join().unwrap();
        assert_eq!(cache.iter().collect::<Vec<_>>(), [(1, 1)]);
    });
}

#[test]
fn ite_02_a_walk_goes_on_in_another_thread() {
    let cache = filled(300);
    let mut walk = cache.iter();
    let mut seen: Vec<_> = walk.by_ref().take(100).collect();
    thread::scope(|scope| seen.extend(scope.spawn(|| walk.collect::<Vec<_>>()).join().unwrap()));
    assert_eq!(sorted(seen), sorted((0..300).map(|key| (key, key * 10))));
}

#[test]
fn ite_02_a_pinned_walk_may_do_anything_to_the_cache_it_walks_over() {
    must_end(|| {
        let cache = filled(300);
        let pinned = cache.pin();
        let mut seen = 0;
        for entry in &pinned {
            assert_eq!(*entry.value(), entry.key() * 10);
            cache.remove(entry.key());
            cache.insert(entry.key() + 1_000_000, 0).unwrap();
            cache.invalidate(&(entry.key() + 1_000_000));
            assert_eq!(*entry.value(), entry.key() * 10, "it stays as it was found");
            seen += 1;
        }
        assert_eq!(seen, 300);
        assert_eq!(cache.len(), 0);
    });
}

/// What the documentation of `Iter` promises of entries that stay.
#[test]
fn ite_02_entries_that_stay_are_seen_exactly_once_while_the_table_grows() {
    for stop in [0, 1, 30, 59] {
        let cache = growing();
        for key in 0..60_u32 {
            cache.insert(key, 0).unwrap();
        }
        let mut walk = cache.iter();
        let mut seen: Vec<u32> = walk.by_ref().take(stop).map(|(key, _)| key).collect();
        for key in 60..3_000 {
            cache.insert(key, 0).unwrap();
        }
        seen.extend(walk.map(|(key, _)| key));
        let stayed = sorted(seen.iter().copied().filter(|key| *key < 60));
        assert_eq!(stayed, (0..60).collect::<Vec<_>>(), "it grew after {stop} entries");
        let distinct: HashSet<u32> = seen.iter().copied().collect();
        assert_eq!(distinct.len(), seen.len(), "a later one at most once");
    }
}

#[test]
fn ite_02_entries_that_stay_are_seen_exactly_once_while_each_step_grows_the_table() {
    let cache = growing();
    for key in 0..60 {
        cache.insert(key, 0).unwrap();
    }
    let pinned = cache.pin();
    let mut next = 60;
    let mut seen = Vec::new();
    for entry in pinned.iter() {
        seen.push(*entry.key());
        for _ in 0..20 {
            if next < 4_000 {
                cache.insert(next, 0).unwrap();
                next += 1;
            }
        }
    }
    let stayed = sorted(seen.iter().copied().filter(|key| *key < 60));
    assert_eq!(stayed, (0..60).collect::<Vec<_>>());
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len());
}

#[test]
fn ite_02_replaced_entries_are_seen_exactly_once_with_either_value() {
    let cache = filled(300);
    let mut seen = BTreeMap::new();
    for (key, value) in cache.iter() {
        assert!([key * 10, 7].contains(&value));
        assert_eq!(seen.insert(key, value), None, "seen once");
        for other in (key % 10..300).step_by(10) {
            cache.insert(other, 7).unwrap();
        }
    }
    assert_eq!(seen.len(), 300);
}

#[test]
fn ite_02_walks_end_and_see_what_stays_while_other_threads_write() {
    let cache = growing();
    for key in 0..50 {
        cache.insert(key, 0).unwrap();
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 1..3 {
            let (cache, stop) = (&cache, &stop);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(SeqCst) {
                    let key = thread * 100_000 + round % 2_000;
                    cache.insert(key, 0).unwrap();
                    cache.insert(round % 50, round).unwrap();
                    cache.remove(&(key / 2));
                    round += 1;
                }
            });
        }
        for _ in 0..30 {
            let stayed = sorted(cache.iter().map(|(key, _)| key).filter(|key| *key < 50));
            assert_eq!(stayed, (0..50).collect::<Vec<_>>());
        }
        stop.store(true, SeqCst);
    });
}

/// The documentation of `iter`: all entries that a plain read would return.
fn with_each_freshness() -> Cache<&'static str, u32> {
    let (clock, hand) = Clock::manual();
    let builder: Builder<&str, u32> = Cache::builder();
    let cache = builder.max_entries(10).clock(clock).build().unwrap();
    let second = Duration::from_secs(1);
    let short = InsertOptions::new().time_to_live(second);
    let window = 10 * second;
    cache.insert("fresh", 1).unwrap();
    cache.insert_with("stale", 2, short.clone().stale_while_revalidate(window)).unwrap();
    cache.insert_with("on error", 3, short.clone().stale_if_error(window)).unwrap();
    cache.insert_with("dead", 4, short).unwrap();
    hand.advance(2 * second);
    cache
}

#[test]
fn ite_02_a_walk_shows_what_a_plain_read_would_return() {
    let cache = with_each_freshness();
    let shown = sorted(cache.iter().map(|(key, _)| key));
    assert!(shown.iter().all(|key| cache.contains_key(key)), "{shown:?}");
    assert_eq!(shown, ["fresh", "stale"]);
}

#[test]
fn ite_02_a_pinned_walk_shows_what_a_plain_read_would_return() {
    let cache = with_each_freshness();
    let pinned = cache.pin();
    let shown = sorted(pinned.iter().map(|entry| *entry.key()));
    assert_eq!(shown, ["fresh", "stale"]);
    assert!(pinned.iter().all(|entry| entry.state() != EntryState::StaleOnError));
}

// ITE-04

#[test]
fn ite_04_a_value_stored_while_the_predicate_judges_the_old_one_stays() {
    let cache = filled(100);
    let taken = cache.invalidate_if(|key, value| {
        if *key == 50 && *value != 1 {
            cache.insert(50, 1).unwrap();
        }
        *value != 1
    });
    assert_eq!(taken, 99);
    assert_eq!(cache.iter().collect::<Vec<_>>(), [(50, 1)]);
    audit_entries(&cache);
}

#[test]
fn ite_04_an_entry_stored_anew_while_the_predicate_judges_the_old_one_stays() {
    let cache = filled(100);
    let taken = cache.invalidate_if(|key, value| {
        if *key == 50 && *value != 1 {
            cache.remove(&50);
            cache.insert(50, 1).unwrap();
        }
        *value != 1
    });
    assert_eq!(taken, 99);
    assert_eq!(cache.iter().collect::<Vec<_>>(), [(50, 1)]);
}

#[test]
fn ite_04_every_old_version_goes_and_no_new_one_while_another_thread_replaces_them() {
    const OLD: u32 = 1;
    const NEW: u32 = 2;
    for _ in 0..20 {
        let cache: Cache<u32, u32> = Cache::new(10_000);
        for key in 0..400 {
            cache.insert(key, OLD).unwrap();
        }
        let replaced = thread::scope(|scope| {
            let replacer = scope.spawn(|| {
                (0..400).filter(|key| cache.replace_if(*key, NEW, |_| true).is_ok()).count()
            });
            cache.invalidate_if(|_, value| *value == OLD);
            replacer.join().unwrap()
        });
        let left: Vec<u32> = cache.iter().map(|(_, value)| value).collect();
        assert_eq!(left, vec![NEW; replaced], "what was replaced stayed, the rest went");
        audit_entries(&cache);
    }
}

#[test]
fn ite_04_an_entry_is_taken_once_the_predicate_said_yes_also_if_it_is_read_meanwhile() {
    let cache = filled(20);
    let mut condemned = HashSet::new();
    let taken = cache.invalidate_if(|key, _| {
        cache.get(key);
        condemned.insert(*key)
    });
    assert_eq!(condemned.len(), 20);
    assert_eq!(taken, 20, "the predicate returned true for each of them");
    assert_eq!(cache.len(), 0);
}

#[test]
fn ite_04_the_predicate_may_change_the_cache() {
    must_end(|| {
        let cache = growing();
        for key in 0..50 {
            cache.insert(key, 0).unwrap();
        }
        let mut next = 1_000;
        cache.invalidate_if(|key, _| {
            let old = *key < 50;
            for _ in 0..if old { 50 } else { 0 } {
                cache.insert(next, 1).unwrap();
                next += 1;
            }
            old
        });
        assert!((0..50).all(|key| !cache.contains_key(&key)));
        assert!((1_000..next).all(|key| cache.contains_key(&key)));
        assert_eq!(cache.len() as u32, next - 1_000);
    });
}

#[test]
fn ite_04_every_entry_is_shown_to_the_predicate() {
    let cache = filled(300);
    let mut shown = Vec::new();
    let taken = cache.invalidate_if(|key, value| {
        shown.push((*key, *value));
        key % 3 == 0
    });
    assert_eq!(sorted(shown), sorted((0..300).map(|key| (key, key * 10))));
    assert_eq!(taken, 100);
    assert!((0..300).all(|key| cache.contains_key(&key) == (key % 3 != 0)));
    assert_eq!(cache.stats().invalidated, 100);
}
