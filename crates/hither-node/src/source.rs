//! Where the data comes from: an object store, or a directory. One file a kind of source, and one
//! line each in [`registry::SCHEMES`].
//!
//! A source serves byte ranges of *versions* of files: a read that would give bytes of another
//! version than the one that was asked for is the error [`SourceError::Changed`], never a mixture.

pub mod counters;
mod directory;
pub mod name;
mod object;
mod open_error;
mod opened;
pub mod registry;
pub mod settings;
pub mod write;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};

use self::counters::SourceCounters;
pub use self::open_error::OpenError;
use hither_kernel::acting::Acting;

/// A path below the root of a source: components of any bytes but `/` and NUL, separated by `/`.
/// Neither `.` nor `..` nor an empty component occurs. The root is the empty path. Copies share the
/// bytes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourcePath(Arc<[u8]>);

impl SourcePath {
    /// The path `bytes`. `None` if a component is one that it may not have.
    pub fn new(bytes: &[u8]) -> Option<SourcePath> {
        let sound = bytes.is_empty() || bytes.split(|&byte| byte == b'/').all(is_component);
        sound.then(|| SourcePath(bytes.into()))
    }

    /// The path of `name` in this directory. `None` if `name` is no component.
    pub fn join(&self, name: &[u8]) -> Option<SourcePath> {
        if !is_component(name) {
            return None;
        }
        let slash = if self.is_root() { &b""[..] } else { b"/" };
        Some(SourcePath([&self.0[..], slash, name].concat().into()))
    }

    /// The bytes, without a leading or trailing `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the root of the source.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is `other`, or lies below it.
    pub fn is_at_or_below(&self, other: &SourcePath) -> bool {
        match self.0.strip_prefix(&other.0[..]) {
            Some(rest) => rest.is_empty() || other.is_root() || rest[0] == b'/',
            None => false,
        }
    }

    /// The directory that the path lies in, and its last component. `None` for the root.
    pub fn split(&self) -> Option<(SourcePath, &[u8])> {
        if self.is_root() {
            return None;
        }
        Some(match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (SourcePath(self.0[..at].into()), &self.0[at + 1..]),
            None => (SourcePath::default(), &self.0),
        })
    }
}

fn is_component(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

impl fmt::Display for SourcePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for SourcePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// What tells two versions of a file apart: an etag, or what stat(2) says of a file. Equal versions
/// mean equal bytes. Copies share the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(Arc<[u8]>);

impl Version {
    /// The version named by `bytes`.
    pub fn new(bytes: &[u8]) -> Version {
        Version(bytes.into())
    }

    /// Its name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Entry {
    /// The version, if it is a file.
    pub fn version(&self) -> Option<&Version> {
        match &self.kind {
            Kind::File { version, .. } => Some(version),
            _ => None,
        }
    }

    /// If it is a file, which version of the one at `path`, and whether it is settled.
    pub fn file(&self, path: &SourcePath) -> Option<(FileVersion, bool)> {
        let Kind::File { version, settled } = &self.kind else {
            return None;
        };
        let file = FileVersion {
            path: path.clone(),
            version: version.clone(),
            bytes: self.bytes,
        };
        Some((file, *settled))
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0.escape_ascii())
    }
}

/// One version of one file: what is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Where it is.
    pub path: SourcePath,
    /// Which version.
    pub version: Version,
    /// Its length.
    pub bytes: u64,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file, with the version that is current. Not settled: it may be rewritten without the
    /// version's changing, since its last change is younger than the source's clock can tell apart.
    /// What is read of it may be returned, but not kept.
    File {
        /// The current version.
        version: Version,
        /// Whether a later change shows as another version.
        settled: bool,
    },
    /// A directory, or a common prefix of keys.
    Directory,
    /// A symbolic link, and where it leads.
    Link(Vec<u8>),
    /// A socket, pipe or device: shown and not read.
    Special,
}

/// What a source says of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Length of a file in bytes; 0 for all else.
    pub bytes: u64,
    /// When its contents last changed.
    pub modified: SystemTime,
    /// Permission bits, owner and group where the source has them.
    pub unix: Option<UnixAttributes>,
}

/// Attributes that only file systems have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixAttributes {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links to it.
    pub links: u32,
    /// The file system that it is on, and its number there: what is another file has another one.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// Last access.
    pub accessed: SystemTime,
    /// Last change of contents or attributes.
    pub changed: SystemTime,
}

/// Why a source could not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceError {
    /// There is nothing at the path.
    #[error("{0} does not exist")]
    NotFound(SourcePath),
    /// The file has another version by now.
    #[error("{0} changed while it was read")]
    Changed(SourcePath),
    /// The source refuses.
    #[error("{path}: access denied: {reason}")]
    Denied {
        /// What was asked for.
        path: SourcePath,
        /// What the source says.
        reason: String,
    },
    /// The source cannot do this at all.
    #[error("{0}")]
    Unsupported(&'static str),
    /// It would replace or remove what is in the way: a directory that is not empty, a file where a
    /// directory should be.
    #[error("{path}: {reason}")]
    InTheWay {
        /// What was asked for.
        path: SourcePath,
        /// What is in the way.
        reason: String,
    },
    /// The source has no room.
    #[error("{path}: {reason}")]
    Full {
        /// What was written.
        path: SourcePath,
        /// What the source says.
        reason: String,
    },
    /// The file system below the source says no, as it would to anyone: it is mounted read-only,
    /// a name is too long, a file too large.
    #[error("{path}: {}", std::io::Error::from_raw_os_error(*.code))]
    Refused {
        /// What was asked for.
        path: SourcePath,
        /// Its error number, as in errno(3).
        code: i32,
    },
    /// No answer, or an unusable one, after all retries.
    #[error("{path}: {reason}")]
    Failed {
        /// What was asked for.
        path: SourcePath,
        /// The last failure.
        reason: String,
    },
}

