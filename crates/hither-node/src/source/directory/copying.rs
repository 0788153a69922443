//! What a new version has of the one before: its bytes, its holes and its attributes.

use std::ffi::CStr;
use std::ops::Range;

use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{
    SeekFrom, XattrFlags, copy_file_range, fremovexattr, fsetxattr, ftruncate, getxattr, listxattr,
    seek,
};
use rustix::io::Errno;

use super::beneath::by_descriptor;
use super::open_file::write_whole;
use super::tree::read_whole;

/// Gives `to` the extended attributes of users, and the access control list, of `from`. Without the
/// list, the permission bits of its group would mean more.
pub(super) fn copy_extended_attributes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    const ACCESS_LIST: &CStr = c"system.posix_acl_access";
    let from = by_descriptor(from);
    let ask = |ask: &dyn Fn(&mut Vec<u8>) -> Result<usize, Errno>| {
        let mut value = Vec::with_capacity(64 << 10);
        ask(&mut value).map(|_| value)
    };
    let names = match ask(&|names| listxattr(&from, spare_capacity(names))) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        names => names?,
    };
    let mut has_list = false;
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
        has_list |= name == ACCESS_LIST;
        if name == ACCESS_LIST || name.to_bytes().starts_with(b"user.") {
            match ask(&|value| getxattr(&from, name, spare_capacity(value))) {
                // Removed since.
                Err(Errno::NODATA) => {}
                value => fsetxattr(to, name, &value?, XattrFlags::empty())?,
            }
        }
    }
    if has_list {
        return Ok(());
    }
    // It may have one by its directory's default.
    match fremovexattr(to, ACCESS_LIST) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        removed => removed,
    }
}

/// Copies a file of `bytes` into an empty one. What is a hole in one is a hole in the other.
pub(super) fn copy_all(from: &OwnedFd, to: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    ftruncate(to, bytes)?;
    let mut at = 0;
    while at < bytes {
        let data = match seek(from, SeekFrom::Data(at)) {
            // Nothing but a hole is left.
            Err(Errno::NXIO) => return Ok(()),
            // No file system says where its holes are, that has none.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return copy_range(from, to, at..bytes),
            data => data?,
        };
        let hole = seek(from, SeekFrom::Hole(data))?;
        copy_range(from, to, data..hole.min(bytes))?;
        at = hole;
    }
    Ok(())
}

/// Copies a part of a file: within the file system, or by itself where that cannot.
pub(super) fn copy_range(from: &OwnedFd, to: &OwnedFd, range: Range<u64>) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let (mut read_at, mut write_at) = (at, at);
        let wanted = (range.end - at).min(8 << 20) as usize;
        let copied = copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), wanted);
        match copied {
            // Some file systems say 0 where they cannot.
            Ok(0) => break,
            Ok(bytes) => at += bytes as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(error),
        }
    }
    while at < range.end {
        let piece = read_whole(from, &(at..range.end.min(at + (1 << 20))))?;
        if piece.is_empty() {
            // The file is shorter by now: its version says so.
            return Ok(());
        }
        write_whole(to, &piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}
