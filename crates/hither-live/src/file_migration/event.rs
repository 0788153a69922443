//! What the controller hears and what it decides, in the form in which both are logged.

use serde::{Deserialize, Serialize};

use crate::controller;
use crate::decision_log::hex;
use crate::numa::ranges::{LocatedRun, MoveResult, PageRange};

pub(crate) type TimedInput = controller::TimedInput<Input>;

/// Something that the controller hears of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub(crate) enum Input {
    /// A program moved bytes from or to a file.
    Access {
        #[serde(with = "hex")]
        file: u64,
        offset: u64,
        length: u64,
        /// Dense number of the thread.
        thread: u32,
        cpu: u32,
    },
    /// Where pages are that were asked about; those that are not cached are left out.
    Located { job: u64, found: Vec<LocatedRun> },
    /// A move has ended.
    Moved(MoveResult),
    /// The file cannot be got at, now or ever: the job came to nothing.
    Unreachable { job: u64, for_good: bool },
    /// Frames in use on each node.
    Usage { used: Vec<u32> },
    /// Time has passed.
    Tick,
}

/// Something that the controller decides. Ranges begin at an offset in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(crate) enum Decision {
    /// Find out where these pages are.
    Locate {
        job: u64,
        #[serde(with = "hex")]
        file: u64,
        ranges: Vec<PageRange>,
    },
    /// Move these pages, as far as they are cached.
    Move {
        job: u64,
        #[serde(with = "hex")]
        file: u64,
        /// The kernel's number of the node.
        to: u32,
        ranges: Vec<PageRange>,
        /// What the policy was shown of them: accesses from the nodes that have them, and from the
        /// one that is to have them.
        here: u64,
        there: u64,
        /// What moving them is taken to cost.
        cost_ns: u64,
    },
}
