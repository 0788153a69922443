//! Calls that close descriptors. What is known of the number is forgotten before it can be used
//! again.

use std::ffi::{c_int, c_uint, c_void};

use libc::DIR;

use crate::session::owns_descriptors;
use crate::{lifecycle, real, signature};

/// Defines the names of `close`.
macro_rules! closing {
    ($($symbol:ident),*) => {
        $(
            /// Stands in for libc's function.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $symbol(fd: c_int) -> c_int {
                if owns_descriptors() {
                    lifecycle::closed(fd);
                }
                // SAFETY: the program's own call, passed on.
                unsafe { real::$symbol(fd) }
            }
        )*
    };
}

closing! { close, __close }

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closedir(directory: *mut DIR) -> c_int {
    if !directory.is_null() && owns_descriptors() {
        // SAFETY: the program is about to close it, so it is open.
        lifecycle::closed(unsafe { libc::dirfd(directory) });
    }
    // SAFETY: the program's own call, passed on.
    unsafe { real::closedir(directory) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if owns_descriptors() {
        lifecycle::closed_range(first, last);
    }
    if flags as c_uint & libc::CLOSE_RANGE_UNSHARE != 0 {
        lifecycle::descriptors_unshared();
    }
    // SAFETY: the program's own call, passed on.
    unsafe { real::close_range(first, last, flags) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    if owns_descriptors() {
        lifecycle::closed_range(first.max(0) as c_uint, c_uint::MAX);
    }
    // SAFETY: the program's own call, passed on.
    unsafe { real::closefrom(first) };
}

/// Stands in for libc's function. Another library may be loaded where this one was.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dlclose(library: *mut c_void) -> c_int {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::dlclose(library) };
    signature::modules_changed();
    result
}
