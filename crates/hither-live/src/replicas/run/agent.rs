//! The agent: hears what programs read, has the driver decide, takes leases and makes replicas.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hither_sys::lease::{Lease, Leased};
use hither_sys::machine::{Machine, NodeMemory, ThisMachine};
use hither_sys::page_cache::{self, FileId, ThisPageCache, Unreachable};
use hither_sys::process::{cpu_ns, monotonic_ns};
use hither_sys::record::{IN_KERNEL, Op, Record};
use hither_sys::replica::agent::{Replicas as Shared, Unfilled};
use hither_sys::replica::{BLOCK_BYTES, SERVED, SERVED_EACH};
use hither_sys::session::{RingInfo, Session};

use super::super::driver::Driver;
use super::super::event::{At, Decision, Input};
use super::super::keeper::Keeper;
use super::figures::end;
use super::pressure::Pressure;
use super::{Replicas, ReplicasOptions};
use crate::log::{Driven, Log};
use crate::observe::Streams;
use crate::pace::Pace;
use crate::reach::Reach;
use crate::status::{Board, Status};

/// How often the rings of threads that died without a word are looked for.
const REAP_NS: u64 = 500_000_000;

/// How often memory and leased files are looked at, and said what goes on.
const LOOK_NS: u64 = 1_000_000_000;

/// How often it is asked whether originals are still cached, and of how many blocks.
const ASK_NS: u64 = 250_000_000;
const ASKED: usize = 64;

/// How often the driver hears that time has passed.
const TICK_NS: u64 = 100_000_000;

/// Replicas of a file are read anew after so long: relatime is to see a read a day, and they leave no access time behind.
const AGE_NS: u64 = 6 * 3_600_000_000_000;

/// A file that a lease is held on.
struct Held {
    lease: Arc<Lease>,
    place: u32,
    seen: Leased,
    since_ns: u64,
}

/// The agent at work.
pub(super) struct Agent {
    driver: Driver,
    log: Option<Log<Driver>>,
    session: Session,
    replicas: Shared,
    keeper: Keeper,
    dry_run: bool,
    node_of_cpu: Vec<u8>,
    start_ns: u64,
    reach: Reach,
    ids: BTreeMap<u64, FileId>,
    streams: Streams,
    events: Vec<At>,
    held: BTreeMap<u64, Held>,
    decisions: VecDeque<Decision>,
    /// Where asking after originals goes on.
    asked: u32,
    pressure: Pressure,
    board: Option<Board>,
    /// What is said of the run and does not change.
    said: Status,
    cpu_before_ns: u64,
    run: Replicas,
}

impl Agent {
    pub(super) fn new(
        driver: Driver,
        log: Option<Log<Driver>>,
        session: Session,
        replicas: Shared,
        keeper: Keeper,
        nodes: &[NodeMemory],
        options: &ReplicasOptions,
    ) -> Agent {
        let words = options.command.iter();
        let shown = words.map(|word| word.to_string_lossy().into_owned());
        let numbers: Vec<u32> = nodes.iter().map(|node| node.node).collect();
        Agent {
            driver,
            log,
            session,
            replicas,
            keeper,
            dry_run: options.dry_run,
            node_of_cpu: super::shape(nodes, 0).node_of_cpu,
            start_ns: monotonic_ns(),
            reach: Reach::new(Arc::new(ThisPageCache)),
            ids: BTreeMap::new(),
            streams: Streams::default(),
            events: Vec::new(),
            held: BTreeMap::new(),
            decisions: VecDeque::new(),
            asked: 0,
            pressure: Pressure::default(),
            board: Board::new(std::process::id()),
            said: Status {
                agent: std::process::id(),
                command: shown.collect(),
                policy: options.policy.clone(),
                dry_run: options.dry_run,
                nodes: numbers.clone(),
                ..Status::default()
            },
            cpu_before_ns: cpu_ns(),
            run: Replicas {
                nodes: numbers,
                ..Replicas::default()
            },
        }
    }

    /// Counts a reason for there being no replicas.
    pub(super) fn refuse(&mut self, why: impl ToString) {
        *self.run.refused.entry(why.to_string()).or_default() += 1;
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns() - self.start_ns
    }

