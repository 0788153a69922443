//! A run with replicas that is stopped or killed, in whole or in part, by everything that can do
//! so: writers do not wait for it, programs read the right bytes, and no process stays behind.
//!
//! The tests wait in steps: half as many as it takes until the kernel takes leases away by itself
//! (`fs.lease-break-time`, 45 s). Whoever is let in within them was let in by the lease process, or
//! by its end. Where the kernel shall do it ([`Run::write_after_the_kernel`]), tests wait that
//! long: the setting is for all programs of the machine, and no test changes it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use hither_kernel::lease::{self, LeaseError};
use serde_json::Value;
use tempfile::TempDir;

#[path = "replicas/strict.rs"]
mod strict;
mod support;

use hither_testing::skip::skip_on_this_machine;
use strict::{found, hither, make, start_writer, stop_writer};
use support::{figures, folder};

const STEP: Duration = Duration::from_millis(10);

/// Steps that a test waits for what happens by itself.
const STEPS: u32 = 2000;

fn until(what: &str, done: impl FnMut() -> bool) {
    until_within(STEPS, what, done);
}

fn until_within(steps: u32, what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..steps {
        if done() {
            return;
        }
        thread::sleep(STEP);
    }
    panic!("it never happens: {what}");
}

/// Readers under hither, with leases on their files.
struct Run {
    agent: Child,
    /// The process that holds the leases.
    holder: u32,
    folder: TempDir,
}

impl Run {
    /// None where there can be no leases. The job is a process group of its own, as a shell's are.
    fn start(faults: &[&str]) -> Option<Run> {
        let folder = folder("replicas/strict");
        let path = folder.path();
        make(path);
        let file = File::open(path.join("inplace")).expect("made");
        if let Err(why) = lease::check(&file) {
            skip_on_this_machine(format_args!("the files lie {why}"));
            return None;
        }
        let mut agent = hither(path);
        agent
            .args(["sh", "-c"])
            .arg("./program read . 0 > found.partial; mv found.partial found")
            .envs(faults.iter().map(|fault| (fault, "1")))
            .stderr(File::create(path.join("said")).expect("created"))
            .process_group(0);
        let mut run = Run {
            agent: agent.spawn().expect("hither starts"),
            holder: 0,
            folder,
        };
        run.await_holder();
        Some(run)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn agent(&self) -> i32 {
        self.agent.id() as i32
    }

    /// Waits for a lease of another process than the one that is known.
    fn await_holder(&mut self) {
        let inode = fs::metadata(self.path().join("inplace"))
            .expect("there")
            .ino();
        let before = self.holder;
        let mut holder = before;
        until("a lease is taken", || {
            holder = holder_of(inode).unwrap_or(before);
            holder != before
        });
        self.holder = holder;
    }

    /// Waits until replicas serve reads: a lease is taken before its file's replicas are published.
    fn await_replicas(&self) {
        let reads_served = || {
            let output = Command::new(env!("CARGO_BIN_EXE_hither"))
                .args(["top", "--once", "--json"])
                .env("XDG_RUNTIME_DIR", self.path())
                .output()
                .expect("hither starts");
            let runs: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let served = &runs[0]["mechanisms"][0]["figures"]["reads_served"];
            served.as_u64().unwrap_or(0)
        };
        until("replicas serve reads", || reads_served() > 0);
    }

    /// Has a writer write both files a few times.
    fn write(&self) {
        self.write_within(STEPS);
    }

    /// The same where nobody but the kernel lets the writer in, to one file after the other.
    fn write_after_the_kernel(&self) {
        let waits = lease::break_time().expect("the kernel says how long it waits");
        let steps = waits.as_millis().div_ceil(STEP.as_millis()) as u32;
        self.write_within(2 * steps + STEPS);
    }

    fn write_within(&self, steps: u32) {
        let writer = start_writer(self.path());
        let before = self.version();
        let is_in = || self.version() >= before + 4;
        until_within(steps, "the writer is let in", is_in);
        stop_writer(self.path(), writer);
    }

    /// Of the file that is written in place: two more for each time that it was.
    fn version(&self) -> u64 {
        let board = fs::read(self.path().join("board")).expect("there");
        u64::from_le_bytes(board[..8].try_into().expect("eight bytes"))
    }

    /// Ends the readers, and returns what came of the run. No read was stale or torn, and all
    /// processes have ended.
    fn finish(mut self) -> Output {
        fs::write(self.path().join("enough"), "").expect("written");
        until("the readers end", || self.path().join("found").exists());
        let status = self.agent.wait().expect("waited for");
        until("no process stays", || processes_in(self.path()).is_empty());
        let [reads, stale, torn] = found(&fs::read(self.path().join("found")).expect("there"));
        assert_eq!((stale, torn), (0, 0), "of {reads} reads");
        Output {
            status,
            stdout: Vec::new(),
            stderr: fs::read(self.path().join("said")).expect("there"),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Of a test that failed.
        for process in processes_in(self.path()) {
            let _ = signal("KILL", process as i32);
        }
    }
}

/// The process that holds a lease on a file. The kernel says "1: LEASE ACTIVE READ PID DEVICE:INODE
/// 0 EOF".
fn holder_of(inode: u64) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").expect("readable");
    let holder = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let is_lease = words.next() == Some("LEASE") && words.next() == Some("ACTIVE");
        let holder = words.nth(1).filter(|_| is_lease)?.parse().ok()?;
        let file = words.next()?.rsplit(':').next()?;
        (file.parse() == Ok(inode)).then_some(holder)
    };
    locks.lines().find_map(holder)
}

