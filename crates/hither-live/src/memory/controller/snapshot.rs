//! What the controller knows, for the status of the run.

use hither_core::placement::RegionTier;
use hither_core::{Node, Object};
use hither_ids::{KernelNode, PageIndex};

use super::placement_controller::PlacementController;
use super::tracked_region::TrackedRegion;
use crate::status::RegionStatus;

/// The pages of a region whose nodes are counted, spread over it: enough for shares to a few
/// percent.
const INSPECTED_PAGES_MAX: u32 = 1024;

impl PlacementController {
    /// The kernel's numbers of the nodes.
    pub(crate) fn nodes(&self) -> Vec<KernelNode> {
        let nodes = (0..self.host.node_count()).map(|node| Node(node as u16));
        nodes.map(|node| self.host.kernel_number(node)).collect()
    }

    /// How many regions there are, and the `most` largest ones.
    pub(crate) fn largest(&self, most: usize) -> (u64, Vec<RegionStatus>) {
        let numbered = (0..).map(Object).zip(&self.tracked);
        let live = numbered.filter_map(|(object, region)| Some((object, region.as_ref()?)));
        let mut live: Vec<(Object, &TrackedRegion)> = live.collect();
        let count = live.len() as u64;
        live.sort_by_key(|(_, region)| (std::cmp::Reverse(region.left), region.pid, region.start));
        live.truncate(most);
        let largest = live.into_iter();
        let largest = largest.map(|(object, region)| self.region_status(object, region));
        (count, largest.collect())
    }

    fn region_status(&self, object: Object, region: &TrackedRegion) -> RegionStatus {
        let mut pages = vec![0; self.host.node_count()];
        let migration = self.migration.as_ref().filter(|_| region.counted);
        if let Some((cell_pages, homes)) = migration.and_then(|of| of.homes(object)) {
            for home in homes.into_iter().flatten() {
                if let Some(node) = self.host.node_of_kernel(home) {
                    pages[node.index()] += u64::from(cell_pages);
                }
            }
        } else if region.base.is_some() {
            let step = region.pages.div_ceil(INSPECTED_PAGES_MAX).max(1);
            let inspected = (0..region.pages).step_by(step as usize);
            for page in inspected.filter(|&page| !region.is_cut(PageIndex(page))) {
                if let Some(home) = self.host.home(region.block(PageIndex(page))) {
                    pages[home.index()] += u64::from(step);
                }
            }
        }
        let state = match region.tier {
            Some(RegionTier::Remote) => "far",
            _ if region.counted => "sampled",
            Some(RegionTier::Local) => "near",
            None if region.watched => "watched",
            None => "left alone",
        };
        RegionStatus {
            pid: region.pid,
            start: region.start.0,
            bytes: u64::from(region.left) * self.page_bytes,
            signature: region.signature,
            state: state.to_owned(),
            pages,
        }
    }
}
