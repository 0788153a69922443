//! `hither cache pin`: keeps files of a mount in memory and on the disk.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_analysis::format::{bytes, count};

use crate::ui::Ui;
use crate::work_report;
use hither_service::work::{self, Paths};

/// Keep files of a mount cached until they are unpinned, change, or the mount ends
#[derive(Args, Debug)]
#[command(after_help = "\
Loads all files at and below PATH, and keeps them whatever else is read. With
--disk they are kept on the node's disk, and in memory as well as far as there
is room; without it, or where the disk has no room, in memory alone. At most
half of either may be pinned: if more is asked for, nothing is. Files that come
later are not pinned.

Examples:
  hither cache pin /mnt/data/index
  hither cache pin --remove /mnt/data/index
  hither cache pin --remove /mnt/data          all pins of the mount")]
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

impl Pin {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let paths = Paths::new(&self.paths)?;
        let (report, line) = if self.remove {
            let report = paths.ask("/unpin", "unpinning", ui)?;
            let files = work::files(report.pinned_files, report.bytes);
            let line = format!("{files}: no longer pinned");
            (report, line)
        } else {
            let report = paths.ask(&format!("/pin?jobs={}", self.jobs), "pinning", ui)?;
            let files = work::files(report.files, report.bytes);
            let line = format!(
                "{files}: {}\n{} pinned: {} in memory, {} on the disk",
                work::loaded(&report),
                count(report.pinned_files),
                bytes(report.pinned_memory_bytes),
                bytes(report.pinned_disk_bytes),
            );
            (report, line)
        };
        Ok(if work_report::print(&report, &line, self.json)? {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