/// The processes of a run, which have its folder in their environment.
fn processes_in(folder: &Path) -> Vec<u32> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let has_folder = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split(|&byte| byte == 0);
        variables.any(|variable| variable.ends_with(folder))
    };
    let pids = fs::read_dir("/proc").expect("readable").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_folder).collect()
}

fn state(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.unwrap_or("gone").trim().to_owned()
}

/// Sends a signal to a process, or to a group.
#[must_use]
fn signal(name: &str, pid: i32) -> bool {
    let sent = Command::new("kill")
        .args([format!("-{name}"), "--".to_owned(), pid.to_string()])
        .stderr(Stdio::null())
        .status();
    sent.expect("kill runs").success()
}

/// A lease process was killed, and what the next one did counts.
fn assert_restarted(output: &Output) {
    let figures = figures(output);
    let why = LeaseError::NoHolder.to_string();
    assert!(figures["refused_why"][why].as_u64() > Some(0), "{figures}");
    assert!(figures["leases"].as_u64() > Some(2), "{figures}");
}

#[test]
fn writers_do_not_wait_for_a_stopped_agent() {
    let Some(run) = Run::start(&[]) else { return };
    assert!(signal("STOP", run.agent()));
    run.write();
    assert_eq!(state(run.agent.id()), "T (stopped)");
    assert!(signal("CONT", run.agent()));
    run.write();
    run.finish();
}

/// By Ctrl-Z, the terminal stops the process group. The readers stop as well.
#[test]
fn writers_do_not_wait_for_a_stopped_job() {
    let Some(run) = Run::start(&[]) else { return };
    assert!(signal("TSTP", -run.agent()));
    run.write();
    assert_eq!(state(run.agent.id()), "T (stopped)");
    assert!(signal("CONT", -run.agent()));
    run.write();
    run.finish();
}

/// It is killed within a second, and another one takes over.
#[test]
fn writers_do_not_wait_for_a_stopped_lease_process() {
    let Some(mut run) = Run::start(&[]) else {
        return;
    };
    assert!(signal("STOP", run.holder as i32));
    run.write();
    run.await_holder();
    run.write();
    assert_restarted(&run.finish());
}

#[test]
fn writers_do_not_wait_for_a_stopped_job_with_its_lease_process() {
    let Some(mut run) = Run::start(&[]) else {
        return;
    };
    assert!(signal("STOP", -run.agent()));
    assert!(signal("STOP", run.holder as i32));
    run.write();
    assert_eq!(state(run.agent.id()), "T (stopped)");
    assert!(signal("CONT", -run.agent()));
    run.await_holder();
    run.write();
    run.finish();
}

#[test]
fn writers_do_not_wait_for_a_traced_lease_process() {
    let tracer = folder("replicas/trace");
    let Some(mut run) = Run::start(&[]) else {
        return;
    };
    let mut tracer = Command::new(tracer.path().join("program"))
        .arg(run.holder.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut said = String::new();
    let output = tracer.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut said).expect("read");
    let is_traced = !said.is_empty();
    run.write();
    drop(tracer.stdin.take());
    tracer.wait().expect("waited for");
    if is_traced {
        // A process that has ended belongs to its tracer for as long as that wants it.
        run.await_holder();
    } else {
        skip_on_this_machine("nothing may be traced");
    }
    run.write();
    run.finish();
}

#[test]
fn writers_do_not_wait_for_a_killed_lease_process() {
    let Some(mut run) = Run::start(&[]) else {
        return;
    };
    assert!(signal("KILL", run.holder as i32));
    run.await_holder();
    run.write();
    assert_restarted(&run.finish());
}

