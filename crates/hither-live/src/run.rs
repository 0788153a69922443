//! What every agent has, whatever it is for: rings to empty, a controller that decides, a log of both,
//! and those who look on.
//!
//! What one agent does that no other does is a controller, which never touches the world, and a
//! [`Actuator`], which hears what the controller has use for and does what it decides. The agent of
//! memory pages hears of more than records and is woken by its controller, so it has a loop of its own.

pub(crate) mod launch;

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use hither_sys::process::{cpu_ns, monotonic_ns};
use hither_sys::record::Record;
use hither_sys::session::{RingInfo, Session, SessionOptions};
use serde_json::Value;

use self::launch::{Instrumentation, Supervised};
use crate::controller::{Controller, TimedInput};
use crate::decision_log::DecisionLog;
use crate::error::{Error, Result};
use crate::observe::{Definitions, Streams, sites};
use crate::polling::Periodic;
use crate::status::{Status, StatusFile};
use crate::symbolise::Symboliser;

/// How often the rings of threads that died without a word are looked for.
pub(crate) const REAP_NS: u64 = 500_000_000;

/// What to run, whatever its agent is for.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Path of the library that the program loads: the recorder's, or for memory pages the one that
    /// tells of regions.
    pub preload: PathBuf,
    /// Decide, and carry nothing out.
    pub dry_run: bool,
    /// Where to log what was heard and decided.
    pub log: Option<PathBuf>,
}

/// See the module.
pub(crate) struct Agent<C: Controller> {
    pub(crate) controller: C,
    /// Decided and not yet carried out, the oldest first.
    pub(crate) decisions: VecDeque<C::Decision>,
    /// What the controller decides on one input: moved to `decisions` once it is logged.
    decided: Vec<C::Decision>,
    pub(crate) session: Session,
    pub(crate) streams: Streams,
    pub(crate) definitions: Definitions,
    /// Call sites that the log is to name.
    pub(crate) sites: BTreeSet<u64>,
    pub(crate) start_ns: u64,
    /// What those who look on are told.
    pub(crate) status: Status,
    log: Option<DecisionLog<C>>,
    status_file: Option<StatusFile>,
    wall: SystemTime,
    cpu_before_ns: u64,
}

/// What was found when the rings were emptied.
pub(crate) struct Poll<I> {
    pub(crate) now_ns: u64,
    /// In order of time.
    pub(crate) events: Vec<TimedInput<I>>,
    /// How much there was to read, events or not.
    pub(crate) records: usize,
    /// The program has ended.
    pub(crate) last: bool,
}

/// What an agent does for its controller.
pub(crate) trait Actuator {
    /// What decides.
    type Controller: Controller;

    /// What a record says that the controller is to hear, and when that was.
    fn on_record(
        &mut self,
        streams: &mut Streams,
        ring: &RingInfo,
        record: &Record<'_>,
    ) -> Option<(u64, InputOf<Self>)>;

    /// Has the controller hear of what came, and does what it decides.
    fn step(&mut self, agent: &mut Agent<Self::Controller>, poll: Poll<InputOf<Self>>);

    /// How long to wait after a look that found so many records.
    fn pause(&mut self, records: usize) -> Duration;
}

/// What a actuator's controller hears.
pub(crate) type InputOf<M> = <<M as Actuator>::Controller as Controller>::Input;

impl<C: Controller> Agent<C> {
    /// A controller at its start, and a session for the program. The policy is given with its
    /// parameters.
    pub(crate) fn new(
        options: &RunOptions,
        policy: String,
        config: &C::Config,
        session: SessionOptions,
    ) -> Result<Agent<C>> {
        let controller = C::new(config)?;
        let log = options
            .log
            .as_deref()
            .map(|path| DecisionLog::create(path, config))
            .transpose()?;
        let session = Session::create(session).map_err(Error::Session)?;
        let words = options.command.iter();
        let shown = words.map(|word| word.to_string_lossy().into_owned());
        Ok(Agent {
            controller,
            decisions: VecDeque::new(),
            decided: Vec::new(),
            session,
            streams: Streams::default(),
            definitions: Definitions::default(),
            sites: BTreeSet::new(),
            start_ns: monotonic_ns(),
            status: Status {
                agent: std::process::id(),
                command: shown.collect(),
                policy,
                dry_run: options.dry_run,
                ..Status::default()
            },
            log,
            status_file: StatusFile::new(std::process::id()),
            wall: SystemTime::now(),
            cpu_before_ns: cpu_ns(),
        })
    }

