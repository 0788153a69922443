//! Runs a program with its memory placed.
//!
//! The thread that starts the program opens the fault events first, so that its child has them; the
//! agent's own threads were there before and have them not. The agent looks as often as it finds
//! something: every millisecond while pages are touched (a ring of faults fills in 13 ms at the
//! least), every 20 ms when nothing happens. If it dies, nobody empties the rings, orders stay
//! where they are, and the program runs on.

mod actuator;
mod counter_source;
mod figures;
mod record_input;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hither_core::Spec;
use hither_core::placement::{self, RegionTier};
use hither_sys::machine::{Machine, NodeMemory, ThisMachine};
use hither_sys::page_faults::WatchError;
use hither_sys::page_sampling::SamplingError;
use hither_sys::process::cpu_ns;
use hither_sys::session::{Lost, SessionOptions};

use self::actuator::PlacementActuator;
use self::counter_source::CounterSource;
use super::controller::{Config, KnownSiteTier, SavedPlacement, Summary};
use crate::error::{Error, Result};
use crate::numa::calibration::{Calibration, StoredCalibration};
use crate::run::launch::{self, Instrumentation, Supervised};
use crate::run::{Agent, RunOptions};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The program.
    pub run: RunOptions,
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
    /// Rings, how far call stacks are followed, and from what size on an allocation is a region.
    pub session: SessionOptions,
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

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    /// How the program ended.
    pub exit: ExitStatus,
    /// What was done; nothing on a machine of one node, where the program ran as if we were not
    /// there.
    pub pages: Option<MemoryReport>,
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

/// Runs a program with its memory placed.
pub struct Runner {
    options: MemoryOptions,
    machine: Arc<dyn Machine>,
}

impl Runner {
    /// For one run on this machine.
    pub fn new(options: MemoryOptions) -> Runner {
        Runner::on(options, Arc::new(ThisMachine))
    }

    /// For one run on a machine that answers otherwise.
    pub fn on(options: MemoryOptions, machine: Arc<dyn Machine>) -> Runner {
        Runner { options, machine }
    }

    /// Runs the program to its end. It has this process's standard streams and process group. While
    /// it runs, SIGINT and SIGQUIT are left to it, and SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are
    /// passed on to it.
    pub fn run(&self) -> Result<Ran> {
        let options = &self.options;
        launch::check_preload(&options.run.preload)?;
        let nodes =
            launch::nodes_or_run(&*self.machine, &options.run.command, options.run.dry_run)?;
        let nodes = match nodes {
            ControlFlow::Continue(nodes) => nodes,
            ControlFlow::Break(exit) => return Ok(Ran { exit, pages: None }),
        };
        let known = StoredCalibration::load(&*self.machine, &nodes, options.cache.as_deref());
        let mut config = self.config(&nodes, known.calibration.as_ref());
        let mut way = match config.counts()? {
            true => CounterSource::find(&*self.machine, options.counters),
            false => CounterSource::default(),
        };
        config.source = way.source();
        config.measured.sample_ns = way.sample_ns();
        let session = SessionOptions {
            sampling: way.needs_offers(),
            ..options.session
        };
        let agent = Agent::new(&options.run, options.policy(), &config, session)?;
        let path = agent.session.path().to_owned();
        let tools = Instrumentation {
            preload: &options.run.preload,
            session: &path,
        };
        let cpu_before_ns = cpu_ns();
        let machine = Arc::clone(&self.machine);
        let mut actuator = PlacementActuator::new(machine, agent, &mut way, options.run.dry_run);
        let run_loop = |_, (faults, loads), ended: &AtomicBool| {
            actuator.run_loop(faults, loads, ended)?;
            Ok(actuator)
        };
        let Supervised { exit, ran, made } = launch::supervise(
            "pages",
            &options.run.command,
            tools,
            || {
                (
                    self.machine.faults(),
                    way.samples(&nodes, options.cpu_permille),
                )
            },
            run_loop,
        )?;
        let mut pages = made.map_err(Error::Session)?.finish();
        pages.agent = Duration::from_nanos(cpu_ns() - cpu_before_ns);
        pages.ran = ran;
        pages.calibration = known.problem;
        Ok(Ran {
            exit,
            pages: Some(pages),
        })
    }

    fn config(&self, nodes: &[NodeMemory], calibration: Option<&Calibration>) -> Config {
        let known = |&(signature, class): &(u64, RegionTier)| KnownSiteTier { signature, class };
        let page_bytes = self.machine.page_bytes();
        Config {
            huge_page_bytes: self.machine.huge_page_bytes(),
            dry_run: self.options.run.dry_run,
            cpu_permille: self.options.cpu_permille,
            sites: self.options.sites.iter().map(known).collect(),
            placed: self.options.saved_placements.clone(),
            ..Config::new(self.options.policy(), page_bytes, nodes, calibration)
        }
    }
}
