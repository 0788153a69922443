//! The agent: hears what the program does, has the driver decide, and has done what it decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use hither_sys::arm::{Arm, Unarmed};
use hither_sys::faults::{PageFaults, Unwatched};
use hither_sys::machine::Machine;
use hither_sys::process::thread_cpu_ns;
use hither_sys::process::{cpu_ns, monotonic_ns};
use hither_sys::record::{Bind, BindMode};
use hither_sys::session::Session;

use super::super::driver::Driver;
use super::super::event::{self, At, Decision, Input, Migrate};
use super::super::mover::{Done, Job, Mover, Task, Worker};
use super::super::usage::Usage;
use super::figures::end;
use super::heard::heard;
use super::way::Way;
use super::{Pages, PagesOptions};
use crate::launch;
use crate::log::{Driven, Log};
use crate::observe::{Definitions, Streams, sites};
use crate::status::{Board, Status};
use crate::symbolise::Symboliser;

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// So few events, none of them a new region, are not worth a look sooner: of a program that has its pages and goes from construct to construct, a look a
/// millisecond costs more than all that is learnt in it.
const FEW: usize = 64;

/// How often rings and regions of processes that died without a word are looked for.
const REAP_NS: u64 = 500_000_000;

/// How often it is said what goes on, and of how many regions.
const SAY_NS: u64 = 1_000_000_000;
const SAID: usize = 32;

/// The agent at work.
pub(super) struct Agent {
    machine: Arc<dyn Machine>,
    driver: Driver,
    log: Option<Log<Driver>>,
    session: Session,
    dry_run: bool,
    start_ns: u64,
    faults: Option<Box<dyn PageFaults>>,
    /// The processor's samples.
    loads: Option<Box<dyn PageFaults>>,
    mover: Option<Mover>,
    /// How pages are armed, if they are.
    arm: Option<Box<dyn Arm>>,
    /// When programs' offers were taken.
    offered: BTreeMap<u32, u64>,
    /// What carrying out a decision led to: heard with the next look.
    later: Vec<At>,
    usage: Usage,
    streams: Streams,
    definitions: Definitions,
    /// Processes that have regions.
    alive: BTreeSet<u32>,
    /// Sites of regions, for the log.
    sites: BTreeSet<u64>,
    decisions: Vec<Decision>,
    board: Option<Board>,
    /// What is said of the run and does not change.
    said: Status,
    cpu_before_ns: u64,
    pages: Pages,
}

impl Agent {
    pub(super) fn new(
        machine: Arc<dyn Machine>,
        driver: Driver,
        log: Option<Log<Driver>>,
        session: Session,
        way: &mut Way,
        options: &PagesOptions,
    ) -> Agent {
        let words = options.command.iter();
        let shown = words.map(|word| word.to_string_lossy().into_owned());
        Agent {
            usage: Usage::new(Arc::clone(&machine), machine.page_bytes()),
            machine,
            driver,
            log,
            session,
            dry_run: options.dry_run,
            start_ns: monotonic_ns(),
            faults: None,
            loads: None,
            mover: None,
            streams: Streams::default(),
            definitions: Definitions::default(),
            alive: BTreeSet::new(),
            sites: BTreeSet::new(),
            decisions: Vec::new(),
            offered: BTreeMap::new(),
            later: Vec::new(),
            board: Board::new(std::process::id()),
            said: Status {
                agent: std::process::id(),
                command: shown.collect(),
                policy: options.policy(),
                dry_run: options.dry_run,
                ..Status::default()
            },
            cpu_before_ns: cpu_ns(),
            pages: Pages {
                counters: way.name(),
                uncounted: std::mem::take(&mut way.refused),
                ..Pages::default()
            },
            arm: way.take_arm(),
        }
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns() - self.start_ns
    }

