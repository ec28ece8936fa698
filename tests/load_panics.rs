//! User code that panics while keys are loaded (PAN).

mod common;

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::loads::{
    Form, Gate, PLANNED, Polled, assert_at_rest, assert_at_rest_weighing, assert_no_load_runs,
    hush, message, until, until_waiting,
};
use common::{Fuse, lock, must_end, panics};
use futures_lite::future::block_on;
use seawall::{
    BoxFuture, Builder, Cache, Clock, ErrorClass, IntoLoad, Load, LoadError, ManualClock,
};

type Numbers = Cache<u32, u32>;
type Error = LoadError<std::convert::Infallible>;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// What a call returns, unless it panics.
fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

fn planned<R>() -> R {
    panic!("{PLANNED}")
}

fn is_panicked<V, E>(answer: &Result<V, LoadError<E>>) -> bool {
    matches!(answer, Err(LoadError::Panicked(message)) if &**message == PLANNED)
}

// PAN-01

#[test]
fn pan_01_a_loader_that_panics_is_told_to_all_who_waited_and_the_key_is_free() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let cache: Numbers = Cache::builder().max_entries(10).max_in_flight(2).build().unwrap();
            let gate = Gate::<u32>::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let waiting = Form::ALL.map(|form| form.begin(&cache, 1, &gate));
            until_waiting(&cache, 3);
            gate.open_to_panic(PLANNED);
            assert_eq!(Form::Blocking.call(&cache, &2, &Gate::opened(2)), Ok(2), "meanwhile");
            match first.join() {
                Ok(told) => assert!(leader == Form::Shared && is_panicked(&told)),
                Err(panic) => {
                    assert_ne!(leader, Form::Shared);
                    assert_eq!(message(&*panic), PLANNED);
                }
            }
            for caller in waiting {
                assert!(is_panicked(&caller.join().unwrap()), "{leader:?}");
            }
            assert_eq!((gate.entered(), cache.load_stats().panicked), (1, 1));
            for form in Form::ALL {
                cache.invalidate(&1);
                assert_eq!(form.call(&cache, &1, &Gate::opened(3)), Ok(3));
            }
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn pan_01_an_async_loader_may_panic_in_whatever_caller_drives_it() {
    hush();
    must_end(|| {
        let cache: Numbers = Cache::new(10);
        let gate = Gate::<u32>::new();
        let call = || Polled::begun(cache.get_or_load_async(&1, || gate.pass_async()));
        let [mut leader, driver, follower] = [call(), call(), call()];
        let blocked = Form::Blocking.begin(&cache, 1, &gate);
        until_waiting(&cache, 3);
        gate.open_to_panic(PLANNED);
        assert!(is_panicked(&driver.finish()));
        assert!(is_panicked(&follower.finish()));
        assert!(is_panicked(&blocked.join().unwrap()));
        assert!(matches!(leader.poll(), Poll::Ready(told) if is_panicked(&told)));
        assert_eq!(gate.entered(), 1);
        assert_at_rest(&cache);
    });
}

#[test]
fn pan_01_a_panic_is_covered_by_a_value_that_may_stand_in_for_an_error() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let (clock, hand) = Clock::manual();
            let cache: Numbers = Cache::builder()
                .max_entries(10)
                .time_to_live(secs(10))
                .stale_if_error(secs(20))
                .clock(clock)
                .build()
                .unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(15));
            let gate = Gate::<u32>::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let waiting = Form::ALL.map(|form| form.begin(&cache, 1, &gate));
            until_waiting(&cache, 3);
            gate.open_to_panic(PLANNED);
            assert_eq!(first.join().ok(), (leader == Form::Shared).then_some(Ok(1)));
            for caller in waiting {
                assert_eq!(caller.join().unwrap(), Ok(1));
            }
            assert_eq!(gate.entered(), 1);
            assert_eq!(leader.call(&cache, &1, &Gate::opened(2)), Ok(2));
            assert_at_rest(&cache);
        }
    });
}

// PAN-03

type Spawned = Arc<Mutex<Vec<BoxFuture>>>;

/// A cache of at most two loads at a time whose key 1 is stale.
fn stale(change: impl FnOnce(Builder<u32, u32>) -> Builder<u32, u32>) -> (Numbers, ManualClock) {
    let (clock, hand) = Clock::manual();
    let settings = Cache::builder()
        .max_entries(200)
        .max_in_flight(2)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(20))
        .clock(clock);
    let cache = change(settings).build().unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(secs(15));
    (cache, hand)
}

