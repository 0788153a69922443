//! What a bucket does only if it holds what it is believed to hold.
//!
//! Without a condition, a request whose answer is late may be carried out after a later one, and
//! one writer may replace what another has stored a moment before. The client library knows
//! conditions for objects that are stored as a whole. For S3 there are those for parts, copies and
//! removals as well: headers of a client that is made for the one request. A store that does not
//! know a condition ignores it, which is why whoever depends on one looks right before as well; or
//! it says 501, and is not asked again.

use std::sync::atomic::{AtomicBool, Ordering};

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsCredentialProvider};
use object_store::{ClientOptions, UpdateVersion};

use super::super::Version;
use super::attempts::{Unanswered, find};
use super::transport::{Again, Refused};
use super::versions::{Head, strong_etag, version};

const COPY_SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");

/// What there must be for a request to be carried out.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// Whatever is there.
    None,
    /// No object.
    Nothing,
    /// This version.
    Same(UpdateVersion),
}

/// The conditions that a bucket knows.
pub(super) struct Conditions {
    puts: Puts,
    s3: Option<S3>,
    /// It has said that it knows none.
    refused: AtomicBool,
}

/// By what an object may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Puts {
    Etag,
    /// Only what the bucket says of an object has it.
    Generation,
}

/// Makes clients that say more with each request.
struct S3 {
    builder: AmazonS3Builder,
    again: Again,
    credentials: AwsCredentialProvider,
}

impl Conditions {
    fn new(puts: Puts, s3: Option<S3>) -> Conditions {
        Conditions {
            puts,
            s3,
            refused: AtomicBool::new(false),
        }
    }

    /// Objects as a whole are replaced by their etag.
    pub(super) fn by_etag() -> Conditions {
        Conditions::new(Puts::Etag, None)
    }

    /// Objects as a whole are replaced by their generation.
    pub(super) fn by_generation() -> Conditions {
        Conditions::new(Puts::Generation, None)
    }

    /// Those of S3. `client` was made by `builder`, `again` of its transport.
    pub(super) fn s3(builder: AmazonS3Builder, again: Again, client: &AmazonS3) -> Conditions {
        let s3 = S3 {
            builder,
            again,
            credentials: client.credentials().clone(),
        };
        Conditions::new(Puts::Etag, Some(s3))
    }

    /// Whether the bucket has not said that it knows none.
    pub(super) fn are_known(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    /// Whether the bucket has refused a request because it does not know its condition. It is not
    /// asked so again.
    pub(super) fn were_unknown(&self, unanswered: &Unanswered) -> bool {
        let Unanswered::Error(error) = unanswered else {
            return false;
        };
        let refused = find::<Refused>(error).map(|refused| refused.status);
        let is_unknown = refused == Some(StatusCode::NOT_IMPLEMENTED) && self.are_known();
        if is_unknown {
            self.refused.store(true, Ordering::Relaxed);
            tracing::debug!("the source knows no conditions");
        }
        is_unknown
    }

    /// The condition that what is there does not change.
    pub(super) fn unchanged(&self, there: Option<&Head>) -> Condition {
        let Some(there) = there else {
            return if self.are_known() {
                Condition::Nothing
            } else {
                Condition::None
            };
        };
        let version = version(&there.meta);
        let etag = version.as_ref().and_then(strong_etag);
        let generation = there.meta.version.clone();
        let is_enough = match self.puts {
            Puts::Etag => etag.is_some(),
            Puts::Generation => generation.is_some(),
        };
        if self.are_known() && is_enough {
            Condition::Same(UpdateVersion {
                e_tag: etag.map(str::to_owned),
                version: generation,
            })
        } else {
            Condition::None
        }
    }

    /// The condition that `version` is there, if its name is enough for one.
    pub(super) fn version(&self, version: &Version) -> Option<Condition> {
        let etag = strong_etag(version).filter(|_| self.are_known() && self.puts == Puts::Etag)?;
        Some(Condition::Same(UpdateVersion {
            e_tag: Some(etag.to_owned()),
            version: None,
        }))
    }

    /// A client that asks under these conditions, if there are any that the bucket knows.
    pub(super) fn client(
        &self,
        source: Option<&Condition>,
        target: &Condition,
    ) -> Option<AmazonS3> {
        let s3 = self.s3.as_ref().filter(|_| self.are_known())?;
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, condition: &Condition| {
            let (name, value) = match condition {
                Condition::None => return,
                Condition::Nothing => (IF_NONE_MATCH, "*"),
                Condition::Same(version) => (name, version.e_tag.as_deref().unwrap_or_default()),
            };
            headers.extend(HeaderValue::from_str(value).map(|value| (name, value)));
        };
        add(IF_MATCH, target);
        if let Some(source) = source {
            add(COPY_SOURCE_IF_MATCH, source);
        }
        if headers.is_empty() {
            return None;
        }
        let client = s3.builder.clone();
        let client = client
            .with_client_options(ClientOptions::new().with_default_headers(headers))
            .with_credentials(s3.credentials.clone())
            .with_http_connector(s3.again.clone());
        client.build().ok()
    }
}
