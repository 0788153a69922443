//! Writes to a bucket. An object is stored as a whole or in parts; both take its place at once.
//!
//! A bucket has no directories, links or attributes of its own. A rename copies and removes: for a
//! moment, both names are there. Where a version is to be replaced, small objects are stored under
//! its etag. Those in parts, and all on Google's side, are checked right before: another writer
//! may come in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    CopyOptions, MultipartId, ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};
use tokio::task::JoinSet;

use super::super::write::{Changes, Replace, Upload, WritableSource};
use super::super::{Entry, SourceError, SourcePath};
use super::source::ObjectSource;
use super::store::{Store, strong_etag, version};

/// The first parts of an object. S3 takes no smaller ones than 5 MiB.
const PART_BYTES: u64 = 8 << 20;

/// After so many parts, they are twice as large: S3 takes 10,000 at most, and objects of 5 TiB.
const PARTS_OF_ONE_SIZE: usize = 1250;

/// Parts that are sent at the same time.
const PARTS_IN_FLIGHT: usize = 4;

/// The slowest connection that parts are sent over, in bytes a second.
const BANDWIDTH_MIN: u64 = 1 << 20;

/// The largest object that a bucket copies in one request.
const COPY_BYTES_MAX: u64 = 5 << 30;

/// An object that is being written.
struct ObjectUpload {
    store: Arc<Store>,
    path: SourcePath,
    key: Path,
    replace: Replace,
    /// What is not sent yet.
    chunks: Vec<Bytes>,
    chunk_bytes: u64,
    bytes: u64,
    /// Once there is more than one part.
    id: Option<MultipartId>,
    parts: Vec<Option<PartId>>,
    sending: JoinSet<Result<(usize, PartId), SourceError>>,
}

impl ObjectUpload {
    fn part_bytes(&self) -> u64 {
        PART_BYTES << (self.parts.len() / PARTS_OF_ONE_SIZE)
    }

    fn take_payload(&mut self) -> PutPayload {
        self.chunk_bytes = 0;
        std::mem::take(&mut self.chunks).into_iter().collect()
    }

    /// Sends what is there as a part, while others are on their way.
    async fn send_part(&mut self) -> Result<(), SourceError> {
        let parts = self.store.parts()?;
        let id = match &self.id {
            Some(id) => id.clone(),
            None => {
                let begin = || parts.create_multipart(&self.key);
                let id = self.store.request(&self.path, begin).await?;
                self.id.insert(id).clone()
            }
        };
        while self.sending.len() >= PARTS_IN_FLIGHT {
            self.take_sent().await?;
        }
        let index = self.parts.len();
        self.parts.push(None);
        let (bytes, payload) = (self.chunk_bytes, self.take_payload());
        let (store, path, key) = (Arc::clone(&self.store), self.path.clone(), self.key.clone());
        self.sending.spawn(async move {
            let send = || parts.put_part(&key, &id, index, payload.clone());
            let sent = store.long_request(&path, sending_time(bytes), send).await;
            Ok((index, sent?))
        });
        Ok(())
    }

    async fn take_sent(&mut self) -> Result<(), SourceError> {
        if let Some(sent) = self.sending.join_next().await {
            let (index, part) = sent.unwrap_or_else(|error| {
                Err(SourceError::Failed {
                    path: self.path.clone(),
                    reason: error.to_string(),
                })
            })?;
            self.parts[index] = Some(part);
        }
        Ok(())
    }

    async fn put(&mut self) -> Result<(), SourceError> {
        let mode = match &self.replace {
            Replace::Any => PutMode::Overwrite,
            Replace::Nothing => PutMode::Create,
            Replace::Existing => {
                self.store
                    .check(&self.path, &self.key, &self.replace)
                    .await?;
                PutMode::Overwrite
            }
            Replace::Version(version) => match strong_etag(version) {
                Some(etag) if self.store.updates_by_etag => PutMode::Update(UpdateVersion {
                    e_tag: Some(etag.to_owned()),
                    version: None,
                }),
                _ => {
                    self.store
                        .check(&self.path, &self.key, &self.replace)
                        .await?;
                    PutMode::Overwrite
                }
            },
        };
        let (time, payload) = (sending_time(self.chunk_bytes), self.take_payload());
        let attempts = AtomicU32::new(0);
        let put = || {
            attempts.fetch_add(1, Ordering::Relaxed);
            let options = PutOptions::from(mode.clone());
            self.store
                .objects
                .put_opts(&self.key, payload.clone(), options)
        };
        let put = self.store.long_request(&self.path, time, put).await;
        match put {
            // The answer to an earlier attempt may have been lost: then it is ours.
            Err(SourceError::InTheWay { .. } | SourceError::Changed(_))
                if attempts.load(Ordering::Relaxed) > 1 && self.is_there(&payload).await =>
            {
                Ok(())
            }
            put => put.map(|_| ()),
        }
    }

