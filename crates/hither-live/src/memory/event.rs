//! What the controller hears and what it decides, in the form in which both are logged.

use hither_core::placement::RegionTier;
use hither_sys::record::ConstructKind;
use serde::{Deserialize, Serialize};

use crate::controller;
pub(crate) use crate::decision_log::hex;
use crate::numa::ranges::{LocatedRun, MoveResult, PageRange};

pub(crate) type TimedInput = controller::TimedInput<Input>;

/// Something that the controller hears of.
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
        tid: u32,
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
    /// The processor sampled an access.
    Load {
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
        /// It is a [`Decision::Hint`] that was carried out.
        #[serde(default)]
        hint: bool,
    },
    /// A thread met a boundary between parallel constructs, as the master of an outermost team.
    Construct {
        pid: u32,
        tid: u32,
        cpu: u32,
        #[serde(with = "construct")]
        kind: ConstructKind,
        #[serde(with = "hex")]
        signature: u64,
        /// Of the team; 0 where that is not known.
        threads: u16,
    },
    /// A thread of a team runs there, on another node than when it last said so.
    Thread { pid: u32, tid: u32, cpu: u32 },
    /// Pages could not be armed.
    Unarmed {
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        pages: u32,
        why: String,
        /// None of this process ever can.
        for_good: bool,
    },
    /// Arming so many pages took so much processor time.
    Armed { pages: u32, took_ns: u64 },
    /// Where pages are that were asked about; those that are nowhere are left out.
    Located { job: u64, found: Vec<LocatedRun> },
    /// A move has ended.
    Moved(MoveResult),
    /// Frames in use on each node.
    Usage { used: Vec<u32> },
    /// Time has passed.
    Tick,
}

/// What the controller wants done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(crate) enum Decision {
    /// Switch the watching of faults on or off.
    Watch { on: bool },
    /// What was found out about a region, and from what: to be told, not to be done.
    Settled(Settled),
    /// Have the program give the range a policy: from the kernel's default (no nodes) to a
    /// preferred node or several in turn.
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
    /// Sample a range from now on, or no longer.
    Sample {
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        length: u64,
        on: bool,
    },
    /// Have the kernel sample a range, most of which is on this node (the kernel's number); none:
    /// the kernel's default again.
    Hint {
        pid: u32,
        #[serde(with = "hex")]
        start: u64,
        length: u64,
        node: Option<u32>,
    },
    /// Have the next touch of each of these pages fault once more, as a sample of who uses them.
    Arm { pid: u32, ranges: Vec<PageRange> },
    /// Find out where these pages are.
    Locate {
        job: u64,
        pid: u32,
        ranges: Vec<PageRange>,
    },
    /// What the samples said when the policy was asked about them: to be told, not to be done.
    Judged(Judged),
    /// Move pages of a region to where they are used.
    Migrate(Migrate),
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
    pub(crate) class: RegionTier,
    /// The node that it was touched (or, if its site was known, allocated) from, by the kernel's
    /// number.
    pub(crate) from: u32,
    /// The nodes that its pages are wanted on, a bit each.
    #[serde(with = "hex")]
    pub(crate) nodes: u64,
    /// Of its pages, how many are wanted on another node than `from`.
    pub(crate) away: u32,
}

/// What the policy was shown at the end of an iteration or a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Judged {
    /// The process; none of a period of the policy's own, which is of all.
    pub(crate) pid: Option<u32>,
    /// How the end was known.
    pub(crate) ended: Ended,
    /// Samples since the last time, and those of them that were local.
    pub(crate) samples: u64,
    pub(crate) local: u64,
    /// Pages that the policy knows something of, and those that it wants elsewhere.
    pub(crate) pages: u32,
    pub(crate) wanted: u32,
    /// Pages that may be armed a second from now on.
    pub(crate) rate: u64,
}

/// What ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    /// An iteration that the program told of, or that repeats.
    Iteration,
    /// A period of time, of a program without iterations.
    Period,
}

/// Pages of one region that are wanted on one node, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Migrate {
    pub(crate) job: u64,
    pub(crate) pid: u32,
    /// The allocation site.
    #[serde(with = "hex")]
    pub(crate) signature: u64,
    /// The kernel's number of the node.
    pub(crate) to: u32,
    pub(crate) pages: u32,
    pub(crate) ranges: Vec<PageRange>,
    /// Samples of the region since its last judgement, and those of them from that node.
    pub(crate) samples: u64,
    pub(crate) from_there: u64,
    /// What the policy was shown of these pages, sums over them: accesses from the node that has
    /// them (the upper bound), and from the one that is to have them (the lower bound).
    pub(crate) here: u64,
    pub(crate) there: u64,
    /// What moving saves in an iteration or a period like the last, by these bounds and without
    /// contention: at the least, and so at times less than nothing.
    pub(crate) gain_ns: i64,
    /// What moving costs once.
    pub(crate) cost_ns: u64,
}

/// Constructs by name.
pub(crate) mod construct {
    use hither_sys::record::ConstructKind;
    use serde::{Deserialize, Deserializer, Serializer, de};

    const NAMES: [(ConstructKind, &str); 5] = [
        (ConstructKind::ParallelBegin, "parallel_begin"),
        (ConstructKind::ParallelEnd, "parallel_end"),
        (ConstructKind::Barrier, "barrier"),
        (ConstructKind::Iteration, "iteration"),
        (ConstructKind::Hidden, "hidden"),
    ];

    pub(crate) fn serialize<S: Serializer>(
        kind: &ConstructKind,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let named = NAMES.iter().find(|(of, _)| of == kind);
        serializer.serialize_str(named.map_or("", |(_, name)| name))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<ConstructKind, D::Error> {
        let text = String::deserialize(deserializer)?;
        let kind = NAMES.iter().find(|(_, name)| *name == text);
        kind.map(|&(kind, _)| kind)
            .ok_or_else(|| de::Error::custom(format!("{text:?} is no construct")))
    }
}

/// Classes by the policy's words.
pub(crate) mod class {
    use hither_core::placement::RegionTier;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(
        class: &RegionTier,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match class {
            RegionTier::Local => "local",
            RegionTier::Remote => "remote",
        })
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RegionTier, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "local" => Ok(RegionTier::Local),
            "remote" => Ok(RegionTier::Remote),
            other => Err(de::Error::unknown_variant(other, &["local", "remote"])),
        }
    }
}
