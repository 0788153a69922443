//! The mechanism: hears what programs read, and has pages looked for and moved.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hither_sys::machine::Machine;
use hither_sys::page_cache::{Refused, ThisPageCache};
use hither_sys::record::{Op, Record};
use hither_sys::session::RingInfo;

use super::super::driver::{BLOCK_PAGES, Driver};
use super::super::event::{Decision, Input};
use super::super::mover::Job;
use super::Followed;
use super::figures::end;
use crate::agent::{Agent, Look, Mechanism};
use crate::observe::Streams;
use crate::pace::{Every, Pace};
use crate::pages::event::Why;
use crate::pages::mover::{Done, Mover};
use crate::pages::usage::Usage;
use crate::reach::Reach;

/// How often it is said what goes on, and looked how full the nodes are.
const LOOK_NS: u64 = 1_000_000_000;

/// How often the driver hears that time has passed, and asks the policy.
const TICK_NS: u64 = 100_000_000;

/// What came of a job, or why nothing did.
type Answer = Result<Done, (u64, Refused)>;

/// Moves pages of files.
pub(super) struct Following {
    /// Nothing once it was stopped.
    mover: Option<Mover<Job, Answer>>,
    page_bytes: u64,
    dry_run: bool,
    reach: Reach,
    usage: Usage,
    look: Every,
    tick: Every,
    pace: Pace,
    run: Followed,
}

impl Mechanism for Following {
    type Driver = Driver;

    fn hear(
        &mut self,
        streams: &mut Streams,
        ring: &RingInfo,
        record: &Record<'_>,
    ) -> Option<(u64, Input)> {
        self.reach.hear(ring, record);
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

    fn act(&mut self, agent: &mut Agent<Driver>, look: Look<Input>) {
        let now_ns = look.now_ns;
        for at in look.events {
            agent.input(at.time_ns, at.input);
        }
        let done = self.mover.iter().flat_map(Mover::done);
        for answer in done.collect::<Vec<Answer>>() {
            self.take(agent, now_ns, answer);
        }
        if self.look.is_due(now_ns) {
            self.look(agent, now_ns);
        }
        if look.last {
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

impl Following {
    pub(super) fn new(machine: Arc<dyn Machine>, dry_run: bool) -> io::Result<Following> {
        let page_bytes = machine.page_bytes();
        let mover = Mover::start(Arc::clone(&machine), page_bytes, |worker, job: &Job| {
            job.carry_out(worker)
        })?;
        Ok(Following {
            mover: Some(mover),
            page_bytes,
            dry_run,
            reach: Reach::new(Arc::new(ThisPageCache)),
            usage: Usage::new(machine, page_bytes * u64::from(BLOCK_PAGES)),
            look: Every::from_start(LOOK_NS),
            tick: Every::after(TICK_NS),
            pace: Pace::new(),
            run: Followed::default(),
        })
    }

    /// What came of a job.
    fn take(&mut self, agent: &mut Agent<Driver>, now_ns: u64, answer: Answer) {
        let input = match answer {
            Ok(Done::Located { job, found }) => Input::Located { job, found },
            Ok(Done::Moved(moved)) => {
                for run in &moved.refused {
                    // What has left the cache is nowhere to be moved from, and what was not come to
                    // is told of by what kept it.
                    if !matches!(run.why, Why::Absent | Why::Untried) {
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

    fn carry_out(&mut self, agent: &mut Agent<Driver>, now_ns: u64) {
        while let Some(decision) = agent.decisions.pop_front() {
            let (job, key, ranges, to) = match decision {
                Decision::Locate { job, file, ranges } => (job, file, ranges, None),
                // The driver takes it for done.
                Decision::Move { .. } if self.dry_run => continue,
                Decision::Move {
                    job,
                    file,
                    ranges,
                    to,
                    ..
                } => (job, file, ranges, Some(to)),
            };
            match self.reach.open(key) {
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
    fn look(&mut self, agent: &mut Agent<Driver>, now_ns: u64) {
        if let Some(used) = self.usage.read(now_ns) {
            agent.input(now_ns, Input::Usage { used });
        }
        self.run.summary = agent.driver.summary();
        agent.post(now_ns, end(&self.run));
    }

    /// What came of it all. Completes the log.
    pub(super) fn finish(self, agent: Agent<Driver>) -> Followed {
        let mut run = Followed {
            summary: agent.driver.summary(),
            lost: agent.session.lost(),
            agent: agent.cpu(),
            ..self.run
        };
        run.log = agent.finish(&end(&run));
        run
    }
}
