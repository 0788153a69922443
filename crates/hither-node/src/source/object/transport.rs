//! What lies between the client library and the network: counts requests, turns refusals into
//! errors that keep their status and `Retry-After`, sifts listings, and cuts the range out of an
//! answer that ignores it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use hyper::StatusCode;
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, RANGE, RETRY_AFTER};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

use super::super::counters::SourceCounters;
use super::sift::{sift, text_of};

/// The longest text of a refusal that is kept.
const MESSAGE_CHARS_MAX: usize = 300;

/// An answer that is no success.
#[derive(Debug, thiserror::Error)]
#[error("{status}{}{message}", if message.is_empty() { "" } else { ": " })]
pub(super) struct Refused {
    /// Its status.
    pub status: StatusCode,
    /// How long the source wants to be left alone.
    pub retry_after: Option<Duration>,
    /// What it says.
    pub message: String,
}

/// Makes clients that count.
#[derive(Clone, Debug)]
pub(super) struct Transport(pub Arc<SourceCounters>);

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service {
            inner: ReqwestConnector::default().connect(options)?,
            counters: Arc::clone(&self.0),
        }))
    }
}

#[derive(Debug)]
struct Service {
    inner: HttpClient,
    counters: Arc<SourceCounters>,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.counters.requests.add(1);
        let query = request.uri().query().unwrap_or_default();
        let lists = query
            .split('&')
            .any(|pair| matches!(pair, "list-type=2" | "comp=list"));
        let range = range_of(request.headers());
        let response = self.inner.execute(request).await?;
        let status = response.status();
        if status.is_success() {
            return match (range, lists) {
                (_, true) => self.sifted(response).await,
                (Some(range), _) if status == StatusCode::OK => cut(response, range),
                _ => Ok(response),
            };
        }
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            self.counters.throttled.add(1);
        }
        // The library tells these apart itself.
        let known = [304, 401, 403, 404, 405, 409, 412].contains(&status.as_u16());
        if status.is_redirection() || (known && !lists) {
            return Ok(response);
        }
        Err(refusal(response).await)
    }
}

impl Service {
    async fn sifted(&self, response: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = response.into_parts();
        let page = body.bytes().await?;
        let (sifted, left_out) = sift(&String::from_utf8_lossy(&page));
        if let Some(first) = left_out.first() {
            self.counters.left_out.add(left_out.len() as u64);
            tracing::warn!(
                "{} keys have no path and are left out, such as {first:?}",
                left_out.len()
            );
        }
        parts.headers.remove(CONTENT_LENGTH);
        Ok(HttpResponse::from_parts(parts, sifted.into()))
    }
}

async fn refusal(response: HttpResponse) -> HttpError {
    let (parts, body) = response.into_parts();
    let text = body.bytes().await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let message = match (text_of(&text, "Code"), text_of(&text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ if text.trim_start().starts_with('<') => String::new(),
        _ => text.trim().to_owned(),
    };
    let retry_after = parts.headers.get(RETRY_AFTER);
    let refused = Refused {
        status: parts.status,
        retry_after: retry_after
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs),
        message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
    };
    HttpError::new(HttpErrorKind::Unknown, refused)
}

/// First and last byte of a request for one range.
fn range_of(headers: &HeaderMap) -> Option<(u64, u64)> {
    let range = headers.get(RANGE)?.to_str().ok()?;
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The bytes of `range` out of an answer that holds the whole file: a server may ignore ranges.
/// This is right, and slow: each range costs all that lies before it.
fn cut(response: HttpResponse, (first, last): (u64, u64)) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = response.into_parts();
    let length = parts.headers.get(CONTENT_LENGTH);
    let length: Option<u64> = length.and_then(|value| value.to_str().ok()?.parse().ok());
    let Some(length) = length.filter(|&length| last < length) else {
        let refused = Refused {
            status: StatusCode::RANGE_NOT_SATISFIABLE,
            retry_after: None,
            message: "the server gives other bytes than the range that was asked for".into(),
        };
        return Err(HttpError::new(HttpErrorKind::Unknown, refused));
    };
    tracing::debug!("the server ignores ranges: bytes before {first} are read and dropped");
    parts.status = StatusCode::PARTIAL_CONTENT;
    let value = |text: String| HeaderValue::from_str(&text).expect("digits");
    let range = format!("bytes {first}-{last}/{length}");
    parts.headers.insert(CONTENT_RANGE, value(range));
    parts
        .headers
        .insert(CONTENT_LENGTH, value((last + 1 - first).to_string()));
    Ok(HttpResponse::from_parts(
        parts,
        HttpResponseBody::new(Cut {
            body,
            skip: first,
            left: last + 1 - first,
        }),
    ))
}

/// Part of a body. Ends with the last byte of the part, so that the rest is never fetched.
struct Cut {
    body: HttpResponseBody,
    skip: u64,
    left: u64,
}

impl Body for Cut {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        while self.left > 0 {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)?) else {
                break;
            };
            let Ok(mut bytes) = frame.into_data() else {
                continue;
            };
            let skipped = self.skip.min(bytes.len() as u64);
            self.skip -= skipped;
            bytes.advance(skipped as usize);
            bytes.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= bytes.len() as u64;
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        }
        Poll::Ready(None)
    }
}