fn panics_before_there_is_a_future(cache: &Numbers) {
    for form in [Form::Shared, Form::Local] {
        for _ in 0..4 {
            let load = |_| -> std::future::Ready<u32> { planned() };
            let outcome = match form {
                Form::Local => caught(|| block_on(cache.load(&1).run_local(load))),
                _ => caught(|| block_on(cache.load(&1).run_async(load))),
            };
            assert_eq!(outcome.is_none(), form == Form::Local, "a panic of the caller's own");
            assert_no_load_runs(cache);
            // As a miss.
            cache.invalidate(&2);
            let load = || -> std::future::Ready<u32> { planned() };
            assert!(is_panicked(&block_on(cache.get_or_load_async(&2, load))));
            let load = || -> u32 { planned() };
            assert!(panics(|| cache.get_or_load(&2, load)));
            assert_no_load_runs(cache);
        }
    }
    cache.invalidate(&1);
    assert_eq!(block_on(cache.get_or_load_async(&1, || async { 3 })), Ok(3));
    assert_at_rest(cache);
}

#[test]
fn pan_03_a_loader_may_panic_before_there_is_a_future() {
    hush();
    must_end(|| {
        let (cache, _) = stale(|settings| settings);
        panics_before_there_is_a_future(&cache);
        let spawned = Spawned::default();
        let queue = Arc::clone(&spawned);
        let (cache, _) = stale(|settings| settings.spawner(move |it| lock(&queue).push(it)));
        panics_before_there_is_a_future(&cache);
        assert!(lock(&spawned).is_empty(), "nothing to run");
    });
}

#[test]
fn pan_03_followers_of_a_loader_that_panics_before_there_is_a_future_are_told() {
    hush();
    must_end(|| {
        for form in [Form::Shared, Form::Local] {
            let cache: Numbers = Cache::new(10);
            let gate = Gate::<()>::new();
            let leader = {
                let (cache, gate) = (cache.clone(), gate.clone());
                thread::spawn(move || {
                    let load = |_| -> std::future::Ready<u32> {
                        gate.pass();
                        planned()
                    };
                    match form {
                        Form::Local => block_on(cache.load(&1).run_local(load)),
                        _ => block_on(cache.load(&1).run_async(load)),
                    }
                })
            };
            gate.until_entered(1);
            let waiting = Form::ALL.map(|it| it.begin(&cache, 1, &Gate::opened(2)));
            until_waiting(&cache, 3);
            gate.open(());
            assert_eq!(leader.join().is_err(), form == Form::Local);
            assert!(waiting.into_iter().all(|caller| is_panicked(&caller.join().unwrap())));
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn pan_03_a_spawner_that_panics_leaves_the_key_free() {
    hush();
    must_end(|| {
        let (cache, _) = stale(|settings| settings.spawner(|_: BoxFuture| planned()));
        for _ in 0..4 {
            let load = || Gate::<u32>::new().pass_async();
            assert!(panics(|| block_on(cache.get_or_load_async(&1, load))));
            assert_no_load_runs(&cache);
        }
        assert_eq!(Form::Local.call(&cache, &1, &Gate::opened(2)), Ok(2));
        let cache: Numbers = Cache::builder()
            .max_entries(10)
            .spawner(|_: BoxFuture| planned())
            .detached_loads(true)
            .build()
            .unwrap();
        assert!(panics(|| Form::Shared.call(&cache, &1, &Gate::opened(2))));
        assert_eq!(Form::Local.call(&cache, &1, &Gate::opened(2)), Ok(2));
        assert_at_rest(&cache);
    });
}

#[test]
fn pan_03_a_refresher_of_the_caches_own_threads_may_panic() {
    hush();
    must_end(|| {
        let good = Arc::new(AtomicBool::new(false));
        let is_good = Arc::clone(&good);
        let (cache, hand) = stale(|settings| {
            settings
                .refresh_threads(1)
                .refresh_with(move |_| if is_good.load(SeqCst) { 2 } else { planned() })
        });
        for round in 1..=4 {
            let never = || -> u32 { unreachable!("a thread refreshes it") };
            assert_eq!(cache.get_or_load(&1, never), Ok(1));
            until(|| cache.load_stats().panicked == round);
        }
        good.store(true, SeqCst);
        assert_eq!(cache.get_or_load(&1, || 9), Ok(1));
        until(|| cache.get(&1) == Some(2));
        hand.advance(secs(100));
        // The thread may just be about to end its load, which may be joined till then.
        until(|| cache.get_or_load(&1, || 9) == Ok(9));
        until(|| cache.load_stats().in_flight == 0);
        assert_at_rest(&cache);
    });
}

// PAN-05

const BAD: u32 = 666;

/// A cache of weight whose weigher panics for one value.
fn weighed() -> (Numbers, ManualClock) {
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_weight(1_000)
        .weigher(|_, value: &u32| if *value == BAD { planned() } else { 2 })
        .max_in_flight(2)
        .time_to_live(secs(10))
        .stale_while_revalidate(secs(20))
        .clock(clock)
        .build()
        .unwrap();
    (cache, hand)
}

#[test]
fn pan_05_a_weigher_that_panics_at_the_end_of_a_load_is_told_to_all_who_waited() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let (cache, _) = weighed();
            let gate = Gate::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let waiting = Form::ALL.map(|form| form.begin(&cache, 1, &gate));
            until_waiting(&cache, 3);
            gate.open(BAD);
            // The leader is told the same, or gets the panic.
            assert!(first.join().map_or(leader != Form::Shared, |told| is_panicked(&told)));
            assert!(waiting.into_iter().all(|caller| is_panicked(&caller.join().unwrap())));
            assert_eq!((cache.get(&1), cache.len(), cache.weight()), (None, 0, 0));
            assert_eq!(cache.load_stats().panicked, 1, "counted");
            assert_at_rest_weighing(&cache, |_, _| 2);
            for key in 2..102 {
                cache.insert(key, key).unwrap();
            }
            assert_eq!(leader.call(&cache, &1, &Gate::opened(3)), Ok(3));
            assert_eq!(cache.len(), 101);
            assert_at_rest_weighing(&cache, |_, _| 2);
        }
    });
}

