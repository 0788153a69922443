//! The numbers that the rows of a trace use, and the rows that follow from them.

use hither_ids::FileKey;
use hither_kernel::pid_namespace::PidNamespace;
use hither_trace::schema::{AccessRow, ObjectRow, ProcessRow, RowOp, ThreadRow};

use super::intern::{Definitions, Numbers};
use super::order::Timed;
use super::streams::{Stream, Streams};

/// An access on its way to the trace.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) time_ns: u64,
    pub(super) signature: u64,
    pub(super) object: FileKey,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) stream: u32,
    pub(super) node: u32,
    pub(super) op: RowOp,
    pub(super) in_kernel: bool,
    /// Of its call site no more is known than the program and the file.
    pub(super) unknown_site: bool,
}

impl Timed for Event {
    fn key(&self) -> (u64, u32) {
        (self.time_ns, self.stream)
    }
}

/// The numbers that rows use, in order of the rows.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) sites: Numbers<u64>,
    pub(crate) objects: Numbers<u64>,
    /// Time of the first and last access to each object.
    seen_ns: Vec<(u64, u64)>,
    /// Indices of program images.
    pub(super) processes: Numbers<u32>,
    pub(super) threads: Numbers<Stream>,
    /// Whether processes have the arguments of their programs.
    arguments: bool,
}

/// The words of a command line that a trace has. A mark stands for arguments that are left out.
pub(super) fn kept_words(mut words: impl Iterator<Item = String>, arguments: bool) -> Vec<String> {
    if arguments {
        return words.collect();
    }
    let program = words.next();
    let mark = words.next().map(|_| "…".to_owned());
    program.into_iter().chain(mark).collect()
}

impl Tables {
    /// Without `arguments`, processes have the names of their programs alone.
    pub(super) fn of(arguments: bool) -> Tables {
        Tables {
            arguments,
            ..Tables::default()
        }
    }

    /// The row of an access.
    pub(super) fn row(&mut self, event: &Event, streams: &Streams, start_ns: u64) -> AccessRow {
        let time_ns = event.time_ns.saturating_sub(start_ns);
        let stream = streams.stream(event.stream);
        let object = self.objects.number(event.object.0);
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

    /// A row of the objects.
    pub(crate) fn object_row(&self, number: u32, definitions: &Definitions) -> ObjectRow {
        let (first_seen_ns, last_seen_ns) = self.seen_ns[number as usize];
        let row = ObjectRow {
            first_seen_ns,
            last_seen_ns,
            ..ObjectRow::default()
        };
        let is_named = definitions.hashed_names.is_none();
        match definitions.object(FileKey(self.objects.keys()[number as usize])) {
            Some(file) => ObjectRow {
                path: file.path.clone(),
                // They name a file, too.
                device: if is_named { file.id.device } else { 0 },
                inode: if is_named { file.id.inode } else { 0 },
                size: file.size,
                ..row
            },
            None => row,
        }
    }

    /// The rows of the processes from number `first` on.
    pub(crate) fn process_rows(&self, streams: &Streams, first: usize) -> Vec<ProcessRow> {
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
                pid: image.pid.pid.0,
                parent_pid: image.parent.0,
                pid_namespace: namespaces.number(image.pid.namespace),
                exe: String::from_utf8_lossy(&image.exe).into_owned(),
                command: kept_words(args, self.arguments),
            }
        };
        // Those before count too: namespaces are numbered in the order of their processes.
        let rows = (0..).zip(self.processes.keys()).map(row);
        rows.skip(first).collect()
    }

    /// The rows of the threads from number `first` on.
    pub(crate) fn thread_rows(&mut self, first: usize) -> Vec<ThreadRow> {
        let Tables {
            threads, processes, ..
        } = self;
        let row = |(thread, stream): (u32, &Stream)| ThreadRow {
            thread,
            process: processes.number(stream.image),
            tid: stream.tid.0,
        };
        (0..).zip(threads.keys()).skip(first).map(row).collect()
    }
}
