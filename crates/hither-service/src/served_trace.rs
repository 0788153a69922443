//! What programs read through a node's mounts, as an ordinary trace: `hither sim` and `hither
//! advise` say of it what another policy or size of the cache would gain.
//!
//! The threads that serve reads pass these on by a bounded queue, and one thread writes them. A
//! read for which the queue has no room is counted as lost. What the kernel's page cache served
//! never reached the node, and is not in the trace. Each version of a file is an object of its own,
//! as it is in the cache.

use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use hither_analysis::format::{bytes, counted};
use hither_live::observe::machine;
use hither_node::key::FileKey;
use hither_node::volume::{OpenFile, ReadObserver};
use hither_trace::schema::{
    AccessRow, Losses, Meta, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow,
};
use hither_trace::{TableRows, Writer};
use rustc_hash::FxHashMap;

use crate::error::{Cause, Error, Place};
use crate::served::ServedVolume;

/// Reads that wait to be written.
const WAITING_MAX: usize = 1 << 16;

/// The shortest and the longest time between two row groups that come by time: a killed process
/// loses the reads of this time. In between it is a part of the trace's time, so that a long trace
/// does not have many small ones.
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_mins(1);
const PERIOD_PART: u32 = 64;

/// How long a thread id is taken for the same thread without a look.
const THREAD_AGE_MAX: Duration = Duration::from_secs(10);

/// What the writing thread is told.
enum Told {
    Read(Read),
    End,
}

/// A read.
struct Read {
    at: Instant,
    volume: usize,
    file: Arc<OpenFile>,
    range: Range<u64>,
    thread: u32,
}

/// Passes the reads of one volume on.
struct Observer {
    volume: usize,
    reads: SyncSender<Told>,
    lost: Arc<Lost>,
}

