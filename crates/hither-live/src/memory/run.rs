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
mod faults;
mod known_sites;
mod mappings;
mod options;
mod polls;
mod record_input;
mod report;
mod samples;

use std::sync::Arc;

pub(crate) use self::actuator::PlacementActuator;
use self::counter_source::CounterSource;
use self::known_sites::far_nodes;
pub use self::options::MemoryOptions;
pub use self::report::MemoryReport;
use super::config::MemoryConfig;
use crate::error::Result;
use crate::mechanism::{Controlled, SessionNeeds};
use crate::numa::calibration::StoredCalibration;
use crate::numa::usage::{PERIOD_NS, Usage};
use crate::system::System;

/// The mechanism.
pub(crate) type MemoryMechanism = Controlled<PlacementActuator>;

/// Sets the mechanism up for a run. `None` on a machine with one node, unless it is a dry run.
///
/// # Errors
/// The policy cannot place the memory of a running program.
pub(crate) fn set_up(
    options: &MemoryOptions,
    system: &System,
    dry_run: bool,
) -> Result<Option<MemoryMechanism>> {
    let Some(nodes) = system.nodes_to_move_between(dry_run)? else {
        return Ok(None);
    };
    let machine = &system.machine;
    let stored = StoredCalibration::load(&**machine, &nodes, options.cache.as_deref());
    let page_bytes = machine.page_bytes();
    let mut config = MemoryConfig {
        huge_page_bytes: machine.huge_page_bytes(),
        dry_run,
        cpu_permille: options.cpu_permille,
        sites: options.sites.clone(),
        placed: options.saved_placements.clone(),
        ..MemoryConfig::new(
            options.policy,
            page_bytes,
            &nodes,
            stored.calibration.as_ref(),
        )
    };
    config.far_nodes = far_nodes(&config, || {
        Usage::new(Arc::clone(machine), page_bytes, PERIOD_NS).read(0)
    })?;
    let counter_source = if config.counts_accesses()? {
        CounterSource::find(&**machine, options.counters)
    } else {
        CounterSource::default()
    };
    config.source = counter_source.source();
    let needs = SessionNeeds {
        call_sites: true,
        announced: true,
        region_min: options.region_min,
        sampling: counter_source.needs_offers(),
        ..SessionNeeds::default()
    };
    let machine = Arc::clone(machine);
    let by_use = config.goes_by_use();
    let mut actuator =
        PlacementActuator::new(options, by_use, dry_run, machine, &nodes, counter_source);
    let sites = config.sites.iter().copied();
    let whole = sites.filter(|site| site.whole);
    let bound = whole.map(|site| (site.signature, config.far_nodes));
    actuator.known_sites = bound.filter(|&(_, nodes)| nodes != 0 && !dry_run).collect();
    actuator.report_mut().calibration = stored.problem;
    Controlled::new(actuator, config, needs).map(Some)
}