    /// Whether the object has these bytes.
    async fn is_there(&self, payload: &PutPayload) -> bool {
        let get = || self.store.objects.get(&self.key);
        let Ok(there) = self.store.request(&self.path, get).await else {
            return false;
        };
        let there = there.bytes().await;
        there.is_ok_and(|there| there == Bytes::from(payload.clone()))
    }

    async fn complete(&mut self, id: &MultipartId) -> Result<(), SourceError> {
        if self.chunk_bytes > 0 {
            self.send_part().await?;
        }
        while !self.sending.is_empty() {
            self.take_sent().await?;
        }
        self.store
            .check(&self.path, &self.key, &self.replace)
            .await?;
        let sent: Option<Vec<PartId>> = self.parts.iter().cloned().collect();
        let sent = sent.expect("all are sent");
        let parts = self.store.parts()?;
        let complete = || parts.complete_multipart(&self.key, id, sent.clone());
        match self.store.request(&self.path, complete).await {
            // The answer to an earlier attempt may have been lost.
            Err(SourceError::NotFound(_)) => {
                let there = self.store.head(&self.path, &self.key).await;
                if there.is_ok_and(|meta| meta.size == self.bytes) {
                    return Ok(());
                }
                Err(SourceError::Failed {
                    path: self.path.clone(),
                    reason: "the source forgot the parts of the object".into(),
                })
            }
            completed => completed.map(|_| ()),
        }
    }
}

/// How much longer than another request one with so many bytes may take.
fn sending_time(bytes: u64) -> Duration {
    Duration::from_secs(bytes / BANDWIDTH_MIN)
}

#[async_trait]
impl Upload for ObjectUpload {
    async fn write(&mut self, bytes: Bytes) -> Result<(), SourceError> {
        self.bytes += bytes.len() as u64;
        self.chunk_bytes += bytes.len() as u64;
        self.chunks.push(bytes);
        if self.chunk_bytes >= self.part_bytes() {
            self.send_part().await?;
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<Entry, SourceError> {
        match self.id.clone() {
            None => self.put().await?,
            Some(id) => {
                self.complete(&id).await?;
                self.id = None;
            }
        }
        let meta = self.store.head(&self.path, &self.key).await?;
        let file = self.store.file(&meta);
        file.ok_or_else(|| SourceError::NotFound(self.path.clone()))
    }

    async fn abort(mut self: Box<Self>) -> Result<(), SourceError> {
        self.sending.shutdown().await;
        let Some(id) = self.id.take() else {
            return Ok(());
        };
        self.store.forget(&self.path, &self.key, &id).await
    }
}

impl Drop for ObjectUpload {
    fn drop(&mut self) {
        // Parts cost money until they are forgotten.
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(id), Ok(runtime)) = (self.id.take(), runtime) {
            self.sending.abort_all();
            let (store, path, key) = (Arc::clone(&self.store), self.path.clone(), self.key.clone());
            runtime.spawn(async move { store.forget(&path, &key, &id).await });
        }
    }
}

impl Store {
    fn writable_key(&self, path: &SourcePath) -> Result<Path, SourceError> {
        let key = self.key(path).filter(|key| !key.as_ref().is_empty());
        key.ok_or(SourceError::Unsupported(
            "names in a bucket are UTF-8 without control characters",
        ))
    }

    async fn forget(
        &self,
        path: &SourcePath,
        key: &Path,
        id: &MultipartId,
    ) -> Result<(), SourceError> {
        let parts = self.parts()?;
        match self.request(path, || parts.abort_multipart(key, id)).await {
            Err(SourceError::NotFound(_)) => Ok(()),
            forgotten => forgotten,
        }
    }

