//! Which file each descriptor refers to.
//!
//! Files are looked up at their first use, not when they are opened, so descriptors that were
//! inherited, received over a socket or opened inside libc need no special case. Hooks on calls
//! that open, close or copy descriptors only clear rows of the table. A row is two atomic words.
//! The second one says whether the open file description belongs to this process alone, so that
//! changes to it affect nobody else.
//!
//! The threads of a process share their descriptors. Once one has descriptors of its own
//! (`unshare`), the table is closed, and every access looks its file up.

use std::sync::atomic::{AtomicU64, Ordering};

use hither_sys::record::{Record, file_key};
use hither_sys::syscalls;

use crate::descriptor_table::{Row, Table};

const UNKNOWN: u64 = 0;
/// Not a file whose accesses are recorded: a pipe, a socket, a terminal, something under /proc.
const IGNORED: u64 = 1;
/// The low bits of a known file's word; the others are its key.
const FILE: u64 = 2;
/// The agent has its path.
const DEFINED: u64 = 1;
const KEY: u64 = !3;

/// A descriptor without a row is looked up at every use.
#[repr(C)]
pub(crate) struct Descriptor {
    file: AtomicU64,
    /// The value of [`SHARINGS`] when the program opened it, or 0 where another descriptor or
    /// process may share its description.
    opened: AtomicU64,
}

pub(crate) static TABLE: Table<Descriptor> = Table::new();
/// Counts, in steps of [`SHARING`], the times that other processes may have got all descriptors.
/// [`UNTRACEABLE`] is added where others may get each of them at any time.
static SHARINGS: AtomicU64 = AtomicU64::new(SHARING);
const SHARING: u64 = 2;
const UNTRACEABLE: u64 = 1;

// SAFETY: two words, of which zeroes are values.
unsafe impl Row for Descriptor {
    fn is_blank(&self) -> bool {
        let words = [&self.file, &self.opened].map(|word| word.load(Ordering::Relaxed));
        words == [UNKNOWN, 0]
    }

