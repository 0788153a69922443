//! `hither record`: records a program and everything that it starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::options::recording::{RecordingArgs, record};
use super::options::trace_output::DEFAULT_OUTPUT;
use super::subcommand::Subcommand;
use crate::exit;
use crate::ui::Ui;

/// Record the file accesses of a program and of what it starts
#[derive(Args, Debug)]
#[command(after_help = "\
The program's output, signals and exit code pass through unchanged. The exit
code is 127 if there is no such program and 126 if it cannot be executed.

If the disk is full, the trace has what fits and says where it is cut; the exit
code is still the program's. It is 1 if there is no room for any trace. If
hither is killed, `hither recover` makes a trace of what was recorded until
then.

Examples:
  hither record -- make -j8                   into the folder trace.hither
  hither record -o grep.hither --force -- grep -rc needle /usr/include
  hither record --frames 4 -- python3 a.py    call sites by 4 innermost frames")]
pub(super) struct Record {
    /// The program to record, with its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,

    #[command(flatten, next_help_heading = "Recording")]
    recording: RecordingArgs,
}

impl Subcommand for Record {
    const NAME: &'static str = "record";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let output = self
            .recording
            .output
            .clone()
            .unwrap_or_else(|| PathBuf::from(DEFAULT_OUTPUT));
        let ended = record(&self.command, &output, &self.recording, ui)?;
        ui.note(format_args!("the trace is {}", output.display()));
        Ok(exit::code_of(ended))
    }
}
