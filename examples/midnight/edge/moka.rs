//! The same edge on moka.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use moka::Expiry;
use moka::future::Cache;

use super::{Found, Upstream};
use crate::settings::ABSENT_TIME_TO_LIVE;
use crate::sizes::Sizes;

/// An absence is a value, so that it is remembered: an error would not be, and every request for an article
/// that does not exist would go to the origin.
#[derive(Clone)]
struct Copy {
    article: Option<Bytes>,
    fresh_for: Duration,
}

/// Deadlines for each entry.
struct ByCopy;

impl Expiry<u64, Copy> for ByCopy {
    fn expire_after_create(&self, _: &u64, copy: &Copy, _: Instant) -> Option<Duration> {
        Some(copy.fresh_for)
    }

    fn expire_after_update(
        &self,
        _: &u64,
        copy: &Copy,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(copy.fresh_for)
    }
}

pub(super) struct Moka {
    cache: Cache<u64, Copy>,
    upstream: Upstream,
    time_to_live: Duration,
}

impl Moka {
    pub(super) fn new(sizes: &Sizes, upstream: Upstream) -> Self {
        let builder = Cache::builder().max_capacity(sizes.cache_entries()).expire_after(ByCopy);
        Moka { cache: builder.build(), upstream, time_to_live: sizes.time_to_live }
    }

    pub(super) async fn find(&self, id: u64) -> Found {
        let load = async {
            let article = self.upstream.clone().article(id).await?;
            let fresh_for = if article.is_some() { self.time_to_live } else { ABSENT_TIME_TO_LIVE };
            Ok(Copy { article, fresh_for })
        };
        match self.cache.try_get_with(id, load).await {
            Ok(Copy { article: Some(article), .. }) => Found::Fresh(article),
            Ok(Copy { article: None, .. }) => Found::Absent,
            Err(error) => Found::Failed(*error),
        }
    }

    pub(super) async fn fill(&self, id: u64, article: Bytes, fresh_for: Duration) {
        self.cache.insert(id, Copy { article: Some(article), fresh_for }).await;
    }

    pub(super) fn lose(&self) {
        self.cache.invalidate_all();
    }
}
