//! `hither cache`: what acts on the cache of a mount.

mod evict;
mod pin;
pub(super) mod status;
mod warm;

use std::process::ExitCode;

use clap::Args;

use super::subcommand::Subcommand;
use crate::ui::Ui;

/// Load, keep or drop files of a mount, and show what its cache does
#[derive(Args, Debug)]
#[command(after_help = "\
Each works for a mount of `hither mount` or `hither node` on this machine. To
see where single files are cached, read their attributes user.hither.memory and
user.hither.disk.

Examples:
  hither cache warm /mnt/data            load all files before they are read
  hither cache pin /mnt/data/index       load these, and keep them
  hither cache evict /mnt/data/train     drop these, for a cold read
  hither cache status /mnt/data          how full it is, and what it served")]
pub(super) struct Cache {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Warm(warm::Warm),
    Pin(pin::Pin),
    Evict(evict::Evict),
    Status(status::Status),
}

impl Subcommand for Cache {
    const NAME: &'static str = "cache";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Warm(action) => action.run(ui),
            Action::Pin(action) => action.run(ui),
            Action::Evict(action) => action.run(ui),
            Action::Status(action) => action.run(),
        }
    }
}
