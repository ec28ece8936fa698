//! The loads that a guard must survive, each with the calls that reach the origin counted: one absent key
//! asked over and over, ever new absent keys, one hot key that expires, the whole cache lost at once, and
//! refreshes that fail on and on until the hard deadline. Blocking, on tokio, and on another executor.

mod common;
#[path = "common/paced.rs"]
mod paced;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use common::loads::{Form, Gate, Polled, Runtime, assert_at_rest, assert_no_load_runs, until};
use common::{Few, ignore, must_end};
use futures_lite::future::block_on;
use paced::secs;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use seawall::guard::{Backoff, BreakerOptions, BreakerState, Refusal};
use seawall::{
    BoxFuture, Builder, Cache, Clock, Compute, EntryState, InsertOptions, Load, LoadError,
    ManualClock,
};

/// An origin that counts its calls, how many run at once, and answers as a test says.
#[derive(Clone)]
struct Origin(Arc<Calls>);

struct Calls {
    calls: AtomicUsize,
    inside: AtomicUsize,
    most: AtomicUsize,
    says: AtomicU64,
    /// While it is closed, calls wait at it.
    gate: std::sync::Mutex<Gate<()>>,
}

const ABSENT: u64 = u64::MAX;
const DOWN: u64 = u64::MAX - 1;

type Said = Result<Option<u64>, &'static str>;
type Told = Result<u64, LoadError<&'static str>>;

impl Origin {
    fn new(says: u64) -> Self {
        let (calls, inside, most) = Default::default();
        let gate = std::sync::Mutex::new(Gate::opened(()));
        Origin(Arc::new(Calls { calls, inside, most, says: AtomicU64::new(says), gate }))
    }

    fn set(&self, says: u64) {
        self.0.says.store(says, SeqCst);
    }

    fn calls(&self) -> usize {
        self.0.calls.load(SeqCst)
    }

    /// The most calls that ran at the same time.
    fn most(&self) -> usize {
        self.0.most.load(SeqCst)
    }

    /// Has calls wait from now on, until the gate that this returns is opened.
    fn close(&self) -> Gate<()> {
        let gate = Gate::new();
        *common::lock(&self.0.gate) = gate.clone();
        gate
    }

    fn enter(&self) -> Gate<()> {
        self.0.calls.fetch_add(1, SeqCst);
        let inside = self.0.inside.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(inside, SeqCst);
        common::lock(&self.0.gate).clone()
    }

    fn leave(&self) -> Said {
        self.0.inside.fetch_sub(1, SeqCst);
        match self.0.says.load(SeqCst) {
            ABSENT => Ok(None),
            DOWN => Err("down"),
            value => Ok(Some(value)),
        }
    }

    fn ask(&self) -> Said {
        self.enter().pass();
        self.leave()
    }

    fn ask_async(&self) -> impl Future<Output = Said> + Send + use<> {
        let origin = self.clone();
        async move {
            let gate = origin.enter();
            gate.pass_async().await;
            // A load takes several polls.
            futures_lite::future::yield_now().await;
            origin.leave()
        }
    }
}

/// Where the callers of a storm run.
enum Sky {
    Threads,
    Tasks(&'static str, Runtime),
}

impl Sky {
    fn each() -> Vec<Sky> {
        let tasks = Runtime::each().into_iter().map(|(name, runtime)| Sky::Tasks(name, runtime));
        std::iter::once(Sky::Threads).chain(tasks).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Sky::Threads => "threads",
            Sky::Tasks(name, _) => name,
        }
    }

