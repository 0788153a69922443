//! Reads that are served from replicas: a copy out of shared memory in place of a system call.
//!
//! A read is served if the file behind its descriptor has replicas of all that it asks for, and the
//! checks of [`hither_sys::replica`] hold after the copy; otherwise the real call is made, as if
//! nothing had been tried. What must be known beforehand:
//!
//! - *The file*, from the descriptor (`table`). Whatever closes or replaces descriptors has the
//!   table forget; where that cannot be seen (descriptors shared with or unshared from another
//!   process, io_uring, stdio of an unknown layout), no read is served in this process any more.
//! - *The buffer* ([`crate::buffers`]). The kernel fails with EFAULT where a copy would kill the
//!   program, so only memory that the kernel has written to is copied to.
//! - *The offset*, for `read` and `readv`. It stays in the kernel: it is moved on first, which is
//!   atomic and makes the range this read's, and then the range is served; if it cannot be after
//!   all, by a real `pread`. Only of descriptors that this process has opened and not shared since:
//!   where the file ends the offset must be put back, which others could see.
//!
//! A served call is a cancellation point, as the real one is. It is told of once in sixteen times.
//!
//! Differences that remain: the access time is as old as the last read that reached the kernel, at
//! most six hours more than relatime allows; watches of inotify and fanotify for accesses, counters
//! of read calls in /proc and tracers do not see what is served.

mod send;
mod table;

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread::LocalKey;

use hither_sys::record::Op;
use hither_sys::replica::view::{Match, View};
use hither_sys::replica::{SERVED, SERVED_EACH};
use hither_sys::syscalls;
use libc::{iovec, off_t};

pub(crate) use self::send::{Sent, is_stream, send};
pub(crate) use self::table::{TABLE, opened};
pub(crate) use crate::buffers::changed as memory_changed;
use crate::recorder::{self, Position};
use crate::signature::Caller;
use crate::{arena, buffers};

/// What is asked for at once, at most: the kernel has a limit, too, and large reads gain nothing.
const COUNT_MAX: usize = 8 << 20;
const VECTOR_MAX: usize = 64;

static VIEW: AtomicPtr<View> = AtomicPtr::new(std::ptr::null_mut());
/// glibc's word on whether there is one thread only, where it has one (2.32).
static SINGLE: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The thread has called `vfork`: it may be the child by now, whose descriptors are its own
    /// while its memory is its parent's.
    static SUSPECT: Cell<bool> = const { Cell::new(false) };
    /// Reads served since the last that was told of.
    static UNTOLD: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C-unwind" {
    /// Ends the calling thread if that was asked for.
    fn pthread_testcancel();
}

/// Where a read puts what it reads.
#[derive(Clone, Copy)]
pub(crate) enum Into {
    /// One buffer.
    Buffer(*mut c_void, usize),
    /// Several, one after the other.
    Vector(*const iovec, i32),
    /// A call that is not served.
    Unserved,
}

impl Into {
    /// Of a call that says how large its buffer is and is ended with the program where that is not
    /// enough.
    pub(crate) fn checked(buffer: *mut c_void, count: usize, size: usize) -> Into {
        match count <= size {
            true => Into::Buffer(buffer, count),
            false => Into::Unserved,
        }
    }

    /// Of a call with flags.
    pub(crate) fn flagged(vector: *const iovec, count: i32, flags: i32) -> Into {
        match flags {
            0 => Into::Vector(vector, count),
            _ => Into::Unserved,
        }
    }
}

/// Has reads served in this process from now on, where there is something to serve them from. Opens
/// files; to be called when the library is loaded.
pub(crate) fn start() {
    let Some(session) = recorder::files_session() else {
        return;
    };
    // A program that may have little address space has other uses for it.
    if syscalls::address_space_is_limited() || !arena::open() {
        return;
    }
    arena::apart(&mut || {
        let Some(view) = session.replicas() else {
            return;
        };
        if !TABLE.open() {
            return;
        }
        // SAFETY: the name is a C string.
        let single = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        SINGLE.store(single.cast(), Ordering::Relaxed);
        VIEW.store(Box::into_raw(Box::new(view)), Ordering::Release);
    });
}

/// No read is served in this process any more.
pub(crate) fn stop() {
    VIEW.store(std::ptr::null_mut(), Ordering::Release);
}

