//! seawall's get-or-load, with as many guards as its cache was made with.

use axum::body::Bytes;
use seawall::{Cache, LoadError};

use super::{Found, Upstream, UpstreamError};

pub(super) struct Guarded {
    pub(super) cache: Cache<u64, Bytes>,
    upstream: Upstream,
}

impl Guarded {
    pub(super) fn new(cache: Cache<u64, Bytes>, upstream: Upstream) -> Self {
        Guarded { cache, upstream }
    }

    pub(super) async fn find(&self, id: u64) -> Found {
        let upstream = self.upstream.clone();
        match self.cache.load(&id).run_async(|_| upstream.article(id)).await {
            Ok(outcome) => {
                let is_stale = outcome.is_stale();
                match outcome.value {
                    Some(article) if is_stale => Found::Stale(article),
                    Some(article) => Found::Fresh(article),
                    None => Found::Absent,
                }
            }
            Err(LoadError::Refused(refusal)) => {
                Found::Refused { retry_after: refusal.retry_after() }
            }
            Err(LoadError::Failed(error)) => Found::Failed(error),
            Err(LoadError::TimedOut) => Found::Failed(UpstreamError::TimedOut),
            Err(_) => Found::Failed(UpstreamError::Unreachable),
        }
    }
}
