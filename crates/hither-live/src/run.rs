//! Runs a program under one mechanism or several.
//!
//! One thread, the agent, feeds all controllers from one drain of the program's rings: records,
//! page samples and timers come in, decisions go out. If it dies, nobody drains the rings, and the
//! program runs on under the kernel alone.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hither_kernel::machine::{Machine, NodeMemory, ThisMachine};
use hither_kernel::page_cache::{PageCache, ThisPageCache};
use hither_session::record::Record;
use hither_session::session::{RingInfo, Session, SessionOptions};

use crate::agent::{Agent, AnyAgent, Poll, RecordSource, RunState, SessionNeeds};
use crate::decision_log::LogFile;
use crate::error::{Conflict, Error, Result};
use crate::file_migration::{self, FileMigrationOptions, FileMigrationReport};
use crate::file_placement::{FilePlacement, FilePlacementOptions, FilePlacementReport};
use crate::launch::{self, Instrumentation, Supervised};
use crate::memory::{self, MemoryOptions, MemoryReport};
use crate::page_cache::{self, PageCacheOptions, PageCacheReport};
use crate::polling::Periodic;
use crate::replication::{self, ReplicationOptions, ReplicationReport};
use crate::status::{Status, StatusFile};

/// How often the rings of threads that died without reporting it are looked for.
const REAP_PERIOD_NS: u64 = 500_000_000;

/// How often the status is published.
const STATUS_PERIOD_NS: u64 = 1_000_000_000;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Path of the library that the program loads: the recorder's, or the one that also reports
    /// regions where memory is placed.
    pub preload: PathBuf,
    /// Decisions are not carried out.
    pub dry_run: bool,
    /// Where to log inputs and decisions.
    pub log: Option<PathBuf>,
    /// The number and size of rings, and the depth of call stacks. The mechanisms set the rest.
    pub session: SessionOptions,
}

/// The mechanisms of a run.
#[derive(Clone, Debug, Default)]
pub struct Mechanisms {
    /// A replacement policy decides what the page cache keeps of the program's files.
    pub page_cache: Option<PageCacheOptions>,
    /// Blocks of files are copied to the nodes that read them.
    pub replication: Option<ReplicationOptions>,
    /// Pages of files are allocated on chosen nodes.
    pub file_placement: Option<FilePlacementOptions>,
    /// Pages of files move to the nodes that read them.
    pub file_migration: Option<FileMigrationOptions>,
    /// A placement policy decides where the program's memory is.
    pub memory: Option<MemoryOptions>,
}

impl Mechanisms {
    /// The first two that cannot run together.
    pub fn conflict(&self) -> Option<Conflict> {
        let replication = self.replication.is_some();
        let files = self.file_placement.is_some() || self.file_migration.is_some();
        if replication && self.page_cache.is_some() {
            return Some(Conflict::ReplicationHidesPageCache);
        }
        if replication && files {
            return Some(Conflict::ReplicationHidesFiles);
        }
        let both = self.file_placement.is_some() && self.file_migration.is_some();
        both.then_some(Conflict::PlacementAgainstMigration)
    }
}

/// A run that has ended. A mechanism without a report was not asked for, or stepped aside.
#[derive(Debug)]
pub struct RunReport {
    /// How the program ended.
    pub exit: ExitStatus,
    /// How long it ran.
    pub ran: Duration,
    /// Processor time of the agent.
    pub agent: Duration,
    /// The result of steering the page cache.
    pub page_cache: Option<PageCacheReport>,
    /// The result of replication.
    pub replication: Option<ReplicationReport>,
    /// The result of placing pages of files.
    pub file_placement: Option<FilePlacementReport>,
    /// The result of moving pages of files. `None` on a machine with one node.
    pub file_migration: Option<FileMigrationReport>,
    /// The result of placing memory. `None` on a machine with one node.
    pub memory: Option<MemoryReport>,
}

