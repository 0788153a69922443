//! The mechanism in a run: options, report, and how it is set up.
//!
//! The agent reads the programs' rings every half a millisecond while they are busy: a reader of 2
//! GB/s is 1 MiB further then, which with its readahead is how far the page cache may exceed the
//! budget. If the agent dies, nobody drops anything: the kernel manages its cache as ever.

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
    BLOCK_BYTES, Config, EXTENT_BYTES, KnownSitePattern, ReadStats, SiteStats, Summary,
};
use crate::agent::{SessionNeeds, Setup};
use crate::error::Error;

/// The smallest budget that anything can be done with: a few extents.
pub const BUDGET_MIN_BYTES: u64 = 4 * EXTENT_BYTES;

/// How much of the page cache a program's files may have.
#[derive(Clone, Debug)]
pub enum Budget {
    /// So many bytes, at least [`BUDGET_MIN_BYTES`].
    Bytes(u64),
    /// What a control group leaves for files, at any time.
    Group(MemoryGroup),
}

/// How much of the page cache there is for a program's files.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Room {
    /// With steering.
    bytes: u64,
    /// Without.
    alone_bytes: u64,
}

impl Budget {
    /// In bytes, now. Of a group's a reserve is left, an eighth or more, to what is on its way in:
    /// readahead, and what is read until the agent has heard of it and dropped something. The
    /// kernel gives up 32 folios at a time, 64 MiB where they are large, so that a little too much
    /// costs dear: with readahead of 8 MiB a loop of 512 MiB in a group of 256 read 2000 MiB in six
    /// passes with budgets of 208 to 240 MiB, and 3066 with 248; scans of 390 MiB by sqlite in a
    /// group of 195 went up to 32 MiB beyond a budget of 150, and had a gigabyte of what was to be
    /// kept taken with 170 (2026-11, while others used both CPUs).
    fn room(&self, reserve_bytes: u64) -> Room {
        let (bytes, alone_bytes) = match self {
            Budget::Bytes(bytes) => (*bytes, *bytes),
            Budget::Group(group) => {
                let bytes = group.file_bytes().unwrap_or(0);
                let reserve = reserve_bytes.max(bytes / 8).min(bytes / 2);
                (bytes - reserve, bytes)
            }
        };
        Room {
            bytes: bytes.max(BUDGET_MIN_BYTES),
            alone_bytes: alone_bytes.max(BUDGET_MIN_BYTES),
        }
    }
}

/// What governs the page cache, and how.
#[derive(Clone, Debug)]
pub struct PageCacheOptions {
    /// What the cache keeps; a policy that does not need the future.
    pub policy: Spec,
    /// How much of the page cache the program's files may have.
    pub budget: Budget,
    /// Steer files, too, that were in the page cache before the program came to them.
    pub all_files: bool,
    /// Have programs switch the kernel's readahead off where they read at random, once the page
    /// cache is full.
    pub disable_readahead: bool,
    /// What is known of call sites.
    pub sites: Vec<SiteProfile>,
}

/// A file, and what was read of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStats {
    /// Where it was found last.
    pub path: PathBuf,
    /// What was read of it.
    pub tally: ReadStats,
}

/// What was done about a program's files.
#[derive(Debug, Default)]
pub struct PageCacheReport {
    /// The figures.
    pub summary: Summary,
    /// What is known of call sites now.
    pub sites: Vec<SiteProfile>,
    /// The files that most was read of, the most first.
    pub busiest_files: Vec<FileStats>,
    /// The call sites that read most, the most first.
    pub busiest_sites: Vec<SiteStats>,
    /// Bytes that the program, and all that it started and waited for, had read from storage; and
    /// other children of this process that were waited for meanwhile.
    pub storage_bytes: u64,
    /// Drops that the kernel took, and how long they took.
    pub dropped: u64,
    /// See `dropped`.
    pub drop_time: Duration,
    /// Drops that it refused, and why the last one.
    pub refused: u64,
    /// See `refused`.
    pub why_refused: Option<PageCacheError>,
    /// Why the last file could not be got at that could not.
    pub why_unreachable: Option<OpenError>,
    /// Why it could not be asked what is cached: nobody else's pages are told from the program's.
    pub unseen: Option<PageCacheError>,
    /// Descriptors that programs read at random, and had the kernel read nothing ahead through;
    /// each time counts.
    pub readahead_disabled: u64,
    /// What the program could not tell.
    pub lost: Lost,
    /// Processor time of the agent.
    pub agent: Duration,
    /// How long the program ran.
    pub ran: Duration,
    /// Why the log is not whole.
    pub log: Option<Error>,
}

/// Sets the mechanism up for a run, over a page cache.
pub(crate) fn set_up(
    options: &PageCacheOptions,
    dry_run: bool,
    cache: Arc<dyn PageCache>,
) -> Setup<PageCacheActuator> {
    let room = options.budget.room(0);
    let config = Config {
        policy: options.policy.to_string(),
        budget_bytes: room.bytes,
        alone_bytes: room.alone_bytes,
        block_bytes: BLOCK_BYTES,
        dry_run,
        spare_preexisting: !options.all_files,
        sites: options.sites.iter().map(KnownSitePattern::from).collect(),
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
