//! What lies between the client library and the network: counts requests, turns refusals into
//! errors that keep their status and `Retry-After`, sifts listings, notes the server's clock, and
//! cuts the range out of an answer that ignores it.
//!
//! The library collects all bodies but those of objects, whatever their length. So no body gets
//! through whole: that of a range is streamed, and of each other one a bounded part is read here.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use hyper::body::{Body, Frame};
use hyper::header::{
    CONTENT_LENGTH, CONTENT_RANGE, DATE, HeaderMap, HeaderValue, RANGE, RETRY_AFTER,
};
use hyper::{Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::super::counters::SourceCounters;
use super::super::name::without_secrets;
use super::sift::{sift, text_of};

/// The longest text of a refusal that is kept.
const MESSAGE_CHARS_MAX: usize = 300;

/// How much of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The longest answer that is neither a refusal nor a listing nor bytes of an object.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The longest page of a bucket's listing: 1000 keys of 1 KiB, each byte of them an entity.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// The longest listing of a web server, which has no pages: some 100,000 files.
const LISTING_BYTES_MAX: usize = 64 << 20;

/// Answers that grow beyond this length are read one at a time.
const LONG_BYTES: usize = 1 << 20;

/// When the server says that it answered, by its own clock. With each answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredAt(pub Option<SystemTime>);

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
pub(super) struct Transport {
    counters: Arc<SourceCounters>,
    inner: Option<HttpClient>,
    made: Arc<Mutex<Option<HttpClient>>>,
}

impl Transport {
    /// One that speaks to the network.
    pub(super) fn new(counters: &Arc<SourceCounters>) -> Transport {
        Transport {
            counters: Arc::clone(counters),
            inner: None,
            made: Arc::default(),
        }
    }

    /// One that speaks to `inner`.
    #[cfg(test)]
    pub(super) fn over(inner: HttpClient, counters: &Arc<SourceCounters>) -> Transport {
        Transport {
            inner: Some(inner),
            ..Transport::new(counters)
        }
    }

    /// Makes the client that was made last, whatever the options: it shares the connections.
    pub(super) fn again(&self) -> Again {
        Again(self.made.lock().clone().expect("one was made"))
    }
}

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = match &self.inner {
            Some(inner) => inner.clone(),
            None => ReqwestConnector::default().connect(options)?,
        };
        let client = HttpClient::new(Service {
            inner,
            counters: Arc::clone(&self.counters),
            long_answers: Semaphore::new(1),
        });
        *self.made.lock() = Some(client.clone());
        Ok(client)
    }
}

/// See [`Transport::again`].
#[derive(Clone, Debug)]
pub(super) struct Again(HttpClient);

impl HttpConnector for Again {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.0.clone())
    }
}

#[derive(Debug)]
struct Service {
    inner: HttpClient,
    counters: Arc<SourceCounters>,
    long_answers: Semaphore,
}

/// What a request is for, as far as its answer is treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Bytes of an object: first and last.
    Range(u64, u64),
    /// What is said of an object. There is no body.
    Head,
    /// A page of a bucket's listing.
    Page,
    /// A listing of a web server.
    Listing,
    /// All else.
    Other,
}

