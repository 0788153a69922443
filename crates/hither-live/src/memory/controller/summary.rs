//! What the controller counts in a run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::locality::{Locality, MigrationGain};
use crate::iterations::FoundIterations;

/// The most regions that a summary lists the gains of.
const GAINS_MAX: usize = 4096;

/// What the controller counted in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemorySummary {
    /// Regions that were tracked.
    pub regions: u64,
    /// Of these, parts of mappings that no allocation had reported: static data, heaps, stacks,
    /// arenas, shared memory.
    #[serde(rename = "regions_mapped")]
    pub mapped: u64,
    /// Of these, regions decided to be far: their pages go to another node than the one that
    /// touches them.
    pub far: u64,
    /// Regions decided to be near.
    pub near: u64,
    /// Regions decided by what was known of their allocation site, without watching.
    pub known: u64,
    /// Reservations that were not tracked, since they are larger than the machine's memory.
    pub unfollowed: u64,
    /// First faults that were seen in regions.
    pub faults: u64,
    /// Pages that are wanted on another node than the one that touches them.
    pub pages_away: u64,
    /// Ranges that programs bound.
    pub ranges_bound: u64,
    /// Ranges that programs could not bind.
    pub ranges_refused: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Huge pages that were moved, each as a whole.
    #[serde(rename = "huge_pages_moved")]
    pub huge_moved: u64,
    /// Pages that could not be moved.
    pub pages_refused: u64,
    /// Regions that the policy decides nothing about before they are used: they are too small, or
    /// the policy goes by use alone.
    pub plain: u64,
    /// Regions whose pages were sampled.
    #[serde(rename = "regions_counted")]
    pub counted: u64,
    /// Processes that were left alone, since they ask for certain nodes themselves.
    #[serde(rename = "processes_own")]
    pub own_processes: u64,
    /// Regions that were placed as in an earlier run.
    #[serde(rename = "regions_applied")]
    pub applied: u64,
    /// Regions that were left alone, since the program has placed them itself.
    #[serde(rename = "regions_own")]
    pub own: u64,
    /// Samples of accesses.
    pub sampled: Locality,
    /// Of these, samples by the kind of memory. Those in none of these are in memory that an
    /// allocation has reported.
    pub sampled_by_kind: BTreeMap<&'static str, u64>,
    /// Samples by the processor that are not among these, since they were in no region: small
    /// pieces of memory, memory that was mapped since mappings were last read, mapped files.
    pub sampled_outside: u64,
    /// The iterations of the process that had most of them.
    pub iterations: FoundIterations,
    /// How long nobody listened to samples, since nothing came of them.
    pub paused_ns: u64,
    /// Pages that could not be armed; a page counts each time.
    pub unarmed: u64,
    /// How often the policy was asked about the samples.
    pub judged: u64,
    /// Pages that were moved to the node that uses them; a page counts each time.
    #[serde(rename = "pages_migrated")]
    pub migrated: u64,
    /// Samples of regions with such pages, before the first of them moved.
    pub before: Locality,
    /// And after.
    pub after: Locality,
    /// The first of these regions.
    pub gains: Vec<MigrationGain>,
    /// Processes that were left alone, since none of their pages could be moved.
    #[serde(rename = "processes_left_alone")]
    pub stopped: u64,
}

impl MemorySummary {
    /// Adds what moving the pages of a region has changed.
    pub(super) fn add_gain(&mut self, gain: MigrationGain) {
        self.before.join(gain.before);
        self.after.join(gain.after);
        if self.gains.len() < GAINS_MAX {
            self.gains.push(gain);
        }
    }
}
