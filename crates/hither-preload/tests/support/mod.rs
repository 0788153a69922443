//! A small agent and compiler driver: builds the preload library and C programs, runs one under the
//! other, and hands back everything that was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use hither_session::record::{ConstructKind, Op, Record};
use hither_session::session::{Lost, Session, SessionOptions};

use libraries::Libraries;

#[path = "../../libraries.rs"]
mod libraries;

/// One recorded access.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) op: Op,
    pub(crate) flags: u16,
    pub(crate) cpu: u16,
    pub(crate) signature: u64,
    pub(crate) object: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// One parallel construct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Construct {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) kind: ConstructKind,
    pub(crate) signature: u64,
    pub(crate) threads: u16,
}

/// Everything that a run recorded.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) accesses: Vec<Access>,
    pub(crate) objects: BTreeMap<u64, PathBuf>,
    pub(crate) sites: BTreeMap<u64, Vec<u64>>,
    pub(crate) modules: BTreeMap<u64, PathBuf>,
    pub(crate) processes: BTreeSet<u32>,
    pub(crate) execs: Vec<PathBuf>,
    /// What happened to regions, in the order of the rings: with the process and thread that it
    /// happened in.
    pub(crate) regions: Vec<(u32, u32, Record<'static>)>,
    /// In the order of the rings.
    pub(crate) constructs: Vec<Construct>,
    /// Process and thread of those that said where they run.
    pub(crate) places: Vec<(u32, u32)>,
    pub(crate) lost: Lost,
}

impl Recording {
    fn take(&mut self, pid: u32, tid: u32, record: Record<'_>) {
        let path = |bytes: &[u8]| PathBuf::from(String::from_utf8_lossy(bytes).into_owned());
        match record {
            Record::Access {
                op,
                flags,
                cpu,
                signature,
                object,
                offset,
                length,
                ..
            } => {
                self.accesses.push(Access {
                    pid,
                    tid,
                    op,
                    flags,
                    cpu,
                    signature,
                    object: object.0,
                    offset,
                    length,
                });
            }
            Record::Object {
                object, path: name, ..
            } => drop(self.objects.insert(object.0, path(name))),
            Record::Site {
                signature, frames, ..
            } => drop(self.sites.insert(signature, frames.to_vec())),
            Record::Module {
                module, path: name, ..
            } => drop(self.modules.insert(module, path(name))),
            Record::Process { pid, .. } => drop(self.processes.insert(pid.0)),
            Record::Exec { path: name, .. } => self.execs.push(path(name)),
            Record::ExecFailed { .. }
            | Record::IoUring
            | Record::Direct { .. }
            | Record::Cached { .. } => {}
            Record::Region { .. } | Record::RegionEnd { .. } | Record::Bound { .. } => {
                self.regions
                    .extend(detached(record).map(|record| (pid, tid, record)));
            }
            Record::Construct {
                kind,
                signature,
                threads,
                ..
            } => self.constructs.push(Construct {
                pid,
                tid,
                kind,
                signature,
                threads,
            }),
            Record::At { .. } => self.places.push((pid, tid)),
        }
    }

    /// Accesses of one kind to the file at `path`, in the order of the rings.
    pub(crate) fn of(&self, op: Op, path: &Path) -> Vec<&Access> {
        let is_it = |access: &&Access| {
            self.objects
                .get(&access.object)
                .is_some_and(|name| name == path)
        };
        self.accesses
            .iter()
            .filter(|access| access.op == op)
            .filter(is_it)
            .collect()
    }

    /// (offset, length) of all reads of the file at `path`, sorted.
    pub(crate) fn reads(&self, path: &Path) -> Vec<(u64, u64)> {
        let mut reads: Vec<_> = self
            .of(Op::Read, path)
            .iter()
            .map(|access| (access.offset, access.length))
            .collect();
        reads.sort_unstable();
        reads
    }

    /// (offset, length) of all writes to the file at `path`, in the order of the rings.
    pub(crate) fn writes(&self, path: &Path) -> Vec<(u64, u64)> {
        self.of(Op::Write, path)
            .iter()
            .map(|access| (access.offset, access.length))
            .collect()
    }

    /// How many bytes from the start of the file at `path` were read without a gap.
    pub(crate) fn covered(&self, path: &Path) -> u64 {
        self.reads(path)
            .into_iter()
            .fold(0, |end, (offset, length)| {
                if offset <= end {
                    end.max(offset + length)
                } else {
                    end
                }
            })
    }
}

/// A record of a region, by itself; `None` for others.
pub(crate) fn detached(record: Record<'_>) -> Option<Record<'static>> {
    Some(match record {
        Record::Region {
            start,
            length,
            signature,
            time_ns,
            cpu,
            kind,
        } => Record::Region {
            start,
            length,
            signature,
            time_ns,
            cpu,
            kind,
        },
        Record::RegionEnd {
            start,
            length,
            time_ns,
        } => Record::RegionEnd {
            start,
            length,
            time_ns,
        },
        Record::Bound {
            start,
            length,
            bind,
            error,
            site,
            time_ns,
        } => Record::Bound {
            start,
            length,
            bind,
            error,
            site,
            time_ns,
        },
        _ => return None,
    })
}

/// What a program did under the recorder.
pub(crate) struct Run {
    pub(crate) output: Output,
    pub(crate) recording: Recording,
}

/// The folder that tests may write to.
pub(crate) fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// The preload library that records.
pub(crate) fn library() -> &'static Path {
    &libraries().record
}

/// The preload library that places pages.
pub(crate) fn pages_library() -> &'static Path {
    &libraries().pages
}