    /// Takes everything in until `ended` is set, and then once more.
    pub(super) fn attend(&mut self, ended: &AtomicBool) {
        let mut pace = Pace::new();
        let (mut reaped_ns, mut asked_ns, mut looked_ns, mut ticked_ns) = (0, 0, 0, 0);
        loop {
            // Read first: what the program did before it ended is seen by the sweep after.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.now_ns();
            let due = |since_ns: &mut u64, every_ns: u64| {
                let due = now_ns - *since_ns >= every_ns;
                if due {
                    *since_ns = now_ns;
                }
                due
            };
            self.hear_of_ends(now_ns);
            let records = self.sweep(due(&mut reaped_ns, REAP_NS));
            for at in std::mem::take(&mut self.events) {
                self.input(at.time_ns, at.input);
            }
            if due(&mut ticked_ns, TICK_NS) {
                if self.pressure.has_waited(now_ns) {
                    self.input(now_ns, Input::Memory { free_ppm: 0 });
                }
                self.input(now_ns, Input::Tick { idle: records == 0 });
            }
            if due(&mut asked_ns, ASK_NS) {
                self.ask(now_ns);
            }
            if due(&mut looked_ns, LOOK_NS) {
                self.look(now_ns);
            }
            self.carry_out(now_ns);
            if last {
                self.session.close();
                return;
            }
            thread::park_timeout(pace.after(records));
        }
    }

