//! What becomes of a load's answer: races of loads with writes and invalidations (INV, LIS-06), versions,
//! and marks.

mod common;
#[path = "common/paced.rs"]
mod paced;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use common::loads::{Form, Gate, Polled, Runtime, assert_at_rest, until, until_waiting};
use common::{Census, Counted, Few, Told, ignore, must_end};
use paced::{Background, FORMS, on_threads, secs, stale_for_a_minute};
use seawall::{
    Cache, Clock, Compute, EntryState, InsertOptions, Load, LoadError, RemovalCause, Source,
    WhyStale,
};

/// Ways to say that what the cache has of key 1, tagged "t", is outdated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Invalidate,
    Remove,
    All,
    If,
    Tag,
}

impl Way {
    const ALL: [Way; 5] = [Way::Invalidate, Way::Remove, Way::All, Way::If, Way::Tag];

    fn apply(self, cache: &Cache<u64, u64>) {
        match self {
            Way::Invalidate => ignore(cache.invalidate(&1)),
            Way::Remove => ignore(cache.remove(&1)),
            Way::All => cache.invalidate_all(),
            Way::If => ignore(cache.invalidate_if(|key, _| *key == 1)),
            Way::Tag => ignore(cache.invalidate_tag("t")),
        }
    }
}

/// What a loader says: a value with the tag.
fn tagged(value: u64) -> Load<u64> {
    Load::With(value, InsertOptions::new().tag("t"))
}

fn value(value: u64) -> Result<Load<u64>, &'static str> {
    Ok(tagged(value))
}

fn state(cache: &Cache<u64, u64>, key: u64) -> Option<(u64, EntryState)> {
    cache.get_on_error(&key)
}

// INV-01

#[test]
fn inv_01_a_load_that_began_before_an_invalidation_is_not_stored_after_it() {
    must_end(|| {
        for form in Form::ALL {
            for way in Way::ALL {
                let cache = Cache::new(100);
                let gate = Gate::new();
                let first = form.begin(&cache, 1, &gate);
                gate.until_entered(1);
                way.apply(&cache);
                gate.open(value(1));
                assert_eq!(first.join().unwrap(), Ok(1), "{form:?}, {way:?}");
                assert_eq!(cache.get(&1), None, "{form:?}, {way:?}");
                assert_eq!(cache.load_stats().not_stored, 1);
                assert_eq!(form.call(&cache, &1, &Gate::opened(value(2))), Ok(2));
                assert_eq!(cache.get(&1), Some(2), "{form:?}, {way:?}");
                assert_at_rest(&cache);
            }
        }
    });
}

#[test]
fn inv_01_who_asks_after_an_invalidation_never_joins_a_load_that_began_before_it() {
    for form in Form::ALL {
        for late in Form::ALL {
            for way in Way::ALL {
                must_end(move || {
                    let cache = Cache::new(100);
                    let (old, new) = (Gate::new(), Gate::new());
                    let first = form.begin(&cache, 1, &old);
                    old.until_entered(1);
                    let early = late.begin(&cache, 1, &Gate::opened(value(9)));
                    until_waiting(&cache, 1);
                    way.apply(&cache);
                    let second = late.begin(&cache, 1, &new);
                    until(|| new.entered() == 1 || cache.load_stats().waiting == 2);
                    old.open(value(1));
                    new.open(value(2));
                    assert_eq!(first.join().unwrap(), Ok(1), "{form:?}, {late:?}, {way:?}");
                    assert_eq!(early.join().unwrap(), Ok(1), "{form:?}, {late:?}, {way:?}");
                    assert_eq!(second.join().unwrap(), Ok(2), "{form:?}, {late:?}, {way:?}");
                    assert_eq!(new.entered(), 1);
                    assert_eq!(cache.get(&1), Some(2), "{form:?}, {late:?}, {way:?}");
                    assert_at_rest(&cache);
                });
            }
        }
    }
}

#[test]
fn inv_01_the_older_load_may_end_last() {
    for form in Form::ALL {
        for way in Way::ALL {
            if way == Way::Tag {
                // Nobody knows the tags of what is being loaded for the first time.
                continue;
            }
            must_end(move || {
                let cache = Cache::new(100);
                let (old, new) = (Gate::new(), Gate::new());
                let first = form.begin(&cache, 1, &old);
                old.until_entered(1);
                way.apply(&cache);
                let second = form.begin(&cache, 1, &new);
                new.until_entered(1);
                new.open(value(2));
                assert_eq!(second.join().unwrap(), Ok(2));
                old.open(value(1));
                assert_eq!(first.join().unwrap(), Ok(1));
                assert_eq!(cache.get(&1), Some(2), "{form:?}, {way:?}");
                assert_at_rest(&cache);
            });
        }
    }
}

