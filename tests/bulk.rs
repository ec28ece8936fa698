//! Get-or-load of many keys (COA-13, ZER-06), and warming up.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use futures_lite::future::{block_on, poll_once, zip};
use futures_lite::{Stream, stream};
use seawall::guard::{BreakerOptions, Rate};
use seawall::{Cache, Clock, Load, LoadError, Outcome, Source, WarmUpProgress};

type Told = Vec<Result<Outcome<u32>, LoadError<&'static str>>>;

fn values(told: Told) -> Vec<Option<u32>> {
    told.into_iter().map(|told| told.unwrap().value).collect()
}

fn times_ten(keys: Vec<u32>) -> Result<Vec<(u32, u32)>, &'static str> {
    Ok(keys.into_iter().map(|key| (key, key * 10)).collect())
}

#[test]
fn zer_06_no_keys_and_no_misses_are_no_call() {
    let cache: Cache<u32, u32> = Cache::new(10);
    let never = |_: Vec<u32>| -> Result<Vec<(u32, u32)>, &'static str> { unreachable!() };
    assert!(cache.get_or_load_many(&[0_u32; 0], never).is_empty());
    assert!(
        block_on(cache.get_or_load_many_async(&[0_u32; 0], |keys| async { never(keys) }))
            .is_empty()
    );
    cache.insert(1, 1).unwrap();
    cache.insert(2, 2).unwrap();
    assert_eq!(values(cache.get_or_load_many(&[2, 1, 2], never)), [Some(2), Some(1), Some(2)]);
}

#[test]
fn only_what_is_missing_is_asked_for_and_once() {
    let cache: Cache<u32, u32> = Cache::new(10);
    cache.insert(2, 2).unwrap();
    let mut asked = Vec::new();
    let told = cache.get_or_load_many(&[1, 2, 3, 1, 4], |keys| {
        asked.extend(keys.clone());
        Ok::<_, &str>([(1, Some(10)), (3, None), (99, Some(1))])
    });
    assert_eq!(asked, [1, 3, 4]);
    let sources: Vec<_> = told.iter().map(|told| told.as_ref().unwrap().source).collect();
    assert_eq!(sources[..4], [Source::Loaded, Source::Cached, Source::Loaded, Source::Joined]);
    assert_eq!(values(told), [Some(10), Some(2), None, Some(10), None]);
    assert_eq!((cache.len(), cache.contains_key(&99)), (2, false));
    assert_eq!((cache.load_stats().in_flight, cache.load_stats().waiting), (0, 0));
}

#[test]
fn an_error_of_the_batch_is_that_of_its_keys() {
    let cache: Cache<u32, u32> = Cache::new(10);
    cache.insert(2, 2).unwrap();
    let told = cache.get_or_load_many(&[1, 2], |_| Err::<Vec<(u32, u32)>, _>("down"));
    assert_eq!(told[0], Err(LoadError::Failed("down")));
    assert_eq!(told[1].as_ref().unwrap().value, Some(2));
    assert_eq!(cache.len(), 1);
}

#[test]
fn coa_13_overlapping_batches_load_each_key_once() {
    let cache: Cache<u32, u32> = Cache::new(10);
    let (entered, is_entered) = channel();
    let (open, opened) = channel::<()>();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let opened = opened;
            cache.get_or_load_many(&[1, 2, 3], |keys| {
                entered.send(keys.clone()).unwrap();
                opened.recv().unwrap();
                times_ten(keys)
            })
        });
        assert_eq!(is_entered.recv().unwrap(), [1, 2, 3]);
        let second = scope.spawn(|| {
            cache.get_or_load_many(&[1, 2, 5], |keys| {
                assert_eq!(keys, [5]);
                times_ten(keys)
            })
        });
        let third = scope.spawn(|| {
            cache.get_or_load_many(&[3, 1], |_| -> Result<Vec<(u32, u32)>, _> { unreachable!() })
        });
        while cache.load_stats().waiting < 4 {
            thread::yield_now();
        }
        open.send(()).unwrap();
        assert_eq!(values(first.join().unwrap()), [Some(10), Some(20), Some(30)]);
        assert_eq!(values(second.join().unwrap()), [Some(10), Some(20), Some(50)]);
        assert_eq!(values(third.join().unwrap()), [Some(30), Some(10)]);
    });
    assert_eq!((cache.load_stats().started, cache.load_stats().waiting), (4, 0));
}

