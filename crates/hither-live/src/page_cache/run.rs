//! The mechanism in a run: its options, its report, and how it is set up.
//!
//! The agent reads the programs' rings every half a millisecond while they are busy. In that time a
//! reader of 2 GB/s reads 1 MiB; that, with its readahead, is how far the page cache may exceed the
//! budget. If the agent dies, nothing is dropped any more: the kernel manages its cache as usual.

mod actuator;
mod mapped;
mod options;
mod report;

use std::sync::Arc;

pub(crate) use self::actuator::PageCacheActuator;
pub(super) use self::actuator::{
    BUDGET_PERIOD_NS, PAUSED_PERIOD_NS, POLL_INTERVAL_MAX, POLL_INTERVAL_MIN, RESIDENCY_PERIOD_NS,
    STORAGE_PERIOD_NS,
};
pub use self::mapped::MappedError;
pub(super) use self::options::steered_bytes;
pub use self::options::{BUDGET_MIN_BYTES, Budget, PageCacheOptions};
pub use self::report::{FileStats, PageCacheReport};
use super::controller::{BLOCK_BYTES, PageCacheConfig};
use crate::error::Result;
use crate::mechanism::{Controlled, SessionNeeds};
use crate::system::System;

/// The mechanism.
pub(crate) type PageCacheMechanism = Controlled<PageCacheActuator>;

/// Sets the mechanism up for a run.
///
/// # Errors
/// The policy cannot run live.
pub(crate) fn set_up(
    options: &PageCacheOptions,
    system: &System,
    dry_run: bool,
) -> Result<Option<PageCacheMechanism>> {
    let sizes = options.budget.sizes(0).unwrap_or_default();
    let config = PageCacheConfig {
        policy: options.policy,
        budget_bytes: sizes.bytes,
        alone_bytes: sizes.alone_bytes,
        block_bytes: BLOCK_BYTES,
        dry_run,
        given: options.budget.is_given(),
        limit: options.budget.limit(options.by_kernel),
        always: options.always,
        spare_preexisting: !options.all_files,
        sites: options.sites.clone(),
    };
    let samples_cached = config.limit.is_some() && config.spare_preexisting;
    let cache = Arc::clone(&system.page_cache);
    let actuator = PageCacheActuator::new(cache, options, &config);
    let needs = SessionNeeds {
        block_bytes: Some(BLOCK_BYTES),
        call_sites: !matches!(options.budget, Budget::Nothing),
        readahead: options.disable_readahead && !dry_run,
        samples_cached,
        ..SessionNeeds::default()
    };
    Controlled::new(actuator, config, needs).map(Some)
}
