//! The controller's inputs and orders, in the form in which they are logged.

use hither_ids::FileKey;
use serde::{Deserialize, Serialize};

use crate::controller;

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
        /// Dense numbers of the program image and of its thread, and of the node that it ran on.
        process: u32,
        thread: u32,
        node: u8,
        write: bool,
        /// How many such accesses this one stands for: of those that replicas serve, only every
        /// sixteenth is reported.
        count: u32,
    },
    /// A lease on the file was taken: its blocks can have replicas.
    Held { file: FileKey },
    /// No lease could be taken. `later`: a later attempt may succeed.
    NotHeld { file: FileKey, later: bool },
    /// The lease ended, and with it the file's replicas: a writer opened the file, or it was
    /// changed or removed.
    Ended { file: FileKey },
    /// The result of an order to replicate a block.
    Replicated {
        file: FileKey,
        index: u32,
        node: u8,
        done: bool,
    },
    /// The page cache holds nothing of a range.
    Absent {
        file: FileKey,
        offset: u64,
        length: u64,
    },
    /// It is time to check whether some of the originals are still cached.
    CheckResidency,
    /// How much of the machine's memory is available, in millionths; 0 where programs wait for
    /// memory.
    Memory { free_ppm: u32 },
    /// Memory is nearly used up, whether or not programs wait for it yet.
    Short,
    /// Nothing more has happened up to this time. `idle`: programs did not read or write meanwhile.
    Tick { idle: bool },
}

/// What the actuator is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Take a lease on the file.
    Hold { file: FileKey },
    /// Release the lease.
    Release { file: FileKey },
    /// Say of which of these blocks of a file the page cache holds nothing.
    FindAbsent { file: FileKey, indices: Vec<u32> },
    /// Copy a block to a node.
    Replicate { file: FileKey, index: u32, node: u8 },
    /// Drop the copy.
    Drop { file: FileKey, index: u32, node: u8 },
}

/// A decision of the controller.
pub(crate) type Decision = controller::Decision<Order, controller::NoNote>;
