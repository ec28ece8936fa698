//! Tests of code that caches, without waiting: the clock is a setting, and a test moves it by hand.
//!
//! `cargo test --example manual_clock`

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use futures_lite::future::block_on;
use seawall::{Cache, Clock, ConfigError, LoadError};

/// The code under test: weather reports, kept for ten minutes.
struct Weather {
    cache: Cache<String, String>,
}

impl Weather {
    fn new(clock: Clock) -> Result<Self, ConfigError> {
        let cache = Cache::builder()
            .max_entries(1_000)
            .time_to_live(Duration::from_secs(600))
            .load_timeout(Duration::from_secs(2))
            .clock(clock)
            .build()?;
        Ok(Weather { cache })
    }

    async fn report<F>(
        &self,
        city: &str,
        ask: impl FnOnce() -> F,
    ) -> Result<String, LoadError<Infallible>>
    where
        F: Future<Output = String> + Send + 'static,
    {
        self.cache.get_or_load_async(city, ask).await
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let weather = Weather::new(Clock::system())?;
    println!("Oslo: {}", block_on(weather.report("Oslo", || async { "sunny".to_owned() }))?);
    println!("its tests: cargo test --example manual_clock");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, pending, ready};

    use futures_lite::future::poll_once;

    use super::*;

    fn says(text: &str) -> impl FnOnce() -> Ready<String> {
        let answer = ready(text.to_owned());
        || answer
    }

    #[test]
    fn a_report_is_asked_for_anew_after_ten_minutes() {
        let (clock, hand) = Clock::manual();
        let weather = Weather::new(clock).unwrap();
        block_on(async {
            assert_eq!(weather.report("Oslo", says("sunny")).await.unwrap(), "sunny");
            hand.advance(Duration::from_secs(599));
            assert_eq!(weather.report("Oslo", says("rain")).await.unwrap(), "sunny");
            hand.advance(Duration::from_secs(1));
            assert_eq!(weather.report("Oslo", says("rain")).await.unwrap(), "rain");
        });
    }

    #[test]
    fn a_service_that_hangs_is_given_up_after_two_seconds() {
        let (clock, hand) = Clock::manual();
        let weather = Weather::new(clock).unwrap();
        block_on(async {
            let mut report = Box::pin(weather.report("Oslo", pending));
            assert!(poll_once(&mut report).await.is_none());
            // Whoever waits for a moment of this clock is woken when it is moved there.
            assert!(hand.sleepers() > 0);
            hand.advance(Duration::from_millis(1_999));
            assert!(poll_once(&mut report).await.is_none());
            hand.advance(Duration::from_millis(1));
            assert_eq!(report.await, Err(LoadError::TimedOut));
            assert_eq!(hand.sleepers(), 0);
        });
    }
}
