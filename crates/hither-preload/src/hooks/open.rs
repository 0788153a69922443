//! Whatever makes descriptors: the table forgets what the number stood for, should something have closed it unseen.

use std::ffi::{c_char, c_int, c_uint};

use libc::FILE;

use crate::recorder::owns_descriptors;
use crate::{files, real};

/// Forgets a descriptor that was just made, and passes it on.
fn fresh(fd: c_int) -> c_int {
    if fd >= 0 && owns_descriptors() {
        files::forget(fd);
    }
    fd
}

fn fresh_stream(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: libc just returned the stream.
        fresh(unsafe { libc::fileno(stream) });
    }
    stream
}

/// Defines exported symbols that make the real call and pass its result through a filter.
macro_rules! filtered {
    ($($symbol:ident $arguments:tt -> $result:ty: $filter:ident($real:ident);)*) => {
        $(filtered!(@define $symbol, $arguments -> $result: $filter($real));)*
    };
    (@define $symbol:ident, ($($argument:ident: $kind:ty),*) -> $result:ty: $filter:ident($real:ident)) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $symbol($($argument: $kind),*) -> $result {
            // SAFETY: the program's own call, passed on.
            $filter(unsafe { real::$real($($argument),*) })
        }
    };
}

// On x86-64 the plain and the 64-bit forms are one function.
filtered! {
    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int: fresh(open64);
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int: fresh(open64);
    __open_2(path: *const c_char, flags: c_int) -> c_int: fresh(__open64_2);
    __open64_2(path: *const c_char, flags: c_int) -> c_int: fresh(__open64_2);
    openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int: fresh(openat64);
    openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int: fresh(openat64);
    __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int: fresh(__openat64_2);
    __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int: fresh(__openat64_2);
    creat(path: *const c_char, mode: c_uint) -> c_int: fresh(creat64);
    creat64(path: *const c_char, mode: c_uint) -> c_int: fresh(creat64);
    mkstemp(template: *mut c_char) -> c_int: fresh(mkstemp64);
    mkstemp64(template: *mut c_char) -> c_int: fresh(mkstemp64);
    mkostemp(template: *mut c_char, flags: c_int) -> c_int: fresh(mkostemp64);
    mkostemp64(template: *mut c_char, flags: c_int) -> c_int: fresh(mkostemp64);
    mkstemps(template: *mut c_char, suffix: c_int) -> c_int: fresh(mkstemps64);
    mkstemps64(template: *mut c_char, suffix: c_int) -> c_int: fresh(mkstemps64);
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int: fresh(mkostemps64);
    mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int: fresh(mkostemps64);
    dup(fd: c_int) -> c_int: fresh(dup);
    dup2(fd: c_int, to: c_int) -> c_int: fresh(dup2);
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int: fresh(dup3);
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE: fresh_stream(fopen64);
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE: fresh_stream(fopen64);
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE: fresh_stream(freopen64);
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE: fresh_stream(freopen64);
    tmpfile() -> *mut FILE: fresh_stream(tmpfile64);
    tmpfile64() -> *mut FILE: fresh_stream(tmpfile64);
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::fcntl64(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        fresh(result)
    } else {
        result
    }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own call, passed on.
    unsafe { fcntl(fd, command, argument) }
}