/// The preload libraries, built once a test run.
fn libraries() -> &'static Libraries {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let target = scratch();
        let target = target.parent().expect("target/tmp has a parent");
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        libraries::build(libraries::cargo(), package, target)
    })
}

/// Compiles `tests/programs/NAME` with these flags. Different flags give different files.
pub(crate) fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let compiler = if name.ends_with(".cc") { "g++" } else { "gcc" };
    compile_by(compiler, name, flags)
}

/// The same, by a compiler of one's choice.
pub(crate) fn compile_by(compiler: &str, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name);
    let suffix: String = flags
        .concat()
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric())
        .collect();
    // Tests run at once and may want the same program: each compiles its own copy, and the rename
    // is atomic.
    let program = scratch().join(format!("{name}-{compiler}-{suffix}"));
    let fresh = tempfile::Builder::new()
        .prefix(name)
        .tempfile_in(scratch())
        .expect("a file")
        .into_temp_path();
    let output = Command::new(compiler)
        .args([
            "-Wall",
            "-Wno-unused-result",
            "-pthread",
            "-D_GNU_SOURCE",
            "-o",
        ])
        .arg(&fresh)
        .arg(source)
        .args(flags)
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    fresh.persist(&program).expect("renamed");
    program
}

/// A file of `bytes` bytes of which no two aligned words are equal, removed with the value.
pub(crate) fn data(bytes: usize) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(scratch()).expect("a file");
    let content: Vec<u8> = (0..bytes.div_ceil(8) as u64)
        .flat_map(|word| (word * 7 + 1).to_le_bytes())
        .collect();
    std::fs::write(file.path(), &content[..bytes]).expect("written");
    file
}

/// A session of the usual shape, or with rings of another size.
pub(crate) fn session(ring_bytes: usize) -> Session {
    Session::create(SessionOptions {
        ring_bytes,
        ..SessionOptions::default()
    })
    .expect("a session")
}

/// A session whose agent counts references to blocks of files.
pub(crate) fn blocks_session(block_bytes: u64) -> Session {
    Session::create(SessionOptions {
        block_bytes,
        ..SessionOptions::default()
    })
    .expect("a session")
}

/// A session that tracks allocations from this size on, and no files.
pub(crate) fn regions_session(region_min: u64) -> Session {
    Session::create(SessionOptions {
        files: false,
        region_min,
        ..SessionOptions::default()
    })
    .expect("a session")
}

/// As [`regions_session`], and its agent wants to sample.
pub(crate) fn sampled_session(region_min: u64) -> Session {
    Session::create(SessionOptions {
        files: false,
        region_min,
        sampling: true,
        ..SessionOptions::default()
    })
    .expect("a session")
}

/// A command that records into `session`.
pub(crate) fn under(session: &Session, program: &Path) -> Command {
    with(session, library(), program)
}

/// A command whose large allocations are tracked in `session`.
pub(crate) fn placed(session: &Session, program: &Path) -> Command {
    with(session, pages_library(), program)
}

fn with(session: &Session, library: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", library)
        .env("HITHER_SESSION", session.name())
        .env("ASAN_OPTIONS", "verify_asan_link_order=0");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The name of a session as an agent gives it that is under a seccomp filter, too.
pub(crate) fn name_of_filtered_agent(session: &Session) -> String {
    let mut parts: Vec<&str> = session.name().split('-').collect();
    parts[1] = "9";
    parts.join("-")
}

/// Runs `program` under a recorder that keeps up, and checks that it says and returns the same
/// without one.
pub(crate) fn record(program: &Path, arguments: &[&Path]) -> Run {
    let run = record_alone(program, arguments);
    check_same(&run, Command::new(program).args(arguments));
    run
}

/// Checks that a program said and returned what it does without us, and that all went well.
pub(crate) fn check_same(run: &Run, plain: &mut Command) {
    let plain_output = plain.stdin(Stdio::null()).output().expect("runs");
    let text = |output: &Output| {
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        format!("{}\n{out}{err}", output.status)
    };
    assert_eq!(
        text(&run.output),
        text(&plain_output),
        "{plain:?}: under the library, and plain"
    );
    assert!(
        plain_output.status.success(),
        "{plain:?}: {}",
        text(&plain_output)
    );
}

/// As [`record`], for programs whose output is never the same.
pub(crate) fn record_alone(program: &Path, arguments: &[&Path]) -> Run {
    let session = session(1 << 20);
    let mut command = under(&session, program);
    command.args(arguments);
    follow(session, command)
}

/// Runs a command with an agent that keeps up.
pub(crate) fn follow(session: Session, command: Command) -> Run {
    follow_with(session, command, |_| ())
}

/// As [`follow`], with something that the agent does each time it has looked.
pub(crate) fn follow_with(
    mut session: Session,
    mut command: Command,
    mut each: impl FnMut(&Session),
) -> Run {
    let child = command.spawn().expect("spawned");
    let waiter = std::thread::spawn(move || child.wait_with_output().expect("waited"));
    let mut recording = Recording::default();
    while !waiter.is_finished() {
        session.drain(|ring, record| recording.take(ring.pid.0, ring.tid.0, record));
        session.reap(|ring, record| recording.take(ring.pid.0, ring.tid.0, record));
        each(&session);
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = waiter.join().expect("no panic");
    finish(session, recording, output)
}

/// Empties the session and puts the run together.
pub(crate) fn finish(mut session: Session, mut recording: Recording, output: Output) -> Run {
    session.drain(|ring, record| recording.take(ring.pid.0, ring.tid.0, record));
    session.reap(|ring, record| recording.take(ring.pid.0, ring.tid.0, record));
    recording.lost = session.lost();
    Run { output, recording }
}