/// Reads that the trace lacks.
#[derive(Default)]
struct Lost {
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Lost {
    fn losses(&self) -> Losses {
        let reads = self.reads.load(Ordering::Relaxed);
        Losses {
            dropped_events: reads,
            dropped_bytes: self.bytes.load(Ordering::Relaxed),
            dropped_ring_full: reads,
            ..Losses::default()
        }
    }
}

impl ReadObserver for Observer {
    fn on_read(&self, file: &Arc<OpenFile>, range: Range<u64>, thread: u32) {
        let bytes = range.end - range.start;
        let read = Read {
            at: Instant::now(),
            volume: self.volume,
            file: Arc::clone(file),
            range,
            thread,
        };
        if self.reads.try_send(Told::Read(read)).is_err() {
            self.lost.reads.fetch_add(1, Ordering::Relaxed);
            self.lost.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// What is served, as a command: a trace is for others to read, and there may be passwords among
/// the arguments, in URLs and in options of sources.
fn command<'a>(
    arguments: impl Iterator<Item = OsString>,
    sources: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let words = arguments.take(2);
    let words = words.map(|word| word.to_string_lossy().into_owned());
    words.chain(sources.map(str::to_owned)).collect()
}

/// A trace that is being written. Without [`finish`](Self::finish) it stays unfinished, and
/// `hither recover` completes it.
pub(crate) struct ServedTrace {
    folder: PathBuf,
    reads: SyncSender<Told>,
    writer: JoinHandle<hither_trace::Result<String>>,
}

impl ServedTrace {
    /// Begins the trace `folder` of these volumes.
    pub(crate) fn start(folder: &Path, volumes: &[ServedVolume]) -> Result<ServedTrace, Cause> {
        // Commands that serve in the background leave the folder that they were started in.
        let folder = std::path::absolute(folder)?;
        let meta = Meta {
            started_unix_ns: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64),
            clock: "CLOCK_MONOTONIC".to_owned(),
            command: command(
                std::env::args_os(),
                volumes.iter().map(|volume| &*volume.source),
            ),
            cwd: std::env::current_dir().map_or_else(
                |_| String::new(),
                |folder| folder.to_string_lossy().into_owned(),
            ),
            machine: machine::machine(),
            nodes: machine::nodes(),
            ..Meta::default()
        };
        let mut writer = Writer::create(&folder, false)?;
        writer.keep_journal(&meta)?;
        let (reads, told) = sync_channel(WAITING_MAX);
        let lost = Arc::new(Lost::default());
        for (number, volume) in volumes.iter().enumerate() {
            volume.volume.observe_by(Arc::new(Observer {
                volume: number,
                reads: reads.clone(),
                lost: Arc::clone(&lost),
            }));
        }
        let place = |volume: &ServedVolume| match &volume.directory {
            Some(directory) => directory.as_os_str().as_bytes().to_vec(),
            None => volume.source.clone().into_bytes(),
        };
        let tables = Tables {
            places: volumes.iter().map(place).collect(),
            lost,
            start: Instant::now(),
            meta,
            noted: Noted::default(),
            objects: Vec::new(),
            numbers: FxHashMap::default(),
            threads: FxHashMap::default(),
            processes: FxHashMap::default(),
            read_bytes: 0,
            last_ns: 0,
        };
        let thread = std::thread::Builder::new().name("hither-trace".to_owned());
        let path = folder.clone();
        let writer = thread.spawn(move || {
            let written = write(writer, tables, &told);
            if let Err(error) = &written {
                tracing::error!(
                    "{}: the trace ends here, and `hither recover` can complete it: {error}",
                    path.display()
                );
            }
            written
        });
        let writer = writer.at("starting a thread")?;
        Ok(ServedTrace {
            folder,
            reads,
            writer,
        })
    }

    /// Completes the trace. Returns a line about it.
    pub(crate) fn finish(self) -> Result<String, Error> {
        // It fails if the thread has ended, after an error.
        let _ = self.reads.send(Told::End);
        let written = self.writer.join();
        let place = self.folder.display();
        let written = written.map_err(|_| Cause::from("its thread panicked"));
        let written = written.and_then(|written| Ok(written?));
        let line = written.at(format_args!("{place}: the trace is not complete"))?;
        Ok(format!("{place}: {line}"))
    }
}

/// Writes what it is told until it is told to end.
fn write(
    mut writer: Writer,
    mut tables: Tables,
    told: &Receiver<Told>,
) -> hither_trace::Result<String> {
    let mut row_group = Instant::now();
    loop {
        match told.recv_timeout(PERIOD_MIN) {
            Ok(Told::Read(read)) => writer.push(&tables.row(&read))?,
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let period = (tables.start.elapsed() / PERIOD_PART).clamp(PERIOD_MIN, PERIOD_MAX);
        if row_group.elapsed() >= period {
            row_group = Instant::now();
            writer.end_row_group()?;
        }
        if writer.needs_checkpoint() {
            writer.checkpoint(&tables.new_rows())?;
        }
    }
    tables.meta.losses = tables.lost.losses();
    let line = tables.summary(writer.accesses());
    writer.finish(&tables.objects, &[SiteRow::unknown()], &tables.meta)?;
    Ok(line)
}

/// What the accesses of the trace name.
struct Tables {
    /// Where programs see each volume.
    places: Vec<Vec<u8>>,
    lost: Arc<Lost>,
    start: Instant,
    meta: Meta,
    noted: Noted,
    objects: Vec<ObjectRow>,
    numbers: FxHashMap<FileKey, u32>,
    /// The threads by their ids, of which the system makes new ones as old ones end.
    threads: FxHashMap<u32, Thread>,
    processes: FxHashMap<Identity, u32>,
    read_bytes: u64,
    last_ns: u64,
}

/// What the journal has of them.
#[derive(Default)]
struct Noted {
    objects: usize,
    processes: usize,
    threads: usize,
}

/// A thread that has read.
struct Thread {
    number: u32,
    process: u32,
    /// Of the thread itself. `None`: it had ended when it was looked at.
    identity: Option<Identity>,
    looked: Instant,
}

/// A thread or process of this machine: its id, and when it started, in clock ticks since the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    id: u32,
    start: u64,
}

impl Identity {
    /// By a `stat` file of /proc.
    fn of(id: u32, folder: &Path) -> Option<Identity> {
        let text = fs::read_to_string(folder.join("stat")).ok()?;
        // A name may have spaces and parentheses (proc_pid_stat(5)): the start is field 22, the
        // 20th behind the name.
        let start = text.rsplit_once(')')?.1.split_whitespace().nth(19)?;
        Some(Identity {
            id,
            start: start.parse().ok()?,
        })
    }
}

impl Tables {
    fn row(&mut self, read: &Read) -> AccessRow {
        let time_ns = read.at.saturating_duration_since(self.start).as_nanos() as u64;
        // Threads that serve reads pass them on in about the order of time.
        let time_ns = time_ns.max(self.last_ns);
        self.last_ns = time_ns;
        let (thread, process) = self.thread(read.thread);
        let object = self.object(read, time_ns);
        let row = &mut self.objects[object as usize];
        row.last_seen_ns = time_ns;
        self.read_bytes += read.range.end - read.range.start;
        AccessRow {
            time_ns,
            process,
            thread,
            object,
            op: RowOp::Read,
            offset: read.range.start,
            length: read.range.end - read.range.start,
            ..AccessRow::default()
        }
    }

