//! The status of a run: a JSON document that its agent rewrites every second, in a private folder
//! of the user.
//!
//! It is a file and not a socket. It costs the agent a small write a second, whether anybody reads
//! it or not, no reader can make the agent wait, and `cat` and `jq` read it as `hither top` does. 9
//! KB, for 32 regions, take 67 us of processor time in a file system in memory, and 209 us on ext4,
//! which writes a file to the disk when it is renamed onto another (2 cores, Linux 6.18, 2026-11).
//! So the folder is in memory where there is one: less than a ten-thousandth of a CPU.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hither_ids::{KernelNode, Pid};
use hither_kernel::private_folder;
use hither_kernel_events::is_alive;
use hither_trace::schema::{Frame, SiteRow};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::observe::sites;
use crate::symbolise::Symboliser;

/// Permissions of the folder: only its user may know what programs run.
const FOLDER_MODE: u32 = 0o700;

/// The status of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The agent's process.
    pub agent: Pid,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Decisions are not carried out.
    pub dry_run: bool,
    /// How long the program has run so far.
    pub ran_ns: u64,
    /// Processor time of the agent so far.
    pub agent_ns: u64,
    /// The status of each mechanism.
    pub mechanisms: Vec<MechanismStatus>,
}

/// The mechanism of a status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MechanismTag {
    /// [`crate::page_cache`].
    #[default]
    PageCache,
    /// [`crate::replication`].
    Replication,
    /// [`crate::file_placement`], where cached pages move.
    FileMigration,
    /// [`crate::memory`].
    Memory,
}

/// The status of a mechanism.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MechanismStatus {
    /// The mechanism.
    pub mechanism: MechanismTag,
    /// Its policy, with parameters.
    pub policy: String,
    /// The kernel's numbers of the nodes, in the order of [`RegionStatus::pages`].
    pub nodes: Vec<KernelNode>,
    /// How many regions of memory there are.
    pub regions: u64,
    /// The largest regions.
    pub largest: Vec<RegionStatus>,
    /// The figures of the report at the end of the run, as they are so far.
    pub figures: Value,
    /// The call sites that the figures and the regions name, with the frames of their stacks. The
    /// agent does not look for the functions, which may take long: [`CallSiteNames`] does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteRow>,
}

/// The functions of call sites of running programs, looked up once each.
#[derive(Debug, Default)]
pub struct CallSiteNames {
    known: FxHashMap<Vec<Frame>, SiteRow>,
}

impl CallSiteNames {
    /// Adds the functions to the call sites of a status, in files that are not newer than its run.
    pub fn add(&mut self, run: &mut Status) {
        let sites = || run.mechanisms.iter().flat_map(|of| &of.sites);
        let is_new = |site: &&SiteRow| !self.known.contains_key(&site.frames);
        let mut new: Vec<SiteRow> = sites().filter(is_new).cloned().collect();
        let frames: Vec<Vec<Frame>> = new.iter().map(|site| site.frames.clone()).collect();
        let started = SystemTime::now().checked_sub(Duration::from_nanos(run.ran_ns));
        let symboliser = Symboliser::new(started.unwrap_or(SystemTime::UNIX_EPOCH));
        sites::name(&mut new, &symboliser);
        self.known.extend(frames.into_iter().zip(new));
        let mut sites = run.mechanisms.iter_mut().flat_map(|of| &mut of.sites);
        for site in &mut sites {
            let signature = site.signature;
            *site = self.known[&site.frames].clone();
            site.signature = signature;
        }
    }
}

/// The figures of a mechanism as JSON.
pub(crate) fn to_figures(figures: &impl Serialize) -> Value {
    serde_json::to_value(figures).unwrap_or_default()
}

/// The report of a mechanism as JSON: its figures, and how long the agent and the program ran.
pub(crate) fn to_report(figures: &impl Serialize, agent: Duration, ran: Duration) -> Value {
    #[derive(Serialize)]
    struct Report<'a, F> {
        #[serde(flatten)]
        figures: &'a F,
        agent_ns: u64,
        ran_ns: u64,
    }
    to_figures(&Report {
        figures,
        agent_ns: agent.as_nanos() as u64,
        ran_ns: ran.as_nanos() as u64,
    })
}

/// A region of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionStatus {
    /// The process.
    pub pid: Pid,
    /// Its address.
    pub start: u64,
    /// Its size.
    pub bytes: u64,
    /// The signature of the call site that allocated it.
    #[serde(with = "crate::decision_log::hex")]
    pub signature: u64,
    /// What the policy has decided about it, in a word.
    pub state: String,
    /// Pages that are known to be on each node.
    pub pages: Vec<u64>,
}

/// The file of a run's status. It is removed on drop.
#[derive(Debug)]
pub(crate) struct StatusFile {
    path: PathBuf,
}

impl StatusFile {
    /// `None` where no folder can be made that is private to the user.
    pub(crate) fn new(agent: Pid) -> Option<StatusFile> {
        let folder = status_folder().ok()?;
        remove_abandoned(&folder);
        Some(StatusFile {
            path: folder.join(format!("{agent}.json")),
        })
    }

    /// Replaces the file. An error is ignored: the run goes on without a status.
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

/// `hither` in `$XDG_RUNTIME_DIR`, or else `hither-runs-` and the user's number in `/dev/shm`, or
/// in `/tmp` where there is no `/dev/shm`: it is there, and only this user can write it.
fn status_folder() -> io::Result<PathBuf> {
    let shm = Path::new("/dev/shm");
    let shared = if shm.is_dir() { shm } else { Path::new("/tmp") };
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(runtime) if runtime.is_absolute() => {
            private_folder::own(&runtime, "hither", FOLDER_MODE)
        }
        _ => {
            let name = format!("hither-runs-{}", private_folder::user()?);
            private_folder::own(shared, &name, FOLDER_MODE)
        }
    }
}

/// Removes the files of agents that were killed, half-written ones as well.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let agent = path.file_stem().and_then(|stem| stem.to_str());
        let agent = agent.and_then(|agent| agent.parse().ok());
        if agent.is_some_and(|agent: Pid| !is_alive(agent)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// The current runs of this user, ordered by process id of the agent. Removes files of runs whose
/// agent was killed.
pub fn runs() -> Vec<Status> {
    let Ok(folder) = status_folder() else {
        return Vec::new();
    };
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut runs: Vec<Status> = files.filter_map(|file| read(&file.path())).collect();
    runs.sort_by_key(|run| run.agent);
    runs
}

/// The latest status of the run with this agent.
pub fn run_of(agent: Pid) -> Option<Status> {
    let folder = status_folder().ok()?;
    read(&folder.join(format!("{agent}.json")))
}

fn read(path: &Path) -> Option<Status> {
    if path.extension()? != "json" {
        return None;
    }
    let agent: Pid = path.file_stem()?.to_str()?.parse().ok()?;
    if !is_alive(agent) {
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
        let agent = Pid::own();
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
        let partial = scratch.path().join("4194305.partial");
        for path in [&stale, &partial] {
            fs::write(path, "{").expect("written");
        }
        remove_abandoned(scratch.path());
        assert!(!stale.exists() && !partial.exists() && status_file.path.exists());
        fs::write(&status_file.path, "{").expect("written");
        assert_eq!(read(&status_file.path), None, "half a document");
        let path = status_file.path.clone();
        drop(status_file);
        assert!(!path.exists());
    }
}
