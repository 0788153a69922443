//! What the work for a [limit](super::limit) remembers.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hither_kernel::file_id::Inode;
use hither_session::record::Op;
use rustc_hash::FxHashMap;

use super::super::super::controller::EXTENT_BYTES;

/// So far ahead of a reader it is asked what others have cached meanwhile: further than the kernel
/// reads ahead, and than a reader comes until the agent knows of it.
pub(super) const AHEAD_BYTES: u64 = 32 << 20;

/// See the module.
pub(super) struct Limiter {
    /// Files that have more than an extent, and may have pages that nothing explains.
    pub(super) unexplained: BTreeMap<u64, Unexplained>,
    /// The file that is asked next, and its extent.
    pub(super) next: (u64, u32),
    /// Up to where it is known what others have cached of files that are read on.
    pub(super) asked_to: FxHashMap<u64, u64>,
    /// Up to where they are known to be read.
    pub(super) read_to: FxHashMap<u64, u64>,
    /// What others seem to have cached there, which holds if no program has come so far by then:
    /// records of reads may be under way.
    pub(super) answers: Vec<Answer>,
    /// Where programs read on.
    pub(super) to_ask: VecDeque<Question>,
    pub(super) last_file: u64,
    /// By device and inode, the files that were looked up.
    pub(super) looked_up: FxHashMap<Inode, LookedUp>,
    /// What programs had read and written at the last three looks, the latest first.
    pub(super) transferred_bytes: [u64; 3],
    pub(super) due_ns: u64,
    /// What the last drops have left that is dirty or being written.
    pub(super) writing_bytes: u64,
}

/// Where a file is read on: from there it is asked.
pub(super) struct Question {
    pub(super) file: u64,
    pub(super) from: u64,
}

/// A part of a file that is cached.
pub(super) struct Answer {
    pub(super) file: u64,
    pub(super) part: Range<u64>,
}

/// What is known of a file that a process has open.
#[derive(Clone, Copy)]
pub(super) enum LookedUp {
    /// It was found once: the record of its opening may be under way.
    Once,
    /// The library reports its accesses, or it has no pages to steer.
    Reported,
    /// Nothing was reported of the file with this key.
    Unreported(u64),
}

/// Why a file is asked about again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unexplained {
    /// It was accessed since it was last asked.
    pub(super) used: bool,
    /// It is mapped: nobody knows when it is used.
    pub(super) mapped: bool,
}

impl Limiter {
    pub(super) fn new() -> Limiter {
        Limiter {
            unexplained: BTreeMap::new(),
            next: (0, 0),
            asked_to: FxHashMap::default(),
            read_to: FxHashMap::default(),
            answers: Vec::new(),
            to_ask: VecDeque::new(),
            last_file: 0,
            looked_up: FxHashMap::default(),
            transferred_bytes: [0; 3],
            due_ns: 0,
            writing_bytes: 0,
        }
    }

    pub(super) fn on_opened(&mut self, file: u64, bytes: u64) {
        if bytes > EXTENT_BYTES {
            self.unexplained.entry(file).or_default().used = true;
        }
    }

    pub(super) fn on_access(&mut self, op: Op, file: u64, offset: u64, length: u64) {
        match op {
            Op::Map => self.unexplained.entry(file).or_default().mapped = true,
            Op::Read | Op::Write => {
                let end = offset.saturating_add(length);
                if end > EXTENT_BYTES && self.last_file != file {
                    self.last_file = file;
                    self.unexplained.entry(file).or_default().used = true;
                }
                if op == Op::Read && offset == 0 {
                    self.asked_to.remove(&file);
                    self.read_to.remove(&file);
                }
                if op == Op::Write || end <= EXTENT_BYTES {
                    return;
                }
                let read_to = self.read_to.entry(file).or_insert(end);
                *read_to = (*read_to).max(end);
                let asked_to = self.asked_to.entry(file).or_insert(AHEAD_BYTES);
                if end + AHEAD_BYTES > *asked_to {
                    let from = (*asked_to).max(end + AHEAD_BYTES / 2);
                    *asked_to = from + AHEAD_BYTES;
                    self.to_ask.push_back(Question { file, from });
                }
            }
            Op::Unmap | Op::Truncate => {}
        }
    }
}
