//! While the origin is down, a stale value stands in for its errors. Time is moved by hand.

use std::error::Error;
use std::time::Duration;

use seawall::guard::Backoff;
use seawall::{Cache, Clock, Outcome, Source, WhyStale};

type Rates = Cache<&'static str, f64>;

fn rate(cache: &Rates, origin: Result<f64, &'static str>) -> Result<Outcome<f64>, String> {
    cache.load(&"EUR/USD").run(|_| origin).map_err(|error| error.to_string())
}

fn main() -> Result<(), Box<dyn Error>> {
    let secs = Duration::from_secs;
    let (clock, hand) = Clock::manual();
    let cache: Rates = Cache::builder()
        .max_entries(100)
        .time_to_live(secs(60))
        .stale_if_error(secs(600))
        .backoff(Backoff::new(secs(5), secs(60))?.jitter(0.0)?)
        .clock(clock)
        .build()?;
    rate(&cache, Ok(1.08))?;

    // The origin is asked, and fails: the last known rate is served, and says why it is stale.
    hand.advance(secs(90));
    let outcome = rate(&cache, Err("connection refused"))?;
    assert_eq!(outcome.source, Source::Stale(WhyStale::Failed));
    println!("{:?}, {:?} old: the origin failed", outcome.value, outcome.age.unwrap_or_default());

    // For five seconds after the failure it is left alone, even if it would answer.
    let outcome = rate(&cache, Ok(1.09))?;
    assert_eq!(outcome.value, Some(1.08));
    assert!(matches!(outcome.source, Source::Stale(WhyStale::Refused(_))));
    println!("{:?}: the origin is left alone", outcome.value);

    hand.advance(secs(5));
    let outcome = rate(&cache, Ok(1.09))?;
    assert_eq!((outcome.value, outcome.source), (Some(1.09), Source::Loaded));
    println!("{:?}: the origin is back", outcome.value);

    // What is too old even for that is an error in the end.
    hand.advance(secs(660));
    let told = rate(&cache, Err("connection refused"));
    assert_eq!(told, Err("the load failed: connection refused".to_owned()));
    println!("11 minutes later: an error");
    Ok(())
}
