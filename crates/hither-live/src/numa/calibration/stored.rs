//! The calibration of a run's start, as `hither doctor --calibrate` has kept it.

use std::path::Path;

use hither_kernel::machine::{Machine, NodeMemory};

use super::cache::CalibrationCache;
use super::measurement::Calibration;

/// What is known of a machine at the start of a run.
#[derive(Debug, Default)]
pub(crate) struct StoredCalibration {
    pub(crate) calibration: Option<Calibration>,
    /// Why the file could not be read.
    pub(crate) problem: Option<String>,
}

impl StoredCalibration {
    /// Reads the calibration from its folder, if there is one. A run measures nothing itself: that
    /// moves some thousand pages, which a short program would never make up for.
    pub(crate) fn load(
        machine: &dyn Machine,
        nodes: &[NodeMemory],
        folder: Option<&Path>,
    ) -> StoredCalibration {
        let mut known = StoredCalibration::default();
        let Some(cache) = folder
            .filter(|_| nodes.len() > 1)
            .map(CalibrationCache::new)
        else {
            return known;
        };
        match cache.read(machine, nodes) {
            Ok(calibration) => known.calibration = calibration,
            Err(problem) => known.problem = Some(problem),
        }
        known
    }
}
