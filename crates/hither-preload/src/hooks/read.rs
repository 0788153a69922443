//! The read family: plain, positioned, vectored, and the forms that `_FORTIFY_SOURCE` compiles calls into.

use std::ffi::{c_int, c_void};

use hither_sys::record::Op;
use libc::{iovec, off_t, size_t};

use super::{explicit, moving, trampoline};
use crate::recorder::Position::BeforeCurrent;

trampoline! {
    read => read_hook, 3;
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

moving! {
    Op::Read;
    read_hook => read(buffer: *mut c_void, count: size_t) at BeforeCurrent;
    read_chk_hook => __read_chk(buffer: *mut c_void, count: size_t, size: size_t) at BeforeCurrent;
    readv_hook => readv(vector: *const iovec, count: c_int) at BeforeCurrent;
    pread_hook => pread(buffer: *mut c_void, count: size_t, offset: off_t) at explicit(offset);
    pread64_hook => pread64(buffer: *mut c_void, count: size_t, offset: off_t) at explicit(offset);
    pread_chk_hook => __pread_chk(buffer: *mut c_void, count: size_t, offset: off_t, size: size_t) at explicit(offset);
    pread64_chk_hook => __pread64_chk(buffer: *mut c_void, count: size_t, offset: off_t, size: size_t) at explicit(offset);
    preadv_hook => preadv(vector: *const iovec, count: c_int, offset: off_t) at explicit(offset);
    preadv64_hook => preadv64(vector: *const iovec, count: c_int, offset: off_t) at explicit(offset);
    preadv2_hook => preadv2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int) at explicit(offset);
    preadv64v2_hook => preadv64v2(vector: *const iovec, count: c_int, offset: off_t, flags: c_int) at explicit(offset);
}
