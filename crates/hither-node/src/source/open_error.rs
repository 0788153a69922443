//! Why a source cannot be opened: one clear line each.

/// Why a source cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// What was given is no URL.
    #[error("{url}: not the URL of a source: {reason}")]
    NotAUrl {
        /// What was given.
        url: String,
        /// What is wrong, or how to write it.
        reason: String,
    },
    /// A scheme that no source has.
    #[error("unknown scheme `{scheme}`: known are {known}")]
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// Those that there are.
        known: String,
    },
    /// An option that this kind of source does not have.
    #[error("unknown option `{key}`: known are {known}")]
    UnknownOption {
        /// The option.
        key: String,
        /// Those that there are.
        known: String,
    },
    /// An option whose value does not fit.
    #[error("{url}: {reason}")]
    BadOption {
        /// The source.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// No credentials were found, or the source does not accept them.
    #[error("{url}: {reason}")]
    Credentials {
        /// The source.
        url: String,
        /// What is wrong, and where credentials are taken from.
        reason: String,
    },
    /// There is no such bucket or container.
    #[error("{url}: there is no bucket `{bucket}`")]
    NoSuchBucket {
        /// The source.
        url: String,
        /// The bucket's name.
        bucket: String,
    },
    /// There is nothing at the path.
    #[error("{url}: does not exist")]
    NotFound {
        /// The source.
        url: String,
    },
    /// The path leads to a file.
    #[error("{url}: not a directory")]
    NotADirectory {
        /// The source.
        url: String,
    },
    /// A kind of source that cannot be written.
    #[error("{url}: sources of this kind are read-only")]
    ReadOnly {
        /// The source.
        url: String,
    },
    /// The source refuses.
    #[error("{url}: access denied: {reason}")]
    Denied {
        /// The source.
        url: String,
        /// What it says.
        reason: String,
    },
    /// No answer, or an unusable one.
    #[error("{url}: {reason}")]
    Unreachable {
        /// The source.
        url: String,
        /// What went wrong.
        reason: String,
    },
}
