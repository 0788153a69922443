//! The recorder: a sink of the loop, which writes the trace.
//!
//! Its pause depends on how many records it finds, and is never longer than [`PAUSE_MAX`], which is
//! 200 wake-ups a second when little comes. It holds events back for a while and sorts them
//! ([`ReorderWindow`]). If writing fails, it goes on and counts what the trace lacks.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hither_ids::{FileKey, Pid};
use hither_kernel::page_bytes;
use hither_kernel::page_cache::{PageCache as _, PageCacheError, ThisPageCache};
use hither_kernel::process::{self, monotonic_ns};
use hither_kernel::process_tree::Transferred;
use hither_session::record::{IN_CALL, IN_KERNEL, Op, Record, UNKNOWN_SITE};
use hither_session::session::Lost;
use hither_trace::schema::{AccessRow, Cut, Losses, Meta, RowOp, Seen, Touches};
use hither_trace::{Error, Kept, Writer};
use rustc_hash::{FxHashMap, FxHashSet};

use super::beside::{Announced, Beside, Known, NamedFile};
use super::checkpoint::{self, Checkpoints};
use super::cut::{self, TraceTables};
use super::intern::{Definitions, ObjectDefinition};
use super::mapped::{MappedTouches, Touch};
use super::not_recorded::{Execs, makes_own_calls};
use super::order::{HOLD_NS, RELEASE_PERIOD_NS, ReorderWindow};
use super::running::running;
use super::start::{SeenBy, Start};
use super::streams::{Image, NamespacedPid, Streams};
use super::summary::RecordingSummary;
use super::tables::{Event, Tables};
use super::{machine, sites};
use crate::event_loop::{Drained, Sink};
use crate::kernel_source::{is_kernels, is_kernels_image};
use crate::mechanism::{Origin, RunState};
use crate::symbolise::Symboliser;

/// The recorder was woken no later than it says this share of the times.
const LATE_SHARE: f64 = 0.95;

const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// The records of a drain that the pause aims at: 100 KiB of memory.
const RECORDS_PER_DRAIN: usize = 2048;

/// How long a mapping waits for the definition of its file, which another thread may have reported.
/// After that it was lost.
const DEFINITION_WAIT_NS: u64 = 1_000_000_000;

/// Turns records into a trace.
#[derive(Debug)]
pub(crate) struct Collector {
    writer: Writer,
    start: Start,
    node_of_cpu: Vec<u32>,
    window: ReorderWindow<Event>,
    /// When events were last released.
    released_ns: u64,
    /// How long to wait for more.
    pause: Duration,
    execs: Execs,
    tables: Tables,
    checkpoints: Checkpoints,
    /// What was recorded, also after writing had failed.
    summary: RecordingSummary,
    /// Bytes that recorded calls read in each program image.
    read_bytes: Vec<u64>,
    /// Accesses, and those of them whose call site is not known.
    accesses: u64,
    unknown_sites: u64,
    /// Program images with an io_uring.
    io_urings: BTreeSet<u32>,
    /// Program images, and the files of each of them that bypass the page cache; and the bytes
    /// that were read so.
    direct: FxHashSet<(u32, u64)>,
    direct_bytes: u64,
    /// What is mapped of each file, from the lowest byte to the highest.
    mapped: FxHashMap<FileKey, Range<u64>>,
    /// What the kernel reports beside the library, if it does.
    beside: Option<Beside>,
    /// The touches of what is mapped, if these are recorded.
    touches: Option<MappedTouches>,
    /// Mappings that [`MappedTouches`] has yet to learn of: time, process, file, call site.
    mappings: Vec<(u64, Pid, FileKey, u64)>,
    /// The first failure to write; nothing is written after it.
    failure: Option<Error>,
}

/// The result of a recording.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) summary: RecordingSummary,
    pub(crate) losses: Losses,
    pub(crate) seen: Seen,
    /// Where the trace ends and why, if writing failed.
    pub(crate) cut: Option<Cut>,
    pub(crate) touches_refused: Option<PageCacheError>,
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
    pub(crate) attached: Vec<Pid>,
}

