//! The actuator: hears what programs read, takes leases and makes replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hither_sys::lease::{Lease, LeasedFile};
use hither_sys::machine::NodeMemory;
use hither_sys::page_cache::{self, OpenError, ThisPageCache};
use hither_sys::record::{IN_KERNEL, Op, Record};
use hither_sys::replica::agent::{FillError, Replicas as Shared};
use hither_sys::replica::{BLOCK_BYTES, SENT, SERVED, SERVED_EACH};
use hither_sys::session::RingInfo;

use super::super::controller::ReplicationController;
use super::super::event::{Decision, Input};
use super::super::lease_thread::LeaseThread;
use super::figures::end;
use super::memory_pressure::{Pressure, Room};
use super::{ReplicationOptions, ReplicationReport};
use crate::observe::Streams;
use crate::polling::{Periodic, PollInterval};
use crate::program_files::ProgramFiles;
use crate::run::{Actuator, Agent, Poll};

/// How often memory and leased files are looked at, and said what goes on.
const LOOK_NS: u64 = 1_000_000_000;

/// How often it is asked whether originals are still cached, and of how many blocks.
const ASK_NS: u64 = 250_000_000;
const ASKED: usize = 64;

/// How often the controller hears that time has passed.
const TICK_NS: u64 = 100_000_000;

/// Replicas of a file are read anew after so long: relatime is to see a read a day, and they leave
/// no access time behind.
const AGE_NS: u64 = 6 * 3_600_000_000_000;

/// A file that a lease is held on.
struct Held {
    lease: Arc<Lease>,
    place: u32,
    seen: LeasedFile,
    since_ns: u64,
}

/// Makes replicas, and gives them up.
pub(super) struct ReplicationActuator {
    replicas: Shared,
    lease_thread: LeaseThread,
    dry_run: bool,
    node_of_cpu: Vec<u8>,
    program_files: ProgramFiles,
    held: BTreeMap<u64, Held>,
    /// Where asking after originals goes on.
    asked: u32,
    pressure: Pressure,
    room: Room,
    tick: Periodic,
    ask: Periodic,
    look: Periodic,
    pace: PollInterval,
    run: ReplicationReport,
}

impl Actuator for ReplicationActuator {
    type Controller = ReplicationController;

    fn on_record(
        &mut self,
        streams: &mut Streams,
        ring: &RingInfo,
        record: &Record<'_>,
    ) -> Option<(u64, Input)> {
        self.program_files.on_record(ring, record);
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
        let run = &mut self.run;
        let count = if flags & SERVED != 0 { SERVED_EACH } else { 1 };
        let (calls, bytes) = match flags & SERVED {
            0 => (&mut run.read, &mut run.read_bytes),
            _ => (&mut run.served, &mut run.served_bytes),
        };
        if op == Op::Read {
            *calls += u64::from(count);
            *bytes += u64::from(count) * length;
        }
        // What goes from file to file no replica can serve.
        if op == Op::Read && flags & IN_KERNEL != 0 {
            if flags & SENT == 0 {
                return None;
            }
            self.replicas.lend();
        }
        let stream = streams.of(ring);
        let node = self.node_of_cpu.get(usize::from(cpu));
        let input = Input::Access {
            file,
            offset,
            length,
            process: streams.stream(stream).image,
            thread: stream,
            node: node.copied().unwrap_or(0),
            write: op == Op::Write,
            count,
        };
        Some((time_ns, input))
    }

    fn step(&mut self, agent: &mut Agent<ReplicationController>, poll: Poll<Input>) {
        let now_ns = poll.now_ns;
        self.hear_of_ends(agent, now_ns);
        for at in poll.events {
            agent.input(at.time_ns, at.input);
        }
        let mut tight = false;
        if self.tick.is_due(now_ns) {
            let (waited, short) = (self.pressure.has_waited(now_ns), self.room.look());
            tight = waited || short;
            if short {
                agent.input(now_ns, Input::Short);
            } else if waited {
                agent.input(now_ns, Input::Memory { free_ppm: 0 });
            }
            let idle = poll.records == 0;
            agent.input(now_ns, Input::Tick { idle });
        }
        if self.ask.is_due(now_ns) {
            self.ask(agent, now_ns);
        }
        if self.look.is_due(now_ns) {
            self.look(agent, now_ns);
        }
        self.carry_out(agent, now_ns);
        if tight {
            self.replicas.trim(true);
        }
    }

    fn pause(&mut self, records: usize) -> Duration {
        self.pace.after(records)
    }
}

impl ReplicationActuator {
    pub(super) fn new(
        replicas: Shared,
        lease_thread: LeaseThread,
        nodes: &[NodeMemory],
        options: &ReplicationOptions,
    ) -> ReplicationActuator {
        ReplicationActuator {
            replicas,
            lease_thread,
            dry_run: options.run.dry_run,
            node_of_cpu: super::shape(nodes, 0).node_of_cpu,
            program_files: ProgramFiles::new(Arc::new(ThisPageCache)),
            held: BTreeMap::new(),
            asked: 0,
            pressure: Pressure::default(),
            room: Room::of_this_process(),
            tick: Periodic::after(TICK_NS),
            ask: Periodic::after(ASK_NS),
            look: Periodic::after(LOOK_NS),
            pace: PollInterval::new(),
            run: ReplicationReport {
                nodes: nodes.iter().map(|node| node.node).collect(),
                ..ReplicationReport::default()
            },
        }
    }

