//! A client of one bucket, or of one web server: requests with retries, and versions.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::super::counters::SourceCounters;
use super::super::settings::SourceSettings;
use super::super::{Entry, FileVersion, Kind, SourceError, SourcePath, Version};
use super::attempts::{Attempts, Failure};

/// Before the etag in the version of an object.
const BY_ETAG: &[u8] = b"etag:";

/// A client of one source.
pub(super) struct Store {
    pub objects: Arc<dyn ObjectStore>,
    /// `None` for a web server.
    pub pages: Option<Arc<dyn PaginatedListStore>>,
    /// Uploads in parts. `None` for a web server.
    pub uploads: Option<Arc<dyn MultipartStore>>,
    /// Whether an object is replaced under the condition of its etag.
    pub updates_by_etag: bool,
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
            let waiting = Instant::now();
            let permit = self.permit().await;
            attempts.excuse(waiting.elapsed());
            let limit = attempts.time_left(self.settings.attempt_timeout + more);
            let failure = match timeout(limit, send()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => Failure::of(path, &error),
                Err(_) => Failure::transient(format!("no answer within {limit:?}")),
            };
            drop(permit);
            attempts.pause(failure).await?;
        }
    }

    /// The client's interface for uploads in parts.
    pub(super) fn parts(&self) -> Result<Arc<dyn MultipartStore>, SourceError> {
        let uploads = self.uploads.clone();
        uploads.ok_or(SourceError::Unsupported("web servers are read-only"))
    }

    /// What the source says of the object `key`.
    pub(super) async fn head(
        &self,
        path: &SourcePath,
        key: &Path,
    ) -> Result<ObjectMeta, SourceError> {
        let head = || {
            let options = GetOptions {
                head: true,
                ..GetOptions::default()
            };
            self.objects.get_opts(key, options)
        };
        Ok(self.request(path, head).await?.meta)
    }

    /// The entry of a file. `None` if the source says nothing to tell its versions apart by.
    pub(super) fn file(&self, meta: &ObjectMeta) -> Option<Entry> {
        let modified = SystemTime::from(meta.last_modified);
        let version = version(meta)?;
        // An etag changes with each write. A time does not, within its grain of a second; nor does
        // a weak etag, which promises no equal bytes.
        let settled = strong_etag(&version).is_some() || {
            let age = SystemTime::now().duration_since(modified);
            age.is_ok_and(|age| age >= self.settings.settling)
        };
        Some(Entry {
            kind: Kind::File { version, settled },
            bytes: meta.size,
            modified,
            unix: None,
        })
    }
}

/// The version that `meta` describes: its etag, else its time of modification and size, which is
/// weaker. `None` if it has neither.
pub(super) fn version(meta: &ObjectMeta) -> Option<Version> {
    let name = match &meta.e_tag {
        Some(etag) if etag.starts_with(['"', 'W']) => format!("etag:{etag}"),
        // Listings of Azure give it without quotes.
        Some(etag) => format!("etag:\"{etag}\""),
        None if meta.last_modified.timestamp() == 0 => return None,
        None => format!("modified:{}:{}", meta.last_modified.timestamp(), meta.size),
    };
    Some(Version::new(name.as_bytes()))
}

/// The etag in `version`, if it stands for equal bytes.
pub(super) fn strong_etag(version: &Version) -> Option<&str> {
    let etag = version.as_bytes().strip_prefix(BY_ETAG)?;
    let etag = std::str::from_utf8(etag).ok()?;
    etag.starts_with('"').then_some(etag)
}

/// The condition under which a source gives bytes of `file`, and no others. A weak etag is no
/// condition (RFC 9110, 13.1.1): there, only the answer tells.
pub(super) fn condition(file: &FileVersion) -> GetOptions {
    let mut options = GetOptions::default();
    if let Some(etag) = strong_etag(&file.version) {
        options.if_match = Some(etag.to_owned());
    } else if let Some(seconds) = modified_seconds(&file.version) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        options.if_unmodified_since = Some(time.into());
    }
    options
}

fn modified_seconds(version: &Version) -> Option<u64> {
    let text = std::str::from_utf8(version.as_bytes()).ok()?;
    let (seconds, _) = text.strip_prefix("modified:")?.split_once(':')?;
    seconds.parse().ok()
}
