//! Deadlines, and settings of nothing: time to live, stale windows, time to idle, clocks that step
//! back, zero and empty.

mod support;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seawall::{
    Builder, Cache, Clock, Compute, Computed, ConfigError, EntryState, Equivalent, InsertOptions,
    Inserted, ManualClock, RefusedReason, RemovalCause,
};

use self::support::{Log, assert_consistent, ms, secs};

/// Settings for 1,000 entries whose time a test moves.
fn timed<V>() -> (Builder<u64, V>, ManualClock) {
    let (clock, hand) = Clock::manual();
    (Cache::builder().max_entries(1_000).clock(clock), hand)
}

fn for_one_second() -> InsertOptions {
    InsertOptions::new().time_to_live(secs(1))
}

/// A key whose comparison takes two milliseconds.
struct SlowKey<'h>(u64, &'h ManualClock);

impl Hash for SlowKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<u64> for SlowKey<'_> {
    fn equivalent(&self, key: &u64) -> bool {
        self.1.advance(ms(2));
        self.0 == *key
    }
}

/// EXP-01
#[test]
fn exp_01_a_read_that_is_held_up_does_not_return_what_expired_meanwhile() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(ms(100)).build().unwrap();
    cache.insert(1, "a").unwrap();
    hand.set(ms(99));
    assert_eq!(cache.get(&SlowKey(1, &hand)), None);
    assert_eq!(hand.now(), ms(101));
    assert_consistent(&cache);
}

/// EXP-01
#[test]
fn exp_01_a_slow_weigher_takes_nothing_from_the_time_to_live() {
    let (clock, hand) = Clock::manual();
    let slow = hand.clone();
    let cache = Cache::builder()
        .max_weight(10)
        .weigher(move |_, _| {
            slow.advance(secs(1));
            1
        })
        .time_to_live(ms(1_500))
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, "a").unwrap();
    hand.advance(ms(1_200));
    assert_eq!(cache.get(&1), Some("a"));
    hand.advance(ms(300));
    assert_eq!(cache.get(&1), None);
    assert_consistent(&cache);
}

/// EXP-01
#[test]
fn exp_01_a_slow_compute_takes_nothing_from_the_time_to_live() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(ms(1_500)).build().unwrap();
    cache
        .compute(1, |_| {
            hand.advance(secs(1));
            Compute::Insert("a")
        })
        .unwrap();
    hand.advance(ms(1_200));
    assert_eq!(cache.get(&1), Some("a"));
    hand.advance(ms(300));
    assert_eq!(cache.get(&1), None);
    assert_consistent(&cache);
}

/// EXP-01
#[test]
fn exp_01_a_value_is_served_and_ages_while_a_slow_listener_is_told_of_the_old_one() {
    let (builder, hand) = timed();
    let shared: Arc<std::sync::OnceLock<Cache<u64, &str>>> = Arc::default();
    let (seen, slow) = (Arc::clone(&shared), hand.clone());
    let builder = builder.time_to_live(ms(1_500)).removal_listener(move |key, old, cause| {
        if cause == RemovalCause::Replaced {
            let cache = seen.get().unwrap();
            assert_eq!((*old, cache.get(key)), ("a", Some("b")));
            assert_eq!(cache.peek_with(key, |entry| entry.remaining()), Some(Some(ms(1_500))));
            slow.advance(secs(1));
        }
    });
    let cache = shared.get_or_init(|| builder.build().unwrap());
    cache.insert(1, "a").unwrap();
    cache.insert(1, "b").unwrap();
    hand.advance(ms(499));
    assert_eq!(cache.get(&1), Some("b"));
    hand.advance(ms(1));
    assert_eq!(cache.get(&1), None);
    assert_consistent(cache);
}

/// Stores a value for ten seconds if it is new; in place of a live one, for what that one had left.
fn create_or_update(cache: &Cache<u64, u32>, value: u32) -> Computed {
    cache
        .compute(1, |entry| {
            let left = entry.and_then(|entry| entry.remaining()).unwrap_or(secs(10));
            Compute::InsertWith(value, InsertOptions::new().time_to_live(left))
        })
        .unwrap()
}

