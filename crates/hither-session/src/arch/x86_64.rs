//! x86-64.

use crate::epilogue::Epilogue;

/// What glibc makes of [`TOKEN`](crate::preload::TOKEN): what the kernel says, or its own name for
/// the processor (`init_cpu_features`). All but the first are other names of one folder.
pub const PLATFORMS: [&str; 3] = ["x86_64", "haswell", "xeon_phi"];

/// `e_machine` of the programs that can load the library.
pub const ELF_MACHINE: u16 = libc::EM_X86_64;

/// Where a signal handler returns to: `mov $15, %rax; syscall`.
pub const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// What the instructions at a return address do, if they are a known epilogue: CPython's
/// trampolines end by `add $8, %rsp; ret` (3.12 and 3.13), or by `pop %rbp; ret` where it is built
/// with frame pointers.
pub fn epilogue(code: [u8; 16]) -> Option<Epilogue> {
    match code {
        [0x48, 0x83, 0xc4, 0x08, 0xc3, ..] => Some(Epilogue::SkipsWord),
        [0x5d, 0xc3, ..] => Some(Epilogue::RestoresFramePointer),
        _ => None,
    }
}
