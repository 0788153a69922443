//! A bucket in memory that is asked without a network, and all that may go wrong with it: errors,
//! answers that are lost or late, requests that are carried out when nobody waits for them any
//! more, uploads that a lifecycle rule aborts, and other clients, who come in between any two
//! steps. It writes down each change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{DATE, ETAG, HeaderMap, LAST_MODIFIED};
use hyper::{Method, StatusCode};
use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use parking_lot::Mutex;
use url::form_urlencoded;

use super::random::Random;

const MARK_HEADER: &str = "x-amz-meta-hitherwrite";

/// What a bucket does with conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conditions {
    Kept,
    Ignored,
    /// With 501.
    Refused,
}

/// How a bucket is, and what goes wrong. Shares are in thousandths of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub conditions: Conditions,
    /// It keeps user metadata.
    pub keeps_marks: bool,
    /// Each object seems to be the last write's: as if nothing had to be proven.
    pub claims_marks: bool,
    pub faults: u64,
    /// Requests are carried out after their answer was given up.
    pub late: bool,
    /// Other clients store and remove objects.
    pub others: u64,
    /// All that is stored is empty, so that bytes and etags prove nothing.
    pub empty: bool,
}

/// A version of an object.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub bytes: Bytes,
    pub etag: String,
    /// The operation that has stored it. `None`: another client.
    pub by: Option<u64>,
    /// When, in steps.
    pub step: u64,
    mark: Option<String>,
}

/// A change of one key.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub step: u64,
    pub key: String,
    /// `None`: another client.
    pub by: Option<u64>,
    pub before: Option<Stored>,
    pub after: Option<Stored>,
}

#[derive(Debug)]
struct Upload {
    key: String,
    mark: Option<String>,
    parts: BTreeMap<u32, Bytes>,
}

/// A request, read.
#[derive(Clone, Debug)]
struct Asked {
    method: Method,
    key: String,
    query: BTreeMap<String, String>,
    headers: HeaderMap,
    body: Bytes,
    by: u64,
}

impl Asked {
    fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }

    fn changes(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD)
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub random: Random,
    pub manner: Manner,
    pub keys: Vec<String>,
    /// The operation that runs.
    pub operation: u64,
    pub step: u64,
    pub changes: Vec<Change>,
    objects: BTreeMap<String, Stored>,
    uploads: BTreeMap<String, Upload>,
    /// After how many more requests they are carried out.
    late: Vec<(u64, Asked)>,
    last_mark: Option<String>,
    numbers: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Bucket(pub Arc<Mutex<State>>);