/// EXP-03
#[test]
fn exp_03_a_value_stored_over_a_dead_one_is_new() {
    let (builder, hand) = timed();
    let cache = builder.build().unwrap();
    assert_eq!(create_or_update(&cache, 1), Computed::Inserted(Inserted::New));
    hand.advance(secs(11));
    assert_eq!(create_or_update(&cache, 2), Computed::Inserted(Inserted::New));
    hand.advance(secs(1));
    assert_eq!(cache.get(&1), Some(2));
    assert_eq!(create_or_update(&cache, 3), Computed::Inserted(Inserted::Replaced));
    hand.advance(ms(8_999));
    assert_eq!(cache.get(&1), Some(3));
    hand.advance(ms(1));
    assert_eq!(cache.get(&1), None);
    assert_consistent(&cache);
}

/// EXP-03
#[test]
fn exp_03_every_way_to_store_takes_a_dead_entry_for_absent() {
    let (builder, hand) = timed();
    let (builder, log) = Log::of(builder);
    let cache = builder.time_to_live(secs(10)).build().unwrap();
    for key in 0..4 {
        cache.insert(key, "old").unwrap();
    }
    hand.advance(secs(11));
    assert_eq!(cache.insert(0, "new").unwrap(), Inserted::New);
    assert_eq!(cache.insert_if_absent(1, "new").unwrap(), Inserted::New);
    assert_eq!(
        cache.compute(2, |_| Compute::Insert("new")).unwrap(),
        Computed::Inserted(Inserted::New)
    );
    let refused = cache.replace_if(3, "new", |_| true).unwrap_err();
    assert_eq!(refused.reason(), RefusedReason::Absent);
    hand.advance(ms(9_999));
    assert_eq!(cache.get_many(&[0, 1, 2, 3]), [Some("new"), Some("new"), Some("new"), None]);
    assert_consistent(&cache);
    let stats = cache.stats();
    assert_eq!((stats.inserts, stats.replaced, stats.expired), (7, 0, 4));
    log.assert_matches_stats(&cache);
}

/// EXP-05
#[test]
fn exp_05_every_dead_entry_is_reclaimed_whatever_the_steps() {
    let (builder, hand) = timed();
    let (builder, log) = Log::of(builder);
    let cache = builder.max_entries(10_000).time_to_live(secs(60)).build().unwrap();
    for key in 0..10_000 {
        cache.insert(key, ()).unwrap();
        hand.advance(ms(1));
    }
    let mut reclaimed = 0;
    for step in [7, 13, 1, 90, 89] {
        hand.advance(secs(step));
        reclaimed += cache.sweep(usize::MAX);
    }
    assert_eq!((reclaimed, cache.len(), cache.weight()), (10_000, 0, 0));
    assert_eq!(log.count(RemovalCause::Expired), 10_000);
    assert_consistent(&cache);
}

/// EXP-05
#[test]
fn exp_05_sweeps_of_small_budgets_get_round_the_whole_table() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(secs(60)).build().unwrap();
    for key in 0..1_000 {
        cache.insert(key, ()).unwrap();
    }
    hand.advance(secs(60));
    let reclaimed: usize = (0..1_000).map(|_| cache.sweep(16)).sum();
    assert_eq!((reclaimed, cache.len(), cache.weight()), (1_000, 0, 0));
    assert_consistent(&cache);
}

/// EXP-05
#[test]
fn exp_05_inserts_reclaim_the_dead_as_they_go_by() {
    let (builder, hand) = timed();
    let cache = builder.max_entries(20_000).time_to_live(secs(60)).build().unwrap();
    for key in 0..100 {
        cache.insert(key, ()).unwrap();
    }
    hand.advance(secs(60));
    for key in 100..20_000 {
        cache.insert(key, ()).unwrap();
    }
    let stats = cache.stats();
    assert_eq!((stats.expired, stats.evicted, cache.len()), (100, 0, 19_900));
    assert_consistent(&cache);
}

/// EXP-05
#[test]
fn exp_05_writes_to_one_key_reclaim_the_dead_of_all_others() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(secs(60)).build().unwrap();
    for key in 0..100 {
        cache.insert(key, ()).unwrap();
    }
    hand.advance(secs(60));
    for _ in 0..10_000 {
        cache.insert(0, ()).unwrap();
    }
    assert_eq!(cache.len(), 1);
    assert_consistent(&cache);
}

