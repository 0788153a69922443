//! A file that is open for writing.
//!
//! It has an inode of its own, whose pages are those of the version that is being written; the
//! inodes of finished versions are never written. Its name leads to it while it is open: what it is
//! so far shows in stat(2), and programs that compare the inode's numbers of a name and of an open
//! file find them equal. Its attributes and its name are believed for no time, so the next look-up
//! after it was closed finds the inode of the finished version. Readers are sent to that at all
//! times.
//!
//! Whoever has the file open for writing on this mount writes to one version, under one lock. The
//! version begins with the first write, and takes its place when somebody closes the file (not a
//! process that has only got it from another) or calls fsync; a write after that begins the next
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::SystemTime;

use bytes::Bytes;
use hither_node::source::write::{Changes, Replace, Upload, WritableSource};
use hither_node::source::{AccessList, Entry, FileVersion, Kind, SourceError, SourcePath, Version};
use hither_node::volume::{OpenFile, Volume};
use tokio::sync::{Mutex, oneshot};

use crate::last_writer::LastWriter;

/// See the module.
pub(crate) struct Writing {
    /// The inode's number.
    pub(crate) number: u64,
    /// Its `st_ino`: that of the version that it replaces.
    pub(crate) shown_number: u64,
    pub(crate) state: Arc<Mutex<State>>,
    /// It was made by this mount and not closed yet: there is no version before it.
    pub(crate) is_fresh: AtomicBool,
    /// How often it is open. Changes under the lock of `Writings`.
    pub(crate) handles: AtomicUsize,
    pub(crate) last_writer: LastWriter,
    shown: Arc<Shown>,
}

/// What it was after the last change that has ended: for those who do not wait for the next one.
type Shown = parking_lot::Mutex<Entry>;

impl std::fmt::Debug for Writing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Writing({})", self.number)
    }
}

/// What is written.
pub(crate) struct State {
    /// `None` once it was removed: then only those who have it open see it.
    pub(crate) path: Option<SourcePath>,
    content: Content,
    /// The version that an upload takes the place of, if it began as a copy.
    base: Option<Version>,
    shown: Arc<Shown>,
    /// Reads the version in `content`.
    reader: Option<Arc<OpenFile>>,
    /// Somebody at the source has appended to it as well: the kernel's pages are not all of it.
    is_joined: bool,
    /// The source, as who has opened it last.
    writer: Option<Arc<dyn WritableSource>>,
}

enum Content {
    /// What is at the source.
    Version(Entry),
    /// What is being written, and how long it is.
    Upload(Box<dyn Upload>, u64),
    /// A write has failed. Nothing of it will be at the source.
    Failed(SourceError),
}

const IN_ORDER: SourceError =
    SourceError::Unsupported("the source takes files from their start to their end only");
const GIVEN_UP: SourceError = SourceError::Unsupported("the file was removed");

fn writes(volume: &Volume) -> Result<&Arc<dyn WritableSource>, SourceError> {
    let read_only = SourceError::Unsupported("the source cannot be written");
    volume.writes().ok_or(read_only)
}

/// What a file is that is not at the source.
fn unborn(bytes: u64) -> Entry {
    Entry {
        kind: Kind::File {
            version: Version::new(b""),
            settled: false,
        },
        bytes,
        modified: SystemTime::now(),
        unix: None,
    }
}

impl Writing {
    fn new(
        (number, shown_number): (u64, u64),
        path: SourcePath,
        content: Content,
        entry: Entry,
        is_fresh: bool,
    ) -> Arc<Writing> {
        let shown = Arc::new(Shown::new(entry));
        let state = State {
            path: Some(path),
            content,
            base: None,
            shown: Arc::clone(&shown),
            reader: None,
            is_joined: false,
            writer: None,
        };
        Arc::new(Writing {
            number,
            shown_number,
            state: Arc::new(Mutex::new(state)),
            is_fresh: AtomicBool::new(is_fresh),
            handles: AtomicUsize::new(0),
            last_writer: LastWriter::default(),
            shown,
        })
    }

