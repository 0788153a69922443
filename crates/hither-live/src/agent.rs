//! What every agent has, whatever it is for: rings to empty, a driver that decides, a log of both,
//! and those who look on.
//!
//! What one agent does that no other does is a driver, which never touches the world, and a
//! [`Mechanism`], which hears what the driver has use for and does what it decides. The agent of
//! memory pages hears of more than records and is woken by its driver, so it has a loop of its own.

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

use crate::error::{Error, Result};
use crate::launch::{self, Attended, Tools};
use crate::log::{At, Driven, Log};
use crate::observe::{Definitions, Streams, sites};
use crate::pace::Every;
use crate::status::{Board, Status};
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
pub(crate) struct Agent<D: Driven> {
    pub(crate) driver: D,
    /// Decided and not yet carried out, the oldest first.
    pub(crate) decisions: VecDeque<D::Decision>,
    /// What the driver decides on one input: moved to `decisions` once it is logged.
    decided: Vec<D::Decision>,
    pub(crate) session: Session,
    pub(crate) streams: Streams,
    pub(crate) definitions: Definitions,
    /// Call sites that the log is to name.
    pub(crate) sites: BTreeSet<u64>,
    pub(crate) start_ns: u64,
    /// What those who look on are told.
    pub(crate) said: Status,
    log: Option<Log<D>>,
    board: Option<Board>,
    wall: SystemTime,
    cpu_before_ns: u64,
}

/// What was found when the rings were emptied.
pub(crate) struct Look<I> {
    pub(crate) now_ns: u64,
    /// In order of time.
    pub(crate) events: Vec<At<I>>,
    /// How much there was to read, events or not.
    pub(crate) records: usize,
    /// The program has ended.
    pub(crate) last: bool,
}

/// What an agent does for its driver.
pub(crate) trait Mechanism {
    /// What decides.
    type Driver: Driven;

    /// What a record says that the driver is to hear, and when that was.
    fn hear(
        &mut self,
        streams: &mut Streams,
        ring: &RingInfo,
        record: &Record<'_>,
    ) -> Option<(u64, InputOf<Self>)>;

    /// Has the driver hear of what came, and does what it decides.
    fn act(&mut self, agent: &mut Agent<Self::Driver>, look: Look<InputOf<Self>>);

    /// How long to wait after a look that found so many records.
    fn pause(&mut self, records: usize) -> Duration;
}

/// What a mechanism's driver hears.
pub(crate) type InputOf<M> = <<M as Mechanism>::Driver as Driven>::Input;

impl<D: Driven> Agent<D> {
    /// A driver at its start, and a session for the program. The policy is given with its
    /// parameters.
    pub(crate) fn new(
        options: &RunOptions,
        policy: String,
        config: &D::Config,
        session: SessionOptions,
    ) -> Result<Agent<D>> {
        let driver = D::new(config)?;
        let log = options
            .log
            .as_deref()
            .map(|path| Log::create(path, config))
            .transpose()?;
        let session = Session::create(session).map_err(Error::Session)?;
        let words = options.command.iter();
        let shown = words.map(|word| word.to_string_lossy().into_owned());
        Ok(Agent {
            driver,
            decisions: VecDeque::new(),
            decided: Vec::new(),
            session,
            streams: Streams::default(),
            definitions: Definitions::default(),
            sites: BTreeSet::new(),
            start_ns: monotonic_ns(),
            said: Status {
                agent: std::process::id(),
                command: shown.collect(),
                policy,
                dry_run: options.dry_run,
                ..Status::default()
            },
            log,
            board: Board::new(std::process::id()),
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

    /// Has the driver hear of something. What it decides is added to `decisions`.
    pub(crate) fn input(&mut self, time_ns: u64, input: D::Input) {
        let at = At { time_ns, input };
        self.driver.input(&at, &mut self.decided);
        if let Some(log) = &mut self.log {
            log.input(&at);
            self.decided
                .iter()
                .for_each(|decision| log.decision(decision));
        }
        self.decisions.extend(self.decided.drain(..));
    }

    /// Says what goes on, for those who look on.
    pub(crate) fn post(&mut self, now_ns: u64, figures: Value) {
        let agent_ns = self.cpu().as_nanos() as u64;
        if let Some(board) = &self.board {
            self.said.ran_ns = now_ns;
            self.said.agent_ns = agent_ns;
            self.said.figures = figures;
            board.post(&self.said);
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
    pub(crate) fn run<M: Mechanism<Driver = D> + Send>(
        mut self,
        name: &str,
        options: &RunOptions,
        mut mechanism: M,
    ) -> Result<Attended<(Self, M)>>
    where
        D: Send,
    {
        let path = self.session.path().to_owned();
        let tools = Tools {
            preload: &options.preload,
            session: &path,
        };
        let attend = |_, (), ended: &AtomicBool| {
            self.attend(&mut mechanism, ended);
            (self, mechanism)
        };
        launch::attend(name, &options.command, tools, || (), attend)
    }

    /// Takes everything in until `ended` is set, and then once more.
    fn attend<M: Mechanism<Driver = D>>(&mut self, mechanism: &mut M, ended: &AtomicBool) {
        let mut reap = Every::after(REAP_NS);
        loop {
            // Read first: what the program did before it ended is seen by the look after.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.now_ns();
            let (events, records) = self.sweep(mechanism, reap.is_due(now_ns));
            let look = Look {
                now_ns,
                events,
                records,
                last,
            };
            mechanism.act(self, look);
            if last {
                self.session.close();
                return;
            }
            thread::park_timeout(mechanism.pause(records));
        }
    }

    /// Empties the rings: events in order of time, and how many records there were.
    fn sweep<M: Mechanism<Driver = D>>(
        &mut self,
        mechanism: &mut M,
        reap: bool,
    ) -> (Vec<At<D::Input>>, usize) {
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
            Record::Site { .. } | Record::Module { .. } => definitions.hear(&record),
            _ => {
                let heard = mechanism.hear(streams, ring, &record);
                events.extend(heard.map(|(time_ns, input)| At {
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
