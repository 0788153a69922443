//! What the controller hears and what it decides, in the form in which both are logged.

use serde::{Deserialize, Serialize};

use crate::controller;
use crate::decision_log::hex;

pub(crate) type TimedInput = controller::TimedInput<Input>;

/// Something that the controller hears of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub(crate) enum Input {
    /// A program uses a file that it did not use before, or anew.
    Opened {
        #[serde(with = "hex")]
        file: u64,
    },
    /// A program moved bytes from or to a file.
    Access {
        #[serde(with = "hex")]
        file: u64,
        offset: u64,
        length: u64,
        #[serde(with = "hex")]
        signature: u64,
        /// Dense numbers of the program image and of its thread.
        process: u32,
        thread: u32,
        write: bool,
    },
    /// A program mapped a part of a file: what it touches of that is not seen.
    Mapped {
        #[serde(with = "hex")]
        file: u64,
    },
    /// A file has this size now, and no more than that.
    Cut {
        #[serde(with = "hex")]
        file: u64,
        bytes: u64,
    },
    /// A range was in the page cache before the program came to it.
    Preexisting {
        #[serde(with = "hex")]
        file: u64,
        offset: u64,
        length: u64,
    },
    /// The page cache holds nothing of a range.
    Absent {
        #[serde(with = "hex")]
        file: u64,
        offset: u64,
        length: u64,
    },
    /// The file cannot be got at: removed, replaced, out of reach, or not to be opened.
    Gone {
        #[serde(with = "hex")]
        file: u64,
    },
    /// The cache that there is for the program's files is of this size now, and that without
    /// steering of the other.
    Budget { bytes: u64, alone_bytes: u64 },
    /// All that has happened until now has been told.
    Tick,
}

/// Something that the controller decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(crate) enum Decision {
    /// The page cache is not to keep a range. It may reach beyond the end of the file.
    Drop {
        #[serde(with = "hex")]
        file: u64,
        offset: u64,
        length: u64,
    },
    /// A window of references has ended.
    Judged(Judged),
    /// The page cache is full, for the first time: from now on what is read ahead takes the place
    /// of something else, and programs are to do without where they read at random.
    Full,
}

/// What the policy did in a window of references, beside what least-recently-used would have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Judged {
    pub(crate) references: u64,
    pub(crate) misses: u64,
    pub(crate) lru_misses: u64,
    /// Whether evictions are carried out from now on.
    pub(crate) steering: bool,
}