    /// To write the file at `path`, of which the source says `entry`. `numbers`: its number, and
    /// its `st_ino`.
    pub(crate) fn of(
        numbers: (u64, u64),
        path: SourcePath,
        entry: Entry,
        is_fresh: bool,
    ) -> Arc<Writing> {
        let content = Content::Version(entry.clone());
        Writing::new(numbers, path, content, entry, is_fresh)
    }

    /// To write a file that is not at the source before it is closed.
    pub(crate) fn unborn(number: u64, path: SourcePath, upload: Box<dyn Upload>) -> Arc<Writing> {
        let content = Content::Upload(upload, 0);
        Writing::new((number, number), path, content, unborn(0), true)
    }

    /// The version that it was after the last change that has ended.
    pub(crate) fn version(&self) -> Option<Version> {
        self.shown.lock().version().cloned()
    }

    /// What it is now, or was before the change that goes on.
    pub(crate) async fn stat(&self, volume: &Volume) -> Result<Entry, SourceError> {
        match self.state.try_lock() {
            Ok(mut state) => state.stat(volume).await,
            Err(_) => Ok(self.shown.lock().clone()),
        }
    }
}

impl State {
    /// It is written for whom `writer` is from now on.
    pub(crate) fn write_as(&mut self, writer: Arc<dyn WritableSource>) {
        self.writer = Some(writer);
    }

    fn writes(&self, volume: &Volume) -> Result<Arc<dyn WritableSource>, SourceError> {
        match &self.writer {
            Some(writer) => Ok(Arc::clone(writer)),
            None => writes(volume).cloned(),
        }
    }

    /// What it is at the source, unless it is being written.
    pub(crate) fn finished(&self) -> Option<&Entry> {
        match &self.content {
            Content::Version(entry) => Some(entry),
            _ => None,
        }
    }

    /// The version that it is, unless it is being written.
    pub(crate) fn version(&self) -> Option<&Version> {
        self.finished()?.version()
    }

    /// Whether there is a version that is not at the source.
    pub(crate) fn is_written(&self) -> bool {
        matches!(self.content, Content::Upload(..))
    }

