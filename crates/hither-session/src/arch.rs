//! What depends on the processor: one file for each architecture, which `cfg(target_arch)` picks
//! here, and one for all others.
//!
//! An architecture gives what the dynamic linker calls it, its number in ELF files, and the
//! instructions that a walk of a stack recognises: `SIGNAL_RETURN` and `epilogue`.

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
