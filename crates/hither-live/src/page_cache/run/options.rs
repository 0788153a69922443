//! The options of the mechanism, and the budget that they give it.

use hither_core::Spec;
use hither_core::site_profile::SiteProfile;
use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::page_bytes;
use hither_kernel::page_cache::program_cached_bytes;

use super::super::controller::{EXTENT_BYTES, LimitConfig};

/// The smallest budget that is of use: four extents.
pub const BUDGET_MIN_BYTES: u64 = 4 * EXTENT_BYTES;

/// See [`Budget::Nothing`].
const TOLD_BYTES: u64 = 32 << 20;

/// How much of the page cache a program's files may have.
#[derive(Clone, Debug)]
pub enum Budget {
    /// A limit: so many bytes, at least [`BUDGET_MIN_BYTES`], whatever the kernel alone would
    /// keep.
    Given(u64),
    /// Nothing is kept: what was read or written is dropped soon after, and the rest at the end. In
    /// between that takes [`BUDGET_MIN_BYTES`], or 32 MiB where the kernel tells what came in:
    /// programs of which nothing is unknown may read many files at once.
    Nothing,
    /// So many bytes, which is what the kernel alone would have for the files.
    Available(u64),
    /// What a memory cgroup leaves for files, read again and again.
    Group {
        /// The group.
        group: MemoryGroup,
        /// A limit below that of the group.
        at_most: Option<u64>,
        /// What the group was charged with for files before the program started: no more of it can
        /// be the pages of hither's own program, which the kernel charges to the group that had
        /// them read.
        cached_before: u64,
    },
}

/// The size of the page cache for a program's files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheSizes {
    /// With steering.
    pub(super) bytes: u64,
    /// Without steering.
    pub(super) alone_bytes: u64,
}

impl Default for CacheSizes {
    fn default() -> CacheSizes {
        CacheSizes {
            bytes: BUDGET_MIN_BYTES,
            alone_bytes: BUDGET_MIN_BYTES,
        }
    }
}

impl Budget {
    /// The memory cgroup, if the budget is what one leaves.
    pub(super) fn group(&self) -> Option<&MemoryGroup> {
        match self {
            Budget::Group { group, .. } => Some(group),
            Budget::Given(_) | Budget::Nothing | Budget::Available(_) => None,
        }
    }

    /// What the page cache is to be no larger than, even if more is read from storage. `is_told`:
    /// what comes in for the programs.
    pub(super) fn limit(&self, is_told: bool) -> Option<LimitConfig> {
        let (bytes, keeps) = match self {
            Budget::Given(bytes) => (*bytes, true),
            Budget::Nothing if is_told => (TOLD_BYTES, false),
            Budget::Nothing => (BUDGET_MIN_BYTES, false),
            Budget::Group { at_most, .. } => ((*at_most)?, true),
            Budget::Available(_) => return None,
        };
        let bytes = bytes.max(BUDGET_MIN_BYTES);
        Some(LimitConfig {
            bytes,
            keeps,
            is_told,
            page_bytes: page_bytes(),
        })
    }

    /// Whether it is a limit, which holds even if more is read from storage.
    pub(crate) fn is_limit(&self) -> bool {
        self.limit(false).is_some()
    }

    /// Whether the budget may be far below what the kernel alone would have.
    pub(super) fn is_given(&self) -> bool {
        matches!(self, Budget::Given(_) | Budget::Nothing)
    }

    /// The sizes now, where the kernel reads so far ahead. None where the memory cgroup is gone.
    pub(super) fn sizes(&self, readahead_bytes: u64) -> Option<CacheSizes> {
        let (bytes, alone_bytes) = match self {
            Budget::Given(bytes) | Budget::Available(bytes) => (*bytes, *bytes),
            Budget::Nothing => (0, 0),
            Budget::Group {
                group,
                at_most,
                cached_before,
            } => {
                let own = program_cached_bytes().min(*cached_before);
                let alone = group.file_bytes()?.saturating_sub(own);
                let steered = steered_bytes(alone, readahead_bytes);
                (at_most.unwrap_or(u64::MAX).min(steered), alone)
            }
        };
        Some(CacheSizes {
            bytes: bytes.max(BUDGET_MIN_BYTES),
            alone_bytes: alone_bytes.max(BUDGET_MIN_BYTES),
        })
    }
}

/// The reserve in readaheads: two are on their way in, and the extents that are read and not yet
/// dropped take as much.
const RESERVED_READAHEADS: u64 = 4;

/// What a policy gets of the memory that is left for files. A reserve of at least an eighth is for
/// pages on their way in: readahead, and what is read until the agent has seen it and dropped
/// something.
///
/// The kernel reclaims 32 folios at a time, which is 64 MiB where they are large, so a slight
/// excess costs much. With a readahead of 8 MiB, a loop over 512 MiB in a group of 256 MiB read
/// 2000 MiB in six passes with budgets of 208 to 240 MiB, and 3066 MiB with 248 MiB. Scans of
/// 390 MiB by sqlite in a group of 195 MiB exceeded a budget of 150 MiB by up to 32 MiB; with
/// 170 MiB the kernel reclaimed 1 GiB of what the policy kept (2026-11, while other programs used
/// both CPUs).
pub(crate) fn steered_bytes(alone_bytes: u64, readahead_bytes: u64) -> u64 {
    let reserve = RESERVED_READAHEADS.saturating_mul(readahead_bytes);
    alone_bytes - reserve.max(alone_bytes / 8).min(alone_bytes / 2)
}

/// The options of the mechanism.
#[derive(Clone, Debug)]
pub struct PageCacheOptions {
    /// The replacement policy; one that does not need the future.
    pub policy: Spec,
    /// How much of the page cache the program's files may have.
    pub budget: Budget,
    /// Whether to steer also files that were in the page cache before the program opened them.
    pub all_files: bool,
    /// Whether to steer from the first access on, whether or not that saves anything.
    pub always: bool,
    /// Whether the kernel reports what the programs do, and not the library in them. Then it is
    /// told what comes into the page cache for them, and what others use of it.
    pub by_kernel: bool,
    /// Whether programs disable the kernel's readahead on files that they read at random, once the
    /// page cache is full.
    pub disable_readahead: bool,
    /// Profiles of call sites from earlier runs.
    pub sites: Vec<SiteProfile>,
}
