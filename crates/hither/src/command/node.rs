//! `hither node`: a member of a cluster, or a node that is alone, from its file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hither_analysis::format::counted;
use hither_net::tls::CertificateEnd;
use tracing_subscriber::filter::LevelFilter;

use super::options::log::LogArgs;
use super::subcommand::Subcommand;
use crate::ui::{self, Ui};
use hither_service::file;
use hither_service::running::{Ends, Service};
use hither_service::settings::ServiceSettings;

/// Run a member of a cluster cache, or a lone node, from a file
#[derive(Args, Debug)]
#[command(after_help = "\
FILE says what the node keeps in memory, what it mounts, and who the others are:

  name = \"a\"                    # without name to [members] it is alone
  cluster = \"lab\"
  listen = \"10.0.0.1:7300\"
  tls = { authority = \"ca.pem\", certificate = \"a.pem\", key = \"a.key\" }
  memory = \"64GiB\"
  metrics = \"127.0.0.1:9300\"

  [members]
  a = \"10.0.0.1:7300\"
  b = \"10.0.0.2:7300\"

  [[volume]]
  source = \"s3://bucket/data\"
  directory = \"/mnt/data\"       # without it, it is cached for the others alone

Examples:
  hither node --check /etc/hither/node.toml    say what is wrong with the file
  hither node /etc/hither/node.toml            serve until Ctrl-C")]
pub(super) struct NodeCommand {
    /// What the node is (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Read FILE and the certificates that it names, say what is wrong, and exit
    #[arg(long)]
    check: bool,

    /// Write what programs read through the mounts as a trace, for `hither sim` and `hither advise`
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,

    /// Write what the placement is told and answers to a new file, for `hither cluster replay`
    #[arg(long, value_name = "LOG", hide_short_help = true)]
    placement_log: Option<PathBuf>,

    #[command(flatten)]
    log: LogArgs,
}

impl Subcommand for NodeCommand {
    const NAME: &'static str = "node";

    fn run(self, _: &Ui) -> anyhow::Result<ExitCode> {
        let mut settings = file::load(&self.file)?;
        settings.trace = self.trace;
        settings.placement_log = self.placement_log;
        if self.check {
            check(&self.file, &settings)?;
        } else {
            self.log.start(LevelFilter::INFO)?;
            serve(settings)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints what a file that is sound describes.
fn check(path: &Path, settings: &ServiceSettings) -> anyhow::Result<()> {
    let mounted = settings
        .volumes
        .iter()
        .filter(|volume| volume.mount.is_some());
    let mut text = format!(
        "{}: {}, {} of them mounted",
        path.display(),
        counted(settings.volumes.len() as u64, "volume"),
        mounted.count(),
    );
    if let Some(config) = &settings.cluster {
        let (me, cluster) = (&config.mesh.me, &config.mesh.cluster);
        text = format!("{text}; {me} of the cluster {cluster}");
        if let Some(certificate) = &config.certificate {
            let end = CertificateEnd::of(certificate)?;
            text = format!("{text}, with a certificate until {}", end.text);
        }
    }
    ui::print(&format!("{text}\n"))
}

/// All that a node says is in its log.
fn serve(settings: ServiceSettings) -> anyhow::Result<()> {
    let mut service = Service::start(settings)?;
    if let Some(at) = service.metrics() {
        tracing::info!("metrics at http://{at}/metrics");
    }
    service.wait(Ends::BySignal);
    for line in service.end()? {
        tracing::info!("{line}");
    }
    Ok(())
}
