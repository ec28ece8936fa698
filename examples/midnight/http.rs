//! Connections to a server on loopback: kept open, bounded in number, one request at a time on each.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::{error, io};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::serve::ListenerExt;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

type Error = Box<dyn error::Error + Send + Sync>;
type Connection = SendRequest<Empty<Bytes>>;

/// An answer, read to its end.
#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Connections to one server. A request that is dropped closes its connection: that is how callers leave.
#[derive(Clone, Debug)]
pub struct Pool {
    server: SocketAddr,
    idle: Arc<Mutex<Vec<Connection>>>,
    room: Arc<Semaphore>,
}

impl Pool {
    pub fn new(server: SocketAddr, connections: usize) -> Self {
        Pool { server, idle: Arc::default(), room: Arc::new(Semaphore::new(connections)) }
    }

    pub async fn get(&self, path: &str) -> Result<Response, Error> {
        let _place = self.room.acquire().await?;
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let request = Request::get(path).header(header::HOST, "drill").body(Empty::new())?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        connection.ready().await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(Response { status: head.status, headers: head.headers, body })
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(SendRequest::is_ready)
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the connection; errors are told to whoever waits for an answer.
        tokio::spawn(driver);
        Ok(connection)
    }
}

/// A server that accepts connections until it is dropped.
#[derive(Debug)]
pub struct Server {
    pub address: SocketAddr,
    accepting: AbortHandle,
}

impl Server {
    pub async fn start(router: Router) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        // Only a matter of speed.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let accepting =
            tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Ok(Server { address, accepting })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
