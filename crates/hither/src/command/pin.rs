//! `hither pin`: keeps files of a mount in memory.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_analysis::format::count;

use super::subcommand::Subcommand;
use crate::service::work::{self, Paths};
use crate::ui::Ui;

/// Keep files of a mount in memory until they are unpinned, change, or the mount ends
#[derive(Args, Debug)]
#[command(after_help = "\
Loads all files at and below PATH into the node's memory, and keeps them there
whatever else is read. At most half of the memory for resident blocks may be
pinned: if more is asked for, nothing is. Files that come later are not pinned.

Examples:
  hither pin /mnt/data/index
  hither pin --remove /mnt/data/index
  hither pin --remove /mnt/data          all pins of the mount")]
pub(super) struct Pin {
    /// Files and directories below a mount of hither
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Keep them no longer
    #[arg(long)]
    remove: bool,

    /// Files at the same time
    #[arg(long, short = 'j', value_name = "N", default_value = "8", value_parser = work::jobs)]
    jobs: usize,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Subcommand for Pin {
    const NAME: &'static str = "pin";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let paths = Paths::new(&self.paths)?;
        let (report, line) = if self.remove {
            let report = paths.ask("/unpin", "unpinning", ui)?;
            let files = work::files(report.pinned_files, report.bytes);
            let line = format!("{files}: no longer pinned");
            (report, line)
        } else {
            let report = paths.ask(&format!("/pin?jobs={}", self.jobs), "pinning", ui)?;
            let files = work::files(report.files, report.bytes);
            let pinned = count(report.pinned_files);
            let line = format!("{files}: {pinned} pinned; {}", work::loaded(&report));
            (report, line)
        };
        Ok(match work::print(&report, &line, self.json)? {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}
