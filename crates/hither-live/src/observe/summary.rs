//! What a recording holds, in numbers.

use hither_trace::schema::{AccessRow, RowOp};

/// What a recording holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingSummary {
    /// Calls that read, wrote, mapped or truncated a file.
    pub accesses: u64,
    /// Bytes that were read, including those that the kernel moved by itself (`sendfile`).
    pub bytes_read: u64,
    /// Bytes that were written, including those that the kernel moved by itself.
    pub bytes_written: u64,
    /// Files that were accessed.
    pub objects: usize,
    /// Call sites, without the unknown one.
    pub sites: usize,
    /// Program images.
    pub processes: usize,
    /// Threads that made an access.
    pub threads: usize,
    /// Accesses that arrived too late to be sorted by time.
    pub out_of_order: u64,
}

impl RecordingSummary {
    pub(crate) fn add(&mut self, row: &AccessRow) {
        self.accesses += u64::from(row.count);
        match row.op {
            RowOp::Read => self.bytes_read = self.bytes_read.saturating_add(row.length),
            RowOp::Write => self.bytes_written = self.bytes_written.saturating_add(row.length),
            // The rest moves no bytes, or is not recorded.
            _ => {}
        }
    }
}
