//! The actuator: reports what programs do to the controller, and carries its orders out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hither_ids::{Address, Pid};
use hither_kernel::machine::{Machine, NodeMemory, PageMoves};
use hither_kernel::page_sampling::{PageSampler, SamplingError};
use hither_kernel::process::{monotonic_ns, short_slices, thread_cpu_ns};
use hither_kernel_events::is_alive;
use hither_session::record::Record;

use super::super::budget::{READ_NS, share};
use super::super::controller::PlacementController;
use super::super::event::{Input, TimedInput, TouchedPage};
use super::counter_source::CounterSource;
use super::faults::Faults;
use super::mappings::Mappings;
use super::options::MemoryOptions;
use super::polls::Polls;
use super::record_input::input_of;
use super::report::MemoryReport;
use super::samples::Samples;
use crate::controller::Controller;
use crate::mechanism::{Actuator, Context, Origin, Poll, RunState};
use crate::numa::PagePolicy;
use crate::numa::mover::{JobResult, Mover, Worker};
use crate::numa::usage::{LONG_PERIOD_NS, PERIOD_NS, Usage};
use crate::status::{MechanismStatus, MechanismTag, to_figures};

/// The mover's results are taken in after each so many inputs.
const INPUTS_PER_RESULT_CHECK: usize = 64;

/// How many regions the status names.
const STATUS_REGIONS_MAX: usize = 32;

/// Has memory bound, moved and sampled.
pub(crate) struct PlacementActuator {
    policy: PagePolicy,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) dry_run: bool,
    counter_source: CounterSource,
    /// Sites whose regions programs bind from their first allocation on, and to which nodes.
    pub(super) known_sites: Vec<(u64, u64)>,
    /// For samples, which are opened by the thread that starts the program.
    nodes: Vec<NodeMemory>,
    /// The share of a CPU that sampling may take.
    share: f64,
    /// Page faults are of use: the policy places at first touch, or pages are armed.
    needs_faults: bool,
    pub(super) faults: Faults,
    pub(super) samples: Samples,
    /// What memory the processes have, where who uses it is counted.
    mappings: Option<Mappings>,
    pub(super) mover: Option<Mover>,
    /// Processor time that this mechanism has taken of the agent's thread, until that thread's time
    /// was `entered_ns`; and how much of it when pages were last armed.
    own_ns: u64,
    entered_ns: u64,
    pub(super) counted_ns: u64,
    /// Arms pages, if the agent is to do so.
    pub(super) arm: Option<Box<dyn PageSampler>>,
    /// When the offer of a process was taken.
    offered: BTreeMap<Pid, u64>,
    /// Start and length of regions that begin or end within a page, by process and first whole
    /// page.
    pub(super) uneven: BTreeMap<(Pid, Address), (Address, u64)>,
    /// Pages to look up: many in one call.
    pub(super) to_locate: Vec<TouchedPage>,
    /// Inputs for the next step, which orders led to.
    pub(super) later: Vec<TimedInput>,
    usage: Usage,
    /// Processes that have started and not ended.
    alive: BTreeSet<Pid>,
    polls: Polls,
    /// Pages that had been moved on this machine when the run began.
    moved_before: Option<PageMoves>,
    pub(super) report: MemoryReport,
}

impl Actuator for PlacementActuator {
    type Controller = PlacementController;
    type Report = MemoryReport;

    fn attach(&mut self, run: &mut RunState) {
        for (signature, nodes) in std::mem::take(&mut self.known_sites) {
            self.set_site(run, signature, nodes);
        }
    }

    fn prepare(&mut self) {
        if self.needs_faults {
            self.report.unwatched = self.faults.open(&*self.machine).err();
        }
        let source = self
            .counter_source
            .samples(&self.nodes, 1e9 * self.share / READ_NS);
        self.samples.open(source);
        self.moved_before = self.machine.page_moves();
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
        self.entered_ns = thread_cpu_ns();
        inputs.append(&mut self.later);
        self.faults.drain(start_ns, inputs);
        let now = (monotonic_ns(), self.own_ns());
        self.samples.drain(start_ns, now, &self.alive, inputs);
        self.own_ns = self.own_ns();
    }

    fn on_record(&mut self, origin: &mut Origin<'_>, record: &Record<'_>) -> Option<(u64, Input)> {
        input_of(origin, record)
    }

