//! The agent: hears what the program does, has the controller decide, and has done what it decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hither_sys::machine::Machine;
use hither_sys::page_faults::{PageFaults, WatchError};
use hither_sys::page_sampling::{PageSampler, SamplingError};
use hither_sys::process::{monotonic_ns, short_slices, thread_cpu_ns};
use hither_sys::record::{Bind, BindMode, Record};
use hither_sys::session::RingInfo;

use super::super::controller::PlacementController;
use super::super::event::{Decision, Input, Migrate, TimedInput};
use super::MemoryReport;
use super::counter_source::CounterSource;
use super::figures::end;
use super::record_input::heard;
use crate::numa::mover::{Job, JobResult, Mover, Task, Worker};
use crate::numa::ranges::PageRange;
use crate::numa::usage::Usage;
use crate::polling::{Backoff, Periodic};
use crate::run::launch;
use crate::run::{Agent, REAP_NS};

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// So few events, none of them a new region, are not worth a look sooner: of a program that has its
/// pages and goes from construct to construct, a look a millisecond costs more than all that is
/// learnt in it.
const FEW: usize = 64;

/// After so many events it is looked whether the mover has answered.
const TURN: usize = 64;

/// How often it is said what goes on, and of how many regions.
const SAY_NS: u64 = 1_000_000_000;
const SAID: usize = 32;

/// The agent at work.
pub(super) struct PlacementActuator {
    agent: Agent<PlacementController>,
    machine: Arc<dyn Machine>,
    dry_run: bool,
    faults: Option<Box<dyn PageFaults>>,
    /// The processor's samples.
    loads: Option<Box<dyn PageFaults>>,
    mover: Option<Mover>,
    /// How pages are armed, if they are.
    arm: Option<Box<dyn PageSampler>>,
    /// When programs' offers were taken.
    offered: BTreeMap<u32, u64>,
    /// Regions that begin or end within a page: by process and first whole page, where they start,
    /// and their length.
    uneven: BTreeMap<(u32, u64), (u64, u64)>,
    /// What carrying out a decision led to: heard with the next look.
    later: Vec<TimedInput>,
    usage: Usage,
    /// Processes that have regions.
    alive: BTreeSet<u32>,
    pages: MemoryReport,
}

impl PlacementActuator {
    pub(super) fn new(
        machine: Arc<dyn Machine>,
        agent: Agent<PlacementController>,
        way: &mut CounterSource,
        dry_run: bool,
    ) -> PlacementActuator {
        PlacementActuator {
            usage: Usage::new(Arc::clone(&machine), machine.page_bytes()),
            agent,
            machine,
            dry_run,
            faults: None,
            loads: None,
            mover: None,
            alive: BTreeSet::new(),
            offered: BTreeMap::new(),
            uneven: BTreeMap::new(),
            later: Vec::new(),
            pages: MemoryReport {
                counters: way.name(),
                uncounted: std::mem::take(&mut way.refused),
                ..MemoryReport::default()
            },
            arm: way.take_arm(),
        }
    }

    /// Takes everything in until `ended` is set, and then once more.
    pub(super) fn run_loop(
        &mut self,
        faults: std::result::Result<Box<dyn PageFaults>, WatchError>,
        loads: Option<Box<dyn PageFaults>>,
        ended: &AtomicBool,
    ) -> std::io::Result<()> {
        match faults {
            Ok(faults) => self.faults = Some(faults),
            Err(reason) => self.pages.unwatched = Some(reason),
        }
        self.loads = loads;
        // The mover's thread has them from this one.
        short_slices();
        // In a dry run it is asked where pages are, and moves none.
        let page_bytes = self.machine.page_bytes();
        self.mover = Some(Mover::start(
            Arc::clone(&self.machine),
            page_bytes,
            Worker::carry_out,
        )?);
        let mut pause = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        let (mut reap, mut say) = (Periodic::after(REAP_NS), Periodic::after(SAY_NS));
        loop {
            // Read first: what the program did before it ended is seen by the sweep after.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.agent.now_ns();
            let events = self.drain(now_ns, reap.is_due(now_ns));
            if say.is_due(now_ns) {
                self.say(now_ns);
            }
            let region = |at: &TimedInput| matches!(at.input, Input::Region { .. });
            let quiet = events.len() < FEW && !events.iter().any(region);
            self.on_record(now_ns, events);
            if last {
                self.agent.session.close();
                return Ok(());
            }
            let pause = pause.after(quiet);
            let due_ns = self.agent.controller.due_ns();
            let due = due_ns.map(|due_ns| due_ns.saturating_sub(self.agent.now_ns()));
            let due = due.map(|due_ns| Duration::from_nanos(due_ns).max(PAUSE_MIN));
            thread::park_timeout(due.map_or(pause, |due| due.min(pause)));
        }
    }

