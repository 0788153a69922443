//! 64-bit Arm. The library is empty there, so nothing looks for it.

use crate::epilogue::Epilogue;

/// What glibc makes of [`TOKEN`](crate::preload::TOKEN): what the kernel says.
pub const PLATFORMS: [&str; 1] = ["aarch64"];

/// `e_machine` of the programs of this machine.
pub const ELF_MACHINE: u16 = libc::EM_AARCH64;

/// Where a signal handler returns to: `mov x8, #139; svc #0`. Linux has it in the vDSO.
pub const SIGNAL_RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

/// What the instructions at a return address do, if they are a known epilogue: CPython's
/// trampolines end by `ldp x29, x30, [sp], #16; ret`.
pub fn epilogue(code: [u8; 16]) -> Option<Epilogue> {
    match code {
        [0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6, ..] => {
            Some(Epilogue::RestoresFramePointer)
        }
        _ => None,
    }
}