    /// Empties the rings into `events`, in order of time.
    fn sweep(&mut self, reap: bool) -> usize {
        let Agent {
            session,
            streams,
            reach,
            ids,
            events,
            start_ns,
            node_of_cpu,
            run,
            ..
        } = self;
        let mut heard = |ring: &RingInfo, record: Record<'_>| match record {
            Record::Object { .. } => ids.extend(reach.hear(ring, &record)),
            Record::Access {
                op: op @ (Op::Read | Op::Write),
                flags,
                cpu,
                time_ns,
                object: file,
                offset,
                length,
                ..
            } => {
                let count = if flags & SERVED != 0 { SERVED_EACH } else { 1 };
                let (calls, bytes) = match flags & SERVED {
                    0 => (&mut run.read, &mut run.read_bytes),
                    _ => (&mut run.served, &mut run.served_bytes),
                };
                if op == Op::Read {
                    *calls += u64::from(count);
                    *bytes += u64::from(count) * length;
                }
                // What goes from file to socket no replica can serve.
                if op == Op::Read && flags & IN_KERNEL != 0 {
                    return;
                }
                let stream = streams.of(ring);
                events.push(At {
                    time_ns: time_ns.saturating_sub(*start_ns),
                    input: Input::Access {
                        file,
                        offset,
                        length,
                        process: streams.stream(stream).image,
                        thread: stream,
                        node: node_of_cpu.get(usize::from(cpu)).copied().unwrap_or(0),
                        write: op == Op::Write,
                        count,
                    },
                });
            }
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

    /// Files whose replicas the keeper has ended.
    fn hear_of_ends(&mut self, now_ns: u64) {
        for (file, place) in self.keeper.ended() {
            self.replicas.leave(place);
            self.held.remove(&file);
            // What was decided before is of replicas that are no more.
            self.decisions.retain(|decision| match decision {
                Decision::Replicate { file: of, .. } | Decision::Drop { file: of, .. } => {
                    *of != file
                }
                _ => true,
            });
            self.input(now_ns, Input::Ended { file });
        }
    }

    fn carry_out(&mut self, now_ns: u64) {
        while let Some(decision) = self.decisions.pop_front() {
            match decision {
                Decision::Hold { file } => self.hold(now_ns, file),
                Decision::Release { file } => {
                    if let Some(held) = self.held.get(&file) {
                        self.keeper.release(held.lease.fd());
                    }
                }
                Decision::Replicate { file, index, node } => {
                    let done = self.dry_run || self.fill(file, index, node);
                    self.input(
                        now_ns,
                        Input::Settled {
                            file,
                            index,
                            node,
                            done,
                        },
                    );
                }
                Decision::Drop { file, index, node } => {
                    if let Some(held) = self.held.get(&file) {
                        self.replicas.drop_block(held.place, index, node);
                    }
                }
            }
        }
    }

    fn fill(&mut self, file: u64, index: u32, node: u8) -> bool {
        let Some(held) = self.held.get(&file) else {
            return false;
        };
        match self
            .replicas
            .fill(held.lease.file(), held.place, index, node)
        {
            Ok(()) => true,
            Err(why) => {
                self.run.no_memory += u64::from(why == Unfilled::NoMemory);
                false
            }
        }
    }

    /// Takes a lease, and gives the file a place among those with replicas.
    fn hold(&mut self, now_ns: u64, file: u64) {
        let answer = match self.dry_run {
            true => Ok(()),
            false => self.take(now_ns, file),
        };
        let input = match answer {
            Ok(()) => Input::Held { file },
            Err(later) => {
                if !later {
                    self.session.stop_hearing_of(file);
                }
                Input::NotHeld { file, later }
            }
        };
        self.input(now_ns, input);
    }

    /// Says whether it may be worth another try where it failed.
    fn take(&mut self, now_ns: u64, file: u64) -> Result<(), bool> {
        let id = *self.ids.get(&file).ok_or(false)?;
        // Its last lease has ended, and that is not yet known to all.
        if self.held.contains_key(&file) {
            return Err(true);
        }
        let opened = self.reach.find(file, page_cache::open);
        let opened = opened.map_err(|why: Unreachable| {
            self.refuse(why);
            why.may_pass()
        })?;
        let lease = Lease::take(opened, self.keeper.listener()).map_err(|why| {
            self.refuse(why);
            why.may_pass()
        })?;
        let seen = lease.look().map_err(|_| true)?;
        let Agent {
            replicas, keeper, ..
        } = self;
        let mut place = 0;
        let lease = keeper.hold(file, lease, |_| {
            place = replicas.enter(id, seen.bytes)?;
            Some(place)
        });
        let Some(lease) = lease else {
            self.refuse("no room in the table of files with replicas");
            return Err(true);
        };
        let held = Held {
            lease,
            place,
            seen,
            since_ns: now_ns,
        };
        self.held.insert(file, held);
        Ok(())
    }

    /// Finds out which originals the kernel has given up.
    fn ask(&mut self, now_ns: u64) {
        let blocks = self.driver.replicated(self.asked, ASKED);
        self.asked = match blocks.last() {
            Some(&(last, ..)) if blocks.len() == ASKED => last + 1,
            _ => 0,
        };
        for of_file in blocks.chunk_by(|a, b| a.1 == b.1) {
            let file = of_file[0].1;
            let Ok(opened) = self.reach.open(file) else {
                continue;
            };
            for &(_, _, index) in of_file {
                let (offset, length) = (u64::from(index) * BLOCK_BYTES, BLOCK_BYTES);
                if opened
                    .cached(offset, length)
                    .is_ok_and(|cached| cached.pages == 0)
                {
                    let absent = Input::Absent {
                        file,
                        offset,
                        length,
                    };
                    self.input(now_ns, absent);
                }
            }
        }
    }

    /// Looks at memory and at leased files, and says what goes on for those who look on.
    fn look(&mut self, now_ns: u64) {
        let free_ppm = match self.pressure.waits() {
            true => 0,
            false => free_ppm(),
        };
        self.input(now_ns, Input::Memory { free_ppm });
        for held in self.held.values() {
            // Its times were set, or its last name was taken: no writer, but its access time is to move, or its space to be given back.
            let changed = held.lease.look().map_or(true, |now| now != held.seen);
            if changed || now_ns - held.since_ns > AGE_NS {
                self.keeper.release(held.lease.fd());
            }
        }
        self.replicas.trim();
        self.run.summary = self.driver.summary();
        let blocks: u64 = self.run.summary.replicas.iter().sum();
        self.run.bytes_max = self.run.bytes_max.max(blocks * BLOCK_BYTES);
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
    pub(super) fn finish(self) -> Replicas {
        let summary = self.driver.summary();
        let blocks: u64 = summary.replicas.iter().sum();
        let mut run = Replicas {
            summary,
            bytes_max: self.run.bytes_max.max(blocks * BLOCK_BYTES),
            lost: self.session.lost(),
            agent: Duration::from_nanos(cpu_ns() - self.cpu_before_ns),
            ..self.run
        };
        if let Some(log) = self.log {
            run.log = log.finish(&end(&run)).err();
        }
        run
    }
}

/// How much of all memory is free, or holds files that were not used for long.
fn free_ppm() -> u32 {
    let nodes = ThisMachine.nodes().unwrap_or_default();
    let sum = |of: fn(&NodeMemory) -> u64| nodes.iter().map(of).sum::<u64>();
    let all = sum(|node| node.bytes).max(1);
    let free = sum(NodeMemory::available_bytes).min(all);
    (u128::from(free) * 1_000_000 / u128::from(all)) as u32
}
