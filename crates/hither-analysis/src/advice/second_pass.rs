//! The second pass of the simulation: LRU at many sizes, and the candidate at slightly different
//! settings.

use hither_core::Spec;
use hither_sim::{CacheConfiguration, CacheOutcome, Row};

/// The outcomes of a second pass, which simulates the candidate more closely.
#[derive(Default)]
pub(crate) struct SecondPass {
    /// LRU at many sizes up to that of all blocks, ascending, in [`SEGMENTS`]. The sizes of the
    /// input are among them.
    pub(crate) lru: Vec<CacheOutcome>,
    /// The caches of [`Candidate::variants`](super::Candidate::variants).
    pub(crate) variants: Vec<CacheOutcome>,
}

impl SecondPass {
    /// What it simulates: LRU at these sizes, and the variants.
    pub(crate) fn rows(
        lru: Spec,
        sizes: Vec<u32>,
        variants: &[CacheConfiguration],
    ) -> Vec<Row<u32>> {
        let variants = variants.iter().map(|variant| Row {
            policy: variant.spec,
            cells: vec![variant.cache_blocks],
        });
        let lru = Row {
            policy: lru,
            cells: sizes,
        };
        [lru].into_iter().chain(variants).collect()
    }

    /// Of the outcomes of these rows.
    pub(crate) fn of(outcomes: Vec<Row>) -> SecondPass {
        let mut rows = outcomes.into_iter().map(|row| row.cells);
        SecondPass {
            lru: rows.next().unwrap_or_default(),
            variants: rows.flatten().collect(),
        }
    }

    /// LRU in a cache of exactly this size, if that was simulated.
    pub(super) fn lru_of(&self, cache_blocks: u32) -> Option<&CacheOutcome> {
        let at = self
            .lru
            .binary_search_by_key(&cache_blocks, |outcome| outcome.cache_blocks);
        at.ok().map(|at| &self.lru[at])
    }

    /// LRU in the largest simulated cache of at most this size, and its gain over `from`.
    pub(super) fn largest_lru_up_to(
        &self,
        from: &CacheOutcome,
        cache_blocks: u32,
    ) -> Option<(&CacheOutcome, f64)> {
        let up_to = self
            .lru
            .partition_point(|outcome| outcome.cache_blocks <= cache_blocks);
        let outcome = &self.lru[up_to.checked_sub(1)?];
        Some((outcome, outcome.hit_ratio - from.hit_ratio))
    }
}
