//! Writing to a source. What a source cannot do is [`SourceError::Unsupported`], at once.
//!
//! A file is written as a whole, from its start to its end, and takes its place when it is
//! finished: readers see the version before or the one after, and never a part. To change a part
//! of a file, its user writes a new version of it.
//!
//! After [`SourceError::Failed`] it is unknown whether a change happened: the answer may have been
//! lost on the way back.

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Entry, Source, SourceError, SourcePath, Version};

/// What a new version may take the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Whatever file is there, or nothing.
    Any,
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

    /// Sets attributes, and gives those that are there then.
    async fn set_attributes(
        &self,
        path: &SourcePath,
        changes: Changes,
    ) -> Result<Entry, SourceError>;
}

/// A version that is being written. Dropped before it is finished, it is given up.
#[async_trait]
pub trait Upload: Send {
    /// Adds `bytes` at the end. After an error, the upload can only be given up.
    async fn write(&mut self, bytes: Bytes) -> Result<(), SourceError>;

    /// Puts the file in its place. The source has all of it when this returns.
    async fn finish(self: Box<Self>) -> Result<Entry, SourceError>;

    /// Gives it up, and waits until the source has forgotten it.
    async fn abort(self: Box<Self>) -> Result<(), SourceError>;
}
