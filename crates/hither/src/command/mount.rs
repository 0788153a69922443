//! `hither mount`: a cache over slow shared storage, as a directory.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use hither_analysis::format::bytes as readable;
use hither_core::Spec;
use hither_mount::{Consistency, MountSettings};
use hither_node::source::name::public_name;
use hither_node::store::disk::settings::DiskSettings;
use tracing_subscriber::filter::LevelFilter;

use super::options::log::LogArgs;
use super::subcommand::Subcommand;
use crate::ui::Ui;
use hither_service::file;
use hither_service::running::{Ends, Service};
use hither_service::settings::{
    CacheSettings, MountPoint, ServedSettings, ServiceSettings, default,
};
use hither_service::values::{address, block_bytes, key_and_value, size_bytes};

const EXAMPLES: &str = "\
Examples:
  hither mount s3://bucket/data /mnt/data
  hither mount --memory 16GiB --consistency immutable s3://bucket/data /mnt/data
  hither mount --option endpoint=http://127.0.0.1:7070 s3://bucket /mnt/data
  hither mount --background /nfs/data /mnt/data
  hither mount --disk /ssd/cache --disk-size 200GiB s3://bucket/data /mnt/data
  hither mount --write /nfs/data /mnt/data
  hither mount --cluster cluster.toml s3://bucket/data /mnt/data";

const DETAILS: &str = "\
Programs read the files below DIRECTORY as they are at SOURCE. What they read is
kept in memory, and what they will likely read next is fetched ahead. The mount
lasts until Ctrl-C or `hither unmount DIRECTORY`. Nothing at the source is
changed, unless --write is given: then a file is there when close returns.

SOURCE is one of
  s3://BUCKET/PREFIX      with the usual AWS_... variables or --option
  gs://BUCKET/PREFIX      with GOOGLE_... variables
  az://CONTAINER/PREFIX   with AZURE_... variables
  http(s)://HOST/PATH     a web server with ranges
  PATH or file:///PATH    a directory: NFS, Lustre, any file system";

/// Show a bucket or slow shared storage as a fast directory
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{DETAILS}\n\n{EXAMPLES}"))]
pub(super) struct Mount {
    /// Where the data is
    #[arg(value_name = "SOURCE")]
    source: String,

    /// Where programs will see it
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,

    /// Memory for contents, a hard limit [default: 1/4 of what is free]
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
        default_value = default::BLOCK,
        value_parser = block_bytes,
        hide_short_help = true
    )]
    block: u32,

    /// What the memory keeps: a replacement policy (`hither policies` lists them)
    #[arg(
        long,
        value_name = "POLICY",
        default_value = default::POLICY,
        hide_short_help = true
    )]
    policy: Spec,

    /// How old files may be: strict, ttl=SECONDS, immutable
    ///
    /// It is about what a program opens.
    #[arg(long, value_name = "MODE", default_value = default::CONSISTENCY)]
    consistency: Consistency,

    /// How far to read ahead of a sequential reader, at most; 0 for not at all
    #[arg(
        long,
        value_name = "BYTES",
        default_value = default::PREFETCH,
        value_parser = size_bytes,
        hide_short_help = true
    )]
    prefetch: u64,

    /// Share blocks with the machines that this file names (TOML)
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,

    /// The name under which machines share the blocks of this source [default: SOURCE]
    #[arg(
        long,
        value_name = "NAME",
        requires = "cluster",
        hide_short_help = true
    )]
    volume: Option<String>,

    /// Write what the placement is told and answers to a new file, for `hither cluster replay`
    #[arg(long, value_name = "LOG", requires = "cluster", hide_short_help = true)]
    placement_log: Option<PathBuf>,

    /// An option of the source, such as region=eu-west-1
    ///
    /// Others are endpoint=URL and skip_signature=true.
    #[arg(long = "option", short = 'o', value_name = "KEY=VALUE", value_parser = key_and_value)]
    options: Vec<(String, String)>,

    /// Requests to the source at the same time
    #[arg(
        long,
        value_name = "N",
        default_value_t = default::REQUESTS,
        value_parser = clap::value_parser!(u16).range(1..),
        hide_short_help = true
    )]
    requests: u16,

    /// Pass changes on to SOURCE. Without it nothing there is changed
    #[arg(long)]
    write: bool,

    /// Let other users see the files too
    #[arg(long)]
    allow_other: bool,

    /// Read past the kernel's page cache
    #[arg(long, hide_short_help = true)]
    direct_io: bool,

    /// Let the kernel read files by itself that --disk has whole; root only
    #[arg(
        long,
        requires = "disk",
        conflicts_with = "direct_io",
        hide_short_help = true
    )]
    passthrough: bool,

    /// Threads that answer the kernel [default: one a processor, at least 4]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256),
        hide_short_help = true
    )]
    threads: Option<u16>,

    /// Serve Prometheus metrics at ADDR, an address and a port
    ///
    /// A port alone is one of this machine.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    metrics: Option<SocketAddr>,

    /// Write what programs read as a trace, for `hither sim` and `hither advise`
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    trace: Option<PathBuf>,

    #[command(flatten)]
    log: LogArgs,

    /// Return once it is mounted, and serve it from a process of its own
    #[arg(long)]
    background: bool,
}

