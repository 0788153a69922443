//! What can go wrong in an analysis.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an analysis. Its text names the file, and the line where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be met: an unknown policy, a size of 0, a mistake in a file that a user
    /// wrote. The command ends with exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] hither_trace::Error),
    /// The system refused to read or write a file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that hither wrote earlier cannot be used: damaged, of another version, or locked.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The topology of this machine cannot be read.
    #[error("{0}")]
    TopologyUnreadable(String),
    /// A result cannot be written in a format.
    #[error("{format}: {problem}")]
    Encode {
        /// The format, such as `Parquet`.
        format: &'static str,
        /// What the encoder said.
        problem: String,
    },
    /// A result is too large for a picture.
    #[error("{0}")]
    TooLarge(String),
    /// A trace differs from the one that an interrupted sweep began with.
    #[error(
        "the trace has changed since the sweep began (SHA-256 {before}, now {now}); \
         without the sweep's journal it begins anew"
    )]
    TraceChanged {
        /// The hash of the trace that the sweep began with.
        before: String,
        /// The hash of the trace now.
        now: String,
    },
    /// The caller ended the work early.
    #[error("cancelled")]
    Cancelled,
    /// The error of one trace among several.
    #[error("{name}: {source}")]
    InTrace {
        /// The trace, as the user wrote it.
        name: String,
        /// What went wrong with it.
        source: Box<Error>,
    },
}

impl Error {
    /// Whether the request itself was wrong, and not a trace or a file that it names.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Usage(_) => true,
            Error::InTrace { source, .. } => source.is_usage(),
            _ => false,
        }
    }

    /// Adds the path of the file to an error of the system.
    pub(crate) fn of_file(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::File {
            path: path.to_owned(),
            source,
        }
    }

    /// For `map_err`: the system refused to write the file at `path`.
    pub(crate) fn of_writing(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Write {
            path: path.to_owned(),
            source,
        }
    }

    /// Adds the name of the trace.
    pub(crate) fn in_trace(self, name: &Path) -> Error {
        Error::InTrace {
            name: name.display().to_string(),
            source: Box::new(self),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::Encode {
            format: "JSON",
            problem: error.to_string(),
        }
    }
}

/// A trace that cannot be read back is a failure. All other errors are requests that cannot be met.
impl From<hither_sim::Error> for Error {
    fn from(error: hither_sim::Error) -> Error {
        match error {
            hither_sim::Error::Trace(error) => error.into(),
            hither_sim::Error::Cancelled => Error::Cancelled,
            error => Error::Usage(error.to_string()),
        }
    }
}