    /// `callers` ask at the same time, each for all of its keys, one after the other; returns what all
    /// were told. `meanwhile` runs once all have begun.
    fn storm(
        &self,
        cache: &Cache<u64, u64>,
        origin: &Origin,
        callers: usize,
        keys: impl Fn(usize) -> Vec<u64>,
        meanwhile: impl FnOnce(),
    ) -> Vec<Told> {
        let begun = Arc::new(AtomicUsize::new(0));
        match self {
            Sky::Threads => {
                let callers: Vec<_> = (0..callers)
                    .map(|caller| {
                        let (cache, origin, begun) =
                            (cache.clone(), origin.clone(), Arc::clone(&begun));
                        let keys = keys(caller);
                        thread::spawn(move || {
                            begun.fetch_add(1, SeqCst);
                            let ask = |key| cache.get_or_load(key, || origin.ask());
                            keys.iter().map(ask).collect::<Vec<_>>()
                        })
                    })
                    .collect();
                until(|| begun.load(SeqCst) == callers.len());
                meanwhile();
                callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
            }
            Sky::Tasks(_, runtime) => runtime.block_on(async {
                let tasks: Vec<_> = (0..callers)
                    .map(|caller| {
                        let (cache, origin, begun) =
                            (cache.clone(), origin.clone(), Arc::clone(&begun));
                        let keys = keys(caller);
                        runtime.spawn(async move {
                            begun.fetch_add(1, SeqCst);
                            let mut told = Vec::new();
                            for key in keys {
                                let load = cache.get_or_load_async(&key, || origin.ask_async());
                                told.push(load.await);
                            }
                            told
                        })
                    })
                    .collect();
                so(|| begun.load(SeqCst) == callers).await;
                meanwhile();
                let mut told = Vec::new();
                for task in tasks {
                    told.extend(task.end().await);
                }
                told
            }),
        }
    }
}

/// Waits until something is so, and lets other tasks run.
async fn so(mut so: impl FnMut() -> bool) {
    futures_lite::future::poll_fn(|cx| {
        if so() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

const CALLERS: usize = 32;

fn guarded() -> (Builder<u64, u64>, ManualClock) {
    let (clock, hand) = Clock::manual();
    (Cache::builder().max_entries(1_000).clock(clock), hand)
}

/// Refreshes run on threads of their own.
fn refreshing(builder: Builder<u64, u64>, origin: &Origin) -> Cache<u64, u64> {
    let refresher = origin.clone();
    builder
        .refresh_with(move |_| refresher.ask())
        .spawner(|future: BoxFuture| {
            drop(thread::spawn(|| futures_lite::future::block_on(future)));
        })
        .build()
        .unwrap()
}

// One absent key, asked over and over

#[test]
fn one_absent_key_reaches_the_origin_once_in_the_life_of_its_absence() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, hand) = guarded();
            let cache = builder.absent_time_to_live(secs(10)).build().unwrap();
            let origin = Origin::new(ABSENT);
            for lives in 1..=4 {
                let told = sky.storm(&cache, &origin, CALLERS, |_| vec![1; 50], || ());
                assert_eq!(told.len(), CALLERS * 50);
                assert!(told.iter().all(|told| *told == Err(LoadError::Absent)));
                assert_eq!((origin.calls(), origin.most()), (lives, 1), "{}", sky.name());
                hand.advance(secs(10));
            }
            origin.set(5);
            let told = sky.storm(&cache, &origin, CALLERS, |_| vec![1; 50], || ());
            assert!(told.iter().all(|told| *told == Ok(5)));
            assert_eq!((origin.calls(), cache.len()), (5, 1), "{}", sky.name());
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn one_absent_key_that_is_not_remembered_is_held_back_by_the_interval() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, hand) = guarded();
            let cache = builder.min_retry_interval(secs(5)).build().unwrap();
            let origin = Origin::new(ABSENT);
            for intervals in 1..=4 {
                let told = sky.storm(&cache, &origin, CALLERS, |_| vec![1; 50], || ());
                assert!(told.iter().all(|told| match told {
                    Err(LoadError::Absent) => true,
                    Err(LoadError::Refused(Refusal::Throttled { retry_after })) => {
                        *retry_after == secs(5)
                    }
                    _ => false,
                }));
                assert_eq!(origin.calls(), intervals, "{}", sky.name());
                hand.advance(secs(5));
            }
            assert_no_load_runs(&cache);
        });
    }
}

// Ever new absent keys