/// EXP-07
#[test]
fn exp_07_entries_that_live_on_do_not_hold_up_the_dead_around_them() {
    let (builder, hand) = timed();
    let (builder, log) = Log::of(builder);
    let cache = builder.max_entries(20_000).time_to_live(secs(1)).build().unwrap();
    cache.insert_with(0, (), InsertOptions::new().no_deadline()).unwrap();
    cache.insert_with(1, (), InsertOptions::new().time_to_live(Duration::MAX)).unwrap();
    cache.insert(2, ()).unwrap();
    for key in 3..5_003 {
        cache.insert(key, ()).unwrap();
    }
    cache.insert_with(2, (), InsertOptions::new().time_to_live(secs(3_600))).unwrap();
    hand.advance(secs(10));
    assert_eq!(cache.sweep(usize::MAX), 5_000);
    assert_eq!(log.count(RemovalCause::Expired), 5_000);
    assert!((0..3).all(|key| cache.contains_key(&key)));
    assert_consistent(&cache);
}

/// EXP-07
#[test]
fn exp_07_a_reader_that_holds_an_entry_does_not_hold_up_the_dead() {
    let (builder, hand) = timed();
    let (builder, log) = Log::of(builder);
    let cache = builder.time_to_live(secs(1)).build().unwrap();
    for key in 0..500 {
        cache.insert(key, key).unwrap();
    }
    let pinned = cache.pin();
    let held = pinned.get(&0).unwrap();
    hand.advance(secs(10));
    assert_eq!(cache.sweep(usize::MAX), 500);
    assert_eq!((cache.len(), log.count(RemovalCause::Expired)), (0, 500));
    assert_eq!((*held.value(), held.state()), (0, EntryState::Fresh));
    drop(pinned);
    assert_consistent(&cache);
}

/// EXP-09
#[test]
fn exp_09_a_clock_that_steps_back_counts_as_one_that_stands_still() {
    let (builder, hand) = timed();
    let cache = builder
        .time_to_live(ms(100))
        .stale_while_revalidate(ms(50))
        .stale_if_error(ms(80))
        .jitter(0.5)
        .early_refresh(ms(10))
        .time_to_idle(ms(500))
        .build()
        .unwrap();
    hand.set(ms(1_000));
    for key in 0..100 {
        cache.insert(key, key).unwrap();
    }
    for back in [999, 998, 0] {
        hand.set(ms(back));
        for key in 0..100 {
            assert_eq!(cache.get(&key), Some(key));
        }
        assert!(cache.iter().all(|(key, _)| {
            cache.get_on_error(&key) == Some((key, EntryState::Fresh))
                && cache.peek_with(&key, |entry| entry.age()) == Some(Some(Duration::ZERO))
        }));
        assert_eq!((cache.sweep(usize::MAX), cache.len()), (0, 100));
    }
    assert_consistent(&cache);
}

/// EXP-09
#[test]
fn exp_09_writes_at_an_earlier_time_are_as_good_as_any() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(ms(100)).stale_while_revalidate(ms(50)).build().unwrap();
    hand.set(ms(1_000));
    cache.insert(1, "a").unwrap();
    cache.invalidate_all();
    hand.set(ms(900));
    assert_eq!(cache.insert(1, "b").unwrap(), Inserted::New);
    assert_eq!(cache.get(&1), Some("b"));
    cache.invalidate_all();
    assert_eq!(cache.get(&1), None);
    cache.insert(1, "c").unwrap();
    assert!(cache.mark_stale(&1));
    assert_eq!(cache.peek_with(&1, |entry| entry.state()), Some(EntryState::Stale));
    hand.set(ms(2_000));
    assert_eq!(cache.get(&1), None);
    assert_consistent(&cache);
}

