//! The inputs, orders and notes of the controller, as they are logged.

use hither_core::placement::RegionTier;
use hither_ids::{Address, KernelNode, Pid, Tid};
use hither_kernel::writable_memory::MemoryKind;
use hither_session::record::ConstructKind;
use serde::{Deserialize, Serialize};

use crate::controller;
use crate::decision_log::hex;
use crate::numa::ranges::{MoveResult, PageRange};

pub(crate) type TimedInput = controller::TimedInput<Input>;

/// An input of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub(crate) enum Input {
    /// A process begins to run a program: what it had before is gone.
    Started { pid: Pid },
    /// A process has ended.
    Ended { pid: Pid },
    /// A program allocated a region of memory.
    Region {
        pid: Pid,
        tid: Tid,
        start: Address,
        length: u64,
        #[serde(with = "hex")]
        signature: u64,
        cpu: u32,
    },
    /// Memory is no longer a region's, or was unmapped.
    RegionEnd {
        pid: Pid,
        start: Address,
        length: u64,
    },
    /// A page fault: a first touch, or one of a page that is armed.
    Fault {
        pid: Pid,
        tid: Tid,
        cpu: u32,
        address: Address,
    },
    /// So many page faults of programs that are not in the run.
    OthersFaults { count: u64 },
    /// A sample of who uses a page, and the kernel's number of the node that the page is on, where
    /// that is known.
    Sample {
        pid: Pid,
        tid: Tid,
        cpu: u32,
        address: Address,
        home: Option<KernelNode>,
    },
    /// Where a page is that the controller had looked up, by the kernel's number of the node.
    Located {
        #[serde(flatten)]
        page: TouchedPage,
        home: Option<KernelNode>,
    },
    /// The memory that a process writes to, by the kernel's list of its mappings. `own`: it asks
    /// for certain nodes itself.
    Memory {
        pid: Pid,
        own: bool,
        ranges: Vec<MappedRange>,
    },
    /// A program has set the memory policy of a range, or could not.
    Bound {
        pid: Pid,
        start: Address,
        length: u64,
        #[serde(with = "hex")]
        nodes: u64,
        /// The error number; 0 for success.
        error: u32,
        /// The policy is the one of the allocation's site, and not of a bind request.
        site: bool,
    },
    /// A thread that leads an outermost team met a boundary between parallel constructs.
    Construct {
        pid: Pid,
        tid: Tid,
        cpu: u32,
        #[serde(with = "ConstructName")]
        kind: ConstructKind,
        #[serde(with = "hex")]
        signature: u64,
        /// Threads of the team; 0 where that is unknown.
        threads: u16,
    },
    /// A thread of a team runs on another node than when it last reported.
    Thread { pid: Pid, tid: Tid, cpu: u32 },
    /// Pages could not be armed.
    Unarmed {
        pid: Pid,
        start: Address,
        pages: u32,
        why: String,
        /// No pages of this process can ever be.
        for_good: bool,
    },
    /// Faults found no room in their ring: which pages are still armed is not known any more.
    FaultsLost,
    /// Arming blocks of pages took this processor time, and all of this mechanism's work on the
    /// agent's thread since the last time, this with it, `agent_ns`.
    Armed {
        blocks: u32,
        took_ns: u64,
        agent_ns: u64,
    },
    /// A move has ended.
    Moved(MoveResult),
    /// Frames in use on each node.
    Usage { used: Vec<u32> },
    /// Time has passed.
    Tick,
}

