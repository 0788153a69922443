//! The actuator: takes what programs read, takes leases, and makes and drops replicas.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use hither_ids::FileKey;
use hither_kernel::lease::{self, LeaseError, LeasedFile};
use hither_kernel::machine::NodeMemory;
use hither_kernel::page_cache::{self, OpenError, ThisPageCache};
use hither_session::record::{IN_KERNEL, Op, Record};
use hither_session::replica::agent::{FillError, Replicas as Shared};
use hither_session::replica::{BLOCK_BYTES, SERVABLE, SERVED, SERVED_EACH};

use super::super::controller::ReplicationController;
use super::super::event::{Input, Order};
use super::super::leases::{Change, Leases};
use super::memory_pressure::{MemoryStalls, ReplicaMemory};
use super::nodes::shape;
use super::report::ReplicationReport;
use crate::mechanism::{Actuator, Context, Origin, Poll, RunState};
use crate::polling::{Periodic, PollInterval};
use crate::program_files::ProgramFiles;
use crate::status::{MechanismStatus, MechanismTag, to_figures};

/// How often free memory and leased files are checked.
const CHECK_PERIOD_NS: u64 = 1_000_000_000;

/// How often the kernel is asked whether originals are still cached.
const RESIDENCY_PERIOD_NS: u64 = 250_000_000;

/// How often the controller gets a tick.
const TICK_PERIOD_NS: u64 = 100_000_000;

/// A file with a lease, and its index in the table of files with replicas.
struct LeasedReplicas {
    /// Not what the lease is on, which would last as long as this.
    opened: File,
    place: u32,
    seen: LeasedFile,
}

/// Makes and drops replicas.
pub(crate) struct ReplicationActuator {
    policy: String,
    /// By which programs find the replicas; taken when the session has it.
    pub(super) control: Option<(u32, u64)>,
    replicas: Shared,
    leases: Leases,
    dry_run: bool,
    node_of_cpu: Vec<u8>,
    program_files: ProgramFiles,
    held: BTreeMap<FileKey, LeasedReplicas>,
    stalls: MemoryStalls,
    memory: ReplicaMemory,
    tick: Periodic,
    check_residency: Periodic,
    check: Periodic,
    poll_interval: PollInterval,
    report: ReplicationReport,
}

impl Actuator for ReplicationActuator {
    type Controller = ReplicationController;
    type Report = ReplicationReport;

    fn attach(&mut self, run: &mut RunState) {
        if let Some(control) = self.control.take() {
            run.library.set_replicas(control);
        }
    }

    fn on_record(&mut self, origin: &mut Origin<'_>, record: &Record<'_>) -> Option<(u64, Input)> {
        self.program_files.on_record(origin.ring, record);
        let &Record::Access {
            op: op @ (Op::Read | Op::Write),
            flags,
            cpu,
            time_ns,
            object: file,
            offset,
            length,
            ..
        } = record
        else {
            return None;
        };
        let report = &mut self.report;
        let count = if flags & SERVED != 0 { SERVED_EACH } else { 1 };
        let (calls, bytes) = match flags & SERVED {
            0 => (&mut report.read, &mut report.read_bytes),
            _ => (&mut report.served, &mut report.served_bytes),
        };
        // One of no bytes says where a reader has come to.
        if op == Op::Read && length > 0 {
            *calls += u64::from(count);
            *bytes += u64::from(count) * length;
        }
        // Not what replicas cannot serve: small reads, copies from file to file.
        if op == Op::Read && length > 0 && flags & (SERVED | SERVABLE) == 0 {
            return None;
        }
        if op == Op::Read && flags & IN_KERNEL != 0 {
            self.replicas.lend();
        }
        let stream = origin.streams.of(origin.ring);
        let node = self.node_of_cpu.get(usize::from(cpu));
        let input = Input::Access {
            file,
            offset,
            length,
            process: origin.streams.stream(stream).image,
            thread: stream,
            node: node.copied().unwrap_or(0),
            write: op == Op::Write,
            count,
        };
        Some((time_ns, input))
    }

