//! The actuator: reports what programs do to the controller, and carries its decisions out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hither_sys::machine::{Machine, NodeMemory};
use hither_sys::page_faults::PageFaults;
use hither_sys::page_sampling::{PageSampler, SamplingError};
use hither_sys::process::{monotonic_ns, short_slices, thread_cpu_ns};
use hither_sys::record::{Bind, BindMode, Record};

use super::super::controller::PlacementController;
use super::super::event::{Decision, Input, Migrate, TimedInput};
use super::counter_source::CounterSource;
use super::options::MemoryOptions;
use super::record_input::input_of;
use super::report::MemoryReport;
use crate::agent::{Actuator, Context, Poll, RecordSource};
use crate::controller::Controller;
use crate::launch;
use crate::numa::mover::{JobResult, Mover, PageJob, Task, Worker};
use crate::numa::ranges::PageRange;
use crate::numa::usage::Usage;
use crate::polling::Backoff;
use crate::status::{MechanismStatus, MechanismTag, to_figures};

const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(20);

/// With fewer inputs, none of them a new region, the next poll comes later. A program that has its
/// pages and goes from construct to construct would lose more by a poll each millisecond than its
/// inputs are worth.
const BUSY_INPUTS_MIN: usize = 64;

/// The mover's results are taken in after each so many inputs.
const INPUTS_PER_RESULT_CHECK: usize = 64;

/// How many regions the status names.
const STATUS_REGIONS_MAX: usize = 32;

/// Has memory bound, moved and sampled.
pub(crate) struct PlacementActuator {
    policy: String,
    machine: Arc<dyn Machine>,
    dry_run: bool,
    counter_source: CounterSource,
    /// For the processor's samples, which are opened by the thread that starts the program.
    nodes: Vec<NodeMemory>,
    cpu_permille: u32,
    faults: Option<Box<dyn PageFaults>>,
    /// The processor's samples.
    loads: Option<Box<dyn PageFaults>>,
    mover: Option<Mover>,
    /// Arms pages, if the agent is to do so.
    arm: Option<Box<dyn PageSampler>>,
    /// When the offer of a process was taken.
    offered: BTreeMap<u32, u64>,
    /// Start and length of regions that begin or end within a page, by process and first whole
    /// page.
    uneven: BTreeMap<(u32, u64), (u64, u64)>,
    /// Inputs for the next step, which decisions led to.
    later: Vec<TimedInput>,
    usage: Usage,
    /// Processes with regions.
    alive: BTreeSet<u32>,
    /// The last poll had few inputs.
    is_quiet: bool,
    poll_backoff: Backoff,
    report: MemoryReport,
}

impl Actuator for PlacementActuator {
    type Controller = PlacementController;
    type Report = MemoryReport;

    fn prepare(&mut self) {
        match self.machine.faults() {
            Ok(faults) => self.faults = Some(faults),
            Err(reason) => self.report.unwatched = Some(reason),
        }
        self.loads = self.counter_source.samples(&self.nodes, self.cpu_permille);
    }

    fn start(&mut self) -> io::Result<()> {
        // The mover's thread inherits them.
        short_slices();
        // In a dry run the mover looks pages up, and moves none.
        let page_bytes = self.machine.page_bytes();
        let machine = Arc::clone(&self.machine);
        self.mover = Some(Mover::start(machine, page_bytes, Worker::carry_out)?);
        Ok(())
    }

