//! What a disk tier is made of, what it counts, and why there is none.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::protocol::Blocks;

/// A disk tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    /// The folder that holds it, and nothing else.
    pub folder: PathBuf,
    /// What it may take on the disk, at most.
    pub bytes_max: u64,
}

/// Why there is no disk tier.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has it.
    #[error("{}: process {holder} uses this disk cache", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The process's number, as far as it is known.
        holder: String,
    },
    /// The folder holds something else, which must not be touched.
    #[error(
        "{}: not a disk cache of hither, and not empty: name a folder of its own",
        .0.display()
    )]
    Foreign(PathBuf),
    /// Too little space.
    #[error("a disk cache of {bytes_max} bytes is too small: it needs at least {least}")]
    TooSmall {
        /// What was asked for.
        bytes_max: u64,
        /// What is needed at least: a chunk, and some more.
        least: u64,
    },
    /// The system refuses.
    #[error("{}: {error}", path.display())]
    Io {
        /// What was to be read or made.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// What a disk tier has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DiskCounts {
    /// Blocks that were written.
    pub written_blocks: u64,
    /// Blocks that were not written since the disk was behind.
    pub skipped_blocks: u64,
    /// Blocks that were read, with the right checksum.
    pub read_blocks: u64,
    /// Blocks that did not have their checksum, or could not be read. They are removed.
    pub bad_blocks: u64,
    /// Blocks that were evicted.
    pub evicted_blocks: u64,
    /// Blocks that were given up since the disk was full.
    pub full_blocks: u64,
    /// Blocks that were given up for an I/O error.
    pub failed_blocks: u64,
}

/// How much is in a disk tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DiskUsage {
    /// Blocks.
    pub blocks: u64,
    /// Chunks that have some.
    pub chunks: u64,
    /// What they take on the disk.
    pub bytes: u64,
    /// What they may take at the moment: less than was asked for where the disk is full.
    pub limit_bytes: u64,
}

/// What has become of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They are on the disk now.
    Stored(Blocks),
    /// They are no longer on the disk.
    Dropped(Blocks),
}

/// What hears of changes, on the thread that writes.
pub type Listener = Arc<dyn Fn(Change) + Send + Sync>;
