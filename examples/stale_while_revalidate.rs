//! Stale values are served at once while one refresh runs in the background, on a spawner. Time is moved by
//! hand.

use std::error::Error;
use std::time::Duration;

use seawall::{Cache, Clock, Outcome, Source, WhyStale};

async fn front_page(cache: &Cache<&'static str, u32>, version: u32) -> Option<Outcome<u32>> {
    cache.load(&"front page").run_async(move |_| async move { version }).await.ok()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (clock, hand) = Clock::manual();
    let cache = Cache::builder()
        .max_entries(1_000)
        .time_to_live(Duration::from_secs(60))
        .stale_while_revalidate(Duration::from_secs(30))
        // With the feature `tokio`, a `tokio::runtime::Handle` is a spawner itself.
        .spawner(|refresh| drop(tokio::spawn(refresh)))
        .clock(clock)
        .build()?;

    let loaded = front_page(&cache, 1).await.ok_or("version 1 is loaded")?;
    assert_eq!((loaded.value, loaded.source), (Some(1), Source::Loaded));

    // A minute later nobody waits for version 2: all get version 1 until it is there.
    hand.advance(Duration::from_secs(65));
    let stale = front_page(&cache, 2).await.ok_or("version 1 is served")?;
    assert_eq!((stale.value, stale.source), (Some(1), Source::Stale(WhyStale::Refreshing)));
    println!("served at once: version 1, {:?} old", stale.age.unwrap_or_default());

    while cache.get(&"front page") != Some(2) {
        tokio::task::yield_now().await;
    }
    let stats = cache.load_stats();
    assert_eq!((stats.refreshes, stats.started), (1, 2));
    println!("refreshed behind it: version 2");

    // Past the window a caller waits again: nothing is served that is older than both times together.
    hand.advance(Duration::from_secs(90));
    let loaded = front_page(&cache, 3).await.ok_or("version 3 is loaded")?;
    assert_eq!((loaded.value, loaded.source), (Some(3), Source::Loaded));
    println!("90 s later: version 3, waited for");
    Ok(())
}
