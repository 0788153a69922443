//! What can go wrong with a recording or a run. The program's own failure is none of these: it is
//! in the result.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::run::Conflict;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of recording or running a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no command.
    #[error("no program to run")]
    NoCommand,
    /// The program could not be started; nothing was recorded, and no trace left behind.
    #[error("{}: {}", program.display(), plainly(source))]
    Start {
        /// The program as given.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The recorder's library cannot be preloaded.
    #[error("{}: cannot be preloaded: {problem}", path.display())]
    Preload {
        /// Its path.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// The shared memory or the thread that takes the events could not be set up.
    #[error("cannot set up the session: {0}")]
    Session(#[source] io::Error),
    /// The program could not be waited for, or its signals not be passed on.
    #[error("cannot wait for the program: {0}")]
    Wait(#[source] io::Error),
    /// The output cannot be written to: it exists, or its folder does not. The program was not
    /// started.
    #[error(transparent)]
    Output(hither_trace::Error),
    /// A file of the run cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Two mechanisms do not go together.
    #[error("{0}")]
    Conflict(Conflict),
    /// The machine does not show its memory nodes.
    #[error("this machine does not show its memory nodes (/sys/devices/system/node): {0}")]
    Nodes(String),
    /// The node has no memory, or none for this process.
    #[error("node {node} has no memory that can be had here; nodes with memory: {nodes}")]
    NoNode {
        /// The kernel's number.
        node: u32,
        /// Those that have.
        nodes: String,
    },
    /// A log of a run is not one that hither wrote.
    #[error("{0}")]
    Log(String),
    /// Writing the trace failed while the program ran or after; it ran to its end all the same.
    #[error("recording stopped: {source}")]
    Trace {
        /// What the trace's writer said.
        source: hither_trace::Error,
        /// How the program ended.
        exit: ExitStatus,
    },
}

impl Error {
    /// The exit status by which shells tell that a program was not found (127) or cannot be
    /// executed (126); `None` for every other error.
    pub fn start_status(&self) -> Option<u8> {
        match self {
            Error::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => Some(127),
            Error::Start { .. } => Some(126),
            _ => None,
        }
    }
}

/// What a shell says of a program that it cannot start.
fn plainly(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "program not found".to_owned(),
        _ => error.to_string(),
    }
}