/// One page of a directory's listing.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Names and what they lead to, each name once.
    pub entries: Vec<(Vec<u8>, Entry)>,
    /// Where the next page starts; `None` if this is the last.
    pub next: Option<ListCursor>,
}

/// Where a listing goes on: opaque, meaningful to the source that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCursor(pub Vec<u8>);

/// Bytes of a file as they arrive, in order.
pub type ByteStream = BoxStream<'static, Result<Bytes, SourceError>>;

/// What a user wants of a file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// To read or list it.
    pub read: bool,
    /// To write it.
    pub write: bool,
    /// To run it.
    pub execute: bool,
}

/// The access lists that a file or directory may have (acl(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessList {
    /// Who may use it.
    Access,
    /// What files get that are made in a directory.
    Default,
}

/// The room of a file system, as statvfs(3) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The unit of the next three, in bytes.
    pub block_bytes: u64,
    /// All of it.
    pub blocks: u64,
    /// What is free.
    pub free_blocks: u64,
    /// What users other than root may take.
    pub available_blocks: u64,
    /// How many files there may be.
    pub files: u64,
    /// How many more.
    pub free_files: u64,
}

/// A place that data comes from. Retries, timeouts and the limit on requests in flight are the
/// source's own matter: an error is final.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// What the path leads to now. Asks the source each time.
    async fn stat(&self, path: &SourcePath) -> Result<Entry, SourceError>;

    /// The entries of a directory from `from` on (the start: `None`).
    async fn list(
        &self,
        path: &SourcePath,
        from: Option<ListCursor>,
    ) -> Result<Listing, SourceError>;

    /// The bytes `range` of a version, which lie within its length. The stream gives exactly these
    /// bytes or ends in an error; what was given before the error is of that version.
    async fn read(&self, file: &FileVersion, range: Range<u64>) -> Result<ByteStream, SourceError>;

    /// What there is of `range` now, of a file that may change without its version's telling: of
    /// the same file as `file`, whatever its version is by now. Less than `range` only at its end.
    async fn read_live(
        &self,
        file: &FileVersion,
        range: Range<u64>,
    ) -> Result<ByteStream, SourceError> {
        let end = range.end.min(file.bytes);
        if range.start < end {
            self.read(file, range.start..end).await
        } else {
            Ok(stream::empty().boxed())
        }
    }

    /// Whether two versions are of one file that was changed in place, or only moved.
    fn same_file(&self, _one: &Version, _other: &Version) -> bool {
        false
    }

    /// Whether a user may use what is at `path`, as the source itself would say. A file must be of
    /// that version, or it is [`SourceError::Changed`]; what is no file has none.
    async fn check_access(
        &self,
        _path: &SourcePath,
        _version: Option<&Version>,
        _access: Access,
        _acting: &Acting,
    ) -> Result<(), SourceError> {
        Ok(())
    }

    /// An access list, as the extended attribute has it that the kernel keeps it in. Of what
    /// version is as for [`check_access`](Source::check_access).
    async fn access_list(
        &self,
        _path: &SourcePath,
        _version: Option<&Version>,
        _list: AccessList,
    ) -> Result<Option<Vec<u8>>, SourceError> {
        Ok(None)
    }

    /// How much room there is. `None` where it has no bounds, or cannot be asked.
    async fn space(&self) -> Result<Option<Space>, SourceError> {
        Ok(None)
    }

    /// What the source was asked for so far. `None` if it does not count.
    fn counters(&self) -> Option<&SourceCounters> {
        None
    }

    /// The MD5 of all bytes of a version, if the source names it by what may be that: its etag has
    /// the form. Some sources give other etags of that form.
    fn md5(&self, _file: &FileVersion) -> Option<[u8; 16]> {
        None
    }
}

/// Refuses a range that does not lie within the file.
fn check_range(file: &FileVersion, range: &Range<u64>) -> Result<(), SourceError> {
    if range.start <= range.end && range.end <= file.bytes {
        return Ok(());
    }
    Err(SourceError::Failed {
        path: file.path.clone(),
        reason: format!("bytes {range:?} of a file of {} bytes", file.bytes),
    })
}

/// `range` in pieces of at most `bytes`, none of them empty.
fn pieces(range: Range<u64>, bytes: u64) -> impl Iterator<Item = Range<u64>> + Send {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let piece = start..range.end.min(start.saturating_add(bytes));
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_a_path_is_told_by_whole_names() {
        let path = |path: &str| SourcePath::new(path.as_bytes()).unwrap();
        let is_below = |one: &str, other: &str| path(one).is_at_or_below(&path(other));
        assert!(is_below("a/b", "a"));
        assert!(is_below("a", "a"));
        assert!(is_below("a", ""));
        assert!(!is_below("ab", "a"));
        assert!(!is_below("a", "a/b"));
    }
}
