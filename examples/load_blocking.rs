//! Loading on a miss from threads: of all callers of a key at the same time one asks the origin.

use std::error::Error;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use seawall::Cache;

/// A database that counts how often it is asked.
#[derive(Default)]
struct Database {
    queries: AtomicU64,
}

impl Database {
    fn name_of(&self, user: &str) -> Result<String, String> {
        self.queries.fetch_add(1, Relaxed);
        thread::sleep(Duration::from_millis(20));
        match user {
            "user:1" => Ok("Alice".to_owned()),
            _ => Err(format!("no connection to the shard of {user}")),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let database = Database::default();
    let cache: Cache<String, String> = Cache::new(1_000);

    let callers = 16;
    let barrier = Barrier::new(callers);
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                barrier.wait();
                let name = cache.get_or_load("user:1", || database.name_of("user:1"));
                assert_eq!(name.as_deref(), Ok("Alice"));
            });
        }
    });
    let queries = database.queries.load(Relaxed);
    assert_eq!(queries, 1);
    println!("{callers} callers, {queries} query, {} waited", cache.load_stats().joined);

    // An error goes to all who waited, and is not stored: the next caller tries again.
    let error = cache.get_or_load("user:2", || database.name_of("user:2")).expect_err("no shard");
    println!("user:2: {error}");
    assert_eq!(cache.get("user:2"), None);
    Ok(())
}