#[test]
fn inv_01_tasks_too() {
    for (name, runtime) in Runtime::each() {
        for way in Way::ALL {
            let cache = Cache::new(100);
            let (old, gate) = (Gate::new(), Gate::opened(value(2)));
            runtime.block_on(async {
                let (handle, held) = (cache.clone(), old.clone());
                let first = runtime
                    .spawn(async move { handle.get_or_load_async(&1, || held.pass_async()).await });
                futures_lite::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if old.entered() == 1 {
                        std::task::Poll::Ready(())
                    } else {
                        std::task::Poll::Pending
                    }
                })
                .await;
                way.apply(&cache);
                old.open(value(1));
                assert_eq!(first.end().await, Ok(1), "{name}, {way:?}");
                assert_eq!(cache.get(&1), None, "{name}, {way:?}");
                let again = cache.get_or_load_async(&1, || gate.pass_async()).await;
                assert_eq!(again, Ok(2), "{name}, {way:?}");
            });
            assert_eq!(cache.get(&1), Some(2), "{name}, {way:?}");
            assert_at_rest(&cache);
        }
    }
}

#[test]
fn inv_01_an_absence_or_a_failure_that_began_before_an_invalidation_is_not_remembered_after_it() {
    for form in Form::ALL {
        for way in [Way::Invalidate, Way::Remove, Way::All, Way::If] {
            for answer in [Ok(Load::Absent), Err("down")] {
                let (builder, _hand) = stale_for_a_minute();
                let cache = builder
                    .absent_time_to_live(secs(5))
                    .min_retry_interval(secs(5))
                    .build()
                    .unwrap();
                let gate = Gate::new();
                let first = form.begin(&cache, 1, &gate);
                gate.until_entered(1);
                way.apply(&cache);
                gate.open(answer.clone());
                assert!(first.join().unwrap().is_err());
                let context = format!("{form:?}, {way:?}, {answer:?}");
                assert_eq!(form.call(&cache, &1, &Gate::opened(value(2))), Ok(2), "{context}");
                assert_at_rest(&cache);
            }
        }
    }
}

#[test]
fn inv_01_other_keys_loads_are_stored_all_the_same() {
    must_end(|| {
        for form in Form::ALL {
            let cache = Cache::new(100);
            let gate = Gate::new();
            let loads: Vec<_> = (1..=3).map(|key| form.begin(&cache, key, &gate)).collect();
            gate.until_entered(3);
            cache.invalidate(&1);
            cache.remove(&2);
            gate.open(value(7));
            loads.into_iter().for_each(|load| assert_eq!(load.join().unwrap(), Ok(7)));
            assert_eq!(
                (1..=3).map(|key| cache.get(&key)).collect::<Vec<_>>(),
                [None, None, Some(7)]
            );
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn inv_01_a_tag_that_was_unknown_when_it_was_invalidated_counts_too() {
    let cache = Cache::new(100);
    let gate = Gate::new();
    let first = Form::Blocking.begin(&cache, 1, &gate);
    gate.until_entered(1);
    assert!(!cache.invalidate_tag("t"));
    gate.open(value(1));
    assert_eq!(first.join().unwrap(), Ok(1));
    assert_eq!(cache.get(&1), None);
    assert_at_rest(&cache);
}

#[test]
fn inv_01_another_tags_invalidation_does_not_count() {
    let cache: Cache<u64, u64> = Cache::new(100);
    cache.get_or_load(&2, || tagged(5)).unwrap();
    cache.insert_with(3, 3, InsertOptions::new().tag("other")).unwrap();
    let gate = Gate::new();
    let first = Form::Blocking.begin(&cache, 1, &gate);
    gate.until_entered(1);
    assert!(cache.invalidate_tag("other"));
    gate.open(value(1));
    assert_eq!(first.join().unwrap(), Ok(1));
    assert_eq!(cache.get(&1), Some(1));
    assert_at_rest(&cache);
}

#[test]
fn inv_01_in_any_race_nothing_is_read_that_was_loaded_before_the_last_invalidation() {
    for way in Way::ALL {
        race(way, 4_000);
    }
}

/// One thread changes the origin, invalidates, and reads; others load all the time.
fn race(way: Way, rounds: u64) {
    must_end(move || {
        let cache: Cache<u64, u64> = Cache::new(100);
        let (origin, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let load = || cache.get_or_load(&1, || tagged(origin.load(SeqCst))).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        load();
                    }
                });
            }
            let mut early = None;
            for _ in 0..rounds {
                let now = origin.fetch_add(1, SeqCst) + 1;
                way.apply(&cache);
                let read = cache.get(&1);
                if read.is_some_and(|read| read < now) {
                    early = Some(format!("{way:?}: read {read:?} after {now}"));
                }
                let loaded = load();
                if loaded < now {
                    early = Some(format!("{way:?}: loaded {loaded} after {now}"));
                }
            }
            over.store(true, SeqCst);
            assert_eq!(early, None);
        });
        assert_at_rest(&cache);
    });
}

