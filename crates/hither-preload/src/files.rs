//! Which file each descriptor refers to.
//!
//! Most files are defined when the program opens them (`opened`). All others are looked up at their
//! first use, so descriptors that were inherited, received over a socket or opened inside libc need
//! no special case. Hooks on calls that close or copy descriptors only clear rows of the table.
//!
//! A row is four atomic words. The second one says whether the open file description belongs to
//! this process alone, so that changes to it affect nobody else. Then the third one may hold its
//! position: every call that moves it is seen, and a read costs no `lseek`. The fourth one says how
//! much of the file was cached when the program opened it, if all was.
//!
//! The threads of a process share their descriptors. Once one has descriptors of its own
//! (`unshare`), the table is closed, and every access looks its file up.

#[cfg(feature = "interpose")]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "interpose")]
use hither_kernel::syscalls::StatusBuffer;
use hither_kernel::syscalls::{self, FileStatus};
use hither_session::record::Record;

#[cfg(feature = "interpose")]
use crate::cached_before;
use crate::descriptor_table::{Row, Table};

const UNKNOWN: u64 = 0;
/// Not a file whose accesses are recorded: a pipe, a socket, a terminal, something under /proc.
const IGNORED: u64 = 1;
/// The low bits of a known file's word; the others are its key.
const FILE: u64 = 2;
/// The agent has its path.
const DEFINED: u64 = 1;
const KEY: u64 = !3;
/// The low bits of a directory's word, from [`DIRECTORY_FIRST`] on; the others count directories.
#[cfg(feature = "interpose")]
const DIRECTORY: u64 = 1;
#[cfg(feature = "interpose")]
const DIRECTORY_FIRST: u64 = 4 | DIRECTORY;

/// A descriptor without a row is looked up at every use.
#[repr(C)]
pub(crate) struct Descriptor {
    file: AtomicU64,
    /// The value of [`SHARINGS`] when the program opened it, or 0 where another descriptor or
    /// process may share its description.
    opened: AtomicU64,
    /// One more than the position of the description, if it is known; 0 otherwise. It counts only
    /// while the description is this process's alone.
    position: AtomicU64,
    /// So many bytes of the file, all of them, were cached before the program opened it; 0 where
    /// that is not known.
    cached_bytes: AtomicU64,
}

pub(crate) static TABLE: Table<Descriptor> = Table::new();
/// Counts, in steps of [`SHARING`], the times that other processes may have got all descriptors.
/// [`UNTRACEABLE`] is added where others may get each of them at any time.
static SHARINGS: AtomicU64 = AtomicU64::new(SHARING);
const SHARING: u64 = 2;
const UNTRACEABLE: u64 = 1;

/// No descriptor from this number on has a position that is followed.
#[cfg(feature = "interpose")]
static FOLLOWED: AtomicU32 = AtomicU32::new(0);

/// The last directory that was given a word.
#[cfg(feature = "interpose")]
static DIRECTORIES: AtomicU64 = AtomicU64::new(DIRECTORY);

/// Devices without hardware and birth times (/proc, NFS): the last one whose files the kernel makes
/// up, and the last one with real files. 0 for none yet; the devices' numbers are never 0.
static MADE_UP_DEVICE: AtomicU64 = AtomicU64::new(0);
static REAL_DEVICE: AtomicU64 = AtomicU64::new(0);

// SAFETY: four words, of which zeroes are values.
unsafe impl Row for Descriptor {
    fn is_blank(&self) -> bool {
        let words = [&self.file, &self.opened, &self.position, &self.cached_bytes];
        words.map(|word| word.load(Ordering::Relaxed)) == [UNKNOWN, 0, 0, 0]
    }

    fn forget(&self) {
        self.opened.store(0, Ordering::Relaxed);
        self.position.store(0, Ordering::Relaxed);
        self.cached_bytes.store(0, Ordering::Relaxed);
        self.file.store(UNKNOWN, Ordering::Relaxed);
    }
}

impl Descriptor {
    /// Whether the program has opened it, and nobody has shared it since.
    #[inline]
    fn is_alone(&self) -> bool {
        let sharings = SHARINGS.load(Ordering::Acquire);
        sharings & UNTRACEABLE == 0 && self.opened.load(Ordering::Acquire) == sharings
    }
}

/// The program has just opened `fd`, whose row is blank. Its position is followed from here on if
/// that is asked for.
#[cfg(feature = "interpose")]
pub(crate) fn opened(fd: i32, follow: bool) {
    if let Some(entry) = TABLE.row(fd) {
        let sharings = SHARINGS.load(Ordering::Relaxed);
        let position = u64::from(follow);
        if follow {
            FOLLOWED.fetch_max(fd as u32 + 1, Ordering::Relaxed);
        }
        entry.position.store(position, Ordering::Relaxed);
        entry.opened.store(sharings, Ordering::Release);
    }
}