#[test]
fn pan_05_a_weigher_that_panics_at_the_end_of_a_refresh_leaves_the_old_value() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let (cache, hand) = weighed();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(15));
            for _ in 0..4 {
                let told = caught(|| leader.call(&cache, &1, &Gate::opened(BAD)));
                assert!(told.is_none_or(|told| told == Ok(1) || is_panicked(&told)));
                assert_eq!((cache.get(&1), cache.len(), cache.weight()), (Some(1), 1, 2));
                assert_at_rest_weighing(&cache, |_, _| 2);
            }
            assert_eq!(cache.load_stats().panicked, 4);
            assert_eq!(leader.call(&cache, &1, &Gate::opened(3)), Ok(3));
            assert_eq!(cache.get(&1), Some(3));
            assert_at_rest_weighing(&cache, |_, _| 2);
        }
    });
}

#[test]
fn pan_05_a_classifier_that_panics_is_told_to_all_who_waited() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let cache: Numbers = Cache::builder()
                .max_entries(10)
                .classify_errors(|_: &&'static str| -> ErrorClass { planned() })
                .build()
                .unwrap();
            let gate: Gate<Result<u32, &'static str>> = Gate::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let waiting = Form::ALL.map(|form| form.begin(&cache, 1, &gate));
            until_waiting(&cache, 3);
            gate.open(Err("down"));
            assert!(first.join().map_or(leader != Form::Shared, |told| is_panicked(&told)));
            assert!(waiting.into_iter().all(|caller| is_panicked(&caller.join().unwrap())));
            assert_eq!(leader.call(&cache, &1, &Gate::opened(Ok::<_, &str>(3))), Ok(3));
            assert_at_rest(&cache);
        }
    });
}

