//! Loading on a miss: one load for each key, absences, and values that stand in for errors.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use seawall::{Cache, Clock, Load, LoadError, Source, WhyStale};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (clock, hand) = Clock::manual();
    let cache: Cache<String, String> = Cache::builder()
        .max_entries(1_000)
        .time_to_live(Duration::from_secs(60))
        .stale_if_error(Duration::from_secs(600))
        .absent_time_to_live(Duration::from_secs(5))
        .clock(clock)
        .build()?;

    // Sixteen callers, one load.
    let calls = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let name = cache.get_or_load("user:1", || {
                    calls.fetch_add(1, Relaxed);
                    thread::sleep(Duration::from_millis(20));
                    Ok::<_, &str>("Alice".to_owned())
                });
                assert_eq!(name.as_deref(), Ok("Alice"));
            });
        }
    });
    println!("16 callers, {} load", calls.into_inner());

    // What does not exist is remembered as such, and is no error of the origin's.
    let nobody = || Ok::<_, &str>(None);
    assert_eq!(cache.get_or_load("user:2", nobody), Err(LoadError::Absent));
    assert_eq!(cache.get_or_load("user:2", unasked), Err(LoadError::Absent));

    // The origin is down: the stale value stands in, and says so.
    hand.advance(Duration::from_secs(90));
    let down = |_| Err::<Load<String>, _>("connection refused");
    let outcome = cache.load("user:1").run(down).map_err(|error| error.to_string())?;
    assert_eq!(outcome.source, Source::Stale(WhyStale::Failed));
    println!("{:?}, {:?} old", outcome.value, outcome.age);
    println!("{} load failed", cache.load_stats().failed);
    Ok(())
}

fn unasked() -> Result<Option<String>, &'static str> {
    unreachable!("remembered")
}
