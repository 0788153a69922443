//! `hither record`: records a program and everything that it starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use hither_live::SessionOptions;
use hither_sim::Size;

use super::options::heading::{RECORDING, RUNNING};
use super::options::recording::{RecordingArgs, record, report};
use super::options::running::RunningArgs;
use super::options::trace_output::DEFAULT_OUTPUT;
use super::subcommand::Subcommand;
use crate::exit;
use crate::ui::Ui;

/// Record the file accesses of a program and of what it starts
///
/// A program that runs already is recorded by what the kernel reports of it (eBPF): its reads, by
/// the page, the pages of mapped files that it touches first, and the pages that it writes to. That
/// takes root, or CAP_BPF and CAP_PERFMON, and Linux 5.15.
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
  hither record --frames 4 -- python3 a.py    call sites by 4 innermost frames
  hither record -p $(pidof postgres) --for 60s
      a server that runs already, with what it starts
  hither record --unit backup                 a systemd unit, until Ctrl-C
  hither record --all --for 10s               every program of the machine")]
pub(super) struct Record {
    /// The program to record, with its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "running")]
    command: Vec<OsString>,

    #[command(flatten, next_help_heading = RUNNING)]
    running: RunningArgs,

    #[command(flatten, next_help_heading = RECORDING)]
    recording: RecordingArgs,

    /// Distinguish call sites by at most N frames of the call stack, innermost first (1 to 64). By
    /// the kernel's events, also 0: by program and file alone, which costs programs less
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        value_parser = clap::value_parser!(u8).range(0..=64),
        help_heading = RECORDING,
        hide_short_help = true
    )]
    frames: u8,

    /// How much may wait for the recorder, for each thread; all threads together may have 512 MiB,
    /// or an eighth of the memory if that is less
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "64MiB",
        value_parser = ring_bytes,
        conflicts_with = "running",
        help_heading = RECORDING,
        hide_short_help = true
    )]
    ring_bytes: usize,
}

fn ring_bytes(text: &str) -> Result<usize, String> {
    let bytes = match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) => bytes,
        Size::Percent(_) => {
            return Err("a ring has a size in bytes".to_owned());
        }
    };
    let sane = (64 << 10..=1 << 30).contains(&bytes) && bytes.is_power_of_two();
    if sane {
        Ok(bytes as usize)
    } else {
        Err("a ring is a power of two from 64KiB to 1GiB large".to_owned())
    }
}

impl Subcommand for Record {
    const NAME: &'static str = "record";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let output = self
            .recording
            .output
            .clone()
            .unwrap_or_else(|| PathBuf::from(DEFAULT_OUTPUT));
        if let Some(scope) = self.running.scope()? {
            let frames_max = usize::from(self.frames);
            let recorded = self
                .running
                .record(scope, &output, &self.recording, frames_max, ui)?;
            if let Some(recorded) = recorded {
                report(&recorded, ui);
            }
            ui.note(format_args!("the trace is {}", output.display()));
            return Ok(ExitCode::SUCCESS);
        }
        if self.frames == 0 && !self.recording.is_by_kernel() {
            bail!("--frames 0 is for what the kernel reports (-p, --seen-by=kernel)");
        }
        let session = SessionOptions {
            frames_max: usize::from(self.frames),
            ring_bytes: self.ring_bytes,
            ..SessionOptions::default()
        };
        let recorded = record(&self.command, &output, &self.recording, session, ui)?;
        ui.begin_line();
        report(&recorded, ui);
        ui.note(format_args!("the trace is {}", output.display()));
        Ok(exit::code_of(recorded.exit))
    }
}