/// EXP-09
#[test]
fn exp_09_a_clock_of_ones_own_that_trembles_does_no_harm() {
    let reads = AtomicU64::new(0);
    // Every second reading is a nanosecond, and every seventh a second, before the one before it.
    let now = move || {
        let read = reads.fetch_add(1, Ordering::Relaxed);
        let step = Duration::from_nanos(read % 2) + if read % 7 == 0 { secs(1) } else { secs(0) };
        secs(1_000) + ms(read) - step
    };
    let cache = Cache::builder()
        .max_entries(100)
        .time_to_live(ms(40))
        .time_to_idle(ms(20))
        .stale_while_revalidate(ms(10))
        .clock(Clock::from_fn(now))
        .build()
        .unwrap();
    for key in 0..2_000_u64 {
        cache.insert(key % 150, key).unwrap();
        if let Some(value) = cache.get(&(key % 150)) {
            assert_eq!(value, key);
        }
        cache.mark_stale(&(key % 50));
        cache.sweep(4);
    }
    cache.invalidate_all();
    assert_consistent(&cache);
    assert!(cache.is_empty());
}

/// EXP-11
#[test]
fn exp_11_a_reversed_duration_means_dead_at_once() {
    let (builder, hand) = timed();
    let (builder, log) = Log::of(builder);
    let cache = builder.build().unwrap();
    hand.set(secs(100));
    let (start, end) = (secs(100), secs(40));
    for (key, ttl) in [(0, Duration::ZERO), (1, end.saturating_sub(start))] {
        let options = InsertOptions::new().time_to_live(ttl);
        assert_eq!(cache.insert_with(key, (), options).unwrap(), Inserted::New);
        assert_eq!(cache.get(&key), None);
        assert_eq!(cache.get_on_error(&key), None);
        assert!(!cache.contains_key(&key));
    }
    assert_eq!(cache.iter().count(), 0);
    cache.sweep(usize::MAX);
    let mut told = log.take();
    told.sort_unstable_by_key(|(key, ..)| *key);
    assert_eq!(told, [0, 1].map(|key| (key, (), RemovalCause::Expired)));
    assert_consistent(&cache);
}

/// EXP-11
#[test]
fn exp_11_the_smallest_duration_is_a_millisecond() {
    let (builder, hand) = timed();
    let cache = builder.build().unwrap();
    let insert = |ttl| cache.insert_with(1, (), InsertOptions::new().time_to_live(ttl));
    for ttl in [Duration::from_nanos(1), Duration::from_micros(999)] {
        assert_eq!(insert(ttl).unwrap_err().reason(), RefusedReason::TooShort);
    }
    insert(ms(1)).unwrap();
    assert!(cache.contains_key(&1));
    hand.advance(ms(1));
    assert!(!cache.contains_key(&1));
    assert_consistent(&cache);
    assert_eq!((cache.stats().refused, cache.stats().expired), (2, 1));
}

/// EXP-11
#[test]
fn exp_11_a_value_as_old_as_its_time_to_live_is_dead_at_once() {
    let (builder, _hand) = timed();
    let cache = builder.time_to_live(secs(10)).build().unwrap();
    for (key, age) in [secs(10), secs(11), Duration::MAX].into_iter().enumerate() {
        cache.insert_with(key as u64, (), InsertOptions::new().age(age)).unwrap();
    }
    cache.insert_with(3, (), InsertOptions::new().age(ms(9_999))).unwrap();
    assert_eq!([0, 1, 2, 3].map(|key| cache.contains_key(&key)), [false, false, false, true]);
    assert_consistent(&cache);
    assert_eq!((cache.stats().expired, cache.len()), (3, 1));
}

/// EXP-11
#[test]
fn exp_11_a_value_of_great_age_dies_no_later_for_it() {
    let year = secs(365 * 24 * 3_600);
    let (builder, hand) = timed();
    let cache = builder.time_to_live(10 * year).build().unwrap();
    cache.insert_with(1, (), InsertOptions::new().age(5 * year)).unwrap();
    assert_eq!(cache.peek_with(&1, |entry| entry.age()), Some(Some(5 * year)));
    hand.advance(5 * year);
    assert!(!cache.contains_key(&1));
    assert_consistent(&cache);
}

/// EXP-13
#[test]
fn exp_13_a_removal_returns_what_was_alive_however_long_its_listener_takes() {
    let (builder, hand) = timed();
    let slow = hand.clone();
    let log: Arc<std::sync::Mutex<Vec<_>>> = Arc::default();
    let told = Arc::clone(&log);
    let cache = builder
        .time_to_live(secs(1))
        .removal_listener(move |key, value, cause| {
            slow.advance(ms(500));
            told.lock().unwrap().push((*key, *value, cause));
        })
        .build()
        .unwrap();
    cache.insert(1, "v").unwrap();
    cache.insert(2, "w").unwrap();
    hand.advance(ms(900));
    assert_eq!(cache.remove(&1), Some("v"));
    // The listener has used up the second one's time.
    assert_eq!(cache.remove(&2), None);
    let told = log.lock().unwrap().clone();
    assert_eq!(told, [(1, "v", RemovalCause::Removed), (2, "w", RemovalCause::Expired)]);
    assert_consistent(&cache);
}