    fn step(&mut self, context: &mut Context<'_, ReplicationController>, poll: Poll<Input>) {
        let now_ns = poll.now_ns;
        self.take_ended_files(context, now_ns);
        for at in poll.inputs {
            context.input(at.time_ns, at.input);
        }
        let mut tight = false;
        if self.tick.is_due(now_ns) {
            let waited = self.stalls.stalled_since_last_call(now_ns);
            let short = self.memory.check_short();
            tight = waited || short;
            if short {
                context.input(now_ns, Input::Short);
            } else if waited {
                context.input(now_ns, Input::Memory { free_ppm: 0 });
            }
            let idle = poll.records == 0;
            context.input(now_ns, Input::Tick { idle });
        }
        if self.check_residency.is_due(now_ns) {
            context.input(now_ns, Input::CheckResidency);
        }
        if self.check.is_due(now_ns) {
            self.check(context, now_ns);
        }
        self.carry_out(context, now_ns);
        if tight {
            self.replicas.trim(true);
        }
    }

    fn poll_interval(&mut self, records: usize) -> Duration {
        self.poll_interval.after(records)
    }

    fn status(&mut self, context: &mut Context<'_, ReplicationController>) -> MechanismStatus {
        self.count(context.controller);
        MechanismStatus {
            mechanism: MechanismTag::Replication,
            policy: self.policy.clone(),
            nodes: self.report.nodes.clone(),
            figures: to_figures(&self.report.figures()),
            ..MechanismStatus::default()
        }
    }

    fn finish(
        mut self,
        mut context: Context<'_, ReplicationController>,
        ran: Duration,
    ) -> ReplicationReport {
        self.count(context.controller);
        let mut report = ReplicationReport {
            lost: context.run.lost(),
            agent: context.run.cpu() + self.leases.cpu(),
            ran,
            ..self.report
        };
        report.log = context.finish_log(&report.figures());
        report
    }
}

impl ReplicationActuator {
    pub(super) fn new(
        replicas: Shared,
        leases: Leases,
        nodes: &[NodeMemory],
        policy: String,
        dry_run: bool,
    ) -> ReplicationActuator {
        ReplicationActuator {
            policy,
            control: None,
            replicas,
            leases,
            dry_run,
            node_of_cpu: shape(nodes, 0).node_of_cpu,
            program_files: ProgramFiles::new(Arc::new(ThisPageCache), false),
            held: BTreeMap::new(),
            stalls: MemoryStalls::default(),
            memory: ReplicaMemory::of_this_process(),
            tick: Periodic::after(TICK_PERIOD_NS),
            check_residency: Periodic::after(RESIDENCY_PERIOD_NS),
            check: Periodic::after(CHECK_PERIOD_NS),
            poll_interval: PollInterval::new(),
            report: ReplicationReport {
                nodes: nodes.iter().map(|node| node.node).collect(),
                ..ReplicationReport::default()
            },
        }
    }

    pub(super) fn report_mut(&mut self) -> &mut ReplicationReport {
        &mut self.report
    }

    /// Counts a reason why a file has no replicas.
    pub(super) fn refuse(&mut self, why: impl ToString) {
        *self.report.refused.entry(why.to_string()).or_default() += 1;
    }

    /// Takes the files whose replicas the lease process has ended, or ended with.
    fn take_ended_files(&mut self, context: &mut Context<'_, ReplicationController>, now_ns: u64) {
        let change = self.leases.poll(now_ns);
        if change == Change::None {
            return;
        }
        if change == Change::AllEnded {
            self.refuse(LeaseError::NoHolder);
            if !self.leases.go_on() {
                self.refuse("too many of these processes were: no replicas any more");
            }
        }
        let leases = &self.leases;
        let ended = self
            .held
            .extract_if(.., |_, held| !leases.is_held(held.place));
        for (file, held) in ended.collect::<Vec<_>>() {
            self.replicas.leave(held.place);
            // Earlier orders about its replicas are void.
            context.orders.retain(|order| match order {
                Order::Replicate { file: of, .. } | Order::Drop { file: of, .. } => *of != file,
                _ => true,
            });
            context.input(now_ns, Input::Ended { file });
        }
    }

