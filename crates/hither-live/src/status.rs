//! What a run does, for whoever looks on: a JSON document that its agent writes anew from time to
//! time, into a folder of the user's own.
//!
//! A file rather than a socket: it costs the agent a small write a second, whether anybody looks or
//! not, nobody can make it wait, and `cat` and `jq` read it as well as `hither top`. 9 KB, of 32
//! regions, take 67 us of processor time in memory, and 209 us on ext4, which writes a file at once
//! that is renamed onto another (2 cores, Linux 6.18, 2026-11): less than a ten-thousandth of a CPU
//! in memory, which is where they go if they can.

use std::fs;
use std::path::{Path, PathBuf};

use hither_sys::private_folder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::launch;

/// What programs do is their user's business.
const MODE: u32 = 0o700;

/// What a run does at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The agent's process.
    pub agent: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Nothing is carried out.
    pub dry_run: bool,
    /// How long the program has run.
    pub ran_ns: u64,
    /// Of the agent, processor time.
    pub agent_ns: u64,
    /// What each mechanism does.
    pub mechanisms: Vec<MechanismStatus>,
}

/// Which mechanism a status is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MechanismTag {
    /// [`crate::page_cache`].
    #[default]
    PageCache,
    /// [`crate::replication`].
    Replication,
    /// [`crate::file_migration`].
    FileMigration,
    /// [`crate::memory`].
    Memory,
}

/// What a mechanism does at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MechanismStatus {
    /// Which one.
    pub mechanism: MechanismTag,
    /// Its policy, with its parameters.
    pub policy: String,
    /// The kernel's numbers of the nodes, in the order of [`RegionStatus::pages`].
    pub nodes: Vec<u32>,
    /// Regions of memory that there are now.
    pub regions: u64,
    /// The largest of them.
    pub largest: Vec<RegionStatus>,
    /// The figures that the run's end will give, so far.
    pub figures: Value,
}

/// A region of memory at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionStatus {
    /// The process.
    pub pid: u32,
    /// Where it starts.
    pub start: u64,
    /// Its size.
    pub bytes: u64,
    /// The signature of the call site that allocated it.
    #[serde(with = "crate::decision_log::hex")]
    pub signature: u64,
    /// What is thought of it.
    pub state: String,
    /// Pages that are known to be on each node.
    pub pages: Vec<u64>,
}

/// Where a run says what it does; taken down with the value.
#[derive(Debug)]
pub(crate) struct StatusFile {
    path: PathBuf,
}

impl StatusFile {
    /// None where there is no folder that is this user's alone.
    pub(crate) fn new(agent: u32) -> Option<StatusFile> {
        let folder = status_folder();
        private_folder::create(&folder, MODE).ok()?;
        Some(StatusFile {
            path: folder.join(format!("{agent}.json")),
        })
    }

    /// Replaces what it says. A full disk or a folder that is gone leaves the run without
    /// onlookers, and no worse.
    pub(crate) fn publish(&self, status: &Status) {
        let partial = self.path.with_extension("partial");
        let text = serde_json::to_vec(status).unwrap_or_default();
        let _ = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &self.path));
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// `hither` in `$XDG_RUNTIME_DIR`, or `hither-runs-` with the user's number in `/dev/shm`, or
/// `/tmp`: memory before a disk, to which a file that takes another's place is written at once.
fn status_folder() -> PathBuf {
    let shm = Path::new("/dev/shm");
    let shared = if shm.is_dir() { shm } else { Path::new("/tmp") };
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() => runtime.join("hither"),
        _ => shared.join(format!(
            "hither-runs-{}",
            private_folder::user().unwrap_or(u32::MAX)
        )),
    }
}

/// The runs of this user's that go on, by the number of their agent. What one left behind that was
/// killed is removed.
pub fn runs() -> Vec<Status> {
    let folder = status_folder();
    if private_folder::create(&folder, MODE).is_err() {
        return Vec::new();
    }
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut runs: Vec<Status> = files.filter_map(|file| read(&file.path())).collect();
    runs.sort_by_key(|run| run.agent);
    runs
}

/// What the run with this agent has last said of itself.
pub fn run_of(agent: u32) -> Option<Status> {
    let folder = status_folder();
    private_folder::create(&folder, MODE).ok()?;
    read(&folder.join(format!("{agent}.json")))
}

fn read(path: &Path) -> Option<Status> {
    if path.extension()? != "json" {
        return None;
    }
    let agent: u32 = path.file_stem()?.to_str()?.parse().ok()?;
    if !launch::is_running(agent) {
        let _ = fs::remove_file(path);
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_read_until_it_is_taken_down() {
        let scratch = tempfile::tempdir().expect("a folder");
        let agent = std::process::id();
        let status_file = StatusFile {
            path: scratch.path().join(format!("{agent}.json")),
        };
        let status = Status {
            agent,
            command: vec!["a \"b\"\n".to_owned()],
            mechanisms: vec![MechanismStatus {
                mechanism: MechanismTag::Memory,
                largest: vec![RegionStatus {
                    signature: u64::MAX,
                    pages: vec![1, 2],
                    ..RegionStatus::default()
                }],
                ..MechanismStatus::default()
            }],
            ..Status::default()
        };
        status_file.publish(&status);
        assert_eq!(read(&status_file.path), Some(status));
        // Another process's, which is gone: no process has this number.
        let stale = scratch.path().join("4194305.json");
        fs::copy(&status_file.path, &stale).expect("copied");
        assert_eq!(read(&stale), None);
        assert!(!stale.exists());
        fs::write(&status_file.path, "{").expect("written");
        assert_eq!(read(&status_file.path), None, "half a document");
        let path = status_file.path.clone();
        drop(status_file);
        assert!(!path.exists());
    }
}
