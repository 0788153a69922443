//! How the simulated caches begin to steer, and how they change their size.

use hither_core::{Access, AccessResult};

use super::PageCacheController;
use super::cache::{SimulatedCache, blocks};
use super::extents::{BLOCKS_PER_EXTENT, BlockRun};

/// A change of the budget by less than 1/16 is ignored, because the policies' recency information
/// is lost with each change.
const BUDGET_CHANGE_DIVISOR: u64 = 16;

impl PageCacheController {
    /// Evictions are carried out from now on. Until now the kernel has kept what it wanted, roughly
    /// the contents of the LRU cache, and not what the policy would have kept. So the policy's
    /// cache starts from the most recent blocks of the LRU cache; the kernel may have reclaimed
    /// more of the older ones.
    pub(super) fn take_over(&mut self) {
        self.extents.clear_stale();
        let capacity = blocks(self.summary.budget_bytes);
        self.renew(capacity);
        let mut held = self.held(&self.lru_model);
        let beyond = held.len().saturating_sub(capacity as usize);
        for access in held.drain(..beyond) {
            self.gone(access.block);
        }
        self.fill(held);
        // What is still mapped beyond that would never fault.
        for file in 0..self.files.len() as u32 {
            let Some(watched) = &self.files[file as usize].watched else {
                continue;
            };
            for block in self.extents.blocks(BlockRun::from(file, 0, u64::MAX)) {
                let extent = self.latest[block.index()].index / BLOCKS_PER_EXTENT;
                let kept = self.model.residency.slot(block).is_some();
                if !kept && !watched.touches.is_ahead(extent) {
                    self.extents.evicted(block);
                }
            }
        }
    }

    /// Changes the size of both caches: new ones start from what the old ones held, in order of
    /// recency, and from what was learnt of call sites. (A policy can be asked for a victim only
    /// while it has no room.)
    pub(super) fn resize(&mut self, bytes: u64, alone_bytes: u64) {
        let before = self.summary.budget_bytes;
        if bytes.abs_diff(before) < before / BUDGET_CHANGE_DIVISOR {
            return;
        }
        self.summary.budget_bytes = bytes;
        let capacity = blocks(bytes);
        let old = self.renew(capacity);
        let held = self.held(&old);
        self.fill(held);
        let alone = blocks(alone_bytes).max(capacity);
        let lru_model = SimulatedCache::new(&self.lru_spec, alone, &[]);
        let old = std::mem::replace(&mut self.lru_model, lru_model);
        for access in self.held(&old) {
            self.lru_model.access(&access);
        }
        self.gain_monitor.resized(capacity);
    }

    /// Replaces the model by an empty one of this size, which has what was learnt of call sites.
    /// Returns the old one.
    fn renew(&mut self, capacity: u32) -> SimulatedCache {
        let sites = self.model.policy.sites().unwrap_or_default();
        let model = SimulatedCache::new(&self.spec, capacity, &sites);
        std::mem::replace(&mut self.model, model)
    }

    /// Fills the model with these, as far as it has room.
    fn fill(&mut self, held: Vec<Access>) {
        let mut given_up = Vec::new();
        for access in held {
            if let AccessResult::Miss {
                evicted: Some(evicted),
            } = self.model.access(&access)
            {
                given_up.push(evicted);
            }
        }
        for evicted in given_up {
            self.evicted(evicted);
        }
    }

    /// The last accesses to the blocks that a cache holds, in order of time.
    fn held(&self, cache: &SimulatedCache) -> Vec<Access> {
        let held = cache.residency.resident();
        let mut held: Vec<Access> = held.map(|block| self.latest[block.index()]).collect();
        held.sort_by_key(|access| access.tick);
        held
    }
}
