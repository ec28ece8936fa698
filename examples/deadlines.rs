//! A value's life: fresh, stale, stale in place of an error, dead. Time is moved by hand.

use std::time::Duration;

use seawall::{Cache, Clock, EntryState, InsertOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let secs = Duration::from_secs;
    let (clock, hand) = Clock::manual();
    let cache: Cache<&str, &str> = Cache::builder()
        .max_entries(100)
        .time_to_live(secs(60))
        .stale_while_revalidate(secs(10))
        .stale_if_error(secs(300))
        .clock(clock)
        .build()?;
    let state = || cache.get_on_error("page").map(|(_, state)| state);

    cache.insert("page", "v1")?;
    assert_eq!(state(), Some(EntryState::Fresh));

    hand.advance(secs(60));
    assert_eq!(cache.get("page"), Some("v1"), "served, and it is time to load it anew");
    assert_eq!(state(), Some(EntryState::Stale));

    hand.advance(secs(10));
    assert_eq!(cache.get("page"), None, "too old for a plain read");
    assert_eq!(state(), Some(EntryState::StaleOnError), "but better than an error");

    hand.advance(secs(290));
    assert_eq!(state(), None);

    // One entry may have deadlines of its own, and may be a few seconds old already.
    let options = InsertOptions::new().time_to_live(secs(30)).age(secs(5));
    cache.insert_with("page", "v2", options)?;
    let remaining = cache.get_with("page", |entry| entry.remaining()).flatten();
    assert_eq!(remaining, Some(secs(25)));

    println!("page v2 is fresh for another {remaining:?}");
    Ok(())
}