impl Purpose {
    fn of(request: &HttpRequest) -> Purpose {
        let query = request.uri().query().unwrap_or_default();
        let mut pairs = query.split('&');
        let is_get = request.method() == Method::GET;
        if pairs.any(|pair| matches!(pair, "list-type=2" | "comp=list")) && is_get {
            return Purpose::Page;
        }
        match (request.method().as_str(), range_of(request.headers())) {
            ("GET", Some((first, last))) => Purpose::Range(first, last),
            ("HEAD", _) => Purpose::Head,
            ("PROPFIND", _) => Purpose::Listing,
            _ => Purpose::Other,
        }
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.counters.requests.add(1);
        let purpose = Purpose::of(&request);
        let mut response = self.inner.execute(request).await?;
        let answered = AnsweredAt(date_of(response.headers()));
        response.extensions_mut().insert(answered);
        let status = response.status();
        if status.is_success() {
            return match purpose {
                Purpose::Range(first, last) if status == StatusCode::OK => {
                    cut(response, (first, last))
                }
                Purpose::Range(..) | Purpose::Head => Ok(response),
                Purpose::Page => self.sifted(response).await,
                Purpose::Listing => self.whole(response, LISTING_BYTES_MAX).await,
                Purpose::Other => failed(self.whole(response, ANSWER_BYTES_MAX).await?).await,
            };
        }
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            self.counters.throttled.add(1);
        }
        // The library tells these apart itself.
        let known = [304, 401, 403, 404, 405, 409, 412].contains(&status.as_u16());
        let (parts, body) = response.into_parts();
        let text = start_of(body, REFUSAL_BYTES_MAX).await;
        if status.is_redirection() || (known && purpose != Purpose::Page) {
            return Ok(HttpResponse::from_parts(parts, without_length(text)));
        }
        Err(refusal(parts.status, &parts.headers, &text))
    }
}

impl Service {
    /// The same answer, with its body read.
    async fn whole(
        &self,
        response: HttpResponse,
        bytes_max: usize,
    ) -> Result<HttpResponse, HttpError> {
        let (parts, body) = response.into_parts();
        let mut pieces = body.bytes_stream();
        let (mut whole, mut turn) = (BytesMut::new(), None);
        while let Some(piece) = pieces.next().await.transpose()? {
            if whole.len() + piece.len() > bytes_max {
                let message = format!("the answer is longer than {bytes_max} bytes");
                return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            whole.extend_from_slice(&piece);
            if whole.len() > LONG_BYTES && turn.is_none() {
                turn = self.long_answers.acquire().await.ok();
            }
        }
        Ok(HttpResponse::from_parts(parts, whole.freeze().into()))
    }

    async fn sifted(&self, response: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = self.whole(response, PAGE_BYTES_MAX).await?.into_parts();
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

/// An answer of success may still hold an error: a bucket that takes long to complete an upload
/// or to copy says at once that it has begun.
async fn failed(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let bytes = body.bytes().await?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let is_xml = text.trim_start().starts_with('<');
    if let (true, Some(code)) = (is_xml && text.contains("<Error>"), text_of(text, "Code")) {
        return Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, code));
    }
    Ok(HttpResponse::from_parts(parts, bytes.into()))
}

/// The body up to a length. What cannot be read is left out.
async fn start_of(body: HttpResponseBody, bytes_max: usize) -> Bytes {
    let mut pieces = body.bytes_stream();
    let mut start = BytesMut::new();
    while let Some(Ok(piece)) = pieces.next().await {
        let more = piece.len().min(bytes_max - start.len());
        start.extend_from_slice(&piece[..more]);
        if start.len() == bytes_max {
            break;
        }
    }
    start.freeze()
}

/// A body that is valid text, which the library insists on.
fn without_length(text: Bytes) -> HttpResponseBody {
    String::from_utf8_lossy(&text).into_owned().into()
}

fn refuse(status: StatusCode, message: String) -> HttpError {
    let refused = Refused {
        status,
        retry_after: None,
        message,
    };
    HttpError::new(HttpErrorKind::Unknown, refused)
}

fn date_of(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()
}

fn refusal(status: StatusCode, headers: &HeaderMap, text: &Bytes) -> HttpError {
    let text = String::from_utf8_lossy(text);
    let message = match (text_of(&text, "Code"), text_of(&text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ if text.trim_start().starts_with('<') => String::new(),
        _ => text.trim().to_owned(),
    };
    let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
    let retry_after = headers.get(RETRY_AFTER);
    let refused = Refused {
        status,
        retry_after: retry_after
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs),
        message: without_secrets(&message),
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
        let message = "the server gives other bytes than the range that was asked for";
        return Err(refuse(StatusCode::RANGE_NOT_SATISFIABLE, message.into()));
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
