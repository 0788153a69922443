//! What is known of who has cached what: the programs of the run, or others.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::extents::EXTENT_BYTES;

/// So far ahead of a reader it is asked what others have cached meanwhile: further than the kernel
/// reads ahead, and than a reader comes until the agent knows of it.
pub(super) const AHEAD_BYTES: u64 = 32 << 20;

/// A file of which the kernel is to say how much is cached.
#[derive(Clone, Copy, Debug)]
pub(super) struct UncountedFile {
    pub(super) bytes: u64,
    /// Of so much of its front it was asked when it was opened.
    pub(super) known_bytes: u64,
    /// What others had cached of that.
    pub(super) foreign_bytes: u64,
    pub(super) is_asked: bool,
}

/// What the kernel has said of such a file.
#[derive(Clone, Debug)]
pub(super) struct CountedFile {
    /// So much of it is cached, if that can be said.
    pub(super) cached_bytes: Option<u64>,
    /// Whether its file system counts reads.
    pub(super) counts_reads: bool,
    /// What was read of it by then.
    pub(super) read: Option<Range<u64>>,
}

/// How far a file is read on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOn {
    /// Up to where it is read.
    pub(super) read_to: u64,
    /// Up to where it is known what others have cached.
    pub(super) asked_to: u64,
}

/// What is known of who has cached what.
#[derive(Debug, Default)]
pub(super) struct Attribution {
    /// What programs have read and written.
    transferred_bytes: u64,
    /// The same at the last three looks for open files, the latest first.
    at_looks: [u64; 3],
    /// What of it lies in files that are known.
    pub(super) attributed_bytes: u64,
    pub(super) uncounted: FxHashMap<u32, UncountedFile>,
    /// Those that are judged at the next count of what programs have transferred.
    pub(super) counted: Vec<(u32, CountedFile)>,
    pub(super) read_on: FxHashMap<u32, ReadOn>,
    /// What others seem to have cached ahead of a reader. It holds if no program has come near by
    /// then: records of reads may be under way.
    pub(super) ahead: Vec<(u32, Range<u64>)>,
}

impl Attribution {
    /// Programs have read and written so much in all.
    pub(super) fn transferred(&mut self, bytes: u64) {
        self.transferred_bytes = bytes;
    }

    /// Files that processes have open are looked up. What is cached of a file that the last look
    /// has found can be the programs' own only so far as they have read and written since the look
    /// before it was seen first.
    pub(super) fn looked_up(&mut self) {
        let [last, before, _] = self.at_looks;
        self.at_looks = [self.transferred_bytes, last, before];
        self.attributed_bytes = 0;
    }

    /// What programs have read and written, so far as no file is known to have it.
    pub(super) fn brought_in_bytes(&self) -> u64 {
        let since = self.transferred_bytes.saturating_sub(self.at_looks[2]);
        since.saturating_sub(self.attributed_bytes)
    }

    /// A file was read or written up to here. Returns from where to ask ahead, if it is time.
    pub(super) fn accessed(
        &mut self,
        file: u32,
        offset: u64,
        end: u64,
        write: bool,
    ) -> Option<u64> {
        if !write && offset == 0 {
            self.read_on.remove(&file);
        }
        if write || end <= EXTENT_BYTES {
            return None;
        }
        let read_on = self.read_on.entry(file).or_insert(ReadOn {
            read_to: end,
            asked_to: AHEAD_BYTES,
        });
        read_on.read_to = read_on.read_to.max(end);
        (end + AHEAD_BYTES > read_on.asked_to).then(|| {
            let from = read_on.asked_to.max(end + AHEAD_BYTES / 2);
            read_on.asked_to = from + AHEAD_BYTES;
            from
        })
    }

    /// Whether a tick would find something.
    pub(super) fn due(&self) -> bool {
        !self.ahead.is_empty()
    }
}
