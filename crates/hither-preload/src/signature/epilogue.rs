//! Trampolines that were made at run time: CPython's `-X perf` calls each Python function through
//! one of its own.
//!
//! They lie in no module and have no unwind information. But what follows the call is short: the
//! walk does what these instructions will do, and where it finds any others, it ends.

use hither_kernel::this_process;

/// The code at a return address, as much as an epilogue has. `None` if it cannot be read.
pub(super) fn code_at(address: u64) -> Option<[u8; 16]> {
    // Aligned words do not reach into the next page, which may not be mapped.
    let base = address & !7;
    let mut words = [[0], [0]];
    if !this_process::copy_memory(base, &mut words[0]) {
        return None;
    }
    // Where it fails, zeros follow, which are in no epilogue.
    if base
        .checked_add(8)
        .is_none_or(|next| !this_process::copy_memory(next, &mut words[1]))
    {
        words[1] = [0];
    }
    let both = u128::from(words[1][0]) << 64 | u128::from(words[0][0]);
    Some((both >> (8 * (address - base))).to_le_bytes())
}
