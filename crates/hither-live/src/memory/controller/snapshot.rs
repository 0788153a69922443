//! What the controller knows at a moment, for whoever looks on.

use hither_core::placement::RegionTier;
use hither_core::{Block, Node};

use super::PlacementController;
use super::lifecycle::TrackedRegion;
use crate::status::RegionStatus;

/// Pages of a region that are looked at, spread over it: enough for shares to some percent.
const LOOKED_AT: u32 = 1024;

impl PlacementController {
    /// The kernel's numbers of the nodes.
    pub(crate) fn nodes(&self) -> Vec<u32> {
        let nodes = (0..self.model.nodes()).map(|node| Node(node as u16));
        nodes.map(|node| self.model.kernel_number(node)).collect()
    }

    /// How many regions there are now, and the largest of them, so many at most.
    pub(crate) fn largest(&self, most: usize) -> (u64, Vec<RegionStatus>) {
        let mut live: Vec<&TrackedRegion> = self.tracked.iter().flatten().collect();
        let count = live.len() as u64;
        live.sort_by_key(|region| (std::cmp::Reverse(region.left), region.pid, region.start));
        live.truncate(most);
        let largest = live.into_iter().map(|region| self.look(region));
        (count, largest.collect())
    }

    fn look(&self, region: &TrackedRegion) -> RegionStatus {
        let step = region.pages.div_ceil(LOOKED_AT).max(1);
        let mut pages = vec![0; self.model.nodes()];
        let looked_at = (0..region.pages).step_by(step as usize);
        for page in looked_at.filter(|&page| !region.is_cut(page)) {
            if let Some(home) = self.model.home(Block(region.base + page)) {
                pages[home.index()] += u64::from(step);
            }
        }
        let state = match region.class {
            Some(RegionTier::Remote) => "far",
            _ if region.counted => "sampled",
            Some(RegionTier::Local) => "near",
            None if region.watched => "watched",
            None => "left alone",
        };
        RegionStatus {
            pid: region.pid,
            start: region.start,
            bytes: u64::from(region.left) * self.page_bytes,
            signature: region.signature,
            state: state.to_owned(),
            pages,
        }
    }
}
