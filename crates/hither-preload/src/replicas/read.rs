//! Serves reads from replicas.

use std::cell::Cell;

use hither_kernel::syscalls;
use hither_session::replica::view::{Match, View};
use hither_session::replica::{READ_BYTES_MIN, SERVABLE};

use super::table;
use super::view::{is_recorded, may_serve, single_threaded, stop, view};
use crate::files;
use crate::request::{Destination, Position};

/// Reads of more bytes are not served: they are better cut into pieces by the program, which would
/// otherwise wait for all of them where a replica turns out to be missing at the end.
const READ_BYTES_MAX: usize = 8 << 20;

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

/// Serves a read. One in [`SERVED_EACH`](hither_session::replica::SERVED_EACH) is passed to
/// `record`, with its offset and the bytes read. `None` if the real call is to be made.
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

/// The flag of the record of a read that the real call has made: whether a replica could have
/// served it.
#[inline]
pub(crate) fn flags(fd: i32, position: Position, into: Destination, result: isize) -> u16 {
    let read = usize::try_from(result).unwrap_or(0);
    let servable = may_serve()
        && (READ_BYTES_MIN..=READ_BYTES_MAX).contains(&read)
        && matches!(into, Destination::Buffer(..))
        && (position.offset().is_some() || owns_offset(fd));
    if servable { SERVABLE } else { 0 }
}

/// Whether nobody else moves the offset of `fd`, or gives the number to another file, while this
/// thread does not.
#[inline]
fn owns_offset(fd: i32) -> bool {
    single_threaded() && files::is_alone(fd)
}

/// Serves the range at an offset, as far as the file goes.
///
/// # Safety
/// As [`serve`].
unsafe fn at(view: &View, of: Match, fd: i32, offset: u64, buffer: Buffer) -> Option<(u64, isize)> {
    let left = view.bytes(of).saturating_sub(offset);
    let bytes = usize::try_from(left).map_or(buffer.bytes, |left| left.min(buffer.bytes));
    let may_be_served = bytes >= READ_BYTES_MIN
        && view.holds(of, offset, bytes)
        && table::is_file(view, of, fd)
        && may_read(fd, offset, buffer);
    if !may_be_served {
        return None;
    }
    // SAFETY: the program has asked for these bytes there.
    let read = unsafe { view.read(of, offset, buffer.start, bytes) }?;
    Some((offset, read as isize))
}

/// Serves the range at the descriptor's own offset, and advances that.
///
/// # Safety
/// As [`serve`].
unsafe fn next(view: &View, of: Match, fd: i32, buffer: Buffer) -> Option<(u64, isize)> {
    if !owns_offset(fd) {
        return None;
    }
    let count = buffer.bytes;
    let offset = syscalls::seek(fd, 0, libc::SEEK_CUR).ok()?;
    // SAFETY: as the caller says.
    let (_, read) = unsafe { at(view, of, fd, offset, buffer) }?;
    if read != count as isize {
        return None;
    }
    let after = syscalls::seek(fd, count as i64, libc::SEEK_CUR).ok()?;
    // Whoever saw the offset unmoved until now may have changed the file before.
    if after == offset + count as u64 && view.is_current(of) {
        return Some((offset, read));
    }
    // Somebody shares the offset unseen, and has moved it. The range from there on belongs to this
    // call: no other read gets it. It is read at its offset.
    let start = after.checked_sub(count as u64)?;
    // SAFETY: the program has asked for so many bytes there.
    let result = unsafe { syscalls::read_at(fd, buffer.start, count, start) };
    let unread = count as i64 - result.max(0) as i64;
    if unread > 0 {
        // Seeking back fails only if somebody has set the offset meanwhile; then that holds.
        let _ = syscalls::seek(fd, -unread, libc::SEEK_CUR);
    }
    (result >= 0).then_some((start, result))
}

/// Has the kernel read the first byte: whether it does.
///
/// So the descriptor may be read from, through the page cache (a direct read of a byte fails), and
/// who decides about reads (fanotify) has allowed it. Access times are set, and who watches is told
/// of one access, as by a read.
fn may_read(fd: i32, offset: u64, buffer: Buffer) -> bool {
    // SAFETY: the program has asked for this byte there.
    unsafe { syscalls::read_at(fd, buffer.start, 1, offset) == 1 }
}
