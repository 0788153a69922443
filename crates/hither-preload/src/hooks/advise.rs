//! Advice by the program itself on a file. From then on its readahead is left alone: the program
//! knows best how it reads.
//!
//! `madvise` is advice on a mapping; the descriptor of a mapped file is left alone already.

use std::ffi::c_int;

use libc::{off_t, size_t, ssize_t};

use crate::{readahead, real};

/// Defines exported symbols that have the descriptor left alone and make the real call.
macro_rules! advising {
    ($($symbol:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            /// Stands in for libc's function.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $symbol(fd: c_int, $($argument: $kind),*) -> $result {
                readahead::leave(fd);
                // SAFETY: the program's own call, passed on.
                unsafe { real::$symbol(fd, $($argument),*) }
            }
        )*
    };
}

advising! {
    posix_fadvise(offset: off_t, length: off_t, advice: c_int) -> c_int;
    posix_fadvise64(offset: off_t, length: off_t, advice: c_int) -> c_int;
    readahead(offset: off_t, count: size_t) -> ssize_t;
}
