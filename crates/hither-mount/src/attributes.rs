//! What the kernel is told of a file, and for how long it may believe it.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use fuser::{Errno, FileAttr, FileType, INodeNo};
use hither_node::source::{Entry, Kind, SourceError};

/// How old what a program sees may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Each open asks the source for the current version.
    Strict,
    /// An open may find the version that was current so long ago.
    Ttl(Duration),
    /// Nothing at the source ever changes.
    Immutable,
}

impl Default for Consistency {
    fn default() -> Self {
        Consistency::Ttl(Duration::from_secs(1))
    }
}

impl Consistency {
    /// How long a name may be believed.
    pub fn ttl(self) -> Duration {
        match self {
            Consistency::Strict => Duration::ZERO,
            Consistency::Ttl(ttl) => ttl,
            Consistency::Immutable => FOREVER,
        }
    }

    /// The source's answer, in which every file is settled if nothing ever changes.
    pub fn settled(self, mut entry: Entry) -> Entry {
        if let Kind::File { settled, .. } = &mut entry.kind
            && self == Consistency::Immutable
        {
            *settled = true;
        }
        entry
    }

    /// How old an answer of the source may be at an open. The lookup of the same open has just
    /// asked, so what is a few moments old is current.
    pub(crate) fn age_max(self) -> Duration {
        self.ttl().max(Duration::from_millis(50))
    }
}

/// As long as a kernel keeps anything.
pub(crate) const FOREVER: Duration = Duration::from_secs(1 << 30);

impl FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = |text: &str| {
            let seconds: f64 = text.strip_suffix('s').unwrap_or(text).parse().ok()?;
            Duration::try_from_secs_f64(seconds).ok()
        };
        match text {
            "strict" => Ok(Consistency::Strict),
            "immutable" => Ok(Consistency::Immutable),
            _ => match text.strip_prefix("ttl=").and_then(seconds) {
                Some(ttl) => Ok(Consistency::Ttl(ttl)),
                None => Err("strict, immutable or ttl=SECONDS is expected".to_owned()),
            },
        }
    }
}

/// Whose files those are that have no owner at the source, and whether they may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) may_write: bool,
}

/// The kind of file that the kernel is told of.
pub(crate) fn file_type(entry: &Entry) -> FileType {
    // The type bits of `st_mode`.
    match entry.unix.map(|unix| unix.mode & 0o170_000) {
        Some(0o010_000) => FileType::NamedPipe,
        Some(0o140_000) => FileType::Socket,
        Some(0o020_000) => FileType::CharDevice,
        Some(0o060_000) => FileType::BlockDevice,
        _ => match entry.kind {
            Kind::File { .. } => FileType::RegularFile,
            Kind::Directory => FileType::Directory,
            Kind::Link(_) => FileType::Symlink,
            Kind::Special => FileType::NamedPipe,
        },
    }
}

/// The attributes of inode `number`.
pub(crate) fn attributes(number: u64, entry: &Entry, owner: Owner) -> FileAttr {
    let bytes = match &entry.kind {
        Kind::File { .. } => entry.bytes,
        Kind::Link(target) => target.len() as u64,
        Kind::Directory | Kind::Special => 0,
    };
    let (mode, uid, gid, links) = match entry.unix {
        Some(unix) => (unix.mode, unix.uid, unix.gid, unix.links),
        None => {
            let mode = match entry.kind {
                Kind::Directory => 0o555,
                Kind::Link(_) => 0o777,
                _ => 0o444,
            };
            let mode = mode | if owner.may_write { 0o200 } else { 0 };
            (mode, owner.uid, owner.gid, 1)
        }
    };
    FileAttr {
        ino: INodeNo(number),
        size: bytes,
        blocks: bytes.div_ceil(512),
        atime: entry.unix.map_or(entry.modified, |unix| unix.accessed),
        mtime: entry.modified,
        ctime: entry.unix.map_or(entry.modified, |unix| unix.changed),
        crtime: SystemTime::UNIX_EPOCH,
        kind: file_type(entry),
        perm: (mode & 0o7777) as u16,
        nlink: links,
        uid,
        gid,
        rdev: 0,
        blksize: 128 * 1024,
        flags: 0,
    }
}

/// The same, as a number.
pub fn error_number(error: &SourceError) -> i32 {
    errno(error).into()
}

/// What a program is told when the source cannot answer.
pub(crate) fn errno(error: &SourceError) -> Errno {
    match error {
        SourceError::NotFound(_) => Errno::ENOENT,
        SourceError::Changed(_) => Errno::ESTALE,
        SourceError::Denied { .. } => Errno::EACCES,
        SourceError::Unsupported(_) => Errno::EOPNOTSUPP,
        SourceError::InTheWay { .. } => Errno::ENOTEMPTY,
        SourceError::Full { .. } => Errno::ENOSPC,
        SourceError::Refused { code, .. } => Errno::from_i32(*code),
        SourceError::Failed { .. } => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_consistency_are_read() {
        let ttl = |seconds| Ok(Consistency::Ttl(Duration::from_secs_f64(seconds)));
        assert_eq!("strict".parse(), Ok(Consistency::Strict));
        assert_eq!("immutable".parse(), Ok(Consistency::Immutable));
        assert_eq!("ttl=2.5".parse(), ttl(2.5));
        assert_eq!("ttl=30s".parse(), ttl(30.0));
        for wrong in ["", "ttl", "ttl=", "ttl=-1", "ttl=x", "loose", "ttl=1e99"] {
            assert!(wrong.parse::<Consistency>().is_err(), "{wrong}");
        }
    }
}
