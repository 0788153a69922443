//! The page cache of programs that run already is steered by what the kernel reports of them, and
//! that of programs that cannot load the library.

#[path = "support/observing.rs"]
mod observing;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use hither_kernel::file_id::Inode;
use hither_kernel::mapped_files::identify;
use hither_kernel::page_bytes;
use hither_kernel::page_cache::{CachedFile, PageCache, ThisPageCache};
use hither_testing::memory_group::MemoryGroup;
use hither_testing::needs::ON_A_DISK;
use hither_testing::skip::skip_on_this_machine;
use serde_json::Value;

use observing::can_observe;

const MIB: u64 = 1 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(ON_A_DISK).expect("a folder")
}

fn hither() -> Command {
    Command::new(env!("CARGO_BIN_EXE_hither"))
}

/// A static program that reads its file once for each line on its stdin, and says so.
fn compiled(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record_running/program.c");
    let program = folder.join("program");
    let gcc = Command::new("gcc")
        .args(["-O1", "-static", "-o"])
        .args([&program, &source])
        .status();
    assert!(gcc.expect("gcc starts").success());
    program
}

/// A file of which nothing is cached.
fn uncached(path: &Path, mib: u64) {
    let mut file = File::create(path).expect("created");
    for _ in 0..mib {
        file.write_all(&vec![7; MIB as usize]).expect("written");
    }
    file.sync_all().expect("synced");
    drop_pages(path);
}

fn open(path: &Path) -> Box<dyn CachedFile> {
    let inode = Inode::of(&fs::metadata(path).expect("it is there"));
    let (id, _) = identify(path, inode).expect("it has an identity");
    ThisPageCache.open(path, id).expect("opened")
}

fn drop_pages(path: &Path) {
    open(path).drop_pages(0, 1 << 40).expect("dropped");
}

/// How much of a range is cached.
fn cached(path: &Path, offset: u64, length: u64) -> u64 {
    open(path).cached(offset, length).expect("said").pages * page_bytes()
}

/// This process uses a range, page by page.
fn uses(path: &Path, offset: u64, length: u64) {
    let file = File::open(path).expect("opened");
    let mut page = vec![0; page_bytes() as usize];
    for at in (offset..offset + length).step_by(page.len()) {
        file.read_exact_at(&mut page, at).expect("read");
    }
}

struct Reader {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Reader {
    fn of(mut command: Command) -> Reader {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Reader { child, said }
    }

    fn read_once(&mut self) {
        let input = self.child.stdin.as_mut().expect("piped");
        input.write_all(b"\n").expect("it reads");
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it says so");
        assert_eq!(line, "read\n");
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("waited for").success());
    }
}

/// Attaches hither. It has told systemd that it is ready.
fn attach(folder: &Path, arguments: &[&str]) -> Child {
    let path = folder.join("notify");
    let _ = fs::remove_file(&path);
    let notified = UnixDatagram::bind(&path).expect("bound");
    let agent = hither()
        .arg("run")
        .args(arguments)
        .env("NOTIFY_SOCKET", &path)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut told = [0; 20];
    let length = notified.recv(&mut told).expect("told");
    assert_eq!(&told[..length], b"READY=1");
    agent
}