#[test]
fn inv_01_in_any_race_nothing_is_fresh_that_was_loaded_before_the_last_mark() {
    must_end(|| {
        let (clock, hand) = Clock::manual();
        let cache: Cache<u64, u64> = Cache::builder()
            .max_entries(100)
            .time_to_live(secs(1_000))
            .stale_while_revalidate(secs(1_000))
            .clock(clock)
            .build()
            .unwrap();
        let (origin, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let load = || cache.get_or_load(&1, || tagged(origin.load(SeqCst))).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        load();
                    }
                });
            }
            let mut early = None;
            for _ in 0..4_000 {
                hand.advance(Duration::from_millis(1));
                let now = origin.fetch_add(1, SeqCst) + 1;
                cache.mark_stale(&1);
                match state(&cache, 1) {
                    Some((read, EntryState::Fresh)) if read < now => {
                        early = Some(format!("{read} is fresh after {now}"));
                    }
                    _ => {}
                }
                load();
            }
            over.store(true, SeqCst);
            assert_eq!(early, None);
        });
        assert_at_rest(&cache);
    });
}

// INV-03

#[test]
fn inv_03_an_invalidation_during_a_refresh_is_not_undone_by_it() {
    for form in FORMS {
        for way in Way::ALL {
            must_end(move || {
                let it = Background::refreshing(form);
                way.apply(&it.cache);
                it.gate.open(Ok(tagged(2)));
                it.until_rest();
                assert_eq!(it.cache.get(&1), None, "{form:?}, {way:?}");
                assert_at_rest(&it.cache);
            });
        }
    }
}

#[test]
fn inv_03_after_an_invalidation_during_a_refresh_the_key_is_refreshed_as_before() {
    for form in FORMS {
        for way in Way::ALL {
            must_end(move || {
                let it = Background::refreshing(form);
                way.apply(&it.cache);
                it.gate.open(Ok(tagged(2)));
                it.until_rest();
                assert_eq!(it.ask(), Ok(2), "{form:?}, {way:?}");
                it.hand.advance(secs(11));
                it.gate.open(Ok(tagged(3)));
                assert_eq!(it.ask(), Ok(2));
                until(|| it.cache.get(&1) == Some(3));
                it.until_rest();
                assert_eq!(it.gate.entered(), 3);
                assert_at_rest(&it.cache);
            });
        }
    }
}

#[test]
fn inv_03_an_explicit_refresh_of_an_absent_key_does_not_outlive_an_invalidation() {
    for way in Way::ALL {
        let cache: Cache<u64, u64> = Cache::new(10);
        let gate = Gate::new();
        let mut load = Polled::begun(cache.load(&1).refresh().run_async(|_| gate.pass_async()));
        way.apply(&cache);
        gate.open(tagged(1));
        let std::task::Poll::Ready(outcome) = load.poll() else { panic!("it is open") };
        assert_eq!(outcome.unwrap().value, Some(1));
        drop(load);
        assert_eq!(cache.get(&1), None, "{way:?}");
        assert_at_rest(&cache);
    }
}

#[test]
fn inv_03_a_refresh_that_answers_absent_does_not_touch_what_came_after_an_invalidation() {
    for form in FORMS {
        for way in Way::ALL {
            must_end(move || {
                let it = Background::refreshing(form);
                way.apply(&it.cache);
                it.cache.insert(1, 5).unwrap();
                it.gate.open(Ok(Load::Absent));
                it.until_rest();
                assert_eq!(it.cache.get(&1), Some(5), "{form:?}, {way:?}");
                assert_at_rest(&it.cache);
            });
        }
    }
}

#[test]
fn inv_03_unchanged_does_not_bring_an_invalidated_value_back() {
    for form in FORMS {
        for way in Way::ALL {
            must_end(move || {
                let it = Background::refreshing(form);
                way.apply(&it.cache);
                it.gate.open(Ok(Load::Unchanged));
                it.until_rest();
                assert_eq!(state(&it.cache, 1), None, "{form:?}, {way:?}");
                assert_at_rest(&it.cache);
            });
        }
    }
}

// INV-07

