//! From bytes to blocks, and the check of a row's byte range: its blocks must have 32-bit numbers.

use crate::schema::{AccessRow, RowOp};

/// The largest request of one call (Linux stops at `INT_MAX` less a page). A longer one is a
/// corrupt row.
const REQUEST_BYTES_MAX: u64 = i32::MAX as u64;

/// The size of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSize {
    bytes: u32,
    /// Its logarithm, if it is a power of two: a shift is faster than a division.
    shift: Option<u32>,
}

impl BlockSize {
    /// # Panics
    ///
    /// Panics if `bytes` is 0.
    pub(crate) fn new(bytes: u32) -> BlockSize {
        assert_ne!(bytes, 0, "blocks of 0 bytes");
        let shift = bytes.is_power_of_two().then(|| bytes.ilog2());
        BlockSize { bytes, shift }
    }

    /// The number of the block that holds the byte at this offset.
    #[inline]
    pub(crate) fn block_of(self, offset: u64) -> u64 {
        match self.shift {
            Some(shift) => offset >> shift,
            None => offset / u64::from(self.bytes),
        }
    }
}

/// The end of a row's byte range. An error if its blocks cannot have numbers. Transfers and
/// accesses to memory are always referenced.
#[inline]
pub(crate) fn checked_range(
    row: &AccessRow,
    block_size: BlockSize,
    referenced: bool,
) -> Result<u64, String> {
    let transfer = matches!(row.op, RowOp::Read | RowOp::Write);
    if transfer && row.length > REQUEST_BYTES_MAX {
        return Err(format!(
            "a request of {} bytes, more than a call can move",
            row.length
        ));
    }
    if row.op == RowOp::Mark && row.marked().is_none() {
        return Err(format!(
            "a mark of kind {}, neither 0 (iteration) nor 1 (construct)",
            row.offset
        ));
    }
    let free = !(transfer || row.op.is_memory() || referenced);
    match row.offset.checked_add(row.length) {
        Some(end)
            if free || row.length == 0 || block_size.block_of(end - 1) <= u64::from(u32::MAX) =>
        {
            Ok(end)
        }
        None if free => Ok(u64::MAX),
        _ => Err(format!(
            "bytes {} + {} lie beyond 2^32 blocks",
            row.offset, row.length
        )),
    }
}
