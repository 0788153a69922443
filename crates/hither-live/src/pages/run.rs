//! Runs a program with its memory placed.
//!
//! The thread that starts the program opens the fault events first, so that its child has them; the agent's own threads
//! were there before and have them not. The agent looks as often as it finds something: every millisecond while pages
//! are touched (a ring of faults fills in 13 ms at the least), every 20 ms when nothing happens. If it dies, nobody
//! empties the rings, orders stay where they are, and the program runs on.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use hither_core::Spec;
use hither_core::placement::{self, Class};
use hither_sys::faults::{PageFaults, Unwatched};
use hither_sys::machine::{Machine, NodeMemory, ThisMachine};
use hither_sys::process::{cpu_ns, monotonic_ns};
use hither_sys::record::{Bind, BindMode, Record};
use hither_sys::session::{Lost, RingInfo, Session, SessionOptions};
use serde_json::json;

use super::driver::{Config, Driver, KnownSite, NodeConfig, Summary};
use super::event::{At, Decision, Input};
use super::log::Log;
use super::mover::{Job, Mover};
use super::usage::Usage;
use crate::error::{Error, Result};
use crate::launch::{self, Attended, Program, Tools};
use crate::observe::{Definitions, Streams, sites};
use crate::symbolise::Symboliser;

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// How often rings and regions of processes that died without a word are looked for.
const REAP_NS: u64 = 500_000_000;

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct PagesOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Path of the library that tells of regions, which the program loads.
    pub preload: PathBuf,
    /// Where pages go; one that can be [live](placement::Entry::live).
    pub placement: Spec<placement::Entry>,
    /// Decide, and carry nothing out.
    pub dry_run: bool,
    /// Where to log what was heard and decided.
    pub log: Option<PathBuf>,
    /// What is known of allocation sites, by signature.
    pub sites: Vec<(u64, Class)>,
    /// Rings, how far call stacks are followed, and from what size on an allocation is a region.
    pub session: SessionOptions,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    /// How the program ended.
    pub exit: ExitStatus,
    /// What was done; nothing on a machine of one node, where the program ran as if we were not there.
    pub pages: Option<Pages>,
}

/// What was done about a program's pages.
#[derive(Debug)]
pub struct Pages {
    /// The figures.
    pub summary: Summary,
    /// What is known of allocation sites now.
    pub sites: Vec<(u64, Class)>,
    /// Why no faults were watched: only known sites could be placed.
    pub unwatched: Option<Unwatched>,
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

    /// Runs the program to its end. It has this process's standard streams and process group. While it runs, SIGINT and
    /// SIGQUIT are left to it, and SIGTERM and SIGHUP are passed on to it.
    pub fn run(&self) -> Result<Ran> {
        let options = &self.options;
        launch::check_preload(&options.preload)?;
        let hidden = |error: std::io::Error| Error::Nodes(error.to_string());
        let nodes = self.machine.nodes().map_err(hidden)?;
        if nodes.len() < 2 && !options.dry_run {
            let exit = Program::start(&options.command, None)?.wait()?;
            return Ok(Ran { exit, pages: None });
        }
        let config = self.config(&nodes);
        let driver = Driver::new(&config)?;
        let log = options.log.as_deref();
        let log = log.map(|path| Log::create(path, &config)).transpose()?;
        let session = Session::create(options.session).map_err(Error::Session)?;
        let path = session.path().to_owned();
        let tools = Tools {
            preload: &options.preload,
            session: &path,
        };
        let wall = SystemTime::now();
        let cpu_before_ns = cpu_ns();
        let mut agent = Agent::new(Arc::clone(&self.machine), driver, log, session, options);
        let attend = |_, faults, ended: &AtomicBool| {
            agent.attend(faults, ended)?;
            Ok(agent)
        };
        let Attended { exit, ran, made } = launch::attend(
            "pages",
            &options.command,
            tools,
            || self.machine.faults(),
            attend,
        )?;
        let mut pages = made.map_err(Error::Session)?.finish(wall);
        pages.agent = Duration::from_nanos(cpu_ns() - cpu_before_ns);
        pages.ran = ran;
        Ok(Ran {
            exit,
            pages: Some(pages),
        })
    }