    pub(crate) fn now_ns(&self) -> u64 {
        monotonic_ns() - self.start_ns
    }

    /// Processor time of this process since the agent was made.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(cpu_ns() - self.cpu_before_ns)
    }

    /// Has the controller hear of something. What it decides is added to `decisions`.
    pub(crate) fn input(&mut self, time_ns: u64, input: C::Input) {
        let at = TimedInput { time_ns, input };
        self.controller.input(&at, &mut self.decided);
        if let Some(log) = &mut self.log {
            log.input(&at);
            self.decided
                .iter()
                .for_each(|decision| log.decision(decision));
        }
        self.decisions.extend(self.decided.drain(..));
    }

    /// Says what goes on, for those who look on.
    pub(crate) fn publish(&mut self, now_ns: u64, figures: Value) {
        let agent_ns = self.cpu().as_nanos() as u64;
        if let Some(status_file) = &self.status_file {
            self.status.ran_ns = now_ns;
            self.status.agent_ns = agent_ns;
            self.status.figures = figures;
            status_file.publish(&self.status);
        }
    }

    /// Names the call sites and completes the log; why it is not whole, if it is not.
    pub(crate) fn finish(self, figures: &Value) -> Option<Error> {
        let mut log = self.log?;
        let signatures: Vec<u64> = self.sites.into_iter().collect();
        for site in sites::rows(&signatures, &self.definitions, &Symboliser::new(self.wall)) {
            log.site(&site);
        }
        log.finish(figures).err()
    }

    /// Runs the program to its end, with the agent at work on a thread of this name.
    pub(crate) fn run<M: Actuator<Controller = C> + Send>(
        mut self,
        name: &str,
        options: &RunOptions,
        mut actuator: M,
    ) -> Result<Supervised<(Self, M)>>
    where
        C: Send,
    {
        let path = self.session.path().to_owned();
        let tools = Instrumentation {
            preload: &options.preload,
            session: &path,
        };
        let run_loop = |_, (), ended: &AtomicBool| {
            self.run_loop(&mut actuator, ended);
            (self, actuator)
        };
        launch::supervise(name, &options.command, tools, || (), run_loop)
    }

    /// Takes everything in until `ended` is set, and then once more.
    fn run_loop<M: Actuator<Controller = C>>(&mut self, actuator: &mut M, ended: &AtomicBool) {
        let mut reap = Periodic::after(REAP_NS);
        loop {
            // Read first: what the program did before it ended is seen by the look after.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.now_ns();
            let (events, records) = self.drain(actuator, reap.is_due(now_ns));
            let poll = Poll {
                now_ns,
                events,
                records,
                last,
            };
            actuator.step(self, poll);
            if last {
                self.session.close();
                return;
            }
            thread::park_timeout(actuator.pause(records));
        }
    }

    /// Empties the rings: events in order of time, and how many records there were.
    fn drain<M: Actuator<Controller = C>>(
        &mut self,
        actuator: &mut M,
        reap: bool,
    ) -> (Vec<TimedInput<C::Input>>, usize) {
        let Agent {
            session,
            streams,
            definitions,
            start_ns,
            ..
        } = self;
        let mut events = Vec::new();
        let mut hear = |ring: &RingInfo, record: Record<'_>| match record {
            Record::Process {
                parent, exe, args, ..
            } => drop(streams.announced(ring, parent, exe, args)),
            Record::Site { .. } | Record::Module { .. } => definitions.on_record(&record),
            _ => {
                let heard = actuator.on_record(streams, ring, &record);
                events.extend(heard.map(|(time_ns, input)| TimedInput {
                    time_ns: time_ns.saturating_sub(*start_ns),
                    input,
                }));
            }
        };
        let mut records = session.drain(&mut hear);
        if reap {
            records += session.reap(&mut hear);
        }
        events.sort_by_key(|at| at.time_ns);
        (events, records)
    }
}