    fn step(&mut self, context: &mut Context<'_, PlacementController>, poll: Poll<Input>) {
        self.entered_ns = thread_cpu_ns();
        let now_ns = poll.now_ns;
        let mut inputs = poll.inputs;
        // After the rings: a program offers before it reports its first region.
        self.take_offers(context);
        if poll.reaped {
            let alive = self.alive.iter().copied();
            let gone = alive.filter(|&pid| !is_alive(pid));
            inputs.extend(gone.map(|pid| TimedInput {
                time_ns: now_ns,
                input: Input::Ended { pid },
            }));
        }
        if let Some(mappings) = &mut self.mappings {
            // What has to be armed needs the offer of its process first.
            let (arms, offered) = (self.arm.is_some(), &self.offered);
            let sampled = |pid| !arms || offered.contains_key(&pid);
            mappings.read(now_ns, sampled, &mut inputs);
        }
        self.faults
            .set_others_apart(now_ns, &self.alive, &mut inputs);
        self.polls.polled(&inputs);
        self.take(context, now_ns, inputs);
        self.own_ns = self.own_ns();
    }

    fn poll_interval(&mut self, _records: usize) -> Duration {
        self.polls.interval()
    }

    fn status(&mut self, context: &mut Context<'_, PlacementController>) -> MechanismStatus {
        self.report.summary = context.controller.summary();
        let (regions, largest) = context.controller.largest(STATUS_REGIONS_MAX);
        MechanismStatus {
            mechanism: MechanismTag::Memory,
            policy: self.policy.to_string(),
            nodes: context.controller.nodes(),
            regions,
            sites: context
                .run
                .sites(largest.iter().map(|region| region.signature)),
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
        for moved in done.into_iter().filter_map(moved) {
            self.input(&mut context, now_ns, moved);
        }
        let mut report = self.report;
        report.summary = context.controller.summary();
        report.sites = context.controller.sites();
        report.saved_placements = context.controller.saved_placements();
        report.shared_left = self.mappings.as_ref().map_or(0, Mappings::left_out);
        report.lost = context.run.lost();
        report.unarmed = report.unarmed.or(context.run.library.offer_error());
        for source in [self.faults.source(), self.samples.source()]
            .into_iter()
            .flatten()
        {
            report.faults_lost += source.lost();
            report.without_kernel |= !source.sees_kernel();
            report.unwatched_cpus = report.unwatched_cpus.max(source.unwatched_cpus());
        }
        let moves = self.machine.page_moves().zip(self.moved_before);
        report.machine_moves = moves.map(|(now, before)| now.since(before));
        report.agent = context.run.cpu();
        report.ran = ran;
        report.log = context.finish_log(&report.figures());
        report
    }
}

impl PlacementActuator {
    pub(super) fn new(
        options: &MemoryOptions,
        by_use: bool,
        dry_run: bool,
        machine: Arc<dyn Machine>,
        nodes: &[NodeMemory],
        mut counter_source: CounterSource,
    ) -> PlacementActuator {
        let (counters, arm) = (counter_source.name(), counter_source.take_arm());
        let usage_ns = if by_use { LONG_PERIOD_NS } else { PERIOD_NS };
        let share = share(options.cpu_permille);
        PlacementActuator {
            policy: options.policy,
            usage: Usage::new(Arc::clone(&machine), machine.page_bytes(), usage_ns),
            samples: Samples::new(Arc::clone(&machine), share),
            mappings: counters.map(|_| Mappings::new(Arc::clone(&machine))),
            machine,
            dry_run,
            known_sites: Vec::new(),
            nodes: nodes.to_vec(),
            share,
            needs_faults: !by_use || arm.is_some(),
            faults: Faults::default(),
            mover: None,
            own_ns: 0,
            entered_ns: 0,
            counted_ns: 0,
            alive: BTreeSet::new(),
            offered: BTreeMap::new(),
            uneven: BTreeMap::new(),
            to_locate: Vec::new(),
            later: Vec::new(),
            polls: Polls::new(by_use, arm.is_some()),
            moved_before: None,
            report: MemoryReport {
                counters,
                uncounted: std::mem::take(&mut counter_source.refused),
                ..MemoryReport::default()
            },
            arm,
            counter_source,
        }
    }