/// The entry that a load finds expired is told to the listener in the midst of the caller's claim.
#[test]
fn pan_05_a_listener_that_panics_when_a_load_finds_the_key_expired_leaves_it_free() {
    hush();
    must_end(|| {
        for form in Form::ALL {
            let (clock, hand) = Clock::manual();
            let fuse = Fuse::default();
            let listens = fuse.clone();
            let cache: Numbers = Cache::builder()
                .max_entries(10)
                .max_in_flight(1)
                .time_to_live(secs(10))
                .removal_listener(move |_: &u32, _: &u32, _| listens.burn())
                .clock(clock)
                .build()
                .unwrap();
            cache.insert(1, 1).unwrap();
            hand.advance(secs(15));
            fuse.arm(1);
            let told = caught(|| form.call(&cache, &1, &Gate::opened(2)));
            assert!(!fuse.is_armed(), "it was told");
            assert!(told.is_none_or(|told| told == Ok(2) || is_panicked(&told)), "{form:?}");
            // Bounded, to fail rather than hang.
            let again = cache.load(&1).timeout(secs(2)).run(|_| 2);
            assert_eq!(again.map(|outcome| outcome.value), Ok(Some(2)), "{form:?}");
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn pan_05_a_listener_that_panics_when_a_load_is_stored_holds_up_nobody() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let fuse = Fuse::default();
            let listens = fuse.clone();
            let cache: Numbers = Cache::builder()
                .max_entries(1)
                .removal_listener(move |_: &u32, _: &u32, _| listens.burn())
                .build()
                .unwrap();
            cache.insert(0, 0).unwrap();
            let gate = Gate::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let waiting = Form::ALL.map(|form| form.begin(&cache, 1, &gate));
            until_waiting(&cache, 3);
            fuse.arm(1);
            gate.open(3);
            let _ = first.join();
            for caller in waiting {
                let told = caller.join().unwrap();
                assert!(matches!(told, Ok(3) | Err(LoadError::Panicked(_))), "{told:?}");
            }
            assert!(!fuse.is_armed());
            assert_eq!(leader.call(&cache, &2, &Gate::opened(4)), Ok(4));
            assert_at_rest(&cache);
        }
    });
}

// Keys and values that panic: PAN-09.

/// Where user code of a key or a value may panic.
#[derive(Clone, Debug, Default)]
struct Fuses {
    clone: Fuse,
    eq: Fuse,
    hash: Fuse,
    drop: Fuse,
}

#[derive(Debug)]
struct Touchy {
    n: u32,
    fuses: Fuses,
}

impl Touchy {
    fn new(n: u32, fuses: &Fuses) -> Touchy {
        Touchy { n, fuses: fuses.clone() }
    }
}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        self.fuses.clone.burn();
        Touchy::new(self.n, &self.fuses)
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        self.fuses.eq.burn();
        self.n == other.n
    }
}

impl Eq for Touchy {}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fuses.hash.burn();
        self.n.hash(state);
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.fuses.drop.burn();
        }
    }
}

type Touchies = Cache<Touchy, Touchy>;
type Told = Option<Result<u32, Error>>;

/// How a cache is set up for a play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Miss,
    Stale,
    StaleInBackground,
    OnError,
    Expired,
}

impl Setting {
    const ALL: [Setting; 5] = [
        Setting::Miss,
        Setting::Stale,
        Setting::StaleInBackground,
        Setting::OnError,
        Setting::Expired,
    ];

    /// A cache whose key 1 is as the setting says; a value for it, and what is spawned.
    fn make(self, keys: &Fuses, values: &Fuses) -> (Touchies, Spawned) {
        let (clock, hand) = Clock::manual();
        let settings = Cache::builder().max_entries(10).max_in_flight(2).clock(clock);
        let spawned = Spawned::default();
        let queue = Arc::clone(&spawned);
        let settings = match self {
            Setting::Miss => settings,
            Setting::Expired => settings.time_to_live(secs(10)),
            Setting::OnError => settings.time_to_live(secs(10)).stale_if_error(secs(20)),
            Setting::Stale => settings.time_to_live(secs(10)).stale_while_revalidate(secs(20)),
            Setting::StaleInBackground => settings
                .time_to_live(secs(10))
                .stale_while_revalidate(secs(20))
                .spawner(move |it| lock(&queue).push(it)),
        };
        let cache: Touchies = settings.build().unwrap();
        if self != Setting::Miss {
            cache.insert(Touchy::new(1, keys), Touchy::new(1, values)).unwrap();
            hand.advance(secs(15));
        }
        (cache, spawned)
    }
}

