//! Loading on a miss from tasks, here on tokio: a load belongs to its key, not to the caller that began it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use seawall::Cache;
use tokio::sync::Notify;

/// An origin that counts how often it is asked, and answers when it is told to.
#[derive(Default)]
struct Origin {
    calls: AtomicU64,
    answer: Notify,
}

impl Origin {
    async fn page(&self) -> String {
        self.calls.fetch_add(1, Relaxed);
        self.answer.notified().await;
        "<h1>Hello</h1>".to_owned()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cache: Cache<u32, String> = Cache::builder().max_entries(1_000).max_in_flight(8).build()?;
    let origin = Arc::new(Origin::default());

    let request = || {
        let (cache, origin) = (cache.clone(), Arc::clone(&origin));
        // The loader owns what it uses, since it may outlive this caller.
        tokio::spawn(async move {
            cache.get_or_load_async(&7, || async move { origin.page().await }).await
        })
    };

    let first = request();
    while origin.calls.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..100).map(|_| request()).collect();
    while cache.load_stats().waiting < 100 {
        tokio::task::yield_now().await;
    }

    // The caller that began the load hangs up: the others drive it to its end.
    first.abort();
    assert!(first.await.is_err_and(|error| error.is_cancelled()));
    origin.answer.notify_one();
    for other in others {
        assert_eq!(other.await?.as_deref(), Ok("<h1>Hello</h1>"));
    }

    let calls = origin.calls.load(Relaxed);
    assert_eq!(calls, 1);
    println!("the first of 101 callers hung up; 100 were answered by {calls} call");
    Ok(())
}
