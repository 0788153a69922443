//! A cache that the controller simulates.

use hither_core::registry::{ReplacementEntry, ReplacementSettings};
use hither_core::replacement::SiteRecord;
use hither_core::{Access, AccessResult, Block, ReplacementPolicy, Residency, Spec};

use super::extents::BLOCK_BYTES;

/// A simulated cache: its contents and its policy.
pub(super) struct SimulatedCache {
    pub(super) residency: Residency,
    pub(super) policy: Box<dyn ReplacementPolicy>,
}

impl SimulatedCache {
    pub(super) fn new(
        spec: &Spec<ReplacementEntry>,
        capacity: u32,
        sites: &[SiteRecord],
    ) -> SimulatedCache {
        SimulatedCache {
            residency: Residency::new(capacity, 0),
            policy: spec.build(&ReplacementSettings {
                sites,
                ..ReplacementSettings::new(capacity)
            }),
        }
    }

    pub(super) fn access(&mut self, access: &Access) -> AccessResult {
        self.residency.access(self.policy.as_mut(), access)
    }

    pub(super) fn remove(&mut self, block: Block) -> bool {
        self.residency.remove(self.policy.as_mut(), block)
    }
}

/// The blocks of a budget.
pub(super) fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES)
        .unwrap_or(u32::MAX)
        .max(1)
}
