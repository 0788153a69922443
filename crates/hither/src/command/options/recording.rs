//! Recording a program, for `hither record` and `hither advise -- CMD`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use hither_analysis::coverage::{self, Coverage};
use hither_analysis::format::{bytes, counted};
use hither_kernel::page_cache::PageCacheError;
use hither_live::observe::{RecordOptions, Recorded, Recorder, RecordingSummary, TraceOptions};
use hither_live::{Beside, Error, SessionOptions};

use super::trace_output::hint;
use crate::exit;
use crate::preload;
use crate::ui::{self, Ui};

/// How much may wait for the recorder, for each thread.
const RING_BYTES: usize = 64 << 20;

/// The options of recording.
#[derive(Args, Debug)]
pub(crate) struct RecordingArgs {
    /// The trace folder to write
    ///
    /// By default it is trace.hither, and of advise a temporary folder.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Replace an existing trace folder
    #[arg(long)]
    force: bool,

    /// Record touches of mapped files too, sampled
    #[arg(long, conflicts_with = "running")]
    mapped: bool,

    /// Record no arguments of programs, which may hold passwords
    #[arg(long)]
    no_arguments: bool,

    /// Record hashes in place of the names of files, and no arguments
    ///
    /// Each name of a path becomes a hash that is another one in each recording, so files of one
    /// folder stay in one folder. Programs and their functions keep their names.
    #[arg(long, conflicts_with = "mapped", hide_short_help = true)]
    hash_names: bool,

    /// Have the library in the programs say what they do, or the kernel
    ///
    /// The library sees each call, with its bytes. The kernel sees pages of the page cache, by
    /// whatever way they are read, of all programs, static and setuid ones too. By default, both
    /// are recorded where the kernel's events can be had (root, or CAP_BPF and CAP_PERFMON; Linux
    /// 5.15): what both see counts once, as the library sees it.
    #[arg(
        long,
        value_enum,
        value_name = "SOURCE",
        conflicts_with = "running",
        hide_short_help = true
    )]
    seen_by: Option<SeenBy>,
}

/// Who says what programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SeenBy {
    Library,
    Kernel,
    Both,
}

impl RecordingArgs {
    /// The trace, at `output`.
    pub(crate) fn trace(&self, output: &Path) -> TraceOptions {
        TraceOptions {
            output: output.to_owned(),
            force: self.force,
            mapped: self.mapped,
            arguments: !self.no_arguments && !self.hash_names,
            hash_names: self.hash_names,
        }
    }

    /// Whether the kernel alone reports, as it does where there is no library.
    pub(crate) fn is_by_kernel(&self) -> bool {
        match self.seen_by {
            None => !preload::IS_THERE,
            Some(seen_by) => seen_by == SeenBy::Kernel,
        }
    }
}

/// What is agreed with the program: rings that hold what a busy agent cannot take at once.
pub(crate) fn session() -> SessionOptions {
    SessionOptions {
        ring_bytes: RING_BYTES,
        ..SessionOptions::default()
    }
}

/// Records `command` into the trace folder `output`.
pub(crate) fn record(
    command: &[OsString],
    output: &Path,
    recording: &RecordingArgs,
    session: SessionOptions,
    ui: &Ui,
) -> anyhow::Result<Recorded> {
    if recording.mapped {
        ensure!(preload::IS_THERE, "--mapped: {}", preload::NOT_THERE);
    }
    if recording.is_by_kernel() && recording.mapped {
        bail!(
            "--mapped samples touches in programs with the library, which --seen-by=kernel is \
               without"
        );
    }
    note_recoverable(output, ui);
    let options = RecordOptions {
        command: command.to_vec(),
        preload: if recording.is_by_kernel() {
            None
        } else {
            Some(preload::library()?)
        },
        beside: match recording.seen_by {
            None => Beside::IfPossible,
            Some(SeenBy::Both) => Beside::Yes,
            Some(SeenBy::Library | SeenBy::Kernel) => Beside::No,
        },
        session,
        trace: recording.trace(output),
    };
    made(Recorder::new(options).run())
}

