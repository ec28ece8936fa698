//! What loads look like from outside: the features `metrics`, `tracing` and `tokio`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use seawall::{Cache, Clock, EntryState, Load};
use tracing::span::{Attributes, Id, Record};

/// All that was recorded, by name and labels.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<HashMap<String, f64>>>);

/// One of them.
struct Place(Recorded, String);

impl Recorded {
    fn place(&self, key: &Key) -> Arc<Place> {
        let labels: Vec<_> =
            key.labels().map(|it| format!("{}={}", it.key(), it.value())).collect();
        Arc::new(Place(self.clone(), format!("{} {}", key.name(), labels.join(" "))))
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.lock().unwrap().get(name).copied()
    }
}

impl Place {
    fn set(&self, change: impl FnOnce(f64) -> f64) {
        let mut values = self.0.0.lock().unwrap();
        let value = values.entry(self.1.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Place {
    fn increment(&self, value: u64) {
        self.set(|old| old + value as f64);
    }
    fn absolute(&self, value: u64) {
        self.set(|_| value as f64);
    }
}

impl GaugeFn for Place {
    fn increment(&self, value: f64) {
        self.set(|old| old + value);
    }
    fn decrement(&self, value: f64) {
        self.set(|old| old - value);
    }
    fn set(&self, value: f64) {
        Place::set(self, |_| value);
    }
}

impl HistogramFn for Place {
    fn record(&self, _value: f64) {
        self.set(|old| old + 1.0);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.place(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.place(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.place(key))
    }
}

/// A place in the code that makes spans is asked once by whom it is heard, and `tracing` gives the answer to
/// all if a subscriber comes at that moment: so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn metrics_tell_what_the_counters_say() {
    let _alone = alone();
    let recorded = Recorded::default();
    metrics::with_local_recorder(&recorded, || {
        let (clock, hand) = Clock::manual();
        let cache: Cache<u32, u32> = Cache::builder()
            .max_entries(10)
            .time_to_live(Duration::from_secs(1))
            .stale_if_error(Duration::from_secs(10))
            .max_in_flight(1)
            .clock(clock)
            .build()
            .unwrap();
        assert_eq!(cache.get_or_load(&1, || 1), Ok(1));
        assert_eq!(cache.get_or_load(&1, || 1), Ok(1));
        assert!(cache.get_or_load(&2, || None::<u32>).is_err());
        hand.advance(Duration::from_secs(2));
        assert_eq!(cache.get_or_load(&1, || Err::<u32, _>("down")), Ok(1));
        let refused = cache.get_or_load(&3, || cache.get_or_load(&4, || 4));
        assert!(refused.is_err());
        cache.publish_metrics("numbers");
    });
    let expected = [
        ("seawall_loads_total cache=numbers kind=loaded", 1.0),
        ("seawall_loads_total cache=numbers kind=absent", 1.0),
        ("seawall_loads_total cache=numbers kind=failed", 2.0),
        ("seawall_lookups_total cache=numbers kind=fresh", 1.0),
        ("seawall_waits_total cache=numbers kind=joined", 0.0),
        ("seawall_waits_total cache=numbers kind=served_stale", 1.0),
        ("seawall_refusals_total cache=numbers kind=in_flight", 1.0),
        ("seawall_loads_in_flight cache=numbers", 0.0),
        ("seawall_entries cache=numbers", 1.0),
        ("seawall_load_seconds outcome=loaded", 1.0),
        ("seawall_load_seconds outcome=failed", 2.0),
        ("seawall_stale_age_seconds ", 1.0),
    ];
    for (name, value) in expected {
        assert_eq!(recorded.get(name), Some(value), "{name}");
    }
}

/// Keeps spans by number.
#[derive(Clone, Default)]
struct Spans(Arc<(AtomicU64, Mutex<Kept>)>);

#[derive(Default)]
struct Kept {
    names: HashMap<u64, &'static str>,
    /// (follower, followed).
    follows: HashSet<(u64, u64)>,
    recorded: usize,
    entered: Vec<u64>,
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "seawall"
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.0.0.fetch_add(1, SeqCst) + 1;
        self.0.1.lock().unwrap().names.insert(id, attributes.metadata().name());
        Id::from_u64(id)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {
        self.0.1.lock().unwrap().recorded += 1;
    }
    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.0.1.lock().unwrap().follows.insert((span.into_u64(), follows.into_u64()));
    }
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, span: &Id) {
        self.0.1.lock().unwrap().entered.push(span.into_u64());
    }
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_load_has_a_span_that_the_waits_for_it_follow_from() {
    let _alone = alone();
    let spans = Spans::default();
    let cache: Cache<u32, u32> = Cache::new(10);
    thread::scope(|scope| {
        let caller = |load: fn(&Cache<u32, u32>) -> u32| {
            let (spans, cache) = (spans.clone(), &cache);
            scope.spawn(move || {
                tracing::subscriber::with_default(spans, || {
                    assert_eq!(cache.get_or_load(&1, || load(cache)), Ok(1));
                });
            })
        };
        let leader = caller(|cache| {
            while cache.load_stats().waiting < 2 {
                thread::yield_now();
            }
            1
        });
        while cache.load_stats().started == 0 {
            thread::yield_now();
        }
        let followers = [caller(|_| unreachable!()), caller(|_| unreachable!())];
        leader.join().unwrap();
        followers.into_iter().for_each(|it| it.join().unwrap());
    });
    let kept = spans.0.1.lock().unwrap();
    let of = |name| -> Vec<u64> {
        kept.names.iter().filter(|it| *it.1 == name).map(|it| *it.0).collect()
    };
    let (loads, waits) = (of("load"), of("wait"));
    assert_eq!((loads.len(), waits.len()), (1, 2));
    assert_eq!(kept.follows, waits.iter().map(|wait| (*wait, loads[0])).collect());
    assert_eq!(kept.recorded, 1, "the outcome");
    assert!(kept.entered.contains(&loads[0]), "the loader runs in it");
}

#[test]
fn a_runtime_is_a_spawner_of_refreshes() {
    let _alone = alone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let (clock, hand) = Clock::manual();
    let cache: Cache<u32, u32> = Cache::builder()
        .max_entries(10)
        .time_to_live(Duration::from_secs(1))
        .stale_while_revalidate(Duration::from_secs(10))
        .spawner(runtime.handle().clone())
        .clock(clock)
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    hand.advance(Duration::from_secs(2));
    let told = runtime.block_on(cache.load(&1).run_async(|_| async { Load::Value(2) }));
    assert_eq!(told.unwrap().value, Some(1));
    while cache.get_with(&1, |entry| entry.state()) != Some(EntryState::Fresh) {
        thread::yield_now();
    }
    assert_eq!((cache.get(&1), cache.load_stats().refreshes), (Some(2), 1));
}