impl Collector {
    /// The touches of mapped files may be sampled.
    pub(crate) fn new(writer: Writer, start: Start, samples_touches: bool) -> Self {
        let mut tables = Tables::of(start.arguments);
        // Site 0 is the unknown one, whose signature is 0.
        tables.sites.number(0);
        Collector {
            writer,
            node_of_cpu: machine::node_of_cpu(&start.nodes),
            beside: (start.seen_by == SeenBy::Both).then(|| Beside::new(samples_touches)),
            start,
            window: ReorderWindow::new(),
            released_ns: 0,
            pause: PAUSE_MIN,
            execs: Execs::default(),
            tables,
            checkpoints: Checkpoints::default(),
            summary: RecordingSummary::default(),
            read_bytes: Vec::new(),
            accesses: 0,
            unknown_sites: 0,
            io_urings: BTreeSet::new(),
            direct: FxHashSet::default(),
            direct_bytes: 0,
            mapped: FxHashMap::default(),
            touches: None,
            mappings: Vec::new(),
            failure: None,
        }
    }

    /// The command was started, as process `pid`.
    pub(crate) fn command_started(&mut self, pid: Pid, program: &[u8]) {
        let pid = NamespacedPid::own(pid);
        self.execs
            .announced(None, pid, self.start.time_ns, program, false);
    }

    /// The kernel reports, but perhaps no touches of mapped files.
    pub(super) fn seen_by_kernel(&mut self, lacks_touches: bool) {
        self.start.lacks_touches = lacks_touches;
    }

    /// Records the touches of mapped files, too.
    pub(super) fn record_touches(&mut self, touches: MappedTouches) {
        self.touches = Some(touches);
    }

    /// Takes the touches of mapped files up to a time at which the rings had not been drained yet:
    /// what was mapped before that is known. Returns how many events the kernel had.
    fn touches(&mut self, run: &mut RunState, until_ns: u64) -> usize {
        let Collector {
            touches: Some(touches),
            mappings,
            window,
            node_of_cpu,
            ..
        } = self
        else {
            return 0;
        };
        let RunState {
            streams,
            definitions,
            ..
        } = run;
        mappings.retain(
            |&(time_ns, pid, object, signature)| match definitions.object(object) {
                Some(file) => {
                    let path = Path::new(OsStr::from_bytes(&file.path));
                    let names = (object, signature);
                    touches.on_map(pid, names, file.id.inode(), (path, file.size));
                    false
                }
                None => until_ns.saturating_sub(time_ns) < DEFINITION_WAIT_NS,
            },
        );
        let events = touches.drain(until_ns, |touch| {
            let Touch {
                fault,
                object,
                signature,
                mapped_by,
                bytes,
            } = touch;
            if let Some(stream) = streams.of_thread(fault.pid, fault.tid, mapped_by) {
                let node = node_of_cpu.get(fault.cpu as usize);
                window.push(Event {
                    time_ns: fault.time_ns,
                    signature,
                    object,
                    offset: bytes.start,
                    length: bytes.end - bytes.start,
                    stream,
                    node: node.copied().unwrap_or(0),
                    op: RowOp::Fault,
                    in_kernel: false,
                    unknown_site: false,
                });
            }
        });
        touches.arm(monotonic_ns());
        events
    }

    /// Notes in the journal what was written, unless writing has failed. Without a time, it is the
    /// last checkpoint.
    fn checkpoint(&mut self, run: &RunState, now_ns: Option<u64>) {
        if self.failure.is_none() {
            let updated = self.checkpoints.update(
                now_ns.map(|now_ns| now_ns.saturating_sub(self.start.time_ns)),
                &mut self.writer,
                &mut self.tables,
                run,
            );
            self.failure = updated.err();
        }
    }

    /// Writes the events up to `until_ns`. If writing has failed, it only counts them.
    fn release(&mut self, streams: &Streams, definitions: &Definitions, until_ns: u64) {
        let Collector {
            window,
            writer,
            tables,
            summary,
            start,
            read_bytes,
            direct,
            direct_bytes,
            beside,
            failure,
            ..
        } = self;
        for mut event in window.release(until_ns) {
            event.signature = definitions.site_of(event.signature);
            if let Some(beside) = beside {
                event.object = beside.file_of(event.object);
            }
            if event.op == RowOp::Read {
                let number = streams.stream(event.stream).image;
                let image = number as usize;
                if read_bytes.len() <= image {
                    read_bytes.resize(image + 1, 0);
                }
                read_bytes[image] = read_bytes[image].saturating_add(event.length);
                if !direct.is_empty() && direct.contains(&(number, event.object.0)) {
                    *direct_bytes = direct_bytes.saturating_add(event.length);
                }
            }
            if failure.is_some() {
                summary.add(&AccessRow {
                    op: event.op,
                    length: event.length,
                    ..AccessRow::default()
                });
                continue;
            }
            let row = tables.row(&event, streams, start.time_ns);
            summary.add(&row);
            *failure = writer.push(&row).err();
        }
    }

