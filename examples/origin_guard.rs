//! The guard alone, in front of a query whose result is kept elsewhere: each report is made by one caller at a
//! time, no more of them at once than the database can bear, and nobody waits in a line.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use seawall::guard::{Acquired, LeadEnd, OriginGuard, OriginResult};

const CONNECTIONS: u64 = 3;

#[derive(Default)]
struct Database {
    running: AtomicU64,
    /// The most queries that ever ran at once.
    peak: AtomicU64,
    reports: Mutex<HashMap<u32, String>>,
}

impl Database {
    /// Takes long, and takes a connection meanwhile.
    fn make_report(&self, customer: u32) -> Result<(), String> {
        self.peak.fetch_max(self.running.fetch_add(1, Relaxed) + 1, Relaxed);
        thread::sleep(Duration::from_millis(50));
        self.running.fetch_sub(1, Relaxed);
        let report = format!("report of customer {customer}");
        self.reports.lock().expect("nobody panics").insert(customer, report);
        Ok(())
    }

    fn report(&self, customer: u32) -> Result<String, String> {
        let reports = self.reports.lock().expect("nobody panics");
        reports.get(&customer).cloned().ok_or_else(|| "there is none".to_owned())
    }
}

fn fresh_report(
    guard: &OriginGuard<u32>,
    database: &Database,
    customer: u32,
) -> Result<String, String> {
    match guard.acquire(customer) {
        Acquired::Lead(lead) => {
            // If this panics, the lead is dropped, and the next caller leads.
            let made = database.make_report(customer);
            lead.finish(if made.is_ok() { OriginResult::Success } else { OriginResult::Failure });
            made?;
        }
        Acquired::Follower(follower) => match follower.wait() {
            LeadEnd::Finished(OriginResult::Success) => {}
            end => return Err(format!("not made: {end:?}")),
        },
        Acquired::Refused(refusal) => return Err(refusal.to_string()),
        other => return Err(format!("{other:?}")),
    }
    database.report(customer)
}

fn main() -> Result<(), Box<dyn Error>> {
    let database = &Database::default();
    // Callers with an empty key have nothing in common; a number is never empty.
    let guard = &OriginGuard::builder(|_: &u32| false).max_in_flight(CONNECTIONS).build()?;

    let told: Vec<_> = thread::scope(|scope| {
        let ask = |caller: u32| scope.spawn(move || fresh_report(guard, database, caller % 4));
        let callers: Vec<_> = (0..40).map(ask).collect();
        callers.into_iter().map(|caller| caller.join().expect("nobody panics")).collect()
    });

    let refused: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).collect();
    println!("{} callers have their report, {} do not", told.len() - refused.len(), refused.len());
    if let Some(why) = refused.first() {
        println!("for instance: {why}");
    }
    assert_eq!((guard.in_flight(), guard.waiters()), (0, 0));
    let peak = database.peak.load(Relaxed);
    assert!(peak <= CONNECTIONS);
    println!("at most {peak} queries at once");
    Ok(())
}
