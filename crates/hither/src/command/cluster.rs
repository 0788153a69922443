//! `hither cluster`: the certificates of a cluster cache, what its members do, and their decisions.

mod certificates;
mod distances;
mod replay;
mod status;

use std::process::ExitCode;

use clap::Args;

use super::subcommand::Subcommand;
use crate::ui::Ui;

/// Make a cluster's certificates, show its members, replay decisions
#[derive(Args, Debug)]
#[command(after_help = "\
`hither node` runs a member, and `hither mount --cluster` one with a mount.

Examples:
  hither cluster ca lab                  make an authority: ca/ca.pem, ca/ca.key
  hither cluster issue a --out nodes     make nodes/a.pem and nodes/a.key
  hither cluster status                  by the only node of yours that runs
  hither cluster replay placement.log    does the same code decide the same?")]
pub(super) struct Cluster {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Ca(certificates::Ca),
    Issue(certificates::Issue),
    Status(status::Status),
    Replay(replay::Replay),
}

impl Subcommand for Cluster {
    const NAME: &'static str = "cluster";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Ca(action) => action.run(),
            Action::Issue(action) => action.run(),
            Action::Status(action) => action.run(ui),
            Action::Replay(action) => action.run(),
        }
    }
}
