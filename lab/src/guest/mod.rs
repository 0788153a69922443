//! Guests: Linux under QEMU's TCG with the nodes that a `Machine` asks for.
//!
//! Everything that runs comes from Debian's packages, unpacked into a cache and started by the cache's own loader, so
//! that nothing need be installed: results then depend on the recorded versions and not on the host. A machine boots
//! once, up to the point where its init waits for a job, and every run resumes from that snapshot: 0.5 s rather than 10 s,
//! and each run begins from the same state of the kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::counts;
use crate::machine::Machine;

/// QEMU, the kernel and the guest's programs in the cache.
pub(crate) struct Tools {
    root: PathBuf,
    versions: BTreeMap<String, String>,
}

impl Tools {
    /// Finds the tools in the cache, or downloads and unpacks them there.
    pub(crate) fn ready(_quiet: bool) -> Result<Self> {
        bail!("the guests' tools are not built yet")
    }

    /// The version of each package in the cache.
    pub(crate) fn cache(&self) -> &std::path::Path {
        &self.root
    }

    /// The version
    pub(crate) fn versions(&self) -> &BTreeMap<String, String> {
        &self.versions
    }
}

/// A machine that has booted and waits for a job.
pub(crate) struct Guest {
    snapshot: PathBuf,
}

/// What a guest is to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    files: Vec<(PathBuf, String)>,
    programs: Vec<PathBuf>,
    script: String,
    plugin: Option<PluginArgs>,
    timeout: Duration,
}

/// The counting plugin and what it is told.
#[derive(Clone, Debug)]
pub(crate) struct PluginArgs {
    /// The shared library.
    pub(crate) library: PathBuf,
    /// Its options besides `out`, `cpus` and `memory`, which the guest knows: `key=value`.
    pub(crate) options: Vec<String>,
}

/// What a job left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    /// What the script wrote to its standard output.
    pub(crate) stdout: String,
    /// The script's exit status.
    pub(crate) status: i32,
    /// The kernel's messages and the script's standard error.
    pub(crate) console: String,
    /// What the plugin counted; empty without one.
    pub(crate) counts: Vec<counts::Interval>,
    /// Time from QEMU's start to its end.
    pub(crate) host_seconds: f64,
    /// CPU time that QEMU took.
    pub(crate) cpu_seconds: f64,
}

impl Job {
    /// A job that runs `script` by `/bin/sh` in `/job`; the guest is killed after `timeout` of the host's time.
    pub(crate) fn new(script: impl Into<String>, timeout: Duration) -> Self {
        Self {
            script: script.into(),
            timeout,
            ..Self::default()
        }
    }

    /// Puts a file of the host at `/job/NAME`; it stays executable.
    pub(crate) fn file(mut self, path: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        self.files.push((path.into(), name.into()));
        self
    }

    /// Puts a program of the host at `/job/NAME` (its file name) together with the libraries that `ldd` names.
    pub(crate) fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.programs.push(path.into());
        self
    }

    /// Runs the job under the plugin.
    pub(crate) fn plugin(mut self, plugin: PluginArgs) -> Self {
        self.plugin = Some(plugin);
        self
    }
}

impl Guest {
    /// The machine's snapshot; boots the machine first where the cache has none.
    pub(crate) fn snapshot(_tools: &Tools, _machine: &Machine, _quiet: bool) -> Result<Self> {
        bail!("the guests' snapshots are not built yet")
    }

    /// Resumes the machine, runs the job, and waits for the guest's end.
    pub(crate) fn run(&self, _job: &Job) -> Result<Ran> {
        bail!("the guests' jobs are not built yet")
    }
}

/// `lab setup`: fetches the tools, boots a machine of two nodes, and says what it found.
pub(crate) fn setup(_quiet: bool) -> Result<String> {
    bail!("the guests' tools are not built yet")
}
