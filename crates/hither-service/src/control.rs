//! The control socket of a node: HTTP/1 with JSON, on a Unix socket that only its user may open.
//!
//! Each thing that can be asked is one line of [`ROUTES`].

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, StatusCode};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::http::{self, Answer, Clients, full, refusal, with_type};
use crate::members;
use crate::metrics::{TEXT_FORMAT, node};
use crate::served::Served;
use crate::sockets;
use crate::warming::{self, Work};

/// Something that can be asked.
struct Route {
    method: Method,
    path: &'static str,
    answer: fn(Arc<Served>, Request<Incoming>) -> BoxFuture<'static, Answer>,
}

/// All of them, sorted by path.
const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/evict",
        answer: |served, request| Box::pin(on_paths(served, request, Work::Evict)),
    },
    Route {
        method: Method::GET,
        path: "/members",
        answer: |served, _| Box::pin(async { lines(|sender| members::tell(served, sender)) }),
    },
    Route {
        method: Method::GET,
        path: "/metrics",
        answer: |served, _| {
            Box::pin(async move { full(TEXT_FORMAT, node::exposition(&served.status())) })
        },
    },
    Route {
        method: Method::POST,
        path: "/pin",
        answer: |served, request| Box::pin(on_paths(served, request, Work::Pin)),
    },
    Route {
        method: Method::GET,
        path: "/status",
        answer: |served, _| Box::pin(async move { json(&served.status()) }),
    },
    Route {
        method: Method::GET,
        path: "/topology",
        answer: |served, _| Box::pin(async move { json(&served.topology()) }),
    },
    Route {
        method: Method::POST,
        path: "/unpin",
        answer: |served, request| Box::pin(on_paths(served, request, Work::Unpin)),
    },
    Route {
        method: Method::POST,
        path: "/warm",
        answer: |served, request| Box::pin(on_paths(served, request, Work::Warm)),
    },
];

/// The longest body of a request: paths.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;

/// How long a body may take.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// Files at the same time, at most.
pub(crate) const JOBS_MAX: usize = 256;

/// Lines of an answer that wait for a client to read them.
const LINES_MAX: usize = 16;

/// The socket of this process. Dropped, its path is removed.
pub(crate) struct ControlSocket(PathBuf);

impl ControlSocket {
    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves all routes on this process's socket, for as long as the runtime lives. Called within it.
pub(crate) fn serve(served: &Arc<Served>) -> io::Result<ControlSocket> {
    let path = sockets::own()?;
    let listener = sockets::listen(&path)?;
    let socket = ControlSocket(path);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let served = Arc::clone(served);
    tokio::spawn(http::serve(
        async move || Ok(listener.accept().await?.0),
        Clients::Own,
        move |request| answer(Arc::clone(&served), request),
    ));
    Ok(socket)
}

async fn answer(served: Arc<Served>, request: Request<Incoming>) -> Answer {
    match route(request.method(), request.uri().path()) {
        Ok(route) => (route.answer)(served, request).await,
        Err(status) => refusal(status),
    }
}

/// The route of a request, or why there is none.
fn route(method: &Method, path: &str) -> Result<&'static Route, StatusCode> {
    // hyper sends the head alone of an answer to HEAD.
    let method = match *method {
        Method::HEAD => &Method::GET,
        _ => method,
    };
    let mut status = StatusCode::NOT_FOUND;
    for route in ROUTES {
        if route.path == path {
            if route.method == *method {
                return Ok(route);
            }
            status = StatusCode::METHOD_NOT_ALLOWED;
        }
    }
    Err(status)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_are_sorted_and_asked_by_method() {
        assert!(ROUTES.is_sorted_by_key(|route| (route.path, route.method.as_str())));
        let asked = |method: Method, path: &str| {
            let route = route(&method, path);
            route
                .map(|route| route.path)
                .map_err(|status| status.as_u16())
        };
        assert_eq!(asked(Method::GET, "/status"), Ok("/status"));
        assert_eq!(asked(Method::HEAD, "/metrics"), Ok("/metrics"));
        assert_eq!(asked(Method::POST, "/metrics"), Err(405));
        assert_eq!(asked(Method::GET, "/"), Err(404));
    }
}