    /// Processor time that this mechanism has taken of the agent's thread by now.
    pub(super) fn own_ns(&self) -> u64 {
        self.own_ns + (thread_cpu_ns() - self.entered_ns)
    }

    pub(super) fn report_mut(&mut self) -> &mut MemoryReport {
        &mut self.report
    }

    /// Takes the descriptors that programs offer for arming their pages.
    fn take_offers(&mut self, context: &mut Context<'_, PlacementController>) {
        let start_ns = context.run.start_ns;
        if let Some(arm) = &mut self.arm {
            let (unarmed, offered) = (&mut self.report.unarmed, &mut self.offered);
            context.run.library.offers(|offer| {
                offered.insert(offer.pid, monotonic_ns() - start_ns);
                // A process that has ended meanwhile is no reason to sample less.
                match arm.offered(offer) {
                    Ok(()) | Err(SamplingError::NoProcess) => {}
                    Err(reason) => *unarmed = Some(reason),
                }
            });
        }
    }

    /// Gives inputs to the controller, and carries its orders out.
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
            // What was touched before a construct counts before it.
            if matches!(at.input, Input::Construct { .. }) {
                self.locate(context, at.time_ns);
            }
            self.note(context, now_ns, at.time_ns, &at.input);
            self.input(context, at.time_ns, at.input);
        }
        self.locate(context, now_ns);
        self.take_results(context, now_ns);
        let due_ns = context.controller.next_deadline_ns();
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.input(context, now_ns, Input::Tick);
        }
    }

    /// Looks up the pages that the controller has asked about.
    fn locate(&mut self, context: &mut Context<'_, PlacementController>, time_ns: u64) {
        let pages = std::mem::take(&mut self.to_locate);
        let homes = self.samples.homes(&pages);
        for (page, home) in pages.into_iter().zip(homes) {
            self.input(context, time_ns, Input::Located { page, home });
        }
    }

    /// Takes down what the actuator has to know of an input.
    fn note(
        &mut self,
        context: &mut Context<'_, PlacementController>,
        now_ns: u64,
        time_ns: u64,
        input: &Input,
    ) {
        match *input {
            Input::Started { pid } | Input::Ended { pid } => {
                let started = matches!(input, Input::Started { .. });
                if let Some(mappings) = &mut self.mappings {
                    if started {
                        mappings.started(pid, now_ns)
                    } else {
                        mappings.ended(pid)
                    }
                }
                if started {
                    self.alive.insert(pid)
                } else {
                    self.alive.remove(&pid)
                };
                self.uneven.retain(|&(of, _), _| of != pid);
                self.end_offer(pid, time_ns);
                if let Some(mut requests) = context.run.bind_requests() {
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
                context.sites.insert(signature);
                self.note_uneven(pid, start, Some(length));
            }
            Input::RegionEnd { pid, start, .. } => self.note_uneven(pid, start, None),
            _ => {}
        }
    }

    /// Gives the mover's results to the controller, as of now: records of earlier events may still
    /// be on their way.
    fn take_results(&mut self, context: &mut Context<'_, PlacementController>, time_ns: u64) {
        let done: Vec<JobResult> = self.mover.iter().flat_map(Mover::done).collect();
        for moved in done.into_iter().filter_map(moved) {
            self.input(context, time_ns, moved);
        }
    }

    /// A process has ended, or runs another program: what it offered before that time is void. The
    /// record of a program's start comes before its offer, but may be read after it.
    fn end_offer(&mut self, pid: Pid, time_ns: u64) {
        let Some(arm) = &mut self.arm else {
            return;
        };
        if self.offered.get(&pid).is_some_and(|&at_ns| at_ns < time_ns) {
            self.offered.remove(&pid);
            arm.ended(pid);
        }
    }

    /// Gives an input to the controller, and carries out its orders.
    fn input(
        &mut self,
        context: &mut Context<'_, PlacementController>,
        time_ns: u64,
        input: Input,
    ) {
        context.input(time_ns, input);
        while let Some(order) = context.orders.pop_front() {
            self.carry_out(context, order);
        }
    }
}

/// The input of a move's outcome. Nothing is looked up by this mechanism's mover.
fn moved(done: JobResult) -> Option<Input> {
    match done {
        JobResult::Moved(moved) => Some(Input::Moved(moved)),
        JobResult::Located { .. } => None,
    }
}