/// A recording, or why there is none.
pub(crate) fn made<T>(recorded: Result<T, Error>) -> anyhow::Result<T> {
    match recorded {
        Ok(recorded) => Ok(recorded),
        Err(Error::Output(error)) => bail!("{error}{}", hint(&error)),
        Err(error) => Err(exit::not_started(error)),
    }
}

/// Says which killed recordings have left a folder beside `output`.
pub(crate) fn note_recoverable(output: &Path, ui: &Ui) {
    for partial in hither_trace::recoverable(output) {
        ui.note(left(&partial));
    }
}

/// That a killed recording has left a folder, and what to do about it.
pub(crate) fn left(partial: &Path) -> String {
    let partial = partial.display();
    format!("`{partial}` was left by a recording that was killed; `hither recover {partial}`")
}

/// Why only the first touches of mapped files were recorded.
fn only_the_first(reason: PageCacheError) -> String {
    match reason {
        PageCacheError::NotPermitted => "only the first by each process, since to see a page \
             touched again takes CAP_SYS_NICE (process_madvise)"
            .to_owned(),
        reason => format!("only the first by each process, since process_madvise: {reason}"),
    }
}

/// Prints the summary of a recording.
pub(crate) fn report(recorded: &Recorded, ui: &Ui) {
    warn_of_cut(recorded);
    let Recorded {
        summary,
        losses,
        seen,
        cut,
        ..
    } = recorded;
    let coverage = Coverage::of_recording(seen, losses, summary.processes as u64, false);
    let coverage = coverage.with_cut(cut.clone());
    ui.note(format_args!("seen: {}", coverage.words()));
    report_contents(recorded, ui);
}

/// Says where and why a recording ends before the program did. It is not a note, which --quiet
/// hides.
pub(crate) fn warn_of_cut(recorded: &Recorded) {
    if let Some(cut) = &recorded.cut {
        ui::print_message(format_args!(
            "warning: {} is cut: {}; what the program did later is not in it",
            recorded.trace.display(),
            cut.reason
        ));
    }
}

/// Prints what a recording holds and lacks, but for how much of what was read was seen.
pub(crate) fn report_contents(recorded: &Recorded, ui: &Ui) {
    let Recorded {
        summary,
        losses,
        seen,
        touches_refused,
        ..
    } = recorded;
    ui.note(contents(summary));
    if let Some(reason) = touches_refused {
        ui.note(format_args!(
            "touches of mapped files: {}",
            only_the_first(*reason)
        ));
    }
    let lost_faults = seen.touches.map_or(0, |touches| touches.lost_faults);
    if lost_faults > 0 {
        ui.note(format_args!(
            "{} of the kernel's lost: touches of mapped files are missing",
            counted(lost_faults, "report")
        ));
    }
    if let Some(lost) = coverage::lost(losses) {
        ui.note(format_args!("lost {lost}"));
    }
    if losses.damaged_records > 0 {
        ui.note(format_args!(
            "{} were damaged, written over by the program, and left out",
            counted(losses.damaged_records, "record")
        ));
    }
    for program in &losses.not_recorded {
        ui.note(format_args!(
            "not recorded: {} ({}), {}",
            program.path,
            program.reason,
            counted(program.count, "time")
        ));
    }
}

/// What a recording holds, in words.
pub(crate) fn contents(summary: &RecordingSummary) -> String {
    format!(
        "{} by {} of {}: {} read, {} written, {}",
        counted(summary.accesses, "access"),
        counted(summary.sites as u64, "call site"),
        counted(summary.processes as u64, "process"),
        bytes(summary.bytes_read),
        bytes(summary.bytes_written),
        counted(summary.objects as u64, "file")
    )
}
