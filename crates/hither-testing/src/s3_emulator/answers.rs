//! Answers: objects and ranges of them, errors, and bodies that break off.

use std::io;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};

use super::faults::{Fault, Faults};
use super::objects::{Buckets, calendar};
use super::target::Target;

pub(super) type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>;

/// An answer that is not sent yet.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: Vec<(String, String)>,
    body: Bytes,
    end: End,
}

/// How a body ends.
enum End {
    Whole,
    /// After so many bytes, with the connection.
    Closed(u64),
    /// After so many bytes, never.
    Stalled(u64),
}

impl Answer {
    pub(super) fn new(status: StatusCode, body: impl Into<Bytes>) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body: body.into(),
            end: End::Whole,
        }
    }

    pub(super) fn xml(body: String) -> Answer {
        Answer::new(StatusCode::OK, body).header("content-type", "application/xml".into())
    }

    pub(super) fn header(mut self, name: &str, value: String) -> Answer {
        self.headers.push((name.to_owned(), value));
        self
    }

    pub(super) fn retry_after(self, seconds: Option<u64>) -> Answer {
        match seconds {
            Some(seconds) => self.header("retry-after", seconds.to_string()),
            None => self,
        }
    }

    pub(super) fn cut(mut self, fault: Option<&Fault>) -> Answer {
        match fault {
            Some(Fault::Truncate(bytes)) => self.end = End::Closed(*bytes),
            Some(Fault::Stall(bytes)) => self.end = End::Stalled(*bytes),
            _ => {}
        }
        self
    }

    pub(super) fn into_response(self, bytes_per_second: Option<u64>) -> Response<Body> {
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(name, value);
        }
        let given = |name| self.headers.iter().any(|(given, _)| given == name);
        if !given("content-length") && self.status != StatusCode::NO_CONTENT {
            response = response.header("content-length", self.body.len());
        }
        let length = self.body.len() as u64;
        let shown = match self.end {
            End::Whole => length,
            End::Closed(bytes) | End::Stalled(bytes) => bytes.min(length),
        };
        let chunk = bytes_per_second.map_or(64 << 10, |rate| (rate / 50).clamp(1, 64 << 10));
        let body = self.body.slice(..shown as usize);
        let sent = stream::unfold(body, move |mut left| async move {
            if left.is_empty() {
                return None;
            }
            let bytes = left.split_to(left.len().min(chunk as usize));
            if let Some(rate) = bytes_per_second {
                let pause = bytes.len() as f64 / rate as f64;
                tokio::time::sleep(Duration::from_secs_f64(pause)).await;
            }
            Some((Ok(Frame::data(bytes)), left))
        });
        let body = match self.end {
            End::Closed(_) if shown < length => {
                // After what was sent has left: the server drops what it holds with the connection.
                let error = stream::once(async {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    Err(io::Error::other("truncated by a fault"))
                });
                sent.chain(error).boxed()
            }
            End::Stalled(_) if shown < length => sent.chain(stream::pending()).boxed(),
            _ => sent.boxed(),
        };
        response.body(StreamBody::new(body)).unwrap()
    }
}

/// An error as S3 writes it.
pub(super) fn refuse(status: StatusCode, code: &str, message: &str) -> Answer {
    let body = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    Answer::new(status, body).header("content-type", "application/xml".into())
}

/// GET and HEAD of an object.
pub(super) fn object(
    buckets: &Buckets,
    target: &Target,
    headers: &HeaderMap,
    faults: &Faults,
) -> Answer {
    let Some(object) = buckets.get(&target.bucket, &target.key) else {
        return refuse(StatusCode::NOT_FOUND, "NoSuchKey", "no such key");
    };
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let check = !faults.ignore_conditions;
    if check && header("if-match").is_some_and(|etag| etag != "*" && etag != object.etag) {
        return refuse(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "");
    }
    if check && header("if-none-match").is_some_and(|etag| etag == object.etag) {
        return Answer::new(StatusCode::NOT_MODIFIED, "");
    }
    let length = object.bytes.len() as u64;
    let range = header("range").filter(|_| !faults.ignore_range);
    let mut answer = match range.map(|range| parse_range(range, length)) {
        Some(Some((first, last))) => {
            let bytes = object.bytes.slice(first as usize..=last as usize);
            let range = format!("bytes {first}-{last}/{length}");
            Answer::new(StatusCode::PARTIAL_CONTENT, bytes).header("content-range", range)
        }
        Some(None) => return refuse(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", ""),
        None => Answer::new(StatusCode::OK, object.bytes.clone()),
    };
    for (name, value) in &object.metadata {
        answer = answer.header(name, value.clone());
    }
    if !faults.no_etag {
        answer = answer.header("etag", object.etag.clone());
    }
    if !faults.no_last_modified {
        answer = answer.header("last-modified", http_date(object.modified));
    }
    answer
}

/// First and last byte of a range that can be served.
fn parse_range(range: &str, length: u64) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => (first, last.min(length.checked_sub(1)?)),
        (Ok(first), Err(_)) => (first, length.checked_sub(1)?),
        (Err(_), Ok(count)) => (length.saturating_sub(count), length.checked_sub(1)?),
        _ => return None,
    };
    (first <= last && first < length).then_some((first, last))
}

fn http_date(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let [year, month, day, hour, minute, second, weekday] = calendar(time);
    let (weekday, month) = (DAYS[weekday as usize], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}
