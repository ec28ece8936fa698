//! Keys and their hashes (HAS), and arithmetic at its limits (OVR).

mod common;

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{Few, Fixed, Identity, Told, audit, audit_entries};
use seawall::{
    Builder, Cache, Clock, EntryState, Equivalent, InsertOptions, Inserted, ManualClock,
    RefusedReason, RemovalCause,
};

/// As many keys as one place in the table has room for.
const PLACES: u32 = 24;

fn colliding(hashes: u64, keys: u32) -> Cache<u32, u32, Few> {
    let cache = Cache::builder().max_entries(1_000).hasher(Few(hashes)).build().unwrap();
    for key in 0..keys {
        cache.insert(key, key * 10).unwrap();
    }
    cache
}

// HAS-01

#[test]
fn has_01_equal_hashes_never_answer_for_one_another() {
    for hashes in [1, 2] {
        let cache = colliding(hashes, 100);
        let kept = (0..100).filter(|key| cache.get(key).is_some()).count();
        assert!((0..100).all(|key| cache.get(&key).is_none_or(|value| value == key * 10)));
        assert_eq!(kept, 24 * hashes as usize, "what the builder's documentation promises");
        audit_entries(&cache);
    }
}

#[test]
fn has_01_two_dozen_keys_of_one_hash_are_all_kept() {
    let cache = colliding(1, PLACES);
    for key in 0..PLACES {
        assert_eq!(cache.get(&key), Some(key * 10));
    }
    assert_eq!(cache.stats().evicted, 0);
}

#[test]
fn has_01_invalidating_one_of_equal_hashes_leaves_the_others() {
    let cache = colliding(1, PLACES);
    assert!(cache.invalidate(&7));
    assert_eq!(cache.remove(&8), Some(80));
    assert!(!cache.invalidate(&PLACES), "a key of the same hash that is not there");
    for key in 0..PLACES {
        let expected = ![7, 8].contains(&key);
        assert_eq!(cache.get(&key), expected.then_some(key * 10));
    }
    audit_entries(&cache);
}

#[test]
fn has_01_replacing_one_of_equal_hashes_leaves_the_others() {
    let cache = colliding(1, PLACES);
    assert_eq!(cache.insert(5, 1), Ok(Inserted::Replaced));
    assert_eq!(cache.replace_if(6, 2, |entry| *entry.key() == 6), Ok(Inserted::Replaced));
    for key in 0..PLACES {
        let expected = match key {
            5 => 1,
            6 => 2,
            _ => key * 10,
        };
        assert_eq!(cache.get(&key), Some(expected));
    }
}

#[test]
fn has_01_deadlines_tags_and_versions_belong_to_one_key_of_equal_hashes() {
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(100)
        .time_to_live(Duration::from_secs(100))
        .stale_while_revalidate(Duration::from_secs(100))
        .clock(clock)
        .hasher(Few(1))
        .build()
        .unwrap();
    let short = InsertOptions::new()
        .time_to_live(Duration::from_secs(1))
        .stale_while_revalidate(Duration::ZERO);
    cache.insert_with(0, "short", short).unwrap();
    cache.insert_with(1, "tagged", InsertOptions::new().tag("t")).unwrap();
    cache.insert_with(2, "version 9", InsertOptions::new().version(9)).unwrap();
    cache.insert(3, "marked").unwrap();
    cache.insert(4, "plain").unwrap();

    hand.advance(Duration::from_secs(2));
    assert!(cache.invalidate_tag("t"));
    assert!(cache.mark_stale(&3));
    let older = cache.insert_with(2, "version 8", InsertOptions::new().version(8)).unwrap_err();

    assert_eq!(older.reason(), RefusedReason::Older { than: 9 });
    assert_eq!(cache.get(&0), None);
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.get(&2), Some("version 9"));
    let state = |key| cache.get_with(&key, |entry| (*entry.value(), entry.state()));
    assert_eq!(state(3), Some(("marked", EntryState::Stale)));
    assert_eq!(state(4), Some(("plain", EntryState::Fresh)));
    assert!(cache.insert_with(4, "other", InsertOptions::new().version(1)).is_ok());
}

#[test]
fn has_01_the_listener_is_told_the_right_key_of_equal_hashes() {
    let told = Told::new();
    let cache = Cache::builder()
        .max_entries(100)
        .hasher(Few(1))
        .removal_listener(told.listener())
        .build()
        .unwrap();
    for key in 0..PLACES {
        cache.insert(key, key * 10).unwrap();
    }
    cache.invalidate(&3);
    cache.remove(&4);
    cache.insert(5, 1).unwrap();
    let expected = [
        (3, 30, RemovalCause::Invalidated),
        (4, 40, RemovalCause::Removed),
        (5, 50, RemovalCause::Replaced),
    ];
    assert_eq!(told.take(), expected);
}