#[test]
fn inv_07_a_refresh_that_read_before_a_tags_invalidation_is_not_served_after_it() {
    for form in FORMS {
        must_end(move || {
            let it = Background::refreshing(form);
            assert!(it.cache.invalidate_tag("t"));
            let new = Gate::opened(tagged(3));
            assert_eq!(it.form.call(&it.cache, &1, &new), Ok(3), "a load of its own");
            it.gate.open(Ok(tagged(2)));
            it.until_rest();
            assert_eq!(it.cache.get(&1), Some(3), "{form:?}");
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn inv_07_a_tag_that_only_the_loaded_value_has_counts_too() {
    for form in FORMS {
        must_end(move || {
            let it = Background::new(form);
            it.cache.insert_with(2, 2, InsertOptions::new().tag("u")).unwrap();
            assert_eq!(it.ask(), Ok(1));
            it.gate.until_entered(1);
            assert!(it.cache.invalidate_tag("u"));
            it.gate.open(Ok(Load::With(2, InsertOptions::new().tag("u"))));
            it.until_rest();
            assert_eq!(it.cache.get(&1), Some(1), "the old one has not this tag; {form:?}");
            assert_at_rest(&it.cache);
        });
    }
}

#[test]
fn inv_07_a_predicate_is_asked_about_what_the_cache_has_and_voids_what_is_coming() {
    for form in FORMS {
        must_end(move || {
            let it = Background::refreshing(form);
            assert_eq!(it.cache.invalidate_if(|_, value| *value == 2), 0);
            it.gate.open(Ok(tagged(2)));
            it.until_rest();
            assert_eq!(it.cache.get(&1), Some(1), "{form:?}");
            it.gate.open(Ok(tagged(3)));
            assert_eq!(it.ask(), Ok(1), "stale as before");
            until(|| it.cache.get(&1) == Some(3));
            it.until_rest();
            assert_at_rest(&it.cache);
        });
    }
}

// INV-09

/// A key whose copies wait at a gate, once it is armed: where a load is registered, after the miss.
#[derive(Debug)]
struct SlowKey(u64, Arc<(AtomicBool, Gate<()>)>);

impl Clone for SlowKey {
    fn clone(&self) -> Self {
        if self.1.0.swap(false, SeqCst) {
            self.1.1.pass();
        }
        SlowKey(self.0, Arc::clone(&self.1))
    }
}

impl PartialEq for SlowKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for SlowKey {}

impl Hash for SlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

fn slow_key() -> (SlowKey, Gate<()>) {
    let gate = Gate::new();
    (SlowKey(1, Arc::new((AtomicBool::new(false), gate.clone()))), gate)
}

/// Runs `meanwhile` while a caller is between its miss and the registration of its load.
fn between_miss_and_load(
    before: impl FnOnce(&Cache<SlowKey, u64>, &SlowKey),
    meanwhile: impl FnOnce(&Cache<SlowKey, u64>, &SlowKey),
    origin: &AtomicU64,
) -> (u64, Option<u64>) {
    let cache: Cache<SlowKey, u64> = Cache::new(100);
    let (key, gate) = slow_key();
    before(&cache, &key);
    key.1.0.store(true, SeqCst);
    let loaded = thread::scope(|scope| {
        let load = scope.spawn(|| cache.get_or_load(&key, || origin.load(SeqCst)).unwrap());
        gate.until_entered(1);
        meanwhile(&cache, &key);
        gate.open(());
        load.join().unwrap()
    });
    assert_at_rest(&cache);
    (loaded, cache.get(&key))
}

#[test]
fn inv_09_a_value_stored_between_a_miss_and_its_load_is_kept() {
    let origin = AtomicU64::new(1);
    let put = |cache: &Cache<SlowKey, u64>, key: &SlowKey| ignore(cache.insert(key.clone(), 5));
    assert_eq!(between_miss_and_load(|_, _| (), put, &origin), (5, Some(5)));
}

#[test]
fn inv_09_an_invalidation_between_a_miss_and_its_load_comes_before_the_load() {
    let (builder, ways) = (AtomicU64::new(1), 3);
    for way in 0..ways {
        let origin = &builder;
        let change = |cache: &Cache<SlowKey, u64>, key: &SlowKey| {
            origin.fetch_add(1, SeqCst);
            match way {
                0 => ignore(cache.invalidate(key)),
                1 => cache.invalidate_all(),
                _ => ignore(cache.invalidate_if(|_, _| true)),
            }
        };
        let now = origin.load(SeqCst) + 1;
        assert_eq!(between_miss_and_load(|_, _| (), change, origin), (now, Some(now)));
    }
}

#[test]
fn inv_09_a_value_stored_over_a_dead_one_while_its_load_is_registered_is_kept() {
    let origin = AtomicU64::new(1);
    let dead = |cache: &Cache<SlowKey, u64>, key: &SlowKey| {
        let options = InsertOptions::new().time_to_live(Duration::ZERO);
        ignore(cache.insert_with(key.clone(), 3, options));
    };
    let put = |cache: &Cache<SlowKey, u64>, key: &SlowKey| ignore(cache.insert(key.clone(), 5));
    assert_eq!(between_miss_and_load(dead, put, &origin), (5, Some(5)));
}

#[test]
fn inv_09_a_write_during_a_load_is_kept() {
    type Write = fn(&Cache<u64, u64>);
    let writes: [Write; 4] = [
        |cache| ignore(cache.insert(1, 5).unwrap()),
        |cache| ignore(cache.insert_if_absent(1, 5).unwrap()),
        |cache| ignore(cache.compute(1, |_| Compute::Insert(5)).unwrap()),
        |cache| ignore(cache.insert_with(1, 5, InsertOptions::new().version(1)).unwrap()),
    ];
    for form in Form::ALL {
        for write in writes {
            let cache = Cache::new(100);
            let gate = Gate::new();
            let first = form.begin(&cache, 1, &gate);
            gate.until_entered(1);
            write(&cache);
            assert_eq!(form.call(&cache, &1, &Gate::opened(value(9))), Ok(5), "a hit");
            gate.open(value(1));
            assert_eq!(first.join().unwrap(), Ok(1));
            assert_eq!(cache.get(&1), Some(5));
            assert_at_rest(&cache);
        }
    }
}

// INV-11 has its tests in `invalidation.rs`; here with loads.

#[test]
fn inv_11_a_load_that_met_an_expired_value_does_not_replace_a_newer_one() {
    let (clock, hand) = Clock::manual();
    let cache =
        Cache::builder().max_entries(10).time_to_live(secs(1)).clock(clock).build().unwrap();
    for form in Form::ALL {
        cache.insert(1, 1).unwrap();
        hand.advance(secs(2));
        let gate = Gate::new();
        let load = form.begin(&cache, 1, &gate);
        gate.until_entered(1);
        cache.insert(1, 5).unwrap();
        cache.sweep(usize::MAX);
        gate.open(value(2));
        assert_eq!(load.join().unwrap(), Ok(2));
        cache.sweep(usize::MAX);
        assert_eq!(cache.get(&1), Some(5));
        assert_at_rest(&cache);
    }
}

// INV-13

#[test]
fn inv_13_a_failed_load_writes_nothing_back() {
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let told = Told::new();
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(secs(10))
            .stale_if_error(secs(60))
            .removal_listener(told.listener())
            .clock(clock)
            .build()
            .unwrap();
        cache.insert(1, 1).unwrap();
        hand.advance(secs(15));
        let gate: Gate<Result<u64, &str>> = Gate::new();
        let load = form.begin(&cache, 1, &gate);
        gate.until_entered(1);
        cache.insert(1, 5).unwrap();
        hand.advance(secs(4));
        gate.open(Err("down"));
        assert_eq!(load.join().unwrap(), Ok(1), "the stale value covers the failure");
        let kept = cache.get_with(&1, |entry| (*entry.value(), entry.remaining()));
        assert_eq!(kept, Some((5, Some(secs(6)))), "{form:?}");
        assert_eq!(told.take(), [(1, 1, RemovalCause::Replaced)]);
        assert_at_rest(&cache);
    }
}

#[test]
fn inv_13_a_failed_load_renews_no_deadline() {
    for form in Form::ALL {
        let (clock, hand) = Clock::manual();
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(secs(10))
            .stale_if_error(secs(60))
            .clock(clock)
            .build()
            .unwrap();
        cache.insert(1, 1).unwrap();
        for now in [15, 30, 69] {
            hand.set(secs(now));
            let failed = Gate::opened(Err::<u64, _>("down"));
            assert_eq!(form.call(&cache, &1, &failed), Ok(1), "{form:?} at {now}");
        }
        hand.set(secs(70));
        let failed = form.call(&cache, &1, &Gate::opened(Err::<u64, _>("down")));
        assert_eq!(failed, Err(LoadError::Failed("down")), "{form:?}");
    }
}

// INV-17

#[test]
fn inv_17_loads_end_well_although_all_was_cleared_meanwhile() {
    for form in Form::ALL {
        must_end(move || {
            let cache: Cache<u64, u64> = Cache::new(100);
            let gates: Vec<_> = (0..50).map(|_| Gate::new()).collect();
            let loads: Vec<_> =
                gates.iter().zip(0..).map(|(gate, key)| form.begin(&cache, key, gate)).collect();
            gates.iter().for_each(|gate| gate.until_entered(1));
            for _ in 0..2 {
                cache.invalidate_all();
                assert_eq!((cache.len(), cache.iter().count()), (0, 0));
                assert_eq!(cache.weight(), 0);
            }
            for place in 0..50 {
                // Not in their order.
                let key = (place * 17 + 3) % 50;
                gates[key].open(tagged(key as u64));
                until(|| cache.load_stats().in_flight == 49 - place as u64);
            }
            for (key, load) in (0..).zip(loads) {
                assert_eq!(load.join().unwrap(), Ok(key));
            }
            assert_eq!(cache.len(), 0);
            assert_at_rest(&cache);
        });
    }
}

/// Loads of many keys that `overtake` overtakes; then no key may be left anywhere.
fn nothing_is_left(answer: &Result<Load<u64>, &'static str>, overtake: fn(&Keyed)) {
    let keys = Census::default();
    let cache: Keyed = Cache::new(100);
    let gate = Gate::new();
    let mut loads = Vec::new();
    for key in 0..30 {
        let (cache, key, gate) = (cache.clone(), keys.make(key), gate.clone());
        loads.push(Polled::begun(async move {
            let load = cache.get_or_load_async(&key, || gate.pass_async());
            ignore(load.await);
        }));
    }
    overtake(&cache);
    gate.open(answer.clone());
    assert!(loads.iter_mut().all(|load| load.poll().is_ready()));
    drop(loads);
    assert_at_rest(&cache);
    // Other tests' threads may be reading, and so keep what is gone for a while.
    let mut sweeps = 0;
    while keys.alive() != cache.len() as i64 && sweeps < 10_000 {
        cache.sweep(usize::MAX);
        thread::yield_now();
        sweeps += 1;
    }
    assert_eq!(keys.alive(), cache.len() as i64, "{answer:?}");
}

type Keyed = Cache<Counted<u64>, u64>;

#[test]
fn inv_17_nothing_is_left_of_loads_that_an_invalidation_overtook_whatever_they_bring() {
    let overtake: [fn(&Keyed); 3] =
        [|cache| cache.invalidate_all(), |cache| ignore(cache.invalidate_if(|_, _| true)), |_| ()];
    let answers = [
        value(1),
        Ok(Load::Absent),
        Ok(Load::AbsentFor(secs(1))),
        Ok(Load::NotStored(1)),
        Ok(Load::Unchanged),
        Err("down"),
    ];
    for answer in &answers {
        for overtake in &overtake[..if matches!(answer, Ok(Load::AbsentFor(_))) { 2 } else { 3 }] {
            nothing_is_left(answer, *overtake);
        }
    }
}

#[test]
fn inv_17_places_of_loads_that_were_overtaken_can_be_used_again() {
    // 24 keys of one hash fill their place.
    let cache: Cache<u64, u64, Few> =
        Cache::builder().max_entries(100).hasher(Few(1)).build().unwrap();
    let gate = Gate::new();
    let mut loads: Vec<_> = (0..24)
        .map(|key| {
            let (cache, gate) = (cache.clone(), gate.clone());
            Polled::begun(async move { cache.get_or_load_async(&key, || gate.pass_async()).await })
        })
        .collect();
    cache.invalidate_all();
    gate.open(Load::<u64>::Absent);
    assert!(loads.iter_mut().all(|load| load.poll().is_ready()));
    drop(loads);
    for key in 100..124 {
        cache.insert(key, key).unwrap();
    }
    assert_eq!((100..124).filter(|key| cache.get(key).is_some()).count(), 24);
    assert_at_rest(&cache);
}

// LIS-06

#[test]
fn lis_06_a_refresh_that_loses_against_a_write_is_told_to_nobody() {
    for form in FORMS {
        for answer in [Load::Absent, tagged(2), Load::NotStored(2), Load::Unchanged] {
            must_end(move || {
                let (builder, hand) = stale_for_a_minute();
                let (told, gate) = (Told::new(), Gate::new());
                let refresher = gate.clone();
                let cache = builder
                    .removal_listener(told.listener())
                    .absent_time_to_live(secs(5))
                    .refresh_with(move |_| refresher.pass())
                    .spawner(on_threads())
                    .build()
                    .unwrap();
                cache.insert(1, 1).unwrap();
                hand.advance(secs(10));
                assert_eq!(form.call(&cache, &1, &gate), Ok(1));
                gate.until_entered(1);
                cache.insert(1, 5).unwrap();
                gate.open(answer.clone());
                until(|| cache.load_stats().in_flight == 0);
                assert_eq!(cache.get(&1), Some(5), "{form:?}, {answer:?}");
                assert_eq!(told.take(), [(1, 1, RemovalCause::Replaced)], "{form:?}, {answer:?}");
                assert_at_rest(&cache);
            });
        }
    }
}

// Versions

fn versioned(value: u64, version: u64) -> Load<u64> {
    Load::With(value, InsertOptions::new().version(version))
}

#[test]
fn an_older_version_is_told_to_those_who_waited_and_replaces_nothing() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.build().unwrap();
    cache.insert_with(1, 7, InsertOptions::new().version(7)).unwrap();
    hand.advance(secs(10));
    let outcome = cache.load(&1).run(|_| versioned(6, 6)).unwrap();
    assert_eq!((outcome.value, outcome.version), (Some(6), Some(6)));
    assert_eq!(outcome.source, Source::Loaded);
    assert_eq!(state(&cache, 1), Some((7, EntryState::Stale)));
    assert_eq!(cache.load_stats().not_stored, 1);
    let outcome = cache.load(&1).run(|_| versioned(8, 7)).unwrap();
    assert_eq!(outcome.version, Some(7));
    assert_eq!(state(&cache, 1), Some((8, EntryState::Fresh)));
    assert_at_rest(&cache);
}

#[test]
fn an_older_version_may_follow_one_that_is_dead() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.build().unwrap();
    cache.insert_with(1, 7, InsertOptions::new().version(7)).unwrap();
    hand.advance(secs(70));
    cache.load(&1).run(|_| versioned(6, 6)).unwrap();
    assert_eq!(cache.get_with(&1, |entry| entry.version()), Some(Some(6)));
}

#[test]
fn a_value_without_a_version_replaces_any() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.build().unwrap();
    cache.insert_with(1, 7, InsertOptions::new().version(7)).unwrap();
    hand.advance(secs(10));
    cache.get_or_load(&1, || 8).unwrap();
    assert_eq!(cache.get_with(&1, |entry| (*entry.value(), entry.version())), Some((8, None)));
}

