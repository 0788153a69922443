//! Errors of reading and writing traces. Each names the file, and the row, line or column if there
//! is one. Traces are often hundreds of megabytes recorded by other people, and "invalid data"
//! would not help.

use std::path::{Path, PathBuf};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of reading or writing a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error: no such file, no space, no permission, a broken gzip
    /// stream.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A trace cannot be created where it should be.
    #[error("cannot create {} in {}: {source}", path.display(), folder_text(folder))]
    Create {
        /// The trace.
        path: PathBuf,
        /// The folder that it should be in.
        folder: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Loading needs a temporary file, and there can be none.
    #[error(
        "cannot create a temporary file in {}: {source} (TMPDIR names another folder)",
        folder.display()
    )]
    TemporaryFile {
        /// The folder that it should be in.
        folder: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Writing to an output that is not a file failed.
    #[error("{source}")]
    Output {
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that should be Parquet is not, or it is truncated or corrupt.
    #[error("{}: not a readable Parquet file: {problem}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        problem: String,
    },
    /// A Parquet file lacks a column, or the column has another type.
    #[error("{}: column {column}: {problem}", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column's name, with its parents' for nested ones.
        column: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A row has an impossible value.
    #[error("{}: row {row}: {problem}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The row, counted from 0.
        row: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A line of a text trace that the format does not allow.
    #[error("{}:{line}: {problem}: {text:?}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
        /// The line's text, cut where it is long.
        text: String,
    },
    /// A record of a binary trace that the format does not allow.
    #[error("{}: byte {offset}: {problem}", path.display())]
    Offset {
        /// The file.
        path: PathBuf,
        /// Where the record begins, in bytes of the decompressed content, counted from 0.
        offset: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// `meta.json` is not the JSON that it should be.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// A trace of a later version of hither.
    #[error("{}: trace format {found}; this version of hither reads format \
             {supported}", path.display())]
    Version {
        /// The file that says so.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version that this crate reads and writes.
        supported: u32,
    },
    /// The trace would be written over something that exists.
    #[error("{}: already exists", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// A path that should be a trace folder is something else.
    #[error("{}: not a trace folder: {problem}", path.display())]
    NotATrace {
        /// The path.
        path: PathBuf,
        /// Why it is not.
        problem: String,
    },
    /// No format has this name.
    #[error("unknown trace format {name:?} (known: {known})")]
    UnknownFormat {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The columns of delimited text are not named as they have to be.
    #[error("{text:?}: {problem}")]
    Columns {
        /// The text that names them.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No format recognises the content of the file.
    #[error("{}: not in a format that its content tells ({known}); --format names the \
             others", path.display())]
    Unrecognised {
        /// The file.
        path: PathBuf,
        /// The names of the formats that are recognised by content.
        known: String,
    },
    /// An empty file, which no format recognises.
    #[error("{}: empty, so that nothing tells its format; --format names one", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No block of the trace is in the sample.
    #[error("{}: none of the blocks of {references} references is in the sample; a larger one is \
             needed", path.display())]
    EmptySample {
        /// The trace.
        path: PathBuf,
        /// The references of the whole trace.
        references: u64,
    },
    /// The path exists and is not a regular file, so it is not replaced.
    #[error("{}: not a regular file, and not replaced by one", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// More references than a trace can have (2^32 - 2), or than memory can hold.
    #[error("{}: too many references: {problem}", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The limit that was reached.
        problem: String,
    },
    /// The tables passed to the writer contradict each other.
    #[error("{}: inconsistent trace: {problem}", path.display())]
    Inconsistent {
        /// The trace.
        path: PathBuf,
        /// The contradiction.
        problem: String,
    },
}

impl Error {
    /// Whether the disk, or the user's quota on it, is full, or a file is as large as it may be.
    pub fn is_no_space(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Error::Io { source, .. }
            | Error::Create { source, .. }
            | Error::TemporaryFile { source, .. } => {
                matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
            }
            _ => false,
        }
    }

    /// Adds the path to an error of an output without a name.
    pub(crate) fn of_output(self, path: &Path) -> Error {
        match self {
            Error::Output { source } => Error::io(path)(source),
            other => other,
        }
    }

    /// An error about the record at `offset`.
    pub(crate) fn offset(path: &Path, offset: u64, problem: impl Into<String>) -> Error {
        Error::Offset {
            path: path.to_owned(),
            offset,
            problem: problem.into(),
        }
    }

    /// For `map_err`: the trace `path` cannot be created in `folder`.
    pub(crate) fn create<'a>(
        path: &'a Path,
        folder: &'a Path,
    ) -> impl FnOnce(std::io::Error) -> Error + 'a {
        move |source| Error::Create {
            path: path.to_owned(),
            folder: folder.to_owned(),
            source,
        }
    }

    /// For `map_err`: an I/O error on `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// For `map_err`: an error of the Parquet crate on `path`. An I/O error inside it becomes
    /// [`Error::Io`].
    pub(crate) fn parquet(path: &Path) -> impl FnOnce(parquet::errors::ParquetError) -> Error + '_ {
        move |error| match error {
            parquet::errors::ParquetError::External(inner) => {
                match inner.downcast::<std::io::Error>() {
                    Ok(source) => Error::Io {
                        path: path.to_owned(),
                        source: *source,
                    },
                    Err(other) => Error::Parquet {
                        path: path.to_owned(),
                        problem: other.to_string(),
                    },
                }
            }
            other => Error::Parquet {
                path: path.to_owned(),
                problem: other.to_string(),
            },
        }
    }
}

/// A folder for people, who do not know the current one as `.`.
fn folder_text(folder: &Path) -> String {
    match folder.to_str() {
        Some("." | "") => "the current folder".to_owned(),
        _ => folder.display().to_string(),
    }
}