#[test]
fn coa_13_two_batches_that_hold_what_the_other_wants_both_end() {
    for round in 0..if cfg!(miri) { 3 } else { 500 } {
        let cache: Cache<u32, u32> = Cache::new(100);
        let start = Barrier::new(2);
        let calls = AtomicU64::new(0);
        let load = |keys: Vec<u32>| {
            calls.fetch_add(keys.len() as u64, SeqCst);
            times_ten(keys)
        };
        thread::scope(|scope| {
            for keys in [[1, 2, 3, 4], [4, 3, 2, 1]] {
                let (cache, start, load) = (&cache, &start, &load);
                scope.spawn(move || {
                    start.wait();
                    let expected: Vec<_> = keys.iter().map(|key| Some(key * 10)).collect();
                    assert_eq!(values(cache.get_or_load_many(&keys, load)), expected, "{round}");
                });
            }
        });
        assert_eq!(calls.load(SeqCst), 4);
    }
}

#[test]
fn can_01_a_batch_that_is_dropped_passes_its_keys_on() {
    let cache: Cache<u32, u32> = Cache::new(10);
    let mut first = Box::pin(cache.get_or_load_many_async(&[1, 2], |_| {
        std::future::pending::<Result<Vec<(u32, u32)>, &str>>()
    }));
    assert!(block_on(poll_once(&mut first)).is_none());
    let second =
        async { cache.get_or_load_many_async(&[2, 7], |keys| async { times_ten(keys) }).await };
    let (told, ()) = block_on(zip(second, async { drop(first) }));
    assert_eq!(values(told), [Some(20), Some(70)]);
    assert_eq!(cache.load_stats().abandoned, 2);
    assert_eq!((cache.load_stats().in_flight, cache.load_stats().waiting), (0, 0));
}

#[test]
fn pan_01_a_batch_that_panics_frees_its_keys() {
    let cache: Cache<u32, u32> = Cache::new(10);
    let panicked = std::panic::catch_unwind(|| {
        cache.get_or_load_many(&[1, 2], |_| -> Result<Vec<(u32, u32)>, &str> { panic!("boom") })
    });
    assert!(panicked.is_err());
    assert_eq!(values(cache.get_or_load_many(&[1, 2], times_ten)), [Some(10), Some(20)]);
    assert_eq!((cache.load_stats().in_flight, cache.load_stats().panicked), (0, 2));
}

#[test]
fn a_stale_key_is_loaded_with_the_others_and_its_value_covers_a_failure() {
    let (clock, hand) = Clock::manual();
    let cache: Cache<u32, u32> = Cache::builder()
        .max_entries(10)
        .time_to_live(Duration::from_secs(1))
        .stale_if_error(Duration::from_secs(60))
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(Duration::from_secs(2));
    let told = cache.get_or_load_many(&[1, 2], |_| Err::<Vec<(u32, u32)>, _>("down"));
    assert_eq!(told[0].as_ref().unwrap().value, Some(1));
    assert_eq!(told[1], Err(LoadError::Failed("down")));
    assert_eq!(values(cache.get_or_load_many(&[1, 2], times_ten)), [Some(10), Some(20)]);
}

// Warming up

#[test]
fn a_warm_up_loads_what_is_missing() {
    let cache: Cache<u32, u32> = Cache::new(1_000);
    cache.insert(5, 5).unwrap();
    let told = AtomicU64::new(0);
    let warm_up = cache.warm_up(0..100).concurrency(3).on_progress(|progress| {
        told.fetch_max(progress.done, SeqCst);
    });
    let progress = warm_up.run(|context| match context.key {
        7 => Ok(Load::Absent),
        8 => Err("down"),
        key => Ok(Load::Value(key)),
    });
    assert_eq!(told.into_inner(), 100);
    let WarmUpProgress { done, loaded, present, absent, failed, gave_way, .. } = progress;
    assert_eq!((done, loaded, present, absent, failed, gave_way), (100, 97, 1, 1, 1, 0));
    assert_eq!(cache.len(), 98);
    assert_eq!(cache.load_stats().in_flight, 0);
}

#[test]
fn a_warm_up_uses_its_share_of_the_permits_only() {
    let cache: Cache<u32, u32> =
        Cache::builder().max_entries(1_000).max_in_flight(4).background_share(0.5).build().unwrap();
    let running = Arc::new(AtomicU64::new(0));
    let peak = AtomicU64::new(0);
    let progress = cache.warm_up(0..20).concurrency(4).run(|context| {
        peak.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
        thread::yield_now();
        running.fetch_sub(1, SeqCst);
        context.key
    });
    assert_eq!((progress.done, progress.loaded), (20, 20));
    assert!(peak.into_inner() <= 2);
}