#[test]
fn a_newer_version_stored_during_a_load_stays() {
    for form in Form::ALL {
        let cache: Cache<u64, u64> = Cache::new(10);
        let gate = Gate::new();
        let load = form.begin(&cache, 1, &gate);
        gate.until_entered(1);
        cache.insert_with(1, 7, InsertOptions::new().version(7)).unwrap();
        gate.open(versioned(6, 6));
        assert_eq!(load.join().unwrap(), Ok(6));
        assert_eq!(cache.get(&1), Some(7));
    }
}

#[test]
fn unchanged_never_lowers_a_version() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.build().unwrap();
    cache.insert_with(1, 7, InsertOptions::new().version(7)).unwrap();
    hand.advance(secs(10));
    let options = InsertOptions::new().version(6);
    ignore(cache.load(&1).run(|_| Load::<u64>::UnchangedWith(options)));
    assert_eq!(cache.get_with(&1, |entry| entry.version()), Some(Some(7)));
    let refused = cache.insert_with(1, 6, InsertOptions::new().version(6));
    assert!(refused.is_err(), "an older version never replaces a newer one");
}

#[test]
fn options_that_make_no_sense_are_refused_with_unchanged_as_with_a_value() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 1).unwrap();
    let options = || InsertOptions::new().stale_if_error(secs(5));
    assert!(cache.insert_with(2, 2, options()).is_err(), "a window without a deadline");
    cache.load(&1).refresh().run(|_| Load::With(2, options())).unwrap();
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(cache.stats().refused, 2);
    cache.load(&1).refresh().run(|_| Load::<u64>::UnchangedWith(options())).unwrap();
    assert_eq!(cache.stats().refused, 3);
}