/// A call on `fd` has moved its position on by `length`. Returns where it began, if that is known.
#[cfg(feature = "interpose")]
#[inline]
pub(crate) fn advance(fd: i32, length: u64) -> Option<u64> {
    let position = &TABLE.row(fd)?.position;
    if position.load(Ordering::Relaxed) == 0 {
        return None;
    }
    if !is_alone(fd) {
        position.store(0, Ordering::Relaxed);
        return None;
    }
    // Calls of several threads each get a part of their own, as from the kernel.
    position.fetch_add(length, Ordering::Relaxed).checked_sub(1)
}

/// The program has set the position of `fd`.
#[cfg(feature = "interpose")]
pub(crate) fn sought(fd: i32, position: u64) {
    if let Some(entry) = TABLE.row(fd)
        && entry.position.load(Ordering::Relaxed) != 0
    {
        entry
            .position
            .store(position.saturating_add(1), Ordering::Relaxed);
    }
}

/// The position of `fd` moves in ways that are not followed.
#[cfg(feature = "interpose")]
#[inline]
pub(crate) fn forget_position(fd: i32) {
    if let Some(entry) = TABLE.row(fd)
        && entry.position.load(Ordering::Relaxed) != 0
    {
        entry.position.store(0, Ordering::Relaxed);
    }
}

/// Calls on files are not recorded, so that positions move unseen.
#[cfg(feature = "interpose")]
#[inline]
pub(crate) fn forget_positions() {
    if FOLLOWED.load(Ordering::Relaxed) != 0 {
        forget_all_positions();
    }
}

#[cfg(feature = "interpose")]
#[cold]
fn forget_all_positions() {
    for fd in 0..FOLLOWED.swap(0, Ordering::Relaxed) {
        forget_position(fd as i32);
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

/// Whether another process may share descriptions, or this process's memory, at any time.
#[cfg(feature = "interpose")]
pub(crate) fn are_untraceable() -> bool {
    SHARINGS.load(Ordering::Acquire) & UNTRACEABLE != 0
}

/// Whether the program has opened `fd`, and nobody has shared it since.
pub(crate) fn is_alone(fd: i32) -> bool {
    TABLE.row(fd).is_some_and(Descriptor::is_alone)
}

/// Which directory `fd` stands for: a number that no other directory of this process has had. 0
/// where it has none.
#[cfg(feature = "interpose")]
pub(crate) fn directory(fd: i32) -> u64 {
    let row = TABLE.row(fd);
    let word = row.map_or(UNKNOWN, |entry| entry.file.load(Ordering::Relaxed));
    if word & !KEY == DIRECTORY && word >= DIRECTORY_FIRST {
        word
    } else {
        0
    }
}

/// Gives the directory behind `fd` a number, if it has none. 0 if there is no row for it.
#[cfg(feature = "interpose")]
pub(crate) fn remember_directory(fd: i32) -> u64 {
    let Some(entry) = TABLE.row(fd) else { return 0 };
    let word = match directory(fd) {
        0 => DIRECTORIES.fetch_add(!KEY + 1, Ordering::Relaxed) + !KEY + 1,
        word => word,
    };
    entry.file.store(word, Ordering::Relaxed);
    word
}

/// What is known of what a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The file with this key, whose path the agent has.
    File(u64),
    /// Something whose accesses are not recorded.
    Ignored,
    /// Nothing, or the agent does not have its path.
    Nothing,
}

impl Known {
    /// The key of the file.
    #[inline]
    pub(crate) fn file(self) -> Option<u64> {
        match self {
            Known::File(key) => Some(key),
            Known::Ignored | Known::Nothing => None,
        }
    }
}

/// What is known of `fd`.
#[inline]
pub(crate) fn known(fd: i32) -> Known {
    let known = TABLE
        .row(fd)
        .map_or(UNKNOWN, |entry| entry.file.load(Ordering::Relaxed));
    match known {
        _ if known & !KEY == IGNORED => Known::Ignored,
        _ if known & (FILE | DEFINED) == FILE | DEFINED => Known::File(known & KEY),
        _ => Known::Nothing,
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
    let known = if ours { known(fd) } else { Known::Nothing };
    if known != Known::Nothing {
        return known.file();
    }
    let found = describe(fd, define, |_, _| None);
    if let (true, Some(entry)) = (ours, TABLE.row(fd)) {
        entry.file.store(found, Ordering::Relaxed);
    }
    (found != IGNORED).then_some(found & KEY)
}

/// Defines the file behind `fd`, which the program has just opened, and says first what of it is
/// cached.
#[cfg(feature = "interpose")]
pub(crate) fn look_up_opened(fd: i32, define: &mut dyn FnMut(&Record<'_>) -> bool) {
    let mut cached_bytes = 0;
    let found = describe(fd, define, |status, push| {
        let said = cached_before::push(fd, status.id.key().0, status.size, push);
        cached_bytes = if said.is_whole { status.size } else { 0 };
        said.asked_pages
    });
    if let Some(entry) = TABLE.row(fd) {
        entry.cached_bytes.store(cached_bytes, Ordering::Relaxed);
        entry.file.store(found, Ordering::Relaxed);
    }
}

/// What a status says of a file's kind.
enum Kind {
    /// Its accesses are recorded, unless its path says otherwise.
    File,
    /// Its accesses are not recorded.
    Ignored,
    /// Only its path can tell.
    Unknown,
}

fn kind_of(status: &FileStatus) -> Kind {
    let kind = status.mode & libc::S_IFMT;
    if kind != libc::S_IFREG && kind != libc::S_IFBLK {
        return Kind::Ignored;
    }
    // The kernel's own file systems have no birth times.
    if status.id.birth_ns != 0 || !status.is_without_hardware() {
        return Kind::File;
    }
    match status.id.device {
        device if device == MADE_UP_DEVICE.load(Ordering::Relaxed) => Kind::Ignored,
        device if device == REAL_DEVICE.load(Ordering::Relaxed) => Kind::File,
        _ => Kind::Unknown,
    }
}

/// The status of the file behind `fd`, which the program has just opened by a path below no special
/// directory. `None` if its accesses are not recorded, or only its first use will show whether they
/// are.
#[cfg(feature = "interpose")]
pub(crate) fn opened_file(fd: i32, buffer: &mut StatusBuffer) -> Option<FileStatus> {
    let status = buffer.status(fd).ok()?;
    match kind_of(&status) {
        Kind::File => Some(status),
        Kind::Ignored => {
            if let Some(entry) = TABLE.row(fd) {
                entry.file.store(IGNORED, Ordering::Relaxed);
            }
            None
        }
        Kind::Unknown => None,
    }
}

/// The agent has the path of the file of this key, which `fd` stands for. Of it so many bytes were
/// cached before this process opened it, or 0.
#[cfg(feature = "interpose")]
pub(crate) fn defined(fd: i32, key: u64, cached_bytes: u64) {
    if let Some(entry) = TABLE.row(fd) {
        entry.cached_bytes.store(cached_bytes, Ordering::Relaxed);
        entry.file.store(key | FILE | DEFINED, Ordering::Relaxed);
    }
}

/// Whether so many bytes of the file behind `fd` were cached before this process opened it.
#[cfg(feature = "interpose")]
#[inline]
pub(crate) fn was_cached(fd: i32, offset: u64, length: u64) -> bool {
    let cached_bytes = |entry: &Descriptor| entry.cached_bytes.load(Ordering::Relaxed);
    TABLE.row(fd).map_or(0, cached_bytes) >= offset.saturating_add(length)
}

/// The record that defines a file. Of so many pages of its front it is known what was cached when
/// it was opened.
pub(crate) fn object<'a>(
    status: &FileStatus,
    asked_pages: Option<u32>,
    path: &'a [u8],
) -> Record<'a> {
    Record::Object {
        object: status.id.key(),
        id: status.id,
        size: status.size,
        asked_pages,
        path,
    }
}

/// The record that accesses to a file bypass the page cache.
fn direct(status: &FileStatus) -> Record<'static> {
    Record::Direct {
        object: status.id.key(),
    }
}