#[test]
fn ever_new_absent_keys_take_no_more_than_their_share_of_the_origin_and_of_the_memory() {
    for sky in Sky::each() {
        must_end(move || {
            let (clock, _hand) = Clock::manual();
            let cache = Cache::builder()
                .max_entries(100)
                .absent_time_to_live(secs(60))
                .max_in_flight(4)
                .clock(clock)
                .build()
                .unwrap();
            let origin = Origin::new(ABSENT);
            let keys = |caller: usize| (0..200).map(|key| (caller * 1_000 + key) as u64).collect();
            let told = sky.storm(&cache, &origin, CALLERS, keys, || ());
            let absent = told.iter().filter(|told| **told == Err(LoadError::Absent)).count();
            let refused = told
                .iter()
                .filter(|told| {
                    matches!(told, Err(LoadError::Refused(Refusal::InFlight { limit: 4 })))
                })
                .count();
            assert_eq!(absent + refused, CALLERS * 200, "{}", sky.name());
            assert_eq!(origin.calls(), absent);
            assert!(origin.most() <= 4, "{} at once", origin.most());
            assert!(cache.len() <= 100 && cache.weight() <= 100);
            assert_eq!(cache.limits().counts().refused.in_flight, refused as u64);
            assert_no_load_runs(&cache);
        });
    }
}

#[test]
fn ever_new_absent_keys_do_not_drive_out_what_is_read() {
    for form in Form::ALL {
        let (clock, _hand) = Clock::manual();
        let cache: Cache<u64, u64> = Cache::builder()
            .max_entries(500)
            .absent_time_to_live(secs(60))
            .clock(clock)
            .build()
            .unwrap();
        for _ in 0..4 {
            (0..200).for_each(|key| ignore(cache.get_or_load(&key, || key)));
        }
        let absent = Gate::opened(Ok::<Option<u64>, &str>(None));
        for key in 1_000..6_000 {
            ignore(form.call(&cache, &key, &absent));
            ignore(cache.get(&(key * 7 % 200)));
        }
        let kept = (0..200).filter(|key| cache.peek(key).is_some()).count();
        assert!(kept > 180, "{kept} of 200; {form:?}");
        assert_eq!(absent.entered(), 5_000);
    }
}

#[test]
fn ever_new_keys_of_an_origin_that_is_down_cost_it_a_few_calls() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, hand) = guarded();
            let options = BreakerOptions::new().consecutive_failures(5).open_for(secs(10));
            let cache = builder.max_in_flight(8).breaker(options).build().unwrap();
            let origin = Origin::new(DOWN);
            let keys = |caller: usize| (0..50).map(|key| (caller * 100 + key) as u64).collect();
            ignore(sky.storm(&cache, &origin, CALLERS, keys, || ()));
            let calls = origin.calls();
            assert!((5..=12).contains(&calls), "{calls} calls; {}", sky.name());
            for pauses in 1..=5 {
                hand.advance(secs(10));
                let keys = |caller: usize| vec![(pauses * 10_000 + caller) as u64];
                ignore(sky.storm(&cache, &origin, CALLERS, keys, || ()));
                assert_eq!(origin.calls(), calls + pauses, "one probe; {}", sky.name());
            }
            origin.set(3);
            hand.advance(secs(10));
            assert_eq!(cache.get_or_load(&1_000_000, || origin.ask()), Ok(3));
            assert_eq!(cache.limits().breaker().state(), BreakerState::Closed);
            assert_at_rest(&cache);
        });
    }
}

// One hot key that expires

