//! The actuator: hears what programs read, and has pages looked for and moved.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hither_sys::machine::Machine;
use hither_sys::page_cache::{PageCacheError, ThisPageCache};
use hither_sys::record::{Op, Record};
use hither_sys::session::RingInfo;

use super::super::controller::{BLOCK_PAGES, FileMigrationController};
use super::super::event::{Decision, Input};
use super::super::job::Job;
use super::FileMigrationReport;
use super::figures::end;
use crate::numa::mover::{JobResult, Mover};
use crate::numa::ranges::RefusalReason;
use crate::numa::usage::Usage;
use crate::observe::Streams;
use crate::polling::{Periodic, PollInterval};
use crate::program_files::ProgramFiles;
use crate::run::{Actuator, Agent, Poll};

/// How often it is said what goes on, and looked how full the nodes are.
const LOOK_NS: u64 = 1_000_000_000;

/// How often the controller hears that time has passed, and asks the policy.
const TICK_NS: u64 = 100_000_000;

/// What came of a job, or why nothing did.
type Answer = Result<JobResult, (u64, PageCacheError)>;

/// Moves pages of files.
pub(super) struct FileMigrationActuator {
    /// Nothing once it was stopped.
    mover: Option<Mover<Job, Answer>>,
    page_bytes: u64,
    dry_run: bool,
    program_files: ProgramFiles,
    usage: Usage,
    look: Periodic,
    tick: Periodic,
    pace: PollInterval,
    run: FileMigrationReport,
}

impl Actuator for FileMigrationActuator {
    type Controller = FileMigrationController;

    fn on_record(
        &mut self,
        streams: &mut Streams,
        ring: &RingInfo,
        record: &Record<'_>,
    ) -> Option<(u64, Input)> {
        self.program_files.on_record(ring, record);
        let &Record::Access {
            op: Op::Read | Op::Write,
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
            thread: streams.of(ring),
            cpu: u32::from(cpu),
        };
        Some((time_ns, input))
    }

    fn step(&mut self, agent: &mut Agent<FileMigrationController>, poll: Poll<Input>) {
        let now_ns = poll.now_ns;
        for at in poll.events {
            agent.input(at.time_ns, at.input);
        }
        let done = self.mover.iter().flat_map(Mover::done);
        for answer in done.collect::<Vec<Answer>>() {
            self.take(agent, now_ns, answer);
        }
        if self.look.is_due(now_ns) {
            self.look(agent, now_ns);
        }
        if poll.last {
            // Nobody reads any more what it would move.
            let left = self.mover.take().map(Mover::stop).unwrap_or_default();
            for answer in left {
                self.take(agent, now_ns, answer);
            }
            return;
        }
        if self.tick.is_due(now_ns) {
            agent.input(now_ns, Input::Tick);
        }
        self.carry_out(agent, now_ns);
    }

    fn pause(&mut self, records: usize) -> Duration {
        self.pace.after(records)
    }
}

impl FileMigrationActuator {
    pub(super) fn new(
        machine: Arc<dyn Machine>,
        dry_run: bool,
    ) -> io::Result<FileMigrationActuator> {
        let page_bytes = machine.page_bytes();
        let mover = Mover::start(Arc::clone(&machine), page_bytes, |worker, job: &Job| {
            job.carry_out(worker)
        })?;
        Ok(FileMigrationActuator {
            mover: Some(mover),
            page_bytes,
            dry_run,
            program_files: ProgramFiles::new(Arc::new(ThisPageCache)),
            usage: Usage::new(machine, page_bytes * u64::from(BLOCK_PAGES)),
            look: Periodic::from_start(LOOK_NS),
            tick: Periodic::after(TICK_NS),
            pace: PollInterval::new(),
            run: FileMigrationReport::default(),
        })
    }

    /// What came of a job.
    fn take(&mut self, agent: &mut Agent<FileMigrationController>, now_ns: u64, answer: Answer) {
        let input = match answer {
            Ok(JobResult::Located { job, found }) => Input::Located { job, found },
            Ok(JobResult::Moved(moved)) => {
                for run in &moved.refused {
                    // What has left the cache is nowhere to be moved from, and what was not come to
                    // is told of by what kept it.
                    if !matches!(run.why, RefusalReason::Absent | RefusalReason::Untried) {
                        *self.run.refused.entry(run.why.to_string()).or_default() +=
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
        agent.input(now_ns, input);
    }

    fn leave_alone(&mut self, why: impl ToString) {
        *self.run.left_alone.entry(why.to_string()).or_default() += 1;
    }

    fn carry_out(&mut self, agent: &mut Agent<FileMigrationController>, now_ns: u64) {
        while let Some(decision) = agent.decisions.pop_front() {
            let (job, key, ranges, to) = match decision {
                Decision::Locate { job, file, ranges } => (job, file, ranges, None),
                // The controller takes it for done.
                Decision::Move { .. } if self.dry_run => continue,
                Decision::Move {
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
                        mover.send(Job {
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
                        agent.session.stop_recording_file(key);
                    }
                    agent.input(now_ns, Input::Unreachable { job, for_good });
                }
            }
        }
    }

    /// Looks how full the nodes are, and says what goes on for those who look on.
    fn look(&mut self, agent: &mut Agent<FileMigrationController>, now_ns: u64) {
        if let Some(used) = self.usage.read(now_ns) {
            agent.input(now_ns, Input::Usage { used });
        }
        self.run.summary = agent.controller.summary();
        agent.publish(now_ns, end(&self.run));
    }

    /// What came of it all. Completes the log.
    pub(super) fn finish(self, agent: Agent<FileMigrationController>) -> FileMigrationReport {
        let mut run = FileMigrationReport {
            summary: agent.controller.summary(),
            lost: agent.session.lost(),
            agent: agent.cpu(),
            ..self.run
        };
        run.log = agent.finish(&end(&run));
        run
    }
}
