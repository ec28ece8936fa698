//! The edge's side of the connections to the origin.

use axum::body::Bytes;
use axum::http::StatusCode;
use tokio::time::timeout;

use crate::http::Pool;
use crate::sizes::CALL_TIMEOUT;

/// Why the origin has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    TimedOut,
    Unreachable,
    Status(StatusCode),
}

#[derive(Clone, Debug)]
pub struct Upstream(Pool);

impl Upstream {
    pub fn new(pool: Pool) -> Self {
        Upstream(pool)
    }

    /// Asks for an article; `None` if there is none.
    pub async fn article(self, id: u64) -> Result<Option<Bytes>, UpstreamError> {
        let path = format!("/article/{id}");
        let response = match timeout(CALL_TIMEOUT, self.0.get(&path)).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => return Err(UpstreamError::Unreachable),
            Err(_) => return Err(UpstreamError::TimedOut),
        };
        match response.status {
            StatusCode::OK => Ok(Some(response.body)),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(UpstreamError::Status(status)),
        }
    }
}