#[test]
fn a_hot_key_that_expires_is_loaded_once_each_time() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, hand) = guarded();
            let cache = builder.time_to_live(secs(10)).build().unwrap();
            let origin = Origin::new(1);
            for life in 1..=6 {
                origin.set(life as u64);
                let gate = origin.close();
                let told = sky.storm(
                    &cache,
                    &origin,
                    CALLERS,
                    |_| vec![1; 20],
                    || {
                        gate.open(());
                    },
                );
                assert!(told.iter().all(|told| *told == Ok(life as u64)), "{}", sky.name());
                assert_eq!((origin.calls(), origin.most()), (life, 1), "{}", sky.name());
                hand.advance(secs(10));
            }
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn a_hot_key_that_gets_stale_is_loaded_once_and_nobody_waits() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, hand) = guarded();
            let origin = Origin::new(1);
            let builder = builder.time_to_live(secs(10)).stale_while_revalidate(secs(60));
            let cache = refreshing(builder, &origin);
            assert_eq!(cache.get_or_load(&1, || origin.ask()), Ok(1));
            for life in 2..=6 {
                hand.advance(secs(10));
                origin.set(life);
                let gate = origin.close();
                // All are served although the origin does not answer.
                let told = sky.storm(&cache, &origin, CALLERS, |_| vec![1; 20], || ());
                assert!(told.iter().all(|told| *told == Ok(life - 1)), "{}", sky.name());
                gate.open(());
                until(|| cache.get_on_error(&1) == Some((life, EntryState::Fresh)));
                until(|| cache.load_stats().in_flight == 0);
                assert_eq!((origin.calls() as u64, origin.most()), (life, 1), "{}", sky.name());
            }
            assert_eq!(cache.load_stats().joined, 0);
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn a_hot_key_whose_origin_hangs_holds_no_more_callers_than_may_wait() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, _hand) = guarded();
            let cache = builder.time_to_live(secs(10)).max_waiters(5).build().unwrap();
            let origin = Origin::new(1);
            let gate = origin.close();
            let (handle, refused) = (cache.clone(), CALLERS as u64 - 6);
            let told = sky.storm(
                &cache,
                &origin,
                CALLERS,
                |_| vec![1],
                || {
                    // On one thread nothing runs meanwhile: then there is no crowd to wait for.
                    if !matches!(&sky, Sky::Tasks(name, _) if *name != "tokio, threads") {
                        until(|| handle.limits().counts().refused.waiters == refused);
                        assert_eq!(handle.limits().waiters(), 5);
                    }
                    gate.open(());
                },
            );
            let good = told.iter().filter(|told| **told == Ok(1)).count();
            assert!(good >= 6, "{good}; {}", sky.name());
            let waiters = |told: &&Told| {
                matches!(told, Err(LoadError::Refused(Refusal::Waiters { limit: 5 })))
            };
            assert_eq!(told.iter().filter(waiters).count(), CALLERS - good);
            assert_eq!(origin.calls(), 1);
            assert_at_rest(&cache);
        });
    }
}

// The whole cache lost at once

#[test]
fn a_lost_cache_is_loaded_again_once_for_each_key_and_a_few_at_a_time() {
    for sky in Sky::each() {
        for lost in 0..3 {
            let (builder, hand) = guarded();
            let cache = builder.time_to_live(secs(10)).max_in_flight(4).build().unwrap();
            let origin = Origin::new(1);
            for key in 0..100 {
                cache.insert(key, 1).unwrap();
            }
            match lost {
                0 => cache.invalidate_all(),
                1 => hand.advance(secs(10)),
                _ => ignore(cache.invalidate_if(|_, _| true)),
            }
            let keys =
                |caller: usize| (0..100).map(|key| (key + caller as u64 * 3) % 100).collect();
            let told = sky.storm(&cache, &origin, CALLERS, keys, || ());
            let refused = told.iter().filter(|told| told.is_err()).count();
            assert!(told.iter().all(|told| matches!(
                told,
                Ok(1) | Err(LoadError::Refused(Refusal::InFlight { limit: 4 }))
            )));
            assert!(origin.most() <= 4, "{} at once; {}", origin.most(), sky.name());
            assert_eq!(cache.limits().counts().refused.in_flight, refused as u64);
            // Those who were refused come again.
            for key in 0..100 {
                assert_eq!(cache.get_or_load(&key, || origin.ask()), Ok(1));
            }
            assert_eq!((origin.calls(), cache.len()), (100, 100), "{}", sky.name());
            assert_at_rest(&cache);
        }
    }
}

#[test]
fn a_cache_that_is_lost_again_while_it_is_loaded_serves_nothing_old() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, _hand) = guarded();
            let cache = builder.build().unwrap();
            let origin = Origin::new(1);
            let keys = |_: usize| (0..30).collect::<Vec<u64>>();
            let (handle, change) = (cache.clone(), origin.clone());
            ignore(sky.storm(&cache, &origin, 16, keys, move || {
                for now in 2..=50 {
                    change.set(now);
                    handle.invalidate_all();
                    let early: Vec<_> = handle.iter().filter(|(_, value)| *value < now).collect();
                    assert_eq!(early, [], "loaded before the {now}th loss");
                }
            }));
            let told = sky.storm(&cache, &origin, 4, keys, || ());
            assert!(told.iter().all(|told| *told == Ok(50)), "{}", sky.name());
            assert_at_rest(&cache);
        });
    }
}

