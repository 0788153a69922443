//! Architectures that have no file of their own. The library is empty there, so nothing looks for
//! it.

use crate::epilogue::Epilogue;

/// What glibc makes of [`TOKEN`](crate::preload::TOKEN): what the kernel says.
pub const PLATFORMS: [&str; 1] = [std::env::consts::ARCH];

/// `e_machine` of the programs of this machine.
pub const ELF_MACHINE: u16 = libc::EM_NONE;

/// Where a signal handler returns to: not known.
pub const SIGNAL_RETURN: [u8; 0] = [];

/// What the instructions at a return address do: not known.
pub fn epilogue(_code: [u8; 16]) -> Option<Epilogue> {
    None
}
