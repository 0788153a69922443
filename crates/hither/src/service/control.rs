//! The control socket of a node: HTTP/1 with JSON, on a Unix socket that only its user may open;
//! and its metrics on a TCP port.
//!
//! Each thing that can be asked is one line of [`ROUTES`].

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::exposition::exposition;
use super::members;
use super::served::Served;
use super::sockets;
use super::warming::{self, Work};
use crate::metrics::TEXT_FORMAT;

type Body = BoxBody<Bytes, Infallible>;
type Answer = Response<Body>;

/// Something that can be asked.
struct Route {
    method: Method,
    path: &'static str,
    /// Whether whoever reaches the port of the metrics may ask it too.
    public: bool,
    answer: fn(Arc<Served>, Request<Incoming>) -> BoxFuture<'static, Answer>,
}

/// All of them, sorted by path.
const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/evict",
        public: false,
        answer: |served, request| Box::pin(on_paths(served, request, Work::Evict)),
    },
    Route {
        method: Method::GET,
        path: "/members",
        public: false,
        answer: |served, _| Box::pin(async { lines(|sender| members::tell(served, sender)) }),
    },
    Route {
        method: Method::GET,
        path: "/metrics",
        public: true,
        answer: |served, _| {
            Box::pin(async move { full(TEXT_FORMAT, exposition(&served.status())) })
        },
    },
    Route {
        method: Method::POST,
        path: "/pin",
        public: false,
        answer: |served, request| Box::pin(on_paths(served, request, Work::Pin)),
    },
    Route {
        method: Method::GET,
        path: "/status",
        public: false,
        answer: |served, _| Box::pin(async move { json(&served.status()) }),
    },
    Route {
        method: Method::GET,
        path: "/topology",
        public: false,
        answer: |served, _| Box::pin(async move { json(&served.topology()) }),
    },
    Route {
        method: Method::POST,
        path: "/unpin",
        public: false,
        answer: |served, request| Box::pin(on_paths(served, request, Work::Unpin)),
    },
    Route {
        method: Method::POST,
        path: "/warm",
        public: false,
        answer: |served, request| Box::pin(on_paths(served, request, Work::Warm)),
    },
];

/// Connections at the same time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 32;

/// How long the head of a request may take.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a connection to the port of the metrics may last.
const PUBLIC_TIME_MAX: Duration = Duration::from_secs(10);

/// The longest head of a request: the least that hyper takes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// The wait after the system has refused to accept a connection, as when descriptors run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The longest body of a request: paths.
pub(super) const BODY_BYTES_MAX: usize = 4 << 20;

/// How long a body may take.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// Files at the same time, at most.
pub(super) const JOBS_MAX: usize = 256;

/// Lines of an answer that wait for a client to read them.
const LINES_MAX: usize = 16;

/// The socket of this process. Dropped, its path is removed.
pub(super) struct ControlSocket(PathBuf);

impl ControlSocket {
    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves all routes on this process's socket, for as long as the runtime lives. Called within it.
pub(super) fn serve(served: &Arc<Served>) -> io::Result<ControlSocket> {
    let path = sockets::own()?;
    let listener = sockets::listen(&path)?;
    let socket = ControlSocket(path);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let served = Arc::clone(served);
    tokio::spawn(accept(
        async move || Ok(listener.accept().await?.0),
        move |stream| connection(stream, Arc::clone(&served), false),
    ));
    Ok(socket)
}

/// Serves the metrics at `at`, for as long as the runtime lives. Returns the address.
pub(super) async fn serve_metrics(
    served: &Arc<Served>,
    at: SocketAddr,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(at).await;
    let listener = listener.with_context(|| format!("serving metrics at {at}"))?;
    let at = listener.local_addr()?;
    let served = Arc::clone(served);
    tokio::spawn(accept(
        async move || Ok(listener.accept().await?.0),
        move |stream| {
            let connection = connection(stream, Arc::clone(&served), true);
            async { drop(timeout(PUBLIC_TIME_MAX, connection).await) }
        },
    ));
    Ok(at)
}

/// Accepts connections, and serves each by a task of its own.
async fn accept<S, F>(accept: impl AsyncFn() -> io::Result<S>, serve: impl Fn(S) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(stream) = accept().await else {
            sleep(ACCEPT_RETRY).await;
            continue;
        };
        if let Ok(turn) = Arc::clone(&turns).try_acquire_owned() {
            let served = serve(stream);
            tokio::spawn(async move {
                served.await;
                drop(turn);
            });
        }
    }
}

