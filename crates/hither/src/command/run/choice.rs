//! What `hither run` switches on without a switch, and why.

use super::machine::MachineState;

/// What is switched on, and why. As text it is one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Why the page cache is steered.
    pub(super) page_cache: Option<PageCacheReason>,
    /// Why memory is placed.
    pub(super) memory: Option<MemoryReason>,
    pub(super) machine: MachineState,
}

/// Why steering the page cache can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageCacheReason {
    /// A memory cgroup has a limit.
    Limit {
        /// The limit.
        bytes: u64,
    },
    /// The files that the command line names are larger than what is available.
    FilesDoNotFit {
        /// The size of these files.
        files_bytes: u64,
        /// What is available.
        available_bytes: u64,
    },
}

/// Why placing memory can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryReason {
    pub(super) nodes: usize,
}

impl PageCacheReason {
    /// The budget for the program's files. `None`: the cgroup's limit decides.
    pub(super) fn cache_bytes(self) -> Option<u64> {
        match self {
            PageCacheReason::Limit { .. } => None,
            PageCacheReason::FilesDoNotFit {
                available_bytes, ..
            } => Some(available_bytes),
        }
    }
}
