//! Classification by file: runs of consecutive blocks, and whether a run starts again.
//!
//! Source: Kim et al., "A low-overhead high-performance unified buffer management scheme that
//! exploits sequential and looping references", OSDI 2000, section 3.1, as the PCC paper summarises
//! it in its section 3.2. A file has one class at a time:
//! - *sequential* once `threshold` consecutive blocks were referenced (3 in both papers);
//! - *looping* when the first block of such a run is referenced again, for as long as the
//!   references follow that run; the period is the time from start to start, as last measured;
//! - *other* before, and again after any reference that fits neither.
//!
//! Readings where the papers are open: a reference to the same block as the one before changes
//! nothing. A loop that continues beyond the end of the known run is sequential from there, and the
//! next round follows the longer run. A round that is cut short by a new start counts as a round. A
//! reference that fits neither forgets the run and its loop.
//!
//! A looping file counts as steady ([`Stream::steady_period`]), with its period.

use super::{Class, Classification, Classifier, Stream, at};
use crate::access::Access;
use crate::ids::Tick;

#[derive(Clone, Copy, Debug, Default)]
struct FileState {
    /// Length of the current run; 0 before the first reference.
    length: u32,
    /// First and latest block of the current run.
    start: u32,
    last: u32,
    /// When the current run started.
    started: Tick,
    /// One past the last block of the longest run from `start` seen so far.
    end: u32,
    looping: bool,
    period: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Ubm {
    threshold: u32,
    files: Vec<FileState>,
}

impl Ubm {
    /// Runs of at least `threshold` blocks are sequences.
    pub fn new(threshold: u32) -> Self {
        Ubm {
            threshold,
            files: Vec::new(),
        }
    }
}

impl Classifier for Ubm {
    fn classify(&mut self, access: &Access) -> Classification {
        let file = at(&mut self.files, access.object.0);
        let index = access.index;
        if file.length > 0 && index == file.last {
            // The same block again changes nothing.
        } else if file.length > 0 && file.last.checked_add(1) == Some(index) {
            file.length += 1;
            file.last = index;
            if index >= file.end {
                file.end = index + 1;
                file.looping = false;
            }
        } else if file.length > 0 && index == file.start && file.end - file.start >= self.threshold
        {
            file.looping = true;
            // Several references at a time: blocks that another cache hands on.
            file.period = (access.tick - file.started).max(1);
            file.started = access.tick;
            file.length = 1;
            file.last = index;
        } else {
            *file = FileState {
                length: 1,
                start: index,
                last: index,
                started: access.tick,
                end: index.saturating_add(1),
                looping: false,
                period: 0,
            };
        }
        let class = if file.looping {
            Class::Looping
        } else if file.length >= self.threshold {
            Class::Sequential
        } else {
            Class::Other
        };
        Classification {
            class,
            stream: Stream {
                id: access.object.0,
                period: file.period,
                steady_period: file.period,
            },
            revised: None,
        }
    }

    fn check(&self) {
        for file in self.files.iter().filter(|file| file.length > 0) {
            assert_eq!(file.last - file.start, file.length - 1);
            assert!(file.end > file.last);
            assert!(!file.looping || file.end - file.start >= self.threshold);
            assert!(!file.looping || file.period > 0);
        }
    }
}
