//! The storage: a web server whose every answer takes a given time longer, as if it were far away.
//! Any number of requests are answered at the same time. A file's bytes follow from its name and
//! version: see [`content`](crate::content). `/` is a page with a link to each file.
//!
//! Commands: `counts` prints how many requests there were; `rewrite NAME` makes a new version of a
//! file; `log FILE` writes what was read since the last time, a line for each read of a file and
//! for each new version (node 0).

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_MATCH, LAST_MODIFIED, RANGE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::content::{CELL_BYTES, fill};
use crate::values::{now_ns, number};

const MODIFIED: &str = "Sat, 01 Jan 2022 00:00:00 GMT";

type Answer = Response<Full<Bytes>>;

struct File {
    name: String,
    bytes: u64,
    version: u32,
}

#[derive(Default)]
struct State {
    files: Vec<File>,
    requests: u64,
    reads: u64,
    bytes: u64,
    log: String,
}

struct Source {
    latency: Duration,
    state: Mutex<State>,
}

impl Source {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves `files` until stdin ends.
pub(crate) fn run(address: &str, latency_ms: u64, files: &[&str]) -> Result<()> {
    let file = |text: &&str| {
        let (name, bytes) = text.split_once(':').context("a file is NAME:BYTES")?;
        let (name, bytes) = (name.to_owned(), number(bytes)?);
        Ok(File {
            name,
            bytes,
            version: 1,
        })
    };
    let files = files.iter().map(file).collect::<Result<_>>()?;
    let source = Arc::new(Source {
        latency: Duration::from_millis(latency_ms),
        state: Mutex::new(State {
            files,
            ..State::default()
        }),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.context("listening")?;
        let commanded = Arc::clone(&source);
        thread::spawn(move || {
            println!("{{}}");
            let ended = commands(&commanded);
            if let Err(error) = &ended {
                eprintln!("error: {error:#}");
            }
            std::process::exit(i32::from(ended.is_err()));
        });
        loop {
            let (stream, from) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let source = Arc::clone(&source);
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let source = Arc::clone(&source);
                    async move { Ok::<_, Infallible>(answer(&source, from, request).await) }
                });
                // How a connection ends is the client's matter.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    })
}

fn commands(source: &Source) -> Result<()> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut state = source.state();
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("counts", "") => println!(
                "{{\"requests\": {}, \"reads\": {}, \"bytes\": {}}}",
                state.requests, state.reads, state.bytes
            ),
            ("rewrite", name) => {
                let at = state.files.iter().position(|file| file.name == name);
                let at = at.with_context(|| format!("no file {name}"))?;
                state.files[at].version += 1;
                let (version, now) = (state.files[at].version, now_ns());
                writeln!(state.log, "0,{at},0,0,{version},{now},{now}")?;
                println!("{{\"version\": {version}}}");
            }
            ("log", path) => {
                let log = std::mem::take(&mut state.log);
                std::fs::write(
                    path,
                    "node,file,offset,bytes,version,begun,ended\n".to_owned() + &log,
                )
                .context(path.to_owned())?;
                println!("{{}}");
            }
            _ => bail!("unknown command {line:?}"),
        }
    }
    Ok(())
}

async fn answer(
    source: &Source,
    from: SocketAddr,
    request: Request<hyper::body::Incoming>,
) -> Answer {
    let begun = now_ns();
    source.state().requests += 1;
    tokio::time::sleep(source.latency).await;
    let mut state = source.state();
    let name = request.uri().path().trim_start_matches('/');
    if name.is_empty() && request.method() == Method::GET {
        return page(&state.files);
    }
    let Some(at) = state.files.iter().position(|file| file.name == name) else {
        return empty(StatusCode::NOT_FOUND);
    };
    let File { bytes, version, .. } = state.files[at];
    let etag = format!("\"{version}\"");
    let headers = request.headers();
    if text(headers, IF_MATCH).is_some_and(|wanted| wanted != etag) {
        return empty(StatusCode::PRECONDITION_FAILED);
    }
    let known = Response::builder()
        .header(ETAG, etag)
        .header(LAST_MODIFIED, MODIFIED)
        .header(ACCEPT_RANGES, "bytes");
    let built = match *request.method() {
        Method::HEAD => known.header(CONTENT_LENGTH, bytes).body(Full::default()),
        Method::GET => {
            let range = text(headers, RANGE).and_then(|range| range_in(range, bytes));
            let (first, end) = range.unwrap_or((0, bytes));
            let cells = fill(
                at as u32,
                version,
                first / CELL_BYTES..end.div_ceil(CELL_BYTES),
            );
            let body = Bytes::from(cells).slice((first % CELL_BYTES) as usize..);
            let body = body.slice(..(end - first) as usize);
            state.reads += 1;
            state.bytes += body.len() as u64;
            let node = match from.ip() {
                std::net::IpAddr::V4(ip) => ip.octets()[3],
                std::net::IpAddr::V6(_) => 0,
            };
            let ended = now_ns();
            let length = body.len();
            let _ = writeln!(
                state.log,
                "{node},{at},{first},{length},{version},{begun},{ended}"
            );
            let partial = known
                .status(StatusCode::PARTIAL_CONTENT)
                .header(CONTENT_RANGE, format!("bytes {first}-{}/{bytes}", end - 1));
            partial.body(Full::new(body))
        }
        _ => return empty(StatusCode::METHOD_NOT_ALLOWED),
    };
    built.unwrap_or_else(|_| empty(StatusCode::INTERNAL_SERVER_ERROR))
}

fn page(files: &[File]) -> Answer {
    let mut text = String::new();
    for File { name, .. } in files {
        let _ = writeln!(text, "<a href=\"{name}\">{name}</a>");
    }
    let mut answer = Answer::new(Full::new(text.into()));
    let html = HeaderValue::from_static("text/html");
    answer.headers_mut().insert(CONTENT_TYPE, html);
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Answer::default();
    *answer.status_mut() = status;
    answer
}

fn text(headers: &HeaderMap, name: hyper::header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Start and end of `bytes=FIRST-LAST` in a file of `bytes`.
fn range_in(range: &str, bytes: u64) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let last: u64 = last.parse().unwrap_or(u64::MAX);
    let end = last.saturating_add(1).min(bytes);
    (first < end).then_some((first, end))
}

#[cfg(test)]
mod tests {
    use super::range_in;

    #[test]
    fn ranges_end_with_the_file() {
        assert_eq!(range_in("bytes=0-4095", 8192), Some((0, 4096)));
        assert_eq!(range_in("bytes=4096-9999", 8192), Some((4096, 8192)));
        assert_eq!(range_in("bytes=4096-", 8192), Some((4096, 8192)));
        assert_eq!(range_in("bytes=8192-9000", 8192), None);
        assert_eq!(range_in("lines=1-2", 8192), None);
    }
}
