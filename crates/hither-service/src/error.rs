//! Why a node does not start, does not end well, or cannot be asked.

use std::fmt::Display;

/// What went wrong within a step. Only an [`Error`] leaves the crate.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has a place: a file, a socket, a directory, or what was being done.
    #[error("{place}")]
    At {
        /// The place.
        place: String,
        /// What went wrong there.
        source: Cause,
    },
    /// It says its place itself.
    #[error(transparent)]
    Plain(#[from] Cause),
}

/// Says where something went wrong.
pub(crate) trait Place<T> {
    /// Says that it was at `place`.
    fn at(self, place: impl Display) -> Result<T, Error>;
}

impl<T, E: Into<Cause>> Place<T> for Result<T, E> {
    fn at(self, place: impl Display) -> Result<T, Error> {
        self.map_err(|error| Error::At {
            place: place.to_string(),
            source: error.into(),
        })
    }
}
