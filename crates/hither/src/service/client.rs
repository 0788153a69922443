//! Asking a running node, by its socket.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::sockets;
use super::topology::TopologyStatus;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How long a node may take: longer than the members that it asks.
const TIME_MAX: Duration = Duration::from_secs(5);

/// How long a node may say nothing while it works: it says more than once a second how far it is,
/// but for a source that does not answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The socket of the node that serves the mount at `path`.
pub(crate) fn socket_of(path: &Path) -> anyhow::Result<PathBuf> {
    hither_client::socket_of(path).map_err(|error| match error.kind() {
        // It names the path.
        ErrorKind::Unsupported => error.into(),
        _ => anyhow::Error::from(error).context(path.display().to_string()),
    })
}

/// The socket of the only node of this user that runs.
pub(crate) fn only_socket() -> anyhow::Result<PathBuf> {
    let mut sockets = sockets::running();
    match (sockets.pop(), sockets.is_empty()) {
        (Some(socket), true) => Ok(socket),
        (None, _) => bail!("no node of yours runs on this machine"),
        (Some(last), false) => {
            sockets.push(last);
            let paths: Vec<String> = sockets.iter().map(|it| it.display().to_string()).collect();
            let paths = paths.join(", ");
            bail!("several nodes of yours run: name a directory or a --socket of {paths}")
        }
    }
}

/// How far the members of the cluster of the node at `socket` are from each other. `None` if it is
/// alone.
pub(crate) fn topology(socket: &Path) -> anyhow::Result<Option<TopologyStatus>> {
    let answer = get(socket, "/topology")?;
    serde_json::from_slice(&answer).with_context(|| format!("{}: its topology", socket.display()))
}

/// What the node at `socket` answers to `GET path`.
pub(crate) fn get(socket: &Path, path: &str) -> anyhow::Result<Bytes> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answer = runtime.block_on(async { timeout(TIME_MAX, ask(socket, path)).await });
    let answer = answer.unwrap_or_else(|_| bail!("no answer in {} s", TIME_MAX.as_secs()));
    answer.with_context(|| format!("{}", socket.display()))
}

/// Posts `body` to `path` of the node at `socket`, and calls `on_line` with each line of the answer
/// as it comes.
pub(crate) fn post(
    socket: &Path,
    path: &str,
    body: Vec<u8>,
    on_line: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime
        .block_on(post_to(socket, path, body, on_line))
        .with_context(|| format!("{}", socket.display()))
}

async fn post_to(
    socket: &Path,
    path: &str,
    body: Vec<u8>,
    mut on_line: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let late = |_| anyhow::anyhow!("no answer in {} s", SILENCE_MAX.as_secs());
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::post(path).header(hyper::header::HOST, "node");
    let request = request.body(Full::new(Bytes::from(body)))?;
    let sent = timeout(SILENCE_MAX, sender.send_request(request));
    let answer = sent.await.map_err(late)??;
    ensure!(answer.status().is_success(), "{path}: {}", answer.status());
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
            ensure!(line.len() <= ANSWER_BYTES_MAX, "an endless answer");
        }
    }
    Ok(())
}

async fn ask(socket: &Path, path: &str) -> anyhow::Result<Bytes> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header(hyper::header::HOST, "node");
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    ensure!(answer.status().is_success(), "{path}: {}", answer.status());
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await;
    Ok(body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes())
}
