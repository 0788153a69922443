//! Calls that make descriptors. They clear what is known of the number, in case something has
//! closed it unseen, and those that open a file by its path define the file.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libc::{AT_FDCWD, FILE};

use crate::session::owns_descriptors;
use crate::{lifecycle, real};

/// Clears what is known of a descriptor that was just made, and passes it on.
fn fresh(fd: c_int) -> c_int {
    if fd >= 0 && owns_descriptors() {
        lifecycle::made(fd);
    }
    fd
}

/// As [`fresh`], for one that was opened by a path.
///
/// # Safety
/// The call with this path, relative to the directory behind `at`, has made `fd`.
#[inline]
unsafe fn opened(fd: c_int, at: c_int, path: *const c_char, flags: c_int) -> c_int {
    if fd >= 0 && owns_descriptors() {
        // SAFETY: the kernel took it for a path.
        lifecycle::opened(fd, at, unsafe { CStr::from_ptr(path) }, flags);
    }
    fd
}

/// As [`fresh`], for a descriptor that shares its offset with the one that it was made from.
fn duplicated(of: c_int, fd: c_int) -> c_int {
    if fd >= 0 && owns_descriptors() {
        lifecycle::shared(of);
        if fd != of {
            lifecycle::closed(fd);
        }
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

/// As [`opened`]. A stream moves its position unseen.
///
/// # Safety
/// As [`opened`].
unsafe fn opened_stream(stream: *mut FILE, path: *const c_char) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: libc just returned the stream.
        let fd = unsafe { libc::fileno(stream) };
        // SAFETY: as the caller says.
        unsafe { opened(fd, libc::AT_FDCWD, path, 0) };
        lifecycle::position_unfollowed(fd);
    }
    stream
}

/// Defines exported symbols that make the real call and take note of what it opened.
macro_rules! opening {
    ($($symbol:ident $arguments:tt -> $result:ty: $filter:ident $with:tt;)*) => {
        $(opening!(@define $symbol, $arguments -> $result: $filter, $with);)*
    };
    (
        @define $symbol:ident, ($($argument:ident: $kind:ty),*) -> $result:ty: $filter:ident,
        ($($with:expr),*)
    ) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $symbol($($argument: $kind),*) -> $result {
            // SAFETY: the program's own call, passed on.
            let made = unsafe { real::$symbol($($argument),*) };
            // SAFETY: these are the call's own arguments.
            unsafe { $filter(made, $($with),*) }
        }
    };
}

opening! {
    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int:
        opened(AT_FDCWD, path, flags);
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int:
        opened(AT_FDCWD, path, flags);
    __open_2(path: *const c_char, flags: c_int) -> c_int: opened(AT_FDCWD, path, flags);
    __open64_2(path: *const c_char, flags: c_int) -> c_int: opened(AT_FDCWD, path, flags);
    openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int:
        opened(at, path, flags);
    openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int:
        opened(at, path, flags);
    __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int: opened(at, path, flags);
    __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int: opened(at, path, flags);
    creat(path: *const c_char, mode: c_uint) -> c_int: opened(AT_FDCWD, path, 0);
    creat64(path: *const c_char, mode: c_uint) -> c_int: opened(AT_FDCWD, path, 0);
    mkstemp(template: *mut c_char) -> c_int: opened(AT_FDCWD, template, 0);
    mkstemp64(template: *mut c_char) -> c_int: opened(AT_FDCWD, template, 0);
    mkostemp(template: *mut c_char, flags: c_int) -> c_int: opened(AT_FDCWD, template, flags);
    mkostemp64(template: *mut c_char, flags: c_int) -> c_int: opened(AT_FDCWD, template, flags);
    mkstemps(template: *mut c_char, suffix: c_int) -> c_int: opened(AT_FDCWD, template, 0);
    mkstemps64(template: *mut c_char, suffix: c_int) -> c_int: opened(AT_FDCWD, template, 0);
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int:
        opened(AT_FDCWD, template, flags);
    mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int:
        opened(AT_FDCWD, template, flags);
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE: opened_stream(path);
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE: opened_stream(path);
}

/// Defines exported symbols that make the real call and pass its result through a filter.
macro_rules! filtered {
    ($($symbol:ident $arguments:tt -> $result:ty: $filter:ident;)*) => {
        $(filtered!(@define $symbol, $arguments -> $result: $filter);)*
    };
    (@define $symbol:ident, ($($argument:ident: $kind:ty),*) -> $result:ty: $filter:ident) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $symbol($($argument: $kind),*) -> $result {
            // SAFETY: the program's own call, passed on.
            $filter(unsafe { real::$symbol($($argument),*) })
        }
    };
}

filtered! {
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE: fresh_stream;
    freopen64(
        path: *const c_char, mode: *const c_char, stream: *mut FILE
    ) -> *mut FILE: fresh_stream;
    tmpfile() -> *mut FILE: fresh_stream;
    tmpfile64() -> *mut FILE: fresh_stream;
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the program's own call, passed on.
    duplicated(fd, unsafe { real::dup(fd) })
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: the program's own call, passed on.
    duplicated(fd, unsafe { real::dup2(fd, to) })
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own call, passed on.
    duplicated(fd, unsafe { real::dup3(fd, to, flags) })
}

/// After an `fcntl`, which may have made a descriptor, or changed how one reads.
fn controlled(fd: c_int, command: c_int, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
        libc::F_SETFL if owns_descriptors() => {
            lifecycle::flags_changed(fd);
            result
        }
        _ => result,
    }
}

/// The first three descriptors refer to something else now.
fn standard_replaced() {
    if owns_descriptors() {
        lifecycle::closed_range(0, 2);
    }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn daemon(stay: c_int, keep: c_int) -> c_int {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::daemon(stay, keep) };
    standard_replaced();
    result
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn login_tty(fd: c_int) -> c_int {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::login_tty(fd) };
    standard_replaced();
    lifecycle::closed(fd);
    result
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn forkpty(
    terminal: *mut c_int,
    name: *mut c_char,
    settings: *const c_void,
    size: *const c_void,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::forkpty(terminal, name, settings, size) };
    if result == 0 {
        standard_replaced();
    }
    result
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own call, passed on.
    controlled(fd, command, unsafe { real::fcntl(fd, command, argument) })
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own call, passed on.
    controlled(fd, command, unsafe { real::fcntl64(fd, command, argument) })
}
