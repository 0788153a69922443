//! What depends on the processor when a stack is followed: one file for each architecture, which
//! `cfg(target_arch)` picks here.
//!
//! An architecture gives framehop's types (`Unwinder`, `Cache`, `Registers`) and what they differ
//! in, where a return address lies (`check_return`), whether frames without a table can be guessed
//! (`CAN_GUESS`), and what a call looks like (`call_before`, `jumps_to`).

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(target_arch = "aarch64"))]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::*;
#[cfg(not(target_arch = "aarch64"))]
pub(super) use x86_64::*;

/// What is before a return address.
pub(super) enum Call {
    /// Of the function that begins here.
    Of(u64),
    /// By a pointer.
    Indirect,
    None,
}

/// A step of a walk: the registers in a frame and in its caller.
#[cfg_attr(
    not(target_arch = "aarch64"),
    expect(
        dead_code,
        reason = "where calls push return addresses, the caller's registers say all"
    )
)]
pub(super) struct Return {
    pub(super) before: Registers,
    pub(super) after: Registers,
    /// The return address.
    pub(super) address: u64,
    /// The link register had it: nothing on the stack says it.
    pub(super) is_linked: bool,
}
