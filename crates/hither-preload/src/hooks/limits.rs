//! Calls by which a program limits its own memory: the library's counts against the limit, too.
//!
//! The real call comes first, and then the kernel is asked which limits there are. So neither what
//! the program passed nor whose limits it set is looked at. A limit that is set past libc is not
//! noticed; that is why the library takes little at any time.

use std::ffi::{c_int, c_long, c_void};

use crate::{lifecycle, real};

/// Defines exported symbols that make the real call and have limits looked at.
macro_rules! limiting {
    ($($symbol:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            /// Stands in for libc's function.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $symbol($($argument: $kind),*) -> c_int {
                // SAFETY: the program's own call, passed on.
                let result = unsafe { real::$symbol($($argument),*) };
                if result == 0 {
                    lifecycle::memory_was_limited();
                }
                result
            }
        )*
    };
}

limiting! {
    setrlimit(resource: c_int, limit: *const c_void);
    setrlimit64(resource: c_int, limit: *const c_void);
    prlimit(process: c_int, resource: c_int, limit: *const c_void, old: *mut c_void);
    prlimit64(process: c_int, resource: c_int, limit: *const c_void, old: *mut c_void);
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    lifecycle::memory_will_be_locked();
    // SAFETY: the program's own call, passed on.
    unsafe { real::mlockall(flags) }
}

/// Makes the call by number, and has limits looked at.
pub(super) unsafe extern "C-unwind" fn set_by_number(
    number: c_long,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
) -> c_long {
    type Call = unsafe extern "C-unwind" fn(c_long, usize, usize, usize, usize) -> c_long;
    // SAFETY: who returns this to be called has found `syscall`, which takes these words in these
    // registers.
    let real = unsafe { std::mem::transmute::<*mut c_void, Call>(real::SYSCALL.get()) };
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real(number, first, second, third, fourth) };
    if result == 0 {
        lifecycle::memory_was_limited();
    }
    result
}