/// Notes the largest piece of memory that a thread asked for.
struct Largest;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

#[test]
fn mem_03_a_value_that_is_kept_over_and_over_with_its_tag_does_not_grow() {
    let (builder, hand) = stale_for_a_minute();
    let cache = builder.build().unwrap();
    cache.insert_with(1, 1, InsertOptions::new().tag("t")).unwrap();
    for _ in 0..1_000 {
        hand.advance(secs(10));
        LARGEST.set(0);
        let options = InsertOptions::new().tag("t");
        cache.load(&1).run(|_| Load::<u64>::UnchangedWith(options)).unwrap();
        assert!(LARGEST.get() < 8_000, "{} bytes for one entry", LARGEST.get());
    }
    assert!(cache.invalidate_tag("t"));
    assert_eq!(cache.get(&1), None);
}

// Marks

#[test]
fn what_is_marked_stale_during_its_first_load_is_told_and_not_stored() {
    for form in Form::ALL {
        let (builder, hand) = stale_for_a_minute();
        let cache = builder.build().unwrap();
        let gate = Gate::new();
        let load = form.begin(&cache, 1, &gate);
        gate.until_entered(1);
        hand.advance(secs(3));
        assert!(!cache.mark_stale(&1), "there is no entry yet");
        gate.open(tagged(2));
        assert_eq!(load.join().unwrap(), Ok(2));
        assert_eq!(state(&cache, 1), None, "there is no window that it is in; {form:?}");
        assert_eq!(form.call(&cache, &1, &Gate::opened(tagged(3))), Ok(3));
        assert_eq!(state(&cache, 1), Some((3, EntryState::Fresh)));
        assert_at_rest(&cache);
    }
}

