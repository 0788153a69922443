//! Runs a program with its memory placed.
//!
//! The thread that starts the program opens the fault events first, so that its child has them; the
//! agent's own threads were there before and have them not. The agent looks as often as it finds
//! something: every millisecond while pages are touched (a ring of faults fills in 13 ms at the
//! least), every 20 ms when nothing happens. If it dies, nobody empties the rings, orders stay
//! where they are, and the program runs on.

mod agent;
mod figures;
mod heard;
mod way;

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

use self::agent::Placing;
use self::way::Way;
use super::calibration::{Calibration, Known};
use super::driver::{Config, KnownSite, Placed, Summary};
use crate::agent::{Agent, RunOptions};
use crate::error::{Error, Result};
use crate::launch::{self, Attended, Tools};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct PagesOptions {
    /// The program.
    pub run: RunOptions,
    /// Where pages go; one that [runs live](placement::PlacementEntry::live).
    pub placement: Spec<placement::PlacementEntry>,
    /// What that is made of, in place of what its parameter names.
    pub initial: Option<Spec<placement::PlacementEntry>>,
    /// What is known of allocation sites, by signature.
    pub sites: Vec<(u64, RegionTier)>,
    /// Where regions of an earlier run had their pages in the end.
    pub placed: Vec<Placed>,
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

impl PagesOptions {
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
    pub pages: Option<Pages>,
}

/// What was done about a program's pages.
#[derive(Debug, Default)]
pub struct Pages {
    /// The figures.
    pub summary: Summary,
    /// What is known of allocation sites now.
    pub sites: Vec<(u64, RegionTier)>,
    /// Where regions had their pages in the end.
    pub placed: Vec<Placed>,
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
    pub orders_refused: u64,
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
    options: PagesOptions,
    machine: Arc<dyn Machine>,
}

impl Runner {
    /// For one run on this machine.
    pub fn new(options: PagesOptions) -> Runner {
        Runner::on(options, Arc::new(ThisMachine))
    }

    /// For one run on a machine that answers otherwise.
    pub fn on(options: PagesOptions, machine: Arc<dyn Machine>) -> Runner {
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
        let known = Known::of(&*self.machine, &nodes, options.cache.as_deref());
        let mut config = self.config(&nodes, known.calibration.as_ref());
        let mut way = match config.counts()? {
            true => Way::find(&*self.machine, options.counters),
            false => Way::default(),
        };
        config.source = way.source();
        config.measured.sample_ns = way.sample_ns();
        let session = SessionOptions {
            sampling: way.needs_offers(),
            ..options.session
        };
        let agent = Agent::new(&options.run, options.policy(), &config, session)?;
        let path = agent.session.path().to_owned();
        let tools = Tools {
            preload: &options.run.preload,
            session: &path,
        };
        let cpu_before_ns = cpu_ns();
        let machine = Arc::clone(&self.machine);
        let mut placing = Placing::new(machine, agent, &mut way, options.run.dry_run);
        let attend = |_, (faults, loads), ended: &AtomicBool| {
            placing.attend(faults, loads, ended)?;
            Ok(placing)
        };
        let Attended { exit, ran, made } = launch::attend(
            "pages",
            &options.run.command,
            tools,
            || {
                (
                    self.machine.faults(),
                    way.samples(&nodes, options.cpu_permille),
                )
            },
            attend,
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
        let known = |&(signature, class): &(u64, RegionTier)| KnownSite { signature, class };
        let page_bytes = self.machine.page_bytes();
        Config {
            huge_page_bytes: self.machine.huge_page_bytes(),
            dry_run: self.options.run.dry_run,
            cpu_permille: self.options.cpu_permille,
            sites: self.options.sites.iter().map(known).collect(),
            placed: self.options.placed.clone(),
            ..Config::new(self.options.policy(), page_bytes, nodes, calibration)
        }
    }
}