/// One play: a leader, three followers, the load's end; each step's panics are caught, as the callers'
/// own. Returns what each was told.
fn play(
    form: Form,
    cache: &Touchies,
    spawned: &Spawned,
    keys: &Fuses,
    values: &Fuses,
) -> Vec<Told> {
    let gate = Gate::<()>::new();
    let thread = |form| begin(form, cache, keys, values, &gate);
    let key = Touchy::new(1, keys);
    let task = |form| {
        let (cache, key, gate, values) = (cache.clone(), &key, gate.clone(), values.clone());
        let mut task =
            Polled::new(async move { call_async(form, &cache, key, &gate, &values).await });
        match caught(|| task.poll()) {
            Some(Poll::Pending) => Ok(task),
            Some(Poll::Ready(told)) => Err(Some(told)),
            None => Err(None),
        }
    };
    let mut told = Vec::new();
    let mut tasks = Vec::new();
    let mut blocked = Vec::new();
    match form {
        Form::Blocking => {
            blocked.push(thread(form));
            until(|| gate.entered() == 1 || blocked[0].is_finished());
        }
        _ => tasks.push(task(form)),
    }
    tasks.extend([Form::Shared, Form::Local].map(task));
    let waiting = cache.load_stats().waiting;
    blocked.push(thread(Form::Blocking));
    let last = blocked.last().unwrap();
    until(|| cache.load_stats().waiting > waiting || gate.inside() == 2 || last.is_finished());
    gate.open(());
    for task in tasks {
        told.push(match task {
            Ok(task) => caught(|| task.finish()),
            Err(told) => told,
        });
    }
    // Taken out first: what is spawned meanwhile finds the queue free.
    while let Some(it) = { lock(spawned).pop() } {
        let _ = caught(|| block_on(it));
    }
    told.extend(blocked.into_iter().map(|thread| thread.join().unwrap()));
    let _ = caught(|| drop(key));
    told
}

async fn call_async(
    form: Form,
    cache: &Touchies,
    key: &Touchy,
    gate: &Gate<()>,
    values: &Fuses,
) -> Result<u32, Error> {
    let (gate, values) = (gate.clone(), values.clone());
    let load = async move {
        gate.pass_async().await;
        Touchy::new(5, &values)
    };
    let outcome = match form {
        Form::Local => cache.load(key).run_local(|_| load).await?,
        _ => cache.load(key).run_async(|_| load).await?,
    };
    outcome.value.map(|value| value.n).ok_or(LoadError::Absent)
}

fn begin(
    form: Form,
    cache: &Touchies,
    keys: &Fuses,
    values: &Fuses,
    gate: &Gate<()>,
) -> JoinHandle<Told> {
    assert_eq!(form, Form::Blocking);
    let (cache, gate, values) = (cache.clone(), gate.clone(), values.clone());
    let key = Touchy::new(1, keys);
    thread::spawn(move || {
        caught(move || {
            let key = key;
            let outcome = cache.load(&key).run(|_| {
                gate.pass();
                Touchy::new(5, &values)
            })?;
            outcome.value.map(|value| value.n).ok_or(LoadError::Absent)
        })
    })
}

/// Plays with the `nth` use of a fuse panicking, for every `nth` until none is left.
fn play_all(pick: impl Fn(&Fuses, &Fuses) -> Fuse) {
    for setting in Setting::ALL {
        for form in Form::ALL {
            for nth in 1..60 {
                let (keys, values) = (Fuses::default(), Fuses::default());
                let fuse = pick(&keys, &values);
                let (cache, spawned) = setting.make(&keys, &values);
                fuse.arm(nth);
                let told = play(form, &cache, &spawned, &keys, &values);
                let blew = !fuse.is_armed();
                fuse.disarm();
                let context = format!("{setting:?}, {form:?}, at {nth}: {told:?}");
                let known = |told: &Told| {
                    matches!(told, None | Some(Ok(1 | 5) | Err(LoadError::Panicked(_))))
                };
                assert!(told.iter().all(known), "{context}");
                check_usable(&cache, &spawned, &keys, &values, &context);
                if !blew {
                    assert!(told.iter().all(|told| matches!(told, Some(Ok(_)))), "{context}");
                    break;
                }
                assert!(nth < 59, "it never ends");
            }
        }
    }
}

