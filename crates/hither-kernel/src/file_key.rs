//! What names a file in every process, whatever its path is.

/// The finalizer of splitmix64: spreads every bit of its input over all of its output.
#[inline]
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The key of a file. Its two lowest bits are free.
pub fn file_key(device: u64, inode: u64, birth_ns: u64) -> u64 {
    (mix(device ^ mix(inode ^ mix(birth_ns))) & !3).max(4)
}
