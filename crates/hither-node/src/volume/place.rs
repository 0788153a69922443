//! Where files are kept, and room for those that are to stay there.

use crate::holds::{DiskHold, Hold};
use crate::key::FileKey;

/// Where blocks are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory.
    Memory,
    /// On the disk.
    Disk,
    /// In memory and on the disk.
    Both,
    /// In memory or on the disk.
    Either,
}

/// Room for a version of a file, which holds it until this is dropped.
pub struct Pin {
    pub(super) file: FileKey,
    pub(super) bytes: u64,
    pub(super) place: Place,
    pub(super) _memory: Option<Hold>,
    pub(super) _disk: Option<DiskHold>,
}

impl Pin {
    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it is held.
    pub fn place(&self) -> Place {
        self.place
    }
}
