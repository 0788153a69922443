//! Counts of requests, made while a trace is loaded. References no longer show where a request
//! began, how many bytes it had, or what was left out.

use serde::Serialize;

use crate::schema::{AccessRow, RowOp};

/// Counts of requests: those on one object, of one call site, or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestCounts {
    /// Reads and writes.
    pub requests: u64,
    /// Requests that began where the same thread's last request on the same object ended.
    pub sequential: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes, of both, that the kernel moved from file to file or socket.
    pub in_kernel_bytes: u64,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Loads from memory.
    pub loads: u64,
    /// Stores to memory.
    pub stores: u64,
    /// Page faults.
    pub faults: u64,
}

impl RequestCounts {
    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &RequestCounts) {
        self.requests += other.requests;
        self.sequential += other.sequential;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
        self.in_kernel_bytes = self.in_kernel_bytes.saturating_add(other.in_kernel_bytes);
        self.mapped_bytes = self.mapped_bytes.saturating_add(other.mapped_bytes);
        self.loads += other.loads;
        self.stores += other.stores;
        self.faults += other.faults;
    }

    #[inline]
    pub(crate) fn add(&mut self, row: &AccessRow, sequential: bool) {
        let count = u64::from(row.count);
        let bytes = row.length.saturating_mul(count);
        let add = |sum: &mut u64| *sum = sum.saturating_add(bytes);
        match row.op {
            RowOp::Read => add(&mut self.read_bytes),
            RowOp::Write => add(&mut self.written_bytes),
            RowOp::Map => add(&mut self.mapped_bytes),
            RowOp::Load => self.loads += count,
            RowOp::Store => self.stores += count,
            RowOp::Fault => self.faults += count,
            RowOp::Unmap | RowOp::Truncate | RowOp::Mark => {}
        }
        if matches!(row.op, RowOp::Read | RowOp::Write) {
            self.requests += count;
            self.sequential += u64::from(sequential);
            if row.in_kernel {
                add(&mut self.in_kernel_bytes);
            }
        }
    }
}

/// Counts of the whole trace, and what did not become a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceCounts {
    /// Counts of all requests.
    pub total: RequestCounts,
    /// Time of the first row, in nanoseconds since the start of the recording.
    pub first_ns: u64,
    /// Time of the last row.
    pub last_ns: u64,
    /// Ranges mapped.
    pub maps: u64,
    /// Mappings removed.
    pub unmaps: u64,
    /// Files truncated or extended.
    pub truncates: u64,
    /// What did not become a reference.
    pub skipped: Skipped,
}

/// Rows and lines of the trace that did not become references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// First blocks of requests that began in the block where the same thread's last request ended.
    pub merged: u64,
    /// Requests that moved no byte, such as reads at the end of a file.
    pub empty: u64,
    /// Requests served inside the kernel, if the options exclude them.
    pub in_kernel: u64,
    /// Ranges mapped, if the options exclude them.
    pub maps: u64,
    /// Lines of a text format that only separate records.
    pub separators: u64,
    /// Records that are no accesses, such as the opening of a file.
    pub left_out: u64,
}
