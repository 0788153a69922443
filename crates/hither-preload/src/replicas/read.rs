//! Serves reads from replicas.

use std::cell::Cell;

use hither_sys::replica::view::{Match, View};
use hither_sys::syscalls;
use libc::{iovec, off_t};

use super::table;
use super::view::{is_recorded, is_vfork_child, single_threaded, stop, view};
use crate::buffers;
use crate::request::{Destination, Position};

/// Reads of more bytes are not served: the kernel has a limit, too, and large reads gain nothing.
const READ_BYTES_MAX: usize = 8 << 20;
/// Reads into more buffers are not served.
const VECTOR_BUFFERS_MAX: usize = 64;

thread_local! {
    /// Served reads since the last one that was recorded.
    static UNRECORDED: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C-unwind" {
    /// Ends the calling thread if that was asked for.
    fn pthread_testcancel();
}

/// Serves a read. One in [`SERVED_EACH`](hither_sys::replica::SERVED_EACH) is passed to `record`,
/// with its offset and the bytes read. `None` if the real call is to be made.
///
/// # Safety
/// The arguments are those of the program's own call.
#[inline]
pub(crate) unsafe fn serve(
    fd: i32,
    position: Position,
    into: Destination,
    record: impl FnOnce(u64, u64),
) -> Option<isize> {
    let view = view()?;
    let of = table::matched(view, fd)?;
    if is_vfork_child() {
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
    if result > 0 && is_recorded(&UNRECORDED) {
        record(offset, result as u64);
    }
    Some(result)
}

/// What one read of the range would return, copied. `None` if not all of it has replicas, or they
/// may have expired.
///
/// # Safety
/// As [`serve`].
#[inline]
unsafe fn copy(view: &View, of: Match, offset: u64, into: Destination) -> Option<isize> {
    match into {
        Destination::Buffer(buffer, count) => {
            let fits = (1..=READ_BYTES_MAX).contains(&count)
                && buffers::are_writable(buffer as u64, count);
            // SAFETY: the kernel has written to these bytes for the program, which asks for it
            // again.
            fits.then(|| unsafe { view.read(of, offset, buffer.cast(), count) })?
                .map(|read| read as isize)
        }
        Destination::Vector(vector, count) => {
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
        Destination::KernelOnly => None,
    }
}

/// The buffers of a vectored read, if the kernel has written to all of them.
///
/// # Safety
/// As [`serve`].
unsafe fn buffers_of<'a>(vector: *const iovec, count: i32) -> Option<&'a [iovec]> {
    let count = usize::try_from(count)
        .ok()
        .filter(|count| (1..=VECTOR_BUFFERS_MAX).contains(count))?;
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
    (1..=READ_BYTES_MAX).contains(&sum).then_some(buffers)
}

/// Serves the range at the descriptor's own offset, and advances that.
///
/// # Safety
/// As [`serve`].
unsafe fn next(view: &View, of: Match, fd: i32, into: Destination) -> Option<(u64, isize)> {
    let count = match into {
        Destination::Buffer(buffer, count) => {
            buffers::are_writable(buffer as u64, count).then_some(count)?
        }
        Destination::Vector(vector, count) => {
            // SAFETY: as the caller says.
            let buffers = unsafe { buffers_of(vector, count) }?;
            buffers.iter().map(|buffer| buffer.iov_len).sum()
        }
        Destination::KernelOnly => return None,
    };
    if !(1..=READ_BYTES_MAX).contains(&count) {
        return None;
    }
    let bytes = view.bytes(of);
    let expected = table::take_offset(fd, |offset| offset + count as u64 <= bytes)?;
    // Better to find out before the offset is advanced that the range cannot be served.
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
    // The range belongs to this call: no other read gets it. It is read at its offset.
    // SAFETY: as the caller says.
    let result = unsafe { real_at(fd, into, start) };
    let unread = count as i64 - (result.max(0) as i64);
    if unread > 0 {
        // Seeking back fails only if another thread has set the offset meanwhile; then that holds.
        let _ = syscalls::seek(fd, -unread, libc::SEEK_CUR);
    }
    table::put_offset(fd, start + result.max(0) as u64);
    (result >= 0).then_some((start, result))
}

/// Reads by the kernel, at an offset.
///
/// # Safety
/// As [`serve`].
unsafe fn real_at(fd: i32, into: Destination, offset: u64) -> isize {
    let (number, address, count) = match into {
        Destination::Buffer(buffer, count) => (libc::SYS_pread64, buffer as usize, count),
        Destination::Vector(vector, count) => (libc::SYS_preadv, vector as usize, count as usize),
        Destination::KernelOnly => return -1,
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
pub(crate) unsafe fn was_read(fd: i32, position: Position, into: Destination, result: isize) {
    if result <= 0 || view().is_none() {
        return;
    }
    match into {
        Destination::Buffer(buffer, _) => buffers::wrote(buffer as u64, result as usize),
        Destination::Vector(vector, count) => {
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
        Destination::KernelOnly => {}
    }
    if let Position::BeforeCurrent = position {
        table::moved_on(fd, result as u64);
    }
}
