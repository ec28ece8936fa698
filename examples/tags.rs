//! Entries that depend on the same thing share a tag, and are invalidated together.

use seawall::{Cache, InsertOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache: Cache<String, String> = Cache::new(10_000);

    for user in 0..100 {
        for page in ["profile", "orders", "invoices"] {
            // A tag for the user, and one for the kind of page.
            let options = InsertOptions::new().tag(format!("user:{user}")).tag(page);
            cache.insert_with(format!("/{user}/{page}"), "...".to_owned(), options)?;
        }
    }

    // Constant time, however many entries have the tag.
    assert!(cache.invalidate_tag("user:7"));
    assert_eq!(cache.get("/7/profile"), None);
    assert!(cache.get("/8/profile").is_some());

    assert!(cache.invalidate_tag("orders"));
    assert_eq!(cache.get("/8/orders"), None);

    // What is stored from now on is not affected.
    cache.insert_with(
        "/7/profile".to_owned(),
        "new".to_owned(),
        InsertOptions::new().tag("user:7"),
    )?;
    assert_eq!(cache.get("/7/profile").as_deref(), Some("new"));

    // What was invalidated takes room until inserts come by, or a sweep takes it out.
    cache.sweep(usize::MAX);
    assert_eq!(cache.len(), 300 - 3 - 99 + 1);
    println!("{} entries are left; {} were invalidated", cache.len(), cache.stats().invalidated);
    Ok(())
}
