//! The HTTP server of nodes and runs: hyper on tokio, with bounds on what its clients can cost.
//!
//! It serves the control socket of a node, and metrics on a TCP port. A run has no runtime: its
//! metrics have one of a single thread ([`metrics::run`](crate::metrics::run)).

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// What a request gets.
pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Whom a socket serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    /// The user of this process: a connection lasts as long as its requests and its answers.
    Own,
    /// Whoever reaches the port: a connection has one answer, and a time.
    Anyone,
}

/// Connections at the same time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 32;

/// How long the head of a request may take.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a connection of anyone may last.
const ANYONE_TIME_MAX: Duration = Duration::from_secs(10);

/// The pause after a connection of anyone: there are at most 200 a second.
const ANYONE_PAUSE: Duration = Duration::from_millis(5);

/// The longest head of a request: the least that hyper takes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// The most header lines of a request.
const HEADERS_MAX: usize = 64;

/// The wait after the system has refused to accept a connection, as when descriptors run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepts connections for as long as the runtime lives, and serves each by a task of its own.
pub(crate) async fn serve<S, A, F>(
    accept: impl AsyncFn() -> io::Result<S>,
    clients: Clients,
    answer: A,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(stream) = accept().await else {
            sleep(ACCEPT_RETRY).await;
            continue;
        };
        if let Ok(turn) = Arc::clone(&turns).try_acquire_owned() {
            let connection = connection(stream, clients, answer.clone());
            tokio::spawn(async move {
                if clients == Clients::Anyone {
                    drop(timeout(ANYONE_TIME_MAX, connection).await);
                } else {
                    connection.await;
                }
                drop(turn);
            });
        }
        if clients == Clients::Anyone {
            sleep(ANYONE_PAUSE).await;
        }
    }
}

/// Answers the requests of a connection until it ends.
async fn connection<S, A, F>(stream: S, clients: Clients, answer: A)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answer>,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    // What a client does wrong is its own matter.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(clients == Clients::Own)
        // One that asks once may have closed its half. Work for one of the user ends with it.
        .half_close(clients == Clients::Anyone)
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// A whole document.
pub(crate) fn full(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    with_type(content_type, Full::new(body.into()).boxed())
}

/// A body of this type.
pub(crate) fn with_type(content_type: &'static str, body: BoxBody<Bytes, Infallible>) -> Answer {
    let answer = Response::builder().header(CONTENT_TYPE, content_type);
    answer.body(body).expect("the head is constant")
}

/// Why there is no other answer.
pub(crate) fn refusal(status: StatusCode) -> Answer {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut answer = full("text/plain", format!("{reason}\n"));
    *answer.status_mut() = status;
    answer
}