/// Whether there is anything to serve reads from.
#[inline]
pub(crate) fn may_serve() -> bool {
    !VIEW.load(Ordering::Relaxed).is_null()
}

#[inline]
fn view() -> Option<&'static View> {
    // SAFETY: it is null or the view made by `start`, which is never freed.
    unsafe { VIEW.load(Ordering::Acquire).as_ref() }
}

/// This thread is about to call `vfork`.
pub(crate) fn suspect() {
    SUSPECT.set(true);
}

/// After a fork, in the child.
pub(crate) fn forked() {
    buffers::changed();
    send::forked();
}

#[inline]
fn is_another() -> bool {
    if !SUSPECT.get() {
        return false;
    }
    let another = recorder::process() != syscalls::pid();
    SUSPECT.set(another);
    another
}

/// Whether there is one thread only.
#[inline]
pub(crate) fn single_threaded() -> bool {
    let single = SINGLE.load(Ordering::Relaxed);
    // SAFETY: it is null or glibc's variable, which only ever changes when a thread is made or
    // joined.
    !single.is_null() && unsafe { single.read_volatile() } != 0
}

/// Serves a read, and tells of it. `None` if the real call is to be made.
///
/// # Safety
/// The arguments are those of the program's own call.
#[inline]
pub(crate) unsafe fn serve(
    fd: i32,
    position: Position,
    into: Into,
    caller: Caller,
) -> Option<isize> {
    let view = view()?;
    let of = table::matched(view, fd)?;
    if is_another() {
        return None;
    }
    if !single_threaded() {
        // SAFETY: the real call is a cancellation point as well, and nothing is held here.
        unsafe { pthread_testcancel() };
    }
    let served = match position {
        Position::At(offset) => {
            // SAFETY: as the caller says.
            unsafe { copy(view, of, offset, into) }.map(|result| (offset, result))
        }
        // SAFETY: as the caller says.
        Position::BeforeCurrent => unsafe { next(view, of, fd, into) },
    };
    let Some((offset, result)) = served else {
        if view.is_ended() {
            stop();
        }
        return None;
    };
    if result > 0 {
        tell(&UNTOLD, fd, offset, SERVED, result as u64, caller);
    }
    Some(result)
}

/// Tells of a call that was served, once in so many times of those that `untold_of` counts.
#[inline]
fn tell(
    untold_of: &'static LocalKey<Cell<u32>>,
    fd: i32,
    offset: u64,
    flags: u16,
    length: u64,
    caller: Caller,
) {
    let untold = untold_of.get() + 1;
    untold_of.set(untold % SERVED_EACH);
    if untold == SERVED_EACH {
        recorder::access(Op::Read, flags, fd, Position::At(offset), length, caller);
    }
}

/// What one read of the range would return, copied. `None` if it is not all there, or may not be of
/// use by now.
///
/// # Safety
/// As [`serve`].
#[inline]
unsafe fn copy(view: &View, of: Match, offset: u64, into: Into) -> Option<isize> {
    match into {
        Into::Buffer(buffer, count) => {
            let fits =
                (1..=COUNT_MAX).contains(&count) && buffers::are_writable(buffer as u64, count);
            // SAFETY: the kernel has written to these bytes for the program, which asks for it
            // again.
            fits.then(|| unsafe { view.read(of, offset, buffer.cast(), count) })?
                .map(|read| read as isize)
        }
        Into::Vector(vector, count) => {
            // SAFETY: as the caller says; the kernel has read the array before.
            let buffers = unsafe { buffers_of(vector, count) }?;
            let mut done = 0;
            for &iovec { iov_base, iov_len } in buffers {
                // SAFETY: as above.
                let read =
                    unsafe { view.read(of, offset + done as u64, iov_base.cast(), iov_len) }?;
                done += read;
                if read < iov_len {
                    break;
                }
            }
            Some(done as isize)
        }
        Into::Unserved => None,
    }
}