#[test]
fn has_01_threads_on_keys_of_one_hash_do_not_disturb_one_another() {
    let cache = colliding(1, 0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..500 {
                    let value = round * 4 + thread;
                    cache.insert(thread, value).unwrap();
                    assert_eq!(cache.get(&thread), Some(value));
                    if round % 3 == 0 {
                        assert_eq!(cache.remove(&thread), Some(value));
                        assert_eq!(cache.get(&thread), None);
                    }
                }
            });
        }
    });
    audit_entries(&cache);
}

// HAS-03

#[test]
fn has_03_a_string_is_found_by_a_str_in_every_call() {
    let cache: Cache<String, u32> = Cache::new(100);
    cache.insert("a".to_owned(), 1).unwrap();
    assert_eq!(cache.get("a"), Some(1));
    assert_eq!(cache.get_with("a", |entry| *entry.value()), Some(1));
    assert_eq!(cache.peek("a"), Some(1));
    assert_eq!(cache.get_on_error("a"), Some((1, EntryState::Fresh)));
    assert_eq!(cache.get_many(["a", "b"]), [Some(1), None]);
    assert_eq!(cache.pin().get("a").map(|entry| *entry.value()), Some(1));
    assert!(cache.contains_key("a"));
    assert!(cache.mark_stale("a"));
    cache.insert("a".to_owned(), 2).unwrap();
    assert!(cache.invalidate("a"));
    cache.insert("a".to_owned(), 3).unwrap();
    assert_eq!(cache.remove("a"), Some(3));
    assert_eq!(cache.len(), 0);
}

#[test]
fn has_03_vectors_and_pointers_are_found_by_what_they_hold() {
    let bytes: Cache<Vec<u8>, u32> = Cache::new(100);
    bytes.insert(vec![1, 2], 1).unwrap();
    assert_eq!(bytes.get(&[1_u8, 2][..]), Some(1));

    let shared: Cache<Arc<u64>, u32> = Cache::new(100);
    shared.insert(Arc::new(7), 2).unwrap();
    assert_eq!(shared.get(&7_u64), Some(2));

    let names: Cache<Arc<str>, u32> = Cache::new(100);
    names.insert("n".into(), 3).unwrap();
    assert_eq!(names.get("n"), Some(3));

    let boxes: Cache<Box<[u16]>, u32> = Cache::new(100);
    boxes.insert(Box::new([9]), 4).unwrap();
    assert_eq!(boxes.get(&[9_u16][..]), Some(4));
}

#[test]
fn has_03_a_foreign_form_finds_the_key_that_it_is_equivalent_to() {
    #[derive(Hash)]
    struct Pair<'a>(&'a str, u32);

    impl Equivalent<(String, u32)> for Pair<'_> {
        fn equivalent(&self, key: &(String, u32)) -> bool {
            self.0 == key.0 && self.1 == key.1
        }
    }

    let cache: Cache<(String, u32), u32> = Cache::new(100);
    cache.insert(("a".to_owned(), 1), 11).unwrap();
    cache.insert(("a".to_owned(), 2), 12).unwrap();
    assert_eq!(cache.get(&Pair("a", 1)), Some(11));
    assert_eq!(cache.remove(&Pair("a", 2)), Some(12));
    assert!(!cache.invalidate(&Pair("b", 1)));
}

#[test]
fn has_03_keys_that_carry_their_hash_work_with_the_identity_hasher() {
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Hashed(u64);

    impl Hash for Hashed {
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write_u64(self.0);
        }
    }

    let cache = Cache::builder().max_entries(4_000).hasher(Identity::default()).build().unwrap();
    for key in 0..2_000 {
        cache.insert(Hashed(key), key).unwrap();
    }
    assert!((0..2_000).all(|key| cache.get(&Hashed(key)) == Some(key)));
    assert_eq!(cache.len(), 2_000, "small numbers as hashes are spread over the table");
}

#[test]
fn has_03_storing_one_key_again_and_again_makes_one_entry() {
    let cache: Cache<String, u32> = Cache::new(100);
    let key = "the only one".to_owned();
    for value in 0..20_000 {
        cache.insert(key.clone(), value).unwrap();
    }
    assert_eq!(cache.len(), 1);
    assert_eq!(cache.weight(), 1);
    assert_eq!(cache.get(key.as_str()), Some(19_999));
}

