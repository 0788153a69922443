//! The controller's inputs, orders and notes, in the form in which they are logged.

use std::ops::Range;

use hither_ids::{FileKey, Tid};
use serde::{Deserialize, Serialize};

use crate::controller;
use crate::decision_log::hex;
use crate::program_files::CachedBefore;

pub(crate) type TimedInput = controller::TimedInput<Input>;

/// An input of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub(crate) enum Input {
    /// A program opened a file that it did not use before, or opened it again.
    Opened {
        file: FileKey,
        /// Its size.
        bytes: u64,
        /// How far the kernel reads ahead in it.
        readahead_bytes: u64,
        is_first: bool,
        /// What was cached of it then, if anybody asked.
        cached_before: Option<CachedBefore>,
    },
    /// Programs have a file open, and nothing is reported of it.
    Unreported { file: FileKey },
    /// So much of a file is cached, if that can be said.
    FileCounted {
        file: FileKey,
        cached_bytes: Option<u64>,
        /// Its file system counts what is read from storage.
        counts_reads: bool,
        /// What programs have read of it meanwhile, from the first byte to the last.
        read: Option<Range<u64>>,
    },
    /// A program read or wrote bytes of a file.
    Access {
        file: FileKey,
        offset: u64,
        length: u64,
        #[serde(with = "hex")]
        signature: u64,
        /// Dense numbers of the program image and of its thread.
        process: u32,
        thread: u32,
        write: bool,
    },
    /// A program mapped a part of a file to read it, and its page faults are watched. The file is
    /// of this size.
    Watched { file: FileKey, bytes: u64 },
    /// A thread faulted at this offset of a file that is watched.
    Touched {
        file: FileKey,
        offset: u64,
        thread: Tid,
    },
    /// A program mapped a part of a file in another way, or its page faults cannot be watched any
    /// more: accesses through the mapping are not seen.
    Mapped { file: FileKey },
    /// A file was truncated to this size.
    Cut { file: FileKey, bytes: u64 },
    /// A range was in the page cache before the program first accessed it, or so much of it.
    Preexisting {
        file: FileKey,
        offset: u64,
        length: u64,
        cached_bytes: u64,
    },
    /// The page cache holds nothing of a range.
    Absent {
        file: FileKey,
        offset: u64,
        length: u64,
    },
    /// Pages came into the page cache for the programs. This input and the next two are given where
    /// the kernel tells them.
    Inserted {
        file: FileKey,
        offset: u64,
        length: u64,
    },
    /// Another program uses pages, or has them cached.
    UsedByOthers {
        file: FileKey,
        offset: u64,
        length: u64,
    },
    /// Pages have left the page cache, and not by an order.
    Evicted {
        file: FileKey,
        offset: u64,
        length: u64,
    },
    /// The file cannot be opened any more: removed, replaced, or not accessible.
    Gone { file: FileKey },
    /// The cache for the program's files has a new size: with steering, and without.
    Budget { bytes: u64, alone_bytes: u64 },
    /// The programs have read so much more from storage, by the kernel's account, and have read and
    /// written so much in all.
    Stored { bytes: u64, transferred_bytes: u64 },
    /// A file is on a file system whose reads the kernel does not account for.
    Unaccounted,
    /// A range ahead of a reader is cached. This input and the next three are given where there is
    /// a limit.
    CachedAhead {
        file: FileKey,
        offset: u64,
        length: u64,
    },
    /// It is time to count what is cached of files that have pages which no access explains: all of
    /// it, or a part.
    CheckLimit { all: bool },
    /// What is cached of the extents from `offset` to `end`, without what is foreign: those that
    /// are not named have nothing. It took so many questions, and `goes_on` if there were no more.
    ExtentsCounted {
        file: FileKey,
        offset: u64,
        end: u64,
        cached: Vec<CachedExtent>,
        questions: u32,
        goes_on: bool,
    },
    /// A part of the extent at this offset was dropped, and so much of it is cached still: it is
    /// dirty, mapped, or being read in.
    Undropped {
        file: FileKey,
        offset: u64,
        bytes: u64,
    },
    /// It is time to check some of what is kept against the page cache.
    CheckResidency,
    /// The programs have ended. It is given again for what the kernel has left.
    Ended,
    /// All inputs up to this time have been given.
    Tick,
}

/// An extent, and how much of it is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CachedExtent {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What the actuator is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Drop a range from the page cache. It may reach beyond the end of the file.
    Drop {
        file: FileKey,
        offset: u64,
        length: u64,
    },
    /// Say of which of these extents of a file the page cache holds nothing.
    FindAbsent { file: FileKey, offsets: Vec<u64> },
    /// Say how much of a file is cached in all.
    CountFile { file: FileKey },
    /// Say what is cached of ranges of a file that programs have not come to: by extent, or to the
    /// page.
    FindPreexisting {
        file: FileKey,
        ranges: Vec<Range<u64>>,
        by_extent: bool,
    },
    /// Say what is cached of ranges of a file that programs will read next.
    FindAhead {
        file: FileKey,
        ranges: Vec<Range<u64>>,
    },
    /// Count by extent what is cached of a file from this offset on, without what is foreign, with
    /// so many questions at most.
    CountExtents {
        file: FileKey,
        offset: u64,
        foreign: Vec<Range<u64>>,
        questions: u32,
    },
    /// What programs have read from storage is to be counted now.
    Count,
    /// The page faults in a file are to be watched no more: it is not read in order.
    Unwatch { file: FileKey },
    /// Programs are to report no accesses for now, or to report them again.
    Pause { paused: bool },
    /// Programs are to disable readahead for files that they read at random: the page cache is full
    /// for the first time, and from now on readahead takes the place of other pages.
    DisableReadahead,
}

/// What the controller has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub(crate) enum Note {
    /// A window of references has ended, with this result.
    Judged(Judged),
    /// Steering has stopped: programs have read so much with it, where so much was expected without
    /// it.
    Loses {
        read_bytes: u64,
        expected_bytes: u64,
    },
}

/// A decision of the controller.
pub(crate) type Decision = controller::Decision<Order, Note>;

/// The misses of the policy in a window of references, and those of LRU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Judged {
    pub(crate) references: u64,
    pub(crate) misses: u64,
    pub(crate) lru_misses: u64,
    /// Whether evictions are carried out from now on.
    pub(crate) steering: bool,
}
