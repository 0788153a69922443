//! The read family: plain, positioned, vectored, and the forms that `_FORTIFY_SOURCE` compiles calls into.

use std::ffi::{c_int, c_void};

use hither_sys::record::Op;
use libc::{iovec, off_t, size_t, ssize_t};

use super::{explicit, moved, trampoline};
use crate::real;
use crate::recorder::Position::BeforeCurrent;

trampoline! {
    read => read_hook, 3;
    readv => readv_hook, 3;
}
trampoline! {
    __read_chk => read_chk_hook, 4;
    pread => pread_hook, 4;
    pread64 => pread_hook, 4;
    preadv => preadv_hook, 4;
    preadv64 => preadv_hook, 4;
}
trampoline! {
    __pread_chk => pread_chk_hook, 5;
    __pread64_chk => pread_chk_hook, 5;
    preadv2 => preadv2_hook, 5;
    preadv64v2 => preadv2_hook, 5;
}

unsafe extern "C-unwind" fn read_hook(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    sp: *const u64,
    rbp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::read(fd, buffer, count) };
    moved(Op::Read, fd, BeforeCurrent, result, sp, rbp);
    result
}

unsafe extern "C-unwind" fn read_chk_hook(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    size: size_t,
    sp: *const u64,
    rbp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::__read_chk(fd, buffer, count, size) };
    moved(Op::Read, fd, BeforeCurrent, result, sp, rbp);
    result
}

unsafe extern "C-unwind" fn readv_hook(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    sp: *const u64,
    rbp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::readv(fd, vector, count) };
    moved(Op::Read, fd, BeforeCurrent, result, sp, rbp);
    result
}

unsafe extern "C-unwind" fn pread_hook(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    offset: off_t,
    sp: *const u64,
    rbp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::pread64(fd, buffer, count, offset) };
    moved(Op::Read, fd, explicit(offset), result, sp, rbp);
    result
}

unsafe extern "C-unwind" fn pread_chk_hook(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    offset: off_t,
    size: size_t,
    sp: *const u64,
    rbp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::__pread64_chk(fd, buffer, count, offset, size) };
    moved(Op::Read, fd, explicit(offset), result, sp, rbp);
    result
}

unsafe extern "C-unwind" fn preadv_hook(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off_t,
    sp: *const u64,
    rbp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::preadv64(fd, vector, count, offset) };
    moved(Op::Read, fd, explicit(offset), result, sp, rbp);
    result
}

unsafe extern "C-unwind" fn preadv2_hook(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
    sp: *const u64,
    rbp: u64,
) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::preadv64v2(fd, vector, count, offset, flags) };
    moved(Op::Read, fd, explicit(offset), result, sp, rbp);
    result
}
