//! x86-64 with the System V calling convention.
//!
//! Arguments lie in rdi, rsi, rdx, rcx, r8, r9 and then on the stack; rax, r10 and r11 are free on
//! entry, but for `al` of variadic functions. A call pushes its return address.

#[cfg(any(feature = "interpose", test))]
#[macro_use]
mod entry;
#[cfg(feature = "pages")]
#[macro_use]
mod heap;
#[cfg(feature = "pages")]
#[macro_use]
mod openmp;
#[cfg(test)]
#[macro_use]
mod tests;

#[cfg(feature = "interpose")]
use std::ffi::{c_long, c_void};

use framehop::x86_64::UnwindRegsX86_64;

/// How many arguments of a call lie in registers.
#[cfg(feature = "interpose")]
pub(crate) const REGISTER_ARGUMENTS: usize = 6;

/// System calls that not every architecture has: a negative number of its own each where it is
/// missing.
#[cfg(feature = "interpose")]
pub(crate) const SYS_DUP2: c_long = libc::SYS_dup2;
#[cfg(feature = "interpose")]
pub(crate) const SYS_FORK: c_long = libc::SYS_fork;
#[cfg(feature = "interpose")]
pub(crate) const SYS_VFORK: c_long = libc::SYS_vfork;

/// `R_X86_64_64`, `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT`, the relocations that become a
/// symbol's address.
#[cfg(feature = "pages")]
pub(crate) const BINDINGS: [u64; 3] = [1, 6, 7];

/// The frame pointer among the registers that the unwinder follows.
pub(crate) fn frame_pointer(registers: &UnwindRegsX86_64) -> u64 {
    registers.bp()
}

/// Where the return address into a function lies, whose stack pointer is `sp` after the return.
pub(crate) fn return_slot(sp: u64) -> u64 {
    sp - 8
}

/// The stack pointer of a function after the return into it by the address at `slot`.
pub(crate) fn sp_above(slot: u64) -> u64 {
    slot + 8
}

/// Calls `call(data)` with the stack pointer at `top`.
#[cfg(feature = "interpose")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn on_stack(
    _top: *mut u8,
    _call: unsafe extern "C" fn(*mut c_void),
    _data: *mut c_void,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
