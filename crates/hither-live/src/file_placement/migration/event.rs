//! The inputs and orders of the controller, as they are logged.

use hither_ids::{FileKey, KernelNode};
use serde::{Deserialize, Serialize};

use crate::controller;
use crate::decision_log::hex;
use crate::numa::ranges::{LocatedRun, MoveResult};

pub(crate) type TimedInput = controller::TimedInput<Input>;

/// An input of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub(crate) enum Input {
    /// A program read or wrote bytes of a file.
    Access {
        file: FileKey,
        offset: u64,
        length: u64,
        /// Dense number of the thread.
        thread: u32,
        cpu: u32,
        write: bool,
    },
    /// Nodes of the pages of a [`Order::Locate`]. Pages that are not cached are left out.
    Located { job: u64, found: Vec<LocatedRun> },
    /// A move has ended.
    Moved(MoveResult),
    /// The file of a job cannot be opened or mapped, now or ever.
    Unreachable { job: u64, for_good: bool },
    /// Frames in use on each node.
    Usage { used: Vec<u32> },
    /// Time has passed.
    Tick,
}

/// What the actuator is to do. Ranges begin at an offset in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Look up the nodes of these pages.
    Locate {
        job: u64,
        file: FileKey,
        ranges: Vec<FilePages>,
    },
    /// Move these pages, as far as they are cached.
    Move {
        job: u64,
        file: FileKey,
        /// The kernel's number of the node.
        to: KernelNode,
        ranges: Vec<FilePages>,
        /// Counted accesses to these pages: from the nodes that hold them, and from the node that
        /// they move to.
        here: u64,
        there: u64,
        /// The expected cost of moving them.
        cost_ns: u64,
    },
}

/// A decision of the controller.
pub(crate) type Decision = controller::Decision<Order, controller::NoNote>;

/// Consecutive pages of a file, from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FilePages {
    #[serde(with = "hex")]
    pub(crate) start: u64,
    pub(crate) pages: u32,
}