    fn config(&self, nodes: &[NodeMemory]) -> Config {
        let page_bytes = self.machine.page_bytes();
        let node = |node: &NodeMemory| NodeConfig {
            node: node.node,
            cpus: node.cpus.clone(),
            frames: u32::try_from(node.bytes / page_bytes).unwrap_or(u32::MAX),
            distances: node.distances.clone(),
        };
        let known = |&(signature, class): &(u64, Class)| KnownSite { signature, class };
        Config {
            policy: self.options.placement.to_string(),
            page_bytes,
            huge_page_bytes: self.machine.huge_page_bytes(),
            dry_run: self.options.dry_run,
            nodes: nodes.iter().map(node).collect(),
            sites: self.options.sites.iter().map(known).collect(),
        }
    }
}

/// The agent at work.
struct Agent {
    machine: Arc<dyn Machine>,
    driver: Driver,
    log: Option<Log>,
    session: Session,
    dry_run: bool,
    start_ns: u64,
    faults: Option<Box<dyn PageFaults>>,
    mover: Option<Mover>,
    usage: Usage,
    streams: Streams,
    definitions: Definitions,
    /// Processes that have regions.
    alive: BTreeSet<u32>,
    /// Sites of regions, for the log.
    sites: BTreeSet<u64>,
    decisions: Vec<Decision>,
    pages: Pages,
}

impl Agent {
    fn new(
        machine: Arc<dyn Machine>,
        driver: Driver,
        log: Option<Log>,
        session: Session,
        options: &PagesOptions,
    ) -> Agent {
        Agent {
            usage: Usage::new(Arc::clone(&machine)),
            machine,
            driver,
            log,
            session,
            dry_run: options.dry_run,
            start_ns: monotonic_ns(),
            faults: None,
            mover: None,
            streams: Streams::default(),
            definitions: Definitions::default(),
            alive: BTreeSet::new(),
            sites: BTreeSet::new(),
            decisions: Vec::new(),
            pages: Pages {
                summary: Summary::default(),
                sites: Vec::new(),
                unwatched: None,
                without_kernel: false,
                faults_lost: 0,
                lost: Lost::default(),
                unwatched_cpus: 0,
                orders_refused: 0,
                agent: Duration::ZERO,
                ran: Duration::ZERO,
                log: None,
            },
        }
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns() - self.start_ns
    }

    /// Takes everything in until `ended` is set, and then once more.
    fn attend(
        &mut self,
        faults: std::result::Result<Box<dyn PageFaults>, Unwatched>,
        ended: &AtomicBool,
    ) -> std::io::Result<()> {
        match faults {
            Ok(faults) => self.faults = Some(faults),
            Err(reason) => self.pages.unwatched = Some(reason),
        }
        if !self.dry_run {
            let page_bytes = self.machine.page_bytes();
            self.mover = Some(Mover::start(Arc::clone(&self.machine), page_bytes)?);
        }
        let mut pause = PAUSE_MIN;
        let mut reaped_ns = 0;
        loop {
            // Read first: what the program did before it ended is seen by the sweep after.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.now_ns();
            let mut events = self.sweep(now_ns);
            if now_ns - reaped_ns >= REAP_NS {
                self.reap(now_ns, &mut events);
                reaped_ns = now_ns;
            }
            let quiet = events.is_empty();
            self.hear(now_ns, events);
            if last {
                self.session.close();
                return Ok(());
            }
            pause = match quiet {
                true => (pause * 2).min(PAUSE_MAX),
                false => PAUSE_MIN,
            };
            let due_ns = self.driver.due_ns();
            let due = due_ns.map(|due_ns| due_ns.saturating_sub(self.now_ns()));
            let due = due.map(|due_ns| Duration::from_nanos(due_ns).max(PAUSE_MIN));
            thread::park_timeout(due.map_or(pause, |due| due.min(pause)));
        }
    }

