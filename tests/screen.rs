//! A Bloom filter in front of the loader (BLO-05).

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::block_on;
use seawall::bloom::{RebuildingFilter, plan};
use seawall::{Cache, Clock, LoadError, Source};

fn filter() -> Arc<RebuildingFilter> {
    Arc::new(RebuildingFilter::new(&plan(1_000, 0.001).unwrap()).unwrap())
}

fn screened(filter: &Arc<RebuildingFilter>) -> Cache<u32, u32> {
    Cache::builder().max_entries(100).screen(Arc::clone(filter)).build().unwrap()
}

#[test]
fn what_does_not_exist_is_not_asked_for() {
    let filter = filter();
    (0..100).for_each(|key| _ = filter.insert(&key));
    filter.mark_complete();
    let cache = screened(&filter);
    let calls = Cell::new(0);
    let load = |key: u32| {
        calls.set(calls.get() + 1);
        (key < 100).then_some(key)
    };
    for key in 0..200 {
        let outcome = cache.load(&key).run(|context| load(context.key)).unwrap();
        assert_eq!(outcome.value, (key < 100).then_some(key));
    }
    let maybe = (100..200).filter(|key| filter.check(key).lets_through()).count() as u64;
    assert!(maybe < 10);
    assert_eq!(calls.get(), 100 + maybe);
    assert_eq!(cache.load_stats().screened, 100 - maybe);
    assert_eq!(cache.load_stats().screen_unsure, 0);
    let outcome = cache.load(&5_000).run(|_| None::<u32>).unwrap();
    assert_eq!((outcome.value, outcome.source), (None, Source::Screened));
    let told = block_on(cache.get_or_load_async(&5_000, || async { 1 }));
    assert_eq!(told, Err(LoadError::Absent));
    let told = cache.get_or_load_many(&[3, 5_000], |_| -> Result<Vec<(u32, u32)>, ()> {
        unreachable!("nothing is left to load")
    });
    assert_eq!(told[1].as_ref().unwrap().source, Source::Screened);
}

#[test]
fn a_screen_that_cannot_tell_lets_through() {
    let filter = filter();
    let cache = screened(&filter);
    assert_eq!(cache.get_or_load(&1, || 1), Ok(1));
    assert_eq!(cache.load_stats().screen_unsure, 1);
    // What was loaded taught it.
    filter.mark_complete();
    cache.invalidate(&1);
    assert_eq!(cache.get_or_load(&1, || 2), Ok(2));
    assert_eq!(cache.get_or_load(&2, || 2), Err(LoadError::Absent));
    filter.mark_suspect();
    assert_eq!(cache.get_or_load(&2, || 2), Ok(2));
    assert_eq!((cache.load_stats().screen_unsure, cache.load_stats().screened), (2, 1));
}

#[test]
fn an_overfull_screen_lets_through_and_says_so() {
    let filter = Arc::new(RebuildingFilter::new(&plan(10, 0.5).unwrap()).unwrap());
    (0..10_000).for_each(|key| _ = filter.insert(&key));
    filter.mark_complete();
    let cache = screened(&filter);
    assert!(filter.is_overfull());
    assert_eq!(cache.get_or_load(&20_000, || 1), Ok(1));
    assert_eq!(cache.load_stats().screen_unsure, 1);
}

#[test]
fn blo_05_a_key_that_is_made_later_is_found_once_it_is_announced() {
    let (clock, hand) = Clock::manual();
    let filter = filter();
    filter.mark_complete();
    let cache: Cache<u32, u32> = Cache::builder()
        .max_entries(100)
        .screen(Arc::clone(&filter))
        .absent_time_to_live(Duration::from_secs(10))
        .clock(clock)
        .build()
        .unwrap();
    assert_eq!(cache.get_or_load(&1, || 1), Err(LoadError::Absent));
    assert_eq!(cache.stats().entries, 0, "not remembered a second time");
    // By a put.
    cache.insert(1, 10).unwrap();
    assert_eq!(cache.get_or_load(&1, || 1), Ok(10));
    cache.invalidate(&1);
    assert_eq!(cache.get_or_load(&1, || 11), Ok(11));
    // By the filter.
    assert_eq!(cache.get_or_load(&2, || 2), Err(LoadError::Absent));
    filter.insert(&2);
    assert_eq!(cache.get_or_load(&2, || 2), Ok(2));
    // A false positive is asked for, and remembered for its time only.
    filter.insert(&3);
    assert_eq!(cache.get_or_load(&3, || None::<u32>), Err(LoadError::Absent));
    assert_eq!(cache.get_or_load(&3, || 3), Err(LoadError::Absent));
    hand.advance(Duration::from_secs(10));
    assert_eq!(cache.get_or_load(&3, || 3), Ok(3));
}

#[test]
fn what_the_cache_has_is_served_whatever_the_screen_says() {
    let filter = filter();
    filter.mark_complete();
    let cache = screened(&filter);
    cache.insert(1, 1).unwrap();
    // Built anew from an origin that has the key no more.
    filter.rebuild(&plan(1_000, 0.001).unwrap()).unwrap().finish();
    assert_eq!(cache.get_or_load(&1, || 2), Ok(1));
    cache.invalidate(&1);
    assert_eq!(cache.get_or_load(&1, || 2), Err(LoadError::Absent));
}
