//! PUT, copies, uploads in parts, and DELETE.

use std::sync::Mutex;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use super::answers::{Answer, refuse};
use super::objects::{Buckets, Metadata, lock};
use super::target::{Target, decode};

pub(super) async fn write(
    request: Request<Incoming>,
    target: &Target,
    buckets: &Mutex<Buckets>,
) -> Answer {
    let header = |name: &str| {
        let value = request.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let method = request.method().clone();
    let (if_match, if_none_match) = (header("if-match"), header("if-none-match"));
    let copied = header("x-amz-copy-source");
    let copied_if = header("x-amz-copy-source-if-match");
    let metadata = request.headers().iter().filter_map(|(name, value)| {
        let is_metadata = name.as_str().starts_with("x-amz-meta-");
        let value = value.to_str().ok().filter(|_| is_metadata)?;
        Some((name.to_string(), value.to_owned()))
    });
    let metadata: Metadata = metadata.collect();
    // The whole of it, before anything is stored.
    let Ok(body) = request.into_body().collect().await else {
        return refuse(StatusCode::BAD_REQUEST, "IncompleteBody", "");
    };
    let body = body.to_bytes();
    let mut buckets = lock(buckets);
    let (bucket, key) = (&target.bucket[..], &target.key[..]);
    let upload = target.parameter("uploadId");
    let no_upload = || refuse(StatusCode::NOT_FOUND, "NoSuchUpload", "");
    if let (&Method::PUT, Some(id)) = (&method, upload) {
        let number = target.parameter("partNumber");
        let number = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        return match buckets.put_part(id, number, body) {
            Some(etag) => Answer::new(StatusCode::OK, "").header("etag", etag),
            None => no_upload(),
        };
    }
    match (&method, upload) {
        (&Method::DELETE, Some(id)) => {
            return match buckets.end_upload(id) {
                Some(_) => Answer::new(StatusCode::NO_CONTENT, ""),
                None => no_upload(),
            };
        }
        // DeleteObjects is one of those that not every store has.
        (&Method::POST, None) if target.parameter("delete").is_some() => {
            return refuse(StatusCode::NOT_IMPLEMENTED, "NotImplemented", "");
        }
        (&Method::POST, None) => {
            let id = buckets.begin_upload(metadata);
            return Answer::xml(format!(
                "<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket>\
                 <UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            ));
        }
        _ => {}
    }
    if upload.is_some_and(|id| !buckets.has_upload(id)) {
        return no_upload();
    }
    let current = buckets.get(bucket, key).map(|object| object.etag.clone());
    let exists_unwanted = if_none_match.is_some() && current.is_some();
    let differs = if_match.is_some() && if_match != current;
    if exists_unwanted || differs {
        return refuse(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "");
    }
    if method == Method::DELETE {
        buckets.remove(bucket, key);
        return Answer::new(StatusCode::NO_CONTENT, "");
    }
    let stored = match (upload, &copied) {
        (Some(id), _) => buckets.end_upload(id),
        (None, Some(from)) => {
            let from = decode(from.trim_start_matches('/'));
            let (bucket, key) = from.split_once('/').unwrap_or((&from, ""));
            let source = buckets.get(bucket, key).cloned();
            if let (Some(source), Some(etag)) = (&source, copied_if)
                && source.etag != etag
            {
                return refuse(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "");
            }
            source.map(|object| (object.bytes, object.metadata))
        }
        (None, None) => Some((body, metadata)),
    };
    let Some(stored) = stored else {
        return refuse(StatusCode::NOT_FOUND, "NoSuchKey", "");
    };
    let Some(etag) = buckets.put_now(bucket, key, stored) else {
        return refuse(StatusCode::NOT_FOUND, "NoSuchBucket", "");
    };
    match (upload, copied) {
        (Some(_), _) => Answer::xml(format!(
            "<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        )),
        (None, Some(_)) => Answer::xml(format!(
            "<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>"
        )),
        (None, None) => Answer::new(StatusCode::OK, "").header("etag", etag),
    }
}
