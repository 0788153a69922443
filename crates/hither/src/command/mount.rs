//! `hither mount`: a cache over slow shared storage, as a directory.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use hither_analysis::format::bytes as readable;
use hither_core::Spec;
use hither_mount::{Consistency, MountSettings, Mounted};
use hither_node::config::{ClusterConfig, Joined};
use hither_node::node::{Node, NodeSettings};
use hither_node::source::registry;
use hither_node::source::settings::SourceSettings;
use hither_node::store::disk::settings::DiskSettings;
use hither_node::volume::{Counts, Volume, VolumeSettings};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::options::cached_volume::{key_and_value, size_bytes, volume_name};
use super::subcommand::Subcommand;
use crate::exit::Usage;
use crate::ui::Ui;

/// Show a bucket or a directory of slow shared storage as a fast one
#[derive(Args, Debug)]
#[command(after_help = "\
Programs read the files below DIRECTORY as they are at SOURCE. What they read is
kept in memory, and what they will likely read next is fetched ahead. The mount
lasts until Ctrl-C or `hither unmount DIRECTORY`. Nothing at the source is ever
changed.

SOURCE is one of
  s3://BUCKET/PREFIX      with the usual AWS_... variables or --option
  gs://BUCKET/PREFIX      with GOOGLE_... variables
  az://CONTAINER/PREFIX   with AZURE_... variables
  http(s)://HOST/PATH     a web server with ranges
  /PATH or file:///PATH   a directory: NFS, Lustre, any file system

Examples:
  hither mount s3://bucket/data /mnt/data
  hither mount --memory 16GiB --consistency immutable s3://bucket/data /mnt/data
  hither mount --option endpoint=http://127.0.0.1:7070 s3://bucket /mnt/data
  hither mount --background /nfs/data /mnt/data
  hither mount --disk /ssd/cache --disk-size 200GiB s3://bucket/data /mnt/data
  hither mount --cluster cluster.toml s3://bucket/data /mnt/data")]
pub(super) struct Mount {
    /// Where the data is
    #[arg(value_name = "SOURCE")]
    source: String,

    /// Where programs will see it
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,

    /// Memory for file contents, a hard limit [default: a quarter of what is free]
    #[arg(long, value_name = "BYTES", value_parser = size_bytes)]
    memory: Option<u64>,

    /// Keep blocks in this folder too, over restarts
    #[arg(long, value_name = "DIRECTORY", requires = "disk_size")]
    disk: Option<PathBuf>,

    /// What they may take there, a hard limit
    #[arg(long, value_name = "BYTES", requires = "disk", value_parser = size_bytes)]
    disk_size: Option<u64>,

    /// Length of a block of the cache
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "128KiB",
        value_parser = size_bytes,
        hide_short_help = true
    )]
    block: u64,

    /// What the memory keeps: a replacement policy (`hither policies` lists them)
    #[arg(long, value_name = "POLICY", default_value = "s3-fifo")]
    policy: Spec,

    /// How old what a program opens may be: strict, ttl=SECONDS or immutable
    #[arg(long, value_name = "MODE", default_value = "ttl=1")]
    consistency: Consistency,

    /// How far to read ahead of a sequential reader, at most; 0 for not at all
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = size_bytes)]
    prefetch: u64,

    /// Share blocks with the machines that this file names (TOML)
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,

    /// The name under which machines share the blocks of this source [default: SOURCE]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    volume: Option<String>,

    /// An option of the source, such as region=eu-west-1, endpoint=URL, skip_signature=true
    #[arg(long = "option", short = 'o', value_name = "KEY=VALUE", value_parser = key_and_value)]
    options: Vec<(String, String)>,

    /// Requests to the source at the same time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..),
        hide_short_help = true
    )]
    requests: u16,

    /// Let other users see the files too
    #[arg(long)]
    allow_other: bool,

    /// Read past the kernel's page cache
    #[arg(long)]
    direct_io: bool,

    /// Threads that answer the kernel [default: one a processor, at least 4]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256),
        hide_short_help = true
    )]
    threads: Option<u16>,

    /// Return once it is mounted, and serve it from a process of its own
    #[arg(long)]
    background: bool,
}

/// What a process in the background prints once it serves.
const READY: &str = "ready\n";

/// Tells a process that it is the one in the background.
const IN_BACKGROUND: &str = "HITHER_MOUNT_IN_BACKGROUND";

/// How long reads that are under way may go on after the mount was ended.
const PATIENCE: Duration = Duration::from_secs(5);

impl Subcommand for Mount {
    const NAME: &'static str = "mount";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let is_child = std::env::var_os(IN_BACKGROUND).is_some();
        if self.background && !is_child {
            return start_in_background();
        }
        if is_child {
            // Fails only for a leader of a group, which a process that was just started is not.
            let _ = rustix::process::setsid();
        }
        let runtime = Runtime::new().context("starting threads")?;
        // From before it is there on, so that no signal leaves a mount that nobody serves.
        let ends = {
            let _inside = runtime.enter();
            EndSignals::new().context("watching for signals")?
        };
        let (mounted, joined) = self.mount(&runtime)?;
        let volume = Arc::clone(mounted.volume());
        let place = mounted.path().display().to_string();
        if is_child {
            let mut stdout = std::io::stdout();
            stdout
                .write_all(READY.as_bytes())
                .and_then(|()| stdout.flush())?;
            leave_the_terminal()?;
        } else {
            ui.note(format_args!(
                "{} is at {place}, with {} of memory; Ctrl-C ends it",
                self.source,
                readable(volume.node().settings().memory_bytes),
            ));
        }
        runtime.block_on(ends.wait(&mounted));
        // The others learn at once that this node goes.
        if let Some(joined) = joined {
            runtime.block_on(joined.leave());
        }
        mounted
            .unmount(PATIENCE)
            .with_context(|| format!("unmounting {place}"))?;
        volume.node().close();
        ui.note(summary(&volume.counters().counts()));
        // Open files of a mount that was taken away would keep threads of the runtime.
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }
}

