//! Records one run of a program.
//!
//! The output is checked before the program starts. The trace gets its name once it is complete.
//! Failures in between do not reach the program; what was written until then is the trace.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use hither_kernel::address_spaces::AddressSpaces;
use hither_kernel::page_cache::PageCacheError;
use hither_session::session::{Session, SessionOptions};
use hither_trace::Writer;
use hither_trace::schema::{Cut, Losses, Seen};

use super::collect::{Collector, Ended, Finished, Start, Unfinished};
use super::mapped::MappedTouches;
use super::not_recorded::{obstacle, on_path};
use super::summary::RecordingSummary;
use crate::error::{Error, Result};
use crate::launch::{self, Instrumentation, Supervised};

/// The options of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The trace folder to write.
    pub output: PathBuf,
    /// Replace an existing trace folder.
    pub force: bool,
    /// Path of the recorder's library, which the program loads.
    pub preload: PathBuf,
    /// The number and size of rings, and the depth of call stacks.
    pub session: SessionOptions,
    /// Record the touches of mapped files.
    pub mapped: bool,
    /// Record the arguments of programs, not their names alone.
    pub arguments: bool,
}

/// A run that was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// How the program ended.
    pub exit: ExitStatus,
    /// The trace.
    pub trace: PathBuf,
    /// What is in it.
    pub summary: RecordingSummary,
    /// What is missing: dropped events, and programs that could not be recorded.
    pub losses: Losses,
    /// How much of what the program read is in it.
    pub seen: Seen,
    /// Where the trace ends and why, if it could not be written to the end.
    pub cut: Option<Cut>,
    /// Why only the first touches of mapped files are recorded, where that is so for all of them.
    pub touches_refused: Option<PageCacheError>,
}

/// Records a program.
#[derive(Clone, Debug)]
pub struct Recorder {
    options: RecordOptions,
}

impl Recorder {
    /// A recorder for one run.
    pub fn new(options: RecordOptions) -> Self {
        Recorder { options }
    }

    /// Runs the program to its end and writes the trace. The program has this process's standard
    /// streams and process group. While it runs, SIGINT and SIGQUIT are left to it, and SIGTERM,
    /// SIGHUP, SIGUSR1 and SIGUSR2 are passed on to it.
    pub fn run(&self) -> Result<Recorded> {
        let RecordOptions {
            command,
            output,
            force,
            preload,
            session,
            mapped,
            arguments,
        } = &self.options;
        let program = command.first().ok_or(Error::NoCommand)?;
        launch::check_preload(preload)?;
        if *mapped {
            // The watch that counts is opened later: programs inherit it from then on.
            AddressSpaces::open().map_err(Error::Mapped)?;
        }
        let mut writer = Writer::create(output, *force).map_err(Error::Output)?;
        let mut session = Session::create(*session).map_err(Error::Session)?;

        let words = command
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        let start = Start::now(words.collect(), *arguments);
        writer.keep_journal(&start.meta()).map_err(Error::Output)?;
        let announced = found_on_path(program);
        let name = session.name().to_owned();
        let tools = Instrumentation {
            preload,
            session: &name,
        };
        let watch = || mapped.then(AddressSpaces::open).and_then(Result::ok);
        let collect = |pid, events: Option<AddressSpaces>, ended: &_| {
            let mut collector = Collector::new(writer, start, events.map(MappedTouches::new));
            collector.command_started(pid, announced.as_os_str().as_bytes());
            collector.collect(&mut session, ended);
            let (lost, other_read_bytes) = (session.lost(), session.other_read_bytes());
            (collector, lost, other_read_bytes, session.processes())
        };
        let Supervised {
            exit,
            ran,
            transferred,
            made,
        } = launch::supervise("collect", command, tools, watch, collect)?;
        let (collector, lost, other_read_bytes, attached) = made;
        let ended = Ended {
            lost,
            ran,
            transferred,
            other_read_bytes,
            attached,
        };
        let Finished {
            summary,
            losses,
            seen,
            cut,
            touches_refused,
        } = collector.finish(&ended).map_err(|unfinished| {
            let Unfinished { source, left } = unfinished;
            Error::Trace { source, left, exit }
        })?;
        Ok(Recorded {
            exit,
            trace: output.clone(),
            summary,
            losses,
            seen,
            cut,
            touches_refused,
        })
    }
}

/// Why a program of this name cannot be recorded, as far as its file shows. Programs that it starts
/// may be.
pub fn unseen(program: &std::ffi::OsStr) -> Option<String> {
    let path = found_on_path(program);
    // A file that cannot be opened fails with a better message when it is started.
    std::fs::File::open(&path).ok()?;
    obstacle(&path)
}

/// Where `execvp` finds a program, for messages.
fn found_on_path(program: &std::ffi::OsStr) -> PathBuf {
    let is_path = program.as_bytes().contains(&b'/');
    let found = (!is_path).then(|| on_path(program, Path::to_owned));
    found.flatten().unwrap_or_else(|| PathBuf::from(program))
}
