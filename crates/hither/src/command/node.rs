//! `hither node`: a member of a cluster from its file, and the certificates of its members.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hither_analysis::format::counted;
use hither_core::Spec;
use hither_core::placement::PlacementEntry;
use hither_net::tls::{Authority, CertificateEnd};
use tracing_subscriber::filter::LevelFilter;

use super::options::log::LogArgs;
use super::subcommand::Subcommand;
use crate::ui::{self, Ui};
use hither_service::file;
use hither_service::running::{Ends, Service};
use hither_service::settings::ServiceSettings;

/// Run a member of a cluster cache from a file, or make the certificates of its members
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
  hither node --init-ca ca --cluster lab
                                 make an authority: ca/ca.pem and ca/ca.key
  hither node --issue a --ca ca --out nodes
                                 make nodes/a.pem and nodes/a.key
  hither node --config /etc/hither/node.toml --check
                                 read the file and say what is wrong with it
  hither node --config /etc/hither/node.toml
                                 serve until Ctrl-C")]
#[group(skip)]
pub(super) struct NodeCommand {
    #[command(flatten)]
    task: TaskArgs,

    /// Read FILE and the certificates that it names, say what is wrong, and exit
    #[arg(long, requires = "config")]
    check: bool,

    /// The name of the cluster, for --init-ca
    #[arg(long, value_name = "NAME", requires = "init_ca")]
    cluster: Option<String>,

    /// The folder of the authority, for --issue
    #[arg(long, value_name = "DIR", requires = "issue")]
    ca: Option<PathBuf>,

    /// Where --issue writes [default: the current folder]
    #[arg(long, value_name = "DIR", requires = "issue")]
    out: Option<PathBuf>,

    /// How long the certificate of --issue is valid [default: 825]
    #[arg(
        long,
        value_name = "DAYS",
        requires = "issue",
        value_parser = clap::value_parser!(u16).range(1..=7300)
    )]
    days: Option<u16>,

    /// Write what programs read through the mounts as a trace, for `hither sim` and `hither advise`
    #[arg(long, value_name = "DIR", requires = "config")]
    trace: Option<PathBuf>,

    /// Where the cluster keeps blocks, in place of what FILE says: the same on all members
    #[arg(
        long,
        value_name = "PLACEMENT",
        requires = "config",
        value_parser = hither_node::config::placement,
        hide_short_help = true
    )]
    placement: Option<Spec<PlacementEntry>>,

    /// Write what the placement is told and answers to a new file, for `hither cluster replay`
    #[arg(long, value_name = "LOG", requires = "config", hide_short_help = true)]
    placement_log: Option<PathBuf>,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct TaskArgs {
    /// Run the node that FILE describes (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Make a certificate authority in DIR
    #[arg(long, value_name = "DIR", requires = "cluster")]
    init_ca: Option<PathBuf>,

    /// Make a certificate and a key for the member NAME
    #[arg(long, value_name = "NAME", requires = "ca")]
    issue: Option<String>,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Subcommand for NodeCommand {
    const NAME: &'static str = "node";

    fn run(self, _: &Ui) -> anyhow::Result<ExitCode> {
        if let Some(folder) = &self.task.init_ca {
            init_ca(folder, &self.cluster.unwrap_or_default())?;
        } else if let Some(name) = &self.task.issue {
            let (ca, out) = (self.ca.unwrap_or_default(), self.out.unwrap_or_default());
            let validity = self.days.map(|days| DAY * u32::from(days));
            let validity = validity.unwrap_or(Authority::NODE_VALIDITY);
            issue(name, &ca, &out, validity)?;
        } else if let Some(path) = &self.task.config {
            let mut settings = file::load(path)?;
            settings.trace = self.trace;
            settings.placement_log = self.placement_log;
            if let (Some(cluster), Some(placement)) = (&mut settings.cluster, self.placement) {
                cluster.placing.policy = placement;
            }
            if self.check {
                check(path, &settings)?;
            } else {
                self.log.start(LevelFilter::INFO)?;
                serve(settings)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn init_ca(folder: &Path, cluster: &str) -> anyhow::Result<()> {
    let authority = Authority::create(folder, cluster)?;
    let certificate = authority.certificate_path();
    let end = CertificateEnd::of(&certificate)?;
    ui::print(&format!(
        "{}: the certificate of the authority, for each node; valid until {}\n\
         {}: its key: keep it secret, no node needs it\n",
        certificate.display(),
        end.text,
        certificate.with_extension("key").display(),
    ))
}

fn issue(name: &str, ca: &Path, out: &Path, validity: Duration) -> anyhow::Result<()> {
    let authority = Authority::load(ca)?;
    let files = authority.issue(name, out, validity)?;
    let end = CertificateEnd::of(&files.certificate)?;
    ui::print(&format!(
        "{}: the certificate of {name}; valid until {}\n\
         {}: its key, for {name} alone\n\
         {}: {name} needs it too\n",
        files.certificate.display(),
        end.text,
        files.key.display(),
        files.authority.display(),
    ))
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
