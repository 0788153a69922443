//! What a trace's requests add up to, counted while it is loaded: the stream of references no
//! longer knows where a request began, how many bytes it asked for, or what was left out.

use serde::Serialize;

use crate::schema::{AccessRow, RowOp};

/// Sums over some of a trace's requests: those on one object, of one call site, or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Reads and writes.
    pub requests: u64,
    /// Those that started where the same thread's last request on the same object ended.
    pub sequential: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Of both: bytes that the kernel moved from file to file or socket.
    pub in_kernel_bytes: u64,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Accesses to memory that read.
    pub loads: u64,
    /// Accesses to memory that wrote.
    pub stores: u64,
    /// Page faults.
    pub faults: u64,
}

impl Tally {
    /// Adds another one.
    pub(crate) fn merge(&mut self, other: &Tally) {
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

/// Sums over the whole trace, and what did not become a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Over all requests.
    pub total: Tally,
    /// Time of the first row, in nanoseconds since the start of the recording.
    pub first_ns: u64,
    /// Time of the last row.
    pub last_ns: u64,
    /// Ranges mapped.
    pub maps: u64,
    /// Mappings removed.
    pub unmaps: u64,
    /// Files cut or extended.
    pub truncates: u64,
    /// What did not become a reference.
    pub skipped: Skipped,
}

/// What did not become a reference although it stands in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// First blocks of requests that began in the block where the same thread's last request ended.
    pub merged: u64,
    /// Requests that moved no byte (reads at the end of a file).
    pub empty: u64,
    /// Requests served inside the kernel, where these were not wanted.
    pub in_kernel: u64,
    /// Ranges mapped, where these were not wanted.
    pub maps: u64,
    /// Lines that a text format uses to separate and not to refer.
    pub separators: u64,
}
