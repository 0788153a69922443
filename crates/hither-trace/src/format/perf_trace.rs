//! What `perf trace` prints of a command, or of programs that run already.
//!
//! The calls are those of a log of strace in other words, so they are put into its words and read
//! as one: files are followed through open, dup, fork and exec there. Three things differ.
//!
//! - Names. perf has the path of an open only where it may look into the program's memory, and
//!   otherwise that of a descriptor (`fd: 3</etc/passwd>`), which it looks up when it prints. Calls
//!   before the first name of an open file are counted as `unknown_files`, as in a log of strace
//!   without `-y`; the position moves.
//! - What is behind a pointer is not shown. A transfer at an offset that is (sendfile,
//!   copy_file_range, splice) is left out. So are the flags of clone3: its child is a thread if it
//!   begins as those of glibc and musl do, a process if it begins as posix_spawn's, and otherwise
//!   the trace is refused.
//! - Lost events, after which no position is known: the trace is refused.

mod line;

use rustc_hash::{FxHashMap, FxHashSet};

use self::line::{Event, TraceLine, argument, entry};
use super::reader::{Format, RecordKind};
use super::strace::{Call, Log, Time};
use crate::error::Result;
use crate::schema::{Meta, SiteRow};
use crate::sink::Sink;
use crate::source::{Head, Input};
use crate::text::{Line, Lines, decimal};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "perf-trace",
    doc: "what perf trace prints of all calls, with threads and files",
    records: RecordKind::Requests,
    matches: Some(|head: Head<'_>| {
        let mut lines = head.lines().filter(|line| !line.is_empty());
        lines.next().is_some_and(|line| entry(line).is_some())
    }),
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let meta = Meta {
        clock: "time since the first event, as perf trace wrote it".to_owned(),
        ..Meta::default()
    };
    sink.describe(Vec::new(), vec![SiteRow::unknown()], meta);
    let mut reader = Reader {
        log: Log::new(sink),
        begun: FxHashMap::default(),
        born: FxHashMap::default(),
        newborn: FxHashSet::default(),
    };
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        // What `-S` adds.
        if line.bytes.starts_with(b"Summary of events") {
            break;
        }
        if line.bytes.is_empty() {
            continue;
        }
        if line.bytes.starts_with(b"LOST ") && line.bytes.ends_with(b" events!") {
            return Err(line.error("events are missing: trace again, with a larger -m"));
        }
        let entry = entry(line.bytes).ok_or_else(|| line.error("not a line of perf trace"))?;
        reader.entry(line, entry)?;
    }
    reader.log.finish()?;
    Ok(None)
}

struct Reader<'s> {
    log: Log<'s>,
    /// The calls that were interrupted, by thread.
    begun: FxHashMap<u32, (Vec<u8>, Vec<u8>)>,
    /// The children of clone3 that have made no call yet, and their parents.
    born: FxHashMap<u32, u32>,
    /// The threads that begin with the end of the call that made them, and have made none yet.
    newborn: FxHashSet<u32>,
}

