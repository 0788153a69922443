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
