//! What the driver hears and what it decides, in the form in which both are logged.

use hither_core::placement::Class;
use serde::{Deserialize, Serialize};

/// Something that the driver hears of, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct At {
    /// CLOCK_MONOTONIC in nanoseconds, less the start of the run.
    pub(crate) time_ns: u64,
    #[serde(flatten)]
    pub(crate) input: Input,
}

/// Something that the driver hears of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub(crate) enum Input {
    /// A process runs a program from its start: whatever it had before is gone.
    Started { pid: u32 },
    /// A process has ended.
    Ended { pid: u32 },
    /// A program allocated a region of memory.
    Region {
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        length: u64,
        #[serde(with = "hex")]
        signature: u64,
        cpu: u32,
    },
    /// Memory is no longer a region's, or no longer there.
    RegionEnd {
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        length: u64,
    },
    /// A page was touched that was not there.
    Fault {
        pid: u32,
        tid: u32,
        cpu: u32,
        #[serde(with = "hex")]
        address: u64,
    },
    /// A program gave a range a memory policy, or could not.
    Bound {
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        length: u64,
        #[serde(with = "hex")]
        nodes: u64,
        /// The error number, 0 where it was done.
        error: u32,
        /// What was known of the allocation's site asked for it, not an order.
        site: bool,
    },
    /// A move has ended.
    Moved(Moved),
    /// Frames in use on each node.
    Usage { used: Vec<u32> },
    /// Time has passed.
    Tick,
}

/// What came of a [`Decision::Move`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) job: u64,
    /// Pages that were moved.
    pub(crate) moved: u32,
    /// Pages that were where they were to be already.
    pub(crate) there: u32,
    /// Pages that are not there yet.
    pub(crate) absent: u32,
    /// How long it took.
    pub(crate) took_ns: u64,
    /// Runs of pages that stayed elsewhere.
    pub(crate) refused: Vec<Refused>,
}

/// A run of pages that were not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// Pages before it in the range.
    pub(crate) first: u32,
    pub(crate) pages: u32,
    pub(crate) why: Why,
}

/// Why pages stayed where they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    Busy,
    Shared,
    NoRoom,
    NotPermitted,
    NoProcess,
    NodeNotAllowed,
    /// The mover stopped before it came to them.
    Untried,
    Error(i32),
}

/// What the driver wants done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(crate) enum Decision {
    /// Switch the watching of faults on or off.
    Watch { on: bool },
    /// What was found out about a region, and from what: to be told, not to be done.
    Settled(Settled),
    /// Have the program give the range a policy: from the kernel's default (no nodes) to a preferred node or several in turn.
    Bind {
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        length: u64,
        #[serde(with = "hex")]
        nodes: u64,
    },
    /// Have programs bind at once what is allocated at this site, or no longer (no nodes).
    Site {
        #[serde(with = "hex")]
        signature: u64,
        #[serde(with = "hex")]
        nodes: u64,
    },
    /// Move what is there of a range to these nodes; to several of them page by page in turn.
    Move {
        job: u64,
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        pages: u32,
        #[serde(with = "hex")]
        nodes: u64,
    },
    /// A region is too large to be followed: a reservation, more than the machine has.
    Unfollowed {
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        length: u64,
    },
}

/// What was found out about a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settled {
    pub(crate) pid: u32,
    #[serde(with = "hex")]
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// The allocation site.
    #[serde(with = "hex")]
    pub(crate) signature: u64,
    /// First faults that were seen.
    pub(crate) faults: u32,
    /// Whether its site was known, so that no fault was needed.
    pub(crate) known: bool,
    #[serde(with = "class")]
    pub(crate) class: Class,
    /// The node that it was touched (or, if its site was known, allocated) from, by the kernel's number.
    pub(crate) from: u32,
    /// The nodes that its pages are wanted on, a bit each.
    #[serde(with = "hex")]
    pub(crate) nodes: u64,
    /// Of its pages, how many are wanted on another node than `from`.
    pub(crate) away: u32,
}

/// 64-bit numbers as hexadecimal strings: most readers of JSON have 53 bits.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:#x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x");
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| de::Error::custom(format!("{text:?} is no hexadecimal number")))
    }
}

/// Classes by the policy's words.
pub(crate) mod class {
    use hither_core::placement::Class;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(
        class: &Class,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match class {
            Class::Local => "local",
            Class::Remote => "remote",
        })
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Class, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "local" => Ok(Class::Local),
            "remote" => Ok(Class::Remote),
            other => Err(de::Error::unknown_variant(other, &["local", "remote"])),
        }
    }
}
