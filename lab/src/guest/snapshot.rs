//! Boots a machine once and keeps its state at rest: the kernel has done what it puts off at a
//! boot, init waits for a job, and every CPU is halted. Otherwise what is left of the boot would be
//! counted as part of whatever resumes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::process::{Console, Qemu};
use super::tools::Tools;
use super::{initramfs, qemu};
use crate::cache::SNAPSHOT;
use crate::hash;
use crate::interrupt;
use crate::machine::Machine;

/// Boots that are tried.
const ATTEMPTS: u32 = 3;

/// A boot takes 5 to 10 s; 16 nodes on a busy machine take a minute.
const BOOT_TIMEOUT: Duration = Duration::from_secs(300);

/// A machine that has booted and waits for a job.
pub(crate) struct Guest<'a> {
    pub(super) tools: &'a Tools,
    pub(super) machine: Machine,
    /// Its path.
    pub(super) snapshot: PathBuf,
}

impl<'a> Guest<'a> {
    /// The machine's snapshot. Boots the machine first if the cache has none.
    pub(crate) fn snapshot(tools: &'a Tools, machine: &Machine, quiet: bool) -> Result<Self> {
        Ok(Self {
            tools,
            machine: machine.clone(),
            snapshot: ensure(tools, machine, quiet)?,
        })
    }
}

/// The path of the machine's snapshot. Boots the machine if the cache has none.
fn ensure(tools: &Tools, machine: &Machine, quiet: bool) -> Result<PathBuf> {
    tools.cache().entry(&name(tools, machine)?, |path| {
        if !quiet {
            let (nodes, cpus) = (machine.nodes.len(), machine.cpus());
            eprintln!("booting {nodes} nodes, {cpus} CPUs ...");
        }
        // On a busy host, a boot may fail that succeeds later.
        for attempt in 1.. {
            match boot(tools, machine, path) {
                Err(error) if attempt < ATTEMPTS && interrupt::check().is_ok() => {
                    eprintln!("once more: {error:#}");
                    let _ = fs::remove_file(path);
                }
                result => return result,
            }
        }
        unreachable!("the last attempt returns")
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
    let said = qemu.receive(|bytes| {
        let said = String::from_utf8_lossy(bytes);
        Ok(said.contains(initramfs::READY).then(|| said.into_owned()))
    })?;
    ensure!(
        !said.contains(initramfs::RESTLESS),
        qemu.failure("did not come to rest in 60 s")
    );
    stop_at_rest(&mut qemu)?;
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

/// Stops the guest at a moment when every CPU is halted: init then sleeps in its read.
fn stop_at_rest(qemu: &mut Qemu) -> Result<()> {
    loop {
        qemu.command("stop", json!({}))?;
        let arguments = json!({ "command-line": "info registers -a" });
        let registers = qemu.command("human-monitor-command", arguments)?;
        let registers = registers.as_str().unwrap_or_default();
        ensure!(
            registers.contains("HLT="),
            qemu.failure(&format!("has no state of its CPUs: {registers:?}"))
        );
        if !registers.contains("HLT=0") {
            return Ok(());
        }
        qemu.tick()?;
        qemu.command("cont", json!({}))?;
        std::thread::sleep(Duration::from_millis(5));
    }
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
