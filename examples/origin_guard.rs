//! The guard alone, in front of a call that is not cached: one caller for each key asks, a bounded number in
//! all, and the others wait or go.

use std::thread;

use seawall::guard::{Acquired, OriginGuard, OriginResult};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard: OriginGuard<String> =
        OriginGuard::builder(|key: &String| key.is_empty()).max_in_flight(2).build()?;
    thread::scope(|scope| {
        for key in ["a", "a", "b", "c"] {
            let guard = guard.clone();
            scope.spawn(move || match guard.acquire(key.to_owned()) {
                Acquired::Lead(lead) => {
                    // Ask the database; a lead that is dropped, by a panic say, lets the next one ask.
                    lead.finish(OriginResult::Success);
                    println!("{key}: asked");
                }
                Acquired::Follower(follower) => println!("{key}: waited, {:?}", follower.wait()),
                Acquired::Refused(refusal) => println!("{key}: {refusal}"),
                other => println!("{key}: {other:?}"),
            });
        }
    });
    assert_eq!((guard.in_flight(), guard.waiters()), (0, 0));
    Ok(())
}
