//! Serves reads from replicas.

use std::cell::Cell;

use hither_sys::replica::READ_BYTES_MIN;
use hither_sys::replica::view::{Match, View};
use hither_sys::syscalls;
use libc::iovec;

use super::table;
use super::view::{is_recorded, single_threaded, stop, view};
use crate::request::{Destination, Position};

/// Reads of more bytes are not served: the kernel has a limit, too, and large reads gain nothing.
const READ_BYTES_MAX: usize = 8 << 20;
/// The smallest page that a machine has.
const PAGE_BYTES: usize = 4096;
/// Pages that one system call probes.
const PROBE_PAGES_MAX: usize = 64;

thread_local! {
    /// Served reads since the last one that was recorded.
    static UNRECORDED: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C-unwind" {
    /// Ends the calling thread if that was asked for.
    fn pthread_testcancel();
}

/// A buffer of the program's.
#[derive(Clone, Copy)]
struct Buffer {
    start: *mut u8,
    bytes: usize,
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
    let Destination::Buffer(start, bytes) = into else {
        return None;
    };
    if !(READ_BYTES_MIN..=READ_BYTES_MAX).contains(&bytes) {
        return None;
    }
    let start = start.cast();
    let buffer = Buffer { start, bytes };
    let view = view()?;
    let of = table::matched(view, fd)?;
    if !single_threaded() {
        // SAFETY: the real call is a cancellation point as well, and nothing is held here.
        unsafe { pthread_testcancel() };
    }
    let served = match position {
        // SAFETY: as the caller says.
        Position::At(offset) => unsafe { at(view, of, fd, offset, buffer) },
        // SAFETY: as the caller says.
        Position::BeforeCurrent => unsafe { next(view, of, fd, buffer) },
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

/// Serves the range at an offset.
///
/// # Safety
/// As [`serve`].
unsafe fn at(view: &View, of: Match, fd: i32, offset: u64, buffer: Buffer) -> Option<(u64, isize)> {
    let left = view.bytes(of).saturating_sub(offset);
    let bytes = usize::try_from(left).map_or(buffer.bytes, |left| left.min(buffer.bytes));
    if bytes < READ_BYTES_MIN || !view.holds(of, offset, bytes) || !table::is_file(view, of, fd) {
        return None;
    }
    let buffer = Buffer { bytes, ..buffer };
    // SAFETY: as the caller says.
    let read = unsafe { copy(view, of, fd, offset, buffer) }?;
    Some((offset, read as isize))
}

/// Copies a range that lies within the file of a match, which is that of `fd`. `None` if it is not
/// all there, or may not be of use by now.
///
/// # Safety
/// As [`serve`].
unsafe fn copy(view: &View, of: Match, fd: i32, offset: u64, buffer: Buffer) -> Option<usize> {
    if !probe(fd, offset, buffer) {
        return None;
    }
    // SAFETY: the kernel has just written to each page of the buffer for the program.
    unsafe { view.read(of, offset, buffer.start, buffer.bytes) }
}

/// Has the kernel read a byte into each page of the buffer: whether it does.
///
/// So the descriptor may be read from, through the page cache (a direct read of a byte fails), and
/// each page may be written to; where one may not, the kernel says EFAULT once more in the real
/// call. The bytes are the file's own. Access times are set, and who watches for accesses is told,
/// as by a read.
fn probe(fd: i32, mut offset: u64, buffer: Buffer) -> bool {
    let nothing = iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 1,
    };
    let mut bytes = [nothing; PROBE_PAGES_MAX];
    let end = buffer.start as usize + buffer.bytes;
    let mut address = buffer.start as usize;
    while address < end {
        let mut count = 0;
        for byte in &mut bytes {
            if address >= end {
                break;
            }
            byte.iov_base = address as *mut _;
            address = (address & !(PAGE_BYTES - 1)) + PAGE_BYTES;
            count += 1;
        }
        let arguments = [
            fd as usize,
            bytes.as_ptr() as usize,
            count,
            offset as usize,
            0,
            0,
        ];
        // SAFETY: the kernel writes to the program's buffer, as the program asks for, or refuses.
        let read = unsafe { syscalls::syscall(libc::SYS_preadv, arguments) };
        if read != count as isize {
            return false;
        }
        offset += count as u64;
    }
    true
}

/// Serves the range at the descriptor's own offset, and advances that.
///
/// # Safety
/// As [`serve`].
unsafe fn next(view: &View, of: Match, fd: i32, buffer: Buffer) -> Option<(u64, isize)> {
    let (size, count) = (view.bytes(of), buffer.bytes);
    let expected = table::take_offset(fd, |offset| offset + count as u64 <= size)?;
    // What cannot be served is better seen before the offset is moved.
    let served = view.holds(of, expected, count) && table::is_file(view, of, fd);
    let moved = match served {
        true => syscalls::seek(fd, count as i64, libc::SEEK_CUR).ok(),
        false => None,
    };
    let Some(after) = moved else {
        table::put_offset(fd, expected);
        return None;
    };
    let start = after - count as u64;
    if after <= size && view.holds(of, start, count) {
        // SAFETY: as the caller says.
        let read = unsafe { copy(view, of, fd, start, buffer) };
        if read == Some(count) {
            table::put_offset(fd, after);
            return Some((start, count as isize));
        }
    }
    // The range belongs to this call: no other read gets it. It is read at its offset.
    // SAFETY: as the caller says.
    let result = unsafe { real_at(fd, buffer, start) };
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
unsafe fn real_at(fd: i32, buffer: Buffer, offset: u64) -> isize {
    let (start, offset) = (buffer.start as usize, offset as usize);
    let arguments = [fd as usize, start, buffer.bytes, offset, 0, 0];
    // SAFETY: as the caller says.
    unsafe { syscalls::syscall(libc::SYS_pread64, arguments) }
}

/// The real call has read so much.
#[inline]
pub(crate) fn was_read(fd: i32, position: Position, result: isize) {
    if result > 0 && matches!(position, Position::BeforeCurrent) && view().is_some() {
        table::moved_on(fd, result as u64);
    }
}
