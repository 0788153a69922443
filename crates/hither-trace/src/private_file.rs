//! Files that their owner alone may read: a trace holds command lines and names of files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The mode of a file that its owner alone may read.
pub const PRIVATE_MODE: u32 = 0o600;

/// Creates a file that its owner alone may read.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    options.mode(PRIVATE_MODE).open(path)
}