    /// Takes everything in until `ended` is set, and then once more.
    pub(super) fn attend(
        &mut self,
        faults: std::result::Result<Box<dyn PageFaults>, Unwatched>,
        loads: Option<Box<dyn PageFaults>>,
        ended: &AtomicBool,
    ) -> std::io::Result<()> {
        match faults {
            Ok(faults) => self.faults = Some(faults),
            Err(reason) => self.pages.unwatched = Some(reason),
        }
        self.loads = loads;
        // In a dry run it is asked where pages are, and moves none.
        let page_bytes = self.machine.page_bytes();
        self.mover = Some(Mover::start(
            Arc::clone(&self.machine),
            page_bytes,
            Worker::carry_out,
        )?);
        let mut pause = PAUSE_MIN;
        let (mut reaped_ns, mut said_ns) = (0, 0);
        loop {
            // Read first: what the program did before it ended is seen by the sweep after.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.now_ns();
            let mut events = self.sweep(now_ns);
            if now_ns - reaped_ns >= REAP_NS {
                self.reap(now_ns, &mut events);
                reaped_ns = now_ns;
            }
            if now_ns - said_ns >= SAY_NS {
                self.say(now_ns);
                said_ns = now_ns;
            }
            let region = |at: &At| matches!(at.input, Input::Region { .. });
            let quiet = events.len() < FEW && !events.iter().any(region);
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

    /// Says what goes on, for those who look on.
    fn say(&mut self, now_ns: u64) {
        if let Some(board) = &self.board {
            self.pages.summary = self.driver.summary();
            let (regions, largest) = self.driver.largest(SAID);
            board.post(&Status {
                ran_ns: now_ns,
                agent_ns: cpu_ns() - self.cpu_before_ns,
                nodes: self.driver.nodes(),
                regions,
                largest,
                figures: end(&self.pages),
                ..self.said.clone()
            });
        }
    }

    /// What has happened since the last look, in order of time.
    fn sweep(&mut self, now_ns: u64) -> Vec<At> {
        let mut events = std::mem::take(&mut self.later);
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
        if let Some(loads) = &mut self.loads {
            loads.drain(&mut |load| {
                events.push(At {
                    time_ns: load.time_ns.saturating_sub(start_ns),
                    input: Input::Load {
                        pid: load.pid,
                        tid: load.tid,
                        cpu: load.cpu,
                        address: load.address,
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
        // After the rings: a program offers before it tells of its first region.
        if let Some(arm) = &mut self.arm {
            let (unarmed, offered) = (&mut self.pages.unarmed, &mut self.offered);
            session.offers(|offer| {
                offered.insert(offer.pid, monotonic_ns() - start_ns);
                if let Err(reason) = arm.offered(offer) {
                    *unarmed = Some(reason);
                }
            });
        }
        events.sort_by_key(|at| at.time_ns);
        let done = self.mover.iter().flat_map(Mover::done);
        events.extend(done.map(|done| At {
            time_ns: now_ns,
            input: input(done),
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
            && let Some(used) = self.usage.read(now_ns)
        {
            self.input(At {
                time_ns: events[0].time_ns,
                input: Input::Usage { used },
            });
        }
        for at in events {
            match at.input {
                Input::Started { pid } | Input::Ended { pid } => {
                    self.alive.remove(&pid);
                    self.end_offer(pid, at.time_ns);
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

    /// What a process offered until then is its memory no longer: it ran another program, or none any more. A program
    /// tells that it runs before it offers, but may be heard after.
    fn end_offer(&mut self, pid: u32, time_ns: u64) {
        let Some(arm) = &mut self.arm else {
            return;
        };
        if self.offered.get(&pid).is_some_and(|&at_ns| at_ns < time_ns) {
            self.offered.remove(&pid);
            arm.ended(pid);
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
            Decision::Sample {
                pid,
                start,
                length,
                on,
            } => {
                let done = self
                    .arm
                    .as_mut()
                    .map_or(Err(Unarmed::NoCall), |arm| match on {
                        true => arm.begin(pid, start, length),
                        false => arm.end(pid, start, length),
                    });
                if let Some(reason) = done.err().filter(|_| on) {
                    self.unarmed(pid, (start, length), reason);
                }
                false
            }
            Decision::Arm { pid, ref ranges } => {
                let page_bytes = self.machine.page_bytes();
                let before_ns = thread_cpu_ns();
                for range in ranges {
                    let length = u64::from(range.pages) * page_bytes;
                    let done = self
                        .arm
                        .as_mut()
                        .map(|arm| arm.arm(pid, range.start, length));
                    if let Some(Err(reason)) = done {
                        self.unarmed(pid, (range.start, length), reason);
                    }
                }
                let pages = ranges.iter().map(|range| range.pages).sum();
                let took_ns = thread_cpu_ns() - before_ns;
                self.later.push(At {
                    time_ns: self.now_ns(),
                    input: Input::Armed { pages, took_ns },
                });
                false
            }
            Decision::Locate {
                job,
                pid,
                ref ranges,
            } => {
                self.send(job, pid, ranges.clone(), Task::Locate);
                false
            }
            // In a dry run, too: it moves nothing, and what is counted is to be what a run would count.
            Decision::Hint {
                pid,
                start,
                length,
                node,
            } => {
                let bind = node.map_or(policy(0), |node| Bind {
                    mode: BindMode::Sampled,
                    nodes: 1_u64.checked_shl(node).unwrap_or(0),
                });
                let orders = self.session.orders();
                orders.is_none_or(|mut orders| orders.post(pid, start, length, bind).is_err())
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
                let ranges = vec![event::Pages { start, pages }];
                self.send(job, pid, ranges, Task::Move(nodes));
                false
            }
            Decision::Migrate(Migrate {
                job,
                pid,
                to,
                ref ranges,
                ..
            }) => {
                self.send(job, pid, ranges.clone(), Task::Migrate(to));
                false
            }
            Decision::Settled(_) | Decision::Judged(_) | Decision::Unfollowed { .. } => false,
        };
        self.pages.orders_refused += u64::from(refused);
    }

    fn send(&self, job: u64, pid: u32, pages: Vec<event::Pages>, task: Task) {
        if let Some(mover) = &self.mover {
            mover.send(Job {
                job,
                pid,
                pages,
                task,
            });
        }
    }

    /// The driver is to hear that a range cannot be armed.
    fn unarmed(&mut self, pid: u32, (start, length): (u64, u64), reason: Unarmed) {
        let pages = length / self.machine.page_bytes();
        self.pages.unarmed = Some(reason);
        self.later.push(At {
            time_ns: self.now_ns(),
            input: Input::Unarmed {
                pid,
                start,
                pages: pages as u32,
                why: reason.to_string(),
                for_good: !reason.may_pass(),
            },
        });
    }

    /// Names the allocation sites and completes the log.
    pub(super) fn finish(mut self, wall: SystemTime) -> Pages {
        let now_ns = self.now_ns();
        let done = self.mover.take().map(Mover::stop).unwrap_or_default();
        for done in done {
            self.input(At {
                time_ns: now_ns,
                input: input(done),
            });
        }
        let mut pages = self.pages;
        pages.summary = self.driver.summary();
        pages.sites = self.driver.sites().collect();
        pages.placed = self.driver.placed();
        pages.lost = self.session.lost();
        pages.unarmed = pages.unarmed.or(self.session.offer_error());
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

fn input(done: Done) -> Input {
    match done {
        Done::Moved(moved) => Input::Moved(moved),
        Done::Located { job, found } => Input::Located { job, found },
    }
}