    /// Whether a write has failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.content, Content::Failed(_))
    }

    fn file(&self) -> Result<(FileVersion, bool), SourceError> {
        match (&self.path, &self.content) {
            (Some(path), Content::Version(entry)) => {
                let changed = || SourceError::Changed(path.clone());
                entry.file(path).ok_or_else(changed)
            }
            (_, Content::Failed(error)) => Err(error.clone()),
            _ => Err(GIVEN_UP),
        }
    }

    fn fail<T>(&mut self, error: SourceError) -> Result<T, SourceError> {
        self.content = Content::Failed(error.clone());
        Err(error)
    }

    /// Begins a version that starts as the one that is there.
    pub(crate) async fn begin(&mut self, volume: &Volume) -> Result<(), SourceError> {
        if self.is_written() {
            return Ok(());
        }
        let (file, _) = self.file()?;
        let writes = self.writes(volume)?;
        let upload = match (writes.writes_anywhere(), file.bytes) {
            (true, _) => writes.rewrite(&file).await,
            (false, 0) => {
                let replace = Replace::Version(file.version.clone());
                writes.create(&file.path, replace, 0).await
            }
            (false, _) => Err(IN_ORDER),
        };
        match upload {
            Ok(upload) => self.content = Content::Upload(upload, file.bytes),
            Err(error) => return self.fail(error),
        }
        self.base = Some(file.version);
        self.reader = None;
        Ok(())
    }

    /// Writes at `offset`. Once that has failed, so does all else: no part of a version takes the
    /// place of a whole one.
    pub(crate) async fn write(
        &mut self,
        volume: &Volume,
        offset: u64,
        data: Bytes,
        is_append: bool,
    ) -> Result<(), SourceError> {
        if let (true, false, Some(path)) = (self.is_joined, is_append, self.path.clone()) {
            return self.fail(SourceError::Changed(path));
        }
        self.begin(volume).await?;
        let writes_anywhere = writes(volume)?.writes_anywhere();
        let Content::Upload(upload, bytes) = &mut self.content else {
            return Err(GIVEN_UP);
        };
        // The kernel may not know where the file ends by now.
        let offset = if is_append && writes_anywhere {
            *bytes
        } else {
            offset
        };
        let end = offset + data.len() as u64;
        let written = if writes_anywhere {
            upload.write_at(offset, data).await
        } else if offset == *bytes {
            upload.write(data).await
        } else {
            Err(IN_ORDER)
        };
        match written {
            Ok(()) => {
                *bytes = end.max(*bytes);
                self.shown.lock().bytes = *bytes;
                Ok(())
            }
            Err(error) => self.fail(error),
        }
    }

    /// Reads what is written so far, or else the version that is there.
    pub(crate) async fn read(
        &mut self,
        volume: &Arc<Volume>,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<Bytes>, SourceError> {
        if let Content::Upload(upload, _) = &mut self.content {
            return Ok(vec![upload.read_at(offset, bytes).await?]);
        }
        let (file, settled) = self.file()?;
        let open = || volume.open(file, settled);
        let reader = self.reader.get_or_insert_with(open);
        let (send, receive) = oneshot::channel();
        reader.read(offset, bytes, move |result| {
            // Nobody waits for a request that was given up.
            let _ = send.send(result);
        });
        let data = receive.await.unwrap_or(Err(GIVEN_UP))?;
        Ok(data.pieces().to_vec())
    }

    /// Cuts or extends it.
    pub(crate) async fn set_len(&mut self, volume: &Volume, to: u64) -> Result<(), SourceError> {
        let writes = self.writes(volume)?;
        match &mut self.content {
            Content::Failed(error) => return Err(error.clone()),
            Content::Version(entry) if entry.bytes == to => return Ok(()),
            Content::Upload(_, bytes) if *bytes == to => return Ok(()),
            Content::Upload(upload, bytes) if writes.writes_anywhere() => {
                match upload.set_len(to).await {
                    Ok(()) => {
                        *bytes = to;
                        self.shown.lock().bytes = to;
                    }
                    Err(error) => return self.fail(error),
                }
                return Ok(());
            }
            _ if to == 0 => {}
            _ if !writes.writes_anywhere() => return Err(IN_ORDER),
            _ => {
                self.begin(volume).await?;
                return Box::pin(self.set_len(volume, to)).await;
            }
        }
        let path = self.path.clone().ok_or(GIVEN_UP)?;
        // It was there: who finds it gone is not to bring its name back.
        let empty = match self.file() {
            Ok((file, _)) => writes.empty(&file).await,
            Err(_) => writes.create(&path, Replace::Existing, 0o600).await,
        };
        match empty {
            Ok(upload) => self.content = Content::Upload(upload, 0),
            Err(error) => return self.fail(error),
        }
        self.base = None;
        self.shown.lock().bytes = 0;
        self.reader = None;
        Ok(())
    }

    /// Sets attributes, of what is being written if anything is.
    pub(crate) async fn set_attributes(
        &mut self,
        volume: &Volume,
        changes: Changes,
        caller: &Arc<dyn WritableSource>,
    ) -> Result<(), SourceError> {
        match &mut self.content {
            Content::Upload(upload, _) => upload.set_attributes(changes).await,
            Content::Failed(error) => Err(error.clone()),
            Content::Version(before) => {
                let path = self.path.clone().ok_or(GIVEN_UP)?;
                let set = caller
                    .set_attributes(&path, before.version(), changes)
                    .await;
                self.reader = None;
                match set {
                    // Who writes a file takes rights away that only its owner may set: the kernel
                    // asks for that before the first write.
                    Err(SourceError::Refused { .. } | SourceError::Denied { .. })
                        if changes.uid.is_none() && changes.gid.is_none() =>
                    {
                        self.begin(volume).await?;
                        match &mut self.content {
                            Content::Upload(upload, _) => upload.set_attributes(changes).await,
                            _ => Err(GIVEN_UP),
                        }
                    }
                    Ok(after) => {
                        *before = after;
                        Ok(())
                    }
                    // The pages that the kernel has are of another version.
                    Err(error @ SourceError::Changed(_)) => self.fail(error),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// An access list of it.
    pub(crate) async fn access_list(
        &mut self,
        volume: &Volume,
        list: AccessList,
    ) -> Result<Option<Vec<u8>>, SourceError> {
        match (&mut self.content, &self.path) {
            (Content::Upload(upload, _), _) => upload.access_list(list).await,
            (Content::Version(entry), Some(path)) => {
                let source = volume.source();
                source.access_list(path, entry.version(), list).await
            }
            (Content::Failed(error), _) => Err(error.clone()),
            (Content::Version(_), None) => Err(GIVEN_UP),
        }
    }

    /// What it is now.
    pub(crate) async fn stat(&mut self, volume: &Volume) -> Result<Entry, SourceError> {
        let entry = self.ask(volume).await?;
        *self.shown.lock() = entry.clone();
        Ok(entry)
    }

    async fn ask(&mut self, volume: &Volume) -> Result<Entry, SourceError> {
        let writes_anywhere = writes(volume)?.writes_anywhere();
        match &mut self.content {
            Content::Version(entry) => Ok(entry.clone()),
            // A stat(2) that comes too late sees what was.
            Content::Failed(_) => Ok(self.shown.lock().clone()),
            Content::Upload(upload, _) if writes_anywhere => upload.stat().await,
            Content::Upload(_, bytes) => Ok(unborn(*bytes)),
        }
    }

    /// Puts what was written in its place. Whether anything was.
    pub(crate) async fn finish(&mut self) -> Result<bool, SourceError> {
        if self.path.is_none() {
            return Ok(false);
        }
        match std::mem::replace(&mut self.content, Content::Failed(GIVEN_UP)) {
            Content::Upload(upload, bytes) => match upload.finish().await {
                Ok(entry) => {
                    self.is_joined |= entry.bytes != bytes;
                    *self.shown.lock() = entry.clone();
                    self.content = Content::Version(entry);
                }
                Err(error) => return self.fail(error),
            },
            Content::Failed(error) => return self.fail(error),
            content => {
                self.content = content;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The version at the source that it has begun as, or is.
    pub(crate) fn base(&self) -> Option<&Version> {
        match &self.content {
            Content::Upload(..) => self.base.as_ref(),
            _ => self.version(),
        }
    }

    /// It was moved, or somebody has set its attributes. The source says `entry` of it now, if
    /// that is the version that it has begun as. If not, or that was replaced, it stays of the
    /// version that it was of: to finish it is an error.
    pub(crate) async fn follow(
        &mut self,
        volume: &Volume,
        path: &SourcePath,
        entry: Option<Entry>,
    ) -> Result<(), SourceError> {
        let writes = writes(volume)?;
        let is_same = |entry: &Entry| match (self.base(), entry.version()) {
            (Some(base), Some(version)) => writes.same_contents(base, version),
            _ => false,
        };
        let entry = entry.filter(is_same);
        self.path = Some(path.clone());
        self.reader = None;
        match (&mut self.content, entry) {
            (Content::Upload(upload, _), entry) => {
                let current = entry.as_ref().and_then(Entry::version);
                if let Some(current) = current {
                    self.base = Some(current.clone());
                }
                upload.rename(path, current).await
            }
            (content @ Content::Version(_), Some(entry)) => {
                *self.shown.lock() = entry.clone();
                *content = Content::Version(entry);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Keeps its contents for those who have it open, since its name will be gone.
    pub(crate) async fn keep(&mut self, volume: &Volume) {
        // A version that cannot be copied any more is an error to those who use it.
        let _ = self.begin(volume).await;
    }

    /// Its name is gone.
    pub(crate) async fn remove(&mut self, volume: &Volume) {
        self.path = None;
        let writes_anywhere = writes(volume).is_ok_and(|writes| writes.writes_anywhere());
        if let Content::Upload(upload, _) = &mut self.content {
            if writes_anywhere {
                // Should it fail, the name goes with the upload.
                drop(upload.hide().await);
            } else {
                self.give_up().await;
            }
        }
    }

    /// Forgets what was written.
    pub(crate) async fn give_up(&mut self) {
        let content = std::mem::replace(&mut self.content, Content::Failed(GIVEN_UP));
        if let Content::Upload(upload, _) = content {
            // What is left of it at the source is not shown.
            let _ = upload.abort().await;
        }
    }
}
