//! From what statx(2) says to an [`Entry`]: versions, and whether they are settled.

use std::ffi::CStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, getxattr, readlinkat, statx,
};
use rustix::io::{Errno, Result};

use super::super::{AccessList, Entry, Kind, UnixAttributes, Version};
use super::beneath::by_descriptor;

/// A modification time that is further ahead than this was set on purpose (`touch -d`), and is no
/// sign of clocks that differ.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(24 * 3600);

/// How attributes of one source are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    /// The device of the root.
    pub root_device: (u32, u32),
    /// [`SourceSettings::settling`](super::super::settings::SourceSettings::settling).
    pub settling: Duration,
}

/// What `name` in the directory `from` is; `from` itself if the name is empty. The source is asked
/// even if the file system would take its word from a cache of its own.
pub(super) fn ask(from: impl AsFd, name: &CStr) -> Result<Statx> {
    stat(from, name, AtFlags::STATX_FORCE_SYNC)
}

/// As [`ask`], but a network file system may answer from its cache: right after data or a listing
/// came from the source, since those bring the attributes along.
pub(super) fn attributes(from: impl AsFd, name: &CStr) -> Result<Statx> {
    stat(from, name, AtFlags::empty())
}

fn stat(from: impl AsFd, name: &CStr, flags: AtFlags) -> Result<Statx> {
    let flags = flags | AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(from, name, flags, StatxFlags::BASIC_STATS)
}

/// Whether it is a regular file.
pub(super) fn is_file(stat: &Statx) -> bool {
    file_type(stat) == FileType::RegularFile
}

fn file_type(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// An access list of what is open, in any way.
pub(super) fn access_list(file: &OwnedFd, list: AccessList) -> Result<Option<Vec<u8>>> {
    let name = match list {
        AccessList::Access => c"system.posix_acl_access",
        AccessList::Default => c"system.posix_acl_default",
    };
    let mut value = Vec::with_capacity(64 << 10);
    match getxattr(&*by_descriptor(file), name, spare_capacity(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What of a version's bytes is the time of the last change of attributes: the end.
const CHANGED_BYTES: usize = size_of::<i64>() + size_of::<u32>();

/// Whether two versions differ in the time of the last change of attributes at most.
pub(super) fn same_contents(one: &Version, other: &Version) -> bool {
    let contents = |version: &Version| {
        let bytes = version.as_bytes();
        bytes[..bytes.len().saturating_sub(CHANGED_BYTES)].to_vec()
    };
    contents(one) == contents(other)
}

/// What of a version's bytes names the file: device and inode, at the start.
const FILE_BYTES: usize = 2 * size_of::<u32>() + size_of::<u64>();

/// Whether two versions are of the same inode, whatever is in it.
pub(super) fn same_file(one: &Version, other: &Version) -> bool {
    let file = |version: &Version| version.as_bytes().get(..FILE_BYTES).map(<[u8]>::to_vec);
    file(one) == file(other)
}

impl Attributes {
    /// The version of a file: device, inode, size, and the times of the last changes of contents
    /// and attributes.
    ///
    /// The device counts only where another file system is mounted below the root. Numbers of
    /// network file systems differ between machines, which otherwise could not share the cache.
    pub(super) fn version(&self, stat: &Statx) -> Version {
        let device = match (stat.stx_dev_major, stat.stx_dev_minor) {
            device if device == self.root_device => (0, 0),
            device => device,
        };
        let mut name = Vec::with_capacity(48);
        name.extend(device.0.to_le_bytes());
        name.extend(device.1.to_le_bytes());
        name.extend(stat.stx_ino.to_le_bytes());
        name.extend(stat.stx_size.to_le_bytes());
        for time in [stat.stx_mtime, stat.stx_ctime] {
            name.extend(time.tv_sec.to_le_bytes());
            name.extend(time.tv_nsec.to_le_bytes());
        }
        Version::new(&name)
    }

    /// The entry of `name` in `from`, of which statx(2) said `stat`.
    pub(super) fn entry(&self, from: impl AsFd, name: &CStr, stat: &Statx) -> Result<Entry> {
        let modified = system_time(stat.stx_mtime);
        let kind = match file_type(stat) {
            FileType::RegularFile => Kind::File {
                version: self.version(stat),
                settled: settled(
                    SystemTime::now(),
                    modified,
                    system_time(stat.stx_ctime),
                    self.settling,
                ),
            },
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link(readlinkat(from, name, Vec::new())?.into_bytes()),
            _ => Kind::Special,
        };
        let bytes = match kind {
            Kind::File { .. } => stat.stx_size,
            _ => 0,
        };
        Ok(Entry {
            kind,
            bytes,
            modified,
            unix: Some(UnixAttributes {
                mode: stat.stx_mode.into(),
                uid: stat.stx_uid,
                gid: stat.stx_gid,
                links: stat.stx_nlink,
                device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
                inode: stat.stx_ino,
                accessed: system_time(stat.stx_atime),
                changed: system_time(stat.stx_ctime),
            }),
        })
    }
}

/// Whether a change at `now` or later shows in a file's times. They are only as fine as the clock
/// of the file system, so a change right after the last one may leave them as they are. A time
/// ahead of our clock is as young as one of now.
fn settled(now: SystemTime, modified: SystemTime, changed: SystemTime, window: Duration) -> bool {
    let old = |time| now.duration_since(time).is_ok_and(|age| age >= window);
    let set_on_purpose = modified
        .duration_since(now)
        .is_ok_and(|ahead| ahead > CLOCKS_APART_MAX);
    old(changed) && (old(modified) || set_on_purpose)
}

fn system_time(time: StatxTimestamp) -> SystemTime {
    time_since_1970(time.tv_sec, time.tv_nsec)
}

fn time_since_1970(seconds: i64, nanoseconds: u32) -> SystemTime {
    let part = Duration::from_nanos(nanoseconds.into());
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds {
        0.. => UNIX_EPOCH.checked_add(distance),
        _ => UNIX_EPOCH.checked_sub(distance),
    };
    whole
        .and_then(|whole| whole.checked_add(part))
        .unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_settled_once_its_times_are_older_than_the_window() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let window = Duration::from_secs(2);
        let ago = |ms| now - Duration::from_millis(ms);
        let ahead = |s| now + Duration::from_secs(s);
        let settled = |modified, changed| settled(now, modified, changed, window);
        assert!(settled(ago(2000), ago(2000)));
        assert!(!settled(ago(1999), ago(5000)));
        assert!(!settled(ago(5000), ago(1999)), "`touch -d` after the write");
        assert!(!settled(ago(5000), ahead(1)), "clocks differ");
        assert!(!settled(ahead(1), ago(5000)), "clocks differ");
        assert!(settled(ahead(1_000_000), ago(5000)), "set on purpose");
        assert!(!settled(ahead(1_000_000), ahead(1_000_000)));
    }

    #[test]
    fn times_before_1970_are_kept() {
        let time = time_since_1970;
        assert_eq!(
            time(-1, 250_000_000),
            UNIX_EPOCH - Duration::from_millis(750)
        );
        assert_eq!(time(1, 5), UNIX_EPOCH + Duration::new(1, 5));
        time(i64::MIN, 0);
        time(i64::MAX, 999_999_999);
    }
}
