//! The mechanism in a run: its options, its report, and how it is set up.
//!
//! The thread that starts the program opens the fault events just before, so that the program
//! inherits them. The agent's own threads exist already, and do not have them. The agent polls
//! every millisecond while pages are touched and a policy places them at their first touch (a ring
//! of faults fills in 13 ms at the least), and every 20 to 100 ms when nothing happens. If it dies,
//! nobody drains the rings, bind requests stay where they are, and the program runs on.

mod actuator;
mod carry_out;
mod counter_source;
mod mappings;
mod options;
mod polls;
mod record_input;
mod report;
mod samples;

use std::sync::Arc;

use hither_core::placement::RegionTier;
use hither_sys::machine::{Machine, NodeMemory};

pub(crate) use self::actuator::PlacementActuator;
use self::counter_source::CounterSource;
pub use self::options::MemoryOptions;
pub use self::report::MemoryReport;
use super::config::{KnownSiteTier, MemoryConfig};
use crate::agent::{SessionNeeds, Setup};
use crate::error::Result;
use crate::numa::calibration::StoredCalibration;

/// Sets the mechanism up for a run on these nodes.
///
/// # Errors
/// The policy cannot place the memory of a running program.
pub(crate) fn set_up(
    options: &MemoryOptions,
    dry_run: bool,
    machine: &Arc<dyn Machine>,
    nodes: &[NodeMemory],
) -> Result<Setup<PlacementActuator>> {
    let stored = StoredCalibration::load(&**machine, nodes, options.cache.as_deref());
    let known = |&(signature, tier): &(u64, RegionTier)| KnownSiteTier { signature, tier };
    let page_bytes = machine.page_bytes();
    let mut config = MemoryConfig {
        huge_page_bytes: machine.huge_page_bytes(),
        dry_run,
        cpu_permille: options.cpu_permille,
        sites: options.sites.iter().map(known).collect(),
        placed: options.saved_placements.clone(),
        ..MemoryConfig::new(
            options.policy(),
            page_bytes,
            nodes,
            stored.calibration.as_ref(),
        )
    };
    let counter_source = match config.counts_accesses()? {
        true => CounterSource::find(&**machine, options.counters),
        false => CounterSource::default(),
    };
    config.source = counter_source.source();
    let session = SessionNeeds {
        call_sites: true,
        region_min: options.region_min,
        sampling: counter_source.needs_offers(),
        ..SessionNeeds::default()
    };
    let machine = Arc::clone(machine);
    let mut actuator = PlacementActuator::new(options, dry_run, machine, nodes, counter_source);
    actuator.report_mut().calibration = stored.problem;
    Ok(Setup {
        actuator,
        config,
        session,
    })
}
