//! A budget in bytes, and a listener that is told what leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use seawall::{Cache, RefusedReason, RemovalCause};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let evicted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&evicted);
    let cache: Cache<u32, Arc<[u8]>> = Cache::builder()
        .max_weight(100_000)
        .weigher(|_, bytes: &Arc<[u8]>| bytes.len() as u64)
        .removal_listener(move |_, bytes: &Arc<[u8]>, cause| {
            if cause == RemovalCause::Evicted {
                counter.fetch_add(bytes.len(), Ordering::Relaxed);
            }
        })
        .build()?;

    let mut stored = 0;
    for key in 0..1_000 {
        let bytes: Arc<[u8]> = vec![0; 100 + key as usize].into();
        stored += bytes.len();
        cache.insert(key, bytes)?;
    }
    let evicted = evicted.load(Ordering::Relaxed);
    assert!(cache.weight() <= 100_000);
    assert_eq!(cache.weight() as usize + evicted, stored);

    // What does not fit at all is handed back.
    let refused = cache.insert(0, vec![0; 100_001].into()).expect_err("it is too heavy");
    assert_eq!(refused.reason(), RefusedReason::TooHeavy { weight: 100_001, capacity: 100_000 });

    println!("{} entries of {} bytes; {evicted} bytes evicted", cache.len(), cache.weight());
    Ok(())
}