    /// What has happened since the last look, in order of time.
    fn sweep(&mut self, now_ns: u64) -> Vec<At> {
        let mut events = Vec::new();
        let start_ns = self.start_ns;
        // Faults first: the region that one fell into was told of before it, and so is found by the look that follows.
        if let Some(faults) = &mut self.faults {
            faults.drain(&mut |fault| {
                events.push(At {
                    time_ns: fault.time_ns.saturating_sub(start_ns),
                    input: Input::Fault {
                        pid: fault.pid,
                        tid: fault.tid,
                        cpu: fault.cpu,
                        address: fault.address,
                    },
                });
            });
        }
        let Agent {
            session,
            streams,
            definitions,
            ..
        } = self;
        session.drain(|ring, record| {
            events.extend(heard(
                streams,
                definitions,
                ring,
                record,
                (start_ns, now_ns),
            ));
        });
        events.sort_by_key(|at| at.time_ns);
        let done = self.mover.iter().flat_map(Mover::done);
        events.extend(done.map(|moved| At {
            time_ns: now_ns,
            input: Input::Moved(moved),
        }));
        events
    }

    /// Looks for processes that are gone, and for what their rings still hold.
    fn reap(&mut self, now_ns: u64, events: &mut Vec<At>) {
        let Agent {
            session,
            streams,
            definitions,
            start_ns,
            ..
        } = self;
        session.reap(|ring, record| {
            events.extend(heard(
                streams,
                definitions,
                ring,
                record,
                (*start_ns, now_ns),
            ));
        });
        let gone: Vec<u32> = self
            .alive
            .iter()
            .copied()
            .filter(|&pid| !launch::is_running(pid))
            .collect();
        events.extend(gone.into_iter().map(|pid| At {
            time_ns: now_ns,
            input: Input::Ended { pid },
        }));
    }

    /// Has the driver hear of it all, and carries out what it decides.
    fn hear(&mut self, now_ns: u64, events: Vec<At>) {
        if !events.is_empty()
            && let Some(input) = self.usage.read(now_ns)
        {
            self.input(At {
                time_ns: events[0].time_ns,
                input,
            });
        }
        for at in events {
            match at.input {
                Input::Started { pid } | Input::Ended { pid } => {
                    self.alive.remove(&pid);
                    if let Some(mut orders) = self.session.orders() {
                        orders.withdraw(pid);
                    }
                }
                Input::Region { pid, signature, .. } => {
                    self.alive.insert(pid);
                    self.sites.insert(signature);
                }
                _ => {}
            }
            self.input(at);
        }
        if self.driver.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.input(At {
                time_ns: now_ns,
                input: Input::Tick,
            });
        }
    }

    fn input(&mut self, at: At) {
        if let Some(log) = &mut self.log {
            log.input(&at);
        }
        let mut decisions = std::mem::take(&mut self.decisions);
        self.driver.input(&at, &mut decisions);
        for decision in decisions.drain(..) {
            if let Some(log) = &mut self.log {
                log.decision(&decision);
            }
            self.carry_out(&decision);
        }
        self.decisions = decisions;
    }

    fn carry_out(&mut self, decision: &Decision) {
        let refused = match *decision {
            Decision::Watch { on } => {
                // A refusal leaves the watching as it is, which costs the program a little, or the policy what it learns.
                let _ = self.faults.as_mut().map(|faults| faults.watch(on));
                false
            }
            _ if self.dry_run => false,
            Decision::Bind {
                pid,
                start,
                length,
                nodes,
            } => {
                let orders = self.session.orders();
                orders.is_none_or(|mut orders| {
                    orders.post(pid, start, length, policy(nodes)).is_err()
                })
            }
            Decision::Site { signature, nodes } => {
                let bind = (nodes != 0).then(|| policy(nodes));
                let orders = self.session.orders();
                orders.is_none_or(|mut orders| orders.set_site(signature, bind).is_err())
            }
            Decision::Move {
                job,
                pid,
                start,
                pages,
                nodes,
            } => {
                if let Some(mover) = &self.mover {
                    mover.send(Job {
                        job,
                        pid,
                        start,
                        pages,
                        nodes,
                    });
                }
                false
            }
            Decision::Settled(_) | Decision::Unfollowed { .. } => false,
        };
        self.pages.orders_refused += u64::from(refused);
    }

    /// Names the allocation sites and completes the log.
    fn finish(mut self, wall: SystemTime) -> Pages {
        let now_ns = self.now_ns();
        let moved = self.mover.take().map(Mover::stop).unwrap_or_default();
        for moved in moved {
            self.input(At {
                time_ns: now_ns,
                input: Input::Moved(moved),
            });
        }
        let mut pages = self.pages;
        pages.summary = self.driver.summary().clone();
        pages.sites = self.driver.sites().collect();
        pages.lost = self.session.lost();
        if let Some(faults) = &self.faults {
            pages.faults_lost = faults.lost();
            pages.without_kernel = !faults.sees_kernel();
            pages.unwatched_cpus = faults.unwatched_cpus();
        }
        if let Some(mut log) = self.log {
            let signatures: Vec<u64> = self.sites.into_iter().collect();
            for site in sites::rows(&signatures, &self.definitions, &Symboliser::new(wall)) {
                log.site(&site);
            }
            pages.log = log.finish(&end(&pages)).err();
        }
        pages
    }
}

