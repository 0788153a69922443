//! The actuator: reports the reads of programs to the controller, and has pages looked up and
//! moved.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hither_core::Spec;
use hither_core::placement::PlacementEntry;
use hither_ids::KernelNode;
use hither_kernel::machine::Machine;
use hither_kernel::page_cache::{PageCacheError, ThisPageCache};
use hither_session::record::{Op, Record};

use super::super::controller::{BLOCK_PAGES, FileMigrationController};
use super::super::event::{Input, Order};
use super::super::job::FileJob;
use super::report::FileMigrationReport;
use crate::mechanism::{Actuator, Context, Origin, Poll};
use crate::numa::mover::{JobResult, Mover};
use crate::numa::ranges::RefusalReason;
use crate::numa::usage::{PERIOD_NS, Usage};
use crate::polling::{Periodic, PollInterval};
use crate::program_files::ProgramFiles;
use crate::status::{MechanismStatus, MechanismTag, to_figures};

/// How often the usage of the nodes is read.
const USAGE_PERIOD_NS: u64 = 1_000_000_000;

/// How often the controller gets a tick, on which it asks the policy.
const TICK_PERIOD_NS: u64 = 100_000_000;

/// The outcome of a job; an error comes with the job's number.
type FileJobResult = Result<JobResult, (u64, PageCacheError)>;

/// Moves pages of files.
pub(crate) struct FileMigrationActuator {
    policy: Spec<PlacementEntry>,
    /// The kernel's numbers of the nodes.
    nodes: Vec<KernelNode>,
    /// `None` once it was stopped.
    mover: Option<Mover<FileJob, FileJobResult>>,
    page_bytes: u64,
    dry_run: bool,
    program_files: ProgramFiles,
    usage: Usage,
    read_usage: Periodic,
    tick: Periodic,
    poll_interval: PollInterval,
    report: FileMigrationReport,
}

impl Actuator for FileMigrationActuator {
    type Controller = FileMigrationController;
    type Report = FileMigrationReport;

    fn on_record(&mut self, origin: &mut Origin<'_>, record: &Record<'_>) -> Option<(u64, Input)> {
        self.program_files.on_record(origin.ring, record);
        let &Record::Access {
            op: op @ (Op::Read | Op::Write),
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
        let input = Input::Access {
            file,
            offset,
            length,
            thread: origin.streams.of(origin.ring),
            cpu: u32::from(cpu),
            write: op == Op::Write,
        };
        Some((time_ns, input))
    }

    fn step(&mut self, context: &mut Context<'_, FileMigrationController>, poll: Poll<Input>) {
        let now_ns = poll.now_ns;
        for at in poll.inputs {
            context.input(at.time_ns, at.input);
        }
        let done = self.mover.iter().flat_map(Mover::done);
        for answer in done.collect::<Vec<FileJobResult>>() {
            self.take(context, now_ns, answer);
        }
        if self.read_usage.is_due(now_ns)
            && let Some(used) = self.usage.read(now_ns)
        {
            context.input(now_ns, Input::Usage { used });
        }
        if poll.last {
            // The program has ended, so that nothing is worth moving any more.
            let left = self.mover.take().map(Mover::stop).unwrap_or_default();
            for answer in left {
                self.take(context, now_ns, answer);
            }
            return;
        }
        if self.tick.is_due(now_ns) {
            context.input(now_ns, Input::Tick);
        }
        self.carry_out(context, now_ns);
    }

    fn poll_interval(&mut self, records: usize) -> Duration {
        self.poll_interval.after(records)
    }

    fn status(&mut self, context: &mut Context<'_, FileMigrationController>) -> MechanismStatus {
        self.report.summary = context.controller.summary();
        MechanismStatus {
            mechanism: MechanismTag::FileMigration,
            policy: self.policy.to_string(),
            nodes: self.nodes.clone(),
            figures: to_figures(&self.report.figures()),
            ..MechanismStatus::default()
        }
    }

    fn finish(
        self,
        mut context: Context<'_, FileMigrationController>,
        ran: Duration,
    ) -> FileMigrationReport {
        let mut report = FileMigrationReport {
            summary: context.controller.summary(),
            lost: context.run.lost(),
            agent: context.run.cpu(),
            ran,
            ..self.report
        };
        report.log = context.finish_log(&report.figures());
        report
    }
}

impl FileMigrationActuator {
    pub(super) fn new(
        machine: Arc<dyn Machine>,
        policy: Spec<PlacementEntry>,
        nodes: Vec<KernelNode>,
        dry_run: bool,
    ) -> io::Result<FileMigrationActuator> {
        let page_bytes = machine.page_bytes();
        let mover = Mover::start(Arc::clone(&machine), page_bytes, |worker, job: &FileJob| {
            job.carry_out(worker)
        })?;
        Ok(FileMigrationActuator {
            policy,
            nodes,
            mover: Some(mover),
            page_bytes,
            dry_run,
            program_files: ProgramFiles::new(Arc::new(ThisPageCache), false),
            usage: Usage::new(machine, page_bytes * u64::from(BLOCK_PAGES), PERIOD_NS),
            read_usage: Periodic::from_start(USAGE_PERIOD_NS),
            tick: Periodic::after(TICK_PERIOD_NS),
            poll_interval: PollInterval::new(),
            report: FileMigrationReport::default(),
        })
    }

    /// Gives the outcome of a job to the controller.
    fn take(
        &mut self,
        context: &mut Context<'_, FileMigrationController>,
        now_ns: u64,
        answer: FileJobResult,
    ) {
        let input = match answer {
            Ok(JobResult::Located { job, found }) => Input::Located { job, found },
            Ok(JobResult::Moved(moved)) => {
                for run in &moved.refused {
                    // Absent pages have left the cache, and untried ones follow from another page's
                    // reason.
                    if !matches!(run.why, RefusalReason::Absent | RefusalReason::Untried) {
                        *self.report.refused.entry(run.why.to_string()).or_default() +=
                            u64::from(run.pages);
                    }
                }
                Input::Moved(moved)
            }
            Err((job, refused)) => {
                self.leave_alone(refused);
                Input::Unreachable {
                    job,
                    for_good: true,
                }
            }
        };
        context.input(now_ns, input);
    }

    /// Counts a reason for which a file cannot be used.
    fn leave_alone(&mut self, why: impl ToString) {
        *self.report.left_alone.entry(why.to_string()).or_default() += 1;
    }

    fn carry_out(&mut self, context: &mut Context<'_, FileMigrationController>, now_ns: u64) {
        while let Some(order) = context.orders.pop_front() {
            let (job, key, ranges, to) = match order {
                Order::Locate { job, file, ranges } => (job, file, ranges, None),
                // In a dry run the controller takes it for done.
                Order::Move { .. } if self.dry_run => continue,
                Order::Move {
                    job,
                    file,
                    ranges,
                    to,
                    ..
                } => (job, file, ranges, Some(to)),
            };
            match self.program_files.open(key) {
                Ok(file) => {
                    if let Some(mover) = &self.mover {
                        mover.send(FileJob {
                            job,
                            file,
                            ranges,
                            to,
                            page_bytes: self.page_bytes,
                        });
                    }
                }
                Err(why) => {
                    self.leave_alone(why);
                    let for_good = !why.may_pass();
                    if for_good {
                        context.run.stop_reporting(key);
                    }
                    context.input(now_ns, Input::Unreachable { job, for_good });
                }
            }
        }
    }
}
