//! An object that is being written: it is stored as a whole, or in parts. Both take its place at
//! once.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{MultipartId, ObjectMeta, PutMultipartOptions, PutPayload, PutResult};
use tokio::task::JoinSet;

use super::super::write::{Replace, Upload};
use super::super::{Entry, SourceError, SourcePath};
use super::commit::{Commit, Committed, new_mark};
use super::requests::marked;
use super::spool::PartBuffer;
use super::store::Store;
use super::versions::version;

/// Parts that are sent at the same time.
const PARTS_IN_FLIGHT: usize = 4;

/// Parts that an object may have.
const PARTS_MAX: usize = 10_000;

/// The slowest connection that parts are sent over, in bytes a second.
const BANDWIDTH_MIN: u64 = 1 << 20;

/// See the module.
pub(super) struct ObjectUpload {
    store: Arc<Store>,
    path: SourcePath,
    key: Path,
    replace: Replace,
    /// By which the object is known to be this one.
    mark: String,
    /// What is not sent yet.
    buffer: PartBuffer,
    bytes: u64,
    /// Once there is more than one part.
    id: Option<MultipartId>,
    parts: Vec<Option<PartId>>,
    sending: JoinSet<Result<(usize, PartId), SourceError>>,
}

/// How much longer than another request one with so many bytes may take.
pub(super) fn sending_time(bytes: u64) -> Duration {
    Duration::from_secs(bytes / BANDWIDTH_MIN)
}

impl ObjectUpload {
    pub(super) fn new(
        store: &Arc<Store>,
        path: &SourcePath,
        key: Path,
        replace: Replace,
    ) -> ObjectUpload {
        ObjectUpload {
            path: path.clone(),
            key,
            replace,
            mark: new_mark(),
            buffer: PartBuffer::new(&store.space),
            bytes: 0,
            id: None,
            parts: Vec::new(),
            sending: JoinSet::new(),
            store: Arc::clone(store),
        }
    }

    /// Sends what is there as a part, while others are on their way.
    async fn send_part(&mut self) -> Result<(), SourceError> {
        if self.parts.len() == PARTS_MAX {
            return Err(SourceError::Refused {
                path: self.path.clone(),
                code: rustix::io::Errno::FBIG.raw_os_error(),
            });
        }
        let parts = self.store.parts()?;
        let id = match &self.id {
            Some(id) => id.clone(),
            None => {
                let begin = || async {
                    let options = PutMultipartOptions {
                        attributes: marked(&self.mark),
                        ..PutMultipartOptions::default()
                    };
                    match parts.create_multipart_opts(&self.key, options).await {
                        // Azure's. What is lost on the way then is an error.
                        Err(object_store::Error::NotSupported { .. }) => {
                            parts.create_multipart(&self.key).await
                        }
                        begun => begun,
                    }
                };
                let id = self.store.request(&self.path, begin).await?;
                self.id.insert(id).clone()
            }
        };
        while self.sending.len() >= PARTS_IN_FLIGHT {
            self.take_sent().await?;
        }
        let index = self.parts.len();
        let part = self.buffer.take().await;
        let part = part.map_err(|error| self.no_room(&error))?;
        self.parts.push(None);
        let (store, path, key) = (Arc::clone(&self.store), self.path.clone(), self.key.clone());
        self.sending.spawn(async move {
            let time = sending_time(part.bytes.len() as u64);
            let send = || parts.put_part(&key, &id, index, part.bytes.clone().into());
            match store.long_request(&path, time, send).await {
                Ok(sent) => Ok((index, sent)),
                Err(SourceError::NotFound(path)) => Err(SourceError::Failed {
                    path,
                    reason: "the source forgot the parts of the object".into(),
                }),
                Err(error) => Err(error),
            }
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

    /// The file that a part was to wait in cannot be used.
    fn no_room(&self, error: &io::Error) -> SourceError {
        let path = self.path.clone();
        let reason = format!("a temporary file for what is written: {error}");
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                SourceError::Full { path, reason }
            }
            _ => SourceError::Failed { path, reason },
        }
    }

    fn commit(&self, more: Duration) -> Commit<'_> {
        Commit {
            store: &self.store,
            path: &self.path,
            key: &self.key,
            mark: &self.mark,
            replace: &self.replace,
            more,
            in_parts: self.id.is_some(),
        }
    }

    async fn put(&mut self) -> Result<Committed, SourceError> {
        let part = self.buffer.take().await;
        let part = part.map_err(|error| self.no_room(&error))?;
        let payload: PutPayload = part.bytes.clone().into();
        let put = |condition| {
            self.store
                .put_if(&self.key, payload.clone(), &self.mark, condition)
        };
        let commit = self.commit(sending_time(part.bytes.len() as u64));
        commit.run(put).await
    }

    async fn complete(&mut self, id: &MultipartId) -> Result<Committed, SourceError> {
        if self.buffer.len() > 0 {
            self.send_part().await?;
        }
        while !self.sending.is_empty() {
            self.take_sent().await?;
        }
        let sent: Option<Vec<PartId>> = self.parts.iter().cloned().collect();
        let sent = sent.expect("all are sent");
        let parts = self.store.parts()?;
        let complete = |condition| {
            self.store
                .complete_if(&*parts, &self.key, id, sent.clone(), condition)
        };
        self.commit(Duration::ZERO).run(complete).await
    }

    /// What the object is that was stored.
    async fn entry(&self, committed: Committed) -> Result<Entry, SourceError> {
        let changed = || SourceError::Changed(self.path.clone());
        let stored = match committed {
            Committed::Found(head) => {
                let entry = self.store.file(&head.meta, head.answered);
                return entry.ok_or_else(changed);
            }
            Committed::Answered(result) => self.meta(result),
        };
        let stored_version = version(&stored).filter(|_| stored.e_tag.is_some());
        if let Ok(head) = self.store.head(&self.path, &self.key).await
            && (head.mark.as_ref() == Some(&self.mark) || version(&head.meta) == stored_version)
            && let Some(entry) = self.store.file(&head.meta, head.answered)
        {
            return Ok(entry);
        }
        // It was stored. Another one has taken its place since, or the source does not say.
        let entry = self.store.file(&stored, None);
        entry
            .filter(|_| stored_version.is_some())
            .ok_or_else(changed)
    }

    fn meta(&self, result: PutResult) -> ObjectMeta {
        ObjectMeta {
            location: self.key.clone(),
            last_modified: SystemTime::now().into(),
            size: self.bytes,
            e_tag: result.e_tag,
            version: result.version,
        }
    }
}

#[async_trait]
impl Upload for ObjectUpload {
    async fn write(&mut self, mut bytes: Bytes) -> Result<(), SourceError> {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = self.store.space.part_bytes(self.parts.len()) - self.buffer.len();
            let piece = bytes.split_to(bytes.len().min(room as usize));
            while !self.buffer.push(&piece) {
                if !self.sending.is_empty() && !self.buffer.is_spooled() {
                    // Their memory is free when they are sent.
                    self.take_sent().await?;
                    continue;
                }
                let spooled = self.buffer.spool(piece).await;
                spooled.map_err(|error| self.no_room(&error))?;
                break;
            }
            if self.buffer.len() >= self.store.space.part_bytes(self.parts.len()) {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<Entry, SourceError> {
        let committed = match self.id.clone() {
            None => self.put().await?,
            Some(id) => {
                let completed = self.complete(&id).await?;
                self.id = None;
                completed
            }
        };
        self.entry(committed).await
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
}
