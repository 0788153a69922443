//! Records a program: a run without any mechanism.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use hither_session::session::SessionOptions;

use super::not_recorded::{MADE_BY_GO, is_of_go, obstacle};
use super::recording::{Recorded, TraceOptions, found_on_path};
use crate::error::Result;
use crate::run::{self, Beside, Mechanisms, RunOptions};

/// The options of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Path of the recorder's library, which the program loads. None: the kernel reports what the
    /// program does.
    pub preload: Option<PathBuf>,
    /// Whether the kernel also reports what the library does not see.
    pub beside: Beside,
    /// The number and size of rings, and the depth of call stacks.
    pub session: SessionOptions,
    /// The trace.
    pub trace: TraceOptions,
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
            preload,
            beside,
            session,
            trace,
        } = self.options.clone();
        let options = RunOptions {
            command,
            preload,
            dry_run: false,
            log: None,
            record: Some(trace),
            beside,
            session,
        };
        let ran = run::run(&options, &Mechanisms::default())?;
        ran.recorded.expect("a trace was asked for")
    }
}

/// Why a program of this name cannot be recorded, as far as its file shows. Programs that it starts
/// may be.
pub fn unseen(program: &OsStr) -> Option<String> {
    let path = found_on_path(program);
    // A file that cannot be opened fails with a better message when it is started.
    let file = std::fs::File::open(&path).ok()?;
    obstacle(&path).or_else(|| is_of_go(file).then(|| MADE_BY_GO.to_owned()))
}
