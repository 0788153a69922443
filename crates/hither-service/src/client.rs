//! Asking a running node, by its socket.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::error::{Cause, Error, Place};
use crate::sockets;
use crate::status::NodeStatus;
use crate::topology::TopologyStatus;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How long a node may take: longer than the members that it asks.
const TIME_MAX: Duration = Duration::from_secs(5);

/// How long a node may say nothing while it works: it says more than once a second how far it is,
/// but for a source that does not answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The socket of the node that serves the mount at `path`.
///
/// # Errors
/// No node serves it.
pub fn socket_of(path: &Path) -> Result<PathBuf, Error> {
    hither_client::socket_of(path).or_else(|error| match error.kind() {
        // It names the path.
        ErrorKind::Unsupported => Err(Error::Plain(error.into())),
        _ => Err(error).at(path.display()),
    })
}

/// The socket of a node: `place` itself, or that of the node that serves the mount there. Without a
/// place it is the only node of this user that runs.
///
/// # Errors
/// There is no such node. Without a place, there is none, or more than one.
pub fn socket_at(place: Option<&Path>) -> Result<PathBuf, Error> {
    let Some(place) = place else {
        return only_socket();
    };
    let is_socket = |it: Metadata| it.file_type().is_socket();
    if fs::metadata(place).is_ok_and(is_socket) {
        return Ok(place.to_owned());
    }
    socket_of(place)
}

fn only_socket() -> Result<PathBuf, Error> {
    let mut sockets = sockets::running();
    match (sockets.pop(), sockets.is_empty()) {
        (Some(socket), true) => Ok(socket),
        (None, _) => Err(Cause::from("no node of yours runs on this machine").into()),
        (Some(last), false) => {
            sockets.push(last);
            let paths: Vec<String> = sockets.iter().map(|it| it.display().to_string()).collect();
            let paths = paths.join(", ");
            let text = "several nodes of yours run: name a directory, or one of";
            Err(Cause::from(format!("{text} {paths}")).into())
        }
    }
}

/// The figures of the node at `socket`.
///
/// # Errors
/// As of [`get`].
pub fn status(socket: &Path) -> Result<NodeStatus, Error> {
    let answer = get(socket, "/status")?;
    serde_json::from_slice(&answer).at(format_args!("{}: its status", socket.display()))
}

/// How far the members of the cluster of the node at `socket` are from each other. `None` if it is
/// alone.
///
/// # Errors
/// As of [`get`].
pub fn topology(socket: &Path) -> Result<Option<TopologyStatus>, Error> {
    let answer = get(socket, "/topology")?;
    serde_json::from_slice(&answer).at(format_args!("{}: its topology", socket.display()))
}

/// What the node at `socket` answers to `GET path`.
///
/// # Errors
/// It does not answer, or refuses.
pub fn get(socket: &Path, path: &str) -> Result<Bytes, Error> {
    block_on(async {
        let answer = timeout(TIME_MAX, ask(socket, path)).await;
        answer.unwrap_or_else(|_| Err(late(TIME_MAX)))
    })
    .at(socket.display())
}

/// Runs `work` on this thread.
fn block_on<T>(work: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

fn late(time: Duration) -> Cause {
    format!("no answer in {} s", time.as_secs()).into()
}

/// Posts `body` to `path` of the node at `socket`, and calls `on_line` with each line of the answer
/// as it comes.
pub(crate) fn post(
    socket: &Path,
    path: &str,
    body: Vec<u8>,
    on_line: impl FnMut(&[u8]) -> Result<(), Cause>,
) -> Result<(), Error> {
    block_on(post_to(socket, path, body, on_line)).at(socket.display())
}

async fn post_to(
    socket: &Path,
    path: &str,
    body: Vec<u8>,
    mut on_line: impl FnMut(&[u8]) -> Result<(), Cause>,
) -> Result<(), Cause> {
    let late = |_| late(SILENCE_MAX);
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::post(path).header(hyper::header::HOST, "node");
    let request = request.body(Full::new(Bytes::from(body)))?;
    let sent = timeout(SILENCE_MAX, sender.send_request(request));
    let answer = sent.await.map_err(late)??;
    check(path, answer.status())?;
    let mut frames = answer.into_body();
    let mut line = Vec::new();
    while let Some(frame) = timeout(SILENCE_MAX, frames.frame()).await.map_err(late)? {
        let data = frame?.into_data().unwrap_or_default();
        for part in data.split_inclusive(|&byte| byte == b'\n') {
            line.extend_from_slice(part);
            if line.pop_if(|last| *last == b'\n').is_some() {
                on_line(&line)?;
                line.clear();
            }
            if line.len() > ANSWER_BYTES_MAX {
                return Err("an endless answer".into());
            }
        }
    }
    Ok(())
}

fn check(path: &str, status: StatusCode) -> Result<(), Cause> {
    if status.is_success() {
        return Ok(());
    }
    Err(format!("{path}: {status}").into())
}

async fn ask(socket: &Path, path: &str) -> Result<Bytes, Cause> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header(hyper::header::HOST, "node");
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    check(path, answer.status())?;
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    Ok(body.collect().await?.to_bytes())
}
