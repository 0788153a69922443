//! The write family and truncation.

use std::ffi::{CStr, c_char, c_int, c_void};

use hither_kernel::syscalls;
use hither_session::record::Op;
use libc::{iovec, off_t, size_t};

use super::{after_call, explicit, trampoline, transferring};
use crate::request::Position::{At, BeforeCurrent};
use crate::signature::Caller;
use crate::{lifecycle, real};

trampoline! {
    ftruncate => ftruncate_hook, 2;
    ftruncate64 => ftruncate64_hook, 2;
    truncate => truncate_hook, 2;
    truncate64 => truncate64_hook, 2;
}
trampoline! {
    write => write_hook, 3;
    __write => underscored_write_hook, 3;
    writev => writev_hook, 3;
}
trampoline! {
    pwrite => pwrite_hook, 4;
    pwrite64 => pwrite64_hook, 4;
    pwritev => pwritev_hook, 4;
    pwritev64 => pwritev64_hook, 4;
}
trampoline! {
    pwritev2 => pwritev2_hook, 5;
    pwritev64v2 => pwritev64v2_hook, 5;
}

transferring! {
    Op::Write;
    write_hook => write(buffer: *const c_void, count: size_t) at BeforeCurrent;
    underscored_write_hook => __write(buffer: *const c_void, count: size_t) at BeforeCurrent;
    writev_hook => writev(vector: *const iovec, count: c_int) at BeforeCurrent;
    pwrite_hook => pwrite(buffer: *const c_void, count: size_t, offset: off_t) at explicit(offset);
    pwrite64_hook => pwrite64(buffer: *const c_void, count: size_t, offset: off_t)
        at explicit(offset);
    pwritev_hook => pwritev(vector: *const iovec, count: c_int, offset: off_t) at explicit(offset);
    pwritev64_hook => pwritev64(vector: *const iovec, count: c_int, offset: off_t)
        at explicit(offset);
    pwritev2_hook => pwritev2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int)
        at explicit(offset);
    pwritev64v2_hook => pwritev64v2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int)
        at explicit(offset);
}

/// Defines the hooks of functions that give a file a length, and then say of which descriptor or
/// path.
macro_rules! truncating {
    ($($hook:ident => $real:ident($file:ident: $kind:ty), $record:ident;)*) => {
        $(
            unsafe extern "C-unwind" fn $hook(
                $file: $kind,
                length: off_t,
                sp: *const u64,
                fp: u64,
            ) -> c_int {
                // SAFETY: the program's own call, passed on.
                let result = unsafe { real::$real($file, length) };
                if result == 0 {
                    // SAFETY: the call took the file.
                    unsafe { $record($file, length, Caller { sp, fp }) };
                }
                result
            }
        )*
    };
}

truncating! {
    ftruncate_hook => ftruncate(fd: c_int), truncated;
    ftruncate64_hook => ftruncate64(fd: c_int), truncated;
    truncate_hook => truncate(path: *const c_char), truncated_path;
    truncate64_hook => truncate64(path: *const c_char), truncated_path;
}

/// Records that the file behind `fd` now has this length.
unsafe fn truncated(fd: c_int, length: off_t, caller: Caller) {
    after_call::record(Op::Truncate, 0, fd, At(length as u64), 0, caller);
}

/// Records that the file at `path` now has this length.
///
/// # Safety
/// `path` is a C string.
unsafe fn truncated_path(path: *const c_char, length: off_t, caller: Caller) {
    if lifecycle::files_session().is_none() {
        return;
    }
    // SAFETY: as the caller says.
    let path = unsafe { CStr::from_ptr(path) };
    if let Ok(fd) = syscalls::open(path, libc::O_PATH) {
        lifecycle::closed(fd);
        after_call::record(Op::Truncate, 0, fd, At(length as u64), 0, caller);
        lifecycle::closed(fd);
        syscalls::close(fd);
    }
}