struct Answer(StatusCode, Vec<(&'static str, String)>, String);

fn refuse(status: StatusCode, code: &str) -> Answer {
    Answer(
        status,
        Vec::new(),
        format!("<Error><Code>{code}</Code></Error>"),
    )
}

impl State {
    pub(super) fn new(seed: u64, manner: Manner, keys: &[&str]) -> State {
        State {
            random: Random(seed),
            manner,
            keys: keys.iter().map(|&key| key.to_owned()).collect(),
            operation: 0,
            step: 0,
            changes: Vec::new(),
            objects: BTreeMap::new(),
            uploads: BTreeMap::new(),
            late: Vec::new(),
            last_mark: None,
            numbers: 0,
        }
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        self.random.below(1000) < thousandths
    }

    fn change(&mut self, key: &str, by: Option<u64>, after: Option<(Bytes, Option<String>)>) {
        self.step += 1;
        self.numbers += 1;
        let after = after.map(|(bytes, mark)| Stored {
            etag: format!("\"{:x}\"", twox_hash::XxHash3_64::oneshot(&bytes)),
            bytes,
            by,
            step: self.step,
            mark: mark.filter(|_| self.manner.keeps_marks),
        });
        let before = match &after {
            Some(after) => self.objects.insert(key.to_owned(), after.clone()),
            None => self.objects.remove(key),
        };
        if before.is_some() || after.is_some() {
            self.changes.push(Change {
                step: self.step,
                key: key.to_owned(),
                by,
                before,
                after,
            });
        }
    }

    /// Another client may do something.
    pub(super) fn others(&mut self) {
        if !self.happens(self.manner.others) {
            return;
        }
        let key = self.random.below(self.keys.len() as u64) as usize;
        let key = self.keys[key].clone();
        match self.random.below(4) {
            0 => self.change(&key, None, None),
            _ => {
                let bytes = if self.manner.empty {
                    Bytes::new()
                } else {
                    format!("another client's {}", self.numbers).into()
                };
                self.change(&key, None, Some((bytes, None)));
            }
        }
    }

    /// Carries out what is due.
    fn carry_out_late(&mut self, all: bool) {
        for (_, asked) in self
            .late
            .extract_if(.., |(left, _)| {
                *left = left.saturating_sub(1);
                *left == 0 || all
            })
            .collect::<Vec<_>>()
        {
            self.carry_out(&asked);
        }
    }

    /// Whoever waits for nothing any more: what is still on its way arrives.
    pub(super) fn end(&mut self) {
        self.carry_out_late(true);
    }

    /// Whether the conditions for what is at the key hold.
    fn refusal(&self, asked: &Asked) -> Option<Answer> {
        let names = ["if-match", "if-none-match", "x-amz-copy-source-if-match"];
        let [same, none, _] = names.map(|name| asked.header(name));
        if !names.iter().any(|name| asked.headers.contains_key(*name)) {
            return None;
        }
        match self.manner.conditions {
            Conditions::Ignored => return None,
            Conditions::Refused => {
                return Some(refuse(StatusCode::NOT_IMPLEMENTED, "NotImplemented"));
            }
            Conditions::Kept => {}
        }
        let there = self.objects.get(&asked.key);
        let failed = || refuse(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
        match (same, there) {
            (Some(_), None) => return Some(refuse(StatusCode::NOT_FOUND, "NoSuchKey")),
            (Some(etag), Some(there)) if etag != there.etag => return Some(failed()),
            _ => {}
        }
        (none.is_some() && there.is_some()).then(failed)
    }

    fn carry_out(&mut self, asked: &Asked) -> Answer {
        let ok = |headers, body: &str| Answer(StatusCode::OK, headers, body.to_owned());
        let mark = asked.header(MARK_HEADER);
        let by = Some(asked.by);
        let upload = asked.query.get("uploadId").cloned();
        match (&asked.method, upload) {
            (&Method::GET, None) => ok(
                Vec::new(),
                "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
            ),
            (&Method::HEAD, None) => match self.objects.get(&asked.key) {
                None => refuse(StatusCode::NOT_FOUND, "NoSuchKey"),
                Some(there) => {
                    let mark = if self.manner.claims_marks {
                        self.last_mark.clone()
                    } else {
                        there.mark.clone()
                    };
                    let mut headers = vec![
                        (ETAG.as_str(), there.etag.clone()),
                        ("content-length", there.bytes.len().to_string()),
                    ];
                    headers.extend(mark.map(|mark| (MARK_HEADER, mark)));
                    ok(headers, "")
                }
            },
            (&Method::POST, None) if asked.query.contains_key("uploads") => {
                self.numbers += 1;
                let id = format!("upload-{}", self.numbers);
                self.last_mark = mark.clone();
                let upload = Upload {
                    key: asked.key.clone(),
                    mark,
                    parts: BTreeMap::new(),
                };
                self.uploads.insert(id.clone(), upload);
                let begun = format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId>\
                     </InitiateMultipartUploadResult>"
                );
                ok(Vec::new(), &begun)
            }
            (&Method::PUT, Some(id)) => match self.uploads.get_mut(&id) {
                None => refuse(StatusCode::NOT_FOUND, "NoSuchUpload"),
                Some(upload) => {
                    let number = asked.query["partNumber"].parse().unwrap();
                    upload.parts.insert(number, asked.body.clone());
                    ok(vec![(ETAG.as_str(), "\"part\"".into())], "")
                }
            },
            (&Method::DELETE, Some(id)) => match self.uploads.remove(&id) {
                None => refuse(StatusCode::NOT_FOUND, "NoSuchUpload"),
                Some(_) => Answer(StatusCode::NO_CONTENT, Vec::new(), String::new()),
            },
            (&Method::POST, Some(id)) => {
                if !self.uploads.contains_key(&id) {
                    return refuse(StatusCode::NOT_FOUND, "NoSuchUpload");
                }
                if let Some(refusal) = self.refusal(asked) {
                    return refusal;
                }
                let upload = self.uploads.remove(&id).unwrap();
                let bytes = upload.parts.into_values().collect::<Vec<_>>().concat();
                self.change(&upload.key, by, Some((bytes.into(), upload.mark)));
                let etag = &self.objects[&upload.key].etag;
                let completed = format!(
                    "<CompleteMultipartUploadResult><ETag>{etag}</ETag>\
                     </CompleteMultipartUploadResult>"
                );
                ok(Vec::new(), &completed)
            }
            (&Method::PUT, None) => {
                if let Some(refusal) = self.refusal(asked) {
                    return refusal;
                }
                let Some(from) = asked.header("x-amz-copy-source") else {
                    self.last_mark = mark.clone();
                    self.change(&asked.key, by, Some((asked.body.clone(), mark)));
                    let etag = self.objects[&asked.key].etag.clone();
                    return ok(vec![(ETAG.as_str(), etag)], "");
                };
                let from = from.rsplit('/').next().unwrap();
                let Some(source) = self.objects.get(from).cloned() else {
                    return refuse(StatusCode::NOT_FOUND, "NoSuchKey");
                };
                let wanted = asked.header("x-amz-copy-source-if-match");
                let is_kept = self.manner.conditions == Conditions::Kept;
                if is_kept && wanted.is_some_and(|etag| etag != source.etag) {
                    return refuse(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
                }
                self.change(&asked.key, by, Some((source.bytes, source.mark)));
                ok(Vec::new(), "<CopyObjectResult></CopyObjectResult>")
            }
            (&Method::DELETE, None) => {
                if let Some(refusal) = self.refusal(asked) {
                    return refusal;
                }
                self.change(&asked.key, by, None);
                Answer(StatusCode::NO_CONTENT, Vec::new(), String::new())
            }
            // DeleteObjects is one of those that not every store has.
            _ => refuse(StatusCode::NOT_IMPLEMENTED, "NotImplemented"),
        }
    }

    /// What comes of a request. `None`: no answer, ever.
    fn answer(&mut self, asked: &Asked) -> Result<Option<Answer>, HttpError> {
        let lost = || {
            let reason = std::io::Error::other("the connection was reset");
            Err(HttpError::new(HttpErrorKind::Interrupted, reason))
        };
        self.step += 1;
        self.carry_out_late(false);
        let is_atomic = self.manner.conditions != Conditions::Kept;
        if !is_atomic {
            self.others();
        }
        if !self.happens(self.manner.faults) {
            return Ok(Some(self.carry_out(asked)));
        }
        if self.happens(200) {
            self.uploads.clear(); // A lifecycle rule.
            return Ok(Some(self.carry_out(asked)));
        }
        match self.random.below(6) {
            0 => Ok(Some(refuse(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"))),
            1 => lost(),
            2 if asked.changes() && self.manner.late => {
                let after = 1 + self.random.below(12);
                self.late.push((after, asked.clone()));
                Ok(None)
            }
            3 if asked.changes() => {
                let error = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>";
                Ok(Some(Answer(StatusCode::OK, Vec::new(), error.into())))
            }
            kind => {
                self.carry_out(asked);
                if !is_atomic {
                    self.others();
                }
                match kind {
                    4 => lost(),
                    _ => Ok(None),
                }
            }
        }
    }
}

#[async_trait]
impl HttpService for Bucket {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path().trim_start_matches('/');
        let query = parts.uri.query().unwrap_or_default();
        let query = form_urlencoded::parse(query.as_bytes()).into_owned();
        let answer = {
            let mut state = self.0.lock();
            let asked = Asked {
                method: parts.method,
                key: path.split_once('/').map_or("", |(_, key)| key).to_owned(),
                query: query.collect(),
                headers: parts.headers,
                body,
                by: state.operation,
            };
            state.answer(&asked)?
        };
        let Some(Answer(status, headers, body)) = answer else {
            return std::future::pending().await;
        };
        let mut response = HttpResponse::new(HttpResponseBody::from(body));
        *response.status_mut() = status;
        for (name, value) in headers {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        let long_ago = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(1_000_000));
        let now = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(2_000_000));
        for (name, value) in [(LAST_MODIFIED, long_ago), (DATE, now)] {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        Ok(response)
    }
}