/// What a process in the background prints once it serves.
const READY: &str = "ready\n";

/// Tells a process that it is the one in the background.
const IN_BACKGROUND: &str = "HITHER_MOUNT_IN_BACKGROUND";

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
        self.log.start(LevelFilter::WARN)?;
        let source = public_name(&self.source);
        let mut service = Service::start(self.settings()?)?;
        if is_child {
            let mut stdout = std::io::stdout();
            stdout
                .write_all(READY.as_bytes())
                .and_then(|()| stdout.flush())?;
            leave_the_terminal()?;
        } else {
            if let Some(at) = service.metrics() {
                ui.note(format_args!("metrics at http://{at}/metrics"));
            }
            let mounts = service.mounts().iter();
            let places: Vec<String> = mounts
                .map(|mounted| mounted.path().display().to_string())
                .collect();
            ui.note(format_args!(
                "{source} is at {}, with {} of memory; Ctrl-C ends it",
                places.join(", "),
                readable(service.memory_bytes()),
            ));
        }
        service.wait(Ends::WithItsMounts);
        for line in service.end()? {
            ui.note(line);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Mount {
    fn settings(self) -> anyhow::Result<ServiceSettings> {
        let cluster = self.cluster.as_deref().map(file::cluster).transpose()?;
        let mount = MountPoint {
            directory: self.directory,
            settings: MountSettings {
                consistency: self.consistency,
                write: self.write,
                allow_other: self.allow_other,
                direct_io: self.direct_io,
                passthrough: self.passthrough,
                threads: self.threads,
            },
        };
        let source = ServedSettings::source_from(self.source, Path::new(""));
        let volume = ServedSettings {
            name: ServedSettings::name_or_default(self.volume, &source),
            source,
            options: self.options.into_iter().collect(),
            prefetch_bytes: self.prefetch,
            mount: Some(mount),
        };
        Ok(ServiceSettings {
            file: None,
            name: cluster.as_ref().map(|config| config.mesh.me.clone()),
            cluster,
            cache: CacheSettings {
                memory_bytes: self.memory,
                block_bytes: self.block,
                policy: self.policy,
                requests: self.requests,
                disk: disk_settings(self.disk, self.disk_size),
            },
            metrics: self.metrics,
            trace: self.trace,
            placement_log: self.placement_log,
            volumes: vec![volume],
        })
    }
}

fn disk_settings(folder: Option<PathBuf>, bytes_max: Option<u64>) -> Option<DiskSettings> {
    Some(DiskSettings {
        folder: folder?,
        bytes_max: bytes_max?,
    })
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
    if status.success() {
        bail!("the process in the background ended before it served")
    } else {
        Ok(crate::exit::code_of(status))
    }
}
