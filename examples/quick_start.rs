//! A cache that several threads share: store, read by clone and by reference, change in one step.

use std::thread;

use seawall::{Cache, Compute, Inserted};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache: Cache<String, u64> = Cache::new(1_000);

    assert_eq!(cache.insert("apples".to_owned(), 3)?, Inserted::New);
    assert_eq!(cache.get("apples"), Some(3));
    assert_eq!(cache.get_with("apples", |entry| entry.value() * 2), Some(6));
    assert_eq!(cache.get("pears"), None);

    // No update is lost, whoever else updates the key.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let cache = cache.clone();
            thread::spawn(move || {
                for _ in 0..100 {
                    let add_one = cache.compute("pears".to_owned(), |entry| {
                        Compute::Insert(entry.map_or(0, |entry| *entry.value()) + 1)
                    });
                    add_one.expect("an entry of weight 1 fits");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    assert_eq!(cache.get("pears"), Some(400));

    println!("{} pears; {:?}", cache.remove("pears").unwrap_or(0), cache);
    Ok(())
}
