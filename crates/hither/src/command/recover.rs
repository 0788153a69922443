//! `hither recover`: makes a trace of what a killed recording has left.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use hither_analysis::coverage::Coverage;
use hither_live::observe;

use super::options::recording::contents;
use super::options::trace_output::DEFAULT_OUTPUT;
use super::subcommand::Subcommand;
use crate::exit::Usage;
use crate::ui::Ui;

/// Make a trace of what a recording has left that was killed
#[derive(Args, Debug)]
#[command(after_help = "\
A recording is written to a hidden folder beside its place, .NAME.partial-PID,
and renamed at the end. If hither is killed, this folder stays. `recover` makes
a trace of it that says where it is cut. What the program did in the last second
is missing, or in the last 64th of a long recording, at most a minute.

Examples:
  hither recover                            what was to be trace.hither
  hither recover make.hither                what was to be make.hither
  hither recover .make.hither.partial-4711  one of several that were killed")]
pub(super) struct Recover {
    /// The trace that was to be recorded, or the hidden folder that was left
    #[arg(default_value = DEFAULT_OUTPUT)]
    trace: PathBuf,

    /// Replace an existing trace folder
    #[arg(long)]
    force: bool,
}

impl Subcommand for Recover {
    const NAME: &'static str = "recover";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let left = self.left_behind()?;
        let recovered = match observe::recover(&left, self.force) {
            Ok(recovered) => recovered,
            Err(error @ hither_trace::Error::Exists { .. }) => {
                bail!("{error} (--force replaces it)")
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(recording) = &recovered.recording {
            let processes = recording.summary.processes as u64;
            let (seen, losses) = (&recording.seen, &recording.losses);
            let coverage = Coverage::of_recording(seen, losses, processes, false);
            let coverage = coverage.with_cut(recording.cut.clone());
            ui.note(format_args!("seen: {}", coverage.words()));
            ui.note(contents(&recording.summary));
        }
        ui.note(format_args!("the trace is {}", recovered.trace.display()));
        Ok(ExitCode::SUCCESS)
    }
}

impl Recover {
    /// The hidden folder to recover.
    fn left_behind(&self) -> anyhow::Result<PathBuf> {
        let name = self.trace.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.contains(".partial-") {
            return Ok(self.trace.clone());
        }
        let mut found = hither_trace::recoverable(&self.trace);
        let trace = self.trace.display();
        match found.len() {
            0 => bail!("{trace}: no recording of it was killed that can be recovered"),
            1 => Ok(found.remove(0)),
            _ => {
                let names: Vec<String> = found
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                let names = names.join(", ");
                Err(Usage(format!("{trace}: name one of what was left: {names}")).into())
            }
        }
    }
}
