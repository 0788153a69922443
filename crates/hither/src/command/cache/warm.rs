//! `hither cache warm`: brings files of a mount into the cache before they are read.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::ui::Ui;
use crate::work_report;
use hither_service::work::{self, Paths};

/// Bring files of a mount into the cache, so that later reads do not wait for the source
#[derive(Args, Debug)]
#[command(after_help = "\
The node that serves the mount loads all files at and below PATH. What is in the
cache already is skipped, so a run that was interrupted goes on where it was.
What does not fit is left out, and said before the work begins. Readers go
first. `hither cache pin` also keeps the files.

Examples:
  hither cache warm /mnt/data
  hither cache warm --jobs 16 /mnt/data/train /mnt/data/labels.csv
  hither cache warm --json /mnt/data | jq .loaded_bytes")]
pub(super) struct Warm {
    /// Files and directories below a mount of hither
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Files at the same time
    #[arg(long, short = 'j', value_name = "N", default_value = "8", value_parser = work::jobs)]
    jobs: usize,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Warm {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let paths = Paths::new(&self.paths)?;
        let report = paths.ask(&format!("/warm?jobs={}", self.jobs), "warming", ui)?;
        let files = work::files(report.files, report.bytes);
        let line = format!("{files}: {}", work::loaded(&report));
        Ok(if work_report::print(&report, &line, self.json)? {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
