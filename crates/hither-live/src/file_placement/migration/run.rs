//! The mechanism in a run: how it is set up.

mod actuator;
mod report;

use std::sync::Arc;

pub(crate) use self::actuator::FileMigrationActuator;
pub use self::report::FileMigrationReport;
use super::super::options::FilePlacementOptions;
use super::config::FileMigrationConfig;
use super::controller::BLOCK_PAGES;
use crate::error::{Error, Result};
use crate::mechanism::{Controlled, SessionNeeds};
use crate::numa::calibration::StoredCalibration;
use crate::system::System;

/// The mechanism.
pub(crate) type FileMigration = Controlled<FileMigrationActuator>;

/// Sets the mechanism up for a run. `None` on a machine with one node, unless it is a dry run.
///
/// # Errors
/// The thread that moves pages cannot be started.
pub(crate) fn set_up(
    options: &FilePlacementOptions,
    system: &System,
    dry_run: bool,
) -> Result<Option<FileMigration>> {
    let Some(nodes) = system.nodes_to_move_between(dry_run)? else {
        return Ok(None);
    };
    let machine = &system.machine;
    let stored = StoredCalibration::load(&**machine, &nodes, options.cache.as_deref());
    let block_bytes = machine.page_bytes() * u64::from(BLOCK_PAGES);
    let policy = options.policy;
    let calibration = stored.calibration.as_ref();
    let config = FileMigrationConfig {
        dry_run,
        ..FileMigrationConfig::new(policy, block_bytes, &nodes, calibration)
    };
    let numbers = nodes.iter().map(|node| node.node).collect();
    let actuator = FileMigrationActuator::new(Arc::clone(machine), policy, numbers, dry_run);
    let needs = SessionNeeds {
        // The policy does not use call sites.
        block_bytes: Some(block_bytes),
        ..SessionNeeds::default()
    };
    Controlled::new(actuator.map_err(Error::Session)?, config, needs).map(Some)
}