// Refreshes that fail on and on

#[test]
fn failing_refreshes_are_tried_once_in_an_interval_until_the_hard_deadline() {
    for sky in Sky::each() {
        for in_background in [true, false] {
            let (builder, hand) = guarded();
            let origin = Origin::new(1);
            let builder = builder
                .time_to_live(secs(10))
                .stale_while_revalidate(secs(20))
                .stale_if_error(secs(50))
                .min_retry_interval(secs(5));
            let cache =
                if in_background { refreshing(builder, &origin) } else { builder.build().unwrap() };
            assert_eq!(cache.get_or_load(&1, || origin.ask()), Ok(1));
            origin.set(DOWN);
            for at in 1..80_u64 {
                hand.set(secs(at));
                let told = sky.storm(&cache, &origin, 8, |_| vec![1; 4], || ());
                until(|| cache.load_stats().in_flight == 0);
                // Loads at 0, 10, 15, .., 75.
                let tries = if at < 10 { 1 } else { 2 + (at as usize - 10) / 5 };
                assert_eq!(origin.calls(), tries, "{} at {at}", sky.name());
                if at < 60 {
                    assert!(told.iter().all(|told| *told == Ok(1)), "{} at {at}", sky.name());
                } else {
                    assert!(told.iter().all(|told| matches!(
                        told,
                        Err(LoadError::Failed("down")
                            | LoadError::Refused(Refusal::Throttled { .. }))
                    )));
                }
            }
            origin.set(2);
            hand.set(secs(85));
            assert_eq!(cache.get_or_load(&1, || origin.ask()), Ok(2));
            assert_at_rest(&cache);
        }
    }
}

#[test]
fn failing_refreshes_without_any_pause_still_come_one_at_a_time() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, hand) = guarded();
            let origin = Origin::new(1);
            let cache =
                builder.time_to_live(secs(10)).stale_while_revalidate(secs(100)).build().unwrap();
            assert_eq!(cache.get_or_load(&1, || origin.ask()), Ok(1));
            origin.set(DOWN);
            hand.advance(secs(10));
            let told = sky.storm(&cache, &origin, CALLERS, |_| vec![1; 20], || ());
            assert!(told.iter().all(|told| *told == Ok(1)), "{}", sky.name());
            assert_eq!((origin.most(), cache.load_stats().joined), (1, 0), "{}", sky.name());
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn failing_refreshes_back_off() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, hand) = guarded();
            let origin = Origin::new(1);
            let backoff = Backoff::new(secs(1), secs(60)).unwrap().jitter(0.0).unwrap();
            let cache = builder
                .time_to_live(secs(10))
                .stale_if_error(secs(200))
                .backoff(backoff)
                .build()
                .unwrap();
            assert_eq!(cache.get_or_load(&1, || origin.ask()), Ok(1));
            origin.set(DOWN);
            let mut tries = Vec::new();
            for at in 10..150 {
                hand.set(secs(at));
                let before = origin.calls();
                let told = sky.storm(&cache, &origin, 4, |_| vec![1; 2], || ());
                assert!(told.iter().all(|told| *told == Ok(1)));
                if origin.calls() > before {
                    assert_eq!(origin.calls(), before + 1);
                    tries.push(at);
                }
            }
            assert_eq!(tries, [10, 11, 13, 17, 25, 41, 73, 133], "{}", sky.name());
            assert_no_load_runs(&cache);
        });
    }
}