/// What the actuator is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Switch the recording of faults on or off.
    Watch { on: bool },
    /// Listen to samples that the processor or the kernel makes, or not.
    Listen { on: bool },
    /// Have the program set the memory policy of a range: the kernel's default (no nodes), a
    /// preferred node, or several nodes interleaved.
    Bind {
        pid: Pid,
        start: Address,
        length: u64,
        #[serde(with = "hex")]
        nodes: u64,
    },
    /// Have programs bind regions of this site when they allocate them; no nodes: no longer.
    Site {
        #[serde(with = "hex")]
        signature: u64,
        #[serde(with = "hex")]
        nodes: u64,
    },
    /// Move the existing pages of a range to these nodes; to several nodes in turn.
    Move {
        job: u64,
        pid: Pid,
        start: Address,
        pages: u32,
        #[serde(with = "hex")]
        nodes: u64,
    },
    /// Begin or end sampling a range.
    Sample {
        pid: Pid,
        start: Address,
        length: u64,
        on: bool,
    },
    /// Arm these pages: the next touch of each faults, as a sample of who uses it.
    Arm { pid: Pid, ranges: Vec<PageRange> },
    /// Look up where an armed page is that a thread has touched.
    Locate(TouchedPage),
    /// Move pages of a region to the node that uses them.
    Migrate(Migrate),
}

/// What the controller has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub(crate) enum Note {
    /// The tier of a region was settled.
    Settled(Settled),
    /// The policy was asked about the samples.
    Judged(Judged),
    /// A region is not tracked, since it is larger than the machine's memory: a reservation.
    Unfollowed {
        pid: Pid,
        start: Address,
        length: u64,
    },
}

/// A decision of the controller.
pub(crate) type Decision = controller::Decision<Order, Note>;

/// The tier of a region, and what led to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Settled {
    pub(crate) pid: Pid,
    pub(crate) start: Address,
    pub(crate) length: u64,
    /// The allocation site.
    #[serde(with = "hex")]
    pub(crate) signature: u64,
    /// First faults that were seen.
    pub(crate) faults: u32,
    /// The tier of its site was known, so that no fault was needed.
    pub(crate) known: bool,
    #[serde(rename = "class")]
    pub(crate) tier: RegionTier,
    /// The kernel's number of the node that touched it, or that allocated it if its site was known.
    pub(crate) from: KernelNode,
    /// The nodes that its pages are wanted on, a bit each.
    #[serde(with = "hex")]
    pub(crate) nodes: u64,
    /// How many of its pages are wanted on another node than `from`.
    pub(crate) away: u32,
}

/// What the policy got at the end of an iteration or a period, and what it wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Judged {
    pub(crate) pid: Pid,
    /// What ended.
    pub(crate) ended: Ended,
    /// Cells with counts, and cells that the policy wants elsewhere.
    pub(crate) cells: u32,
    pub(crate) wanted: u32,
    /// How many pages a second are armed from now on.
    pub(crate) rate: u64,
}

/// A page that a thread has touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TouchedPage {
    pub(crate) pid: Pid,
    pub(crate) tid: Tid,
    pub(crate) address: Address,
}

/// What ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    /// An iteration, which the program reported or which was detected.
    Iteration,
    /// A period of time, in a program without iterations.
    Period,
}

/// Pages of one region that are wanted on one node, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Migrate {
    pub(crate) job: u64,
    pub(crate) pid: Pid,
    /// The allocation site.
    #[serde(with = "hex")]
    pub(crate) signature: u64,
    /// The kernel's number of the node.
    pub(crate) to: KernelNode,
    pub(crate) pages: u32,
    pub(crate) ranges: Vec<PageRange>,
    /// Samples of the region since pages were moved last, and how many of them are from that node.
    pub(crate) samples: u64,
    pub(crate) from_there: u64,
}

/// Memory that a process has, by the kernel's list of its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MappedRange {
    pub(crate) start: Address,
    pub(crate) length: u64,
    #[serde(with = "KindName")]
    pub(crate) kind: MemoryKind,
}

/// Kinds of memory by name.
#[derive(Serialize, Deserialize)]
#[serde(remote = "MemoryKind", rename_all = "snake_case")]
enum KindName {
    Static,
    Heap,
    Stack,
    Anonymous,
    Shared,
}

/// Constructs by name.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ConstructKind", rename_all = "snake_case")]
enum ConstructName {
    ParallelBegin,
    ParallelEnd,
    Barrier,
    Iteration,
    Hidden,
}
