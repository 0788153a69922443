//! What a recorded program may have written over: its records and its counts of losses lie in
//! memory that any stray store of it can reach. What no recorder writes is refused, so that no
//! total is nonsense.

use hither_ids::Pid;

use crate::record::{Op, Record};

/// The most bytes that Linux moves in one call (`MAX_RW_COUNT`), rounded up.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 1 << 31;

/// No offset in a file is beyond this.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The end of a program's addresses, with page tables of five levels.
const ADDRESS_MAX: u64 = 1 << 56;

/// No process has a higher number (`PID_MAX_LIMIT`).
const PID_MAX: Pid = Pid(4 << 20);

/// Whether a recorder may have written this record. `is_past` says whether a time has come.
pub(crate) fn is_plausible(record: &Record<'_>, is_past: impl FnOnce(u64) -> bool) -> bool {
    match *record {
        Record::Access {
            op,
            time_ns,
            offset,
            length,
            ..
        } => {
            let length_max = match op {
                Op::Read | Op::Write | Op::Fault => TRANSFER_BYTES_MAX,
                Op::Map | Op::Unmap | Op::Truncate => FILE_BYTES_MAX,
                Op::Insert | Op::UseByOthers | Op::Evict => return false,
            };
            length <= length_max && ends_by(FILE_BYTES_MAX, offset, length) && is_past(time_ns)
        }
        Record::Cached { offset, length, .. } => ends_by(FILE_BYTES_MAX, offset, length),
        Record::Object { size, .. } => size <= FILE_BYTES_MAX,
        Record::Process {
            pid,
            parent,
            time_ns,
            ..
        } => pid <= PID_MAX && parent <= PID_MAX && is_past(time_ns),
        Record::Exec { pid, time_ns, .. } => pid <= PID_MAX && is_past(time_ns),
        Record::ExecFailed { pid } => pid <= PID_MAX,
        Record::Region {
            start,
            length,
            time_ns,
            ..
        }
        | Record::RegionEnd {
            start,
            length,
            time_ns,
        } => ends_by(ADDRESS_MAX, start.0, length) && is_past(time_ns),
        // Answers to bind requests repeat their ranges, whatever these are.
        Record::Bound { time_ns, .. }
        | Record::Construct { time_ns, .. }
        | Record::At { time_ns, .. } => is_past(time_ns),
        Record::Site { .. } | Record::Module { .. } | Record::IoUring | Record::Direct { .. } => {
            true
        }
    }
}

fn ends_by(limit: u64, start: u64, length: u64) -> bool {
    start.checked_add(length).is_some_and(|end| end <= limit)
}

#[cfg(test)]
mod tests {
    use hither_ids::{Address, FileKey};
    use hither_kernel::file_id::FileId;

    use super::*;

    fn access(op: Op, time_ns: u64, offset: u64, length: u64) -> Record<'static> {
        Record::Access {
            op,
            flags: 0,
            cpu: 0,
            time_ns,
            signature: 0,
            object: FileKey(0),
            offset,
            length,
        }
    }

    #[test]
    fn what_no_recorder_writes_is_refused() {
        let plausible = |record: &Record<'_>| is_plausible(record, |time_ns| time_ns <= 100);
        let end = FILE_BYTES_MAX;
        for good in [
            access(Op::Read, 100, 0, 0x7fff_f000),
            access(Op::Write, 1, end - 5, 5),
            access(Op::Map, 1, 0, end),
            access(Op::Truncate, 1, end, 0),
            Record::Object {
                object: FileKey(0),
                id: FileId {
                    device: u64::MAX,
                    inode: u64::MAX,
                    birth_ns: u64::MAX,
                },
                size: end,
                asked_pages: None,
                path: b"",
            },
            Record::ExecFailed { pid: PID_MAX },
            Record::RegionEnd {
                start: Address(0),
                length: ADDRESS_MAX,
                time_ns: 1,
            },
        ] {
            assert!(plausible(&good), "{good:?}");
        }
        for bad in [
            access(Op::Read, 101, 0, 1),
            access(Op::Read, 1, 0, 1 << 32),
            access(Op::Read, 1, end - 5, 6),
            access(Op::Read, 1, u64::MAX, 1),
            access(Op::Map, 1, 1, end),
            Record::ExecFailed {
                pid: Pid(PID_MAX.0 + 1),
            },
            Record::RegionEnd {
                start: Address(1),
                length: ADDRESS_MAX,
                time_ns: 1,
            },
            Record::At {
                cpu: 0,
                time_ns: u64::MAX,
            },
        ] {
            assert!(!plausible(&bad), "{bad:?}");
        }
    }
}
