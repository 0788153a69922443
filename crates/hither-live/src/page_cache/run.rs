//! The mechanism in a run: options, report and set-up.
//!
//! The agent reads the programs' rings every half a millisecond while they are busy. In that time a
//! reader of 2 GB/s reads 1 MiB; that, with its readahead, is how far the page cache may exceed the
//! budget. If the agent dies, nothing is dropped any more: the kernel manages its cache as usual.

mod actuator;
mod figures;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hither_core::Spec;
use hither_core::site_profile::SiteProfile;
use hither_sys::cgroup::MemoryGroup;
use hither_sys::page_cache::{OpenError, PageCache, PageCacheError};
use hither_sys::session::Lost;

pub(crate) use self::actuator::PageCacheActuator;
use super::controller::{
    BLOCK_BYTES, EXTENT_BYTES, LoggedSiteProfile, PageCacheConfig, ReadStats, SiteStats, Summary,
};
use crate::agent::{SessionNeeds, Setup};
use crate::error::Error;

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
struct CacheSizes {
    /// With steering.
    bytes: u64,
    /// Without steering.
    alone_bytes: u64,
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
    fn sizes(&self, reserve_bytes: u64) -> CacheSizes {
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

/// A file, and how much of it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStats {
    /// The path where it was last found.
    pub path: PathBuf,
    /// How much of it was read.
    pub tally: ReadStats,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct PageCacheReport {
    /// The controller's figures.
    pub summary: Summary,
    /// Profiles of call sites at the end.
    pub sites: Vec<SiteProfile>,
    /// The files with the most bytes read, in descending order.
    pub busiest_files: Vec<FileStats>,
    /// The call sites with the most bytes read, in descending order.
    pub busiest_sites: Vec<SiteStats>,
    /// Bytes read from storage by the program and its descendants that were waited for; this
    /// includes other children of this process that were waited for meanwhile.
    pub storage_bytes: u64,
    /// Drops that the kernel carried out.
    pub dropped: u64,
    /// The time that these took.
    pub drop_time: Duration,
    /// Drops that the kernel refused.
    pub refused: u64,
    /// Why it refused the last one.
    pub why_refused: Option<PageCacheError>,
    /// Why the last file that could not be opened could not be.
    pub why_unreachable: Option<OpenError>,
    /// Why the kernel did not say what is cached. Without that, pages of other programs are not
    /// told from the program's.
    pub unseen: Option<PageCacheError>,
    /// Descriptors that were found to be read at random and whose readahead was disabled; each time
    /// counts.
    pub readahead_disabled: u64,
    /// Accesses that were not recorded.
    pub lost: Lost,
    /// CPU time of the agent.
    pub agent: Duration,
    /// How long the program ran.
    pub ran: Duration,
    /// Why the log is incomplete.
    pub log: Option<Error>,
}

/// Sets the mechanism up for a run, over the given page cache.
pub(crate) fn set_up(
    options: &PageCacheOptions,
    dry_run: bool,
    cache: Arc<dyn PageCache>,
) -> Setup<PageCacheActuator> {
    let sizes = options.budget.sizes(0);
    let config = PageCacheConfig {
        policy: options.policy.to_string(),
        budget_bytes: sizes.bytes,
        alone_bytes: sizes.alone_bytes,
        block_bytes: BLOCK_BYTES,
        dry_run,
        spare_preexisting: !options.all_files,
        sites: options.sites.iter().map(LoggedSiteProfile::from).collect(),
    };
    Setup {
        actuator: PageCacheActuator::new(cache, options, dry_run),
        config,
        session: SessionNeeds {
            block_bytes: Some(BLOCK_BYTES),
            call_sites: true,
            readahead: options.disable_readahead && !dry_run,
            ..SessionNeeds::default()
        },
    }
}
