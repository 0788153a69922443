//! Boots a machine once and keeps its state at the point where init waits for a job.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::process::{Console, Qemu};
use super::{Tools, initramfs, qemu};
use crate::cache::SNAPSHOT;
use crate::hash;
use crate::machine::Machine;

/// A boot takes 5 to 10 s; 16 nodes on a busy machine take a minute.
const BOOT_TIMEOUT: Duration = Duration::from_secs(300);

/// The path of the machine's snapshot. Boots the machine if the cache has none.
pub(super) fn ensure(tools: &Tools, machine: &Machine, quiet: bool) -> Result<PathBuf> {
    tools.cache().entry(&name(tools, machine)?, |path| {
        if !quiet {
            let (nodes, cpus) = (machine.nodes.len(), machine.cpus());
            eprintln!("booting {nodes} nodes, {cpus} CPUs ...");
        }
        boot(tools, machine, path)
    })
}

/// The snapshot's name: a hash of all inputs of its state.
fn name(tools: &Tools, machine: &Machine) -> Result<String> {
    let key = json!([
        machine.options(tools.qemu_major()),
        qemu::KERNEL_ARGUMENTS,
        tools.versions(),
        // A hash of its content.
        tools
            .initramfs()
            .file_name()
            .map(|name| name.to_string_lossy()),
    ]);
    let hash = hash::short([&serde_json::to_vec(&key)?[..]]);
    Ok(format!("{SNAPSHOT}{hash}"))
}

fn boot(tools: &Tools, machine: &Machine, to: &Path) -> Result<()> {
    let no_job = |disk: &Path| Ok(fs::write(disk, [0; 512])?);
    let mut qemu = Qemu::start(tools, machine, no_job, &[], Console::File, BOOT_TIMEOUT)?;
    qemu.receive(|bytes| {
        Ok(String::from_utf8_lossy(bytes)
            .contains(initramfs::READY)
            .then_some(()))
    })?;
    // Init has written its message, but may not yet sleep in its read, and some work of the boot
    // may still be running.
    std::thread::sleep(Duration::from_millis(500));
    qemu.command("stop", json!({}))?;
    // By default QEMU limits the bandwidth, as if other guests shared the network.
    qemu.command(
        "migrate-set-parameters",
        json!({"max-bandwidth": 1_u64 << 40}),
    )?;
    // `exec:` rather than `file:`, which QEMU 7.2 lacks. QEMU finishes when the pipe has taken
    // everything, and only the shell knows whether the disk has it.
    let file = shell_quote(to);
    let uri = format!("exec:cat > {file} || rm -f {file}");
    qemu.command("migrate", json!({ "uri": uri }))?;
    qemu.wait_status("query-migrate", "completed")?;
    qemu.command("quit", json!({}))?;
    qemu.wait()?;
    ensure!(to.exists(), qemu.failure("could not be saved"));
    Ok(())
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