    /// Faults are drained before the rings: a region was reported before its faults, so that the
    /// rings have it.
    fn take_samples(&mut self, start_ns: u64, inputs: &mut Vec<TimedInput>) {
        inputs.append(&mut self.later);
        if let Some(faults) = &mut self.faults {
            faults.drain(&mut |fault| {
                inputs.push(TimedInput {
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
                inputs.push(TimedInput {
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
    }

    fn on_record(
        &mut self,
        source: &mut RecordSource<'_>,
        record: &Record<'_>,
    ) -> Option<(u64, Input)> {
        input_of(source, record)
    }

    fn step(&mut self, context: &mut Context<'_, PlacementController>, poll: Poll<Input>) {
        let now_ns = poll.now_ns;
        let mut inputs = poll.inputs;
        // After the rings: a program offers before it reports its first region.
        self.take_offers(context);
        if poll.reaped {
            let alive = self.alive.iter().copied();
            let gone = alive.filter(|&pid| !launch::is_running(pid));
            inputs.extend(gone.map(|pid| TimedInput {
                time_ns: now_ns,
                input: Input::Ended { pid },
            }));
        }
        let region = |at: &TimedInput| matches!(at.input, Input::Region { .. });
        self.is_quiet = inputs.len() < BUSY_INPUTS_MIN && !inputs.iter().any(region);
        self.take(context, now_ns, inputs);
    }

    fn poll_interval(&mut self, _records: usize) -> Duration {
        self.poll_backoff.after(self.is_quiet)
    }

    fn status(&mut self, context: &mut Context<'_, PlacementController>) -> MechanismStatus {
        self.report.summary = context.controller.summary();
        let (regions, largest) = context.controller.largest(STATUS_REGIONS_MAX);
        MechanismStatus {
            mechanism: MechanismTag::Memory,
            policy: self.policy.clone(),
            nodes: context.controller.nodes(),
            regions,
            largest,
            figures: to_figures(&self.report.figures()),
        }
    }

    fn finish(
        mut self,
        mut context: Context<'_, PlacementController>,
        ran: Duration,
    ) -> MemoryReport {
        let now_ns = context.run.now_ns();
        let done = self.mover.take().map(Mover::stop).unwrap_or_default();
        for done in done {
            self.input(&mut context, now_ns, result_input(done));
        }
        let mut report = self.report;
        report.summary = context.controller.summary();
        report.sites = context.controller.sites().collect();
        report.saved_placements = context.controller.saved_placements();
        report.lost = context.run.session.lost();
        report.unarmed = report.unarmed.or(context.run.session.offer_error());
        if let Some(faults) = &self.faults {
            report.faults_lost = faults.lost();
            report.without_kernel = !faults.sees_kernel();
            report.unwatched_cpus = faults.unwatched_cpus();
        }
        report.agent = context.run.cpu();
        report.ran = ran;
        report.log = context.finish_log(&report.figures());
        report
    }
}

impl PlacementActuator {
    pub(super) fn new(
        options: &MemoryOptions,
        dry_run: bool,
        machine: Arc<dyn Machine>,
        nodes: &[NodeMemory],
        mut counter_source: CounterSource,
    ) -> PlacementActuator {
        PlacementActuator {
            policy: options.policy(),
            usage: Usage::new(Arc::clone(&machine), machine.page_bytes()),
            machine,
            dry_run,
            nodes: nodes.to_vec(),
            cpu_permille: options.cpu_permille,
            faults: None,
            loads: None,
            mover: None,
            alive: BTreeSet::new(),
            offered: BTreeMap::new(),
            uneven: BTreeMap::new(),
            later: Vec::new(),
            is_quiet: false,
            poll_backoff: Backoff::new(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX),
            report: MemoryReport {
                counters: counter_source.name(),
                uncounted: std::mem::take(&mut counter_source.refused),
                ..MemoryReport::default()
            },
            arm: counter_source.take_arm(),
            counter_source,
        }
    }

    pub(super) fn report_mut(&mut self) -> &mut MemoryReport {
        &mut self.report
    }

    /// Takes the descriptors that programs offer for arming their pages.
    fn take_offers(&mut self, context: &mut Context<'_, PlacementController>) {
        let start_ns = context.run.start_ns;
        if let Some(arm) = &mut self.arm {
            let (unarmed, offered) = (&mut self.report.unarmed, &mut self.offered);
            context.run.session.offers(|offer| {
                offered.insert(offer.pid, monotonic_ns() - start_ns);
                if let Err(reason) = arm.offered(offer) {
                    *unarmed = Some(reason);
                }
            });
        }
    }

    /// Gives inputs to the controller, and carries its decisions out.
    fn take(
        &mut self,
        context: &mut Context<'_, PlacementController>,
        now_ns: u64,
        inputs: Vec<TimedInput>,
    ) {
        if !inputs.is_empty()
            && let Some(used) = self.usage.read(now_ns)
        {
            self.input(context, inputs[0].time_ns, Input::Usage { used });
        }
        for (number, at) in inputs.into_iter().enumerate() {
            // A pass of the kernel's scanner makes many faults. Results do not wait for all of
            // them.
            if number % INPUTS_PER_RESULT_CHECK == INPUTS_PER_RESULT_CHECK - 1 {
                self.take_results(context, at.time_ns);
            }
            match at.input {
                Input::Started { pid } | Input::Ended { pid } => {
                    self.alive.remove(&pid);
                    self.uneven.retain(|&(of, _), _| of != pid);
                    self.end_offer(pid, at.time_ns);
                    if let Some(mut requests) = context.run.session.bind_requests() {
                        requests.withdraw(pid);
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
                    context.sites.insert(signature);
                    self.note_uneven(pid, start, Some(length));
                }
                Input::RegionEnd { pid, start, .. } => self.note_uneven(pid, start, None),
                _ => {}
            }
            self.input(context, at.time_ns, at.input);
        }
        self.take_results(context, now_ns);
        let due_ns = context.controller.next_deadline_ns();
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.input(context, now_ns, Input::Tick);
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

    /// Gives the mover's results to the controller, as of now: records of earlier events may still
    /// be on their way.
    fn take_results(&mut self, context: &mut Context<'_, PlacementController>, time_ns: u64) {
        let done: Vec<JobResult> = self.mover.iter().flat_map(Mover::done).collect();
        for done in done {
            self.input(context, time_ns, result_input(done));
        }
    }

    /// A process has ended, or runs another program: what it offered before that time is void. The
    /// record of a program's start comes before its offer, but may be read after it.
    fn end_offer(&mut self, pid: u32, time_ns: u64) {
        let Some(arm) = &mut self.arm else {
            return;
        };
        if self.offered.get(&pid).is_some_and(|&at_ns| at_ns < time_ns) {
            self.offered.remove(&pid);
            arm.ended(pid);
        }
    }

    /// Gives an input to the controller, and carries out what it decides.
    fn input(
        &mut self,
        context: &mut Context<'_, PlacementController>,
        time_ns: u64,
        input: Input,
    ) {
        context.input(time_ns, input);
        while let Some(decision) = context.decisions.pop_front() {
            self.carry_out(context, decision);
        }
    }

    fn carry_out(&mut self, context: &mut Context<'_, PlacementController>, decision: Decision) {
        match decision {
            Decision::Watch { on } => {
                // If that fails, watching stays as it is: it costs the program a little, or the
                // policy what it would learn.
                let _ = self.faults.as_mut().map(|faults| faults.watch(on));
            }
            Decision::Sample {
                pid,
                start,
                length,
                on,
            } => self.sample(context, pid, (start, length), on),
            Decision::Arm { pid, ranges } => self.arm_pages(context, pid, &ranges),
            Decision::Locate { job, pid, ranges } => self.send(job, pid, ranges, Task::Locate),
            _ if self.dry_run => {}
            Decision::Hint {
                pid,
                start,
                length,
                node,
            } => self.hint(context, pid, (start, length), node),
            Decision::Bind {
                pid,
                start,
                length,
                nodes,
            } => {
                self.request_bind(context, pid, (start, length), policy(nodes));
            }
            Decision::Site { signature, nodes } => {
                let bind = (nodes != 0).then(|| policy(nodes));
                let requests = context.run.session.bind_requests();
                let refused =
                    requests.is_none_or(|mut requests| requests.set_site(signature, bind).is_err());
                self.report.bind_requests_refused += u64::from(refused);
            }
            Decision::Move {
                job,
                pid,
                start,
                pages,
                nodes,
            } => self.send(
                job,
                pid,
                vec![PageRange { start, pages }],
                Task::Move(nodes),
            ),
            Decision::Migrate(Migrate {
                job,
                pid,
                to,
                ranges,
                ..
            }) => self.send(job, pid, ranges, Task::Migrate(to)),
            Decision::Settled(_) | Decision::Judged(_) | Decision::Unfollowed { .. } => {}
        }
    }

    /// Begins or ends the sampling of a region.
    fn sample(
        &mut self,
        context: &Context<'_, PlacementController>,
        pid: u32,
        (start, length): (u64, u64),
        on: bool,
    ) {
        // The whole region with its partial pages: they are of the same mapping, and the program
        // may move that.
        let whole = self.uneven.get(&(pid, start)).copied();
        let end = start + length;
        let page_bytes = self.machine.page_bytes();
        let is_whole =
            |&(start, length): &(u64, u64)| (start + length) / page_bytes * page_bytes == end;
        let whole = whole.filter(is_whole).unwrap_or((start, length));
        let arm = self.arm.as_mut();
        let done = arm.map_or(Err(SamplingError::NoCall), |arm| match on {
            true => arm.begin(pid, whole.0, whole.1),
            false => arm.end(pid, start, length),
        });
        if let Some(reason) = done.err().filter(|_| on) {
            self.unarmed(context, pid, (start, length), reason);
        }
    }

    /// Arms pages: their next touches fault.
    fn arm_pages(
        &mut self,
        context: &Context<'_, PlacementController>,
        pid: u32,
        ranges: &[PageRange],
    ) {
        let page_bytes = self.machine.page_bytes();
        let before_ns = thread_cpu_ns();
        for range in ranges {
            let length = u64::from(range.pages) * page_bytes;
            let arm = self.arm.as_mut();
            let done = arm.map(|arm| arm.arm(pid, range.start, length));
            if let Some(Err(reason)) = done {
                self.unarmed(context, pid, (range.start, length), reason);
            }
        }
        let pages = ranges.iter().map(|range| range.pages).sum();
        let took_ns = thread_cpu_ns() - before_ns;
        self.later.push(TimedInput {
            time_ns: context.run.now_ns(),
            input: Input::Armed { pages, took_ns },
        });
    }

    /// Has the kernel sample a range, most of which is on this node. `None`: no longer.
    fn hint(
        &mut self,
        context: &mut Context<'_, PlacementController>,
        pid: u32,
        (start, length): (u64, u64),
        node: Option<u32>,
    ) {
        let bind = node.map_or(policy(0), |node| Bind {
            mode: BindMode::Sampled,
            nodes: 1_u64.checked_shl(node).unwrap_or(0),
        });
        if !self.request_bind(context, pid, (start, length), bind) {
            self.later.push(TimedInput {
                time_ns: context.run.now_ns(),
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
    }

    /// Requests that a program bind a range; whether there was room for the request.
    fn request_bind(
        &mut self,
        context: &mut Context<'_, PlacementController>,
        pid: u32,
        (start, length): (u64, u64),
        bind: Bind,
    ) -> bool {
        let requests = context.run.session.bind_requests();
        let posted =
            requests.is_some_and(|mut requests| requests.post(pid, start, length, bind).is_ok());
        self.report.bind_requests_refused += u64::from(!posted);
        posted
    }

    fn send(&self, job: u64, pid: u32, pages: Vec<PageRange>, task: Task) {
        if let Some(mover) = &self.mover {
            mover.send(PageJob {
                job,
                pid,
                pages,
                task,
            });
        }
    }

    /// Tells the controller that a range cannot be armed.
    fn unarmed(
        &mut self,
        context: &Context<'_, PlacementController>,
        pid: u32,
        (start, length): (u64, u64),
        reason: SamplingError,
    ) {
        // The input of its end follows.
        if reason == SamplingError::NoProcess {
            return;
        }
        let pages = length / self.machine.page_bytes();
        self.report.unarmed = Some(reason);
        self.later.push(TimedInput {
            time_ns: context.run.now_ns(),
            input: Input::Unarmed {
                pid,
                start,
                pages: pages as u32,
                why: reason.to_string(),
                for_good: !reason.may_pass(),
            },
        });
    }
}

/// The memory policy of a range that is wanted on these nodes. Nodes are preferred, never bound: a
/// program that runs out of memory on a node that it is bound to is killed.
fn policy(nodes: u64) -> Bind {
    let mode = match nodes.count_ones() {
        0 => BindMode::Default,
        1 => BindMode::Preferred,
        _ => BindMode::Interleave,
    };
    Bind { mode, nodes }
}

fn result_input(done: JobResult) -> Input {
    match done {
        JobResult::Moved(moved) => Input::Moved(moved),
        JobResult::Located { job, found } => Input::Located { job, found },
    }
}
