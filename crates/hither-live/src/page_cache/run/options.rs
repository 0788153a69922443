//! The options of the mechanism, and the budget that they give it.

use hither_core::Spec;
use hither_core::site_profile::SiteProfile;
use hither_sys::cgroup::MemoryGroup;

use super::super::controller::EXTENT_BYTES;

/// The smallest budget that is of use: four extents.
pub const BUDGET_MIN_BYTES: u64 = 4 * EXTENT_BYTES;

/// How much of the page cache a program's files may have.
#[derive(Clone, Debug)]
pub enum Budget {
    /// A number of bytes, at least [`BUDGET_MIN_BYTES`].
    Bytes(u64),
    /// What a memory cgroup leaves for files, read again and again.
    Group(MemoryGroup),
}

/// The size of the page cache for a program's files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheSizes {
    /// With steering.
    pub(super) bytes: u64,
    /// Without steering.
    pub(super) alone_bytes: u64,
}

impl Budget {
    /// The sizes now. Of a cgroup's memory a reserve of at least an eighth is left for pages on
    /// their way in: readahead, and what is read until the agent has seen it and dropped something.
    /// The kernel reclaims 32 folios at a time, which is 64 MiB where they are large, so a slight
    /// excess costs much. With a readahead of 8 MiB, a loop over 512 MiB in a group of 256 MiB read
    /// 2000 MiB in six passes with budgets of 208 to 240 MiB, and 3066 MiB with 248 MiB. Scans of
    /// 390 MiB by sqlite in a group of 195 MiB exceeded a budget of 150 MiB by up to 32 MiB; with
    /// 170 MiB the kernel reclaimed 1 GiB of what the policy kept (2026-11, while other programs
    /// used both CPUs).
    pub(super) fn sizes(&self, reserve_bytes: u64) -> CacheSizes {
        let (bytes, alone_bytes) = match self {
            Budget::Bytes(bytes) => (*bytes, *bytes),
            Budget::Group(group) => {
                let bytes = group.file_bytes().unwrap_or(0);
                let reserve = reserve_bytes.max(bytes / 8).min(bytes / 2);
                (bytes - reserve, bytes)
            }
        };
        CacheSizes {
            bytes: bytes.max(BUDGET_MIN_BYTES),
            alone_bytes: alone_bytes.max(BUDGET_MIN_BYTES),
        }
    }
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
    /// Whether programs disable the kernel's readahead on files that they read at random, once the
    /// page cache is full.
    pub disable_readahead: bool,
    /// Profiles of call sites from earlier runs.
    pub sites: Vec<SiteProfile>,
}
