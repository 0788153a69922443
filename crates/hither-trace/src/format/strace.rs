//! Logs of `strace -f -k`, with or without `-y`, `-yy`, `-t`, `-tt`, `-ttt`, `-r`, `-T`, from a
//! file or from stderr.
//!
//! Reads and writes of regular files become requests, and mmap becomes a map. A log does not show
//! the offset of a `read`, so the reader tracks open files through open, dup, lseek, close-on-exec
//! and fork. `-k` gives call sites: the stack below a call, with the functions that strace found. A
//! thread is a thread of the trace, and an exec starts a process.
//!
//! On a terminal, and so on stderr, `-f` names the process of a line only while it traces several.
//! Lines without a number before the first number are the first process's, which a later line
//! names; one behind it is that of the only process that is left. Where the log does not say
//! whose a line is, it is refused.
//!
//! Left out are calls that fail or move nothing; calls on pipes, sockets and devices; and calls on
//! descriptors whose opening is not in the log and whose file `-y` does not name (counted as
//! `unknown_files` in `meta.json`). Renames are ignored: a file has the path with which it was
//! opened. A write with `O_APPEND` goes to the known end of the file, which is 0 for a file not
//! seen before.

mod clock;
mod files;
mod line;
mod stack;

use std::rc::Rc;

use hither_core::references::BlockSize;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use self::clock::Clock;
use self::files::{OpenFile, SharedDescriptorTable};
pub(super) use self::line::{Call, Time, value};
use self::line::{Event, attached, call, descriptor, ended, entry, last, quoted, unescaped};
use self::stack::Stack;
use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::row_range::checked_range;
use crate::schema::{AccessRow, Meta, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Line, Lines};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "strace",
    doc: "log of strace -f, with call sites from -k and files from -y",
    records: RecordKind::Requests,
    matches: Some(|head| {
        let mut entries = head.lines().map(entry);
        let first = entries.find(|entry| {
            let other = |event: &Event<'_>| matches!(event, Event::Other | Event::Frame(_));
            !entry.as_ref().is_some_and(|entry| other(&entry.event))
        });
        first.flatten().is_some()
    }),
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let clock = "time of day or epoch, as strace wrote it; else the number of the call".to_owned();
    let meta = Meta {
        clock,
        ..Meta::default()
    };
    sink.describe(Vec::new(), vec![SiteRow::unknown()], meta);
    let mut log = Log::new(sink);
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        log.line(line)?;
    }
    log.finish()?;
    Ok(None)
}

/// A live thread.
struct Task {
    process: u32,
    thread: u32,
    pid: u32,
    table: SharedDescriptorTable,
}

/// The state while a log is read: of strace, or of another tool in its words.
pub(super) struct Log<'s> {
    sink: &'s mut dyn Sink,
    /// By their numbers; 0 is the first one as long as no line has named it.
    tasks: FxHashMap<u32, Task>,
    /// The threads that lines are of, and that have not ended.
    traced: FxHashSet<u32>,
    /// Whether a line has had the number of its thread.
    has_numbers: bool,
    /// The processes that the first one created while it had no number.
    of_unnamed: Vec<u32>,
    /// The beginning of a line that a message of strace's cut in two.
    broken: Vec<u8>,
    /// The first parts of unfinished calls, by thread.
    begun: FxHashMap<u32, Vec<u8>>,
    objects: FxHashMap<Vec<u8>, u32>,
    /// The known end of each object.
    ends: Vec<u64>,
    /// The requests of the last call, until its stack has been read.
    held: Vec<AccessRow>,
    stack: Stack,
    clock: Clock,
    unknown_files: u64,
}

