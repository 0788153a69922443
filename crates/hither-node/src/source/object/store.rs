//! A client of one bucket, or of one web server: requests with retries, and versions.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Attribute, GetOptions, ObjectMeta, ObjectStore};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::super::counters::SourceCounters;
use super::super::settings::SourceSettings;
use super::super::{Entry, Kind, SourceError, SourcePath};
use super::attempts::{Attempts, Unanswered};
use super::conditions::Conditions;
use super::settling::Settling;
use super::spool::WriteSpace;
use super::transport::AnsweredAt;
use super::versions::{Head, MARK, version};

/// A client of one source.
pub(super) struct Store {
    pub objects: Arc<dyn ObjectStore>,
    /// `None` for a web server.
    pub pages: Option<Arc<dyn PaginatedListStore>>,
    /// Uploads in parts. `None` for a web server.
    pub uploads: Option<Arc<dyn MultipartStore>>,
    /// What a bucket does only if it still holds what it is believed to hold.
    pub conditions: Conditions,
    /// Which versions are settled.
    pub settling: Settling,
    /// Where what is written waits.
    pub space: Arc<WriteSpace>,
    /// What all keys begin with.
    pub prefix: Path,
    pub settings: SourceSettings,
    pub counters: Arc<SourceCounters>,
    pub in_flight: Semaphore,
}

impl Store {
    /// The key at `path`. `None` if no object can be there: not UTF-8, or control characters.
    pub(super) fn key(&self, path: &SourcePath) -> Option<Path> {
        let text = std::str::from_utf8(path.as_bytes()).ok()?;
        let key = match (self.prefix.as_ref(), text) {
            ("", text) => text.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, text) => format!("{prefix}/{text}"),
        };
        Path::parse(&key)
            .ok()
            .filter(|parsed| parsed.as_ref() == key)
    }

    /// A place among the requests in flight.
    pub(super) async fn permit(&self) -> SemaphorePermit<'_> {
        self.in_flight.acquire().await.expect("it is never closed")
    }

    /// One attempt at a request: its answer, or why there is none.
    pub(super) async fn attempt<T>(
        &self,
        attempts: &mut Attempts<'_>,
        more: Duration,
        sent: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Unanswered> {
        let waiting = Instant::now();
        let _permit = self.permit().await;
        attempts.excuse(waiting.elapsed());
        let limit = attempts.time_left(self.settings.attempt_timeout + more);
        match timeout(limit, sent).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Unanswered::Error(error)),
            Err(_) => Err(Unanswered::Late(limit)),
        }
    }

    /// Sends a request until it succeeds, fails for good, or is out of time.
    pub(super) async fn request<T, Sent>(
        &self,
        path: &SourcePath,
        send: impl Fn() -> Sent,
    ) -> Result<T, SourceError>
    where
        Sent: Future<Output = object_store::Result<T>>,
    {
        self.long_request(path, Duration::ZERO, send).await
    }

    /// As [`request`](Store::request), with as much more time for each attempt, and for all.
    pub(super) async fn long_request<T, Sent>(
        &self,
        path: &SourcePath,
        more: Duration,
        send: impl Fn() -> Sent,
    ) -> Result<T, SourceError>
    where
        Sent: Future<Output = object_store::Result<T>>,
    {
        let mut attempts = Attempts::new(path, &self.settings, &self.counters);
        attempts.excuse(more);
        loop {
            match self.attempt(&mut attempts, more, send()).await {
                Ok(answer) => return Ok(answer),
                Err(unanswered) => attempts.pause(unanswered.failure(path)).await?,
            }
        }
    }

    /// The client's interface for uploads in parts.
    pub(super) fn parts(&self) -> Result<Arc<dyn MultipartStore>, SourceError> {
        let uploads = self.uploads.clone();
        uploads.ok_or(SourceError::Unsupported("web servers are read-only"))
    }

    /// What the source says of the object `key`.
    pub(super) async fn head(&self, path: &SourcePath, key: &Path) -> Result<Head, SourceError> {
        let head = || {
            let options = GetOptions {
                head: true,
                ..GetOptions::default()
            };
            self.objects.get_opts(key, options)
        };
        let answer = self.request(path, head).await?;
        let mark = answer.attributes.get(&Attribute::Metadata(MARK.into()));
        Ok(Head {
            mark: mark.map(|mark| mark.as_ref().to_owned()),
            answered: answered(&answer.extensions),
            meta: answer.meta,
        })
    }

    /// As [`head`](Store::head). `None` if there is no object.
    pub(super) async fn head_if_there(
        &self,
        path: &SourcePath,
        key: &Path,
    ) -> Result<Option<Head>, SourceError> {
        match self.head(path, key).await {
            Ok(head) => Ok(Some(head)),
            Err(SourceError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The entry of a file, of which the source has said `meta` when it was `answered` by its own
    /// clock. `None` if it says nothing to tell versions apart by.
    pub(super) fn file(&self, meta: &ObjectMeta, answered: Option<SystemTime>) -> Option<Entry> {
        let version = version(meta)?;
        let modified = SystemTime::from(meta.last_modified);
        let says_when = meta.last_modified.timestamp() != 0;
        let settled = self.settling.is_settled(
            meta.location.as_ref(),
            &version,
            says_when.then_some(modified),
            answered,
        );
        Some(Entry {
            kind: Kind::File { version, settled },
            bytes: meta.size,
            modified,
            unix: None,
        })
    }
}

/// When the source answered, by its own clock.
pub(super) fn answered(extensions: &object_store::Extensions) -> Option<SystemTime> {
    extensions.get::<AnsweredAt>()?.0
}
