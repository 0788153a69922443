//! Which descriptor is thought to stand for a file with replicas.
//!
//! These are hints, which spare most calls the question: a program can change a descriptor unseen
//! (by a system call of its own, in a table that threads do not share, within stdio). Each read
//! that is served asks the kernel what the descriptor stands for at that moment ([`is_file`]).

use std::sync::atomic::{AtomicU64, Ordering};

use hither_kernel::file_id::FileId;
use hither_kernel::syscalls;
use hither_session::replica::view::{Match, View};

use crate::descriptor_table::{Row, Table};
use crate::session;

/// The low bits of a word: what it says.
const KIND_MASK: u64 = 3;
/// Nothing is known.
const UNKNOWN: u64 = 0;
/// It is not to be served, whatever file it is.
const REFUSED: u64 = 1;
/// The file had no replicas at the view's generation in the bits above.
const ABSENT: u64 = 2;
/// The bits above have the number and the epoch of the file.
const MATCHED: u64 = 3;

/// The bits above the kind.
const BODY_SHIFT: u32 = 2;
/// A generation as far as it is kept.
const GENERATION: u64 = u64::MAX >> BODY_SHIFT;
const FILE_BITS: u32 = 12;
const EPOCH_BITS: u32 = u64::BITS - BODY_SHIFT - FILE_BITS;

/// A descriptor without a row is not served.
#[repr(C)]
pub(crate) struct Descriptor {
    word: AtomicU64,
}

pub(crate) static TABLE: Table<Descriptor> = Table::new();

// SAFETY: a word, of which zero is a value.
unsafe impl Row for Descriptor {
    fn is_blank(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 0
    }

    fn forget(&self) {
        self.word.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// The replicas of the file that `fd` is thought to stand for.
#[inline]
pub(super) fn matched(view: &View, fd: i32) -> Option<Match> {
    let descriptor = TABLE.row(fd)?;
    let word = descriptor.word.load(Ordering::Relaxed);
    match word & KIND_MASK {
        MATCHED => {
            let of = unpack(word);
            if view.is_over(of) {
                look_up(view, fd, descriptor)
            } else {
                Some(of)
            }
        }
        REFUSED => None,
        ABSENT if word >> BODY_SHIFT == view.generation() & GENERATION => None,
        _ => look_up(view, fd, descriptor),
    }
}

fn unpack(word: u64) -> Match {
    let body = word >> BODY_SHIFT;
    Match {
        file: (body & ((1 << FILE_BITS) - 1)) as u32,
        epoch: body >> FILE_BITS,
    }
}

fn pack(of: Match) -> Option<u64> {
    let fits = of.file < 1 << FILE_BITS && of.epoch < 1 << EPOCH_BITS;
    fits.then_some((of.epoch << FILE_BITS | u64::from(of.file)) << BODY_SHIFT | MATCHED)
}

/// Finds out what `fd` stands for.
#[cold]
fn look_up(view: &View, fd: i32, descriptor: &Descriptor) -> Option<Match> {
    // The child of a vfork has its own descriptors, and its parent's table.
    if !session::owns_descriptors() {
        return None;
    }
    let generation = view.generation() & GENERATION;
    let found = match may_be_served(fd) {
        None => Err(REFUSED),
        Some(id) => match view.find(id) {
            None => Err(generation << BODY_SHIFT | ABSENT),
            Some(of) => Ok(of),
        },
    };
    let word = match found {
        Ok(of) => pack(of)?,
        Err(word) => word,
    };
    descriptor.word.store(word, Ordering::Relaxed);
    found.ok()
}

/// Whether `fd`, in this thread and at this moment, stands for the file of a match. The file's
/// lease keeps its inode, so that no other file gets the number while the match holds.
#[inline]
pub(super) fn is_file(view: &View, of: Match, fd: i32) -> bool {
    let same = view.inode(of) == syscalls::inode(fd).ok();
    if !same {
        TABLE.forget(fd);
    }
    same
}

/// The file behind `fd`, if reads of it may be served: a regular one, opened for reading alone and
/// through the page cache.
fn may_be_served(fd: i32) -> Option<FileId> {
    let flags = syscalls::status_flags(fd).ok()?;
    if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_DIRECT | libc::O_PATH) != 0 {
        return None;
    }
    let status = syscalls::status(fd).ok()?;
    (status.mode & libc::S_IFMT == libc::S_IFREG).then_some(status.id)
}
