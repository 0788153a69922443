//! The thread that drains the rings while the program runs, and writes the trace.
//!
//! Its pause depends on how many records it finds, and is never longer than [`PAUSE_MAX`], which is
//! 200 wake-ups a second when little comes. Where other work keeps it from a CPU, what it finds is
//! up to seconds old: then it reads all rings step by step in time ([`Horizon`]), so that events
//! stay in order. If writing fails, the session is closed, which turns every hook into a plain
//! call, and the thread ends.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use hither_sys::pid_namespace::PidNamespace;
use hither_sys::process::{self, ancestors, monotonic_ns};
use hither_sys::process_tree::Transferred;
use hither_sys::record::{IN_KERNEL, Op, Record};
use hither_sys::session::{Lost, RingInfo, Session};
use hither_trace::schema::{
    AccessRow, Losses, MemoryNode, Meta, ObjectRow, ProcessRow, RowOp, Seen, ThreadRow,
};
use hither_trace::{Error, Result, Writer};
use rustc_hash::FxHashMap;

use super::intern::{Definitions, Image, Numbers, ObjectDefinition, Pid, Stream, Streams};
use super::not_recorded::Execs;
use super::order::{HOLD_NS, Horizon, ReorderWindow, Timed};
use super::running::running;
use super::summary::RecordingSummary;
use super::{machine, sites};
use crate::symbolise::Symboliser;

const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// The records of a drain that the pause aims at: 100 KiB of memory.
const RECORDS_PER_DRAIN: usize = 2048;

/// How often the rings of threads that died without reporting it are looked for.
const REAP_PERIOD_NS: u64 = 100_000_000;

/// An access on its way to the trace.
#[derive(Debug)]
struct Event {
    time_ns: u64,
    signature: u64,
    object: u64,
    offset: u64,
    length: u64,
    stream: u32,
    node: u32,
    op: RowOp,
    in_kernel: bool,
}

impl Timed for Event {
    fn key(&self) -> (u64, u32) {
        (self.time_ns, self.stream)
    }
}

/// What is known about a recording before it starts.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) command: Vec<String>,
    pub(crate) wall: SystemTime,
    pub(crate) time_ns: u64,
    nodes: Vec<MemoryNode>,
    /// The limit of its memory cgroup.
    memory_limit_bytes: Option<u64>,
    /// The processes above the recorder.
    ancestors: Vec<u32>,
}

impl Start {
    pub(crate) fn now(command: Vec<String>) -> Self {
        Start {
            command,
            wall: SystemTime::now(),
            time_ns: monotonic_ns(),
            nodes: machine::nodes(),
            memory_limit_bytes: machine::memory_limit_bytes(),
            ancestors: ancestors(),
        }
    }

    /// Whether a process becomes the parent of those that are orphaned below the recorder.
    fn is_above(&self, pid: u32) -> bool {
        pid != std::process::id() && (pid == 1 || self.ancestors.contains(&pid))
    }
}

/// Turns records into a trace.
#[derive(Debug)]
pub(crate) struct Collector {
    writer: Writer,
    start: Start,
    node_of_cpu: Vec<u32>,
    window: ReorderWindow<Event>,
    streams: Streams,
    definitions: Definitions,
    execs: Execs,
    tables: Tables,
    summary: RecordingSummary,
    /// Bytes that recorded calls read in each program image.
    read_bytes: Vec<u64>,
    /// Program images with an io_uring.
    io_urings: BTreeSet<u32>,
    /// What is mapped of each file, from the lowest byte to the highest.
    mapped: FxHashMap<u64, Range<u64>>,
    /// The first failure to write; nothing is written after it.
    failure: Option<Error>,
}

/// The numbers that rows use, in order of the rows.
#[derive(Debug, Default)]
struct Tables {
    sites: Numbers<u64>,
    objects: Numbers<u64>,
    /// Time of the first and last access to each object.
    seen_ns: Vec<(u64, u64)>,
    /// Indices of program images.
    processes: Numbers<u32>,
    threads: Numbers<Stream>,
}

/// The result of a recording.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) summary: RecordingSummary,
    pub(crate) losses: Losses,
    pub(crate) seen: Seen,
}

/// What is known once the program has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) lost: Lost,
    pub(crate) ran: Duration,
    /// By the kernel's account of the program and the children that it had waited for.
    pub(crate) transferred: Option<Transferred>,
    /// What the library saw being read of pipes and the like.
    pub(crate) other_read_bytes: u64,
    /// Other processes that have the library at work.
    pub(crate) attached: Vec<u32>,
}

