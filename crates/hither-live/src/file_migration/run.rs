//! The mechanism in a run: its options, and how it is set up.

mod actuator;
mod report;

use std::path::PathBuf;
use std::sync::Arc;

use hither_core::Spec;
use hither_core::placement::PlacementEntry;
use hither_kernel::machine::{Machine, NodeMemory};

pub(crate) use self::actuator::FileMigrationActuator;
pub use self::report::FileMigrationReport;
use super::config::FileMigrationConfig;
use super::controller::BLOCK_PAGES;
use crate::agent::{SessionNeeds, Setup};
use crate::error::{Error, Result};
use crate::numa::calibration::StoredCalibration;

/// Which policy moves pages of files.
#[derive(Clone, Debug)]
pub struct FileMigrationOptions {
    /// A placement of memory that moves pages and [runs live](PlacementEntry::live).
    pub policy: Spec<PlacementEntry>,
    /// The folder that keeps calibrations of machines.
    pub cache: Option<PathBuf>,
}

/// Sets the mechanism up for a run on these nodes.
///
/// # Errors
/// The thread that moves pages cannot be started.
pub(crate) fn set_up(
    options: &FileMigrationOptions,
    dry_run: bool,
    machine: &Arc<dyn Machine>,
    nodes: &[NodeMemory],
) -> Result<Setup<FileMigrationActuator>> {
    let stored = StoredCalibration::load(&**machine, nodes, options.cache.as_deref());
    let block_bytes = machine.page_bytes() * u64::from(BLOCK_PAGES);
    let policy = options.policy.to_string();
    let calibration = stored.calibration.as_ref();
    let config = FileMigrationConfig {
        dry_run,
        ..FileMigrationConfig::new(policy.clone(), block_bytes, nodes, calibration)
    };
    let numbers = nodes.iter().map(|node| node.node).collect();
    let actuator = FileMigrationActuator::new(Arc::clone(machine), policy, numbers, dry_run);
    Ok(Setup {
        actuator: actuator.map_err(Error::Session)?,
        config,
        session: SessionNeeds {
            // The policy does not use call sites.
            block_bytes: Some(block_bytes),
            ..SessionNeeds::default()
        },
    })
}