    /// Names the call sites and completes the trace. If writing fails for lack of room, now or
    /// earlier, the trace is what fits.
    pub(crate) fn finish(mut self, run: &RunState, ended: &Ended) -> Result<Finished, Unfinished> {
        let mut failure = self.failure.take();
        let tables = self.trace_tables(run, ended);
        let touches_refused = self.touches.as_ref().and_then(MappedTouches::refused);
        let all = RecordingSummary {
            objects: tables.objects.len(),
            sites: tables.sites.len() - 1,
            processes: self.tables.processes.keys().len(),
            threads: self.tables.threads.keys().len(),
            out_of_order: self.window.late(),
            ..self.summary
        };
        let Collector { writer, .. } = self;
        let mut partial = writer.into_partial();
        loop {
            let completed = match &failure {
                None => {
                    let TraceTables {
                        objects,
                        sites,
                        meta,
                    } = &tables;
                    let completed = partial.complete(objects, sites, meta);
                    completed.map(|()| Finished {
                        summary: all,
                        losses: meta.losses.clone(),
                        seen: meta.seen.unwrap_or_default(),
                        cut: None,
                        touches_refused,
                    })
                }
                Some(reason) => {
                    let reason = cause(reason);
                    let describe = |kept: &Kept, tables: &mut TraceTables| {
                        describe_cut(kept, &all, &reason, ended.ran, &mut tables.meta);
                    };
                    let completed = tables.clone().complete_cut(&mut partial, describe);
                    completed.map(|recording| Finished {
                        summary: recording.summary,
                        losses: recording.losses,
                        seen: recording.seen,
                        cut: recording.cut,
                        touches_refused,
                    })
                }
            };
            match completed {
                Err(error) if error.is_no_space() && partial.give_room() => {
                    failure.get_or_insert(error);
                }
                Err(error) => {
                    let left = partial.left_behind().map(Path::to_owned);
                    let source = failure.unwrap_or(error);
                    return Err(Unfinished { source, left });
                }
                Ok(finished) => return Ok(finished),
            }
        }
    }

    /// The tables of the whole recording.
    fn trace_tables(&mut self, run: &RunState, ended: &Ended) -> TraceTables {
        let RunState {
            streams,
            definitions,
            ..
        } = run;
        // Programs that made no access are processes of the trace too, but for forks of which no
        // more is known than that they touched their own code.
        let is_both = self.start.seen_by == SeenBy::Both;
        for (number, image) in (0..).zip(streams.images()) {
            if !(is_both && image.forked && is_kernels_image(image.number)) {
                self.tables.processes.number(number);
            }
        }
        let running = if self.start.seen_by == SeenBy::Kernel {
            // Programs that ran already go on, as they should.
            BTreeSet::new()
        } else {
            running(streams.images(), &ended.attached)
        };
        let mut meta = Meta {
            processes: self.tables.process_rows(streams, 0),
            threads: self.tables.thread_rows(0),
            losses: Losses {
                not_recorded: std::mem::take(&mut self.execs).finish(),
                ..checkpoint::losses(&ended.lost)
            },
            seen: Some(self.seen(run, ended, &running)),
            ..self.start.meta()
        };
        for (name, count) in [
            ("out_of_order", self.window.late()),
            ("ran_ns", ended.ran.as_nanos() as u64),
        ] {
            meta.more.insert(name.to_owned(), count.into());
        }
        let objects = 0..self.tables.objects.keys().len() as u32;
        TraceTables {
            objects: objects
                .map(|number| self.tables.object_row(number, definitions))
                .collect(),
            sites: sites::rows(
                self.tables.sites.keys(),
                definitions,
                &Symboliser::new(self.start.wall),
            ),
            meta,
        }
    }

