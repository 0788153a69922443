//! Writing to a source. What a source cannot do is [`SourceError::Unsupported`], at once.
//!
//! A file is written as a whole, from its start to its end, and takes its place when it is
//! finished: readers see the version before or the one after, and never a part. To change a part
//! of a file, its user writes a new version of it: from its start to its end, or, where a source
//! [writes anywhere](WritableSource::writes_anywhere), as a copy of which parts change.
//!
//! After [`SourceError::Failed`] it is unknown whether a change happened: the answer may have been
//! lost on the way back.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

pub use hither_kernel::acting::{Acting, User, may_act};

use super::{AccessList, Entry, FileVersion, Source, SourceError, SourcePath, Version};

/// What a new version may take the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Whatever file is there, or nothing.
    Any,
    /// Whatever file is there: if there is none any more, [`SourceError::Changed`].
    Existing,
    /// Nothing: a file that is there is [`SourceError::InTheWay`].
    Nothing,
    /// This version: another one is [`SourceError::Changed`].
    Version(Version),
}

/// Attributes to set. `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<SystemTime>,
    /// Last change of the contents.
    pub modified: Option<SystemTime>,
}

/// A source that can be written.
#[async_trait]
pub trait WritableSource: Source {
    /// Begins a new version of the file at `path`, with the permission bits `mode` if it is new.
    /// Its directory must exist where the source has directories.
    async fn create(
        &self,
        path: &SourcePath,
        replace: Replace,
        mode: u32,
    ) -> Result<Box<dyn Upload>, SourceError>;

    /// The same source, which makes and changes files for another user. `None` if it has no users.
    fn acting(&self, _for: Acting) -> Option<Arc<dyn WritableSource>> {
        None
    }

    /// Whether a version can be written in any order, and read while it is written.
    fn writes_anywhere(&self) -> bool {
        false
    }

    /// Whether two versions are of one file with the same contents, and differ in attributes at
    /// most.
    fn same_contents(&self, one: &Version, other: &Version) -> bool {
        one == other
    }

    /// Keeps a version for its readers while its name goes.
    async fn hold(&self, _file: &FileVersion) -> Result<Box<dyn Hold>, SourceError> {
        Err(SourceError::Unsupported("the source reads files by name"))
    }

    /// Begins a new version that starts as a copy of `file`, and takes the place of no other one.
    async fn rewrite(&self, _file: &FileVersion) -> Result<Box<dyn Upload>, SourceError> {
        Err(IN_ORDER)
    }

    /// Begins an empty version that takes the place of `file`, or of what has replaced it since.
    async fn empty(&self, file: &FileVersion) -> Result<Box<dyn Upload>, SourceError> {
        self.create(&file.path, Replace::Existing, 0).await
    }

    /// Makes an empty file where nothing is. The source sees to it that only one of several who
    /// do so at once succeeds; the others get [`SourceError::InTheWay`].
    async fn make_file(&self, path: &SourcePath, mode: u32) -> Result<Entry, SourceError> {
        let upload = self.create(path, Replace::Nothing, mode).await?;
        upload.finish().await
    }

    /// Removes a file, link or special file.
    async fn remove(&self, path: &SourcePath) -> Result<(), SourceError>;

    /// Moves `from` to `to`. What is there is replaced, or, if `replace` is not set,
    /// [`SourceError::InTheWay`].
    async fn rename(
        &self,
        from: &SourcePath,
        to: &SourcePath,
        replace: bool,
    ) -> Result<(), SourceError>;

    /// Makes a directory.
    async fn make_dir(&self, path: &SourcePath, mode: u32) -> Result<(), SourceError>;

    /// Removes an empty directory.
    async fn remove_dir(&self, path: &SourcePath) -> Result<(), SourceError>;

    /// Makes a symbolic link at `path` that leads to `target`.
    async fn make_link(&self, path: &SourcePath, target: &[u8]) -> Result<(), SourceError>;

    /// Sets attributes of what is at `path`, and gives those that are there then. A file must be of
    /// that version, or it is [`SourceError::Changed`]; what is no file has none.
    async fn set_attributes(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        changes: Changes,
    ) -> Result<Entry, SourceError>;
}

const IN_ORDER: SourceError =
    SourceError::Unsupported("the source takes files from their start to their end only");

/// A version that its readers keep when its name is gone.
#[async_trait]
pub trait Hold: Send + Sync + std::fmt::Debug {
    /// Its name is gone, or is another file's: what it is by now. While this lives, the source
    /// reads the version that this says, whatever the path it is asked by.
    async fn unname(&self) -> Result<Entry, SourceError>;
}

/// A version that is being written. Dropped before it is finished, it is given up.
///
/// What has a default is for sources that [write
/// anywhere](WritableSource::writes_anywhere); the others do not support it.
#[async_trait]
pub trait Upload: Send {
    /// Adds `bytes` at the end. After an error, the upload can only be given up.
    async fn write(&mut self, bytes: Bytes) -> Result<(), SourceError>;

    /// Writes `bytes` at `offset`. After an error, the upload can only be given up.
    async fn write_at(&mut self, _offset: u64, _bytes: Bytes) -> Result<(), SourceError> {
        Err(IN_ORDER)
    }

    /// Reads up to `bytes` of what is written so far: fewer only at its end.
    async fn read_at(&mut self, _offset: u64, _bytes: usize) -> Result<Bytes, SourceError> {
        Err(IN_ORDER)
    }

    /// Cuts the version to a length, or extends it with zeros.
    async fn set_len(&mut self, _bytes: u64) -> Result<(), SourceError> {
        Err(IN_ORDER)
    }

    /// Sets attributes that the version will have.
    async fn set_attributes(&mut self, _changes: Changes) -> Result<(), SourceError> {
        Err(IN_ORDER)
    }

    /// An access list of what is written.
    async fn access_list(&mut self, _list: AccessList) -> Result<Option<Vec<u8>>, SourceError> {
        Ok(None)
    }

    /// What the version is so far.
    async fn stat(&mut self) -> Result<Entry, SourceError> {
        Err(IN_ORDER)
    }

    /// Changes the place that [`finish`](Upload::finish) puts it in: the file was renamed. It
    /// takes the place of `current` there, if it is to take that of one version only.
    async fn rename(
        &mut self,
        _path: &SourcePath,
        _current: Option<&Version>,
    ) -> Result<(), SourceError> {
        Err(IN_ORDER)
    }

    /// Removes what the source holds of it by name. Only its writer has it from now on.
    async fn hide(&mut self) -> Result<(), SourceError> {
        Err(IN_ORDER)
    }

    /// Puts the file in its place. The source has all of it when this returns.
    async fn finish(self: Box<Self>) -> Result<Entry, SourceError>;

    /// Gives it up, and waits until the source has forgotten it.
    async fn abort(self: Box<Self>) -> Result<(), SourceError>;
}
