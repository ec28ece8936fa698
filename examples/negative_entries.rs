//! What does not exist is remembered as such: it is asked for once, and is no error. Time is moved by hand.

use std::cell::Cell;
use std::error::Error;
use std::time::Duration;

use seawall::{Cache, Clock, Load, LoadError};

fn main() -> Result<(), Box<dyn Error>> {
    let (clock, hand) = Clock::manual();
    let cache: Cache<String, String> = Cache::builder()
        .max_entries(1_000)
        .time_to_live(Duration::from_secs(60))
        .absent_time_to_live(Duration::from_secs(5))
        .clock(clock)
        .build()?;

    let queries = Cell::new(0);
    let find = |id: &str| {
        queries.set(queries.get() + 1);
        // `None` is an absence; an error would be an `Err`.
        Ok::<_, &str>((id == "7").then(|| format!("article {id}")))
    };

    for _ in 0..1_000 {
        assert_eq!(cache.get_or_load("404", || find("404")), Err(LoadError::Absent));
    }
    assert_eq!(queries.get(), 1);
    println!("1000 requests for what does not exist: {} query", queries.get());

    // It is asked for again when its time is up: an article that was just written is found then.
    hand.advance(Duration::from_secs(5));
    assert_eq!(cache.get_or_load("404", || find("404")), Err(LoadError::Absent));
    assert_eq!(queries.get(), 2);

    // Or at once, if whoever writes it tells the cache.
    cache.insert("404".to_owned(), "a new article".to_owned())?;
    assert_eq!(cache.get_or_load("404", || find("404")).as_deref(), Ok("a new article"));

    // A loader may know better how long an absence will last.
    let gone = |_| Load::AbsentFor(Duration::from_secs(3600));
    assert_eq!(cache.load("410").run(gone)?.value, None);
    hand.advance(Duration::from_secs(3599));
    assert_eq!(cache.load("410").run(gone)?.value, None);
    assert_eq!(cache.load_stats().absent, 3);
    println!("in all, {} queries that found nothing", cache.load_stats().absent);
    Ok(())
}