impl Collector {
    pub(crate) fn new(writer: Writer, start: Start) -> Self {
        let mut tables = Tables::default();
        // Site 0 is the unknown one, whose signature is 0.
        tables.sites.number(0);
        Collector {
            writer,
            node_of_cpu: machine::node_of_cpu(&start.nodes),
            start,
            window: ReorderWindow::new(),
            streams: Streams::default(),
            definitions: Definitions::default(),
            execs: Execs::default(),
            tables,
            summary: RecordingSummary::default(),
            read_bytes: Vec::new(),
            io_urings: BTreeSet::new(),
            mapped: FxHashMap::default(),
            failure: None,
        }
    }

    /// The command was started, as process `pid`.
    pub(crate) fn command_started(&mut self, pid: u32, program: &[u8]) {
        let pid = Pid::own(pid);
        self.execs
            .announced(None, pid, self.start.time_ns, program, false);
    }

    /// Drains the rings until `ended` is set, and then once more.
    pub(crate) fn collect(&mut self, session: &mut Session, ended: &AtomicBool) -> Result<()> {
        // Among many threads that run, an equal share of a CPU may be too little.
        process::raise_priority();
        let mut pause = PAUSE_MIN;
        let mut horizon = Horizon::new(self.start.time_ns);
        let mut reaped_ns = monotonic_ns();
        loop {
            // Read before the drain, so that the last drain finds all that the program pushed.
            let ended = ended.load(Ordering::Acquire);
            let drained_ns = monotonic_ns();
            let until_ns = horizon.advance(drained_ns);
            let mut records = session.drain_while(|ring, record| {
                let time_ns = time_of(&record);
                self.record(ring, record);
                time_ns <= until_ns
            });
            horizon.took(records);
            let is_behind = until_ns < u64::MAX;
            if drained_ns - reaped_ns >= REAP_PERIOD_NS && !is_behind {
                records += session.reap(|ring, record| self.record(ring, record));
                reaped_ns = drained_ns;
            }
            let last = ended && !is_behind;
            if last {
                session.close();
                self.release(u64::MAX);
            } else if records > 0 {
                self.release(until_ns.min(drained_ns.saturating_sub(HOLD_NS)));
            }
            if let Some(failure) = self.failure.take() {
                session.close();
                return Err(failure);
            }
            if last {
                return Ok(());
            }
            if is_behind {
                continue;
            }
            if records > RECORDS_PER_DRAIN {
                pause = (pause / 2).max(PAUSE_MIN);
            } else if records < RECORDS_PER_DRAIN / 4 {
                pause = (pause * 2).min(PAUSE_MAX);
            }
            thread::park_timeout(pause);
        }
    }

    fn record(&mut self, ring: &RingInfo, record: Record<'_>) {
        match record {
            Record::Access {
                op,
                flags,
                cpu,
                time_ns,
                signature,
                object,
                offset,
                length,
            } => {
                if op == Op::Map {
                    self.mapped(object, offset, length);
                }
                self.window.push(Event {
                    time_ns,
                    signature,
                    object,
                    offset,
                    length,
                    stream: self.streams.of(ring),
                    node: self.node_of_cpu.get(usize::from(cpu)).copied().unwrap_or(0),
                    op: row_op(op),
                    in_kernel: flags & IN_KERNEL != 0,
                });
                if self.window.is_full() {
                    self.release(0);
                }
            }
            Record::Object { .. } | Record::Site { .. } | Record::Module { .. } => {
                let streams = &mut self.streams;
                self.definitions
                    .on_record(&record, || streams.maps_of(ring));
            }
            Record::Process {
                forked, time_ns, ..
            } => {
                let image = self.streams.on_record(ring, &record);
                if let Some(image) = image.filter(|_| !forked) {
                    self.execs.started(Pid::of(ring), time_ns, image);
                }
            }
            Record::Exec {
                pid,
                time_ns,
                path,
                hidden,
            } => {
                let by = self.streams.of(ring);
                let by = Some(self.streams.stream(by).image);
                let pid = Pid {
                    pid,
                    ..Pid::of(ring)
                };
                self.execs.announced(by, pid, time_ns, path, hidden);
            }
            Record::ExecFailed { pid } => self.execs.failed(Pid {
                pid,
                ..Pid::of(ring)
            }),
            Record::IoUring => {
                let by = self.streams.of(ring);
                self.io_urings.insert(self.streams.stream(by).image);
            }
            // The recording library reports no regions and no constructs.
            Record::Region { .. }
            | Record::RegionEnd { .. }
            | Record::Bound { .. }
            | Record::Construct { .. }
            | Record::At { .. } => {}
        }
    }

