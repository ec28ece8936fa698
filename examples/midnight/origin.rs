//! The origin: an HTTP server that bears so many calls at once and not more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rand::Rng;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::http::Server;
use crate::measure::{Gauge, Inside};
use crate::sizes::{SERVICE, Sizes};

/// Connections to the origin's database, as a multiple of the calls that it bears: a pool that was made
/// generous in good times, so that it admits what then runs too slowly.
const POOL: u64 = 8;
/// How long a call waits for one of them before it fails.
const POOL_WAIT: Duration = SERVICE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Well,
    /// No call ends.
    Hanging,
    /// Every call fails.
    Erring,
}

#[derive(Debug)]
pub struct Origin {
    limit: u64,
    articles: u64,
    version: AtomicU64,
    mode: watch::Sender<Mode>,
    connections: Semaphore,
    start: Instant,
    calls: AtomicU64,
    /// All calls that have come and not ended.
    inside: Arc<Gauge>,
    /// Those of them that are worked on.
    working: Arc<Gauge>,
    /// The last moment that was not well, in microseconds from the start; 0 for none.
    last_sick: AtomicU64,
}

impl Origin {
    /// Counts what comes from `start` on.
    pub fn new(sizes: &Sizes, start: Instant) -> Arc<Self> {
        Arc::new(Origin {
            limit: sizes.limit,
            articles: sizes.articles,
            version: AtomicU64::new(1),
            mode: watch::Sender::new(Mode::Well),
            connections: Semaphore::new((sizes.limit * POOL) as usize),
            start,
            calls: AtomicU64::new(0),
            inside: Gauge::new(start),
            working: Gauge::new(start),
            last_sick: AtomicU64::new(0),
        })
    }

    pub async fn serve(self: Arc<Self>) -> io::Result<Server> {
        let router = Router::new().route("/article/{id}", get(answer)).with_state(self);
        Server::start(router).await
    }

    pub fn set_mode(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// All articles are updated.
    pub fn publish(&self) {
        self.version.fetch_add(1, Relaxed);
    }

    pub fn article(&self, id: u64) -> Option<String> {
        let version = self.version.load(Relaxed);
        (id < self.articles).then(|| format!("article {id}, version {version}\n{:1000}", ""))
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    pub fn peaks(&self) -> Vec<u64> {
        self.inside.peaks()
    }

    /// The last moment, since the start, in which more calls were inside than the origin bears, or one
    /// hung or failed. Zero if there was none.
    pub fn last_sick(&self) -> Duration {
        if self.inside.now() > self.limit {
            self.note_sick();
        }
        Duration::from_micros(self.last_sick.load(Relaxed))
    }

    fn note_sick(&self) {
        if let Some(time) = Instant::now().checked_duration_since(self.start) {
            self.last_sick.fetch_max(time.as_micros() as u64, Relaxed);
        }
    }

    /// Works on a call to its end.
    async fn call(&self, id: u64, inside: Inside) -> Result<Option<String>, StatusCode> {
        if inside.level > self.limit {
            self.note_sick();
        }
        let answer = self.query(id).await;
        if answer.is_err() || self.inside.now() > self.limit {
            self.note_sick();
        }
        answer
    }

    async fn query(&self, id: u64) -> Result<Option<String>, StatusCode> {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let acquired = timeout(POOL_WAIT, self.connections.acquire()).await;
        let _connection = acquired.ok().and_then(Result::ok).ok_or(unavailable)?;
        let _working = self.working.enter();
        let spread = rand::rng().random_range(0.5..1.5);
        self.work(SERVICE.mul_f64(spread)).await;
        let mut mode = self.mode.subscribe();
        if *mode.borrow_and_update() == Mode::Hanging {
            self.note_sick();
            // The sender lives as long as we do.
            let _ = mode.wait_for(|mode| *mode != Mode::Hanging).await;
            return Err(unavailable);
        }
        if *mode.borrow() == Mode::Erring { Err(unavailable) } else { Ok(self.article(id)) }
    }

    /// Beyond the limit every call slows down with the square of the load: calls do not only share
    /// what there is, they are in each other's way.
    async fn work(&self, mut left: Duration) {
        while !left.is_zero() {
            let load = (self.working.now() as f64 / self.limit as f64).max(1.0);
            let slowdown = load * load;
            // Looks again, as the load changes, four times in a call or more.
            let step = left.mul_f64(slowdown).min(SERVICE.mul_f64(load / 4.0));
            let began = Instant::now();
            sleep(step).await;
            left = left.saturating_sub(began.elapsed().div_f64(slowdown));
        }
    }
}

async fn answer(State(origin): State<Arc<Origin>>, Path(id): Path<u64>) -> Response {
    if Instant::now() >= origin.start {
        origin.calls.fetch_add(1, Relaxed);
    }
    let inside = origin.inside.enter();
    // A task of its own, which works on when the caller has gone: the origin does not notice.
    let call = tokio::spawn(async move { origin.call(id, inside).await });
    match call.await {
        Ok(Ok(Some(article))) => article.into_response(),
        Ok(Ok(None)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(status)) => status.into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
