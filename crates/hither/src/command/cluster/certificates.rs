//! `hither cluster ca` and `issue`: the certificates by which the members of a cluster know each
//! other.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hither_net::tls::{Authority, CertificateEnd};

use crate::ui;

/// Make the authority whose certificates the members of a cluster accept
#[derive(Args, Debug)]
#[command(after_help = "\
Each member gets a certificate of its own by `hither cluster issue`. The key of
the authority, ca.key, is needed for nothing else: keep it secret.

Examples:
  hither cluster ca lab                  ca/ca.pem and ca/ca.key
  hither cluster ca lab --out /root/lab  in another folder")]
pub(super) struct Ca {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER")]
    cluster: String,

    /// The folder of the authority, which is made
    #[arg(long, value_name = "DIR", default_value = CA)]
    out: PathBuf,
}

/// Make a certificate and a key for a member of a cluster
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hither cluster issue a                 a.pem and a.key, by the authority in ca
  hither cluster issue a --ca /root/lab --out nodes --days 365")]
pub(super) struct Issue {
    /// The name of the member
    #[arg(value_name = "MEMBER")]
    member: String,

    /// The folder of the authority
    #[arg(long, value_name = "DIR", default_value = CA)]
    ca: PathBuf,

    /// The folder to write to [default: the current folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// How long the certificate is valid
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = DAYS,
        value_parser = clap::value_parser!(u16).range(1..=7300)
    )]
    days: u16,
}

/// The folder of an authority.
const CA: &str = "ca";

/// How long a certificate is valid, in days.
const DAYS: u16 = (Authority::NODE_VALIDITY.as_secs() / DAY.as_secs()) as u16;

const DAY: Duration = Duration::from_secs(86_400);

impl Ca {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let authority = Authority::create(&self.out, &self.cluster)?;
        let certificate = authority.certificate_path();
        let end = CertificateEnd::of(&certificate)?;
        ui::print(&format!(
            "{}: the certificate of the authority, for each node; valid until {}\n\
             {}: its key: keep it secret, no node needs it\n",
            certificate.display(),
            end.text,
            certificate.with_extension("key").display(),
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Issue {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let name = &self.member;
        let authority = Authority::load(&self.ca)?;
        let out = self.out.unwrap_or_default();
        let files = authority.issue(name, &out, DAY * u32::from(self.days))?;
        let end = CertificateEnd::of(&files.certificate)?;
        ui::print(&format!(
            "{}: the certificate of {name}; valid until {}\n\
             {}: its key, for {name} alone\n\
             {}: {name} needs it too\n",
            files.certificate.display(),
            end.text,
            files.key.display(),
            files.authority.display(),
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
