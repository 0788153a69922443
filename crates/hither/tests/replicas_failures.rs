//! Where something fails, programs with replicas get what they get without: disks and descriptors
//! run out, memory does, the agent cannot start. And what is one user's is not for others to see.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

mod support;

use hither_testing::memory_group::MemoryGroup;
use hither_testing::skip::{skip, skip_on_this_machine};
use support::{figures, folder};

const REPLICAS: &[&str] = &["--replicas", "--replicate", "all"];

fn is_root(folder: &Path) -> bool {
    let root = fs::metadata(folder).expect("a folder").uid() == 0;
    if !root {
        skip_on_this_machine("for root alone");
    }
    root
}

/// Runs a script of the shell in a folder, in which `"$@"` runs a program: as it is, or under
/// hither.
fn shell(folder: &Path, script: &str, with: bool) -> Output {
    shell_with(folder, script, with.then_some(&[]))
}

/// The same with further options, if it is under hither.
fn shell_with(folder: &Path, script: &str, with: Option<&[&str]>) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).current_dir(folder);
    if let Some(options) = with {
        let hither = support::hither(folder, &[REPLICAS, options].concat());
        shell.arg(hither.get_program()).args(hither.get_args());
        for (name, value) in hither.get_envs() {
            shell.env(name, value.expect("set"));
        }
    }
    shell.output().expect("sh runs")
}

/// The program's random operations come out the same, with the script around them, and with
/// replicas at work.
fn same_with_and_without(folder: &Path, script: &str) -> Vec<u8> {
    let run = |with| {
        fs::create_dir_all(folder.join("files")).expect("a folder");
        let output = shell(folder, script, with);
        fs::remove_dir_all(folder.join("files")).expect("removed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{script}: {said}");
        output
    };
    let (alone, with) = (run(false), run(true));
    assert_eq!(alone.stdout, with.stdout, "{script}");
    let figures = figures(&with);
    println!("{script}: {figures}");
    if figures["leases"] != 0 {
        assert!(figures["reads_served"].as_u64() > Some(0), "{figures}");
    }
    alone.stdout
}

#[test]
fn a_full_disk_is_as_full_without() {
    let folder = folder("replicas/equal");
    let folder = folder.path();
    if !is_root(folder) {
        return;
    }
    // The three files do not fit.
    let on_a_disk_of = |size: &str| {
        on_a_disk(&format!(
            "mount -t tmpfs -o size={size},mode=755 tmpfs files"
        ))
    };
    let full = same_with_and_without(folder, &on_a_disk_of("440k"));
    let roomy = same_with_and_without(folder, &on_a_disk_of("16m"));
    assert_ne!(full, roomy, "it was never full");
}

/// Runs the program of random operations in a mount namespace of its own, on what is mounted there.
fn on_a_disk(mount: &str) -> String {
    let script = format!("{mount} && exec \"$@\" ./program files 3 1500");
    format!("exec unshare -m sh -c '{script}' sh \"$@\"")
}

#[test]
fn a_full_ext4_is_as_full_without() {
    let folder = folder("replicas/equal");
    let folder = folder.path();
    if !is_root(folder) {
        return;
    }
    // Blocks are found when they are written, and are free as soon as they are given back: how full
    // it is does not hang on when the kernel writes. And not on where blocks lie either: with
    // extents a file takes a block more if it is in many pieces, which differs from run to run,
    // with nobody else there.
    let of_size = |kib: u32| {
        format!(
            "truncate -s {kib}K disk && mke2fs -q -F -t ext4 -O ^has_journal,^extent,^64bit -m 0 \
                -b 4096 disk && \
             mount -t ext4 -o loop,nodelalloc,relatime disk files && chmod 755 files"
        )
    };
    let tried = format!("unshare -m sh -c '{}'", of_size(1024));
    fs::create_dir(folder.join("files")).expect("a folder");
    let tried = Command::new("sh")
        .args(["-c", &tried])
        .current_dir(folder)
        .output();
    let tried = tried.expect("sh runs");
    fs::remove_dir(folder.join("files")).expect("removed");
    if !tried.status.success() {
        let said = String::from_utf8_lossy(&tried.stderr);
        return skip_on_this_machine(format_args!("no ext4 in a file: {said}"));
    }
    let full = same_with_and_without(folder, &on_a_disk(&of_size(540)));
    let roomy = same_with_and_without(folder, &on_a_disk(&of_size(16 << 10)));
    assert_ne!(full, roomy, "it was never full");
}

