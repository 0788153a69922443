//! The errors of a recording or a run. A program that fails is none of them: the result has its
//! exit status.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use hither_ids::KernelNode;
use hither_kernel::page_faults::WatchError;

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
    /// The library cannot be preloaded.
    #[error("{}: cannot be preloaded: {problem}", path.display())]
    Preload {
        /// Its path.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// The shared memory or a thread of the agent could not be set up.
    #[error("cannot set up the session: {0}")]
    Session(#[source] io::Error),
    /// The kernel's events cannot be had.
    #[error("the kernel's events cannot be had: {}", .0.with_causes())]
    Observer(hither_kernel_events::Error),
    /// The kernel's events do not say who uses which pages.
    #[error(
        "this kernel does not say what other programs use, or what comes into the page cache, so \
         that it cannot be steered by its events"
    )]
    KernelSaysTooLittle,
    /// The touches of mapped files cannot be watched. The program was not started.
    #[error("--mapped: {0}")]
    Mapped(#[source] WatchError),
    /// The program could not be waited for, or its signals could not be forwarded.
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
    /// The log of decisions cannot be created.
    #[error("cannot create the log {}: {source} (--log names another file)", path.display())]
    LogNotCreated {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Two mechanisms cannot run together.
    #[error("{0}")]
    Conflict(Conflict),
    /// The memory nodes of the machine cannot be read.
    #[error("this machine does not show its memory nodes (/sys/devices/system/node): {0}")]
    Nodes(String),
    /// The node has no memory, or none for this process.
    #[error("node {node} has no memory that can be had here; nodes with memory: {nodes}")]
    NoNode {
        /// The kernel's number.
        node: KernelNode,
        /// The nodes that have memory.
        nodes: String,
    },
    /// A log of a run is not one that hither wrote.
    #[error("{0}")]
    Log(String),
    /// The trace could not be completed, not even a part of it. The program ran to its end all the
    /// same.
    #[error("no trace could be written: {source}{}", recoverable(left.as_deref()))]
    Trace {
        /// What the trace's writer said.
        source: hither_trace::Error,
        /// The hidden folder that it can be recovered from.
        left: Option<PathBuf>,
        /// How the program ended.
        exit: ExitStatus,
    },
}

/// Two mechanisms that cannot run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Replicas hide accesses from the page cache's policy.
    ReplicationHidesPageCache,
    /// Replicas hide accesses from the placement of file pages, and are copies of these pages.
    ReplicationHidesFiles,
}

impl Conflict {
    /// The first conflict of mechanisms, given by their names in
    /// [`Mechanisms`](crate::Mechanisms).
    pub fn among(mechanisms: &[&str]) -> Option<Conflict> {
        let all = [
            Conflict::ReplicationHidesPageCache,
            Conflict::ReplicationHidesFiles,
        ];
        let is_met = |of: &Conflict| of.between().iter().all(|name| mechanisms.contains(name));
        all.into_iter().find(is_met)
    }

    /// The names of the mechanisms.
    pub fn between(self) -> [&'static str; 2] {
        match self {
            Conflict::ReplicationHidesPageCache => ["page_cache", "replication"],
            Conflict::ReplicationHidesFiles => ["replication", "file_placement"],
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Conflict::ReplicationHidesPageCache => {
                "of the reads that replicas serve only one in 16 is reported, \
                 so what the page cache should keep could not be judged"
            }
            Conflict::ReplicationHidesFiles => {
                "replicas are made of pages where the kernel has put them, \
                 and reads of replicas are not reported one by one"
            }
        })
    }
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

/// How to get at a trace that could not be completed.
fn recoverable(left: Option<&Path>) -> String {
    left.map_or(String::new(), |left| {
        format!(
            "; `hither recover {}` makes one of what was recorded",
            left.display()
        )
    })
}

/// The words of a shell for a program that it cannot start.
fn plainly(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "program not found".to_owned(),
        _ => error.to_string(),
    }
}