/// EXP-15
#[test]
fn exp_15_a_stale_value_stands_in_for_errors_until_its_window_closes() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(secs(1)).stale_if_error(secs(9)).build().unwrap();
    cache.insert(1, "a").unwrap();
    assert_eq!(cache.get_on_error(&1), Some(("a", EntryState::Fresh)));
    for second in 1..60 {
        hand.set(secs(second));
        assert_eq!(cache.get(&1), None);
        let stand_in = (second < 10).then_some(("a", EntryState::StaleOnError));
        assert_eq!(cache.get_on_error(&1), stand_in, "after {second} s");
    }
    assert_eq!((cache.stats().hits_fresh, cache.stats().misses), (0, 59));
    assert_consistent(&cache);
}

/// EXP-15
#[test]
fn exp_15_nothing_stands_in_for_an_error_unless_asked_for() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(secs(1)).build().unwrap();
    cache.insert(1, "a").unwrap();
    hand.set(secs(1));
    assert_eq!(cache.get_on_error(&1), None);
    assert_consistent(&cache);
    assert_eq!(cache.stats().expired, 1);
}

/// EXP-15
#[test]
fn exp_15_an_unlimited_window_is_spelled_out() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(secs(1)).stale_if_error(Duration::MAX).build().unwrap();
    cache.insert(1, "a").unwrap();
    hand.set(secs(1_000_000_000));
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.get_on_error(&1), Some(("a", EntryState::StaleOnError)));
    assert_eq!(cache.sweep(usize::MAX), 0);
}

/// EXP-15
#[test]
fn exp_15_a_value_that_may_only_stand_in_for_an_error_is_not_iterated() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(secs(1)).stale_if_error(secs(9)).build().unwrap();
    cache.insert(1, "a").unwrap();
    hand.set(secs(5));
    assert!(!cache.contains_key(&1));
    assert_eq!(cache.iter().count(), 0);
    assert_eq!(cache.pin().iter().count(), 0);
}

/// ZER-02
#[test]
fn zer_02_a_time_to_live_of_zero_is_not_none() {
    let (builder, _hand) = timed();
    let cache = builder.time_to_live(Duration::ZERO).build().unwrap();
    cache.insert(1, "a").unwrap();
    assert_eq!(cache.get(&1), None);
    assert!(!cache.mark_stale(&1));
    assert!(!cache.invalidate(&1));
    assert_consistent(&cache);
    assert_eq!(cache.stats().expired, 1);
}

/// ZER-02
#[test]
fn zer_02_a_time_to_live_of_zero_with_a_window_means_stale_at_once() {
    let (builder, hand) = timed();
    let cache = builder
        .time_to_live(Duration::ZERO)
        .stale_while_revalidate(secs(2))
        .stale_if_error(secs(3))
        .build()
        .unwrap();
    cache.insert(1, "a").unwrap();
    let state = |cache: &Cache<u64, &str>| cache.get_on_error(&1).map(|(_, state)| state);
    assert_eq!((cache.get(&1), state(&cache)), (Some("a"), Some(EntryState::Stale)));
    assert_eq!(cache.stats().hits_stale, 1);
    hand.advance(secs(2));
    assert_eq!((cache.get(&1), state(&cache)), (None, Some(EntryState::StaleOnError)));
    hand.advance(secs(1));
    assert_eq!((cache.get(&1), state(&cache)), (None, None));
    assert_consistent(&cache);
}