    /// Whether `replace` allows what is there now.
    async fn check(
        &self,
        path: &SourcePath,
        key: &Path,
        replace: &Replace,
    ) -> Result<(), SourceError> {
        if *replace == Replace::Any {
            return Ok(());
        }
        let there = match self.head(path, key).await {
            Ok(meta) => Some(meta),
            Err(SourceError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        match (replace, there) {
            (Replace::Nothing, Some(_)) => Err(in_the_way(path, "it exists")),
            (Replace::Existing, None) => Err(SourceError::Changed(path.clone())),
            (Replace::Version(wanted), there)
                if there.as_ref().and_then(version).as_ref() != Some(wanted) =>
            {
                Err(SourceError::Changed(path.clone()))
            }
            _ => Ok(()),
        }
    }

    /// An object at a key that others begin with would hide them.
    async fn refuse_directory(&self, path: &SourcePath, key: &Path) -> Result<(), SourceError> {
        match self.has_below(path, key).await? {
            true => Err(in_the_way(path, "it is a directory")),
            false => Ok(()),
        }
    }

    async fn file_at(&self, path: &SourcePath, key: &Path) -> Result<ObjectMeta, SourceError> {
        match self.head(path, key).await {
            Err(SourceError::NotFound(_)) if self.has_below(path, key).await? => {
                Err(in_the_way(path, "it is a directory"))
            }
            found => found,
        }
    }
}

#[async_trait]
impl WritableSource for ObjectSource {
    async fn create(
        &self,
        path: &SourcePath,
        replace: Replace,
        _mode: u32,
    ) -> Result<Box<dyn Upload>, SourceError> {
        let key = self.0.writable_key(path)?;
        self.0.check(path, &key, &replace).await?;
        self.0.refuse_directory(path, &key).await?;
        Ok(Box::new(ObjectUpload {
            store: Arc::clone(&self.0),
            path: path.clone(),
            key,
            replace,
            chunks: Vec::new(),
            chunk_bytes: 0,
            bytes: 0,
            id: None,
            parts: Vec::new(),
            sending: JoinSet::new(),
        }))
    }

    async fn remove(&self, path: &SourcePath) -> Result<(), SourceError> {
        let key = self.0.writable_key(path)?;
        // A bucket removes what is not there without a word.
        self.0.file_at(path, &key).await?;
        self.0.request(path, || self.0.objects.delete(&key)).await
    }

    async fn rename(
        &self,
        from: &SourcePath,
        to: &SourcePath,
        replace: bool,
    ) -> Result<(), SourceError> {
        let store = &self.0;
        let (old, new) = (store.writable_key(from)?, store.writable_key(to)?);
        let meta = match store.file_at(from, &old).await {
            Err(SourceError::InTheWay { .. }) => Err(SourceError::Unsupported(
                "a bucket renames no directories, which it does not have",
            )),
            found => found,
        }?;
        if meta.size > COPY_BYTES_MAX {
            return Err(SourceError::Unsupported(
                "a bucket renames no objects above 5 GiB",
            ));
        }
        if old == new {
            return Ok(());
        }
        store.refuse_directory(to, &new).await?;
        if !replace {
            store.check(to, &new, &Replace::Nothing).await?;
        }
        let copy = || store.objects.copy_opts(&old, &new, CopyOptions::new());
        // The bucket copies before it answers.
        store
            .long_request(to, sending_time(meta.size) / 16, copy)
            .await?;
        store.request(from, || store.objects.delete(&old)).await
    }

    async fn make_dir(&self, _path: &SourcePath, _mode: u32) -> Result<(), SourceError> {
        Err(SourceError::Unsupported(
            "a bucket has no directories: files can be written at any path",
        ))
    }

    async fn remove_dir(&self, path: &SourcePath) -> Result<(), SourceError> {
        let key = self.0.writable_key(path)?;
        match self.0.has_below(path, &key).await? {
            true => Err(in_the_way(path, "it is not empty")),
            false => Err(SourceError::NotFound(path.clone())),
        }
    }

    async fn make_link(&self, _path: &SourcePath, _target: &[u8]) -> Result<(), SourceError> {
        Err(SourceError::Unsupported("a bucket has no links"))
    }

    async fn set_attributes(
        &self,
        _path: &SourcePath,
        _changes: Changes,
    ) -> Result<Entry, SourceError> {
        Err(SourceError::Unsupported("a bucket keeps no attributes"))
    }
}

fn in_the_way(path: &SourcePath, reason: &str) -> SourceError {
    SourceError::InTheWay {
        path: path.clone(),
        reason: reason.into(),
    }
}
