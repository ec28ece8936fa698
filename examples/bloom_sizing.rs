//! Plans a Bloom filter, builds it, and measures what was predicted.
//!
//! Usage: `cargo run --release --example bloom_sizing -- KEYS RATE`, say `1000000 0.01`.

use std::error::Error;
use std::process::ExitCode;

use seawall::bloom::{Classic, Filter, Plan, plan};

/// Shares of the planned number of keys.
const SHARES: [f64; 5] = [1.0, 1.25, 1.5, 2.0, 3.0];

fn arguments() -> Result<(u64, f64), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [items, rate] = arguments.as_slice() else {
        return Err(format!("two arguments are needed, not {}", arguments.len()).into());
    };
    let items = items.parse().map_err(|error| format!("number of keys {items:?}: {error}"))?;
    let rate = rate.parse().map_err(|error| format!("rate {rate:?}: {error}"))?;
    Ok((items, rate))
}

fn print(plan: &Plan, classic: Classic) {
    let items = plan.items() as f64;
    println!("{:<24}{:>16}{:>16}", "", "blocked (here)", "classic");
    println!("{:<24}{:>16}{:>16}", "bits", plan.bytes() * 8, classic.bits);
    println!("{:<24}{:>16}{:>16}", "bytes", plan.bytes(), (classic.bits / 8.0).ceil());
    println!("{:<24}{:>16.2}{:>16.2}", "bits per key", plan.bits_per_key(), classic.bits / items);
    println!("{:<24}{:>16}{:>16}", "hashes", plan.hashes(), classic.hashes);
    println!("{:<24}{:>16}{:>16}", "cache lines per query", 1, classic.hashes);
    println!("{:<24}{:>16}{:>16}", "blocks", plan.blocks(), "-");
}

/// The share of absent keys that a filter lets through.
fn measure(filter: &Filter, expected: f64) -> f64 {
    // Some ten thousand false positives, within reason.
    let queries = (10_000.0 / expected).clamp(1e5, 2e7) as u64;
    let absent = (1 << 60)..(1 << 60) + queries;
    absent.filter(|key| filter.contains(key)).count() as f64 / queries as f64
}

fn run(plan: &Plan) -> Result<(), Box<dyn Error>> {
    print(plan, plan.classic());
    let filter = Filter::new(plan)?;
    println!("\n{:<10}{:>14}{:>14}{:>14}{:>14}", "keys", "", "predicted", "from bits", "measured");
    let mut inserted = 0;
    for share in SHARES {
        let items = (plan.items() as f64 * share) as u64;
        (inserted..items).for_each(|key| {
            filter.insert(&key);
        });
        inserted = items;
        let (predicted, now) = (plan.rate_at(items), filter.false_positive_rate());
        println!(
            "{share:<10}{items:>14}{:>12.4} %{:>12.4} %{:>12.4} %",
            predicted * 100.0,
            now * 100.0,
            measure(&filter, predicted) * 100.0
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let plan = match arguments().and_then(|(items, rate)| Ok(plan(items, rate)?)) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("bloom_sizing: {error}\nusage: bloom_sizing KEYS RATE, say 1000000 0.01");
            return ExitCode::from(2);
        }
    };
    match run(&plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bloom_sizing: {error}");
            ExitCode::FAILURE
        }
    }
}
