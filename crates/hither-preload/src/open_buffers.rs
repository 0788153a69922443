//! What a thread needs to define the files that it opens (`opened`): too much for the stack of a
//! signal handler.

use hither_kernel::syscalls::StatusBuffer;
use hither_session::record::Words;

/// The longest path that is defined here.
pub(crate) const PATH_BYTES_MAX: usize = 2048;

/// Directories whose paths a thread remembers.
const DIRECTORIES: usize = 8;

/// The longest path of a directory that is remembered.
const DIRECTORY_BYTES_MAX: usize = 488;

/// See the module.
pub(crate) struct Buffers {
    pub(crate) status: StatusBuffer,
    pub(crate) path: [u8; PATH_BYTES_MAX],
    pub(crate) words: Words,
    pub(crate) directories: [Directory; DIRECTORIES],
    next_directory: u8,
}

/// The path of a directory that the program opens files below.
pub(crate) struct Directory {
    /// As `files::directory` has it; 0 in an entry never used.
    token: u64,
    length: usize,
    path: [u8; DIRECTORY_BYTES_MAX],
}

impl Buffers {
    /// In place, since the stack may be smaller.
    pub(crate) fn boxed() -> Box<Buffers> {
        let zeroed = Box::<Buffers>::new_zeroed();
        // SAFETY: every field is made of integers, for which zero is a value.
        unsafe { zeroed.assume_init() }
    }

    /// Remembers the path of a directory in place of the one longest known. False if it is too
    /// long.
    pub(crate) fn remember(&mut self, token: u64, path: &[u8]) -> bool {
        let at = usize::from(self.next_directory) % DIRECTORIES;
        self.next_directory = self.next_directory.wrapping_add(1);
        let Some(directory) = self.directories.get_mut(at) else {
            return false;
        };
        let Some(into) = directory.path.get_mut(..path.len()) else {
            return false;
        };
        into.copy_from_slice(path);
        (directory.token, directory.length) = (token, path.len());
        true
    }
}

impl Directory {
    /// The path of the directory of this token, if it is remembered.
    pub(crate) fn of(directories: &[Directory], token: u64) -> Option<&[u8]> {
        let known = |directory: &&Directory| directory.token == token && token != 0;
        let directory = directories.iter().find(known)?;
        directory.path.get(..directory.length)
    }
}
