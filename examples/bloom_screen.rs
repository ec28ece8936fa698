//! Keys that certainly do not exist are answered without asking the origin, however many different ones come.

use std::cell::Cell;
use std::error::Error;
use std::sync::Arc;

use seawall::bloom::{RebuildingFilter, plan};
use seawall::{Cache, Source};

const ARTICLES: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    // Room for twice as many as there are now; one in a thousand that do not exist gets through.
    let plan = plan(2 * ARTICLES, 0.001)?;
    let screen = Arc::new(RebuildingFilter::new(&plan)?);
    let cache: Cache<u64, String> =
        Cache::builder().max_entries(1_000).screen(Arc::clone(&screen)).build()?;

    // It lets everything through until it has been given all keys of the origin.
    let rebuild = screen.rebuild(&plan)?;
    (0..ARTICLES).for_each(|id| _ = rebuild.insert(&id));
    rebuild.finish();

    let queries = Cell::new(0);
    let find = |id: u64| {
        queries.set(queries.get() + 1);
        (id <= ARTICLES).then(|| format!("article {id}"))
    };

    let flood = 50_000;
    for id in 1_000_000..1_000_000 + flood {
        assert_eq!(cache.load(&id).run(|_| find(id))?.value, None);
    }
    let screened = cache.load_stats().screened;
    assert_eq!(screened + queries.get(), flood);
    println!("{flood} keys that do not exist: {} queries, {} bytes", queries.get(), screen.bytes());

    // A new article must be told to the screen before anyone asks for it; an insert into the cache does so.
    let before = cache.load(&ARTICLES).run(|_| find(ARTICLES))?;
    println!("article {ARTICLES} before it is told: {:?}", before.source);
    screen.insert(&ARTICLES);
    let after = cache.load(&ARTICLES).run(|_| find(ARTICLES))?;
    assert_eq!(after.source, Source::Loaded);
    println!("and after: {:?}", after.value);
    Ok(())
}
