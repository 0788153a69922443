//! The configuration of a controller, as its log has it.

use hither_core::Spec;
use hither_core::site_profile::SiteProfile;
use serde::{Deserialize, Serialize};

/// The controller's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PageCacheConfig {
    /// The policy with its parameters.
    pub(crate) policy: Spec,
    /// The size of the page cache for the program's files.
    pub(crate) budget_bytes: u64,
    /// Its size without steering: larger, where the budget leaves a reserve for pages on their way
    /// in.
    pub(crate) alone_bytes: u64,
    /// The size of a block; a log of another size does not replay.
    pub(crate) block_bytes: u64,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
    /// The budget was given: what programs would read from storage without steering does not
    /// matter. They report all accesses, and what they read stops nothing.
    pub(crate) given: bool,
    /// The policy steers from the first access on, whether or not it saves anything.
    #[serde(default)]
    pub(crate) always: bool,
    /// What the page cache may have of the programs' files, from the first byte on.
    pub(crate) limit: Option<LimitConfig>,
    /// Leave alone what was in the page cache before the program accessed it.
    pub(crate) spare_preexisting: bool,
    /// Profiles of call sites from earlier runs.
    pub(crate) sites: Vec<SiteProfile>,
}

impl PageCacheConfig {
    /// Whether programs report from the first access on. Otherwise they begin once they read from
    /// storage.
    pub(crate) fn reports_at_once(&self) -> bool {
        self.given || self.always || self.dry_run || self.limit.is_some()
    }
}

/// A limit for the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitConfig {
    /// Its size.
    pub(crate) bytes: u64,
    /// What is within the limit stays cached when the programs have ended.
    pub(crate) keeps: bool,
    /// It is told what comes into the page cache for the programs: all else that is cached is other
    /// programs'.
    pub(crate) is_told: bool,
    /// The size of a page: the kernel caches whole ones.
    pub(crate) page_bytes: u64,
}