#[test]
fn failing_refreshes_of_many_keys_open_the_breaker_and_all_are_served() {
    for sky in Sky::each() {
        must_end(move || {
            let (builder, hand) = guarded();
            let origin = Origin::new(1);
            let options = BreakerOptions::new().consecutive_failures(5).open_for(secs(10));
            let builder = builder
                .time_to_live(secs(10))
                .stale_while_revalidate(secs(100))
                .max_in_flight(8)
                .breaker(options);
            let cache = refreshing(builder, &origin);
            for key in 0..100 {
                cache.insert(key, key).unwrap();
            }
            origin.set(DOWN);
            hand.advance(secs(10));
            let keys =
                |caller: usize| (0..100).map(|key| (key + caller as u64 * 7) % 100).collect();
            let told = sky.storm(&cache, &origin, 8, keys, || ());
            assert!(told.iter().all(Result::is_ok), "{}", sky.name());
            until(|| cache.load_stats().in_flight == 0);
            let calls = origin.calls();
            assert!(calls <= 5 + 7, "{calls} calls; {}", sky.name());
            assert!(origin.most() <= 4, "their share: {}", origin.most());
            // Few callers may have come before the failures were known.
            for key in 0..100 {
                assert_eq!(cache.get_or_load(&key, || origin.ask()), Ok(key));
            }
            until(|| cache.load_stats().in_flight == 0);
            assert!(origin.calls() <= 5 + 7);
            assert_at_rest(&cache);
        });
    }
}

#[test]
fn refreshes_that_hang_until_their_timeout_hold_up_nobody() {
    for (name, runtime) in Runtime::each() {
        let (builder, hand) = guarded();
        let cache = builder
            .time_to_live(secs(10))
            .stale_while_revalidate(secs(100))
            .load_timeout(secs(2))
            .min_retry_interval(secs(5))
            .spawner(|future: BoxFuture| {
                drop(thread::spawn(|| futures_lite::future::block_on(future)));
            })
            .build()
            .unwrap();
        cache.insert(1, 1).unwrap();
        let gate: Gate<Load<u64>> = Gate::new();
        runtime.block_on(async {
            for at in 10..60_usize {
                hand.set(secs(at as u64));
                let begun = cache.load_stats().started as usize;
                for _ in 0..4 {
                    let told = cache.get_or_load_async(&1, || gate.pass_async()).await;
                    assert_eq!(told, Ok(1), "{name} at {at}");
                }
                let now = cache.load_stats().started as usize;
                assert_eq!(now, 1 + (at - 10) / 5, "{name} at {at}");
                if now > begun {
                    // It has come to its gate, and to sleep until its timeout.
                    until(|| gate.entered() == now && hand.sleepers() == 1);
                }
                if at % 5 == 2 {
                    until(|| cache.load_stats().in_flight == 0);
                }
            }
        });
        let stats = cache.load_stats();
        assert_eq!((stats.timed_out, stats.started, stats.abandoned), (10, 10, 0), "{name}");
        assert_eq!(gate.inside(), 0);
        assert_at_rest(&cache);
    }
}

// All at once

/// Caches whose accounts differ most.
fn kinds(hand_of: impl Fn() -> Clock) -> Vec<Cache<u64, u64, Few>> {
    let entries = || Cache::builder().max_entries(40).hasher(Few(1 << 40)).clock(hand_of());
    let weight = || Cache::builder().max_weight(60).hasher(Few(2)).clock(hand_of());
    let stale = |builder: Builder<u64, u64, Few>| {
        builder.time_to_live(secs(5)).stale_while_revalidate(secs(5)).stale_if_error(secs(10))
    };
    let builders = [
        entries(),
        stale(entries()),
        stale(weight()).time_to_idle(secs(7)),
        stale(entries()).absent_time_to_live(secs(3)).min_retry_interval(secs(2)),
        stale(weight()).absent_time_to_live(secs(3)).lead_timeout(secs(1)).absence_weight(3),
        weight().min_retry_interval(secs(2)).max_in_flight(3).max_waiters(2).load_timeout(secs(2)),
        stale(weight())
            .early_refresh(secs(2))
            .refresh_with(|context| context.key)
            .spawner(|future: BoxFuture| drop(thread::spawn(|| block_on(future)))),
    ];
    builders.into_iter().map(|builder| builder.build().unwrap()).collect()
}

fn answer(random: &mut impl Rng) -> Result<Load<u64>, &'static str> {
    let options = InsertOptions::new();
    Ok(match random.random_range(0..10) {
        0 => return Err("down"),
        1 => Load::Absent,
        2 => Load::NotStored(1),
        3 => Load::Unchanged,
        4 => Load::With(2, options.version(random.random_range(0..5)).tag("t")),
        5 => Load::UnchangedWith(options.version(random.random_range(0..5)).tag("u")),
        6 => Load::AbsentFor(secs(random.random_range(0..3))),
        7 => Load::With(3, options.age(secs(3))),
        _ => Load::Value(4),
    })
}

