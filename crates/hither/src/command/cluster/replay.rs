//! `hither cluster replay`: whether the same code decides the same.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use hither_core::placement::Replayed;
use serde_json::json;

use crate::ui;

/// Make the calls of a log of --placement-log again, and compare the decisions
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hither cluster replay placement.log")]
pub(super) struct Replay {
    /// What `hither node --placement-log` or `hither mount --placement-log` has written
    #[arg(value_name = "LOG")]
    log: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let place = || self.log.display().to_string();
        let log = BufReader::new(File::open(&self.log).with_context(place)?);
        let replayed = hither_core::placement::replay(log).with_context(place)?;
        if self.json {
            let Replayed {
                hosts,
                calls,
                decisions,
            } = replayed;
            let document = json!({ "hosts": hosts, "calls": calls, "decisions": decisions });
            ui::print_json(&document)?;
        } else {
            ui::print(&format!("{replayed}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
