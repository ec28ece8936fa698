//! One act under one setting: starts the servers, fills the cache, lets the script run, and measures.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::acts::Event;
use crate::clients;
use crate::edge::{Edge, Upstream};
use crate::http::{Pool, Server};
use crate::measure::Tally;
use crate::origin::{Mode, Origin};
use crate::record::{Act, Run, Setting, Summary};
use crate::sizes::{LEAD_IN, SLICE, Sizes};

/// Both servers, and a pool of connections to the edge. Ends with being dropped.
struct Stage {
    origin: Arc<Origin>,
    edge: Arc<Edge>,
    clients: Pool,
    _servers: [Server; 2],
}

impl Stage {
    async fn new(setting: Setting, sizes: &Sizes, start: Instant) -> Result<Self, Box<dyn Error>> {
        let origin = Origin::new(sizes, start);
        let origin_server = Arc::clone(&origin).serve().await?;
        let upstream = Upstream::new(Pool::new(origin_server.address, sizes.connections));
        let edge = Edge::new(setting, sizes, upstream, start)?;
        let edge_server = Arc::clone(&edge).serve().await?;
        let clients = Pool::new(edge_server.address, sizes.connections);
        Ok(Stage { origin, edge, clients, _servers: [origin_server, edge_server] })
    }

    /// Fills the cache with all that is hot, as of now or of copies of all ages; at midnight all end together.
    async fn fill(&self, sizes: &Sizes, midnight: Option<Instant>) {
        let mut random = SmallRng::seed_from_u64(12);
        for id in 0..sizes.hot {
            let Some(article) = self.origin.article(id) else { continue };
            let age = sizes.time_to_live.mul_f64(random.random());
            let fresh_for = match midnight {
                Some(midnight) => midnight.saturating_duration_since(Instant::now()),
                // Not too short for a deadline.
                None => (sizes.time_to_live - age).max(Duration::from_millis(1)),
            };
            self.edge.fill(id, Bytes::from(article), fresh_for).await;
        }
    }

    fn happen(&self, event: Event) {
        match event {
            Event::Publish => self.origin.publish(),
            Event::OriginHangs => self.origin.set_mode(Mode::Hanging),
            Event::OriginErrs => self.origin.set_mode(Mode::Erring),
            Event::OriginRecovers => self.origin.set_mode(Mode::Well),
            Event::CacheLost => self.edge.lose(),
            Event::FloodBegins | Event::HangUpsBegin => {}
        }
    }
}

/// Runs an act. `tick` is called once for each slice of its time.
pub async fn run(
    act: Act,
    setting: Setting,
    sizes: &Sizes,
    tick: impl Fn() + Send + 'static,
) -> Result<Run, Box<dyn Error>> {
    // Enough to start the servers and fill the cache.
    const SET_UP: Duration = Duration::from_millis(50);
    let schedule: Arc<[_]> = act.schedule(sizes).into();
    let begin = Instant::now() + SET_UP;
    let start = begin + LEAD_IN;
    let (length, events) = (act.length(sizes), act.events(sizes));
    let stage = Stage::new(setting, sizes, start).await?;
    let midnight = (act == Act::Midnight).then(|| start + events[0].0);
    stage.fill(sizes, midnight).await;

    let tally = Arc::new(Tally::default());
    let clients = clients::run(stage.clients.clone(), schedule, begin, start, Arc::clone(&tally));
    let mut ticker = JoinSet::new();
    ticker.spawn(async move {
        for slice in 1..=length.as_nanos() / SLICE.as_nanos() {
            sleep_until((start + SLICE * slice as u32).into()).await;
            tick();
        }
    });
    let script = async {
        for (at, event) in &events {
            sleep_until((start + *at).into()).await;
            stage.happen(*event);
        }
        sleep_until((start + length).into()).await;
        stage.origin.last_sick()
    };
    let ((), last_sick) = tokio::join!(clients, script);
    ticker.join_all().await;

    let event = events.first().map_or(Duration::ZERO, |(at, _)| *at);
    let origin_peaks = stage.origin.peaks();
    let summary = Summary {
        origin_calls: stage.origin.calls(),
        origin_peak: origin_peaks.iter().copied().max().unwrap_or(0),
        origin_limit: sizes.limit,
        waiters_peak: stage.edge.waiters_peak(),
        recovery_ms: recovery(event, last_sick, length),
        ..tally.summary()
    };
    let samples = tally.samples(length, &origin_peaks);
    let events = events.iter().map(|(at, event)| (at.as_millis() as u64, event.name())).collect();
    let length_ms = length.as_millis() as u64;
    Ok(Run { act, setting, length_ms, events, summary, samples })
}

/// The time from the event to the last moment that was not well, if the act ended well.
fn recovery(event: Duration, last_sick: Duration, length: Duration) -> Option<u64> {
    // Longer than the gaps between failures of an origin that is down.
    const WELL: Duration = Duration::from_millis(150);
    let well_for = length.saturating_sub(last_sick);
    (last_sick.is_zero() || well_for >= WELL)
        .then(|| last_sick.saturating_sub(event).as_millis() as u64)
}

/// How many requests for cached articles this machine answers in a second, at most: both ends of them.
pub async fn calibrate(sizes: &Sizes) -> Result<f64, Box<dyn Error>> {
    const CLIENTS: u64 = 16;
    const TIME: Duration = Duration::from_millis(400);
    let stage = Stage::new(Setting::None, sizes, Instant::now()).await?;
    stage.fill(sizes, Some(Instant::now() + Duration::from_secs(60))).await;
    let begin = Instant::now();
    let mut clients = JoinSet::new();
    for id in 0..CLIENTS.min(sizes.hot) {
        let pool = stage.clients.clone();
        clients.spawn(async move {
            let path = format!("/article/{id}");
            let mut answers = 0;
            while begin.elapsed() < TIME && pool.get(&path).await.is_ok() {
                answers += 1;
            }
            answers
        });
    }
    let answers: u64 = clients.join_all().await.into_iter().sum();
    Ok(answers as f64 / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_counts_from_the_event_and_only_if_the_end_was_well() {
        let ms = Duration::from_millis;
        assert_eq!(recovery(ms(300), ms(0), ms(2_000)), Some(0));
        assert_eq!(recovery(ms(300), ms(800), ms(2_000)), Some(500));
        assert_eq!(recovery(ms(300), ms(1_990), ms(2_000)), None);
    }
}