#[test]
fn what_is_marked_stale_without_a_window_is_not_served_when_it_comes() {
    for form in Form::ALL {
        let cache: Cache<u64, u64> = Cache::new(10);
        let gate = Gate::new();
        let load = form.begin(&cache, 1, &gate);
        gate.until_entered(1);
        cache.mark_stale(&1);
        gate.open(tagged(2));
        assert_eq!(load.join().unwrap(), Ok(2));
        assert_eq!(cache.get(&1), None, "{form:?}");
        assert_at_rest(&cache);
    }
}

#[test]
fn what_is_marked_stale_during_a_refresh_is_stale_when_that_has_ended() {
    for form in FORMS {
        for answer in [tagged(2), Load::Unchanged] {
            must_end(move || {
                let it = Background::refreshing(form);
                it.hand.advance(secs(1));
                assert!(it.cache.mark_stale(&1));
                it.gate.open(Ok(answer.clone()));
                it.until_rest();
                let (_, now) = state(&it.cache, 1).unwrap();
                assert_eq!(now, EntryState::Stale, "{form:?}, {answer:?}");
                it.gate.open(Ok(tagged(3)));
                ignore(it.ask());
                until(|| it.cache.get(&1) == Some(3));
                it.until_rest();
                assert_eq!(state(&it.cache, 1), Some((3, EntryState::Fresh)));
                assert_at_rest(&it.cache);
            });
        }
    }
}