    fn object(&mut self, read: &Read, time_ns: u64) -> u32 {
        let number = self.objects.len() as u32;
        match self.numbers.entry(read.file.block(0).file) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let version = read.file.version();
                let mut path = self.places[read.volume].clone();
                path.push(b'/');
                path.extend_from_slice(version.path.as_bytes());
                self.objects.push(ObjectRow {
                    path,
                    // Versions of one path are different files to a cache.
                    inode: number.into(),
                    size: version.bytes,
                    first_seen_ns: time_ns,
                    last_seen_ns: time_ns,
                    ..ObjectRow::default()
                });
                *entry.insert(number)
            }
        }
    }

    /// The numbers of a thread and its process.
    fn thread(&mut self, id: u32) -> (u32, u32) {
        let known = self.threads.get_mut(&id);
        if let Some(thread) = &known
            && thread.looked.elapsed() < THREAD_AGE_MAX
        {
            return (thread.number, thread.process);
        }
        let folder = PathBuf::from(format!("/proc/{id}"));
        let identity = Identity::of(id, &folder);
        if let Some(thread) = known
            && (identity.is_none() || thread.identity == identity)
        {
            thread.looked = Instant::now();
            return (thread.number, thread.process);
        }
        let process = self.process(id, &folder);
        let number = self.meta.threads.len() as u32;
        self.meta.threads.push(ThreadRow {
            thread: number,
            process,
            tid: id,
        });
        let thread = Thread {
            number,
            process,
            identity,
            looked: Instant::now(),
        };
        self.threads.insert(id, thread);
        (number, process)
    }

    /// The number of the process of a thread, which has this folder in /proc.
    fn process(&mut self, thread: u32, folder: &Path) -> u32 {
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<u32>().ok())
        };
        // Of a thread that has ended nothing more is known.
        let pid = field("Tgid:").unwrap_or(thread);
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let identity = Identity::of(pid, &folder).unwrap_or(Identity { id: pid, start: 0 });
        let number = self.meta.processes.len() as u32;
        match self.processes.entry(identity) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let exe = fs::read_link(folder.join("exe")).unwrap_or_default();
                let command = fs::read(folder.join("cmdline")).unwrap_or_default();
                let command = command.split(|&byte| byte == 0);
                let mut command: Vec<String> = command
                    .map(|word| String::from_utf8_lossy(word).into_owned())
                    .collect();
                // A zero ends each word.
                command.pop();
                self.meta.processes.push(ProcessRow {
                    process: number,
                    pid,
                    parent_pid: field("PPid:").unwrap_or_default(),
                    exe: String::from_utf8_lossy(&exe.into_os_string().into_vec()).into_owned(),
                    command,
                    ..ProcessRow::default()
                });
                *entry.insert(number)
            }
        }
    }

    /// What the journal lacks.
    fn new_rows(&mut self) -> TableRows {
        let noted = &mut self.noted;
        let objects = (0..).zip(&self.objects).skip(noted.objects);
        let rows = TableRows {
            objects: objects.map(|(number, row)| (number, row.clone())).collect(),
            sites: match noted.objects {
                0 => vec![(0, SiteRow::unknown())],
                _ => Vec::new(),
            },
            processes: self.meta.processes[noted.processes..].to_vec(),
            threads: self.meta.threads[noted.threads..].to_vec(),
            losses: self.lost.losses(),
            ..TableRows::default()
        };
        *noted = Noted {
            objects: self.objects.len(),
            processes: self.meta.processes.len(),
            threads: self.meta.threads.len(),
        };
        rows
    }

    fn summary(&mut self, reads: u64) -> String {
        if self.meta.processes.is_empty() {
            // Each number in a trace has a row.
            self.meta.processes.push(ProcessRow::default());
            self.meta.threads.push(ThreadRow::default());
        }
        let mut line = format!(
            "{} of {} in {}",
            counted(reads, "read"),
            bytes(self.read_bytes),
            counted(self.objects.len() as u64, "file"),
        );
        let lost = self.meta.losses.dropped_events;
        if lost > 0 {
            line = format!("{line}; {} are missing", counted(lost, "read"));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_argument_of_a_mount_is_in_its_trace() {
        let arguments = [
            "hither",
            "mount",
            "-o",
            "secret=s3cr3t",
            "http://u:s3cr3t@h",
        ];
        let command = command(
            arguments.map(OsString::from).into_iter(),
            ["http://h"].into_iter(),
        );
        assert_eq!(command, ["hither", "mount", "http://h"]);
    }
}
