//! Calls that unmap memory or make it read-only: buffers that reads went to may not be writable any
//! more.
//!
//! `munmap`, `mmap` and, with the feature `pages`, `mremap` are hooked elsewhere.

use std::ffi::{c_int, c_void};

use libc::size_t;

use crate::{buffers, real};

/// Defines exported symbols that note this and make the real call.
macro_rules! changing {
    ($($symbol:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            /// Stands in for libc's function.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $symbol($($argument: $kind),*) -> $result {
                buffers::changed();
                // SAFETY: the program's own call, passed on.
                unsafe { real::$symbol($($argument),*) }
            }
        )*
    };
}

changing! {
    mprotect(address: *mut c_void, length: size_t, protection: c_int) -> c_int;
    pkey_mprotect(address: *mut c_void, length: size_t, protection: c_int, key: c_int) -> c_int;
    shmdt(address: *const c_void) -> c_int;
    brk(end: *mut c_void) -> c_int;
    sbrk(increment: isize) -> *mut c_void;
}
#[cfg(not(feature = "pages"))]
changing! {
    mremap(
        address: *mut c_void, length: size_t, to: size_t, flags: c_int, at: *mut c_void
    ) -> *mut c_void;
}
