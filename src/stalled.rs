//! A thread stopped before any atomic operation of any operation of a cache keeps nobody from finishing
//! any operation, whatever they are: as `table::tests`, for the cache as a whole.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::sync::stall;
use crate::{Cache, Clock, Compute, InsertOptions, Load, LoadError, Outcome};

type Operation = fn(&Cache<u32, u32>);

fn ignore<T>(_: T) {}

const OPERATIONS: [(&str, Operation); 20] = [
    ("get", |cache| ignore(cache.get(&3))),
    ("get_many", |cache| ignore(cache.get_many(&[1, 2, 3, 99]))),
    ("insert, and evict", |cache| ignore(cache.insert(99, 99))),
    ("insert with a tag", |cache| {
        ignore(cache.insert_with(98, 98, InsertOptions::new().tag("even").version(1)));
    }),
    ("insert_if_absent", |cache| ignore(cache.insert_if_absent(97, 97))),
    ("replace", |cache| ignore(cache.insert(3, 33))),
    ("replace_if", |cache| ignore(cache.replace_if(3, 33, |_| true))),
    ("compute", |cache| ignore(cache.compute(3, |_| Compute::Insert(4)))),
    ("remove", |cache| ignore(cache.remove(&3))),
    ("invalidate_all", |cache| cache.invalidate_all()),
    ("invalidate_if", |cache| ignore(cache.invalidate_if(|key, _| key % 3 == 0))),
    ("invalidate_tag", |cache| ignore(cache.invalidate_tag("even"))),
    ("mark_stale", |cache| ignore(cache.mark_stale(&3))),
    ("iter", |cache| ignore(cache.iter().count())),
    ("load", |cache| ignore(load(cache, 96, Load::Value(96)))),
    ("load of an absence", |cache| ignore(load(cache, 95, Load::Absent))),
    ("load of a stale key", |cache| {
        cache.mark_stale(&3);
        ignore(load(cache, 3, Load::Value(5)));
    }),
    ("load that fails", |cache| {
        let request = cache.load(&94).timeout(Duration::ZERO);
        ignore(request.run(|_| Err::<u32, _>("down")));
    }),
    ("set_capacity", |cache| cache.set_capacity(4)),
    ("sweep", |cache| ignore(cache.sweep(8))),
];

/// Joins the load of another thread, if there is one, and leaves it at once: a load that stands still is
/// not waited for.
fn load(
    cache: &Cache<u32, u32>,
    key: u32,
    load: Load<u32>,
) -> Result<Outcome<u32>, LoadError<Infallible>> {
    cache.load(&key).timeout(Duration::ZERO).run(|_| load)
}

/// A full cache of eight, all with deadlines, half of them tagged.
fn full() -> Cache<u32, u32> {
    let cache = Cache::builder()
        .max_entries(8)
        .time_to_live(Duration::from_secs(60))
        .stale_while_revalidate(Duration::from_secs(60))
        .absent_time_to_live(Duration::from_secs(60))
        .min_retry_interval(Duration::from_secs(1))
        .clock(Clock::manual().0)
        .build()
        .unwrap();
    for key in 0..8 {
        let options = InsertOptions::new();
        let options = if key % 2 == 0 { options.tag("even") } else { options };
        cache.insert_with(key, key, options).unwrap();
    }
    cache
}

#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn a_stalled_thread_stops_no_operation_of_a_cache() {
    let _alone = stall::alone();
    for (name, operation) in OPERATIONS {
        // Every stop up to the hundredth, then one in seven: sweeping and walking pass many buckets.
        let mut stop = 0;
        while stalled_before(name, operation, stop) {
            stop += if stop < 100 { 1 } else { 7 };
        }
        assert!(stop > 0, "{name} has no atomic operation");
    }
}

/// Returns false if the operation ended before it came to its `stop`-th atomic operation.
fn stalled_before(name: &str, operation: Operation, stop: usize) -> bool {
    let cache = Arc::new(full());
    let (stopped, is_stopped) = channel();
    let (release, may_go) = channel();
    let stalled = {
        let cache = Arc::clone(&cache);
        thread::spawn(move || {
            stall::stop_at(stop, stopped, may_go);
            operation(&cache);
            stall::disarm();
        })
    };
    let came_to_stop = is_stopped.recv().is_ok();
    // The others run to the end while the first thread stands still: if one of them waited for it,
    // this test would hang.
    for (_, operation) in OPERATIONS {
        operation(&cache);
    }
    cache.set_capacity(8);
    for key in 200..220 {
        cache.insert(key, key).unwrap();
        assert_eq!(cache.get(&key), Some(key), "{name} stopped at {stop}");
    }
    drop(release);
    stalled.join().unwrap();
    // What the stalled thread does when it goes on leaves the accounts in order.
    cache.set_capacity(8);
    cache.insert(300, 300).unwrap();
    cache.sweep(usize::MAX);
    // Remembered absences and failures are entries that no iteration shows.
    cache.invalidate(&95);
    cache.invalidate(&94);
    assert_eq!(cache.len(), cache.iter().count(), "{name} stopped at {stop}");
    assert_eq!(cache.weight(), cache.len() as u64, "{name} stopped at {stop}");
    assert!(cache.len() <= 8, "{name} stopped at {stop}");
    assert_eq!(cache.load_stats().in_flight, 0, "{name} stopped at {stop}");
    assert_eq!(cache.load_stats().waiting, 0, "{name} stopped at {stop}");
    came_to_stop
}