fn load_somehow(cache: &Cache<u64, u64, Few>, key: u64, random: &mut impl Rng) {
    let said = answer(random);
    let request = cache.load(&key).timeout(secs(1));
    let request = if random.random_bool(0.2) { request.refresh() } else { request };
    let polls = random.random_range(0..3);
    let slow = async move {
        for _ in 0..polls {
            futures_lite::future::yield_now().await;
        }
        said
    };
    match random.random_range(0..5) {
        0 => drop(Polled::new(request.run_async(|_| slow)).poll()),
        1 => drop(Polled::new(request.run_local(|_| slow)).poll()),
        2 => ignore(block_on(request.run_async(|_| slow))),
        3 => ignore(block_on(request.run_local(|_| slow))),
        _ => ignore(request.run(|_| block_on(slow))),
    }
}

fn do_something(cache: &Cache<u64, u64, Few>, hand: &ManualClock, random: &mut impl Rng) {
    let key = random.random_range(0..60);
    match random.random_range(0..100) {
        0..60 => load_somehow(cache, key, random),
        60..66 => ignore(cache.insert(key, 5)),
        66..69 => ignore(cache.remove(&key)),
        69..72 => ignore(cache.invalidate(&key)),
        72..76 => ignore(cache.mark_stale(&key)),
        76..78 => ignore(cache.invalidate_if(|key, _| key % 3 == 0)),
        78..80 => cache.invalidate_all(),
        80..83 => ignore(cache.invalidate_tag(if key % 2 == 0 { "t" } else { "u" })),
        83..85 => ignore(cache.compute(key, |entry| match entry {
            Some(_) => Compute::Remove,
            None => Compute::Insert(6),
        })),
        85..88 => ignore(cache.sweep(10)),
        88..90 => cache.set_capacity([0, 10, 40, 60][key as usize % 4]),
        90..96 => hand.advance(Duration::from_millis(key * 40)),
        _ => ignore(cache.get(&key)),
    }
}

#[test]
fn after_any_mix_of_calls_all_accounts_agree() {
    let (clock, hand) = Clock::manual();
    for (kind, cache) in kinds(|| clock.clone()).into_iter().enumerate() {
        let hand = hand.clone();
        must_end(move || {
            let over = AtomicUsize::new(0);
            thread::scope(|scope| {
                for seed in 0..3 {
                    let (cache, hand, over) = (&cache, &hand, &over);
                    scope.spawn(move || {
                        let mut random = SmallRng::seed_from_u64(seed);
                        for _ in 0..1_500 {
                            do_something(cache, hand, &mut random);
                        }
                        over.fetch_add(1, SeqCst);
                    });
                }
                // Who waits with a deadline waits for this clock.
                while over.load(SeqCst) < 3 {
                    hand.advance(Duration::from_millis(10));
                    thread::yield_now();
                }
            });
            until(|| cache.load_stats().in_flight == 0);
            assert_no_load_runs(&cache);
            cache.set_capacity(60);
            // What is remembered without a value ends; then all that is left can be iterated.
            hand.advance(secs(4));
            cache.invalidate_if(|_, _| false);
            cache.sweep(usize::MAX);
            let (len, weight) = (cache.len() as u64, cache.weight());
            let stats = cache.stats();
            let gone = stats.removed + stats.invalidated + stats.expired + stats.evicted;
            assert_eq!(stats.inserts - gone, len, "kind {kind}: {stats:?}");
            assert!(weight <= 60 && weight >= len, "kind {kind}: {weight} of {len}");
            hand.advance(secs(100));
            cache.invalidate_all();
            cache.sweep(usize::MAX);
            assert_eq!((cache.len(), cache.weight()), (0, 0), "kind {kind}: {:?}", cache.stats());
            for key in 0..24 {
                assert_eq!(cache.get_or_load(&key, || 7), Ok(7), "kind {kind}");
            }
            assert_at_rest(&cache);
            assert_eq!(cache.len(), 24, "no place is lost; kind {kind}");
        });
    }
}