fn check_usable(cache: &Touchies, spawned: &Spawned, keys: &Fuses, values: &Fuses, context: &str) {
    let stats = cache.load_stats();
    assert_eq!((stats.in_flight, stats.waiting), (0, 0), "{context}: {stats:?}");
    let key = Touchy::new(1, keys);
    // Bounded, to fail rather than hang.
    let outcome = cache.load(&key).refresh().timeout(secs(5)).run(|_| Touchy::new(7, values));
    assert_eq!(outcome.map(|it| it.value.unwrap().n), Ok(7), "{context}");
    assert!(lock(spawned).is_empty());
    assert_at_rest(cache);
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of plays with threads")]
fn pan_09_any_copy_of_a_value_may_panic() {
    hush();
    must_end(|| play_all(|_, values| values.clone.clone()));
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of plays with threads")]
fn pan_09_any_copy_of_a_key_may_panic() {
    hush();
    must_end(|| play_all(|keys, _| keys.clone.clone()));
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of plays with threads")]
fn pan_09_any_comparison_of_keys_may_panic() {
    hush();
    must_end(|| play_all(|keys, _| keys.eq.clone()));
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of plays with threads")]
fn pan_09_any_hash_of_a_key_may_panic() {
    hush();
    must_end(|| play_all(|keys, _| keys.hash.clone()));
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of plays with threads")]
fn pan_09_any_destructor_of_a_key_may_panic() {
    hush();
    must_end(|| play_all(|keys, _| keys.drop.clone()));
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of plays with threads")]
fn pan_09_any_destructor_of_a_value_may_panic() {
    hush();
    must_end(|| play_all(|_, values| values.drop.clone()));
}

#[test]
fn pan_09_a_thread_of_the_caches_own_outlives_copies_that_panic() {
    hush();
    must_end(|| {
        let (clock, hand) = Clock::manual();
        let (keys, values) = (Fuses::default(), Fuses::default());
        let made = values.clone();
        let cache: Touchies = Cache::builder()
            .max_entries(10)
            .max_in_flight(4)
            .time_to_live(secs(10))
            .stale_while_revalidate(secs(20))
            .refresh_threads(1)
            .refresh_with(move |_| Touchy::new(2, &made))
            .clock(clock)
            .build()
            .unwrap();
        let key = Touchy::new(1, &keys);
        for fuse in [&values.clone, &keys.clone] {
            for nth in 1..20 {
                cache.insert(key.clone(), Touchy::new(1, &values)).unwrap();
                hand.advance(secs(15));
                fuse.arm(nth);
                let told = caught(|| cache.load(&key).run(|_| -> Touchy { unreachable!() }));
                // The refresh ends in one way or the other.
                until(|| cache.load_stats().in_flight == 0);
                fuse.disarm();
                drop(told);
            }
        }
        cache.insert(key.clone(), Touchy::new(1, &values)).unwrap();
        hand.advance(secs(15));
        assert_eq!(
            cache.load(&key).run(|_| -> Touchy { unreachable!() }).unwrap().value.unwrap().n,
            1
        );
        until(|| cache.get(&key).is_some_and(|value| value.n == 2));
        until(|| cache.load_stats().in_flight == 0);
        assert_at_rest(&cache);
    });
}

// What a loader holds, returns and is woken by.

struct Bomb(Fuse);

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.0.burn();
        }
    }
}

#[test]
fn pan_01_a_loaders_future_whose_destructor_panics_leaves_the_key_free() {
    hush();
    must_end(|| {
        for form in [Form::Shared, Form::Local] {
            for ends in [true, false] {
                let cache: Numbers =
                    Cache::builder().max_entries(10).max_in_flight(1).build().unwrap();
                let (fuse, gate) = (Fuse::default(), Gate::new());
                let bomb = Bomb(fuse.clone());
                let passed = gate.pass_async();
                let load = async move {
                    let loaded = passed.await;
                    // Kept until the future itself is dropped.
                    let bomb = std::mem::ManuallyDrop::new(bomb);
                    drop(std::mem::ManuallyDrop::into_inner(bomb));
                    loaded
                };
                let mut caller = match form {
                    Form::Local => Polled::begun(cache.load(&1).run_local(|_| load)),
                    _ => Polled::begun(cache.load(&1).run_async(|_| load)),
                };
                fuse.arm(1);
                if ends {
                    gate.open(2);
                    let told = caught(|| caller.poll());
                    assert_eq!(told.is_none(), form == Form::Local);
                } else {
                    assert!(panics(|| drop(caller)));
                }
                assert!(!fuse.is_armed());
                assert_no_load_runs(&cache);
                assert_eq!(form.call(&cache, &1, &Gate::opened(3)), Ok(3));
                assert_at_rest(&cache);
            }
        }
    });
}

/// A future that is ready at once, with a destructor that panics.
struct Ready {
    _bomb: Bomb,
}

impl Future for Ready {
    type Output = u32;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<u32> {
        Poll::Ready(2)
    }
}

#[test]
fn pan_01_the_answer_stands_if_the_future_panics_when_it_is_dropped_after_it() {
    hush();
    let cache: Numbers = Cache::new(10);
    let fuse = Fuse::default();
    fuse.arm(1);
    let load = Ready { _bomb: Bomb(fuse.clone()) };
    assert_eq!(block_on(cache.get_or_load_async(&1, || load)), Ok(2));
    assert!(!fuse.is_armed());
    fuse.arm(1);
    let load = Ready { _bomb: Bomb(fuse.clone()) };
    let told = caught(|| block_on(cache.load(&2).run_local(|_| load)));
    assert!(told.is_none_or(|told| told.unwrap().value == Some(2)));
    assert_eq!(cache.get(&2), Some(2));
    assert_at_rest(&cache);
}

#[test]
fn pan_01_a_panic_whose_payload_panics_when_it_is_dropped_holds_up_nobody() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let cache: Numbers = Cache::new(10);
            let (fuse, gate) = (Fuse::default(), Gate::<()>::new());
            fuse.arm(1);
            let first = {
                let (cache, gate, bomb) = (cache.clone(), gate.clone(), Bomb(fuse.clone()));
                thread::spawn(move || {
                    let told = catch_unwind(AssertUnwindSafe(|| match leader {
                        Form::Blocking => drop(cache.load(&1).run(|_| -> u32 {
                            gate.pass();
                            std::panic::panic_any(bomb)
                        })),
                        Form::Shared => drop(block_on(cache.load(&1).run_async(|_| async move {
                            gate.pass_async().await;
                            std::panic::panic_any::<Bomb>(bomb);
                            #[expect(unreachable_code, reason = "it has to be a load")]
                            1
                        }))),
                        Form::Local => drop(block_on(cache.load(&1).run_local(|_| async move {
                            gate.pass_async().await;
                            std::panic::panic_any::<Bomb>(bomb);
                            #[expect(unreachable_code, reason = "it has to be a load")]
                            1
                        }))),
                    }));
                    fuse.disarm();
                    drop(told);
                })
            };
            gate.until_entered(1);
            let waiting = Form::ALL.map(|form| form.begin(&cache, 1, &Gate::opened(4)));
            until_waiting(&cache, 3);
            gate.open(());
            first.join().unwrap();
            for caller in waiting {
                // Who drives the load is who drops the payload, and so may get its panic.
                if let Ok(told) = caller.join() {
                    assert!(matches!(told, Ok(4) | Err(LoadError::Panicked(_))), "{told:?}");
                }
            }
            cache.invalidate(&1);
            assert_eq!(leader.call(&cache, &1, &Gate::opened(3)), Ok(3));
            assert_at_rest(&cache);
        }
    });
}