// OVR-01

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn ages() -> [Duration; 4] {
    [
        Duration::MAX,
        Duration::from_millis(u64::MAX),
        Duration::from_millis(u64::MAX - 1),
        YEAR * 1_000,
    ]
}

/// A builder with a clock that shows the cache's zero, and one with a clock that ran for long.
fn clocks() -> [(Builder<u32, u32>, ManualClock); 2] {
    [Duration::ZERO, YEAR * 1_000].map(|start| {
        let (clock, hand) = Clock::manual();
        hand.set(start);
        (Cache::builder().max_entries(10).clock(clock), hand)
    })
}

#[test]
fn ovr_01_a_huge_time_to_live_does_not_end() {
    for ttl in ages() {
        for jitter in [0.0, 0.5] {
            for (builder, hand) in clocks() {
                let cache = builder.time_to_live(ttl).jitter(jitter).build().unwrap();
                cache.insert(1, 1).unwrap();
                assert_eq!(cache.get(&1), Some(1), "{ttl:?}");
                hand.advance(YEAR * 400);
                assert_eq!(cache.sweep(usize::MAX), 0);
                assert_eq!(cache.get(&1), Some(1), "{ttl:?} with jitter {jitter}");
            }
        }
    }
}

#[test]
fn ovr_01_a_huge_time_to_live_of_one_entry_does_not_end() {
    for ttl in ages() {
        for (builder, hand) in clocks() {
            let cache = builder.time_to_live(Duration::from_secs(1)).build().unwrap();
            cache.insert_with(1, 1, InsertOptions::new().time_to_live(ttl)).unwrap();
            hand.advance(YEAR * 400);
            assert_eq!(cache.sweep(usize::MAX), 0);
            assert_eq!(cache.get(&1), Some(1), "{ttl:?}");
        }
    }
}

#[test]
fn ovr_01_a_thousand_years_end_to_the_millisecond() {
    for (builder, hand) in clocks() {
        let cache = builder.time_to_live(YEAR * 1_000).build().unwrap();
        cache.insert(1, 1).unwrap();
        hand.advance(YEAR * 1_000 - Duration::from_millis(1));
        assert_eq!(cache.get(&1), Some(1));
        hand.advance(Duration::from_millis(1));
        assert_eq!(cache.get(&1), None);
    }
}

#[test]
fn ovr_01_huge_stale_windows_do_not_end() {
    for window in ages() {
        for (builder, hand) in clocks() {
            let cache = builder
                .time_to_live(Duration::from_secs(1))
                .stale_while_revalidate(window)
                .stale_if_error(window)
                .build()
                .unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(YEAR * 400);
            assert_eq!(cache.sweep(usize::MAX), 0);
            assert_eq!(cache.get_on_error(&1), Some((1, EntryState::Stale)), "{window:?}");
        }
    }
}

#[test]
fn ovr_01_marking_stale_with_huge_windows_does_not_overflow() {
    for window in ages() {
        for (builder, hand) in clocks() {
            let cache = builder
                .time_to_live(window)
                .stale_while_revalidate(window)
                .stale_if_error(window)
                .build()
                .unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(YEAR);
            assert!(cache.mark_stale(&1));
            assert_eq!(cache.get_on_error(&1), Some((1, EntryState::Stale)), "{window:?}");
        }
    }
}

#[test]
fn ovr_01_a_huge_time_to_idle_does_not_end() {
    for idle in ages() {
        for (builder, hand) in clocks() {
            let cache = builder.time_to_idle(idle).build().unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(YEAR * 400);
            assert_eq!(cache.sweep(usize::MAX), 0);
            assert_eq!(cache.get(&1), Some(1), "{idle:?}");
        }
    }
}

#[test]
fn ovr_01_an_early_refresh_as_long_as_a_huge_life_does_not_overflow() {
    for ttl in ages() {
        for (builder, _) in clocks() {
            let cache = builder.time_to_live(ttl).early_refresh(ttl).jitter(0.5).build().unwrap();
            for key in 0..10 {
                cache.insert(key, key).unwrap();
                assert_eq!(cache.get_with(&key, |entry| entry.state()), Some(EntryState::Fresh));
            }
        }
    }
}

