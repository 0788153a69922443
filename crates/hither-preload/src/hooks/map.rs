//! Mapped files: the mapping is recorded, its touches cannot be seen here.
//!
//! `munmap` is left alone: which file a range belonged to would take an address map behind a lock, and what is known
//! would hardly grow, since the touches in between stay unseen.

use std::ffi::{c_int, c_void};

use hither_sys::record::Op;
use libc::{off_t, size_t};

use super::{explicit, trampoline};
use crate::real;
use crate::recorder;
use crate::signature::Caller;

trampoline! {
    mmap => mmap_hook, 6;
    mmap64 => mmap_hook, 6;
}

unsafe extern "C-unwind" fn mmap_hook(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    sp: *const u64,
    rbp: u64,
) -> *mut c_void {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::mmap64(address, length, protection, flags, fd, offset) };
    if result != libc::MAP_FAILED && flags & libc::MAP_ANONYMOUS == 0 && fd >= 0 {
        recorder::access(
            Op::Map,
            0,
            fd,
            explicit(offset),
            length as u64,
            Caller { sp, rbp },
        );
    }
    result
}
