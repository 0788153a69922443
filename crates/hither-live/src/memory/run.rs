//! The mechanism in a run: options, report, and how it is set up.
//!
//! The thread that starts the program opens the fault events first, so that its child has them; the
//! agent's own threads were there before and have them not. The agent polls every millisecond while
//! pages are touched (a ring of faults fills in 13 ms at the least), and every 20 ms when nothing
//! happens. If it dies, nobody empties the rings, bind requests stay where they are, and the
//! program runs on.

mod actuator;
mod counter_source;
mod figures;
mod record_input;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hither_core::Spec;
use hither_core::placement::{self, RegionTier};
use hither_sys::machine::{Machine, NodeMemory};
use hither_sys::page_faults::WatchError;
use hither_sys::page_sampling::SamplingError;
use hither_sys::session::Lost;

pub(crate) use self::actuator::PlacementActuator;
use self::counter_source::CounterSource;
use super::controller::{Config, KnownSiteTier, SavedPlacement, Summary};
use crate::agent::{SessionNeeds, Setup};
use crate::error::{Error, Result};
use crate::numa::calibration::StoredCalibration;

/// Which policy places memory, and how accesses are counted.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// Where pages go; one that [runs live](placement::PlacementEntry::live).
    pub placement: Spec<placement::PlacementEntry>,
    /// What that is made of, in place of what its parameter names.
    pub initial: Option<Spec<placement::PlacementEntry>>,
    /// What is known of allocation sites, by signature.
    pub sites: Vec<(u64, RegionTier)>,
    /// Where regions of an earlier run had their pages in the end.
    pub saved_placements: Vec<SavedPlacement>,
    /// Where calibrations of machines are kept; none are read or made without.
    pub cache: Option<PathBuf>,
    /// How accesses are counted, where the policy asks for it: the first way that works, or this
    /// one alone.
    pub counters: Option<&'static str>,
    /// Thousandths of the CPUs that counting may take.
    pub cpu_permille: u32,
    /// The smallest allocation that is a region, in bytes: at least a page.
    pub region_min: u64,
}

impl MemoryOptions {
    /// The policies as they are written.
    fn policy(&self) -> String {
        match &self.initial {
            None => self.placement.to_string(),
            Some(initial) => format!("{initial},{}", self.placement),
        }
    }
}

/// What was done about a program's pages.
#[derive(Debug, Default)]
pub struct MemoryReport {
    /// The figures.
    pub summary: Summary,
    /// What is known of allocation sites now.
    pub sites: Vec<(u64, RegionTier)>,
    /// Where regions had their pages in the end.
    pub saved_placements: Vec<SavedPlacement>,
    /// How accesses were counted, if the policy wanted it and there was a way.
    pub counters: Option<&'static str>,
    /// Which other ways there are, and why they are not taken.
    pub uncounted: Vec<(&'static str, SamplingError)>,
    /// The last reason for which pages could not be sampled.
    pub unarmed: Option<SamplingError>,
    /// Why no faults were watched: only known sites could be placed.
    pub unwatched: Option<WatchError>,
    /// Faults of the kernel on the program's behalf (`read` into fresh memory) were not seen.
    pub without_kernel: bool,
    /// Faults that found no room in their ring.
    pub faults_lost: u64,
    /// What the program could not tell.
    pub lost: Lost,
    /// CPUs that came after the start, whose faults were not seen.
    pub unwatched_cpus: usize,
    /// Orders that found no room.
    pub bind_requests_refused: u64,
    /// Processor time of the agent.
    pub agent: Duration,
    /// How long the program ran.
    pub ran: Duration,
    /// Why the log is not whole.
    pub log: Option<Error>,
    /// Why what memory costs here could not be read or kept.
    pub calibration: Option<String>,
}

/// Sets the mechanism up for a run on these nodes.
///
/// # Errors
/// The policy is none for the memory of a running program.
pub(crate) fn set_up(
    options: &MemoryOptions,
    dry_run: bool,
    machine: &Arc<dyn Machine>,
    nodes: &[NodeMemory],
) -> Result<Setup<PlacementActuator>> {
    let stored = StoredCalibration::load(&**machine, nodes, options.cache.as_deref());
    let known = |&(signature, class): &(u64, RegionTier)| KnownSiteTier { signature, class };
    let page_bytes = machine.page_bytes();
    let mut config = Config {
        huge_page_bytes: machine.huge_page_bytes(),
        dry_run,
        cpu_permille: options.cpu_permille,
        sites: options.sites.iter().map(known).collect(),
        placed: options.saved_placements.clone(),
        ..Config::new(
            options.policy(),
            page_bytes,
            nodes,
            stored.calibration.as_ref(),
        )
    };
    let mut counter_source = match config.counts()? {
        true => CounterSource::find(&**machine, options.counters),
        false => CounterSource::default(),
    };
    config.source = counter_source.source();
    config.measured.sample_ns = counter_source.sample_ns();
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
