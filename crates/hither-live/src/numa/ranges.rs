//! Ranges of pages, as the mover gets and reports them and as they are logged.

use std::fmt;
use std::io;

use hither_ids::{Address, KernelNode};
use serde::{Deserialize, Serialize};

/// The outcome of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MoveResult {
    pub(crate) job: u64,
    /// Pages that were moved.
    pub(crate) moved: u32,
    /// Pages that were on the target node already.
    pub(crate) there: u32,
    /// Pages that do not exist yet, as they were never touched.
    pub(crate) absent: u32,
    /// Huge pages that were moved, as wholes.
    #[serde(default)]
    pub(crate) huge: u32,
    /// Processor time that it took: waiting for a processor is no cost of moving.
    pub(crate) took_ns: u64,
    /// Runs of pages that were not moved.
    pub(crate) refused: Vec<RefusedRun>,
}

/// A run of pages on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocatedRun {
    /// Index of the first page in the range.
    pub(crate) first: u32,
    pub(crate) pages: u32,
    /// The kernel's number.
    pub(crate) node: KernelNode,
}

/// A run of pages that were not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefusedRun {
    /// Index of the first page in the range.
    pub(crate) first: u32,
    pub(crate) pages: u32,
    pub(crate) why: RefusalReason,
}

/// Why pages were not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RefusalReason {
    Busy,
    Shared,
    NoRoom,
    NotPermitted,
    NoProcess,
    NodeNotAllowed,
    /// There are no such pages: never touched, swapped out, or unmapped meanwhile.
    Absent,
    /// Most of its huge page is not to be moved.
    PartOfHuge,
    /// The mover stopped before it reached them.
    Untried,
    Error(i32),
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefusalReason::Busy => "in use by the kernel at that moment",
            RefusalReason::Shared => "mapped by programs, which use them without telling",
            RefusalReason::NoRoom => "no room on the node",
            RefusalReason::NotPermitted => "not permitted: a container forbids move_pages",
            RefusalReason::NoProcess => "the process is gone",
            RefusalReason::NodeNotAllowed => "the cpuset does not allow the node",
            RefusalReason::Absent => "not there any more",
            RefusalReason::PartOfHuge => "a part of a huge page that is used elsewhere",
            RefusalReason::Untried => "not come to",
            RefusalReason::Error(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}

/// Consecutive pages in the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRange {
    pub(crate) start: Address,
    pub(crate) pages: u32,
}

/// The addresses of all pages of these ranges.
pub(crate) fn addresses(
    ranges: &[PageRange],
    page_bytes: u64,
) -> impl Iterator<Item = Address> + '_ {
    let of = move |range: &PageRange| {
        let start = range.start;
        (0..u64::from(range.pages)).map(move |page| start + page * page_bytes)
    };
    ranges.iter().flat_map(of)
}