    fn forget(&self) {
        self.opened.store(0, Ordering::Relaxed);
        self.file.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// The program has just opened `fd`, whose row is blank.
#[cfg(feature = "interpose")]
pub(crate) fn opened(fd: i32) {
    if let Some(entry) = TABLE.row(fd) {
        let sharings = SHARINGS.load(Ordering::Relaxed);
        entry.opened.store(sharings, Ordering::Release);
    }
}

/// Another descriptor shares the description of `fd`.
#[cfg(feature = "interpose")]
pub(crate) fn shared(fd: i32) {
    if let Some(entry) = TABLE.row(fd) {
        entry.opened.store(0, Ordering::Relaxed);
    }
}

/// Another process may share all descriptions.
#[cfg(feature = "interpose")]
pub(crate) fn all_shared() {
    SHARINGS.fetch_add(SHARING, Ordering::AcqRel);
}

/// From here on another process may share any description at any time.
#[cfg(feature = "interpose")]
pub(crate) fn all_untraceable() {
    SHARINGS.fetch_or(UNTRACEABLE, Ordering::AcqRel);
}

/// Whether the program has opened `fd`, and nobody has shared it since.
pub(crate) fn is_alone(fd: i32) -> bool {
    let sharings = SHARINGS.load(Ordering::Acquire);
    let row = TABLE.row(fd).filter(|_| sharings & UNTRACEABLE == 0);
    row.is_some_and(|entry| entry.opened.load(Ordering::Acquire) == sharings)
}

/// What is known of `fd`: the key of its file, or that its accesses are not recorded; `None` if
/// nothing is known yet, or the agent does not have its path.
#[inline]
pub(crate) fn known(fd: i32) -> Option<Option<u64>> {
    let known = TABLE
        .row(fd)
        .map_or(UNKNOWN, |entry| entry.file.load(Ordering::Relaxed));
    match known {
        IGNORED => Some(None),
        _ if known & (FILE | DEFINED) == FILE | DEFINED => Some(Some(known & KEY)),
        _ => None,
    }
}

/// The key of the file behind `fd`, or `None` if its accesses are not recorded. The file is defined
/// first; if `define` has no room, the next access tries again. `ours` says whether the table
/// describes the calling process's descriptors: what the child of a `vfork` finds is not entered
/// into its parent's table.
pub(crate) fn look_up(
    fd: i32,
    ours: bool,
    define: &mut dyn FnMut(&Record<'_>) -> bool,
) -> Option<u64> {
    if let (true, Some(known)) = (ours, known(fd)) {
        return known;
    }
    let found = describe(fd, define);
    if let (true, Some(entry)) = (ours, TABLE.row(fd)) {
        entry.file.store(found, Ordering::Relaxed);
    }
    (found != IGNORED).then_some(found & KEY)
}

/// The entry for `fd`.
fn describe(fd: i32, define: &mut dyn FnMut(&Record<'_>) -> bool) -> u64 {
    let Ok(status) = syscalls::status(fd) else {
        return IGNORED;
    };
    let kind = status.mode & libc::S_IFMT;
    if kind != libc::S_IFREG && kind != libc::S_IFBLK {
        return IGNORED;
    }
    let mut path = [0; 4096];
    let path = path_of(fd, &mut path);
    // Files made up by the kernel and memory files have no page cache to steer.
    let made_up: [&[u8]; 3] = [b"/proc/", b"/sys/", b"/memfd:"];
    if made_up.iter().any(|prefix| path.starts_with(prefix)) {
        return IGNORED;
    }
    let key = file_key(status.device, status.inode, status.birth_ns);
    let record = Record::Object {
        object: key,
        device: status.device,
        inode: status.inode,
        birth_ns: status.birth_ns,
        size: status.size,
        path,
    };
    key | FILE | if define(&record) { DEFINED } else { 0 }
}

/// The path of the file behind `fd`, as /proc has it; empty if it does not say.
pub(crate) fn path_of(fd: i32, buffer: &mut [u8; 4096]) -> &[u8] {
    // A thread may have descriptors of its own.
    let mut link = *b"/proc/thread-self/fd/\0\0\0\0\0\0\0\0\0\0\0";
    if let (Ok(fd), Some(digits)) = (u32::try_from(fd), link.get_mut(21..31)) {
        write_decimal(fd, digits);
    }
    let length = std::ffi::CStr::from_bytes_until_nul(&link)
        .ok()
        .and_then(|link| syscalls::read_link(link, buffer).ok())
        .unwrap_or(0);
    buffer.get(..length).unwrap_or(&[])
}

/// Writes `number` in decimal to the front of `to`, which has room for ten digits.
fn write_decimal(number: u32, to: &mut [u8]) {
    let digits = number.checked_ilog10().unwrap_or(0);
    for (place, byte) in (0..=digits).rev().zip(to) {
        *byte = b'0' + (number / 10_u32.pow(place) % 10) as u8;
    }
}

// Not in the two libraries' packages: the tests are hither-preload's.
#[cfg(all(test, not(feature = "interpose")))]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn numbers_are_written_whole() {
        for (number, text) in [
            (0, "0"),
            (7, "7"),
            (10, "10"),
            (65_535, "65535"),
            (u32::MAX, "4294967295"),
        ] {
            let mut bytes = [0; 10];
            write_decimal(number, &mut bytes);
            assert_eq!(
                std::str::from_utf8(&bytes).unwrap().trim_end_matches('\0'),
                text
            );
        }
    }

    /// One test, since there is one table and descriptors are the process's.
    #[test]
    fn the_table() {
        TABLE.open();
        a_file_is_defined_once_and_pipes_and_proc_are_ignored();
        a_range_of_descriptors_is_forgotten_and_no_other();
    }

    fn a_range_of_descriptors_is_forgotten_and_no_other() {
        let files: Vec<_> = (0..4).map(|_| tempfile::tempfile().unwrap()).collect();
        let fds: Vec<i32> = files.iter().map(|file| file.as_raw_fd()).collect();
        for &fd in &fds {
            // Numbers that stood for something else before; no hook saw them closed.
            TABLE.forget(fd);
            assert!(look_up(fd, true, &mut |_| true).is_some());
        }
        let (first, last) = (*fds.iter().min().unwrap(), *fds.iter().max().unwrap());
        TABLE.forget_range(first as u32 + 1, u32::MAX);
        assert!(look_up(first, true, &mut |_| panic!("it was to be kept")).is_some());
        let mut defined = 0;
        look_up(last, true, &mut |_| {
            defined += 1;
            true
        });
        assert_eq!(defined, 1);
    }

    fn a_file_is_defined_once_and_pipes_and_proc_are_ignored() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"x").unwrap();
        let fd = file.as_raw_fd();
        let mut defined = 0;
        let first = look_up(fd, true, &mut |_| false);
        assert!(first.is_some());
        for _ in 0..3 {
            assert_eq!(
                look_up(fd, true, &mut |_| {
                    defined += 1;
                    true
                }),
                first
            );
        }
        assert_eq!(defined, 1, "offered again after a refusal, then never");
        TABLE.forget(fd);
        assert_eq!(
            look_up(fd, true, &mut |_| {
                defined += 1;
                true
            }),
            first
        );
        assert_eq!(defined, 2, "a forgotten descriptor is looked up anew");

        let proc = File::open("/proc/self/status").unwrap();
        assert_eq!(
            look_up(proc.as_raw_fd(), true, &mut |_| panic!("nothing to define")),
            None
        );
        let (pipe, _other) = std::io::pipe().unwrap();
        assert_eq!(
            look_up(pipe.as_raw_fd(), true, &mut |_| panic!("nothing to define")),
            None
        );
    }
}
