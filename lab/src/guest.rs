//! Guests: Linux under QEMU's TCG with the nodes of a `Machine`.
//!
//! Everything that runs comes from Debian's packages. They are unpacked into a cache and started by
//! the cache's own loader, so nothing is installed, and results depend on the recorded versions and
//! not on the host. A machine boots once, until its init waits for a job. Every run resumes from
//! this snapshot: a second rather than ten, and each run starts from the same state of the kernel.

mod initramfs;
mod job;
mod mirror;
mod outside;
mod packages;
mod process;
mod qemu;
mod snapshot;
mod tools;

use std::time::Duration;

use anyhow::{Result, ensure};

pub(crate) use self::initramfs::mount;
pub(crate) use self::job::{Job, PluginArgs};
pub(crate) use self::outside::{Outside, inside, mount as mount_outside};
pub(crate) use self::process::LINES_SHOWN;
pub(crate) use self::snapshot::Guest;
pub(crate) use self::tools::Tools;
use crate::cache::Cache;
use crate::machine::{Machine, Node};

/// `lab setup`: fetches the tools, boots a machine of two nodes, and reports what it found.
pub(crate) fn setup(cache: &Cache, quiet: bool) -> Result<String> {
    let tools = Tools::ready(cache, quiet)?;
    let node = Node {
        cpus: 1,
        memory_mib: 256,
    };
    let machine = Machine {
        nodes: vec![node.clone(), node],
        distances: Vec::new(),
        hmat: false,
        icount: false,
    };
    let guest = Guest::snapshot(&tools, &machine, quiet)?;
    let ran = guest.run(&Job::new(
        "uname -srv; numactl --hardware",
        Duration::from_secs(120),
    ))?;
    ensure!(
        ran.status == 0,
        "the guest's first job failed with {}:\n{}{}",
        ran.status,
        ran.stdout,
        ran.console
    );
    let mut report = format!("cache: {}\n", cache.folder().display());
    // The rest is in the cache, in versions.json, and in each result.
    let shown = |name: &str| {
        name.starts_with("linux-image-6") || name == "numactl" || name == "qemu-system-x86"
    };
    for (name, version) in tools.versions().iter().filter(|(name, _)| shown(name)) {
        report.push_str(&format!("{name} {version}\n"));
    }
    report.push_str(&format!(
        "resume and job: {:.1} s\n{}",
        ran.host_seconds, ran.stdout
    ));
    Ok(report)
}