impl<'s> Log<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink) -> Log<'s> {
        Log {
            sink,
            tasks: FxHashMap::default(),
            traced: FxHashSet::default(),
            has_numbers: false,
            of_unnamed: Vec::new(),
            broken: Vec::new(),
            begun: FxHashMap::default(),
            objects: FxHashMap::default(),
            ends: Vec::new(),
            held: Vec::new(),
            stack: Stack::default(),
            clock: Clock::default(),
            unknown_files: 0,
        }
    }

    /// The time of a line.
    pub(super) fn at(&mut self, time: Option<Time>) -> u64 {
        self.clock.at(time)
    }

    /// Whether a thread has been in the log.
    pub(super) fn knows(&self, tid: u32) -> bool {
        self.tasks.contains_key(&tid)
    }

    /// Adds a thread of which no call has shown where it comes from.
    pub(super) fn adopt(&mut self, tid: u32) {
        self.task(tid);
    }

    /// Removes a thread, or all of its process.
    pub(super) fn exits(&mut self, tid: u32, with_process: bool) {
        if let Some(task) = self.tasks.remove(&tid)
            && with_process
        {
            self.tasks.retain(|_, other| other.process != task.process);
        }
    }

    fn line(&mut self, line: Line<'_>) -> Result<()> {
        if let Some(begins) = attached(line.bytes) {
            self.broken.extend_from_slice(begins);
            return Ok(());
        }
        if self.broken.is_empty() {
            return self.whole_line(line);
        }
        let mut whole = std::mem::take(&mut self.broken);
        whole.extend_from_slice(line.bytes);
        self.whole_line(line.with_bytes(&whole))
    }

    fn whole_line(&mut self, line: Line<'_>) -> Result<()> {
        let entry = entry(line.bytes).ok_or_else(|| line.error("not a line of strace"))?;
        if let Event::Frame(text) = entry.event {
            // The stack of a call without requests is ignored.
            if !self.held.is_empty() {
                self.stack.push(text);
            }
            return Ok(());
        }
        self.release()?;
        let time_ns = self.at(entry.time);
        if let Event::Other = entry.event {
            return Ok(());
        }
        let tid = self.thread_of(line, entry.tid, &entry.event)?;
        match entry.event {
            Event::Call(body) => self.call(line, tid, time_ns, body),
            Event::Begin(body) => {
                // A child may appear before the call that created it returns.
                self.task(tid);
                self.begun.insert(tid, body.to_owned());
                Ok(())
            }
            Event::End(rest) => match self.begun.remove(&tid) {
                Some(mut body) => {
                    body.extend_from_slice(rest);
                    self.call(line, tid, time_ns, &body)
                }
                None => Ok(()),
            },
            Event::Exit => {
                self.tasks.remove(&tid);
                self.begun.remove(&tid);
                self.traced.remove(&tid);
                Ok(())
            }
            Event::Frame(_) | Event::Other => Ok(()),
        }
    }

    /// The thread of a line with this number, 0 if it has none.
    fn thread_of(&mut self, line: Line<'_>, number: u32, event: &Event<'_>) -> Result<u32> {
        let unknown = || line.error("no thread is named, and several may be meant: trace with -o");
        let thread = match number {
            0 if self.has_numbers => {
                let mut left = self.traced.iter();
                match (left.next(), left.next()) {
                    (Some(&only), None) => only,
                    // Its last call has said that it ended.
                    (None, _) if matches!(event, Event::Exit) => 0,
                    _ => return Err(unknown()),
                }
            }
            0 => 0,
            number => {
                self.has_numbers = true;
                if self.tasks.contains_key(&0) && !self.tasks.contains_key(&number) {
                    // It is new, or the first one, which ends a call before it makes another.
                    let is_busy = self.begun.contains_key(&0);
                    if !is_busy && self.begun.values().any(|body| forks(body)) {
                        return Err(unknown());
                    }
                    if !is_busy || matches!(event, Event::End(_)) {
                        self.name_first(number);
                    }
                }
                number
            }
        };
        if !matches!(event, Event::Exit) {
            self.traced.insert(thread);
        }
        Ok(thread)
    }

    /// Gives the first thread the number that the log shows only now.
    fn name_first(&mut self, number: u32) {
        let meta = self.sink.meta();
        for row in meta.processes.iter_mut().filter(|row| row.pid == 0) {
            row.pid = number;
        }
        for process in self.of_unnamed.drain(..) {
            meta.processes[process as usize].parent_pid = number;
        }
        for row in meta.threads.iter_mut().filter(|row| row.tid == 0) {
            row.tid = number;
        }
        for task in self.tasks.values_mut().filter(|task| task.pid == 0) {
            task.pid = number;
        }
        if let Some(task) = self.tasks.remove(&0) {
            self.tasks.insert(number, task);
        }
        if let Some(body) = self.begun.remove(&0) {
            self.begun.insert(number, body);
        }
        self.traced.remove(&0);
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.release()?;
        if self.unknown_files > 0 {
            let count = Value::from(self.unknown_files);
            let more = &mut self.sink.meta().more;
            more.insert("unknown_files".to_owned(), count);
        }
        Ok(())
    }

    /// Passes on the requests of the last call, with its stack.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let site = self.stack.site(self.sink);
        for mut row in self.held.drain(..) {
            row.site = site;
            self.sink.request(&row)?;
        }
        Ok(())
    }

    /// The thread of that number. A new one is a child of the unfinished clone if there is exactly
    /// one; otherwise it is a process of its own.
    fn task(&mut self, tid: u32) -> &mut Task {
        if !self.tasks.contains_key(&tid) {
            let mut parents = self.begun.iter().filter(|(_, body)| forks(body));
            match (parents.next(), parents.next()) {
                (Some((&parent, body)), None) => {
                    let body = body.clone();
                    self.fork(parent, tid, &body);
                }
                _ => {
                    let table = SharedDescriptorTable::default();
                    self.start(tid, 0, ProcessRow::default(), table);
                }
            }
        }
        self.tasks.get_mut(&tid).expect("it was just made")
    }

    /// A new process with one thread.
    fn start(&mut self, tid: u32, parent_pid: u32, row: ProcessRow, table: SharedDescriptorTable) {
        let process = self.sink.add_process(ProcessRow {
            pid: tid,
            parent_pid,
            ..row
        });
        let thread = self.sink.add_thread(ThreadRow {
            process,
            tid,
            ..ThreadRow::default()
        });
        let task = Task {
            process,
            thread,
            pid: tid,
            table,
        };
        self.tasks.insert(tid, task);
    }

    /// Adds a thread or process that `parent` created with the call in `body`.
    pub(super) fn fork(&mut self, parent: u32, child: u32, body: &[u8]) {
        if self.tasks.contains_key(&child) {
            return;
        }
        let has = |flag: &[u8]| memchr::memmem::find(body, flag).is_some();
        let parent = self.task(parent);
        let (process, pid) = (parent.process, parent.pid);
        let table = if has(b"CLONE_FILES") {
            parent.table.clone()
        } else {
            let copy = parent.table.borrow().clone();
            Rc::new(copy.into())
        };
        if has(b"CLONE_THREAD") {
            let thread = self.sink.add_thread(ThreadRow {
                process,
                tid: child,
                ..ThreadRow::default()
            });
            let task = Task {
                process,
                thread,
                pid,
                table,
            };
            self.tasks.insert(child, task);
        } else {
            let of_parent = &self.sink.meta().processes[process as usize];
            let row = ProcessRow {
                exe: of_parent.exe.clone(),
                command: of_parent.command.clone(),
                ..ProcessRow::default()
            };
            if pid == 0 {
                self.of_unnamed
                    .push(self.sink.meta().processes.len() as u32);
            }
            self.start(child, pid, row, table);
        }
    }

    fn call(&mut self, line: Line<'_>, tid: u32, time_ns: u64, body: &[u8]) -> Result<()> {
        let made = call(body).ok_or_else(|| line.error("a call without a result"))?;
        if made.result.is_none() && ended(body) {
            self.traced.remove(&tid);
        }
        self.perform(line, tid, time_ns, &made, body)
    }

    /// Does what a call did. Its requests are held until [`Log::release`].
    pub(super) fn perform(
        &mut self,
        line: Line<'_>,
        tid: u32,
        time_ns: u64,
        made: &Call<'_>,
        body: &[u8],
    ) -> Result<()> {
        self.task(tid);
        let Some(result) = made.result else {
            return Ok(());
        };
        if self.names_files(tid, made, result, body).is_some() {
            return Ok(());
        }
        if let Some(request) = self.moves_bytes(tid, made, result) {
            let rows = request.map(|row| AccessRow { time_ns, ..row });
            for row in rows {
                checked_range(&row, BlockSize::new(self.sink.block_bytes()), false)
                    .map_err(|problem| line.error(problem))?;
                self.held.push(row);
            }
        }
        Ok(())
    }

    /// Handles a call that opens, closes or copies descriptors, or that creates or replaces a
    /// process. `None` for other calls.
    fn names_files(&mut self, tid: u32, call: &Call<'_>, result: u64, body: &[u8]) -> Option<()> {
        let arguments = call.arguments;
        let is = |flag: &str| memchr::memmem::find(arguments, flag.as_bytes()).is_some();
        let table = self.tasks.get(&tid)?.table.clone();
        let new = u32::try_from(result).ok();
        match call.name {
            b"open" | b"openat" | b"openat2" | b"creat" => {
                let (folder, rest) = match call.name {
                    b"openat" | b"openat2" => folder(&table, arguments),
                    _ => (None, arguments),
                };
                let path = match (call.path, quoted(rest)) {
                    (Some(path), _) => Some(unescaped(path)),
                    (None, Some((path, _))) => {
                        Some(table.borrow().resolve(folder.as_deref(), path))
                    }
                    (None, None) => None,
                };
                let truncate = is("O_TRUNC") || call.name == b"creat";
                if let Some(path) = &path
                    && truncate
                {
                    self.empties(path);
                }
                let file = OpenFile {
                    append: is("O_APPEND"),
                    truncate,
                    ..OpenFile::new(path)
                };
                table.borrow_mut().put(new?, Rc::new(file), is("O_CLOEXEC"));
            }
            b"close" => table.borrow_mut().close(descriptor(arguments)?.0.number),
            b"close_range" => {
                let mut bounds = arguments
                    .split(|byte| *byte == b',')
                    .map(<[u8]>::trim_ascii);
                let (first, last) = (value(bounds.next()?)?, value(bounds.next()?)?);
                if !is("CLOSE_RANGE_CLOEXEC") {
                    table.borrow_mut().close_range(first, last);
                }
            }
            b"dup" | b"dup2" | b"dup3" | b"fcntl" | b"fcntl64" => {
                if call.name.starts_with(b"fcntl") && !is("F_DUPFD") {
                    return Some(());
                }
                let old = descriptor(arguments)?.0.number;
                let file = table.borrow().get(old);
                let close_on_exec = is("O_CLOEXEC") || is("F_DUPFD_CLOEXEC");
                match file {
                    Some(file) => table.borrow_mut().put(new?, file, close_on_exec),
                    None => table.borrow_mut().close(new?),
                }
            }
            b"lseek" | b"_llseek" => {
                let file = table.borrow().get(descriptor(arguments)?.0.number)?;
                let position = match call.name {
                    b"lseek" => result,
                    _ => value(
                        last::<2>(arguments)?[0]
                            .strip_prefix(b"[")?
                            .strip_suffix(b"]")?,
                    )?,
                };
                file.position.set(position);
            }
            b"chdir" => {
                let path = quoted(arguments).map(|(path, _)| table.borrow().resolve(None, path));
                table.borrow_mut().enter(path.unwrap_or_default());
            }
            b"fchdir" => {
                let path = folder(&table, arguments).0?;
                table.borrow_mut().enter(path);
            }
            b"clone" | b"clone3" | b"fork" | b"vfork" => self.fork(tid, new?, body),
            b"execve" | b"execveat" => self.exec(tid, arguments),
            _ => return None,
        }
        Some(())
    }

    /// The process executes another program.
    fn exec(&mut self, tid: u32, arguments: &[u8]) {
        let mut command = Vec::new();
        let open = memchr::memchr(b'"', arguments).unwrap_or(arguments.len());
        let (exe, rest) = quoted(&arguments[open..]).unwrap_or_default();
        let mut rest = rest.strip_prefix(b"[").unwrap_or_default();
        while let Some((argument, behind)) = quoted(rest) {
            command.push(String::from_utf8_lossy(&argument).into_owned());
            rest = behind;
        }
        let task = self.task(tid);
        let (parent_pid, process) = (task.pid, task.process);
        let table = task.table.borrow().clone();
        let table = SharedDescriptorTable::new(table.into());
        table.borrow_mut().exec();
        let before = self.sink.meta().processes[process as usize].parent_pid;
        let parent_pid = if parent_pid == tid {
            before
        } else {
            parent_pid
        };
        let row = ProcessRow {
            exe: String::from_utf8_lossy(&exe).into_owned(),
            command,
            ..ProcessRow::default()
        };
        self.start(tid, parent_pid, row, table);
    }

    /// The requests of a call: one, or one for the source and one for the target.
    fn moves_bytes(
        &mut self,
        tid: u32,
        call: &Call<'_>,
        result: u64,
    ) -> Option<impl Iterator<Item = AccessRow> + use<>> {
        let arguments = call.arguments;
        let mut rows = [None, None];
        match call.name {
            b"read" | b"readv" | b"write" | b"writev" if result > 0 => {
                rows[0] = self.transfer(tid, arguments, op(call.name), None, result);
            }
            b"pread64" | b"pread" | b"preadv" | b"pwrite64" | b"pwrite" | b"pwritev"
                if result > 0 =>
            {
                let offset = value(last::<1>(arguments)?[0])?;
                rows[0] = self.transfer(tid, arguments, op(call.name), Some(offset), result);
            }
            b"preadv2" | b"pwritev2" if result > 0 => {
                // An offset of -1 means the file position.
                let offset = value(last::<2>(arguments)?[0]);
                rows[0] = self.transfer(tid, arguments, op(call.name), offset, result);
            }
            b"sendfile" | b"sendfile64" if result > 0 => {
                let (_, source) = descriptor(arguments)?;
                let offset = pointed_at(last::<2>(arguments)?[0]);
                rows[0] = self.transfer(tid, source, RowOp::Read, offset, result);
            }
            b"copy_file_range" | b"splice" if result > 0 => {
                let (_, rest) = descriptor(arguments)?;
                let [from, .., to, _, _] = last::<5>(arguments)?;
                let comma = memchr::memchr(b',', rest)?;
                let target = rest[comma + 1..].trim_ascii();
                rows[0] = self.transfer(tid, arguments, RowOp::Read, pointed_at(from), result);
                rows[1] = self.transfer(tid, target, RowOp::Write, pointed_at(to), result);
            }
            b"mmap" | b"mmap2" => {
                rows[0] = self.map(tid, arguments);
            }
            b"ftruncate" | b"ftruncate64" => {
                let length = value(last::<1>(arguments)?[0])?;
                let file = self.file(tid, arguments)?;
                let row = self.row(tid, &file)?;
                self.ends[row.object as usize] = length;
                rows[0] = Some(AccessRow {
                    op: RowOp::Truncate,
                    offset: length,
                    ..row
                });
            }
            _ => return None,
        }
        let in_kernel = [b"sendfile".as_slice(), b"copy_file_range", b"splice"]
            .iter()
            .any(|name| call.name.starts_with(name));
        let rows = rows.into_iter().flatten();
        Some(rows.map(move |row| AccessRow { in_kernel, ..row }))
    }

    /// A read or a write of `length` bytes at `offset`, or else at the position, which then
    /// advances.
    fn transfer(
        &mut self,
        tid: u32,
        arguments: &[u8],
        op: RowOp,
        offset: Option<u64>,
        length: u64,
    ) -> Option<AccessRow> {
        let file = self.file(tid, arguments)?;
        let Some(row) = self.row(tid, &file) else {
            if offset.is_none() {
                let behind = file.position.get().saturating_add(length);
                file.position.set(behind);
            }
            return None;
        };
        let end = &mut self.ends[row.object as usize];
        let at = match offset {
            Some(offset) => offset,
            None if file.append && op == RowOp::Write => *end,
            None => file.position.get(),
        };
        let behind = at.saturating_add(length);
        *end = behind.max(*end);
        if offset.is_none() {
            file.position.set(behind);
        }
        Some(AccessRow {
            op,
            offset: at,
            length,
            ..row
        })
    }

    /// `mmap(address, length, protection, flags, descriptor, offset)`.
    fn map(&mut self, tid: u32, arguments: &[u8]) -> Option<AccessRow> {
        let [length, _, _, mapped, offset] = last::<5>(arguments)?;
        if !mapped.first()?.is_ascii_digit() {
            return None;
        }
        let file = self.file(tid, mapped)?;
        let row = self.row(tid, &file)?;
        Some(AccessRow {
            op: RowOp::Map,
            offset: value(offset)?,
            length: value(length)?,
            ..row
        })
    }

    /// The end of this file is its beginning.
    fn empties(&mut self, path: &[u8]) {
        if let Some(&object) = self.objects.get(path) {
            self.ends[object as usize] = 0;
        }
    }

    /// The file of the descriptor at the beginning of arguments.
    fn file(&mut self, tid: u32, arguments: &[u8]) -> Option<Rc<OpenFile>> {
        let (descriptor, _) = descriptor(arguments)?;
        let task = self.tasks.get(&tid)?;
        let known = task.table.borrow().get(descriptor.number);
        match (known, descriptor.path) {
            (Some(file), Some(path)) if file.path.get().is_none() => {
                let path = unescaped(path);
                if file.truncate {
                    self.empties(&path);
                }
                file.path.get_or_init(|| path);
                Some(file)
            }
            (Some(file), _) => Some(file),
            // It was opened before the log began, so its position is unknown.
            (None, Some(path)) => {
                let file = Rc::new(OpenFile::new(Some(unescaped(path))));
                let mut table = task.table.borrow_mut();
                table.put(descriptor.number, file.clone(), false);
                Some(file)
            }
            (None, None) => {
                self.unknown_files += 1;
                None
            }
        }
    }

    /// A row for a file. `None` if it is not a regular one, or not known.
    fn row(&mut self, tid: u32, file: &OpenFile) -> Option<AccessRow> {
        let task = self.tasks.get(&tid)?;
        let (process, thread) = (task.process, task.thread);
        self.unknown_files += u64::from(file.path.get().is_none());
        let path = file.regular_path()?;
        let object = file.object.get().unwrap_or_else(|| {
            let known = self.objects.get(path).copied();
            let object = known.unwrap_or_else(|| {
                let object = self.sink.add_object(ObjectRow {
                    path: path.clone(),
                    first_seen_ns: self.clock.now_ns,
                    ..ObjectRow::default()
                });
                self.objects.insert(path.clone(), object);
                self.ends.push(0);
                object
            });
            file.object.set(Some(object));
            object
        });
        Some(AccessRow {
            process,
            thread,
            object,
            ..AccessRow::default()
        })
    }
}

