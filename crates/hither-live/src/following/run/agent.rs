//! The agent: hears what programs read, has the driver decide, and has pages looked for and moved.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hither_sys::machine::{Machine, NodeMemory};
use hither_sys::page_cache::{Refused, ThisPageCache};
use hither_sys::process::{cpu_ns, monotonic_ns};
use hither_sys::record::{Op, Record};
use hither_sys::session::{RingInfo, Session};

use super::super::driver::{BLOCK_PAGES, Driver};
use super::super::event::{At, Decision, Input};
use super::super::mover::Job;
use super::figures::end;
use super::{Followed, FollowingOptions};
use crate::log::{Driven, Log};
use crate::observe::Streams;
use crate::pace::Pace;
use crate::pages::event::Why;
use crate::pages::mover::{Done, Mover};
use crate::pages::usage::Usage;
use crate::reach::Reach;
use crate::status::{Board, Status};

/// How often the rings of threads that died without a word are looked for.
const REAP_NS: u64 = 500_000_000;

/// How often it is said what goes on, and looked how full the nodes are.
const LOOK_NS: u64 = 1_000_000_000;

/// How often the driver hears that time has passed, and asks the policy.
const TICK_NS: u64 = 100_000_000;

/// What came of a job, or why nothing did.
type Answer = Result<Done, (u64, Refused)>;

/// The agent at work.
pub(super) struct Agent {
    driver: Driver,
    log: Option<Log<Driver>>,
    session: Session,
    /// Nothing once it was stopped.
    mover: Option<Mover<Job, Answer>>,
    page_bytes: u64,
    dry_run: bool,
    start_ns: u64,
    reach: Reach,
    streams: Streams,
    events: Vec<At>,
    decisions: VecDeque<Decision>,
    usage: Usage,
    board: Option<Board>,
    /// What is said of the run and does not change.
    said: Status,
    cpu_before_ns: u64,
    run: Followed,
}

impl Agent {
    pub(super) fn new(
        machine: Arc<dyn Machine>,
        driver: Driver,
        log: Option<Log<Driver>>,
        session: Session,
        nodes: &[NodeMemory],
        options: &FollowingOptions,
    ) -> io::Result<Agent> {
        let words = options.command.iter();
        let shown = words.map(|word| word.to_string_lossy().into_owned());
        let page_bytes = machine.page_bytes();
        let mover = Mover::start(Arc::clone(&machine), page_bytes, |worker, job: &Job| {
            job.carry_out(worker)
        })?;
        Ok(Agent {
            driver,
            log,
            session,
            mover: Some(mover),
            page_bytes,
            dry_run: options.dry_run,
            start_ns: monotonic_ns(),
            reach: Reach::new(Arc::new(ThisPageCache)),
            streams: Streams::default(),
            events: Vec::new(),
            decisions: VecDeque::new(),
            usage: Usage::new(machine, page_bytes * u64::from(BLOCK_PAGES)),
            board: Board::new(std::process::id()),
            said: Status {
                agent: std::process::id(),
                command: shown.collect(),
                policy: options.policy.to_string(),
                dry_run: options.dry_run,
                nodes: nodes.iter().map(|node| node.node).collect(),
                ..Status::default()
            },
            cpu_before_ns: cpu_ns(),
            run: Followed::default(),
        })
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns() - self.start_ns
    }