#[test]
fn a_program_without_descriptors_fails_as_without() {
    let folder = folder("replicas/equal");
    let folder = folder.path();
    // Three of its own, six files, and hardly one more.
    let script =
        |limit: u32| format!("exec \"$@\" sh -c 'ulimit -n {limit}; exec ./program files 3 1500'");
    let few = same_with_and_without(folder, &script(10));
    let many = same_with_and_without(folder, &script(100));
    assert_ne!(few, many, "they never ran out");
}

/// A memory cgroup in which replicas find room at first; then the program takes what they have.
#[test]
fn replicas_give_way_in_a_memory_cgroup() {
    let folder = folder("replicas/cramped");
    let folder = folder.path();
    let Some(group) = MemoryGroup::new(96) else {
        return;
    };
    let data: Vec<u8> = (0..32_u32 << 18)
        .flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(folder.join("data"), data).expect("written");
    let script = format!(
        "{} && exec \"$@\" ./program data 72 {} {}",
        group.enter(),
        group.folder().display(),
        96 << 20
    );
    let alone = shell_with(folder, &script, None);
    let with = shell_with(folder, &script, Some(&["--replica-memory", "80MiB"]));
    let said = String::from_utf8_lossy(&with.stderr).into_owned();
    assert!(alone.status.success() && with.status.success(), "{said}");
    assert_eq!(alone.stdout, with.stdout);
    let figures = figures(&with);
    if figures["leases"] != 0 {
        assert!(figures["reads_served"].as_u64() > Some(0), "{figures}");
        assert!(
            figures["replicas_reclaimed"].as_u64() > Some(0),
            "{figures}"
        );
    }
    fs::remove_dir(group.folder()).expect("nobody is left in it");
}

/// What the agent shares is sized at once, which the limit on the size of files does not allow:
/// that is said, where it once ended the agent without a word.
#[test]
fn a_limit_on_the_size_of_files_is_named() {
    let folder = folder("replicas/equal");
    let output = shell(
        folder.path(),
        "ulimit -f 200000; exec \"$@\" touch ran",
        true,
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ulimit -f"), "{said}");
    assert!(!folder.path().join("ran").exists());
}

/// The program's own limit is its own: it is ended by what it writes beyond it, as without.
#[test]
fn the_programs_own_limit_on_the_size_of_files_holds() {
    let folder = folder("replicas/equal");
    let script = "exec \"$@\" sh -c 'ulimit -f 1; head -c 100000 /dev/zero > big; echo $?'";
    let with = shell(folder.path(), script, true);
    let alone = shell(folder.path(), script, false);
    assert_eq!(with.stdout, alone.stdout);
    assert!(!with.stdout.starts_with(b"0"));
}

/// A run with replicas by a user other than root.
struct RunOfUser {
    user: u32,
    /// The folder of the run, which belongs to the user.
    own: PathBuf,
    run: Child,
}

/// A command of a user in this folder.
fn as_user(user: u32, folder: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user.to_string(), "--regid", &user.to_string()])
        .arg("--clear-groups")
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("XDG_RUNTIME_DIR")
        .env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

/// The first folder on the path that other users cannot enter.
fn closed_parent(folder: &Path) -> Option<&Path> {
    let parents = folder.ancestors().skip(1);
    let mut parents = parents.filter(|parent| parent.parent().is_some());
    parents.find(|parent| {
        let mode = fs::metadata(parent).expect("there").permissions().mode();
        mode & 0o005 != 0o005
    })
}