/// The system that a run is on.
#[derive(Clone)]
pub struct System {
    /// The machine.
    pub machine: Arc<dyn Machine>,
    /// Its page cache.
    pub page_cache: Arc<dyn PageCache>,
}

impl Default for System {
    fn default() -> System {
        System {
            machine: Arc::new(ThisMachine),
            page_cache: Arc::new(ThisPageCache),
        }
    }
}

/// Runs the program to its end on this machine. It has this process's standard streams and process
/// group. While it runs, this process ignores SIGINT and SIGQUIT, and forwards SIGTERM, SIGHUP,
/// SIGUSR1 and SIGUSR2 to it.
///
/// On a machine with one node nothing is moved: memory and file migration step aside, unless it is
/// a dry run.
///
/// # Errors
/// Two mechanisms cannot run together, one cannot be set up, or the program cannot be started.
pub fn run(options: &RunOptions, mechanisms: &Mechanisms) -> Result<RunReport> {
    run_on(&System::default(), options, mechanisms)
}

/// Runs the program on a given system, which tests can simulate.
///
/// # Errors
/// As [`run`].
pub fn run_on(system: &System, options: &RunOptions, mechanisms: &Mechanisms) -> Result<RunReport> {
    launch::check_preload(&options.preload)?;
    if let Some(conflict) = mechanisms.conflict() {
        return Err(Error::Conflict(conflict));
    }
    let (agents, needs) = Agents::set_up(system, options, mechanisms)?;
    if agents.is_empty() {
        let start = Instant::now();
        return Ok(RunReport {
            exit: launch::run_uninstrumented(&options.command)?,
            ran: start.elapsed(),
            agent: Duration::ZERO,
            page_cache: None,
            replication: None,
            file_placement: None,
            file_migration: None,
            memory: None,
        });
    }
    agents.run(options, needs)
}

/// The nodes that pages can be moved between. `None` on a machine with one node, unless it is a dry
/// run.
fn nodes_to_move_between(machine: &dyn Machine, dry_run: bool) -> Result<Option<Vec<NodeMemory>>> {
    let hidden = |error: io::Error| Error::Nodes(error.to_string());
    let nodes = machine.nodes().map_err(hidden)?;
    Ok((dry_run || !launch::is_alone(&nodes)).then_some(nodes))
}

/// The agents of a run, and file placement, which needs none.
struct Agents {
    page_cache: Option<Agent<page_cache::PageCacheActuator>>,
    replication: Option<Agent<replication::ReplicationActuator>>,
    file_placement: Option<FilePlacement>,
    file_migration: Option<Agent<file_migration::FileMigrationActuator>>,
    memory: Option<Agent<memory::PlacementActuator>>,
}

impl Agents {
    /// Sets up the agents of the given mechanisms, except for those that have nothing to do on this
    /// machine. Returns also what they need of the session.
    fn set_up(
        system: &System,
        options: &RunOptions,
        mechanisms: &Mechanisms,
    ) -> Result<(Agents, Vec<SessionNeeds>)> {
        let (dry_run, machine) = (options.dry_run, &system.machine);
        let nodes = if mechanisms.memory.is_some() || mechanisms.file_migration.is_some() {
            nodes_to_move_between(&**machine, dry_run)?
        } else {
            None
        };
        let page_cache = mechanisms.page_cache.as_ref().map(|options| {
            let cache = Arc::clone(&system.page_cache);
            page_cache::set_up(options, dry_run, cache)
        });
        let replication = mechanisms.replication.as_ref();
        let replication = replication
            .map(|options| replication::set_up(options, dry_run))
            .transpose()?;
        let file_placement = mechanisms.file_placement.as_ref();
        let file_placement = file_placement.map(FilePlacement::set_up).transpose()?;
        let file_migration = mechanisms.file_migration.as_ref().zip(nodes.as_ref());
        let file_migration = file_migration
            .map(|(options, nodes)| file_migration::set_up(options, dry_run, machine, nodes))
            .transpose()?;
        let memory = mechanisms.memory.as_ref().zip(nodes.as_ref());
        let memory = memory
            .map(|(options, nodes)| memory::set_up(options, dry_run, machine, nodes))
            .transpose()?;

        let needs = [
            page_cache.as_ref().map(|setup| setup.session),
            replication.as_ref().map(|setup| setup.session),
            file_placement.as_ref().map(FilePlacement::session),
            file_migration.as_ref().map(|setup| setup.session),
            memory.as_ref().map(|setup| setup.session),
        ];
        let controllers = [
            page_cache.is_some(),
            replication.is_some(),
            file_migration.is_some(),
            memory.is_some(),
        ];
        let controllers = controllers.into_iter().filter(|is_there| *is_there).count();
        let log = options.log.as_deref().filter(|_| controllers > 0);
        let log = log
            .map(|path| LogFile::create(path, controllers > 1))
            .transpose()?;
        let log = log.as_ref();
        let agents = Agents {
            page_cache: page_cache.map(|setup| Agent::new(setup, log)).transpose()?,
            replication: replication
                .map(|setup| Agent::new(setup, log))
                .transpose()?,
            file_placement,
            file_migration: file_migration
                .map(|setup| Agent::new(setup, log))
                .transpose()?,
            memory: memory.map(|setup| Agent::new(setup, log)).transpose()?,
        };
        Ok((agents, needs.into_iter().flatten().collect()))
    }