#[test]
fn ovr_01_a_clock_at_its_end_does_not_overflow() {
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(10)
        .time_to_live(Duration::from_secs(1))
        .time_to_idle(Duration::from_secs(1))
        .stale_if_error(Duration::from_secs(1))
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.set(Duration::MAX);
    assert_eq!(cache.get(&1), None);
    cache.insert(2, 2).unwrap();
    cache.get(&2);
    cache.mark_stale(&2);
    cache.invalidate_all();
    cache.sweep(usize::MAX);
    assert_eq!(cache.get(&2), None);
}

#[test]
fn ovr_01_a_value_that_is_as_old_as_can_be_is_dead() {
    for (builder, _) in clocks() {
        let cache = builder.time_to_live(YEAR).build().unwrap();
        cache.insert_with(1, 1, InsertOptions::new().age(Duration::MAX)).unwrap();
        assert_eq!(cache.get(&1), None);
    }
}

/// Deadlines count from the birth that the age tells, however long before the cache that was.
#[test]
fn ovr_01_an_age_above_the_time_to_live_is_dead_also_where_both_are_long() {
    for (builder, _) in clocks() {
        let cache = builder.time_to_live(YEAR * 10).build().unwrap();
        cache.insert_with(1, 1, InsertOptions::new().age(YEAR * 11)).unwrap();
        assert_eq!(cache.get(&1), None);
    }
}

// OVR-03

/// What a hash must be for the table to see `wanted`: the crate multiplies to spread weak hashes.
fn hash_that_spreads_to(wanted: u64) -> u64 {
    let factor: u64 = 0x9E37_79B9_7F4A_7C15;
    let inverse = (0..6).fold(factor, |inverse: u64, _| {
        inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)))
    });
    assert_eq!(factor.wrapping_mul(inverse), 1);
    let folded = wanted.wrapping_mul(inverse);
    folded ^ folded >> 32
}

#[test]
fn ovr_03_hashes_at_the_ends_of_their_range_fit_tables_of_every_size() {
    let edges = [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, u64::MAX >> 32];
    let keys: HashSet<u64> =
        edges.into_iter().chain(edges.into_iter().map(hash_that_spreads_to)).collect();
    for capacity in (1..300).chain([1_000, 4_097]) {
        let cache =
            Cache::builder().max_entries(capacity).hasher(Identity::default()).build().unwrap();
        for &key in &keys {
            assert_eq!(cache.insert(key, key), Ok(Inserted::New));
            assert_eq!(cache.get(&key), Some(key));
        }
        assert_eq!(cache.iter().count(), keys.len().min(capacity as usize));
        assert!(cache.iter().all(|(key, value)| key == value));
        audit_entries(&cache);
    }
}

fn weighed(capacity: u64) -> Cache<u64, u64, Fixed> {
    Cache::builder()
        .max_weight(capacity)
        .weigher(|_: &u64, weight: &u64| *weight)
        .hasher(Fixed::default())
        .build()
        .unwrap()
}

/// As after very many inserts: each moves the counters on by a sizeable part of their range.
#[test]
fn ovr_03_counters_that_wrap_round_keep_the_accounts_right() {
    let cache = weighed(1 << 61);
    for key in 0..5_000 {
        cache.insert(key, 1 << 59).unwrap();
        assert!(cache.weight() <= 1 << 61);
    }
    audit(&cache, |_, weight| *weight);
    assert_eq!(cache.len(), 4);
}

#[test]
fn ovr_03_weights_near_the_end_of_their_range_do_not_overflow() {
    let big = i64::MAX as u64;
    let weights = [1, big / 2, big - 1, big, big + 1, u64::MAX / 3 * 2, u64::MAX - 1, u64::MAX];
    for capacity in [big - 1, big, big + 1, u64::MAX - 1, u64::MAX] {
        let cache = weighed(capacity);
        for round in 0..200 {
            // Different keys, so that new ones push out old ones, and now and then the same again.
            let weight = weights[round % weights.len()];
            let _ = cache.insert(round as u64 % 7, weight);
            assert!(cache.weight() <= cache.capacity());
        }
        for key in 0..7 {
            cache.remove(&key);
        }
        assert_eq!(cache.len(), 0);
        assert_eq!(cache.weight(), 0, "of a capacity of {capacity}");
    }
}

#[test]
fn ovr_03_the_weight_of_a_few_heavy_entries_is_their_sum() {
    let cache = weighed(u64::MAX);
    cache.insert(1, (1 << 61) - 5).unwrap();
    cache.insert(2, 5).unwrap();
    cache.remove(&1);
    assert_eq!(cache.weight(), 5);
}