/// An answer of the user's own kind, that panics when it is looked at.
struct Opaque;

impl IntoLoad<u32> for Opaque {
    type Error = &'static str;

    fn into_load(self) -> Result<Load<u32>, &'static str> {
        planned()
    }
}

#[test]
fn pan_01_an_answer_that_panics_when_it_is_looked_at_holds_up_nobody() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let cache: Numbers = Cache::new(10);
            let gate = Gate::<()>::new();
            let first = {
                let (cache, gate) = (cache.clone(), gate.clone());
                thread::spawn(move || match leader {
                    Form::Blocking => cache.load(&1).run(|_| {
                        gate.pass();
                        Opaque
                    }),
                    Form::Shared => block_on(cache.load(&1).run_async(|_| async move {
                        gate.pass_async().await;
                        Opaque
                    })),
                    Form::Local => block_on(cache.load(&1).run_local(|_| async move {
                        gate.pass_async().await;
                        Opaque
                    })),
                })
            };
            gate.until_entered(1);
            let waiting = Form::ALL.map(|form| form.begin(&cache, 1, &Gate::opened(4)));
            until_waiting(&cache, 3);
            gate.open(());
            if let Ok(told) = first.join() {
                assert!(told.is_ok_and(|it| it.value == Some(4)) || leader == Form::Shared);
            }
            for caller in waiting {
                let told = caller.join().unwrap();
                assert!(matches!(told, Ok(4) | Err(LoadError::Panicked(_))), "{told:?}");
            }
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn pan_01_an_error_whose_copy_panics_is_the_trouble_of_who_copies_it() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            for nth in 1..=4 {
                let cache: Numbers = Cache::new(10);
                let fuses = Fuses::default();
                let gate: Gate<()> = Gate::new();
                let call = |form: Form| {
                    let (cache, gate, fuses) = (cache.clone(), gate.clone(), fuses.clone());
                    let load = move || {
                        let error = Touchy::new(1, &fuses);
                        Err::<u32, Touchy>(error)
                    };
                    let wait = gate.clone();
                    thread::spawn(move || match form {
                        Form::Blocking => cache.get_or_load(&1, || {
                            wait.pass();
                            load()
                        }),
                        Form::Shared => block_on(cache.get_or_load_async(&1, || async move {
                            wait.pass_async().await;
                            load()
                        })),
                        Form::Local => block_on(cache.load(&1).run_local(|_| async move {
                            wait.pass_async().await;
                            load()
                        }))
                        .map(|outcome| outcome.value.unwrap()),
                    })
                };
                let first = call(leader);
                gate.until_entered(1);
                let waiting = Form::ALL.map(call);
                until_waiting(&cache, 3);
                fuses.clone.arm(nth);
                gate.open(());
                let mut told = vec![first.join()];
                told.extend(waiting.map(JoinHandle::join));
                let panicked = told.iter().filter(|told| told.is_err()).count();
                assert!((1..=2).contains(&panicked), "{leader:?}, {nth}: {panicked}");
                let failed = |told: &Result<u32, LoadError<Touchy>>| matches!(told, Err(LoadError::Failed(error)) if error.n == 1);
                assert!(told.iter().flatten().all(failed));
                assert_at_rest(&cache);
            }
        }
    });
}

