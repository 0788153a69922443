//! What depends on the processor: one file for each architecture, which `cfg(target_arch)` picks
//! here, and one for all others.
//!
//! An architecture gives `syscall`, past libc and its `errno`; and `flush`, `fence` and
//! `CAN_FLUSH`, with which [`crate::memory_probe`] and the self-test of [`crate::pmu`] have loads
//! go to memory.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
pub use other::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
