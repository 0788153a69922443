//! Calls that move the position of a descriptor, or have a stream move it unseen.

use std::ffi::{c_char, c_int};

use libc::{FILE, off_t};

use crate::{lifecycle, real};

/// Defines the names of `lseek`.
macro_rules! seeking {
    ($($symbol:ident),*) => {
        $(
            /// Stands in for libc's function.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $symbol(fd: c_int, offset: off_t, whence: c_int) -> off_t {
                // SAFETY: the program's own call, passed on.
                let result = unsafe { real::$symbol(fd, offset, whence) };
                if let Ok(position) = u64::try_from(result) {
                    lifecycle::sought(fd, position);
                }
                result
            }
        )*
    };
}

seeking! { lseek, lseek64, __lseek }

/// Stands in for libc's function. A stream seeks without calling any symbol.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    lifecycle::position_unfollowed(fd);
    // SAFETY: the program's own call, passed on.
    unsafe { real::fdopen(fd, mode) }
}