    /// Writes the events up to `until_ns`, unless writing has failed.
    fn release(&mut self, until_ns: u64) {
        let Collector {
            window,
            writer,
            tables,
            streams,
            summary,
            start,
            read_bytes,
            failure,
            definitions,
            ..
        } = self;
        for mut event in window.release(until_ns) {
            if failure.is_none() {
                event.signature = definitions.site_of(event.signature);
                let row = tables.row(&event, streams, start.time_ns);
                summary.add(&row);
                if row.op == RowOp::Read {
                    let image = streams.stream(event.stream).image as usize;
                    if read_bytes.len() <= image {
                        read_bytes.resize(image + 1, 0);
                    }
                    read_bytes[image] = read_bytes[image].saturating_add(row.length);
                }
                *failure = writer.push(&row).err();
            }
        }
    }

    /// Names the call sites and completes the trace.
    pub(crate) fn finish(mut self, ended: Ended) -> Result<Finished> {
        let Ended { lost, ran, .. } = ended;
        // Programs that made no access are processes of the trace too.
        for image in 0..self.streams.images().len() as u32 {
            self.tables.processes.number(image);
        }
        let running = running(self.streams.images(), &ended.attached);
        let seen = self.seen(&ended, &running);
        let losses = Losses {
            dropped_events: lost.unrecorded(),
            dropped_bytes: lost.unrecorded_bytes(),
            dropped_ring_full: lost.events,
            dropped_no_ring: lost.no_ring,
            dropped_nested: lost.nested,
            damaged_records: lost.damaged,
            not_recorded: self.execs.finish(),
        };
        let sites = sites::rows(
            self.tables.sites.keys(),
            &self.definitions,
            &Symboliser::new(self.start.wall),
        );
        let objects = self.tables.object_rows(&mut self.definitions);
        let summary = RecordingSummary {
            objects: objects.len(),
            sites: sites.len() - 1,
            processes: self.streams.images().len(),
            threads: self.tables.threads.keys().len(),
            out_of_order: self.window.late(),
            ..self.summary
        };
        let mut meta = Meta {
            started_unix_ns: self
                .start
                .wall
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |d| d.as_nanos() as u64),
            clock: "CLOCK_MONOTONIC".to_owned(),
            command: self.start.command,
            cwd: std::env::current_dir()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            machine: machine::machine(),
            nodes: self.start.nodes,
            processes: self.tables.process_rows(&self.streams),
            threads: self.tables.thread_rows(),
            losses: losses.clone(),
            seen: Some(seen),
            ..Meta::default()
        };
        for (name, count) in [
            ("out_of_order", summary.out_of_order),
            ("ran_ns", ran.as_nanos() as u64),
        ] {
            meta.more.insert(name.to_owned(), count.into());
        }
        self.writer.finish(&objects, &sites, &meta)?;
        Ok(Finished {
            summary,
            losses,
            seen,
        })
    }

    /// How much of what the program read is in the trace. Processes that still run are asked.
    fn seen(&self, ended: &Ended, running: &BTreeSet<u32>) -> Seen {
        let kernel = ended.transferred.map(|mut all| {
            let others = running.iter().filter_map(|&pid| Transferred::by(pid));
            others.for_each(|other| all.add(other));
            all
        });
        // Who was orphaned and has ended is in no account that is known.
        let counted = |&(image, _): &(usize, &u64)| {
            let Image { pid, parent, .. } = &self.streams.images()[image];
            let is_orphan = pid.namespace.is_own() && self.start.is_above(*parent);
            !is_orphan || running.contains(&pid.pid)
        };
        let recorded = self.read_bytes.iter().enumerate().filter(counted);
        let seen = recorded.fold(ended.other_read_bytes, |sum, (_, &bytes)| {
            sum.saturating_add(bytes)
        });
        let mapped = self.mapped_bytes();
        Seen {
            recorded_bytes: self.summary.bytes_read,
            other_bytes: ended.other_read_bytes,
            // Less than was seen: processes that nobody waited for are not in its count.
            unseen_bytes: kernel.and_then(|all| all.called_bytes.checked_sub(seen)),
            storage_bytes: kernel.map(|all| all.read_bytes),
            left_running: running.len() as u64,
            io_uring_processes: self.io_urings.len() as u64,
            mapped_files: mapped.len() as u64,
            mapped_bytes: mapped.into_iter().fold(0, u64::saturating_add),
            memory_limit_bytes: self.start.memory_limit_bytes,
        }
    }

    /// Takes a mapping of a file into account.
    fn mapped(&mut self, object: u64, offset: u64, length: u64) {
        let range = offset..offset.saturating_add(length);
        let whole = self.mapped.entry(object).or_insert(range.clone());
        *whole = whole.start.min(range.start)..whole.end.max(range.end);
    }

    /// The bytes of each file that was mapped, as far as the file went when it was first used, or
    /// goes now. Shared memory is none.
    fn mapped_bytes(&self) -> Vec<u64> {
        let of_file = |(object, range): (&u64, &Range<u64>)| {
            let file = self.definitions.object(*object)?;
            if file.path.starts_with(b"/dev/shm/") {
                return None;
            }
            let path = std::ffi::OsStr::from_bytes(&file.path);
            let now = std::fs::metadata(path).map_or(0, |file| file.len());
            let size = file.size.max(now);
            Some(range.end.min(size).saturating_sub(range.start))
        };
        let bytes = self.mapped.iter().filter_map(of_file);
        bytes.filter(|&bytes| bytes > 0).collect()
    }
}

