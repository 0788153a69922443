//! The mechanism in a run: options, report, and how it is set up.

mod actuator;
mod figures;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hither_core::Spec;
use hither_core::placement;
use hither_sys::machine::{Machine, NodeMemory};
use hither_sys::session::Lost;

pub(crate) use self::actuator::FileMigrationActuator;
use super::controller::{BLOCK_PAGES, Config, Summary};
use crate::agent::{SessionNeeds, Setup};
use crate::error::{Error, Result};
use crate::numa::calibration::StoredCalibration;

/// Which policy moves pages of files.
#[derive(Clone, Debug)]
pub struct FileMigrationOptions {
    /// The placement of memory that moves pages; one that [runs live](placement::PlacementEntry::live).
    pub policy: Spec<placement::PlacementEntry>,
    /// Where calibrations of machines are kept; none are read or made without.
    pub cache: Option<PathBuf>,
}

/// What was done about the pages of a program's files.
#[derive(Debug, Default)]
pub struct FileMigrationReport {
    /// The figures.
    pub summary: Summary,
    /// Pages that were to be moved and stayed, by the reason.
    pub refused: BTreeMap<String, u64>,
    /// Why files could not be got at, or it not be asked what is cached of them, and how many times
    /// that was found.
    pub left_alone: BTreeMap<String, u64>,
    /// What the program could not tell.
    pub lost: Lost,
    /// Processor time of the agent.
    pub agent: Duration,
    /// How long the program ran.
    pub ran: Duration,
    /// Why the log is not whole.
    pub log: Option<Error>,
}

/// Sets the mechanism up for a run on these nodes.
///
/// # Errors
/// There is no thread to move pages.
pub(crate) fn set_up(
    options: &FileMigrationOptions,
    dry_run: bool,
    machine: &Arc<dyn Machine>,
    nodes: &[NodeMemory],
) -> Result<Setup<FileMigrationActuator>> {
    let stored = StoredCalibration::load(&**machine, nodes, options.cache.as_deref());
    let block_bytes = machine.page_bytes() * u64::from(BLOCK_PAGES);
    let policy = options.policy.to_string();
    let config = Config {
        dry_run,
        ..Config::new(
            policy.clone(),
            block_bytes,
            nodes,
            stored.calibration.as_ref(),
        )
    };
    let numbers = nodes.iter().map(|node| node.node).collect();
    let actuator = FileMigrationActuator::new(Arc::clone(machine), policy, numbers, dry_run);
    Ok(Setup {
        actuator: actuator.map_err(Error::Session)?,
        config,
        session: SessionNeeds {
            // Call sites are of no use.
            block_bytes: Some(block_bytes),
            ..SessionNeeds::default()
        },
    })
}
