//! An S3 server in memory that fails on request: latency, errors, throttling, truncated bodies,
//! stalls, resets, objects that change. Tests and experiments include this folder by its path.
//!
//! It speaks the part of the protocol that clients of files use, with the bucket in the path.
//! Signatures are not checked. It runs on a thread of its own and ends when it is dropped.

mod answers;
mod faults;
mod listing;
mod objects;
mod target;
mod writes;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

pub use faults::{Fault, Faults};

use answers::{Answer, Body, refuse};
use objects::{Buckets, lock};
use target::Target;

/// One request that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// GET, PUT and so on.
    pub method: String,
    /// The first part of the path.
    pub bucket: String,
    /// The rest of the path, decoded.
    pub key: String,
    /// What follows the question mark, as it came.
    pub query: String,
    /// The header `Range`, as it came.
    pub range: Option<String>,
    /// 0 if the connection was closed instead of an answer.
    pub status: u16,
}

/// A running server.
pub struct S3Emulator {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    buckets: Mutex<Buckets>,
    faults: Mutex<Faults>,
    seen: Mutex<Vec<Seen>>,
}

impl S3Emulator {
    /// Starts a server on a free port of the loopback, with the empty bucket `bucket`.
    pub fn start() -> S3Emulator {
        let state = Arc::new(State::default());
        lock(&state.buckets).create("bucket");
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = accept(listener, served) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        S3Emulator {
            address,
            state,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Its URL, without a bucket.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes an empty bucket.
    pub fn create_bucket(&self, bucket: &str) {
        lock(&self.state.buckets).create(bucket);
    }

    /// Puts an object into `bucket`, without a request: as one that was there for an hour. Equal
    /// bytes have equal etags.
    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        let stored = lock(&self.state.buckets).put("bucket", key, bytes.into().into());
        stored.expect("the bucket is there");
    }

    /// The bytes of an object in `bucket`.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let buckets = lock(&self.state.buckets);
        Some(buckets.get("bucket", key)?.bytes.to_vec())
    }

    /// Removes an object of `bucket`, without a request.
    pub fn remove(&self, key: &str) {
        lock(&self.state.buckets).remove("bucket", key);
    }

    /// Uploads that were begun and neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        lock(&self.state.buckets).open_uploads()
    }

    /// From now on, fails as `faults` says.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.state.faults) = faults;
    }

    /// Fails the next requests for objects, one after the other, and goes on as before.
    pub fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.state.faults).next.extend(faults);
    }

    /// The requests since the start, or since this was called last.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut lock(&self.state.seen))
    }
}

impl Drop for S3Emulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        tokio::spawn(serve(stream, Arc::clone(&state)));
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { answer(request, &state).await }
    });
    let _ = stream.set_nodelay(true);
    // An error is what a fault asked for, or a client that went away.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// An error closes the connection without an answer.
async fn answer(request: Request<Incoming>, state: &State) -> Result<Response<Body>, io::Error> {
    let target = Target::of(&request);
    let header = |name: &str| {
        let value = request.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let mut seen = Seen {
        method: request.method().to_string(),
        bucket: target.bucket.clone(),
        key: target.key.clone(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        range: header("range"),
        status: 0,
    };
    let (faults, fault) = lock(&state.faults).draw();
    tokio::time::sleep(faults.latency).await;
    let answered = match fault {
        Some(Fault::Reset) => None,
        Some(Fault::Status(status, retry_after)) => {
            let status = StatusCode::from_u16(status).unwrap();
            Some(refuse(status, "Injected", "the test wants it").retry_after(retry_after))
        }
        fault => {
            match fault {
                Some(Fault::Change) => {
                    lock(&state.buckets).change(&target.bucket, &target.key);
                }
                Some(Fault::AbortUploads) => lock(&state.buckets).abort_uploads(),
                _ => {}
            }
            let answered = dispatch(request, &target, state, &faults).await;
            if let Some(Fault::ThenPut(key, bytes)) = fault {
                let bytes = bytes::Bytes::from_static(bytes);
                lock(&state.buckets).put(&target.bucket, key, bytes);
            }
            match fault {
                Some(Fault::LostAnswer) => None,
                fault => Some(answered.cut(fault.as_ref())),
            }
        }
    };
    seen.status = answered.as_ref().map_or(0, |answer| answer.status.as_u16());
    lock(&state.seen).push(seen);
    match answered {
        Some(answer) => Ok(answer.into_response(faults.bytes_per_second)),
        None => Err(io::Error::other("closed by a fault")),
    }
}

async fn dispatch(
    request: Request<Incoming>,
    target: &Target,
    state: &State,
    faults: &Faults,
) -> Answer {
    match *request.method() {
        _ if !lock(&state.buckets).has(&target.bucket) => refuse(
            StatusCode::NOT_FOUND,
            "NoSuchBucket",
            "The specified bucket does not exist",
        ),
        Method::GET if target.key.is_empty() => listing::list(&lock(&state.buckets), target),
        Method::GET | Method::HEAD => {
            answers::object(&lock(&state.buckets), target, request.headers(), faults)
        }
        Method::PUT | Method::POST | Method::DELETE => {
            writes::write(request, target, &state.buckets).await
        }
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", ""),
    }
}