impl Mount {
    fn disk_settings(&self) -> anyhow::Result<Option<DiskSettings>> {
        let (Some(folder), Some(bytes_max)) = (self.disk.clone(), self.disk_size) else {
            return Ok(None);
        };
        // The mount would hide it.
        if let (Ok(place), Ok(disk)) = (
            self.directory.canonicalize(),
            std::path::absolute(&folder).map(|it| it.canonicalize().unwrap_or(it)),
        ) && disk.starts_with(&place)
        {
            bail!("--disk: {} lies below the mount", folder.display());
        }
        Ok(Some(DiskSettings { folder, bytes_max }))
    }

    fn mount(&self, runtime: &Runtime) -> anyhow::Result<(Mounted, Option<Joined>)> {
        if let (Ok(source), Ok(place)) = (
            Path::new(&volume_name(&self.source)).canonicalize(),
            self.directory.canonicalize(),
        ) && place.starts_with(&source)
            && place != source
        {
            let place = self.directory.display();
            bail!(
                "{place} lies below {}: it would contain itself",
                self.source
            );
        }
        let settings = SourceSettings {
            options: self.options.iter().cloned().collect(),
            requests_max: self.requests.into(),
            ..SourceSettings::default()
        };
        let source = runtime.block_on(registry::open(&self.source, &settings))?;
        let block_bytes = u32::try_from(self.block).ok();
        let block_bytes = block_bytes.filter(|bytes| bytes.is_power_of_two());
        let Some(block_bytes) = block_bytes.filter(|bytes| (4 << 10..=8 << 20).contains(bytes))
        else {
            let reason = "--block: a power of two from 4KiB to 8MiB is expected";
            return Err(Usage(reason.to_owned()).into());
        };
        let memory_bytes = match self.memory {
            Some(bytes) => bytes,
            None => hither_analysis::free_memory::half_of_free_bytes() / 2,
        };
        let settings = NodeSettings {
            memory_bytes,
            block_bytes,
            policy: self.policy,
            prefetches_max: self.requests.div_ceil(2).into(),
            disk: self.disk_settings()?,
        };
        let node = Node::new(settings, runtime.handle().clone())?;
        let joined = match &self.cluster {
            Some(path) => Some(runtime.block_on(join(&node, path))?),
            None => None,
        };
        let settings = VolumeSettings {
            name: match &self.volume {
                Some(name) => name.clone(),
                None => volume_name(&self.source),
            },
            // Prefetches of a few readers fit into the memory that is not for resident blocks.
            prefetch_bytes_max: self.prefetch.min(memory_bytes / 16),
        };
        let volume = Volume::new(node, source, settings);
        let settings = MountSettings {
            name: self.source.clone(),
            consistency: self.consistency,
            direct_io: self.direct_io,
            allow_other: self.allow_other,
            threads: self.threads.map(usize::from),
        };
        let mounted = Mounted::new(volume, &self.directory, &settings)?;
        Ok((mounted, joined))
    }
}

/// Makes `node` one of the cluster that the file at `path` describes.
async fn join(node: &Arc<Node>, path: &Path) -> anyhow::Result<Joined> {
    let config = ClusterConfig::load(path)?;
    let joined = config.join().await?;
    node.join(config.mesh.clone(), joined.membership()).await?;
    Ok(joined)
}

/// The signals that end a mount.
struct EndSignals([Signal; 3]);

impl EndSignals {
    fn new() -> std::io::Result<EndSignals> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let [interrupt, terminate, hang_up] = kinds.map(signal);
        Ok(EndSignals([interrupt?, terminate?, hang_up?]))
    }

    /// Waits for one of them, or for somebody to unmount.
    async fn wait(self, mounted: &Mounted) {
        let EndSignals([mut interrupt, mut terminate, mut hang_up]) = self;
        loop {
            tokio::select! {
                _ = interrupt.recv() => return,
                _ = terminate.recv() => return,
                _ = hang_up.recv() => return,
                () = tokio::time::sleep(Duration::from_millis(100)) => {
                    if mounted.is_over() {
                        return;
                    }
                }
            }
        }
    }
}

/// Lets go of what the process was started with: a pipe or a terminal that somebody reads to its
/// end, and a folder that somebody may want to remove.
fn leave_the_terminal() -> anyhow::Result<()> {
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/")?;
    Ok(())
}

/// Starts this command once more, as a process of its own, and waits until it serves.
fn start_in_background() -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(IN_BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a process in the background")?;
    let mut line = String::new();
    let stdout = child.stdout.take().context("its output is a pipe")?;
    BufReader::new(stdout).read_line(&mut line)?;
    if line == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    match status.success() {
        true => bail!("the process in the background ended before it served"),
        false => Ok(crate::exit::code_of(status)),
    }
}

/// Where the reads of a mount were served from.
fn summary(counts: &Counts) -> String {
    format!(
        "{} read: {} were in memory, {} were waited for; {} came from the disk, {} from the source \
         in {} requests (reads that the kernel's page cache served are not seen)",
        readable(counts.read_bytes),
        readable(counts.memory_bytes),
        readable(counts.awaited_bytes),
        readable(counts.disk_bytes),
        readable(counts.fetched_bytes),
        counts.fetches,
    )
}
