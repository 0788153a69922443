//! Trampolines that were made at run time: CPython's `-X perf` calls each Python function through
//! one of its own.
//!
//! They lie in no module and have no unwind information. But what follows the call is short: the
//! walk does what these instructions will do, and where it finds any others, it ends.

use hither_kernel::this_process;

/// How a trampoline returns to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Epilogue {
    /// `add $8, %rsp; ret`: CPython 3.12 and 3.13.
    AddsToRsp,
    /// `pop %rbp; ret`: where CPython is built with frame pointers.
    PopsRbp,
}

impl Epilogue {
    /// The epilogue at a return address. `None` if there is other code, or none that can be read.
    pub(super) fn at(address: u64) -> Option<Epilogue> {
        // Aligned words do not reach into the next page, which may not be mapped.
        let base = address & !7;
        let mut words = [[0], [0]];
        if !this_process::copy_memory(base, &mut words[0]) {
            return None;
        }
        // Where it fails, zeros follow, which are in neither epilogue.
        if base
            .checked_add(8)
            .is_none_or(|next| !this_process::copy_memory(next, &mut words[1]))
        {
            words[1] = [0];
        }
        let both = u128::from(words[1][0]) << 64 | u128::from(words[0][0]);
        let code = (both >> (8 * (address - base))).to_le_bytes();
        match code {
            [0x48, 0x83, 0xc4, 0x08, 0xc3, ..] => Some(Epilogue::AddsToRsp),
            [0x5d, 0xc3, ..] => Some(Epilogue::PopsRbp),
            _ => None,
        }
    }
}