/// ZER-02
#[test]
fn zer_02_zero_for_one_value_overrides_the_cache_and_only_there() {
    let (builder, hand) = timed();
    let cache = builder
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(10))
        .stale_if_error(secs(10))
        .build()
        .unwrap();
    let zero = Duration::ZERO;
    let dead = InsertOptions::new().time_to_live(zero).stale_while_revalidate(zero);
    cache.insert_with(0, (), dead.stale_if_error(zero)).unwrap();
    let unserved = InsertOptions::new().stale_while_revalidate(zero);
    cache.insert_with(1, (), unserved).unwrap();
    cache.insert_with(2, (), InsertOptions::new().stale_if_error(zero)).unwrap();
    cache.insert(3, ()).unwrap();
    let states = || [0, 1, 2, 3].map(|key| cache.get_on_error(&key).map(|((), state)| state));
    let (fresh, stale) = (Some(EntryState::Fresh), Some(EntryState::Stale));
    assert_eq!(states(), [None, fresh, fresh, fresh]);
    hand.advance(secs(10));
    assert_eq!(states(), [None, Some(EntryState::StaleOnError), stale, stale]);
    hand.advance(secs(10));
    assert_eq!(states(), [None; 4]);
    assert_consistent(&cache);
}

/// ZER-02
#[test]
fn zer_02_a_time_to_idle_of_zero_is_not_none() {
    let (builder, _hand) = timed();
    let cache = builder.time_to_idle(Duration::ZERO).build().unwrap();
    cache.insert(1, "a").unwrap();
    assert_eq!(cache.get(&1), None);
    assert_consistent(&cache);
    assert_eq!(cache.stats().expired, 1);
}

/// ZER-02
#[test]
fn zer_02_for_ever_has_its_own_spelling() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(Duration::MAX).time_to_idle(Duration::MAX).build().unwrap();
    cache.insert(1, "a").unwrap();
    cache.insert_with(2, "b", for_one_second()).unwrap();
    cache.insert_with(3, "c", for_one_second().no_deadline()).unwrap();
    hand.set(secs(1_000_000_000));
    assert_eq!(cache.get_many(&[1, 2, 3]), [Some("a"), None, Some("c")]);
    assert_consistent(&cache);
}

/// ZER-04
#[test]
fn zer_04_a_window_shorter_than_the_time_to_live_does_not_shorten_it() {
    let (builder, hand) = timed();
    let hour = secs(3_600);
    let windows = InsertOptions::new().stale_if_error(secs(20));
    let cache = builder.time_to_live(hour).stale_if_error(secs(10)).build().unwrap();
    cache.insert(1, ()).unwrap();
    cache.insert_with(2, (), windows).unwrap();
    hand.set(hour - ms(1));
    assert!(cache.contains_key(&1) && cache.contains_key(&2));
    hand.set(hour + secs(10));
    assert_eq!((cache.get_on_error(&1), cache.contains_key(&2)), (None, false));
    assert_eq!(cache.get_on_error(&2), Some(((), EntryState::StaleOnError)));
    hand.set(hour + secs(20));
    assert_consistent(&cache);
    assert!(cache.is_empty());
}

/// ZER-04
#[test]
fn zer_04_settings_that_contradict_each_other_are_refused() {
    let settings = || timed::<()>().0;
    let refused = [
        settings().time_to_live(secs(1)).early_refresh(secs(2)).build().unwrap_err(),
        settings().early_refresh(secs(2)).build().unwrap_err(),
        settings().jitter(0.1).build().unwrap_err(),
        settings().time_to_live(secs(1)).jitter(1.5).build().unwrap_err(),
        settings().time_to_live(Duration::from_micros(1)).build().unwrap_err(),
        settings().max_weight(10).build().unwrap_err(),
        settings().weigher(|_, ()| 1).build().unwrap_err(),
        Cache::<u64, ()>::builder().build().unwrap_err(),
    ];
    let expected = [
        ConfigError::Order("early_refresh", "time_to_live"),
        ConfigError::Needs("early_refresh", "time_to_live"),
        ConfigError::Needs("jitter", "time_to_live"),
        ConfigError::Fraction("jitter", 1.5),
        ConfigError::TooShort("time_to_live"),
        ConfigError::TwoBudgets,
        ConfigError::WeigherWithoutWeight,
        ConfigError::NoBudget,
    ];
    assert_eq!(refused, expected);
}

