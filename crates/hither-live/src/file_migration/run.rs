//! Runs a program whose files' pages follow their readers.

mod actuator;
mod figures;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use hither_core::Spec;
use hither_core::placement;
use hither_sys::machine::{Machine, ThisMachine};
use hither_sys::session::{Lost, SessionOptions};

use self::actuator::FileMigrationActuator;
use super::controller::{BLOCK_PAGES, Config, Summary};
use crate::error::{Error, Result};
use crate::numa::calibration::StoredCalibration;
use crate::run::launch::{self, Supervised};
use crate::run::{Agent, RunOptions};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct FileMigrationOptions {
    /// The program.
    pub run: RunOptions,
    /// The placement of memory that moves pages; one that [runs live](placement::PlacementEntry::live).
    pub policy: Spec<placement::PlacementEntry>,
    /// Where calibrations of machines are kept; none are read or made without.
    pub cache: Option<PathBuf>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    /// How the program ended.
    pub exit: ExitStatus,
    /// What was done; nothing on a machine of one node, where the program ran as if we were not
    /// there.
    pub followed: Option<FileMigrationReport>,
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

/// Runs a program whose files' pages follow their readers.
pub struct Runner {
    options: FileMigrationOptions,
    machine: Arc<dyn Machine>,
}

impl Runner {
    /// For one run on this machine.
    pub fn new(options: FileMigrationOptions) -> Runner {
        Runner::on(options, Arc::new(ThisMachine))
    }

    /// For one run on a machine that answers otherwise.
    pub fn on(options: FileMigrationOptions, machine: Arc<dyn Machine>) -> Runner {
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
            ControlFlow::Break(exit) => {
                return Ok(Ran {
                    exit,
                    followed: None,
                });
            }
        };
        let known = StoredCalibration::load(&*self.machine, &nodes, options.cache.as_deref());
        let block_bytes = self.machine.page_bytes() * u64::from(BLOCK_PAGES);
        let config = Config {
            dry_run: options.run.dry_run,
            ..Config::new(
                options.policy.to_string(),
                block_bytes,
                &nodes,
                known.calibration.as_ref(),
            )
        };
        let session = SessionOptions {
            // Which line of code reads is of no account.
            frames_max: 1,
            block_bytes,
            ..SessionOptions::default()
        };
        let mut agent = Agent::new(&options.run, options.policy.to_string(), &config, session)?;
        agent.status.nodes = nodes.iter().map(|node| node.node).collect();
        let following = FileMigrationActuator::new(Arc::clone(&self.machine), options.run.dry_run);
        let following = following.map_err(Error::Session)?;
        let Supervised { exit, ran, made } = agent.run("files", &options.run, following)?;
        let (agent, following) = made;
        let followed = FileMigrationReport {
            ran,
            ..following.finish(agent)
        };
        Ok(Ran {
            exit,
            followed: Some(followed),
        })
    }
}
