//! The options of the mechanism.

use std::path::PathBuf;

use hither_core::placement::{SavedPlacement, SiteTier};

use super::super::budget::PERMILLE;
use crate::numa::PagePolicy;

/// Which policy places memory, and how accesses are counted.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The placement of pages; one that [runs live](hither_core::placement::PlacementEntry::live).
    pub policy: PagePolicy,
    /// Tiers of allocation sites, from earlier runs.
    pub sites: Vec<SiteTier>,
    /// The placements of regions, from an earlier run.
    pub saved_placements: Vec<SavedPlacement>,
    /// The folder that keeps calibrations of machines.
    pub cache: Option<PathBuf>,
    /// How to count accesses, where the policy needs counts: this way alone, or the first that
    /// works.
    pub counters: Option<&'static str>,
    /// Thousandths of a CPU that counting may take.
    pub cpu_permille: u32,
    /// Size of the smallest allocation that is a region, in bytes: at least a page.
    pub region_min: u64,
}

impl MemoryOptions {
    /// The default of [`cpu_permille`](Self::cpu_permille).
    pub const DEFAULT_CPU_PERMILLE: u32 = PERMILLE;
}