/// The buffers of a vectored read, if the kernel has written to all of them.
///
/// # Safety
/// As [`serve`].
unsafe fn buffers_of<'a>(vector: *const iovec, count: i32) -> Option<&'a [iovec]> {
    let count = usize::try_from(count)
        .ok()
        .filter(|count| (1..=VECTOR_MAX).contains(count))?;
    if !buffers::is_readable(vector as u64, count * size_of::<iovec>()) {
        return None;
    }
    // SAFETY: the kernel has read so many of them there.
    let buffers = unsafe { std::slice::from_raw_parts(vector, count) };
    let mut sum = 0_usize;
    for buffer in buffers {
        sum = sum.checked_add(buffer.iov_len)?;
        if buffer.iov_len > 0 && !buffers::are_writable(buffer.iov_base as u64, buffer.iov_len) {
            return None;
        }
    }
    (1..=COUNT_MAX).contains(&sum).then_some(buffers)
}

/// Serves the range behind the descriptor's own offset, which moves on.
///
/// # Safety
/// As [`serve`].
unsafe fn next(view: &View, of: Match, fd: i32, into: Into) -> Option<(u64, isize)> {
    let count = match into {
        Into::Buffer(buffer, count) => {
            buffers::are_writable(buffer as u64, count).then_some(count)?
        }
        Into::Vector(vector, count) => {
            // SAFETY: as the caller says.
            let buffers = unsafe { buffers_of(vector, count) }?;
            buffers.iter().map(|buffer| buffer.iov_len).sum()
        }
        Into::Unserved => return None,
    };
    if !(1..=COUNT_MAX).contains(&count) {
        return None;
    }
    let bytes = view.bytes(of);
    let expected = table::take_offset(fd, |offset| offset + count as u64 <= bytes)?;
    // What cannot be served is better seen before the offset is moved.
    let moved = match view.holds(of, expected, count) {
        true => syscalls::seek(fd, count as i64, libc::SEEK_CUR).ok(),
        false => None,
    };
    let Some(after) = moved else {
        table::put_offset(fd, expected);
        return None;
    };
    let start = after - count as u64;
    if after <= bytes {
        // SAFETY: as the caller says.
        let served = unsafe { copy(view, of, start, into) };
        if let Some(result) = served.filter(|&result| result == count as isize) {
            table::put_offset(fd, after);
            return Some((start, result));
        }
    }
    // The range is this call's: nobody else reads it. It is read where it is.
    // SAFETY: as the caller says.
    let result = unsafe { real_at(fd, into, start) };
    let unread = count as i64 - (result.max(0) as i64);
    if unread > 0 {
        // Seeking back fails only where somebody has set the offset meanwhile, whose word then
        // holds.
        let _ = syscalls::seek(fd, -unread, libc::SEEK_CUR);
    }
    table::put_offset(fd, start + result.max(0) as u64);
    (result >= 0).then_some((start, result))
}

/// Reads by the kernel, at an offset.
///
/// # Safety
/// As [`serve`].
unsafe fn real_at(fd: i32, into: Into, offset: u64) -> isize {
    let (number, address, count) = match into {
        Into::Buffer(buffer, count) => (libc::SYS_pread64, buffer as usize, count),
        Into::Vector(vector, count) => (libc::SYS_preadv, vector as usize, count as usize),
        Into::Unserved => return -1,
    };
    let arguments = [fd as usize, address, count, offset as usize, 0, 0];
    // SAFETY: as the caller says.
    unsafe { syscalls::syscall(number, arguments) }
}

/// The real call has sent so much: the kernel has found a place good for the offset.
pub(crate) fn was_sent(offset: *const off_t, result: isize) {
    if result > 0 && !offset.is_null() && view().is_some() {
        buffers::wrote(offset as u64, size_of::<off_t>());
    }
}

/// The real call has read so much: the kernel has found the buffers good.
///
/// # Safety
/// The arguments are those of a call that succeeded.
#[inline]
pub(crate) unsafe fn was_read(fd: i32, position: Position, into: Into, result: isize) {
    if result <= 0 || view().is_none() {
        return;
    }
    match into {
        Into::Buffer(buffer, _) => buffers::wrote(buffer as u64, result as usize),
        Into::Vector(vector, count) => {
            buffers::read(vector as u64, count as usize * size_of::<iovec>());
            // SAFETY: the kernel has read so many of them there.
            let buffers = unsafe { std::slice::from_raw_parts(vector, count as usize) };
            let mut left = result as usize;
            for buffer in buffers {
                let length = buffer.iov_len.min(left);
                buffers::wrote(buffer.iov_base as u64, length);
                left -= length;
            }
        }
        Into::Unserved => {}
    }
    if let Position::BeforeCurrent = position {
        table::moved_on(fd, result as u64);
    }
}