    /// How much of what the program read is in the trace. Processes that still run are asked.
    fn seen(&self, run: &RunState, ended: &Ended, running: &BTreeSet<Pid>) -> Seen {
        let kernel = ended.transferred.map(|mut all| {
            let others = running.iter().filter_map(|&pid| Transferred::by(pid));
            others.for_each(|other| all.add(other));
            all
        });
        // Who was orphaned and has ended is in no account that is known.
        let counted = |&(image, _): &(usize, &u64)| {
            let Image { pid, parent, .. } = &run.streams.images()[image];
            let is_orphan = pid.namespace.is_own() && self.start.is_above(*parent);
            !is_orphan || running.contains(&pid.pid)
        };
        let recorded = self.read_bytes.iter().enumerate().filter(counted);
        let seen = recorded.fold(ended.other_read_bytes, |sum, (_, &bytes)| {
            sum.saturating_add(bytes)
        });
        let beside = self.beside.as_ref();
        let by_calls = seen.saturating_sub(beside.map_or(0, Beside::read_with_library_bytes));
        let mapped = self.mapped_files(&run.definitions);
        let touches = self.touches.as_ref().map(|touches| {
            let unseen = mapped.iter().filter(|file| !touches.sees(file.object));
            let unseen = unseen.map(|file| file.bytes);
            Touches {
                unseen_files: unseen.clone().count() as u64,
                unseen_bytes: unseen.fold(0, u64::saturating_add),
                ..touches.summary()
            }
        });
        let devices = run.definitions.devices().into_iter();
        let readahead = devices.map(|device| ThisPageCache.readahead_bytes(device));
        Seen {
            recorded_bytes: self.summary.bytes_read,
            direct_bytes: self.direct_bytes,
            other_bytes: ended.other_read_bytes,
            // Less than was seen: processes that nobody waited for are not in its count.
            unseen_bytes: match self.start.seen_by {
                SeenBy::Kernel => Some(ended.lost.bytes),
                SeenBy::Library => kernel.and_then(|all| all.called_bytes.checked_sub(seen)),
                // Whole pages may be more than what calls have read of them.
                SeenBy::Both => kernel.map(|all| all.called_bytes.saturating_sub(by_calls)),
            },
            called_bytes: kernel.map(|all| all.called_bytes),
            storage_bytes: kernel.map(|all| all.read_bytes),
            left_running: running.len() as u64,
            io_uring_processes: match self.start.seen_by {
                // Who sees touches sees these, too.
                SeenBy::Both if !self.start.lacks_touches => 0,
                _ => self.io_urings.len() as u64,
            },
            mapped_files: mapped.len() as u64,
            mapped_bytes: mapped
                .iter()
                .fold(0, |sum, file| sum.saturating_add(file.bytes)),
            mapped_cached_bytes: mapped.iter().map(|file| file.cached).sum(),
            touches,
            memory_limit_bytes: self.start.memory_left.limit_bytes(),
            memory_left_bytes: self.start.memory_left.median_bytes(),
            recorder_late_ns: run.lateness.share_ns(LATE_SHARE),
            readahead_bytes: readahead.max().unwrap_or(0),
            kernel_events: self.start.seen_by == SeenBy::Kernel,
            kernel_alone_bytes: self.beside.as_ref().map_or(0, Beside::read_bytes),
            touches_unseen: self.start.lacks_touches,
            accesses: self.accesses,
            unknown_sites: self.unknown_sites,
        }
    }

    /// Takes what the kernel alone has reported.
    fn settle(&mut self, run: &RunState, drained: &Drained) {
        let RunState {
            streams,
            definitions,
            ..
        } = run;
        // It goes to `self`.
        let Some(mut beside) = self.beside.take() else {
            return;
        };
        let known = Known {
            streams,
            definitions,
        };
        let alone = beside.settle(&known, drained);
        self.beside = Some(beside);
        for event in alone {
            self.push(event, streams, definitions);
        }
    }

    /// An access comes to the others.
    fn push(&mut self, event: Event, streams: &Streams, definitions: &Definitions) {
        self.accesses += 1;
        self.unknown_sites += u64::from(event.unknown_site);
        if event.op == RowOp::Map {
            self.mapped(event.object, event.offset, event.length);
        }
        self.window.push(event);
        if self.window.is_full() {
            self.release(streams, definitions, 0);
        }
    }

    /// A process was forked: its descriptors are those of its parent.
    fn inherits_direct(&mut self, streams: &Streams, image: u32) {
        if self.direct.is_empty() {
            return;
        }
        let Image { pid, parent, .. } = streams.images()[image as usize];
        let Some(parent) = streams.youngest(NamespacedPid { pid: parent, ..pid }) else {
            return;
        };
        let of_parent = self.direct.iter().filter(|&&(by, _)| by == parent);
        let inherited: Vec<u64> = of_parent.map(|&(_, object)| object).collect();
        let its = inherited.into_iter().map(|object| (image, object));
        self.direct.extend(its);
    }

