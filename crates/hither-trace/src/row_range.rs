//! The check of a row's byte range: its blocks must have 32-bit numbers.

use hither_core::references::{BlockSize, INDEX_MAX};

use crate::schema::{AccessRow, RowOp};

/// The largest request of one call (Linux stops at `INT_MAX` less a page). A longer one is a
/// corrupt row.
const REQUEST_BYTES_MAX: u64 = i32::MAX as u64;

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
            if free || row.length == 0 || block_size.block_of(end - 1) <= u64::from(INDEX_MAX) =>
        {
            Ok(end)
        }
        None if free => Ok(u64::MAX),
        _ => Err(format!(
            "bytes {} + {} lie beyond 2^32 - 1 blocks",
            row.offset, row.length
        )),
    }
}
