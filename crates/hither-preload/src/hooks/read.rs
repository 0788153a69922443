//! The read family: plain, positioned, vectored, and the forms that `_FORTIFY_SOURCE` compiles
//! calls into.

use std::ffi::{c_int, c_void};

use hither_session::record::Op;
use hither_session::replica::SERVED;
use libc::{iovec, off_t, size_t, ssize_t};

use super::{after_call, explicit, trampoline};
use crate::request::Destination::{self, Buffer, Vector};
use crate::request::Position::{self, BeforeCurrent};
use crate::signature::Caller;
use crate::{read_placement, real, replicas};

trampoline! {
    read => read_hook, 3;
    __read => underscored_read_hook, 3;
    readv => readv_hook, 3;
}
trampoline! {
    __read_chk => read_chk_hook, 4;
    pread => pread_hook, 4;
    pread64 => pread64_hook, 4;
    preadv => preadv_hook, 4;
    preadv64 => preadv64_hook, 4;
}
trampoline! {
    __pread_chk => pread_chk_hook, 5;
    __pread64_chk => pread64_chk_hook, 5;
    preadv2 => preadv2_hook, 5;
    preadv64v2 => preadv64v2_hook, 5;
}

/// Defines hooks behind trampolines, each of which has the call served from a replica, or makes it,
/// with pages that it brings in placed, and records the bytes that it moved at the position given.
macro_rules! reading {
    ($(
        $hook:ident => $real:ident($($argument:ident: $kind:ty),*)
        at $position:expr, to $destination:expr;
    )*) => {
        $(
            unsafe extern "C-unwind" fn $hook(
                fd: std::ffi::c_int,
                $($argument: $kind,)*
                sp: *const u64,
                fp: u64,
            ) -> libc::ssize_t {
                let position = $position;
                if !replicas::may_serve() && !read_placement::is_on() {
                    // SAFETY: the program's own call, passed on.
                    let result = unsafe { real::$real(fd, $($argument),*) };
                    after_call::transferred(Op::Read, fd, position, result, sp, fp);
                    return result;
                }
                let to = $destination;
                // SAFETY: the program's own call.
                if let Some(result) = unsafe { serve(fd, position, to, Caller { sp, fp }) } {
                    return result;
                }
                // SAFETY: the program's own call.
                if let Some(result) = unsafe { read_placement::read(fd, position, to, true) } {
                    after_call::transferred(Op::Read, fd, position, result, sp, fp);
                    return result;
                }
                // SAFETY: the program's own call, passed on.
                let result = unsafe { real::$real(fd, $($argument),*) };
                let flags = replicas::flags(fd, position, to, result);
                after_call::transferred_with(Op::Read, flags, fd, position, result, sp, fp);
                read_placement::was_read(fd, position, result);
                result
            }
        )*
    };
}

reading! {
    read_hook => read(buffer: *mut c_void, count: size_t)
        at BeforeCurrent, to Buffer(buffer, count);
    underscored_read_hook => __read(buffer: *mut c_void, count: size_t)
        at BeforeCurrent, to Buffer(buffer, count);
    read_chk_hook => __read_chk(buffer: *mut c_void, count: size_t, size: size_t)
        at BeforeCurrent, to Destination::checked(buffer, count, size);
    readv_hook => readv(vector: *const iovec, count: c_int)
        at BeforeCurrent, to Vector(vector, count);
    pread_hook => pread(buffer: *mut c_void, count: size_t, offset: off_t)
        at explicit(offset), to positive(offset, Buffer(buffer, count));
    pread64_hook => pread64(buffer: *mut c_void, count: size_t, offset: off_t)
        at explicit(offset), to positive(offset, Buffer(buffer, count));
    pread_chk_hook => __pread_chk(buffer: *mut c_void, count: size_t, offset: off_t, size: size_t)
        at explicit(offset), to positive(offset, Destination::checked(buffer, count, size));
    pread64_chk_hook => __pread64_chk(
        buffer: *mut c_void, count: size_t, offset: off_t, size: size_t
    ) at explicit(offset), to positive(offset, Destination::checked(buffer, count, size));
    preadv_hook => preadv(vector: *const iovec, count: c_int, offset: off_t)
        at explicit(offset), to positive(offset, Vector(vector, count));
    preadv64_hook => preadv64(vector: *const iovec, count: c_int, offset: off_t)
        at explicit(offset), to positive(offset, Vector(vector, count));
    preadv2_hook => preadv2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int)
        at explicit(offset), to positive(offset, Destination::flagged(vector, count, flags));
    preadv64v2_hook => preadv64v2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int)
        at explicit(offset), to positive(offset, Destination::flagged(vector, count, flags));
}

/// Serves a read from a replica, and records it. `None` if the real call is to be made. Not
/// inlined: most programs have no replicas, and each of their reads would save registers for it.
///
/// # Safety
/// The arguments are those of the program's own call.
#[inline(never)]
pub(super) unsafe fn serve(
    fd: c_int,
    position: Position,
    to: Destination,
    caller: Caller,
) -> Option<ssize_t> {
    let record = |offset, length| {
        after_call::record(Op::Read, SERVED, fd, Position::At(offset), length, caller);
    };
    // SAFETY: as the caller says.
    unsafe { replicas::serve(fd, position, to, record) }
}

/// Only calls at an offset of theirs are served, which one below 0 is not.
#[inline]
fn positive(offset: off_t, to: Destination) -> Destination {
    match offset {
        0.. => to,
        _ => Destination::KernelOnly,
    }
}
