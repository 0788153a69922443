//! `hither doctor`: what this machine can do for hither.

mod checks;
mod memory;

use std::fs;
use std::process::ExitCode;

use clap::Args;
use hither_live::memory::capabilities::Capabilities;
use hither_live::numa::calibration::{self, Calibration, CalibrationCache, Costs, Effort};
use hither_live::numa::topology::{NodeMemory, ThisMachine};
use serde_json::json;

use self::checks::Check;
use super::subcommand::Subcommand;
use crate::ui::{self, Ui};

/// Show what this machine can do, what is lost, and how to get it
///
/// Each thing is tried out, as a run does at its start: a small program is recorded, page faults of
/// hither's own are watched. Nothing is changed.
#[derive(Args, Debug)]
#[command(after_help = "\
The exit status is 0 if programs can be recorded and run, whatever else is
missing.

Examples:
  hither doctor                        all checks, and the memory's nodes
  hither doctor --calibrate            measure the memory's latencies, for runs
  hither doctor --json | jq '.checks[] | select(.works | not)'")]
pub(super) struct Doctor {
    /// Measure the costs of loads and page moves between this machine's nodes, and keep them
    ///
    /// `run --memory` uses them. It takes at most a tenth of a second for each pair of nodes.
    #[arg(long)]
    calibrate: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Subcommand for Doctor {
    const NAME: &'static str = "doctor";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let survey = Capabilities::of(&ThisMachine);
        let checks = checks::all(survey.as_ref());
        let works = checks
            .iter()
            .all(|check| check.answer.is_ok() || !check.needed);
        let memory = survey.ok().map(|survey| {
            let calibration = self.calibration(&survey.nodes, ui);
            let costs = Costs::of(&survey.nodes, calibration.as_ref());
            (survey, costs)
        });
        if self.json {
            let checks: Vec<serde_json::Value> = checks.iter().map(Check::document).collect();
            let memory = memory.map(|(survey, costs)| memory::document(&survey, &costs));
            ui::print_json(&json!({ "works": works, "checks": checks, "memory": memory }))?;
        } else {
            let mut text = format!("{}\n{}", system(), checks::text(&checks));
            if let Some((survey, costs)) = memory {
                text = format!("{text}\n{}", memory::text(&survey, &costs)?);
            }
            ui::print(&format!("{text}\n{}\n", verdict(&checks, works)))?;
        }
        Ok(if works {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// The version, the kernel and the processor.
fn system() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease");
    let kernel = kernel.as_deref().map_or("of unknown version", str::trim);
    let (version, processor) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    format!("hither {version}, Linux {kernel}, {processor}\n")
}

fn verdict(checks: &[Check], works: bool) -> String {
    let missing = checks.iter().filter(|check| check.answer.is_err()).count();
    match (works, missing) {
        (false, _) => "Programs cannot be recorded or run here.".to_owned(),
        (true, 0) => "All works.".to_owned(),
        (true, 1) => "Programs can be recorded and run; 1 thing is missing.".to_owned(),
        (true, some) => format!("Programs can be recorded and run; {some} things are missing."),
    }
}

impl Doctor {
    /// The calibration of this machine, measured now or earlier.
    fn calibration(&self, nodes: &[NodeMemory], ui: &Ui) -> Option<Calibration> {
        let cache = calibration::cache_folder().map(|folder| CalibrationCache::new(&folder));
        if !self.calibrate {
            let read = cache?.read(&ThisMachine, nodes);
            return read.unwrap_or_else(|problem| {
                ui.note(format_args!(
                    "what was measured before is not used: {problem}"
                ));
                None
            });
        }
        let measured = Calibration::measure(&ThisMachine, nodes, Effort::THOROUGH);
        let Some(calibration) = &measured else {
            ui.note(
                "nothing could be measured: not on this processor, or all calls for it are refused",
            );
            return None;
        };
        match cache.map(|cache| cache.keep(calibration)) {
            Some(Ok(path)) => ui.note(format_args!("kept in {}", path.display())),
            Some(Err(problem)) => ui.note(format_args!("not kept: {problem}")),
            None => ui.note("not kept: there is no home"),
        }
        measured
    }
}
