//! A cache as the state of an axum server: what a handler makes of values, absences, refusals and errors.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use seawall::{Cache, LoadError};
use tokio::net::{TcpListener, TcpStream};

type Articles = Cache<u32, String>;

async fn from_database(id: u32) -> Result<Option<String>, &'static str> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    match id {
        1..100 => Ok(Some(format!("article {id}"))),
        100.. => Ok(None),
        0 => Err("connection refused"),
    }
}

async fn article(State(articles): State<Articles>, Path(id): Path<u32>) -> Response {
    match articles.get_or_load_async(&id, || from_database(id)).await {
        Ok(text) => text.into_response(),
        Err(LoadError::Absent) => StatusCode::NOT_FOUND.into_response(),
        // The origin was not asked: say when it may be, as far as that is known.
        Err(LoadError::Refused(refusal)) => {
            let seconds = refusal.retry_after().map_or(1, |wait| wait.as_secs() + 1);
            let headers = [(header::RETRY_AFTER, seconds.to_string())];
            (StatusCode::SERVICE_UNAVAILABLE, headers, refusal.to_string()).into_response()
        }
        Err(LoadError::TimedOut) => StatusCode::GATEWAY_TIMEOUT.into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn request(server: SocketAddr, id: u32) -> Result<String, Box<dyn Error + Send + Sync>> {
    let stream = TokioIo::new(TcpStream::connect(server).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let request = Request::get(format!("/articles/{id}"))
        .header(header::HOST, server.to_string())
        .body(Empty::<Bytes>::new())?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(format!("{} {}", head.status, String::from_utf8_lossy(&body)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let articles: Articles = Cache::builder()
        .max_entries(10_000)
        .time_to_live(Duration::from_secs(60))
        .absent_time_to_live(Duration::from_secs(5))
        .load_timeout(Duration::from_secs(2))
        .max_in_flight(20)
        .build()?;
    let routes = Router::new().route("/articles/{id}", get(article)).with_state(articles.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });

    let clients: Vec<_> = (0..50).map(|_| tokio::spawn(request(address, 7))).collect();
    for client in clients {
        assert_eq!(client.await??, "200 OK article 7");
    }
    let loads = articles.load_stats().started;
    assert_eq!(loads, 1);
    println!("50 requests of article 7: {loads} load");
    for id in [404, 0] {
        println!("article {id}: {}", request(address, id).await?);
    }
    server.abort();
    Ok(())
}
