//! The clients: they come when they come, whatever became of those before them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use crate::edge::SERVED;
use crate::http::{Pool, Response};
use crate::measure::{Answer, Ended, Tally};
use crate::sizes::{ATTEMPT_TIMEOUT, PATIENCE, RETRY_PAUSES};

/// A request that a client will make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Since the beginning of the schedule.
    pub due: Duration,
    pub article: u64,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For an article that exists.
    Existing,
    Missing,
    /// For an article that exists; but the client leaves after this time, whether it has an answer or not.
    HangsUp(Duration),
}

/// Makes the requests of a schedule, in order of time, and waits until all have ended. Those that are due
/// before `start` are not counted, nor those of clients that leave by themselves: they never learn what they
/// would have got.
pub async fn run(
    pool: Pool,
    schedule: Arc<[Request]>,
    begin: Instant,
    start: Instant,
    tally: Arc<Tally>,
) {
    let runtime = Handle::current();
    // A thread that sleeps keeps time better than the runtime's timer, which counts milliseconds.
    let dispatched = tokio::task::spawn_blocking(move || {
        let mut clients = JoinSet::new();
        for (number, request) in schedule.iter().copied().enumerate() {
            let due = begin + request.due;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let (pool, tally) = (pool.clone(), Arc::clone(&tally));
            let client = async move {
                match request.kind {
                    Kind::HangsUp(after) => hang_up(&pool, request.article, due + after).await,
                    kind => {
                        let got = ask(&pool, request.article, due, number as u64).await;
                        if let Some(since) = due.checked_duration_since(start) {
                            got.count(&tally, since, kind == Kind::Existing);
                        }
                    }
                }
            };
            clients.spawn_on(client, &runtime);
        }
        clients
    });
    if let Ok(clients) = dispatched.await {
        clients.join_all().await;
    }
}

/// What became of a request.
struct Got {
    answer: Answer,
    latency: Duration,
    retries: u64,
}

impl Got {
    fn count(&self, tally: &Tally, due: Duration, existing: bool) {
        let Got { answer, latency, retries } = *self;
        tally.retried(retries);
        tally.ended(Ended { at: due + latency, latency, answer, existing });
    }
}

async fn ask(pool: &Pool, article: u64, due: Instant, seed: u64) -> Got {
    let path = format!("/article/{article}");
    let mut random = SmallRng::seed_from_u64(seed);
    let give_up = due + PATIENCE;
    let mut pauses = RETRY_PAUSES.iter();
    let mut retries = 0;
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        let answer = match timeout(ATTEMPT_TIMEOUT.min(left), pool.get(&path)).await {
            Ok(Ok(response)) => meaning(&response),
            Ok(Err(_)) | Err(_) => Answer::Failed,
        };
        let got = || Got { answer, latency: due.elapsed(), retries };
        if !matches!(answer, Answer::Refused | Answer::Failed) {
            return got();
        }
        // They do not heed `Retry-After`, as browsers do not: what protects the origin must not rest on that.
        let Some(pause) = pauses.next() else { return got() };
        let pause = pause.mul_f64(random.random_range(0.5..1.5));
        if Instant::now() + pause >= give_up {
            return got();
        }
        sleep(pause).await;
        retries += 1;
    }
}

fn meaning(response: &Response) -> Answer {
    match response.status {
        StatusCode::OK => match response.headers.get(SERVED) {
            Some(word) if word == "stale" => Answer::Stale,
            _ => Answer::Fresh,
        },
        StatusCode::NOT_FOUND => Answer::Absent,
        StatusCode::SERVICE_UNAVAILABLE => Answer::Refused,
        _ => Answer::Failed,
    }
}

async fn hang_up(pool: &Pool, article: u64, at: Instant) {
    let path = format!("/article/{article}");
    // Whatever it gets, it is not there to see it.
    let _ = timeout_at(at.into(), pool.get(&path)).await;
}