impl RunOfUser {
    /// Starts a program that reads a file often and then sleeps. `None`: this test needs root, or
    /// the user cannot enter the folder.
    fn start(folder: &Path, user: u32) -> Option<RunOfUser> {
        if !is_root(folder) {
            return None;
        }
        if let Some(closed) = closed_parent(folder) {
            skip(format_args!("{} is closed to others", closed.display()));
            return None;
        }
        let own = folder.join("own");
        let hither = folder.join("hither");
        fs::create_dir(&own).expect("a folder");
        fs::copy(env!("CARGO_BIN_EXE_hither"), &hither).expect("copied");
        chown(&own, Some(user), Some(user)).expect("owned");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("opened");
        fs::write(own.join("data"), vec![7; 64 << 10]).expect("written");
        chown(own.join("data"), Some(user), Some(user)).expect("owned");
        let reads = "for i in $(seq 200); do dd if=data of=/dev/null bs=64k 2>/dev/null; done; \
                     touch ready; exec sleep 60";
        let run = as_user(user, &own)
            .arg(&hither)
            .args(["run", "--replicas", "--replicate", "all", "--"])
            .args(["sh", "-c", reads])
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv starts");
        let begun = Instant::now();
        while !own.join("ready").exists() {
            assert!(begun.elapsed() < Duration::from_secs(120), "it hangs");
            thread::sleep(Duration::from_millis(20));
        }
        Some(RunOfUser { user, own, run })
    }

    /// The permissions of the session segments of this user.
    fn sessions(&self) -> Vec<u32> {
        let segments = fs::read_to_string("/proc/sysvipc/shm").expect("System V shared memory");
        let permissions = segments.lines().skip(1).filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_ours = fields[7] == self.user.to_string();
            is_ours.then(|| u32::from_str_radix(fields[2], 8).expect("permissions") & 0o777)
        });
        permissions.collect()
    }

    /// The memory that holds replicas, as root finds it under /proc.
    fn replica_memory(&self) -> Vec<PathBuf> {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.run.id()));
        let descriptors = descriptors.expect("root sees them").flatten();
        let is_ours = |path: &PathBuf| {
            let target = fs::read_link(path).unwrap_or_default();
            target.to_string_lossy().starts_with("/memfd:hither-")
        };
        descriptors
            .map(|entry| entry.path())
            .filter(is_ours)
            .collect()
    }

    /// Kills the agent, and then the program.
    fn kill(&mut self) {
        let agent = self.run.id();
        let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"));
        self.run.kill().expect("killed");
        self.run.wait().expect("waited for");
        for child in children.unwrap_or_default().split_whitespace() {
            let _ = Command::new("kill").args(["-9", child]).status();
        }
    }
}

/// Another user can neither attach the session nor read the memory of replicas under /proc/PID/fd.
#[test]
fn another_user_cannot_read_the_replicas_of_a_run() {
    let folder = folder("replicas/equal");
    let (owner, other) = (54_321, 54_322);
    let Some(mut run) = RunOfUser::start(folder.path(), owner) else {
        return;
    };
    assert_eq!(run.sessions(), [0o600]);
    let memory = run.replica_memory();
    assert!(memory.len() >= 2, "a control and an arena: {memory:?}");
    for path in &memory {
        let can_read = |user: u32| {
            let script = "head -c 1 \"$1\" > /dev/null";
            let ran = as_user(user, &run.own)
                .args(["sh", "-c", script, "sh"])
                .arg(path)
                .output();
            ran.expect("it runs").status.success()
        };
        let path = path.display();
        assert!(
            can_read(owner),
            "{path}: not even its owner, so nothing is shown"
        );
        assert!(!can_read(other), "{path} can be read by another user");
    }
    run.kill();
}

/// A killed agent leaves nothing once its programs have ended.
#[test]
fn a_killed_agent_leaves_nothing() {
    let folder = folder("replicas/equal");
    let owner = 54_323;
    let Some(mut run) = RunOfUser::start(folder.path(), owner) else {
        return;
    };
    let memory = run.replica_memory();
    assert!(memory.len() >= 2, "a control and an arena: {memory:?}");
    run.kill();
    assert!(memory.iter().all(|path| !path.exists()));
    let begun = Instant::now();
    while !run.sessions().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
        thread::sleep(Duration::from_millis(20));
    }
}