/// The figures that an agent has printed at its end.
fn figures(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_job_that_runs_already_leaves_nothing_cached_but_what_others_use() {
    if !can_observe() {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    let data = folder.join("data");
    uncached(&data, 64);
    let mut command = Command::new(compiled(folder));
    command.arg(&data);
    let mut reader = Reader::of(command);
    // Cached before, in the midst of what the job reads.
    uses(&data, 8 * MIB, MIB);
    let before = cached(&data, 0, 64 * MIB);
    assert!(before >= MIB);
    let pid = reader.child.id().to_string();
    let agent = attach(folder, &["--stream", "--json", "-p", &pid]);
    reader.read_once();
    // Used by another process while the job has it cached.
    let shared = cached(&data, 60 * MIB, MIB);
    uses(&data, 60 * MIB, MIB);
    reader.end();
    let output = agent.wait_with_output().expect("waited for");
    let figures = figures(&output);
    assert_eq!(cached(&data, 8 * MIB, MIB), MIB, "{figures}");
    assert_eq!(shared, MIB, "the last 32 MiB stay until the end: {figures}");
    assert_eq!(cached(&data, 60 * MIB, MIB), MIB, "{figures}");
    let left = cached(&data, 0, 64 * MIB);
    // A folio of others may reach beyond what they have used.
    assert!(left <= before + 2 * MIB, "{left} of {before}: {figures}");
    let read = figures["storage_bytes"].as_u64().expect("a number");
    let missing = 64 * MIB - before;
    assert!((missing..=missing + MIB).contains(&read), "{figures}");
}

#[test]
fn only_chosen_files_of_a_job_are_steered() {
    if !can_observe() {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    let [chosen, other] = ["chosen", "other"].map(|name| folder.join(name));
    uncached(&chosen, 16);
    uncached(&other, 16);
    let mut command = Command::new(compiled(folder));
    command.args([&chosen, &other]);
    let mut reader = Reader::of(command);
    let pid = reader.child.id().to_string();
    let glob = chosen.to_str().expect("a name");
    let agent = attach(folder, &["--no-cache", "-p", &pid, "--files", glob]);
    reader.read_once();
    reader.end();
    let output = agent.wait_with_output().expect("waited for");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(cached(&chosen, 0, 16 * MIB), 0, "{output:?}");
    assert_eq!(cached(&other, 0, 16 * MIB), 16 * MIB, "{output:?}");
}

/// The job names its file as it sees it, and hither opens it by its layer.
#[test]
fn a_job_in_a_container_leaves_nothing_cached() {
    if !can_observe() {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    for path in ["lower", "upper", "work", "root"] {
        fs::create_dir(folder.join(path)).expect("created");
    }
    fs::copy(compiled(folder), folder.join("lower/program")).expect("copied");
    let data = folder.join("lower/data");
    uncached(&data, 16);
    let mut command = Command::new("unshare");
    command.current_dir(folder).args(["--mount", "sh", "-c"]);
    command.arg(
        "mount -t overlay -o lowerdir=$PWD/lower,upperdir=$PWD/upper,workdir=$PWD/work o root && \
         exec chroot root /program /data",
    );
    let tried = command.stdin(Stdio::null()).output().expect("it starts");
    if !tried.status.success() {
        let said = String::from_utf8_lossy(&tried.stderr);
        skip_on_this_machine(format_args!("no overlay can be mounted: {said}"));
        return;
    }
    let mut reader = Reader::of(command);
    reader.read_once();
    drop_pages(&data);
    let pid = reader.child.id().to_string();
    let agent = attach(folder, &["--no-cache", "-p", &pid, "--files", "/data"]);
    reader.read_once();
    let before = cached(&data, 0, 16 * MIB);
    reader.end();
    let output = agent.wait_with_output().expect("waited for");
    assert!(output.status.success(), "{output:?}");
    assert!(before > 0, "it reads the file");
    assert_eq!(cached(&data, 0, 16 * MIB), 0, "{output:?}");
}

#[test]
fn what_a_static_program_reads_leaves_nothing_cached() {
    if !can_observe() {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    let data = folder.join("data");
    uncached(&data, 48);
    let mut command = hither();
    command.args(["run", "--no-cache", "--"]);
    command.arg(compiled(folder)).arg(&data);
    command.stderr(Stdio::null());
    let mut reader = Reader::of(command);
    reader.read_once();
    reader.read_once();
    reader.end();
    assert_eq!(cached(&data, 0, 48 * MIB), 0);
}

/// By the kernel's own order, each pass over a file that is larger than the cgroup reads all of it.
#[test]
fn a_loop_in_a_memory_cgroup_that_runs_already_reads_less() {
    if !can_observe() {
        return;
    }
    let folder = folder();
    let folder = folder.path();
    let Some(group) = MemoryGroup::new(96) else {
        return;
    };
    let data = folder.join("data");
    let program = compiled(folder);
    let (mut read, mut last) = (Vec::new(), Value::Null);
    for _ in 0..3 {
        uncached(&data, 160);
        let mut command = Command::new(&program);
        command.arg(&data);
        let mut reader = Reader::of(command);
        group.bring(reader.child.id());
        let of = group.folder().to_str().expect("a name");
        let agent = attach(folder, &["--page-cache=mru", "--json", "--cgroup", of]);
        (0..8).for_each(|_| reader.read_once());
        reader.end();
        let output = stop(agent);
        last = figures(&output);
        read.push(last["storage_bytes"].as_u64().expect("a number") / MIB);
        if read
            .last()
            .is_some_and(|mib| (160..8 * 160 * 9 / 10).contains(mib))
        {
            return;
        }
    }
    panic!("{read:?} MiB of {}: {last}", 8 * 160);
}

/// As Ctrl-C does.
fn stop(agent: Child) -> Output {
    let stopped = Command::new("kill")
        .args(["-INT", &agent.id().to_string()])
        .status();
    assert!(stopped.expect("kill starts").success());
    agent.wait_with_output().expect("waited for")
}

#[test]
fn what_cannot_be_steered_is_said() {
    let own = std::process::id().to_string();
    let cases: &[(&[&str], &str)] = &[
        (&["--all"], "--all: say whose page cache"),
        (
            &["-p", &own, "--replicas"],
            "--replicas is for programs that hither starts",
        ),
        (
            &["-p", &own, "--all-files"],
            "--all-files needs the library in the program",
        ),
        (
            &["-p", "4194304"],
            "--pid 4194304: there is no such process",
        ),
        (
            &["--seen-by=kernel", "--memory", "--", "true"],
            "--seen-by=kernel: --memory needs the library",
        ),
    ];
    for (arguments, expected) in cases {
        let output = hither()
            .arg("run")
            .args(*arguments)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