    /// Whether there is nothing to do.
    fn is_empty(&self) -> bool {
        self.page_cache.is_none()
            && self.replication.is_none()
            && self.file_placement.is_none()
            && self.file_migration.is_none()
            && self.memory.is_none()
    }

    fn all(&mut self) -> impl Iterator<Item = &mut dyn AnyAgent> {
        fn any<A: AnyAgent>(agent: &mut Option<A>) -> Option<&mut dyn AnyAgent> {
            agent.as_mut().map(|agent| agent as &mut dyn AnyAgent)
        }
        let agents = [
            any(&mut self.page_cache),
            any(&mut self.replication),
            any(&mut self.file_migration),
            any(&mut self.memory),
        ];
        agents.into_iter().flatten()
    }

    /// Runs the program to its end, with the agents on a thread of their own.
    fn run(mut self, options: &RunOptions, needs: Vec<SessionNeeds>) -> Result<RunReport> {
        let file_mechanisms = needs.iter().filter(|of| of.block_bytes.is_some()).count();
        let needs = needs.into_iter().reduce(SessionNeeds::and);
        let session = needs.unwrap_or_default().options(options.session);
        let session = Session::create(session).map_err(Error::Session)?;
        let mut state = RunState::new(session, file_mechanisms);
        for agent in self.all() {
            agent.attach(&mut state);
        }
        let name = state.session.name().to_owned();
        let instrumentation = Instrumentation {
            preload: &options.preload,
            session: &name,
        };
        let words = options.command.iter();
        let status = Status {
            agent: std::process::id(),
            command: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            dry_run: options.dry_run,
            ..Status::default()
        };
        let prepare = move || {
            self.all().for_each(AnyAgent::prepare);
            self
        };
        let work = |program, agents: Agents, ended: &AtomicBool| {
            state.program = program;
            let mut run_loop = RunLoop {
                agents,
                state,
                status_file: StatusFile::new(status.agent),
                status,
            };
            run_loop.run(ended)?;
            Ok((run_loop.agents, run_loop.state))
        };
        let supervised =
            launch::supervise("agent", &options.command, instrumentation, prepare, work)?;
        let Supervised {
            exit, ran, made, ..
        } = supervised;
        let (agents, mut state) = made.map_err(Error::Session)?;
        Ok(agents.finish(exit, &mut state, ran))
    }

    /// The result of the run.
    fn finish(self, exit: ExitStatus, state: &mut RunState, ran: Duration) -> RunReport {
        RunReport {
            exit,
            ran,
            agent: state.cpu(),
            page_cache: self.page_cache.map(|agent| agent.finish(state, ran)),
            replication: self.replication.map(|agent| agent.finish(state, ran)),
            file_placement: self.file_placement.map(|placement| placement.finish(state)),
            file_migration: self.file_migration.map(|agent| agent.finish(state, ran)),
            memory: self.memory.map(|agent| agent.finish(state, ran)),
        }
    }
}