/// Answers the requests of a connection until it ends.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    served: Arc<Served>,
    public: bool,
) {
    let service = service_fn(move |request| {
        let served = Arc::clone(&served);
        async move { Ok::<_, Infallible>(answer(served, request, public).await) }
    });
    // What a client does wrong is its own matter.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(served: Arc<Served>, request: Request<Incoming>, public: bool) -> Answer {
    match route(request.method(), request.uri().path(), public) {
        Ok(route) => (route.answer)(served, request).await,
        Err(status) => refusal(status),
    }
}

/// The route of a request, or why there is none.
fn route(method: &Method, path: &str, public: bool) -> Result<&'static Route, StatusCode> {
    // hyper sends the head alone of an answer to HEAD.
    let method = match *method {
        Method::HEAD => &Method::GET,
        _ => method,
    };
    let mut status = StatusCode::NOT_FOUND;
    for route in ROUTES {
        if route.path == path && (route.public || !public) {
            if route.method == *method {
                return Ok(route);
            }
            status = StatusCode::METHOD_NOT_ALLOWED;
        }
    }
    Err(status)
}

fn refusal(status: StatusCode) -> Answer {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut answer = full("text/plain", format!("{reason}\n"));
    *answer.status_mut() = status;
    answer
}

fn full(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    with_type(content_type, Full::new(body.into()).boxed())
}

fn json(document: &impl serde::Serialize) -> Answer {
    // It fails on a map whose keys are no texts.
    let body = serde_json::to_vec(document).expect("a document");
    full("application/json", body)
}

/// Does work on files. The body is their paths, a NUL after each; `?jobs=N` says how many at the
/// same time.
async fn on_paths(served: Arc<Served>, request: Request<Incoming>, work: Work) -> Answer {
    let jobs = match request.uri().query() {
        None => Some(1),
        Some(query) => query
            .strip_prefix("jobs=")
            .and_then(|jobs| jobs.parse().ok()),
    };
    let Some(jobs) = jobs.filter(|jobs| (1..=JOBS_MAX).contains(jobs)) else {
        return refusal(StatusCode::BAD_REQUEST);
    };
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let Ok(Ok(body)) = timeout(BODY_TIME_MAX, body).await else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let body = body.to_bytes();
    let Some(paths) = body.strip_suffix(b"\0") else {
        return refusal(StatusCode::BAD_REQUEST);
    };
    let paths = paths.split(|&byte| byte == 0);
    let paths = paths.map(|path| OsStr::from_bytes(path).into()).collect();
    lines(move |sender| warming::tell(served, work, jobs, paths, sender))
}

/// An answer of JSON lines that come as `tell` sends them: for what takes long. A client that has
/// gone away ends the sending.
fn lines<F>(tell: impl FnOnce(mpsc::Sender<String>) -> F) -> Answer
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, mut receiver) = mpsc::channel::<String>(LINES_MAX);
    tokio::spawn(tell(sender));
    let frames = stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|line| {
            let line = line? + "\n";
            Some(Ok(Frame::data(Bytes::from(line))))
        })
    });
    with_type("application/jsonl", BodyExt::boxed(StreamBody::new(frames)))
}

fn with_type(content_type: &'static str, body: Body) -> Answer {
    let answer = Response::builder().header(CONTENT_TYPE, content_type);
    answer.body(body).expect("the head is constant")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_are_sorted_and_only_metrics_are_public() {
        assert!(ROUTES.is_sorted_by_key(|route| (route.path, route.method.as_str())));
        let asked = |method: Method, path: &str, public| {
            let route = route(&method, path, public);
            route
                .map(|route| route.path)
                .map_err(|status| status.as_u16())
        };
        assert_eq!(asked(Method::GET, "/status", false), Ok("/status"));
        assert_eq!(asked(Method::GET, "/status", true), Err(404));
        assert_eq!(asked(Method::HEAD, "/metrics", true), Ok("/metrics"));
        assert_eq!(asked(Method::POST, "/metrics", true), Err(405));
        assert_eq!(asked(Method::GET, "/", false), Err(404));
    }
}