impl Reader<'_> {
    fn entry(&mut self, line: Line<'_>, entry: TraceLine<'_>) -> Result<()> {
        let TraceLine {
            time_ns,
            comm,
            tid,
            event,
        } = entry;
        let time_ns = self.log.at(time_ns.map(Time::Epoch));
        match event {
            Event::Call {
                name,
                arguments,
                result,
            } => {
                self.begins(line, tid, name)?;
                let result = Outcome::of(result);
                self.call(line, tid, time_ns, comm, name, arguments, result)
            }
            Event::Begin { name, arguments } => {
                self.begins(line, tid, name)?;
                self.begun
                    .insert(tid, (name.to_owned(), arguments.to_owned()));
                Ok(())
            }
            Event::End { name, result } => {
                let result = Outcome::of(result);
                match self.begun.remove(&tid) {
                    Some((begun, arguments)) if begun == name => {
                        self.call(line, tid, time_ns, comm, name, &arguments, result)
                    }
                    // The trace begins with the end of the exec of the program.
                    None if name == b"execve" => {
                        self.call(line, tid, time_ns, comm, name, b"", result)
                    }
                    None if is_fork(name) && !self.log.knows(tid) => {
                        self.newborn.insert(tid);
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
            Event::Other => Ok(()),
        }
    }

    /// Finds out where a thread comes from, at its first call.
    fn begins(&mut self, line: Line<'_>, tid: u32, name: &[u8]) -> Result<()> {
        if self.log.knows(tid) {
            return Ok(());
        }
        let is_newborn = self.newborn.remove(&tid);
        if let Some(parent) = self.born.remove(&tid) {
            return self.fork_unseen(line, parent, tid, name);
        }
        // Its parent may still be in the call.
        let unfinished = self.begun.iter().filter(|(_, (name, _))| is_fork(name));
        match unfinished.collect::<Vec<_>>()[..] {
            [(&parent, (made_by, arguments))] if is_newborn => {
                if made_by == b"clone3" {
                    return self.fork_unseen(line, parent, tid, name);
                }
                self.log.fork(parent, tid, &fork(made_by, arguments));
            }
            // It was there before, or which of several made it is not known.
            _ => self.log.adopt(tid),
        }
        Ok(())
    }

    /// A child of clone3, whose flags perf does not show. By its first call it is a thread or a
    /// process.
    fn fork_unseen(&mut self, line: Line<'_>, parent: u32, tid: u32, name: &[u8]) -> Result<()> {
        let body: &[u8] = match name {
            b"rseq" | b"set_robust_list" => b"clone3(CLONE_THREAD|CLONE_FILES)",
            b"rt_sigprocmask" | b"rt_sigaction" => b"clone3()",
            _ => {
                let problem = "a child of clone3, which may be a thread or a process: trace all \
                               calls, or use strace";
                return Err(line.error(problem));
            }
        };
        self.log.fork(parent, tid, body);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a line")]
    fn call(
        &mut self,
        line: Line<'_>,
        tid: u32,
        time_ns: u64,
        comm: &[u8],
        name: &[u8],
        arguments: &[u8],
        outcome: Outcome,
    ) -> Result<()> {
        if outcome.ended && name.starts_with(b"exit") {
            self.log.exits(tid, name == b"exit_group");
            return Ok(());
        }
        let Some(result) = outcome.result else {
            return Ok(());
        };
        if name == b"clone3" {
            let child = u32::try_from(result).unwrap_or(0);
            if child != 0 && !self.log.knows(child) {
                self.born.insert(child, tid);
            }
            return Ok(());
        }
        let Some((name, arguments)) = translated(name, arguments, comm) else {
            return Ok(());
        };
        let call = Call {
            name,
            arguments: &arguments,
            result: Some(result),
            path: None,
        };
        self.log.perform(line, tid, time_ns, &call, &arguments)?;
        self.log.release()
    }
}

/// What a call returned.
#[derive(Clone, Copy)]
struct Outcome {
    result: Option<u64>,
    /// It did not return, since its thread ended.
    ended: bool,
}

impl Outcome {
    fn of(text: &[u8]) -> Outcome {
        let end = text.iter().position(|byte| b" <".contains(byte));
        let word = &text[..end.unwrap_or(text.len())];
        Outcome {
            result: super::strace::value(word),
            ended: text == b"?",
        }
    }
}

/// How an argument is written.
#[derive(Clone, Copy)]
enum Kind {
    /// As it is, or 0.
    Plain,
    /// A descriptor, with its path.
    File,
    /// A descriptor, or none in an anonymous mapping.
    Mapped,
    /// A path in quotation marks. Nothing where it is a pointer.
    Path,
    /// Flags, of which perf leaves out the beginning.
    Flags(&'static str),
    /// An offset of which -1 is none.
    Offset,
}

/// A call with its arguments in the order of strace.
type Words = (&'static str, &'static [(&'static str, Kind)]);

const CALLS: &[Words] = {
    use Kind::{File, Flags, Mapped, Offset, Path, Plain};
    const OPEN: Kind = Flags("O_");
    &[
        ("chdir", &[("filename", Path)]),
        ("close", &[("fd", File)]),
        (
            "close_range",
            &[
                ("fd", Plain),
                ("max_fd", Plain),
                ("flags", Flags("CLOSE_RANGE_")),
            ],
        ),
        ("creat", &[("pathname", Path)]),
        ("dup", &[("fildes", File)]),
        ("dup2", &[("oldfd", File), ("newfd", File)]),
        ("dup3", &[("oldfd", File), ("newfd", File), ("flags", OPEN)]),
        ("fchdir", &[("fd", File)]),
        ("fcntl", &[("fd", File), ("cmd", Flags("F_"))]),
        ("ftruncate", &[("fd", File), ("length", Plain)]),
        ("lseek", &[("fd", File)]),
        (
            "mmap",
            &[
                ("addr", Plain),
                ("len", Plain),
                ("prot", Plain),
                ("flags", Plain),
                ("fd", Mapped),
                ("off", Plain),
            ],
        ),
        ("open", &[("filename", Path), ("flags", OPEN)]),
        (
            "openat",
            &[("dfd", File), ("filename", Path), ("flags", OPEN)],
        ),
        ("openat2", &[("dfd", File), ("filename", Path)]),
        ("pread64", &[("fd", File), ("pos", Plain)]),
        ("preadv", &[("fd", File), ("pos_l", Plain)]),
        (
            "preadv2",
            &[("fd", File), ("pos_l", Offset), ("flags", Plain)],
        ),
        ("pwrite64", &[("fd", File), ("pos", Plain)]),
        ("pwritev", &[("fd", File), ("pos_l", Plain)]),
        (
            "pwritev2",
            &[("fd", File), ("pos_l", Offset), ("flags", Plain)],
        ),
        ("read", &[("fd", File)]),
        ("readv", &[("fd", File)]),
        ("write", &[("fd", File)]),
        ("writev", &[("fd", File)]),
    ]
};

/// The calls that move bytes between files: the names of their arguments.
struct Copies {
    name: &'static str,
    from: &'static str,
    from_offset: &'static str,
    to: &'static str,
    to_offset: &'static str,
}

const COPIES: &[Copies] = &[
    Copies {
        name: "copy_file_range",
        from: "fd_in",
        from_offset: "off_in",
        to: "fd_out",
        to_offset: "off_out",
    },
    Copies {
        name: "sendfile",
        from: "in_fd",
        from_offset: "offset",
        to: "out_fd",
        to_offset: "",
    },
    Copies {
        name: "splice",
        from: "fd_in",
        from_offset: "off_in",
        to: "fd_out",
        to_offset: "off_out",
    },
];

/// A call in the words of strace. `None` for one that moves nothing and names no file.
fn translated(name: &[u8], arguments: &[u8], comm: &[u8]) -> Option<(&'static [u8], Vec<u8>)> {
    if name == b"execve" || name == b"execveat" {
        // perf shows the name that the thread has after it.
        return Some((b"execve", [b"\"", escaped(comm).as_slice(), b"\""].concat()));
    }
    if let Some(known) = FORKS.iter().find(|known| known.as_bytes() == name) {
        return Some((known.as_bytes(), fork(name, arguments)));
    }
    if let Some(copies) = COPIES.iter().find(|copies| copies.name.as_bytes() == name) {
        return copies.translated(arguments);
    }
    let (name, wanted) = CALLS.iter().find(|(known, _)| known.as_bytes() == name)?;
    let mut text = Vec::new();
    for (at, (argument_name, kind)) in wanted.iter().enumerate() {
        if at > 0 {
            text.extend(b", ");
        }
        let value = argument(arguments, argument_name);
        text.extend(match kind {
            Kind::Plain => value.unwrap_or(b"0").to_owned(),
            Kind::File => file(value.unwrap_or(b"0")),
            Kind::Mapped => match value {
                Some(value) => file(value),
                None if memchr::memmem::find(arguments, b"ANON").is_some() => b"-1".to_vec(),
                None => b"0".to_vec(),
            },
            Kind::Path => value.map(path).unwrap_or_default(),
            Kind::Flags(begin) => flags(value.unwrap_or(b"0"), begin),
            Kind::Offset => match value.map_or(Some(0), |value| decimal(value).ok()) {
                Some(offset) if offset <= i64::MAX as u64 => offset.to_string().into_bytes(),
                _ => b"-1".to_vec(),
            },
        });
    }
    Some((name.as_bytes(), text))
}

/// The calls that make processes and threads, but for clone3.
const FORKS: &[&str] = &["clone", "fork", "vfork"];

fn is_fork(name: &[u8]) -> bool {
    name == b"clone3" || FORKS.iter().any(|fork| fork.as_bytes() == name)
}

/// A call that makes a process or thread, with its flags.
fn fork(name: &[u8], arguments: &[u8]) -> Vec<u8> {
    let given = argument(arguments, "clone_flags").unwrap_or_default();
    [name, b"(", &flags(given, "CLONE_"), b")"].concat()
}

impl Copies {
    /// The transfer, as far as perf shows where it is.
    fn translated(&self, arguments: &[u8]) -> Option<(&'static [u8], Vec<u8>)> {
        let of = |name: &str| file(argument(arguments, name).unwrap_or(b"0"));
        let is_known = |name: &str| argument(arguments, name).is_none();
        let (from, to) = (of(self.from), of(self.to));
        match (is_known(self.from_offset), is_known(self.to_offset)) {
            (true, true) if self.name == "sendfile" => {
                let rest: &[u8] = b", NULL, 0";
                Some((b"sendfile", [&to, b", ".as_slice(), &from, rest].concat()))
            }
            (true, true) => {
                let text = [&from, b", NULL, ".as_slice(), &to, b", NULL, 0, 0"].concat();
                Some((self.name.as_bytes(), text))
            }
            (true, false) => Some((b"read", from)),
            (false, true) => Some((b"write", to)),
            (false, false) => None,
        }
    }
}

/// A descriptor as strace writes it, with its path if there is one.
fn file(value: &[u8]) -> Vec<u8> {
    let Some(at) = memchr::memchr(b'<', value) else {
        return match value {
            b"CWD" => b"AT_FDCWD".to_vec(),
            _ => value.to_owned(),
        };
    };
    let (number, path) = value.split_at(at);
    let path = path[1..].strip_suffix(b">").unwrap_or(&path[1..]);
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    [number, b"<", &escaped(path), b">"].concat()
}

/// A path in quotation marks. Nothing for a pointer, and for one that perf has cut.
fn path(value: &[u8]) -> Vec<u8> {
    let inner = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    match inner {
        Some(path) if !path.starts_with(b"...") => {
            [b"\"", escaped(path).as_slice(), b"\""].concat()
        }
        _ => Vec::new(),
    }
}

/// Flags with their whole names.
fn flags(value: &[u8], begin: &str) -> Vec<u8> {
    let whole = |flag: &[u8]| {
        let has_name = flag.first().is_some_and(u8::is_ascii_uppercase);
        let is_short = has_name && !flag.starts_with(begin.as_bytes());
        [if is_short { begin.as_bytes() } else { b"" }, flag].concat()
    };
    let flags: Vec<Vec<u8>> = value.split(|byte| *byte == b'|').map(whole).collect();
    flags.join(&b'|')
}

/// A path without characters that mean something in a line of strace.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'<' | b'>' | b'"' | b'\\' | b',' => text.extend(format!("\\{byte:03o}").bytes()),
            byte => text.push(byte),
        }
    }
    text
}