/// The loop of the agent's thread.
struct RunLoop {
    agents: Agents,
    state: RunState,
    status: Status,
    status_file: Option<StatusFile>,
}

impl RunLoop {
    /// Polls until `ended` is set, and then once more.
    fn run(&mut self, ended: &AtomicBool) -> io::Result<()> {
        for agent in self.agents.all() {
            agent.start()?;
        }
        let mut reap = Periodic::after(REAP_PERIOD_NS);
        let mut publish = Periodic::after(STATUS_PERIOD_NS);
        loop {
            // Read before the drain, so that the last drain finds all that the program did.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.state.now_ns();
            let reaped = reap.is_due(now_ns);
            let records = self.drain(reaped);
            for agent in self.agents.all() {
                let poll = Poll {
                    now_ns,
                    inputs: Vec::new(),
                    records,
                    reaped,
                    last,
                };
                agent.step(&mut self.state, poll);
            }
            if publish.is_due(now_ns) {
                self.publish(now_ns);
            }
            if last {
                self.state.session.close();
                return Ok(());
            }
            let now_ns = self.state.now_ns();
            let waits = self.agents.all().map(|agent| agent.wait(now_ns, records));
            match waits.min() {
                Some(wait) => thread::park_timeout(wait),
                // Until the program has ended.
                None => thread::park(),
            }
        }
    }

    /// Drains the rings; with `reap` also those of threads that are gone. Returns the number of
    /// records.
    fn drain(&mut self, reap: bool) -> usize {
        let RunLoop { agents, state, .. } = self;
        let start_ns = state.start_ns;
        let mut agents: Vec<&mut dyn AnyAgent> = agents.all().collect();
        for agent in &mut agents {
            agent.take_samples(start_ns);
        }
        let RunState {
            session,
            streams,
            definitions,
            ..
        } = state;
        let mut take = |ring: &RingInfo, mut record: Record<'_>| {
            let is_new_image = match record {
                Record::Process { .. } => streams.on_record(ring, &record).is_some(),
                Record::Site { .. } | Record::Module { .. } => {
                    return definitions.on_record(&record, || streams.maps_of(ring));
                }
                _ => false,
            };
            // Those of regions stay what they are in the process, which is answered by them.
            if let Record::Access { signature, .. } = &mut record {
                *signature = definitions.site_of(*signature);
            }
            let mut source = RecordSource {
                ring,
                streams: &mut *streams,
                is_new_image,
            };
            for agent in &mut agents {
                agent.on_record(start_ns, &mut source, &record);
            }
        };
        let mut records = session.drain(&mut take);
        if reap {
            records += session.reap(&mut take);
        }
        records
    }

    /// Publishes the status of the run.
    fn publish(&mut self, now_ns: u64) {
        let RunLoop {
            agents,
            state,
            status,
            status_file,
        } = self;
        let Some(file) = status_file else {
            return;
        };
        status.mechanisms = agents.all().map(|agent| agent.status(state)).collect();
        status.ran_ns = now_ns;
        status.agent_ns = state.cpu().as_nanos() as u64;
        file.publish(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_go_with_memory_alone() {
        let replication = Some(ReplicationOptions {
            policy: "dual-layer".parse().expect("a policy"),
            scope: replication::Scope::Far,
            node_bytes: None,
        });
        let mut mechanisms = Mechanisms {
            replication,
            file_placement: Some(FilePlacementOptions::default()),
            ..Mechanisms::default()
        };
        let conflict = mechanisms.conflict();
        assert_eq!(conflict, Some(Conflict::ReplicationHidesFiles));
        mechanisms.file_placement = None;
        assert_eq!(mechanisms.conflict(), None);
    }
}