    /// Takes a mapping of a file into account.
    fn mapped(&mut self, object: FileKey, offset: u64, length: u64) {
        let range = offset..offset.saturating_add(length);
        let whole = self.mapped.entry(object).or_insert(range.clone());
        *whole = whole.start.min(range.start)..whole.end.max(range.end);
    }

    /// The files that were mapped.
    fn mapped_files(&self, definitions: &Definitions) -> Vec<MappedBytes> {
        let of_file = |(&object, range): (&FileKey, &Range<u64>)| {
            MappedBytes::of(object, definitions.object(object)?, range)
        };
        self.mapped.iter().filter_map(of_file).collect()
    }
}

impl Sink for Collector {
    fn start(&mut self) {
        // Among many threads that run, an equal share of a CPU may be too little.
        process::raise_priority();
        self.released_ns = monotonic_ns();
    }

    fn on_record(&mut self, origin: &mut Origin<'_>, record: &Record<'_>) {
        let Origin {
            ring,
            streams,
            definitions,
            new_image,
        } = origin;
        match *record {
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
                let Some(row_op) = row_op(op) else {
                    return;
                };
                let by_kernel = is_kernels(ring);
                // What a program asked for, not what the kernel has mapped around a touch.
                let is_mapping = op == Op::Map && !by_kernel;
                if is_mapping && self.touches.is_some() && ring.namespace.is_own() {
                    self.mappings.push((time_ns, ring.pid, object, signature));
                }
                let event = Event {
                    time_ns,
                    signature,
                    object,
                    offset,
                    length,
                    stream: streams.of(ring),
                    node: self.node_of_cpu.get(usize::from(cpu)).copied().unwrap_or(0),
                    op: row_op,
                    in_kernel: flags & IN_KERNEL != 0,
                    unknown_site: flags & UNKNOWN_SITE != 0,
                };
                if let Some(beside) = &mut self.beside {
                    if by_kernel {
                        let is_in_call = flags & IN_CALL != 0;
                        return beside.by_kernel(streams, event, is_in_call);
                    }
                    if is_mapping {
                        beside.is_mapped(object);
                    }
                    let image = streams.stream(event.stream).image;
                    if !beside.is_librarys(image, row_op) {
                        return;
                    }
                }
                self.push(event, streams, definitions);
            }
            Record::Object {
                object, id, path, ..
            } => {
                let named = NamedFile {
                    object,
                    inode: id.inode(),
                    path,
                    by_kernel: is_kernels(ring),
                };
                let beside = self.beside.as_mut();
                if beside.is_none_or(|of| of.define(&named)) {
                    definitions.on_record(record, || streams.maps_of(ring));
                }
            }
            Record::Process {
                forked,
                time_ns,
                exe,
                ..
            } => {
                if let Some(beside) = &mut self.beside
                    && !is_kernels(ring)
                    && ring.namespace.is_own()
                {
                    if makes_own_calls(ring.pid, exe) {
                        let by = streams.of(ring);
                        beside.makes_own_calls(streams.stream(by).image);
                    } else {
                        beside.announced.push(Announced {
                            process: ring.pid,
                            time_ns,
                        });
                    }
                }
                match *new_image {
                    Some(image) if forked => self.inherits_direct(streams, image),
                    Some(image) => self.execs.started(NamespacedPid::of(ring), time_ns, image),
                    None => {}
                }
            }
            Record::Exec {
                pid,
                time_ns,
                path,
                hidden,
            } => {
                let by = streams.of(ring);
                let by = Some(streams.stream(by).image);
                let pid = NamespacedPid {
                    pid,
                    ..NamespacedPid::of(ring)
                };
                self.execs.announced(by, pid, time_ns, path, hidden);
            }
            Record::ExecFailed { pid } => self.execs.failed(NamespacedPid {
                pid,
                ..NamespacedPid::of(ring)
            }),
            Record::IoUring => {
                let by = streams.of(ring);
                self.io_urings.insert(streams.stream(by).image);
            }
            Record::Direct { object } => {
                let by = streams.of(ring);
                self.direct.insert((streams.stream(by).image, object.0));
            }
            // Sites and modules are defined by now. The rest says nothing of accesses to files.
            Record::Site { .. }
            | Record::Module { .. }
            | Record::Cached { .. }
            | Record::Region { .. }
            | Record::RegionEnd { .. }
            | Record::Bound { .. }
            | Record::Construct { .. }
            | Record::At { .. } => {}
        }
    }

    fn drained(&mut self, run: &mut RunState, drained: &Drained) -> usize {
        let Drained {
            at_ns,
            until_ns,
            last,
        } = *drained;
        let mut touches = 0;
        if until_ns.is_none() {
            self.start.memory_left.sample(at_ns);
            touches = self.touches(run, at_ns);
        }
        let beside = self.beside.as_mut();
        let announced = beside.map_or(Vec::new(), |beside| std::mem::take(&mut beside.announced));
        for Announced { process, time_ns } in announced {
            let sources = run.sources();
            sources.for_each(|source| source.leave_out_calls(process, time_ns));
        }
        self.settle(run, drained);
        if last {
            self.release(&run.streams, &run.definitions, u64::MAX);
        } else if at_ns.saturating_sub(self.released_ns) >= RELEASE_PERIOD_NS {
            let held_ns = at_ns.saturating_sub(HOLD_NS);
            let until_ns = until_ns.map_or(held_ns, |until_ns| until_ns.min(held_ns));
            self.release(&run.streams, &run.definitions, until_ns);
            self.released_ns = at_ns;
        }
        self.checkpoint(run, (!last).then_some(at_ns));
        touches
    }

    fn wait(&mut self, events: usize) -> Duration {
        if events > RECORDS_PER_DRAIN {
            self.pause = (self.pause / 2).max(PAUSE_MIN);
        } else if events < RECORDS_PER_DRAIN / 4 {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        self.pause
    }
}