#[test]
fn a_mark_does_not_reach_the_next_load() {
    for form in Form::ALL {
        let (builder, _hand) = stale_for_a_minute();
        let cache = builder.build().unwrap();
        let gate = Gate::new();
        let load = form.begin(&cache, 1, &gate);
        gate.until_entered(1);
        cache.mark_stale(&1);
        cache.invalidate(&1);
        let next = Gate::opened(tagged(3));
        assert_eq!(form.call(&cache, &1, &next), Ok(3));
        gate.open(tagged(2));
        assert_eq!(load.join().unwrap(), Ok(2));
        assert_eq!(state(&cache, 1), Some((3, EntryState::Fresh)), "{form:?}");
        assert_at_rest(&cache);
    }
}

#[test]
fn a_caller_after_a_mark_begins_a_load_of_its_own() {
    must_end(|| {
        for form in Form::ALL {
            let (builder, _hand) = stale_for_a_minute();
            let cache = builder.build().unwrap();
            let (old, new) = (Gate::new(), Gate::new());
            let first = form.begin(&cache, 1, &old);
            old.until_entered(1);
            cache.mark_stale(&1);
            let second = form.begin(&cache, 1, &new);
            new.until_entered(1);
            new.open(tagged(2));
            assert_eq!(second.join().unwrap(), Ok(2));
            old.open(tagged(1));
            assert_eq!(first.join().unwrap(), Ok(1));
            assert_eq!(state(&cache, 1), Some((2, EntryState::Fresh)), "{form:?}");
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn a_mark_of_a_value_that_is_being_refreshed_counts_for_the_new_one_from_then_on() {
    for form in FORMS {
        must_end(move || {
            let it = Background::refreshing(form);
            it.hand.advance(secs(5));
            assert!(it.cache.mark_stale(&1));
            it.hand.advance(secs(5));
            it.gate.open(Ok(tagged(2)));
            it.until_rest();
            assert_eq!(state(&it.cache, 1), Some((2, EntryState::Stale)), "{form:?}");
            it.hand.set(secs(74));
            assert_eq!(state(&it.cache, 1), Some((2, EntryState::Stale)), "a minute from the mark");
            it.hand.set(secs(75));
            assert_eq!(state(&it.cache, 1), None, "{form:?}");
            assert_at_rest(&it.cache);
        });
    }
}

// What a load brings late

#[test]
fn a_load_that_is_older_than_the_lead_timeout_no_longer_holds_its_key() {
    for form in Form::ALL {
        must_end(move || {
            let (clock, hand) = Clock::manual();
            let cache = Cache::builder()
                .max_entries(10)
                .lead_timeout(secs(5))
                .clock(clock)
                .build()
                .unwrap();
            let (old, new) = (Gate::new(), Gate::new());
            let first = form.begin(&cache, 1, &old);
            old.until_entered(1);
            hand.advance(secs(5));
            let second = form.begin(&cache, 1, &new);
            new.until_entered(1);
            old.open(value(1));
            assert_eq!(first.join().unwrap(), Ok(1));
            assert_eq!(cache.get(&1), None, "late");
            new.open(value(2));
            assert_eq!(second.join().unwrap(), Ok(2));
            assert_eq!(cache.get(&1), Some(2));
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn a_load_that_no_longer_holds_its_key_stores_nothing_even_if_it_was_about_to() {
    must_end(|| {
        let (clock, hand) = Clock::manual();
        let cache: Cache<SlowKey, u64> = Cache::builder()
            .max_entries(10)
            .time_to_live(secs(10))
            .stale_if_error(secs(60))
            .lead_timeout(secs(5))
            .clock(clock)
            .build()
            .unwrap();
        let (key, gate) = slow_key();
        let other = slow_key().0;
        cache.insert(other.clone(), 0).unwrap();
        hand.advance(secs(10));
        thread::scope(|scope| {
            let late = scope.spawn(|| {
                cache.get_or_load(&key, || {
                    // Its key is copied once more, for the new entry.
                    key.1.0.store(true, SeqCst);
                    1
                })
            });
            gate.until_entered(1);
            hand.advance(secs(5));
            let late_ends = || {
                gate.open(());
                assert_eq!(late.join().unwrap(), Ok(1));
            };
            let told = cache.get_or_load(&other, || {
                late_ends();
                2
            });
            assert_eq!(told, Ok(2));
        });
        assert_eq!(cache.get(&other), Some(2), "not what the first one brought late");
        assert_at_rest(&cache);
    });
}

#[test]
fn a_value_that_only_stands_in_for_errors_is_told_as_such_when_its_load_is_overtaken() {
    let (clock, hand) = Clock::manual();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(10)
        .time_to_live(secs(10))
        .stale_if_error(secs(60))
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(10));
    let outcome = cache
        .load(&1)
        .run(|_| {
            cache.invalidate(&1);
            Err::<u64, _>("down")
        })
        .unwrap();
    assert_eq!((outcome.value, outcome.source), (Some(1), Source::Stale(WhyStale::Failed)));
    assert_eq!(state(&cache, 1), None);
    assert_at_rest(&cache);
}
