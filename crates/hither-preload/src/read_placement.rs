//! Places the file pages that a program's reads bring into the page cache on the nodes that the
//! agent named.
//!
//! The kernel allocates such pages, and those that it reads ahead, by the memory policy of the
//! reading thread. So a read that may bring pages in is made under a policy of ours; a read of
//! resident pages is made as ever. The kernel cannot be asked beforehand which of these a read is:
//! `RWF_NOWAIT` reads ahead before it says that something is missing, and a read of resident pages
//! starts the next readahead where it meets the kernel's mark. So `resident_filter` remembers what
//! was read, and what was not read yet counts as missing, unless `cachestat` says that the page
//! cache has it to well beyond the read (256 KiB in one call).
//!
//! **What the program does not see.** The thread's policy is checked before and restored after; a
//! thread that has one of its own is left alone. All signals are blocked in between, so that no
//! handler runs under our policy, forks, or leaves by a jump; a read of a regular file waits for
//! storage, which no signal but a fatal one ends anyway. The call goes past libc, whose
//! cancellation would unwind through here; the thread can be cancelled before it. Short reads and
//! errors are the kernel's own. The filter may be wrong: it decides how the call is made, and never
//! what it returns.
//!
//! **What is not placed.** Pages that come by touching a mapping, by `sendfile` and its like, which
//! wait for sockets, and what is written.

use std::sync::atomic::{AtomicU64, Ordering};

use hither_kernel::memory_policy::{Bind, BindMode};
use hither_kernel::page_bytes;
use hither_kernel::syscalls;
use hither_session::program_session::ProgramSession;

use crate::real;
use crate::request::{Destination, Position};
use crate::resident_filter::{self, Pages, window_bytes};
use crate::session;

/// A bit each node; 0 where nothing is placed.
static NODES: AtomicU64 = AtomicU64::new(0);

const DEFAULT: Bind = Bind {
    mode: BindMode::Default,
    nodes: 0,
};

unsafe extern "C-unwind" {
    /// Ends the calling thread if that was asked for.
    fn pthread_testcancel();
}

/// Places pages from now on, if the agent wants that. To be called when the library is loaded.
pub(crate) fn start(session: &ProgramSession) {
    let nodes = session.file_nodes();
    if nodes != 0 && resident_filter::prepare() {
        NODES.store(nodes, Ordering::Release);
    }
}

/// No page is placed in this process any more.
pub(crate) fn stop() {
    NODES.store(0, Ordering::Release);
}

/// Whether pages are placed in this process.
#[inline]
pub(crate) fn is_on() -> bool {
    NODES.load(Ordering::Relaxed) != 0
}

/// Makes a read that may bring pages in. If the call is `cancellable`, a thread that is to be
/// cancelled is cancelled before. `None` if the real call is to be made, as if nothing had been
/// tried.
///
/// # Safety
/// The arguments are those of the program's own call.
#[inline]
pub(crate) unsafe fn read(
    fd: i32,
    position: Position,
    into: Destination,
    cancellable: bool,
) -> Option<isize> {
    let nodes = NODES.load(Ordering::Acquire);
    if nodes == 0 {
        return None;
    }
    let count = match into {
        Destination::Buffer(_, count) => count as u64,
        // The array may be nowhere: the kernel is to find out.
        Destination::Vector(..) => 1,
        Destination::KernelOnly => return None,
    };
    if resident_filter::needs_no_pages(fd, position.offset(), count) {
        return None;
    }
    if cancellable {
        // SAFETY: the program's own call is a cancellation point as well, and nothing is held here.
        unsafe { pthread_testcancel() };
    }
    // SAFETY: as the caller says.
    unsafe { read_missing(nodes, fd, position, into, count) }
}

/// The real call has returned this.
#[inline]
pub(crate) fn was_read(fd: i32, position: Position, result: isize) {
    if result > 0 && NODES.load(Ordering::Acquire) != 0 {
        advance(fd, position, result as u64);
    }
}

fn advance(fd: i32, position: Position, length: u64) {
    if let Position::BeforeCurrent = position {
        resident_filter::advance(fd, length);
    }
}

/// As [`read`], of pages that may be missing.
///
/// # Safety
/// As [`read`].
#[cold]
unsafe fn read_missing(
    nodes: u64,
    fd: i32,
    position: Position,
    into: Destination,
    count: u64,
) -> Option<isize> {
    // The child of a vfork has other descriptors than the parent whose memory this is.
    let session = session::current().filter(|_| session::owns_descriptors())?;
    let status = syscalls::status(fd).ok()?;
    if status.mode & libc::S_IFMT != libc::S_IFREG {
        resident_filter::ignore(fd);
        return None;
    }
    let file = status.id.key();
    let offset = match position.offset() {
        Some(offset) => offset,
        None => syscalls::seek(fd, 0, libc::SEEK_CUR).ok()?,
    };
    let pages = Pages::of(file.0, offset, count, status.size)?;
    resident_filter::learn(fd, file.0, offset);
    if pages.are_resident() {
        return None;
    }
    if pages.is_new() && is_cached(fd, offset, status.size) {
        pages.mark_window();
        if pages.are_resident() {
            return None;
        }
    }
    if syscalls::thread_has_policy() {
        pages.mark();
        session.count_file_read(false);
        return None;
    }
    let before = syscalls::block_signals(u64::MAX);
    let ours = syscalls::set_policy(Bind {
        mode: BindMode::Preferred,
        nodes: resident_filter::node_of_window(nodes, file.0, offset),
    });
    if ours.is_err() {
        syscalls::block_signals(before);
        stop();
        return None;
    }
    // SAFETY: as the caller says.
    let result = unsafe { call(fd, position, into) };
    // It cannot fail: the default takes no memory.
    let _ = syscalls::set_policy(DEFAULT);
    syscalls::block_signals(before);
    session.count_file_read(true);
    if let Some(pages) = Pages::of(file.0, offset, result.max(0) as u64, status.size) {
        pages.mark();
    }
    if result < 0 {
        return Some(real::fail(-result as i32) as isize);
    }
    advance(fd, position, result as u64);
    Some(result)
}

/// Whether the window that a read is in is cached, and the next one: then no read in it brings
/// pages in, nor starts readahead.
fn is_cached(fd: i32, offset: u64, size: u64) -> bool {
    let start = offset - offset % window_bytes();
    let length = (2 * window_bytes()).min(size - start);
    let found = syscalls::cachestat(fd, start, length);
    found.is_ok_and(|found| found.cached >= length.div_ceil(page_bytes()))
}

/// The call as the program made it, past libc.
///
/// # Safety
/// As [`read`].
unsafe fn call(fd: i32, position: Position, into: Destination) -> isize {
    let (address, count) = match into {
        Destination::Buffer(buffer, count) => (buffer as usize, count),
        Destination::Vector(vector, count) => (vector as usize, count as usize),
        Destination::KernelOnly => return -(libc::EINVAL as isize),
    };
    let (number, offset) = match (into, position) {
        (Destination::Buffer(..), Position::At(offset)) => (libc::SYS_pread64, offset),
        (Destination::Buffer(..), Position::BeforeCurrent) => (libc::SYS_read, 0),
        (_, Position::At(offset)) => (libc::SYS_preadv, offset),
        (_, Position::BeforeCurrent) => (libc::SYS_readv, 0),
    };
    let arguments = [fd as usize, address, count, offset as usize, 0, 0];
    // SAFETY: as the caller says.
    unsafe { syscalls::syscall(number, arguments) }
}
