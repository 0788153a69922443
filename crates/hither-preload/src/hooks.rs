//! The functions that this library puts in front of libc's, one family a file.
//!
//! A hook makes the real call first, with the arguments as they came, and returns what it returned,
//! `errno` included. Hooks that record need their caller's stack pointer and frame pointer as they
//! were on entry, so each such symbol is a [`trampoline`]: a few instructions that pass both on as
//! further arguments and jump to the hook proper. Nothing of ours is then on the stack that is
//! walked.
//!
//! Many of these calls are cancellation points, and C++ exceptions may pass through callbacks:
//! everything is `C-unwind`, and no hook holds anything with a destructor, or the recorder's busy
//! flag, across a real call.

use crate::request::Position;

mod advise;
mod after_call;
#[cfg(feature = "pages")]
pub(crate) mod allocate;
mod close;
pub(crate) mod exec;
mod io_uring;
mod kernel;
mod limits;
mod map;
#[cfg(feature = "pages")]
mod moments;
mod open;
#[cfg(feature = "pages")]
pub(crate) mod openmp;
mod process;
mod read;
mod seccomp;
mod seek;
pub(crate) mod stdio;
mod write;

/// Defines exported symbols that jump to a hook with the caller's stack pointer and frame pointer
/// added as its last two arguments. The number is that of the C arguments.
macro_rules! trampoline {
    ($($symbol:ident => $hook:path, $arguments:tt;)*) => {
        $(entry! {
            #[doc = "Stands in for libc's function."]
            #[unsafe(no_mangle)]
            $symbol => $hook, $arguments
        })*
    };
}
pub(crate) use trampoline;

/// Defines hooks behind [`trampoline`]s, each of which makes the real call on a descriptor and
/// records the bytes that it moved at the position given.
macro_rules! transferring {
    (
        $op:expr;
        $($hook:ident => $real:ident($($argument:ident: $kind:ty),*) at $position:expr;)*
    ) => {
        $(
            unsafe extern "C-unwind" fn $hook(
                fd: std::ffi::c_int,
                $($argument: $kind,)*
                sp: *const u64,
                fp: u64,
            ) -> libc::ssize_t {
                // SAFETY: the program's own call, passed on.
                let result = unsafe { crate::real::$real(fd, $($argument),*) };
                crate::hooks::after_call::transferred($op, fd, $position, result, sp, fp);
                result
            }
        )*
    };
}
pub(crate) use transferring;

/// The position that a call with an explicit offset works at; -1 asks the vectored calls for the
/// current one.
#[inline]
fn explicit(offset: i64) -> Position {
    u64::try_from(offset).map_or(Position::BeforeCurrent, Position::At)
}