struct Sour;

impl Wake for Sour {
    fn wake(self: Arc<Self>) {
        planned::<()>();
    }
}

#[test]
fn pan_01_a_waker_that_panics_keeps_nobody_else_from_being_woken() {
    hush();
    must_end(|| {
        for leader in Form::ALL {
            let cache: Numbers = Cache::new(10);
            let gate = Gate::new();
            let first = leader.begin(&cache, 1, &gate);
            gate.until_entered(1);
            let call = || Polled::begun(cache.get_or_load_async(&1, || gate.pass_async()));
            let mut callers: Vec<_> = (0..5).map(|_| call()).collect();
            assert!(callers[2].poll_with(&Waker::from(Arc::new(Sour))).is_pending());
            until_waiting(&cache, 5);
            let seen: Vec<usize> = callers.iter().map(Polled::wakes).collect();
            gate.open(3);
            assert_eq!(first.join().unwrap(), Ok(3), "{leader:?}");
            for (n, (caller, seen)) in callers.into_iter().zip(seen).enumerate() {
                let told = if n == 2 { caller.finish() } else { caller.finish_woken(seen) };
                assert_eq!(told, Ok(3));
            }
            assert_at_rest(&cache);
        }
    });
}

#[test]
fn pan_09_after_a_loader_panicked_all_calls_work() {
    hush();
    must_end(|| {
        // A load for each thread, and no more.
        let cache: Numbers = Cache::builder().max_entries(1_000).max_in_flight(4).build().unwrap();
        for form in Form::ALL {
            let gate = Gate::<u32>::new();
            gate.open_to_panic(PLANNED);
            assert!(caught(|| form.call(&cache, &1, &gate)).is_none_or(|told| is_panicked(&told)));
            thread::scope(|scope| {
                for n in 0..4_u32 {
                    let cache = &cache;
                    scope.spawn(move || {
                        for key in std::iter::once(1).chain(100 * n..100 * (n + 1)) {
                            cache.insert(key, key).unwrap();
                            assert!(key == 1 || cache.get(&key) == Some(key));
                            cache.invalidate(&key);
                            let form = Form::ALL[key as usize % 3];
                            let told = form.call(cache, &key, &Gate::opened(key));
                            assert_eq!(told, Ok(key));
                            cache.remove(&key);
                        }
                    });
                }
            });
            assert_at_rest(&cache);
        }
    });
}