/// ZER-04
#[test]
fn zer_04_windows_of_a_value_without_a_deadline_are_refused() {
    let cache = timed().0.build().unwrap();
    let windows = [
        InsertOptions::new().stale_while_revalidate(secs(10)),
        InsertOptions::new().stale_if_error(secs(10)),
    ];
    let reasons = windows.map(|options| {
        let result = cache.insert_with(1, (), options);
        result.map_err(|refused| refused.reason())
    });
    assert_eq!(reasons, [Err(RefusedReason::NoDeadline); 2]);
    assert_consistent(&cache);
}

/// ZER-04
#[test]
fn zer_04_an_early_refresh_is_due_no_earlier_than_a_short_lived_value_is_made() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(secs(60)).early_refresh(secs(60)).build().unwrap();
    hand.set(secs(100));
    for key in 0..100 {
        cache.insert_with(key, (), for_one_second()).unwrap();
    }
    hand.set(ms(99_999));
    assert!(cache.pin().iter().all(|entry| !entry.is_refresh_due()));
    hand.set(secs(101));
    assert_consistent(&cache);
    assert!(cache.is_empty());
}

/// ZER-04
#[test]
fn zer_04_a_time_to_idle_shorter_than_the_time_to_live_ends_unread_values_first() {
    let (builder, hand) = timed();
    let cache = builder.time_to_live(secs(60)).time_to_idle(secs(10)).build().unwrap();
    cache.insert(1, "read").unwrap();
    cache.insert(2, "unread").unwrap();
    for second in (5..60).step_by(5) {
        hand.set(secs(second));
        assert_eq!(cache.get(&1), Some("read"));
        assert_eq!(cache.contains_key(&2), second < 10);
    }
    hand.set(secs(60));
    assert_eq!(cache.get(&1), None);
    assert_consistent(&cache);
}

/// ZER-06
#[test]
fn zer_06_operations_on_no_keys_do_nothing() {
    let (builder, log) = Log::of(timed().0);
    let cache = builder.build().unwrap();
    cache.insert(1, 1).unwrap();
    let none: [u64; 0] = [];
    assert_eq!(cache.get_many(&none), []);
    cache.get_many_with(&none, |_, _| panic!("called for no key"));
    assert_eq!(cache.sweep(0), 0);
    assert!(!cache.invalidate_tag(""));
    assert_eq!(cache.invalidate_if(|_, _| false), 0);
    let stats = cache.stats();
    assert_eq!((stats.hits_fresh, stats.misses, stats.invalidated), (0, 0, 0));
    assert_eq!((cache.len(), log.take().len()), (1, 0));
    assert_consistent(&cache);
}

/// ZER-06
#[test]
fn zer_06_operations_on_an_empty_cache_do_nothing() {
    let cache = timed::<u64>().0.build().unwrap();
    assert_eq!(cache.get_many(&[1, 2]), [None, None]);
    assert_eq!(cache.invalidate_if(|_, _| panic!("called for no entry")), 0);
    assert_eq!(cache.remove(&1), None);
    assert!(!cache.invalidate(&1));
    assert!(!cache.mark_stale(&1));
    assert_eq!(cache.compute(1, |_| Compute::Remove).unwrap(), Computed::Kept);
    cache.invalidate_all();
    cache.set_capacity(0);
    assert_eq!((cache.iter().next(), cache.sweep(usize::MAX)), (None, 0));
    assert_consistent(&cache);
}

/// ZER-06
#[test]
fn zer_06_nothing_is_kept_in_a_cache_of_nothing() {
    let weighed = Cache::builder().max_weight(0).weigher(|_, _| 0);
    for builder in [Cache::builder().max_entries(0), weighed] {
        let (builder, log) = Log::of(builder);
        let cache = builder.build().unwrap();
        assert_eq!(cache.insert(1, "a").unwrap(), Inserted::NotKept);
        assert_eq!(cache.insert_if_absent(1, "a").unwrap(), Inserted::NotKept);
        let computed = cache.compute(1, |_| Compute::Insert("a")).unwrap();
        assert_eq!(computed, Computed::Inserted(Inserted::NotKept));
        let refused = cache.replace_if(1, "a", |_| true).unwrap_err();
        assert_eq!(refused.reason(), RefusedReason::Absent);
        assert_eq!((cache.get(&1), cache.len(), cache.capacity()), (None, 0, 0));
        assert!(log.take().is_empty());
        assert_consistent(&cache);
    }
}