    /// Takes everything in until `ended` is set, and then once more.
    pub(super) fn attend(&mut self, ended: &AtomicBool) {
        let mut pace = Pace::new();
        let (mut reaped_ns, mut ticked_ns, mut looked_ns) = (0, 0, None);
        loop {
            // Read first: what the program did before it ended is seen by the sweep after.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.now_ns();
            let reap = now_ns - reaped_ns >= REAP_NS;
            if reap {
                reaped_ns = now_ns;
            }
            let records = self.sweep(reap);
            for at in std::mem::take(&mut self.events) {
                self.input(at.time_ns, at.input);
            }
            let done = self.mover.iter().flat_map(Mover::done);
            for answer in done.collect::<Vec<Answer>>() {
                self.take(now_ns, answer);
            }
            if looked_ns.is_none_or(|looked_ns| now_ns - looked_ns >= LOOK_NS) {
                looked_ns = Some(now_ns);
                self.look(now_ns);
            }
            if last {
                // Nobody reads any more what it would move.
                let left = self.mover.take().map(Mover::stop).unwrap_or_default();
                for answer in left {
                    self.take(now_ns, answer);
                }
                self.session.close();
                return;
            }
            if now_ns - ticked_ns >= TICK_NS {
                ticked_ns = now_ns;
                self.input(now_ns, Input::Tick);
            }
            self.carry_out(now_ns);
            thread::park_timeout(pace.after(records));
        }
    }

    /// Empties the rings into `events`, in order of time.
    fn sweep(&mut self, reap: bool) -> usize {
        let Agent {
            session,
            streams,
            reach,
            events,
            start_ns,
            ..
        } = self;
        let mut heard = |ring: &RingInfo, record: Record<'_>| match record {
            Record::Object { .. } => drop(reach.hear(ring, &record)),
            Record::Access {
                op: Op::Read | Op::Write,
                cpu,
                time_ns,
                object: file,
                offset,
                length,
                ..
            } => events.push(At {
                time_ns: time_ns.saturating_sub(*start_ns),
                input: Input::Access {
                    file,
                    offset,
                    length,
                    thread: streams.of(ring),
                    cpu: u32::from(cpu),
                },
            }),
            Record::Process {
                parent, exe, args, ..
            } => drop(streams.announced(ring, parent, exe, args)),
            _ => {}
        };
        let mut records = session.drain(&mut heard);
        if reap {
            records += session.reap(&mut heard);
        }
        events.sort_by_key(|at| at.time_ns);
        records
    }

    fn input(&mut self, time_ns: u64, input: Input) {
        let at = At { time_ns, input };
        let mut decisions = Vec::new();
        self.driver.input(&at, &mut decisions);
        if let Some(log) = &mut self.log {
            log.input(&at);
            for decision in &decisions {
                log.decision(decision);
            }
        }
        self.decisions.extend(decisions);
    }

    /// What came of a job.
    fn take(&mut self, now_ns: u64, answer: Answer) {
        let input = match answer {
            Ok(Done::Located { job, found }) => Input::Located { job, found },
            Ok(Done::Moved(moved)) => {
                for run in &moved.refused {
                    // What has left the cache is nowhere to be moved from, and what was not come to is told of by what kept it.
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
        self.input(now_ns, input);
    }

    fn leave_alone(&mut self, why: impl ToString) {
        *self.run.left_alone.entry(why.to_string()).or_default() += 1;
    }

    fn carry_out(&mut self, now_ns: u64) {
        while let Some(decision) = self.decisions.pop_front() {
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
                        self.session.stop_hearing_of(key);
                    }
                    self.input(now_ns, Input::Unreachable { job, for_good });
                }
            }
        }
    }

    /// Looks how full the nodes are, and says what goes on for those who look on.
    fn look(&mut self, now_ns: u64) {
        if let Some(used) = self.usage.read(now_ns) {
            self.input(now_ns, Input::Usage { used });
        }
        self.run.summary = self.driver.summary();
        if let Some(board) = &self.board {
            board.post(&Status {
                ran_ns: now_ns,
                agent_ns: cpu_ns() - self.cpu_before_ns,
                figures: end(&self.run),
                ..self.said.clone()
            });
        }
    }

    /// Completes the log.
    pub(super) fn finish(self) -> Followed {
        let mut run = Followed {
            summary: self.driver.summary(),
            lost: self.session.lost(),
            ..self.run
        };
        if let Some(log) = self.log {
            run.log = log.finish(&end(&run)).err();
        }
        run
    }
}
