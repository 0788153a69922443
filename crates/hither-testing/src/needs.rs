//! What a test needs of the machine, asked for exactly: a test that needs FUSE skips where this
//! user cannot mount, and fails where a mount that must work does not.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::skip::skip_on_this_machine;

/// Where everybody may write files that are on a disk. A temporary folder may be all page cache
/// (tmpfs).
pub const ON_A_DISK: &str = "/var/tmp";

/// Whether this process cannot mount a file system by FUSE, which is said.
pub fn cannot_mount() -> bool {
    mounting_as(None).map(skip_on_this_machine).is_some()
}

/// The same of another user, for a test that runs as root and starts the mount as that user.
pub fn cannot_mount_as(user: u32) -> bool {
    mounting_as(Some(user)).map(skip_on_this_machine).is_some()
}

/// What is missing: the device has to open, and whoever may not mount needs the helper that may.
fn mounting_as(user: Option<u32>) -> Option<String> {
    let mut open = Command::new("sh");
    open.args(["-c", "exec 3<>/dev/fuse"]);
    if let Some(user) = user {
        open.uid(user).gid(user);
    }
    let opened = open.output().expect("sh starts");
    if !opened.status.success() {
        let error = String::from_utf8_lossy(&opened.stderr);
        return Some(format!("/dev/fuse does not open: {}", error.trim()));
    }
    let status = fs::read_to_string("/proc/self/status").expect("every process has one");
    if user.is_none() && has_sys_admin(&status) {
        return None;
    }
    if status.lines().any(|line| line == "NoNewPrivs:\t1") {
        return Some("no_new_privs is set: fusermount3 would have no rights".to_owned());
    }
    let Some(helper) = find_in_path("fusermount3") else {
        return Some("fusermount3 is not installed".to_owned());
    };
    let metadata = fs::metadata(&helper).expect("it was just found");
    if metadata.uid() != 0 || metadata.permissions().mode() & 0o4000 == 0 {
        return Some(format!("{} is not setuid root", helper.display()));
    }
    None
}

/// CAP_SYS_ADMIN (bit 21) among the effective capabilities.
fn has_sys_admin(status: &str) -> bool {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:\t"))
        .and_then(|mask| u64::from_str_radix(mask, 16).ok());
    effective.is_some_and(|mask| mask & (1 << 21) != 0)
}

fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// What is missing for this compiler to build programs for OpenMP: clang comes without `omp.h` and
/// libomp on many machines. `scratch` is a folder for the probe.
pub fn openmp(compiler: &str, scratch: &Path) -> Option<String> {
    let source = scratch.join(format!("openmp-probe-{}.c", std::process::id()));
    let program = source.with_extension("");
    let text = "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n";
    fs::write(&source, text).expect("the scratch folder can be written");
    let built = Command::new(compiler)
        .args(["-fopenmp", "-o"])
        .args([&program, &source])
        .stdin(Stdio::null())
        .output();
    let missing = match built {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "{compiler} -fopenmp: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Some(format!("{compiler}: {error}")),
    };
    for made in [&source, &program] {
        // There is no program where the compiler failed.
        let _ = fs::remove_file(made);
    }
    missing
}