/// The policy of a range that is wanted on these nodes: preferred, never bound, for a program that runs out of memory on a
/// node that it is bound to is killed.
fn policy(nodes: u64) -> Bind {
    let mode = match nodes.count_ones() {
        0 => BindMode::Default,
        1 => BindMode::Preferred,
        _ => BindMode::Interleave,
    };
    Bind { mode, nodes }
}

/// What a record says that the driver wants to hear.
fn heard(
    streams: &mut Streams,
    definitions: &mut Definitions,
    ring: &RingInfo,
    record: Record<'_>,
    (start_ns, now_ns): (u64, u64),
) -> Option<At> {
    use std::os::unix::ffi::OsStrExt;
    let pid = ring.pid;
    let at = |time_ns: u64, input| {
        Some(At {
            time_ns: time_ns.saturating_sub(start_ns),
            input,
        })
    };
    // The rings of a program that its process runs no longer may be read after those of its successor. In a container of
    // its own a process has a number that may be somebody else's here.
    let mut current = || {
        let stream = streams.of(ring);
        !ring.foreign && streams.youngest(pid) == Some(streams.stream(stream).image)
    };
    match record {
        Record::Region {
            start,
            length,
            signature,
            time_ns,
            cpu,
            ..
        } if current() => at(
            time_ns,
            Input::Region {
                pid,
                start,
                length,
                signature,
                cpu: u32::from(cpu),
            },
        ),
        Record::RegionEnd {
            start,
            length,
            time_ns,
        } if current() => at(time_ns, Input::RegionEnd { pid, start, length }),
        Record::Bound {
            start,
            length,
            bind,
            error,
            site,
        } if current() => at(
            start_ns + now_ns,
            Input::Bound {
                pid,
                start,
                length,
                nodes: bind.nodes,
                error,
                site,
            },
        ),
        Record::Process {
            parent,
            time_ns,
            exe,
            args,
            ..
        } => streams
            .announced(ring, parent, exe, args)
            .filter(|_| !ring.foreign)
            .and_then(|_| at(time_ns, Input::Started { pid })),
        Record::Site {
            signature,
            truncated,
            frames,
        } => {
            definitions.site(signature, truncated, frames);
            None
        }
        Record::Module {
            module,
            build_id,
            path,
        } => {
            let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
            definitions.module(module, build_id, path);
            None
        }
        _ => None,
    }
}

/// The figures of the log's last line.
fn end(pages: &Pages) -> serde_json::Value {
    let Summary {
        regions,
        far,
        near,
        known,
        unfollowed,
        faults,
        pages_away,
        ranges_bound,
        ranges_refused,
        pages_moved,
        pages_refused,
    } = pages.summary;
    json!({
        "regions": regions,
        "far": far,
        "near": near,
        "known": known,
        "unfollowed": unfollowed,
        "faults": faults,
        "faults_lost": pages.faults_lost,
        "pages_away": pages_away,
        "ranges_bound": ranges_bound,
        "ranges_refused": ranges_refused,
        "pages_moved": pages_moved,
        "pages_refused": pages_refused,
        "orders_refused": pages.orders_refused,
        "unwatched": pages.unwatched.map(|reason| reason.to_string()),
    })
}