    /// Says what goes on, for those who look on.
    fn say(&mut self, now_ns: u64) {
        let Agent {
            controller, status, ..
        } = &mut self.agent;
        self.pages.summary = controller.summary();
        (status.regions, status.largest) = controller.largest(SAID);
        status.nodes = controller.nodes();
        self.agent.publish(now_ns, end(&self.pages));
    }

    /// What has happened since the last look, in order of time. `reap`: with what the rings of
    /// processes that are gone still hold, and that they are.
    fn drain(&mut self, now_ns: u64, reap: bool) -> Vec<TimedInput> {
        let mut events = std::mem::take(&mut self.later);
        let start_ns = self.agent.start_ns;
        // Faults first: the region that one fell into was told of before it, and so is found by the
        // look that follows.
        if let Some(faults) = &mut self.faults {
            faults.drain(&mut |fault| {
                events.push(TimedInput {
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
                events.push(TimedInput {
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
        } = &mut self.agent;
        let mut hear = |ring: &RingInfo, record: Record<'_>| {
            events.extend(heard(streams, definitions, ring, record, start_ns));
        };
        session.drain(&mut hear);
        if reap {
            session.reap(&mut hear);
        }
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
        if reap {
            let alive = self.alive.iter().copied();
            let gone = alive.filter(|&pid| !launch::is_running(pid));
            events.extend(gone.map(|pid| TimedInput {
                time_ns: now_ns,
                input: Input::Ended { pid },
            }));
        }
        events
    }

    /// Has the controller hear of it all, and carries out what it decides.
    fn on_record(&mut self, now_ns: u64, events: Vec<TimedInput>) {
        if !events.is_empty()
            && let Some(used) = self.usage.read(now_ns)
        {
            self.input(events[0].time_ns, Input::Usage { used });
        }
        for (number, at) in events.into_iter().enumerate() {
            // What was asked meanwhile is not to wait for all the faults of a pass of the kernel's
            // scanner.
            if number % TURN == TURN - 1 {
                self.answers(at.time_ns);
            }
            match at.input {
                Input::Started { pid } | Input::Ended { pid } => {
                    self.alive.remove(&pid);
                    self.uneven.retain(|&(of, _), _| of != pid);
                    self.end_offer(pid, at.time_ns);
                    if let Some(mut orders) = self.agent.session.bind_requests() {
                        orders.withdraw(pid);
                    }
                }
                Input::Region {
                    pid,
                    signature,
                    start,
                    length,
                    ..
                } => {
                    self.alive.insert(pid);
                    self.agent.sites.insert(signature);
                    self.note_uneven(pid, start, Some(length));
                }
                Input::RegionEnd { pid, start, .. } => self.note_uneven(pid, start, None),
                _ => {}
            }
            self.input(at.time_ns, at.input);
        }
        self.answers(now_ns);
        let due_ns = self.agent.controller.due_ns();
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.input(now_ns, Input::Tick);
        }
    }

    /// Notes a region if it begins or ends within a page; forgets one that ends.
    fn note_uneven(&mut self, pid: u32, start: u64, length: Option<u64>) {
        let page_bytes = self.machine.page_bytes();
        let Some(first) = start.checked_next_multiple_of(page_bytes) else {
            return;
        };
        let uneven = |&length: &u64| {
            !(start | length).is_multiple_of(page_bytes) && start.checked_add(length).is_some()
        };
        match length.filter(uneven) {
            Some(length) => self.uneven.insert((pid, first), (start, length)),
            None => self.uneven.remove(&(pid, first)),
        };
    }

    /// Has the controller hear what the mover has done. That is put in time where it is heard: events
    /// before it may be a moment later, as they may be told late.
    fn answers(&mut self, time_ns: u64) {
        let done: Vec<JobResult> = self.mover.iter().flat_map(Mover::done).collect();
        for done in done {
            self.input(time_ns, input(done));
        }
    }

    /// What a process offered until then is its memory no longer: it ran another program, or none
    /// any more. A program tells that it runs before it offers, but may be heard after.
    fn end_offer(&mut self, pid: u32, time_ns: u64) {
        let Some(arm) = &mut self.arm else {
            return;
        };
        if self.offered.get(&pid).is_some_and(|&at_ns| at_ns < time_ns) {
            self.offered.remove(&pid);
            arm.ended(pid);
        }
    }

    fn input(&mut self, time_ns: u64, input: Input) {
        self.agent.input(time_ns, input);
        while let Some(decision) = self.agent.decisions.pop_front() {
            self.carry_out(&decision);
        }
    }

    fn carry_out(&mut self, decision: &Decision) {
        let refused = match *decision {
            Decision::Watch { on } => {
                // A refusal leaves the watching as it is, which costs the program a little, or the
                // policy what it learns.
                let _ = self.faults.as_mut().map(|faults| faults.watch(on));
                false
            }
            Decision::Sample {
                pid,
                start,
                length,
                on,
            } => {
                // The whole of it: its first and last pages are of the same mapping, and the
                // program may want that moved.
                let whole = self.uneven.get(&(pid, start)).copied();
                let end = start + length;
                let page_bytes = self.machine.page_bytes();
                let is_whole = |&(start, length): &(u64, u64)| {
                    (start + length) / page_bytes * page_bytes == end
                };
                let whole = whole.filter(is_whole).unwrap_or((start, length));
                let done = self
                    .arm
                    .as_mut()
                    .map_or(Err(SamplingError::NoCall), |arm| match on {
                        true => arm.begin(pid, whole.0, whole.1),
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
                self.later.push(TimedInput {
                    time_ns: self.agent.now_ns(),
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
            _ if self.dry_run => false,
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
                let orders = self.agent.session.bind_requests();
                let refused =
                    orders.is_none_or(|mut orders| orders.post(pid, start, length, bind).is_err());
                if refused {
                    self.later.push(TimedInput {
                        time_ns: self.agent.now_ns(),
                        input: Input::Bound {
                            pid,
                            start,
                            length,
                            nodes: bind.nodes,
                            error: libc::ENOSPC as u32,
                            site: false,
                            hint: true,
                        },
                    });
                }
                refused
            }
            Decision::Bind {
                pid,
                start,
                length,
                nodes,
            } => {
                let orders = self.agent.session.bind_requests();
                orders.is_none_or(|mut orders| {
                    orders.post(pid, start, length, policy(nodes)).is_err()
                })
            }
            Decision::Site { signature, nodes } => {
                let bind = (nodes != 0).then(|| policy(nodes));
                let orders = self.agent.session.bind_requests();
                orders.is_none_or(|mut orders| orders.set_site(signature, bind).is_err())
            }
            Decision::Move {
                job,
                pid,
                start,
                pages,
                nodes,
            } => {
                let ranges = vec![PageRange { start, pages }];
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
        self.pages.bind_requests_refused += u64::from(refused);
    }

    fn send(&self, job: u64, pid: u32, pages: Vec<PageRange>, task: Task) {
        if let Some(mover) = &self.mover {
            mover.send(Job {
                job,
                pid,
                pages,
                task,
            });
        }
    }

    /// The controller is to hear that a range cannot be armed.
    fn unarmed(&mut self, pid: u32, (start, length): (u64, u64), reason: SamplingError) {
        // Its end is heard of, and says all there is to say.
        if reason == SamplingError::NoProcess {
            return;
        }
        let pages = length / self.machine.page_bytes();
        self.pages.unarmed = Some(reason);
        self.later.push(TimedInput {
            time_ns: self.agent.now_ns(),
            input: Input::Unarmed {
                pid,
                start,
                pages: pages as u32,
                why: reason.to_string(),
                for_good: !reason.may_pass(),
            },
        });
    }

    /// What came of it all. Completes the log.
    pub(super) fn finish(mut self) -> MemoryReport {
        let now_ns = self.agent.now_ns();
        let done = self.mover.take().map(Mover::stop).unwrap_or_default();
        for done in done {
            self.input(now_ns, input(done));
        }
        let PlacementActuator {
            mut agent,
            mut pages,
            ..
        } = self;
        pages.summary = agent.controller.summary();
        pages.sites = agent.controller.sites().collect();
        pages.saved_placements = agent.controller.saved_placements();
        pages.lost = agent.session.lost();
        pages.unarmed = pages.unarmed.or(agent.session.offer_error());
        if let Some(faults) = &self.faults {
            pages.faults_lost = faults.lost();
            pages.without_kernel = !faults.sees_kernel();
            pages.unwatched_cpus = faults.unwatched_cpus();
        }
        pages.log = agent.finish(&end(&pages));
        pages
    }
}

/// The policy of a range that is wanted on these nodes: preferred, never bound, for a program that
/// runs out of memory on a node that it is bound to is killed.
fn policy(nodes: u64) -> Bind {
    let mode = match nodes.count_ones() {
        0 => BindMode::Default,
        1 => BindMode::Preferred,
        _ => BindMode::Interleave,
    };
    Bind { mode, nodes }
}

fn input(done: JobResult) -> Input {
    match done {
        JobResult::Moved(moved) => Input::Moved(moved),
        JobResult::Located { job, found } => Input::Located { job, found },
    }
}
