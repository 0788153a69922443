//! What the controller hears and what it decides, in the form in which both are logged.

use serde::{Deserialize, Serialize};

use crate::controller;
use crate::decision_log::hex;

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
        /// Dense numbers of the program image and of its thread, and of the node that it ran on.
        process: u32,
        thread: u32,
        node: u8,
        write: bool,
        /// How many such accesses this one stands for: those that replicas served are told of now
        /// and then.
        count: u32,
    },
    /// A lease on the file is held: its blocks can have replicas.
    Held {
        #[serde(with = "hex")]
        file: u64,
    },
    /// None is; it is no use to ask again, or only later.
    NotHeld {
        #[serde(with = "hex")]
        file: u64,
        later: bool,
    },
    /// A writer has come, or the file has gone or changed: it has no replicas any more, nor a
    /// lease.
    Ended {
        #[serde(with = "hex")]
        file: u64,
    },
    /// What came of a replica that was asked for.
    Settled {
        #[serde(with = "hex")]
        file: u64,
        index: u32,
        node: u8,
        done: bool,
    },
    /// The page cache holds nothing of a range.
    Absent {
        #[serde(with = "hex")]
        file: u64,
        offset: u64,
        length: u64,
    },
    /// So much of the machine's memory is free, or easily made so; in millionths, and 0 where
    /// programs wait for memory.
    Memory { free_ppm: u32 },
    /// Nearly all of it is used, whether anybody waits yet or not.
    Short,
    /// Nothing more has happened until now; programs were idle meanwhile, or not.
    Tick { idle: bool },
}

/// Something that the controller decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(crate) enum Decision {
    /// A lease on the file is to be taken.
    Hold {
        #[serde(with = "hex")]
        file: u64,
    },
    /// It is to be let go of.
    Release {
        #[serde(with = "hex")]
        file: u64,
    },
    /// A block is to be copied to a node.
    Replicate {
        #[serde(with = "hex")]
        file: u64,
        index: u32,
        node: u8,
    },
    /// The copy is to be given up.
    Drop {
        #[serde(with = "hex")]
        file: u64,
        index: u32,
        node: u8,
    },
}
