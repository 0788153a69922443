//! Boots a machine once and keeps its state at the point where init waits for a job.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::packages::hex;
use super::process::Qemu;
use super::{Tools, initramfs, qemu};
use crate::machine::Machine;

/// A boot takes 5 to 10 s; 16 nodes on a busy machine take a minute.
const BOOT_TIMEOUT: Duration = Duration::from_secs(300);

/// The path of the machine's snapshot, booting the machine where it is not there yet. Two processes that want the same snapshot
/// boot once: the second waits for the lock.
pub(super) fn ensure(tools: &Tools, machine: &Machine, quiet: bool) -> Result<PathBuf> {
    machine.check()?;
    let path = tools
        .cache()
        .join("snapshots")
        .join(format!("{}.state", name(tools, machine)?));
    if path.exists() {
        return Ok(path);
    }
    let folder = path.parent().expect("the path was joined");
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let lock = File::create(path.with_extension("lock"))?;
    lock.lock()
        .context("waiting for another boot of the same machine")?;
    if !path.exists() {
        if !quiet {
            eprintln!(
                "booting {} nodes, {} CPUs ...",
                machine.nodes.len(),
                machine.cpus()
            );
        }
        let partial = tempfile::Builder::new()
            .prefix(".boot-")
            .tempfile_in(folder)?;
        boot(tools, machine, partial.path())?;
        partial
            .persist(&path)
            .with_context(|| path.display().to_string())?;
    }
    Ok(path)
}

/// The snapshot's name: a hash of all that its state depends on.
fn name(tools: &Tools, machine: &Machine) -> Result<String> {
    let key = json!([
        machine.options(tools.qemu_major()),
        qemu::KERNEL_ARGUMENTS,
        tools.versions()
    ]);
    let mut hash = Sha256::new();
    hash.update(serde_json::to_vec(&key)?);
    hash.update(fs::read(tools.initramfs())?);
    Ok(hex(&hash.finalize()[..8]))
}

fn boot(tools: &Tools, machine: &Machine, to: &Path) -> Result<()> {
    let disk = tempfile::NamedTempFile::new()?;
    disk.as_file().set_len(512)?;
    let mut qemu = Qemu::start(tools, machine, disk.path(), &[], BOOT_TIMEOUT)?;
    qemu.receive(|bytes| {
        Ok(String::from_utf8_lossy(bytes)
            .contains(initramfs::READY)
            .then_some(()))
    })?;
    // Init has written its word but may not yet sleep in its read, and the last of the boot's work is still under way.
    std::thread::sleep(Duration::from_millis(500));
    qemu.command("stop", json!({}))?;
    // The default would hold the writing back as if other guests' networks suffered by it.
    qemu.command(
        "migrate-set-parameters",
        json!({"max-bandwidth": 1_u64 << 40}),
    )?;
    // `exec:` rather than `file:`, which QEMU 7.2 lacks.
    qemu.command(
        "migrate",
        json!({"uri": format!("exec:cat > {}", shell_quote(to))}),
    )?;
    qemu.wait_status("query-migrate", "completed")?;
    qemu.command("quit", json!({}))?;
    qemu.wait()
}

/// QEMU's options to resume from a snapshot.
pub(super) fn resume_options(from: &Path) -> Vec<String> {
    vec![
        "-incoming".into(),
        format!("exec:cat {}", shell_quote(from)),
    ]
}

fn shell_quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
