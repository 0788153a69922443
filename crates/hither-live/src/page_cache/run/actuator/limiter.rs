//! What the work for a [limit](super::limit) remembers.

use hither_ids::FileKey;
use hither_kernel::file_id::Inode;
use rustc_hash::FxHashMap;

/// What is remembered for a limit.
#[derive(Default)]
pub(super) struct Limiter {
    /// By device and inode, the files that were looked up.
    pub(super) looked_up: FxHashMap<Inode, LookedUp>,
    pub(super) due_ns: u64,
    /// What the last drops have left that is dirty or being written.
    pub(super) writing_bytes: u64,
}

/// What is known of a file that a process has open.
#[derive(Clone, Copy)]
pub(super) enum LookedUp {
    /// It was found once: the record of its opening may be under way.
    Once,
    /// The library reports its accesses, or it has no pages to steer.
    Reported,
    /// Nothing was reported of the file with this key.
    Unreported(FileKey),
}