/// What is known of a file that was mapped, in bytes.
struct MappedBytes {
    object: FileKey,
    /// From the first to the last byte that was mapped.
    bytes: u64,
    /// What of these is in the page cache now. `None`: not known, for example if the file is gone.
    cached: Option<u64>,
}

impl MappedBytes {
    /// `None` if nothing was mapped.
    fn of(object: FileKey, file: &ObjectDefinition, range: &Range<u64>) -> Option<MappedBytes> {
        let bytes = cut::mapped_bytes(&file.path, file.size, range)?;
        let opened = ThisPageCache.open(Path::new(OsStr::from_bytes(&file.path)), file.id);
        let cached = opened
            .ok()
            .and_then(|opened| opened.cached(range.start, bytes).ok());
        Some(MappedBytes {
            object,
            bytes,
            cached: cached.map(|cached| bytes.min(cached.pages * page_bytes())),
        })
    }
}

/// Says in the metadata of a trace that was cut what it lacks of `all` that was recorded.
fn describe_cut(kept: &Kept, all: &RecordingSummary, reason: &str, ran: Duration, meta: &mut Meta) {
    let accesses = all.accesses.saturating_sub(kept.accesses);
    if accesses == 0 {
        // The disk was full at the very end, and there was room after all.
        return;
    }
    if let Some(seen) = &mut meta.seen {
        seen.recorded_bytes = kept.bytes_read;
    }
    meta.cut = Some(Cut {
        time_ns: kept.last_ns,
        reason: reason.to_owned(),
        ran_ns: Some(ran.as_nanos() as u64),
        lost_accesses: Some(accesses),
        lost_read_bytes: Some(all.bytes_read.saturating_sub(kept.bytes_read)),
    });
}

/// Why writing failed, without the temporary path.
fn cause(error: &Error) -> String {
    match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::StorageFull => {
            "the disk was full".to_owned()
        }
        Error::Io { source, .. } => format!("writing failed: {source}"),
        other => format!("writing failed: {other}"),
    }
}

/// A trace that could not be completed.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) source: Error,
    /// The folder that it can be recovered from.
    pub(crate) left: Option<PathBuf>,
}

/// What a trace calls it. None of what programs did not do.
fn row_op(op: Op) -> Option<RowOp> {
    Some(match op {
        Op::Read => RowOp::Read,
        Op::Write => RowOp::Write,
        Op::Map => RowOp::Map,
        Op::Unmap => RowOp::Unmap,
        Op::Truncate => RowOp::Truncate,
        Op::Fault => RowOp::Fault,
        Op::Insert | Op::UseByOthers | Op::Evict => return None,
    })
}

#[cfg(test)]
mod tests;
