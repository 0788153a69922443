//! What depends on the processor: one file for each architecture, which `cfg(target_arch)` picks
//! here, and one for all others.
//!
//! An architecture gives what the dynamic linker calls it, and its number in ELF files.

#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub use other::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
