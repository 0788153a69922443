//! A lease process and writers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::*;
use crate::replica::agent::{ReplicaOptions, Replicas};
use hither_ids::KernelNode;
use hither_kernel::file_id::FileId;
use hither_kernel::lease;
use hither_testing::needs::ON_A_DISK;
use hither_testing::skip::skip_on_this_machine;

struct Setting {
    replicas: Replicas,
    process: LeaseProcess,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

/// A file on a disk, and a lease process. None where leases on it prove
/// nothing.
fn setting(faults: InjectedFaults) -> Option<Setting> {
    let folder = tempfile::tempdir_in(ON_A_DISK).expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, "one").expect("written");
    if let Err(why) = lease::check(&File::open(&path).expect("opened")) {
        skip_on_this_machine(format_args!("the sources lie {why}"));
        return None;
    }
    let replicas = Replicas::create(&ReplicaOptions {
        nodes: vec![KernelNode(0)],
        node_of_cpu: vec![0; 8],
        node_bytes: 1 << 20,
    })
    .expect("memory");
    let process = LeaseProcess::start(replicas.shared(), faults).expect("a process");
    Some(Setting {
        replicas,
        process,
        path,
        _folder: folder,
    })
}

impl Setting {
    fn take(&mut self) -> Result<u32, LeaseError> {
        let file = File::open(&self.path).expect("opened");
        let seen = LeasedFile::of(&file).expect("a state");
        let id = FileId {
            device: 1,
            inode: 2,
            birth_ns: 3,
        };
        let place = self.replicas.enter(id, seen.bytes).expect("room");
        // A process that another test starts may have what we write open until it is a program.
        let wait_for_others = || thread::sleep(Duration::from_millis(10));
        for _ in 0..1000 {
            match self.process.take(place, &file, &seen) {
                Err(LeaseError::Written) => wait_for_others(),
                taken => return taken.map(|()| place),
            }
        }
        Err(LeaseError::Written)
    }

    fn is_published(&self, place: u32) -> bool {
        self.replicas.shared().is_published(place)
    }

    /// Waits for the end of the process.
    fn await_end(&mut self) {
        let shared = self.replicas.shared();
        until("the process ends", || self.process.has_ended(&shared));
    }
}

/// Half as long as the kernel lets a writer wait for a lease.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it never happens: {what}");
}

/// Opens the file for writing, and does not wait for leases: the kernel asks for them.
fn write(path: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let opened = options
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    opened.is_ok()
}

#[test]
fn a_writer_is_let_in_after_the_replicas_have_ended() {
    let Some(mut setting) = setting(InjectedFaults::default()) else {
        return;
    };
    let shared = setting.replicas.shared();
    let place = setting.take().expect("a lease");
    assert!(setting.is_published(place) && shared.ended() == 0);
    until("the writer is let in", || write(&setting.path));
    assert!(!setting.is_published(place), "they ended before");
    until("it is counted", || shared.ended() == 1);
    setting.replicas.leave(place);

    let place = setting.take().expect("a second lease");
    setting.process.release(place);
    assert!(!setting.is_published(place));
    until("nobody is waited for", || write(&setting.path));
    assert_eq!(shared.ended(), 2);
    assert!(!setting.process.has_ended(&shared));
}

/// The file was entered into the table with another size than it had under the lease.
#[test]
fn a_file_that_changed_before_the_lease_gets_none() {
    let Some(mut setting) = setting(InjectedFaults::default()) else {
        return;
    };
    let file = File::open(&setting.path).expect("opened");
    let seen = LeasedFile::of(&file).expect("a state");
    fs::write(&setting.path, "longer").expect("written");
    let refused = setting.process.take(0, &file, &seen);
    assert_eq!(refused, Err(LeaseError::Written));
    assert!(!setting.is_published(0));
    until("nobody is waited for", || write(&setting.path));
}

#[test]
fn a_stopped_lease_process_is_killed_and_a_writer_let_in() {
    let Some(mut setting) = setting(InjectedFaults::default()) else {
        return;
    };
    let shared = setting.replicas.shared();
    setting.take().expect("a lease");
    process::kill(setting.process.pid.raw(), libc::SIGSTOP).expect("stopped");
    until("the writer is let in", || write(&setting.path));
    assert!(
        !shared.is_held_by(setting.process.pid()),
        "it was marked before"
    );
    setting.await_end();
    let file = File::open(&setting.path).expect("opened");
    let seen = LeasedFile::of(&file).expect("a state");
    let refused = setting.process.take(1, &file, &seen);
    assert_eq!(refused, Err(LeaseError::NoHolder));
}

/// The deadline is what lets the writer in: without it, nothing does.
#[test]
fn without_a_deadline_a_writer_waits() {
    let no_deadline = InjectedFaults {
        no_deadline: true,
        ..InjectedFaults::default()
    };
    let Some(mut setting) = setting(no_deadline) else {
        return;
    };
    setting.take().expect("a lease");
    process::kill(setting.process.pid.raw(), libc::SIGSTOP).expect("stopped");
    for _ in 0..150 {
        assert!(!write(&setting.path));
        thread::sleep(Duration::from_millis(10));
    }
    process::kill(setting.process.pid.raw(), libc::SIGCONT).expect("continued");
    until("the writer is let in", || write(&setting.path));
}

#[test]
fn a_dropped_lease_process_leaves_nothing() {
    let Some(mut setting) = setting(InjectedFaults::default()) else {
        return;
    };
    setting.take().expect("a lease");
    let pid = setting.process.pid();
    assert!(setting.process.cpu_ns() > 0);
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).expect("it runs");
    assert_eq!(name, "hither-leases\n");
    // It has nothing of ours but the socket: the others are its own.
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let targets = descriptors.map(|of| fs::read_link(of.expect("an entry").path()));
    let targets: Vec<PathBuf> = targets.map(|target| target.expect("a target")).collect();
    assert_eq!(targets.len(), 4, "{targets:?}");
    assert!(targets.contains(&setting.path), "{targets:?}");
    drop(setting.process);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(write(&setting.path));
}