/// Whether an unfinished call creates a process or thread.
fn forks(body: &[u8]) -> bool {
    let calls = [b"clone(".as_slice(), b"clone3(", b"fork(", b"vfork("];
    calls.iter().any(|call| body.starts_with(call))
}

fn op(name: &[u8]) -> RowOp {
    if memchr::memmem::find(name, b"read").is_some() {
        RowOp::Read
    } else {
        RowOp::Write
    }
}

/// The offset in `[12]` or in `[12] => [20]`. `None` for `NULL`.
fn pointed_at(argument: &[u8]) -> Option<u64> {
    let inner = argument.strip_prefix(b"[")?;
    value(&inner[..memchr::memchr(b']', inner)?])
}

/// The folder in the first argument of a call, if it is known, and the other arguments.
fn folder<'c>(table: &SharedDescriptorTable, arguments: &'c [u8]) -> (Option<Vec<u8>>, &'c [u8]) {
    if let Some((folder, rest)) = descriptor(arguments) {
        let known = table
            .borrow()
            .get(folder.number)
            .and_then(|file| file.path.get().cloned());
        return (folder.path.map(unescaped).or(known), rest);
    }
    // AT_FDCWD; with -y, the folder follows it.
    let comma = memchr::memchr(b'"', arguments).unwrap_or(arguments.len());
    (None, &arguments[comma..])
}
