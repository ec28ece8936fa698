//! The edge: an HTTP server that answers from its cache, and asks the origin for the rest.

mod guarded;
mod moka;
mod plain;
mod upstream;

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use self::guarded::Guarded;
use self::moka::Moka;
use self::plain::Plain;
pub use self::upstream::{Upstream, UpstreamError};
use crate::http::Server;
use crate::measure::Gauge;
use crate::record::Setting;
use crate::settings;
use crate::sizes::Sizes;

/// Says whether an article that is served is `fresh` or `stale`.
pub const SERVED: &str = "x-served";

/// What the edge has for a request.
enum Found {
    Fresh(Bytes),
    Stale(Bytes),
    Absent,
    Refused { retry_after: Option<Duration> },
    Failed(UpstreamError),
}

/// Where the edge keeps articles, and its way of asking for one that it does not have.
enum Shelf {
    Plain(Plain),
    Guarded(Guarded),
    Moka(Moka),
}

impl Shelf {
    async fn find(&self, id: u64) -> Found {
        match self {
            Shelf::Plain(shelf) => shelf.find(id).await,
            Shelf::Guarded(shelf) => shelf.find(id).await,
            Shelf::Moka(shelf) => shelf.find(id).await,
        }
    }
}

/// One edge, with a cache of its own.
pub struct Edge {
    shelf: Shelf,
    /// Requests that are not answered at once, as they wait for the origin.
    waiters: Arc<Gauge>,
}

impl Edge {
    pub fn new(
        setting: Setting,
        sizes: &Sizes,
        upstream: Upstream,
        start: Instant,
    ) -> Result<Arc<Self>, Box<dyn Error>> {
        let shelf = match setting {
            Setting::None => Shelf::Plain(Plain::new(settings::cache(setting, sizes)?, upstream)),
            Setting::Moka => Shelf::Moka(Moka::new(sizes, upstream)),
            Setting::Coalescing | Setting::CoalescingStale | Setting::All => {
                Shelf::Guarded(Guarded::new(settings::cache(setting, sizes)?, upstream))
            }
        };
        Ok(Arc::new(Edge { shelf, waiters: Gauge::new(start) }))
    }

    pub async fn serve(self: Arc<Self>) -> std::io::Result<Server> {
        Server::start(Router::new().route("/article/{id}", get(answer)).with_state(self)).await
    }

    /// Stores an article ahead of the act.
    pub async fn fill(&self, id: u64, article: Bytes, fresh_for: Duration) {
        match &self.shelf {
            Shelf::Plain(Plain { cache, .. }) | Shelf::Guarded(Guarded { cache, .. }) => {
                let options = seawall::InsertOptions::new().time_to_live(fresh_for);
                // No article is heavier than the whole budget.
                let _ = cache.insert_with(id, article, options);
            }
            Shelf::Moka(shelf) => shelf.fill(id, article, fresh_for).await,
        }
    }

    /// Loses the whole cache.
    pub fn lose(&self) {
        match &self.shelf {
            Shelf::Plain(Plain { cache, .. }) | Shelf::Guarded(Guarded { cache, .. }) => {
                cache.invalidate_all();
            }
            Shelf::Moka(shelf) => shelf.lose(),
        }
    }

    pub fn waiters_peak(&self) -> u64 {
        self.waiters.peaks().into_iter().max().unwrap_or(0)
    }
}

async fn answer(State(edge): State<Arc<Edge>>, Path(id): Path<u64>) -> Response {
    let served = |word| [(SERVED, word)];
    match counting_a_wait(&edge.waiters, edge.shelf.find(id)).await {
        Found::Fresh(article) => (served("fresh"), article).into_response(),
        Found::Stale(article) => (served("stale"), article).into_response(),
        Found::Absent => StatusCode::NOT_FOUND.into_response(),
        Found::Refused { retry_after } => {
            let seconds = retry_after.unwrap_or_default().as_secs_f64().ceil().max(1.0);
            let retry_after = [(header::RETRY_AFTER, seconds.to_string())];
            (StatusCode::SERVICE_UNAVAILABLE, retry_after).into_response()
        }
        Found::Failed(UpstreamError::TimedOut) => StatusCode::GATEWAY_TIMEOUT.into_response(),
        Found::Failed(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// Runs a future, and counts it among those who wait if it is not done at once.
async fn counting_a_wait<F: Future>(waiters: &Arc<Gauge>, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut waiting = None;
    poll_fn(|cx| {
        let poll = future.as_mut().poll(cx);
        if poll.is_pending() && waiting.is_none() {
            waiting = Some(waiters.enter());
        }
        poll
    })
    .await
}
