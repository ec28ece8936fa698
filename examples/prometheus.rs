//! A cache's counters, gauges and load times in the text format of Prometheus, through the `metrics` facade.
//!
//! `cargo run --features metrics --example prometheus`

use std::error::Error;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use seawall::{Cache, LoadError};

fn main() -> Result<(), Box<dyn Error>> {
    // Histograms with buckets, which can be added up over machines; without them, summaries.
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let exporter = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &[0.001, 0.01, 0.1, 1.0])?
        .install_recorder()?;

    let articles: Cache<u32, String> = Cache::builder()
        .max_entries(1_000)
        .absent_time_to_live(Duration::from_secs(5))
        .max_in_flight(10)
        .build()?;
    for request in 0..200 {
        let id = request % 70;
        let told = articles.get_or_load(&id, || (id < 60).then(|| format!("article {id}")));
        assert!(matches!(told, Ok(_) | Err(LoadError::Absent)));
    }

    // What a handler of `/metrics` does.
    articles.publish_metrics("articles");
    let text = exporter.render();

    let loads = format!(
        "seawall_loads_total{{cache=\"articles\",kind=\"loaded\"}} {}",
        articles.load_stats().loaded
    );
    assert!(text.lines().any(|line| line == loads), "no line {loads}");
    assert!(text.contains("seawall_load_seconds_bucket"));
    print!("{text}");
    Ok(())
}