#[test]
fn writers_do_not_wait_for_a_killed_agent() {
    let Some(run) = Run::start(&[]) else { return };
    assert!(signal("KILL", run.agent()));
    until("the lease process ends", || {
        !processes_in(run.path()).contains(&run.holder)
    });
    run.write();
    run.finish();
}

/// A cgroup that can be frozen.
struct Freezer {
    group: PathBuf,
    /// The file, and what freezes and thaws.
    switch: (&'static str, &'static str, &'static str),
}

impl Freezer {
    fn of_version(version: u32) -> Option<Freezer> {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("readable");
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        let root = mounts.find_map(|mut words| {
            let (at, kind) = (words.nth(1)?, words.next()?);
            let mut options = words.next()?.split(',');
            let is_it = match version {
                1 => kind == "cgroup" && options.any(|option| option == "freezer"),
                _ => kind == "cgroup2",
            };
            is_it.then(|| PathBuf::from(at))
        });
        let Some(root) = root else {
            skip_on_this_machine(format_args!("no freezer of cgroup v{version}"));
            return None;
        };
        let group = root.join(format!("hither-frozen-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&group) {
            skip_on_this_machine(format_args!("no cgroup: {error}"));
            return None;
        }
        let switch = match version {
            1 => ("freezer.state", "FROZEN", "THAWED"),
            _ => ("cgroup.freeze", "1", "0"),
        };
        let freezer = Freezer { group, switch };
        if !freezer.group.join(switch.0).exists() {
            skip_on_this_machine(format_args!("no freezer of cgroup v{version}"));
            return None;
        }
        Some(freezer)
    }

    fn freeze(&self, processes: &[u32]) {
        for process in processes {
            fs::write(self.group.join("cgroup.procs"), process.to_string()).expect("moved");
        }
        let (file, frozen, _) = self.switch;
        fs::write(self.group.join(file), frozen).expect("frozen");
    }

    fn thaw(&self) {
        let (file, _, thawed) = self.switch;
        fs::write(self.group.join(file), thawed).expect("thawed");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let (file, _, thawed) = self.switch;
        let _ = fs::write(self.group.join(file), thawed);
        // Those in it may be about to end.
        for _ in 0..2000 {
            match fs::remove_dir(&self.group) {
                Ok(()) => return,
                Err(_) => thread::sleep(STEP),
            }
        }
    }
}

/// As `docker pause` does with a whole job.
#[test]
fn writers_do_not_wait_for_a_frozen_job() {
    let Some(mut run) = Run::start(&[]) else {
        return;
    };
    let Some(freezer) = Freezer::of_version(2) else {
        run.finish();
        return;
    };
    freezer.freeze(&processes_in(run.path()));
    run.write();
    freezer.thaw();
    run.await_holder();
    run.write();
    run.finish();
}

/// The freezer of cgroup v1 holds SIGKILL back: the kernel takes the leases away in the end.
/// Programs rely on replicas for no longer than was promised.
#[test]
fn a_lease_process_frozen_by_cgroup_v1_is_not_relied_on() {
    let Some(run) = Run::start(&[]) else { return };
    if let Some(freezer) = Freezer::of_version(1) {
        freezer.freeze(&[run.agent.id(), run.holder]);
        run.write_after_the_kernel();
        freezer.thaw();
    }
    run.finish();
}

/// What was read while a stopped lease process, which nothing kills, waits until the kernel has
/// taken its leases.
fn read_beside_a_dead_lease_process(faults: &[&str]) -> Option<[u64; 3]> {
    let mut run = Run::start(&[&["HITHER_TEST_NO_DEADLINE"], faults].concat())?;
    run.await_replicas();
    assert!(signal("STOP", run.holder as i32));
    run.write_after_the_kernel();
    fs::write(run.path().join("enough"), "").expect("written");
    until("the readers end", || run.path().join("found").exists());
    // Without the fault, as in release builds, it was killed before.
    let _ = signal("KILL", run.holder as i32);
    run.agent.wait().expect("waited for");
    Some(found(&fs::read(run.path().join("found")).expect("there")))
}

#[test]
fn a_lease_process_is_relied_on_no_longer_than_it_promised_and_the_test_would_notice() {
    let Some([reads, stale, torn]) = read_beside_a_dead_lease_process(&[]) else {
        return;
    };
    assert_eq!((stale, torn), (0, 0), "of {reads} reads");
    if !cfg!(debug_assertions) {
        return skip_on_this_machine("the negative control");
    }
    let promising = read_beside_a_dead_lease_process(&["HITHER_TEST_PROMISE_FOR_GOOD"]);
    let [reads, stale, _] = promising.expect("as before");
    println!("{stale} stale reads of {reads}");
    assert!(stale > 0, "a promise for too long is not noticed");
}
