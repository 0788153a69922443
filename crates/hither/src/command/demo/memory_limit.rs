//! A memory limit for the programs of the demo: that of a cgroup of its own, or of a scope of the
//! user's systemd.
//!
//! Who may make a cgroup differs: root, a user to whom a folder is delegated, nobody. And in the
//! second version a process may be moved only if the user may write in a folder above both groups.
//! So it is tried.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use hither_kernel::{cgroup, process};
use signal_hook::consts::SIGKILL;

/// The limit on memory. `hither run` steers where 96 MiB or more are left for files.
pub(super) const LIMIT_BYTES: u64 = 160 << 20;

/// Moves the shell to a group and becomes the program.
const ENTER: &str = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;

/// Succeeds in a group of the second version with this limit. A user's systemd ignores the limit if
/// the memory controller is not its own.
const HAS_LIMIT: &str = r#"
    own=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)
    test "$(cat "$own/memory.max")" = "$0""#;

/// How often it is tried to remove a group: a process leaves it a moment after it has ended.
const REMOVALS_MAX: u32 = 100;

/// What limits the memory of a program.
pub(super) enum MemoryLimit {
    /// A cgroup.
    Cgroup(TemporaryGroup),
    /// A scope of the user's systemd for each program.
    Scope,
    /// Nothing: `hither run --cache` limits what is cached of its files.
    Cache,
}

impl MemoryLimit {
    /// The first that can be had.
    pub(super) fn find() -> MemoryLimit {
        let folders = cgroup::folders_of_this_process().unwrap_or_default();
        let made = |folder: &PathBuf| TemporaryGroup::create_in(folder).ok();
        if let Some(group) = folders.iter().find_map(made) {
            return MemoryLimit::Cgroup(group);
        }
        let mut check = MemoryLimit::Scope.command(Path::new("sh"));
        check.args(["-c", HAS_LIMIT, &LIMIT_BYTES.to_string()]);
        if succeeds(check) {
            MemoryLimit::Scope
        } else {
            MemoryLimit::Cache
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &'static str {
        match self {
            MemoryLimit::Cgroup(_) => "cgroup",
            MemoryLimit::Scope => "systemd",
            MemoryLimit::Cache => "cache",
        }
    }

    /// Runs a program within the limit. Arguments are added to it.
    pub(super) fn command(&self, program: &Path) -> Command {
        match self {
            MemoryLimit::Cgroup(group) => group.command(program),
            MemoryLimit::Scope => {
                let mut command = Command::new("systemd-run");
                let limit = format!("MemoryMax={LIMIT_BYTES}");
                command.args(["--user", "--scope", "--quiet", "-p", &limit, "--"]);
                command.arg(program);
                command
            }
            MemoryLimit::Cache => Command::new(program),
        }
    }
}

/// Whether a command can be run, and succeeds. It prints nothing.
fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A memory cgroup that is removed at the end.
pub(super) struct TemporaryGroup {
    folder: PathBuf,
}

impl TemporaryGroup {
    /// Creates one with the limit below this one, which this user may enter.
    fn create_in(parent: &Path) -> io::Result<TemporaryGroup> {
        let name = format!("hither-demo-{}", std::process::id());
        let folder = parent.join(name);
        fs::create_dir(&folder)?;
        let group = TemporaryGroup { folder };
        let limits = ["memory.limit_in_bytes", "memory.max"].map(|name| group.folder.join(name));
        let limit = limits.iter().find(|limit| limit.exists());
        let limit = limit.ok_or(io::ErrorKind::Unsupported)?;
        fs::write(limit, LIMIT_BYTES.to_string())?;
        if succeeds(group.command(Path::new("true"))) {
            Ok(group)
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", ENTER]).arg(&self.folder).arg(program);
        command
    }
}

impl Drop for TemporaryGroup {
    fn drop(&mut self) {
        for _ in 0..REMOVALS_MAX {
            let gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
            if fs::remove_dir(&self.folder).map_or_else(gone, |()| true) {
                return;
            }
            // What an interrupted run has left.
            let left = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
            for process in left.lines().filter_map(|line| line.parse().ok()) {
                let _ = process::kill(process, SIGKILL);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
