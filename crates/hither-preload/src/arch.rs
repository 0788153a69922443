//! What depends on the processor. One file, with a folder of the same name where it is long, holds
//! all of it for an architecture; `cfg(target_arch)` picks it here.
//!
//! An architecture gives these macros, functions and constants:
//!
//! - `entry!`, which defines a function that jumps to a hook with the caller's stack pointer and
//!   frame pointer as further arguments; `announced!` and `by_number!`, which call something first
//!   and then jump to the real function with all arguments as they were; `listed!`, which makes an
//!   array of an open list of arguments; and for `pages` the entries of the malloc family
//!   (`allocating!`, `resizing!`, `freeing!`) and of OpenMP (`around!`, `member!`);
//! - `REGISTER_ARGUMENTS`: how many arguments of a call lie in registers;
//! - `on_stack`, which calls a function on another stack;
//! - what the walk of a stack has to know: `return_slot` and `sp_above`, which lead from the stack
//!   pointer in a caller to the slot of the return address into it, and back; `frame_pointer`,
//!   which framehop names differently for each processor; for tests `counting!`;
//! - numbers: `BINDINGS` of ELF relocations; `SYS_DUP2`, `SYS_FORK`, `SYS_VFORK`, system calls that
//!   only some architectures have.
//!
//! What else an architecture needs: its name in the `cfg` of `lib.rs`, and its part in
//! `hither-kernel/src/arch.rs` and `hither-session/src/arch.rs`.

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
