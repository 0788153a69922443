//! The write family and truncation.

use std::ffi::{CStr, c_char, c_int, c_void};

use hither_sys::raw;
use hither_sys::record::Op;
use libc::{iovec, off_t, size_t};

use super::{explicit, moving, trampoline};
use crate::files;
use crate::real;
use crate::recorder::Position::{At, BeforeCurrent};
use crate::recorder::{self};
use crate::signature::Caller;

trampoline! {
    ftruncate => ftruncate_hook, 2;
    ftruncate64 => ftruncate_hook, 2;
    truncate => truncate_hook, 2;
    truncate64 => truncate_hook, 2;
}
trampoline! {
    write => write_hook, 3;
    writev => writev_hook, 3;
}
trampoline! {
    pwrite => pwrite_hook, 4;
    pwrite64 => pwrite_hook, 4;
    pwritev => pwritev_hook, 4;
    pwritev64 => pwritev_hook, 4;
}
trampoline! {
    pwritev2 => pwritev2_hook, 5;
    pwritev64v2 => pwritev2_hook, 5;
}

moving! {
    Op::Write;
    write_hook => write(buffer: *const c_void, count: size_t) at BeforeCurrent;
    writev_hook => writev(vector: *const iovec, count: c_int) at BeforeCurrent;
    pwrite_hook => pwrite64(buffer: *const c_void, count: size_t, offset: off_t) at explicit(offset);
    pwritev_hook => pwritev64(vector: *const iovec, count: c_int, offset: off_t) at explicit(offset);
    pwritev2_hook => pwritev64v2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int) at explicit(offset);
}

unsafe extern "C-unwind" fn ftruncate_hook(
    fd: c_int,
    length: off_t,
    sp: *const u64,
    rbp: u64,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::ftruncate64(fd, length) };
    if result == 0 {
        recorder::access(
            Op::Truncate,
            0,
            fd,
            At(length as u64),
            0,
            Caller { sp, rbp },
        );
    }
    result
}

unsafe extern "C-unwind" fn truncate_hook(
    path: *const c_char,
    length: off_t,
    sp: *const u64,
    rbp: u64,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::truncate64(path, length) };
    if result == 0 && recorder::session().is_some() {
        // SAFETY: the call took it, so it is a C string.
        let path = unsafe { CStr::from_ptr(path) };
        if let Ok(fd) = raw::open(path, libc::O_PATH) {
            files::forget(fd);
            recorder::access(
                Op::Truncate,
                0,
                fd,
                At(length as u64),
                0,
                Caller { sp, rbp },
            );
            files::forget(fd);
            raw::close(fd);
        }
    }
    result
}
