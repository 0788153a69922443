//! A memory cgroup for a test.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::skip::skip_on_this_machine;

/// A memory cgroup of its own, of either version. It is removed when dropped; nobody may be in it
/// by then.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// One of so many MiB. None, and the test is skipped: this user can make none here.
    pub fn new(mib: u64) -> Option<MemoryGroup> {
        MemoryGroup::made(mib)
            .map_err(|error| skip_on_this_machine(format_args!("no memory cgroup: {error}")))
            .ok()
    }

    fn made(mib: u64) -> io::Result<MemoryGroup> {
        let process = std::process::id();
        let thread = std::thread::current().id();
        let number = format!("{thread:?}").replace(|found: char| !found.is_ascii_digit(), "");
        let name = format!("hither-test-{process}-{number}");
        let groups = Path::new("/sys/fs/cgroup");
        let (folder, limit) = if groups.join("memory").is_dir() {
            (groups.join("memory").join(name), "memory.limit_in_bytes")
        } else {
            (groups.join(name), "memory.max")
        };
        fs::create_dir(&folder)?;
        let group = MemoryGroup(folder);
        fs::write(group.0.join(limit), (mib << 20).to_string())?;
        Ok(group)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// A shell's words that bring the shell in.
    pub fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }

    /// Brings a process in.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn bring(&self, process: u32) {
        let group = self.0.join("cgroup.procs");
        fs::write(group, process.to_string()).expect("the process enters");
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