impl Tables {
    fn row(&mut self, event: &Event, streams: &Streams, start_ns: u64) -> AccessRow {
        let time_ns = event.time_ns.saturating_sub(start_ns);
        let stream = streams.stream(event.stream);
        let object = self.objects.number(event.object);
        match self.seen_ns.get_mut(object as usize) {
            Some((first_ns, last_ns)) => {
                *first_ns = time_ns.min(*first_ns);
                *last_ns = time_ns.max(*last_ns);
            }
            None => self.seen_ns.push((time_ns, time_ns)),
        }
        AccessRow {
            time_ns,
            process: self.processes.number(stream.image),
            thread: self.threads.number(stream),
            node: event.node,
            site: self.sites.number(event.signature),
            object,
            op: event.op,
            in_kernel: event.in_kernel,
            offset: event.offset,
            length: event.length,
            count: 1,
        }
    }

    fn object_rows(&self, definitions: &mut Definitions) -> Vec<ObjectRow> {
        let row = |(key, &(first_seen_ns, last_seen_ns)): (&u64, &(u64, u64))| {
            let ObjectDefinition {
                device,
                inode,
                size,
                path,
            } = definitions.objects.remove(key).unwrap_or_default();
            ObjectRow {
                path,
                device,
                inode,
                size,
                first_seen_ns,
                last_seen_ns,
                ..ObjectRow::default()
            }
        };
        self.objects
            .keys()
            .iter()
            .zip(&self.seen_ns)
            .map(row)
            .collect()
    }

    fn process_rows(&self, streams: &Streams) -> Vec<ProcessRow> {
        let mut namespaces = Numbers::default();
        namespaces.number(PidNamespace::OWN);
        let row = |(process, &image): (u32, &u32)| {
            let image = &streams.images()[image as usize];
            let args = image.args.strip_suffix(b"\0").unwrap_or(&image.args);
            let args = args
                .split(|&byte| byte == 0)
                .map(|arg| String::from_utf8_lossy(arg).into_owned());
            ProcessRow {
                process,
                pid: image.pid.pid,
                parent_pid: image.parent,
                pid_namespace: namespaces.number(image.pid.namespace),
                exe: String::from_utf8_lossy(&image.exe).into_owned(),
                command: args.collect(),
            }
        };
        (0..).zip(self.processes.keys()).map(row).collect()
    }

    fn thread_rows(&mut self) -> Vec<ThreadRow> {
        let Tables {
            threads, processes, ..
        } = self;
        let row = |(thread, stream): (u32, &Stream)| ThreadRow {
            thread,
            process: processes.number(stream.image),
            tid: stream.tid,
        };
        (0..).zip(threads.keys()).map(row).collect()
    }
}

/// When an access was; 0 of other records, which need no order.
fn time_of(record: &Record<'_>) -> u64 {
    match record {
        Record::Access { time_ns, .. } => *time_ns,
        _ => 0,
    }
}

fn row_op(op: Op) -> RowOp {
    match op {
        Op::Read => RowOp::Read,
        Op::Write => RowOp::Write,
        Op::Map => RowOp::Map,
        Op::Unmap => RowOp::Unmap,
        Op::Truncate => RowOp::Truncate,
    }
}

#[cfg(test)]
mod tests;
