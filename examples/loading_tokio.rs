//! Async loads on tokio: stale values are served while a refresh runs on the runtime.

use std::time::Duration;

use seawall::Cache;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let builder = Cache::builder()
        .max_entries(1_000)
        .time_to_live(Duration::from_millis(50))
        .stale_while_revalidate(Duration::from_secs(60))
        .max_in_flight(8);
    // With the feature `tokio`, `tokio::runtime::Handle::current()` is a spawner itself.
    let builder = builder.spawner(|future| drop(tokio::spawn(future)));
    let cache: Cache<u32, String> = builder.build()?;

    let load = |version: &'static str| {
        let cache = cache.clone();
        async move { cache.get_or_load_async(&7, || async move { version.to_owned() }).await }
    };
    assert_eq!(load("first").await.as_deref(), Ok("first"));
    tokio::time::sleep(Duration::from_millis(60)).await;
    println!("stale, and served at once: {}", load("second").await?);
    while cache.get(&7).as_deref() != Some("second") {
        tokio::task::yield_now().await;
    }
    println!("refreshed behind it: {}", load("third").await?);
    Ok(())
}
