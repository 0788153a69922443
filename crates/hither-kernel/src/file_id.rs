//! What names a file, whatever its path is: its inode, the inode with its birth time, and a key
//! that is the same in every process.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use hither_ids::FileKey;

/// A place for a file on a device. It gets another file when its own is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode {
    /// Device number, major in the upper half.
    pub device: u64,
    /// Inode number.
    pub number: u64,
}

impl Inode {
    /// Of a device of these numbers.
    pub fn on(major: u32, minor: u32, number: u64) -> Inode {
        Inode {
            device: u64::from(major) << 32 | u64::from(minor),
            number,
        }
    }

    /// Of the file that this is about.
    pub fn of(about: &Metadata) -> Inode {
        let device = about.dev();
        Inode::on(libc::major(device), libc::minor(device), about.ino())
    }

    /// Of the file of a line of /proc/PID/maps (proc_pid_maps(5)). Memory without a file is of
    /// number 0, but so may be a System V segment.
    pub(crate) fn of_mapping(line: &str) -> Option<Inode> {
        let mut words = line.split_ascii_whitespace().skip(3);
        let (major, minor) = words.next()?.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        Some(Inode::on(
            number(major)?,
            number(minor)?,
            words.next()?.parse().ok()?,
        ))
    }

    /// As [`of_mapping`](Inode::of_mapping), if it is one of a file.
    pub(crate) fn of_mapped_file(line: &str) -> Option<Inode> {
        Inode::of_mapping(line).filter(|inode| inode.number != 0)
    }
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device number, major in the upper half.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Birth time in nanoseconds since the epoch, 0 where the file system has none.
    pub birth_ns: u64,
}

impl FileId {
    /// Where it lies.
    pub fn inode(self) -> Inode {
        Inode {
            device: self.device,
            number: self.inode,
        }
    }

    /// Its key. The two lowest bits are free.
    pub fn key(self) -> FileKey {
        let key = mix(self.device ^ mix(self.inode ^ mix(self.birth_ns)));
        FileKey((key & !3).max(4))
    }
}

/// The finalizer of splitmix64: spreads every bit of its input over all of its output.
#[inline]
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
