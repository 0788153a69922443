//! The calibration of a run's start: read, or measured once and kept.

use std::path::Path;

use hither_sys::machine::{Machine, NodeMemory};

use super::cache::CalibrationCache;
use super::measurement::{Calibration, Effort};

/// What is known of a machine at the start of a run.
#[derive(Debug, Default)]
pub(crate) struct StoredCalibration {
    pub(crate) calibration: Option<Calibration>,
    /// Why the file could not be read or written.
    pub(crate) problem: Option<String>,
}

impl StoredCalibration {
    /// Reads the calibration, or measures quickly and keeps the result, so that only the first run
    /// on a machine waits for it. Without a folder to keep it in every run would: then nothing is
    /// measured.
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
            Ok(Some(calibration)) => {
                known.calibration = Some(calibration);
                return known;
            }
            Ok(None) => {}
            Err(problem) => known.problem = Some(problem),
        }
        known.calibration = Calibration::measure(machine, nodes, Effort::QUICK);
        if let Some(calibration) = &known.calibration
            && let Err(error) = cache.keep(calibration)
        {
            known.problem = Some(error);
        }
        known
    }
}