#[test]
fn a_warm_up_can_be_paused_and_ended() {
    let cache: Cache<u32, u32> = Cache::new(1_000);
    let warm_up = cache.warm_up(0..).concurrency(2);
    let control = warm_up.control();
    let ender = warm_up.control();
    let warm_up = warm_up.on_progress(move |progress| {
        if progress.done == 10 {
            ender.end();
        }
    });
    control.pause();
    let mut run = Box::pin(warm_up.run_async(|context| async move { context.key }));
    assert!(block_on(poll_once(&mut run)).is_none());
    assert_eq!(cache.load_stats().started, 0);
    control.resume();
    let progress = block_on(run);
    assert!((10..=11).contains(&progress.done), "two were in progress: {progress:?}");
    assert_eq!(cache.len() as u64, progress.done);
}

/// Keys that come when they are sent. Panics if it is polled after its end.
fn sent_keys() -> (Sender<u32>, Arc<Mutex<Option<Waker>>>, impl Stream<Item = u32>) {
    let (send, receive) = channel();
    let waker = Arc::new(Mutex::new(None));
    let mut ended = false;
    let keys = stream::poll_fn({
        let waker = Arc::clone(&waker);
        move |cx| {
            assert!(!ended, "polled after its end");
            *waker.lock().unwrap() = Some(cx.waker().clone());
            match receive.try_recv() {
                Ok(key) => Poll::Ready(Some(key)),
                Err(TryRecvError::Empty) => Poll::Pending,
                Err(TryRecvError::Disconnected) => {
                    ended = true;
                    Poll::Ready(None)
                }
            }
        }
    });
    (send, waker, keys)
}

#[test]
fn a_warm_up_loads_the_keys_of_a_stream_as_they_come() {
    let cache: Cache<u32, u32> = Cache::new(1_000);
    let (send, _, keys) = sent_keys();
    let warm_up = cache.warm_up_stream(keys).concurrency(3);
    let mut run = Box::pin(warm_up.run_async(|context| async move { context.key }));
    for key in 0..10 {
        assert!(block_on(poll_once(&mut run)).is_none());
        assert_eq!((cache.len(), cache.get(&key)), (key as usize, None));
        send.send(key).unwrap();
    }
    drop(send);
    assert_eq!(block_on(run).loaded, 10);
}

#[test]
fn a_warm_up_that_waits_for_keys_can_be_ended() {
    let cache: Cache<u32, u32> = Cache::new(1_000);
    let (send, waker, keys) = sent_keys();
    let warm_up = cache.warm_up_stream(keys);
    let control = warm_up.control();
    send.send(7).unwrap();
    let run = thread::scope(|scope| {
        let run = scope.spawn(|| block_on(warm_up.run_async(|context| async move { context.key })));
        while cache.get(&7).is_none() || waker.lock().unwrap().is_none() {
            thread::yield_now();
        }
        control.end();
        run.join().unwrap()
    });
    assert_eq!((run.done, run.loaded), (1, 1));
    drop(send);
}

#[test]
fn a_warm_up_gives_way_to_a_sick_origin_and_keeps_its_rate() {
    let (clock, hand) = Clock::manual();
    let breaker = BreakerOptions::new().consecutive_failures(1).open_for(Duration::from_secs(5));
    let cache: Cache<u32, u32> =
        Cache::builder().max_entries(1_000).breaker(breaker).clock(clock).build().unwrap();
    let mut calls = Vec::new();
    let failing = std::cell::Cell::new(true);
    {
        let started = std::sync::Mutex::new(&mut calls);
        let warm_up =
            cache.warm_up(0..3).concurrency(1).rate(Rate::new(1, Duration::from_secs(1)).unwrap());
        let mut run = Box::pin(warm_up.run_async(|context| {
            started.lock().unwrap().push((context.key, hand.now()));
            let fails = failing.replace(false);
            async move { if fails { Err("down") } else { Ok(context.key) } }
        }));
        for _ in 0..20 {
            if block_on(poll_once(&mut run)).is_some() {
                break;
            }
            hand.advance(Duration::from_secs(1));
        }
    }
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[0], (0, Duration::ZERO));
    assert!(calls[1].1 >= Duration::from_secs(5), "{calls:?}");
    assert!(calls[2].1 >= calls[1].1 + Duration::from_secs(1), "{calls:?}");
}