/// Whether accesses through `fd` bypass the page cache.
fn is_direct(fd: i32) -> bool {
    syscalls::status_flags(fd).is_ok_and(|flags| flags & libc::O_DIRECT != 0)
}

/// The entry for `fd`. `ask` says of how many pages of its front it is known what is cached.
fn describe(
    fd: i32,
    define: &mut dyn FnMut(&Record<'_>) -> bool,
    ask: impl FnOnce(&FileStatus, &mut dyn FnMut(&Record<'_>) -> bool) -> Option<u32>,
) -> u64 {
    let Ok(status) = syscalls::status(fd) else {
        return IGNORED;
    };
    let kind = kind_of(&status);
    if let Kind::Ignored = kind {
        return IGNORED;
    }
    let mut path = [0; 4096];
    let path = path_of(fd, &mut path);
    // Files made up by the kernel and memory files have no page cache to steer.
    let made_up: [&[u8]; 3] = [b"/proc/", b"/sys/", b"/memfd:"];
    let made_up = made_up.iter().any(|prefix| path.starts_with(prefix));
    if let Kind::Unknown = kind {
        let devices = if made_up {
            &MADE_UP_DEVICE
        } else {
            &REAL_DEVICE
        };
        devices.store(status.id.device, Ordering::Relaxed);
    }
    if made_up {
        return IGNORED;
    }
    let asked_pages = ask(&status, define);
    let defined =
        define(&object(&status, asked_pages, path)) && (!is_direct(fd) || define(&direct(&status)));
    status.id.key().0 | FILE | if defined { DEFINED } else { 0 }
}

/// The path of the file behind `fd`, as /proc has it; empty if it does not say.
pub(crate) fn path_of(fd: i32, buffer: &mut [u8]) -> &[u8] {
    // A thread may have descriptors of its own; then there is no table.
    let folder: &[u8] = if TABLE.is_open() {
        b"/proc/self/fd/"
    } else {
        b"/proc/thread-self/fd/"
    };
    let mut link = [0; 32];
    for (to, from) in link.iter_mut().zip(folder) {
        *to = *from;
    }
    let digits = folder.len()..folder.len() + 10;
    if let (Ok(fd), Some(digits)) = (u32::try_from(fd), link.get_mut(digits)) {
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
