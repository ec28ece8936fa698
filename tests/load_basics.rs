//! What get-or-load returns, one caller at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_lite::future::block_on;
use seawall::{
    Cache, Clock, EntryState, InsertOptions, Load, LoadError, Outcome, Source, WhyStale,
};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_value_is_loaded_once() {
    let cache: Cache<String, u32> = Cache::new(10);
    assert_eq!(cache.get_or_load("a", || 1), Ok(1));
    assert_eq!(cache.get_or_load("a", || -> u32 { unreachable!() }), Ok(1));
    assert_eq!(cache.get("a"), Some(1));
    assert_eq!(cache.len(), 1);
    assert_eq!(cache.load_stats().started, 1);
    assert_eq!(cache.load_stats().in_flight, 0);
}

#[test]
fn a_value_is_loaded_once_async() {
    let cache: Cache<String, u32> = Cache::new(10);
    assert_eq!(block_on(cache.get_or_load_async("a", || async { 1 })), Ok(1));
    assert_eq!(cache.get("a"), Some(1));
    let local = std::rc::Rc::new(7);
    let loaded = block_on(cache.load("b").run_local(|_| async { *local }));
    assert_eq!(loaded.unwrap().value, Some(7));
    assert_eq!(cache.len(), 2);
}

/// One for the cache: the caller gets the loader's own. A value may be dear to copy.
#[test]
fn a_value_that_nobody_else_waits_for_is_copied_once() {
    #[derive(Debug)]
    struct Dear(Arc<AtomicU32>);
    impl Clone for Dear {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Ordering::Relaxed);
            Dear(Arc::clone(&self.0))
        }
    }
    let (cache, copies) = (Cache::<u32, Dear>::new(10), Arc::new(AtomicU32::new(0)));
    let dear = || Dear(Arc::clone(&copies));
    cache.get_or_load(&1, dear).unwrap();
    assert_eq!(copies.load(Ordering::Relaxed), 1);
    block_on(cache.load(&2).run_local(|_| async { dear() })).unwrap();
    assert_eq!(copies.load(Ordering::Relaxed), 2);
}

#[test]
fn every_kind_of_answer_is_told_apart() {
    let cache: Cache<u32, u32> =
        Cache::builder().max_entries(10).absent_time_to_live(secs(10)).build().unwrap();
    assert_eq!(cache.get_or_load(&1, || Err::<u32, _>("down")), Err(LoadError::Failed("down")));
    assert_eq!(cache.get_or_load(&1, || None::<u32>), Err(LoadError::Absent));
    assert_eq!(cache.get_or_load(&1, || 1), Err(LoadError::Absent));
    let outcome = cache.load(&1).run(|_| 1).unwrap();
    assert_eq!((outcome.value, outcome.source), (None, Source::Cached));
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.stats().hits_absent, 3);
    cache.insert(1, 5).unwrap();
    assert_eq!(cache.get_or_load(&1, || 1), Ok(5));
    assert_eq!(cache.load(&2).run(|_| Load::NotStored(9)).unwrap().value, Some(9));
    assert_eq!(cache.get(&2), None);
    let outcome: Result<Outcome<u32>, _> = cache.load(&3).run(|_| Load::Unchanged);
    assert_eq!(outcome, Err(LoadError::NothingToKeep));
    let nested = cache.get_or_load(&4, || cache.get_or_load(&4, || 1));
    assert_eq!(nested, Err(LoadError::Failed(LoadError::Reentrant)));
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_stale_value_covers_an_error_until_its_window_ends() {
    let (clock, hand) = Clock::manual();
    let cache: Cache<u32, u32> = Cache::builder()
        .max_entries(10)
        .time_to_live(secs(10))
        .stale_if_error(secs(20))
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(15));
    let outcome = cache.load(&1).run(|_| Err::<u32, _>("down")).unwrap();
    assert_eq!((outcome.value, outcome.source), (Some(1), Source::Stale(WhyStale::Failed)));
    assert_eq!(outcome.age, Some(secs(15)));
    hand.advance(secs(16));
    assert_eq!(cache.get_or_load(&1, || Err::<u32, _>("down")), Err(LoadError::Failed("down")));
    assert_eq!(cache.get_or_load(&1, || 2), Ok(2));
}

#[test]
fn unchanged_keeps_the_value_with_new_deadlines() {
    let (clock, hand) = Clock::manual();
    let cache: Cache<u32, u32> = Cache::builder()
        .max_entries(10)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(20))
        .clock(clock)
        .build()
        .unwrap();
    cache.insert_with(1, 1, InsertOptions::new().version(3).tag("t")).unwrap();
    hand.advance(secs(15));
    let outcome = cache
        .load(&1)
        .run(|context| {
            assert_eq!((context.previous, context.previous_version), (Some(1), Some(3)));
            Load::Unchanged
        })
        .unwrap();
    assert_eq!((outcome.value, outcome.source), (Some(1), Source::Loaded));
    assert_eq!(
        cache.get_with(&1, |e| (e.state(), e.version())),
        Some((EntryState::Fresh, Some(3)))
    );
    hand.advance(secs(9));
    assert_eq!(cache.get_with(&1, |e| e.state()), Some(EntryState::Fresh));
    assert!(cache.invalidate_tag("t"));
    assert_eq!(cache.get(&1), None);
}