    /// Counts a reason for there being no replicas.
    pub(super) fn refuse(&mut self, why: impl ToString) {
        *self.run.refused.entry(why.to_string()).or_default() += 1;
    }

    /// Files whose replicas the lease_thread has ended.
    fn hear_of_ends(&mut self, agent: &mut Agent<ReplicationController>, now_ns: u64) {
        for (file, place) in self.lease_thread.ended() {
            self.replicas.leave(place);
            self.held.remove(&file);
            // What was decided before is of replicas that are no more.
            agent.decisions.retain(|decision| match decision {
                Decision::Replicate { file: of, .. } | Decision::Drop { file: of, .. } => {
                    *of != file
                }
                _ => true,
            });
            agent.input(now_ns, Input::Ended { file });
        }
    }

    fn carry_out(&mut self, agent: &mut Agent<ReplicationController>, now_ns: u64) {
        while let Some(decision) = agent.decisions.pop_front() {
            match decision {
                Decision::Hold { file } => self.hold(agent, now_ns, file),
                Decision::Release { file } => {
                    if let Some(held) = self.held.get(&file) {
                        self.lease_thread.release(held.lease.fd());
                    }
                }
                Decision::Replicate { file, index, node } => {
                    let done = self.dry_run || self.fill(file, index, node);
                    agent.input(
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
        if !self.room.take(BLOCK_BYTES) {
            self.run.no_memory += 1;
            return false;
        }
        match self
            .replicas
            .fill(held.lease.file(), held.place, index, node)
        {
            Ok(()) => true,
            Err(why) => {
                self.run.no_memory += u64::from(why == FillError::NoMemory);
                false
            }
        }
    }

    /// Takes a lease, and gives the file a place among those with replicas.
    fn hold(&mut self, agent: &mut Agent<ReplicationController>, now_ns: u64, file: u64) {
        let answer = match self.dry_run {
            true => Ok(()),
            false => self.take(now_ns, file),
        };
        let input = match answer {
            Ok(()) => Input::Held { file },
            Err(later) => {
                if !later {
                    agent.session.stop_recording_file(file);
                }
                Input::NotHeld { file, later }
            }
        };
        agent.input(now_ns, input);
    }

    /// Says whether it may be worth another try where it failed.
    fn take(&mut self, now_ns: u64, file: u64) -> Result<(), bool> {
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
        let lease = Lease::take(opened, self.lease_thread.listener()).map_err(|why| {
            self.refuse(why);
            why.may_pass()
        })?;
        let seen = lease.look().map_err(|_| true)?;
        let ReplicationActuator {
            replicas,
            lease_thread,
            ..
        } = self;
        let mut place = 0;
        let lease = lease_thread.hold(file, lease, |_| {
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
    fn ask(&mut self, agent: &mut Agent<ReplicationController>, now_ns: u64) {
        let blocks = agent.controller.replicated(self.asked, ASKED);
        self.asked = match blocks.last() {
            Some(&(last, ..)) if blocks.len() == ASKED => last + 1,
            _ => 0,
        };
        for of_file in blocks.chunk_by(|a, b| a.1 == b.1) {
            let file = of_file[0].1;
            let Ok(opened) = self.program_files.open(file) else {
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
                    agent.input(now_ns, absent);
                }
            }
        }
    }

    /// Looks at memory and at leased files, and says what goes on for those who look on.
    fn look(&mut self, agent: &mut Agent<ReplicationController>, now_ns: u64) {
        let free_ppm = match self.pressure.waits() {
            true => 0,
            false => self.room.free_ppm(),
        };
        agent.input(now_ns, Input::Memory { free_ppm });
        for held in self.held.values() {
            // Its times were set, or its last name was taken: no writer, but its access time is to
            // move, or its space to be given back.
            let changed = held.lease.look().map_or(true, |now| now != held.seen);
            if changed || now_ns - held.since_ns > AGE_NS {
                self.lease_thread.release(held.lease.fd());
            }
        }
        self.replicas.trim(false);
        self.count(&agent.controller);
        agent.publish(now_ns, end(&self.run));
    }

    /// Takes over the controller's figures.
    fn count(&mut self, controller: &ReplicationController) {
        self.run.summary = controller.summary();
        let blocks: u64 = self.run.summary.replicas.iter().sum();
        self.run.bytes_max = self.run.bytes_max.max(blocks * BLOCK_BYTES);
    }

    /// What came of it all. Completes the log.
    pub(super) fn finish(mut self, agent: Agent<ReplicationController>) -> ReplicationReport {
        self.count(&agent.controller);
        let mut run = ReplicationReport {
            lost: agent.session.lost(),
            agent: agent.cpu(),
            ..self.run
        };
        run.log = agent.finish(&end(&run));
        run
    }
}
