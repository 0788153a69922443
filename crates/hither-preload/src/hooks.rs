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
mod allocate;
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
/// added as its last two arguments. `N` is the number of C arguments: up to four, the two additions
/// fit into registers.
macro_rules! trampoline {
    ($($symbol:ident => $hook:path, 0;)*) => {
        $(trampoline!(@define $symbol, $hook, "mov rdi, rsp", "mov rsi, rbp");)*
    };
    ($($symbol:ident => $hook:path, 3;)*) => {
        $(trampoline!(@define $symbol, $hook, "mov rcx, rsp", "mov r8, rbp");)*
    };
    ($($symbol:ident => $hook:path, 4;)*) => {
        $(trampoline!(@define $symbol, $hook, "mov r8, rsp", "mov r9, rbp");)*
    };
    ($($symbol:ident => $hook:path, 2;)*) => {
        $(trampoline!(@define $symbol, $hook, "mov rdx, rsp", "mov rcx, rbp");)*
    };
    // Five arguments: the stack pointer takes the last register, the frame pointer goes on the
    // stack.
    ($($symbol:ident => $hook:path, 5;)*) => {
        $(
            /// Stands in for libc's function.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C-unwind" fn $symbol() {
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "mov r9, rsp",
                    "push rbp",
                    ".cfi_adjust_cfa_offset 8",
                    "call {hook}",
                    "add rsp, 8",
                    ".cfi_adjust_cfa_offset -8",
                    "ret",
                    ".cfi_endproc",
                    hook = sym $hook,
                )
            }
        )*
    };
    ($($symbol:ident => $hook:path, 6;)*) => {
        $(
            /// Stands in for libc's function.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C-unwind" fn $symbol() {
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "mov rax, rsp",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 8",
                    "push rbp",
                    ".cfi_adjust_cfa_offset 8",
                    "push rax",
                    ".cfi_adjust_cfa_offset 8",
                    "call {hook}",
                    "add rsp, 24",
                    ".cfi_adjust_cfa_offset -24",
                    "ret",
                    ".cfi_endproc",
                    hook = sym $hook,
                )
            }
        )*
    };
    (@define $symbol:ident, $hook:path, $first:literal, $second:literal) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            std::arch::naked_asm!($first, $second, "jmp {hook}", hook = sym $hook)
        }
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
                rbp: u64,
            ) -> libc::ssize_t {
                // SAFETY: the program's own call, passed on.
                let result = unsafe { crate::real::$real(fd, $($argument),*) };
                crate::hooks::after_call::transferred($op, fd, $position, result, sp, rbp);
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
