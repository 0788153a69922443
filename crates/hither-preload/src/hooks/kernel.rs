//! Calls that move bytes inside the kernel: the program never sees them, the page cache does.

use std::ffi::{c_int, c_uint};

use hither_session::record::{IN_KERNEL, Op};
use hither_session::replica::{LENT_BYTES_MIN, SERVABLE, SERVED};
use libc::{off_t, size_t, ssize_t};

use super::{after_call, trampoline};
use crate::real;
use crate::replicas::{self, Sent};
use crate::request::Position;
use crate::signature::Caller;

trampoline! {
    sendfile => sendfile_hook, 4;
    sendfile64 => sendfile64_hook, 4;
}
trampoline! {
    copy_file_range => copy_file_range_hook, 6;
    splice => splice_hook, 6;
}

/// Where one side of the call worked: at the offset that the program gave, which the call has since
/// moved on, or else at the descriptor's own.
///
/// # Safety
/// `offset` is null or points at an offset.
unsafe fn position(offset: *const off_t, result: ssize_t) -> Position {
    // SAFETY: as the caller says.
    match unsafe { offset.as_ref() } {
        Some(&after) => Position::At(after.saturating_sub(result as off_t).max(0) as u64),
        None => Position::BeforeCurrent,
    }
}

/// Records what was read from one side and written to the other; a side that is a pipe or a socket
/// is ignored by the table.
///
/// # Safety
/// Each offset is null or valid.
unsafe fn both_sides(
    flags: u16,
    from: (c_int, *const off_t),
    to: (c_int, *const off_t),
    result: ssize_t,
    caller: Caller,
) {
    for (op, (fd, offset)) in [(Op::Read, from), (Op::Write, to)] {
        if result > 0 {
            // SAFETY: as the caller says.
            let position = unsafe { position(offset, result) };
            after_call::record(op, IN_KERNEL | flags, fd, position, result as u64, caller);
        }
    }
}

/// Defines the hooks of the forms of `sendfile`, each of which has the call served from replicas as
/// far as that goes, makes it for the rest, and records what it moved.
macro_rules! sending {
    ($($hook:ident => $real:ident;)*) => {
        $(
            unsafe extern "C-unwind" fn $hook(
                to: c_int,
                from: c_int,
                offset: *mut off_t,
                count: size_t,
                sp: *const u64,
                fp: u64,
            ) -> ssize_t {
                let caller = Caller { sp, fp };
                let served = if replicas::may_serve() {
                    // SAFETY: the program's own call.
                    unsafe {
                        replicas::send(to, from, offset, count, |at, sent| {
                            let flags = SERVED | IN_KERNEL | SERVABLE;
                            let at = Position::At(at);
                            after_call::record(Op::Read, flags, from, at, sent, caller);
                        })
                    }
                } else {
                    None
                };
                let (sent, left) = match served {
                    None => (0, count),
                    Some(Sent::Part { sent, left }) => (sent, left),
                    Some(Sent::All(sent)) => return sent,
                    Some(Sent::Failed(error)) => return real::fail(error) as ssize_t,
                };
                // SAFETY: the program's own call, passed on but for what was sent already.
                let result = unsafe { real::$real(to, from, offset, left) };
                let flags = if could_be_served(to, result) { SERVABLE } else { 0 };
                // SAFETY: the call took the offset, so it is null or valid.
                unsafe {
                    both_sides(flags, (from, offset), (to, std::ptr::null()), result, caller);
                };
                match sent {
                    0 => result,
                    _ => sent as ssize_t + result.max(0),
                }
            }
        )*
    };
}

/// Whether replicas could have served such a send.
fn could_be_served(to: c_int, result: ssize_t) -> bool {
    replicas::may_serve() && result >= LENT_BYTES_MIN as ssize_t && replicas::is_stream(to)
}

sending! {
    sendfile_hook => sendfile;
    sendfile64_hook => sendfile64;
}

unsafe extern "C-unwind" fn copy_file_range_hook(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
    sp: *const u64,
    fp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::copy_file_range(from, from_at, to, to_at, count, flags) };
    // SAFETY: the call took the offsets, so each is null or valid.
    unsafe { both_sides(0, (from, from_at), (to, to_at), result, Caller { sp, fp }) };
    result
}

unsafe extern "C-unwind" fn splice_hook(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
    sp: *const u64,
    fp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::splice(from, from_at, to, to_at, count, flags) };
    // SAFETY: the call took the offsets, so each is null or valid.
    unsafe { both_sides(0, (from, from_at), (to, to_at), result, Caller { sp, fp }) };
    result
}
