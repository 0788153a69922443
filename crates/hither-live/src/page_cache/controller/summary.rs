//! The figures of a run.

use hither_core::replacement::ClassCounts;
use serde::Serialize;

/// The controller's figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageCacheSummary {
    /// Files that the program used.
    pub files: u64,
    /// Of these, files that were mapped and so left alone.
    #[serde(rename = "files_mapped")]
    pub mapped: u64,
    /// Of these, files that were mapped and steered by their page faults.
    #[serde(rename = "files_watched")]
    pub watched: u64,
    /// Of these, files that could not be opened.
    #[serde(rename = "files_unreachable")]
    pub unreachable: u64,
    /// The budget at the end.
    pub budget_bytes: u64,
    /// What the files may have in the page cache, from the first byte on; none where the kernel
    /// decides.
    pub limit_bytes: Option<u64>,
    /// References to blocks.
    pub references: u64,
    /// Bytes that missed: in the policy's cache while evictions were carried out, in the LRU cache
    /// otherwise.
    pub missed_bytes: u64,
    /// Bytes that missed in an LRU cache of the size that the page cache has without steering.
    pub lru_missed_bytes: u64,
    /// Bytes that the policy evicted while evictions were carried out.
    pub evicted_bytes: u64,
    /// Ranges to drop. They cover whole extents, which may hold more than was read.
    pub drops: u64,
    /// The bytes of these ranges.
    pub dropped_bytes: u64,
    /// Bytes that were found in the page cache before the program accessed them.
    pub preexisting_bytes: u64,
    /// Bytes that came in for the programs and that others have used since: they are left.
    pub shared_bytes: u64,
    /// Bytes that the policy kept and the kernel reclaimed.
    pub absent_bytes: u64,
    /// Bytes read from storage while evictions were carried out, by the kernel's account.
    pub steered_read_bytes: u64,
    /// Times that steering stopped because of what was read.
    #[serde(rename = "times_lost")]
    pub lost: u64,
    /// Whether programs ever reported accesses.
    pub reported: bool,
    /// Windows that were compared with LRU.
    #[serde(rename = "windows_judged")]
    pub judged: u64,
    /// The windows at whose end steering stopped.
    #[serde(rename = "times_stopped")]
    pub stopped: u64,
    /// Whether evictions are carried out.
    pub steering: bool,
    /// How references were classified, by a policy that classifies.
    pub classes: Option<ClassCounts>,
    /// `evicted_bytes`, by class.
    #[serde(rename = "evicted_by_class_bytes")]
    pub evicted_by_class: Option<ClassCounts>,
}
