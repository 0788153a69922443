//! The recording of a run, from before the program starts until the trace has its name.
//!
//! The output is checked before the program starts. The trace gets its name once it is complete.
//! Failures in between do not reach the program; what was written until then is the trace.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use hither_ids::Pid;
use hither_kernel::address_spaces::AddressSpaces;
use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::page_cache::PageCacheError;
use hither_kernel::process_tree::Transferred;
use hither_trace::Writer;
use hither_trace::schema::{Cut, Losses, Seen};

use super::collect::{Collector, Ended, Finished, Unfinished};
use super::hashed_names::HashedNames;
use super::mapped::MappedTouches;
use super::memory_left::MemorySampler;
use super::not_recorded::on_path;
use super::start::{SeenBy, Start};
use super::summary::RecordingSummary;
use crate::error::{Error, Result};
use crate::kernel_source::KernelSource;
use crate::mechanism::{RunState, SessionNeeds};

/// The trace to record.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The trace folder to write.
    pub output: PathBuf,
    /// Replace an existing trace folder.
    pub force: bool,
    /// Record the touches of mapped files.
    pub mapped: bool,
    /// Record the arguments of programs, not their names alone.
    pub arguments: bool,
    /// Record hashes in place of the names of files.
    pub hash_names: bool,
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

/// A recording.
pub(crate) struct Recording {
    collector: Collector,
    mapped: bool,
    hash_names: bool,
    /// The file of the program, for messages.
    program: PathBuf,
    output: PathBuf,
}

impl Recording {
    /// Creates the trace of a command, with what its memory cgroup leaves for files.
    ///
    /// # Errors
    /// The trace cannot be written to, or the touches of mapped files cannot be seen.
    pub(crate) fn create(
        options: &TraceOptions,
        command: &[OsString],
        seen_by: SeenBy,
        memory_left: MemorySampler,
    ) -> Result<Recording> {
        if options.mapped {
            // The watch that counts is opened later: programs inherit it from then on.
            AddressSpaces::open().map_err(Error::Mapped)?;
        }
        let words = command.iter();
        let words = words.map(|word| word.to_string_lossy().into_owned());
        let start = Start::now(words.collect(), options.arguments, seen_by, memory_left);
        // As long as it runs its folder is known, but it may have ended when it is inspected.
        let program = command.first().map(|program| {
            let program = found_on_path(program);
            std::path::absolute(&program).unwrap_or(program)
        });
        Ok(Recording {
            mapped: options.mapped,
            program: program.unwrap_or_default(),
            ..Recording::starting(options, start)?
        })
    }

    /// Of programs that run already, in a cgroup that has a limit if there is one.
    pub(crate) fn of_running(
        options: &TraceOptions,
        group: Option<MemoryGroup>,
    ) -> Result<Recording> {
        let start = Start::of_running(options.arguments, group);
        Recording::starting(options, start)
    }

    /// Of this the kernel reports.
    pub(crate) fn seen_by_kernel(&mut self, source: &KernelSource) {
        self.collector.seen_by_kernel(source.lacks_touches());
    }

    fn starting(options: &TraceOptions, start: Start) -> Result<Recording> {
        let start = if options.hash_names {
            start.without_names()
        } else {
            start
        };
        let created = Writer::create(&options.output, options.force);
        let mut writer = created.map_err(Error::Output)?;
        writer.keep_journal(&start.meta()).map_err(Error::Output)?;
        Ok(Recording {
            collector: Collector::new(writer, start, options.mapped),
            mapped: false,
            hash_names: options.hash_names,
            program: PathBuf::new(),
            output: options.output.clone(),
        })
    }

    /// Called before the first record.
    pub(crate) fn begin(&self, run: &mut RunState) {
        run.definitions.hashed_names = self.hash_names.then(HashedNames::default);
    }

    /// What it needs of the session.
    pub(crate) fn needs(&self) -> SessionNeeds {
        SessionNeeds {
            block_bytes: Some(0),
            call_sites: true,
            announced: true,
            ..SessionNeeds::default()
        }
    }

    /// Called by the thread that starts the program, just before it does: the program inherits what
    /// is opened here.
    pub(crate) fn prepare(mut self) -> Recording {
        if self.mapped
            && let Ok(events) = AddressSpaces::open()
        {
            self.collector.record_touches(MappedTouches::new(events));
        }
        self
    }

    /// The program was started. Returns what takes its records.
    pub(crate) fn start(&mut self, pid: Pid) -> &mut Collector {
        let program = self.program.as_os_str().as_bytes();
        self.collector.command_started(pid, program);
        &mut self.collector
    }

    /// What takes the records of programs that run already.
    pub(crate) fn attach(&mut self) -> &mut Collector {
        &mut self.collector
    }

    /// Completes the trace.
    ///
    /// # Errors
    /// Not even a part of it could be completed.
    pub(crate) fn finish(
        self,
        run: &RunState,
        exit: ExitStatus,
        ran: Duration,
        transferred: Option<Transferred>,
    ) -> Result<Recorded> {
        let ended = Ended {
            lost: run.lost(),
            ran,
            transferred,
            other_read_bytes: run.library.other_read_bytes(),
            attached: run.library.processes(),
        };
        let Finished {
            summary,
            losses,
            seen,
            cut,
            touches_refused,
        } = self.collector.finish(run, &ended).map_err(|unfinished| {
            let Unfinished { source, left } = unfinished;
            Error::Trace { source, left, exit }
        })?;
        Ok(Recorded {
            exit,
            trace: self.output,
            summary,
            losses,
            seen,
            cut,
            touches_refused,
        })
    }
}

/// Where `execvp` finds a program, for messages.
pub(super) fn found_on_path(program: &OsStr) -> PathBuf {
    let is_path = program.as_bytes().contains(&b'/');
    let found = (!is_path).then(|| on_path(program, Path::to_owned));
    found.flatten().unwrap_or_else(|| PathBuf::from(program))
}