    fn carry_out(&mut self, context: &mut Context<'_, ReplicationController>, now_ns: u64) {
        while let Some(order) = context.orders.pop_front() {
            match order {
                Order::FindAbsent { file, indices } => {
                    self.find_absent(context, now_ns, file, &indices);
                }
                Order::Hold { file } => self.hold(context, now_ns, file),
                Order::Release { file } => {
                    if let Some(held) = self.held.get(&file) {
                        self.leases.release(held.place);
                    }
                }
                Order::Replicate { file, index, node } => {
                    let done = self.dry_run || self.fill(file, index, node);
                    context.input(
                        now_ns,
                        Input::Replicated {
                            file,
                            index,
                            node,
                            done,
                        },
                    );
                }
                Order::Drop { file, index, node } => {
                    if let Some(held) = self.held.get(&file) {
                        self.replicas.drop_block(held.place, index, node);
                    }
                }
            }
        }
    }

    fn fill(&mut self, file: FileKey, index: u32, node: u8) -> bool {
        let Some(held) = self.held.get(&file) else {
            return false;
        };
        if !self.memory.take(BLOCK_BYTES) {
            self.report.no_memory += 1;
            return false;
        }
        match self.replicas.fill(&held.opened, held.place, index, node) {
            Ok(()) => true,
            Err(why) => {
                self.report.no_memory += u64::from(why == FillError::NoMemory);
                false
            }
        }
    }

    /// Takes a lease, and enters the file into the table of files with replicas.
    fn hold(
        &mut self,
        context: &mut Context<'_, ReplicationController>,
        now_ns: u64,
        file: FileKey,
    ) {
        let answer = if self.dry_run {
            Ok(())
        } else {
            self.take(file)
        };
        let input = match answer {
            Ok(()) => Input::Held { file },
            Err(later) => {
                if !later {
                    context.run.stop_reporting(file);
                }
                Input::NotHeld { file, later }
            }
        };
        context.input(now_ns, input);
    }

    /// Says whether it may be worth another try where it failed.
    fn take(&mut self, file: FileKey) -> Result<(), bool> {
        let id = self.program_files.id(file).ok_or(false)?;
        // Its last lease has ended, and that is not yet known to all.
        if self.held.contains_key(&file) {
            return Err(true);
        }
        let opened = self.program_files.find(file, page_cache::open);
        let opened = opened.map_err(|why: OpenError| {
            self.refuse(why);
            why.may_pass()
        })?;
        lease::check(&opened).map_err(|why| {
            self.refuse(why);
            why.may_pass()
        })?;
        let seen = LeasedFile::of(&opened).map_err(|_| true)?;
        let Some(place) = self.replicas.enter(id, seen.bytes) else {
            self.refuse("no room in the table of files with replicas");
            return Err(true);
        };
        if let Err(why) = self.leases.take(place, &opened, &seen) {
            self.replicas.leave(place);
            self.refuse(why);
            return Err(why.may_pass());
        }
        let held = LeasedReplicas {
            opened,
            place,
            seen,
        };
        self.held.insert(file, held);
        Ok(())
    }

    /// Tells the controller which of these blocks of a file the kernel has given up.
    fn find_absent(
        &mut self,
        context: &mut Context<'_, ReplicationController>,
        now_ns: u64,
        file: FileKey,
        indices: &[u32],
    ) {
        let Ok(opened) = self.program_files.open(file) else {
            return;
        };
        for &index in indices {
            let (offset, length) = (u64::from(index) * BLOCK_BYTES, BLOCK_BYTES);
            let cached = opened.cached(offset, length);
            if cached.is_ok_and(|cached| cached.pages == 0) {
                let absent = Input::Absent {
                    file,
                    offset,
                    length,
                };
                context.input(now_ns, absent);
            }
        }
    }

    /// Checks free memory, and whether leased files have changed.
    fn check(&mut self, context: &mut Context<'_, ReplicationController>, now_ns: u64) {
        let free_ppm = if self.stalls.is_stalled() {
            0
        } else {
            self.memory.free_ppm()
        };
        context.input(now_ns, Input::Memory { free_ppm });
        for held in self.held.values() {
            // Its last name was taken: no writer, but its space is to be given back.
            if LeasedFile::of(&held.opened).map_or(true, |now| now != held.seen) {
                self.leases.release(held.place);
            }
        }
        self.replicas.trim(false);
        self.count(context.controller);
    }

    /// Takes over the controller's figures.
    fn count(&mut self, controller: &ReplicationController) {
        self.report.summary = controller.summary();
        let blocks: u64 = self.report.summary.replicas.iter().sum();
        self.report.bytes_max = self.report.bytes_max.max(blocks * BLOCK_BYTES);
    }
}
