//! `hither unmount`: ends a mount.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::subcommand::Subcommand;
use crate::ui::Ui;

/// End a mount of `hither mount`
#[derive(Args, Debug)]
#[command(after_help = "\
The process that serves the mount ends once no program has a file open there.
A mount whose process was killed is removed too.

Examples:
  hither unmount /mnt/data")]
pub(super) struct Unmount {
    /// Where it is mounted
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl Subcommand for Unmount {
    const NAME: &'static str = "unmount";

    fn run(self, _: &Ui) -> anyhow::Result<ExitCode> {
        hither_mount::unmount(&self.directory)
            .with_context(|| format!("unmounting {}", self.directory.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
