//! What placements are told and what they decide: regions, epochs, actions and their outcomes.

use serde::{Deserialize, Serialize};

use super::counters::Counters;
use crate::ids::{Block, Node, Object, Process, Thread};

/// A region of memory: a single allocation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its number.
    pub object: Object,
    /// The process that it belongs to: the first to use it, where nothing else is known.
    pub owner: Process,
    /// Its size in bytes.
    pub bytes: u64,
    /// The tier of earlier regions of the same call site, if there were any.
    pub expected_tier: Option<RegionTier>,
    /// In an earlier run all of it was remote in the end: no limit keeps a part of it near, not
    /// even while the program has allocated little else.
    pub whole: bool,
}

/// What a run has found out about the regions of a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteTier {
    /// The signature of the call site.
    #[serde(with = "crate::signature")]
    pub signature: u64,
    /// The tier of all its regions.
    #[serde(rename = "class")]
    pub tier: RegionTier,
    /// All pages of its regions were remote in the end.
    #[serde(default)]
    pub whole: bool,
}

/// Where a region had its pages at the end of a run. A program that runs again allocates the region
/// again: by the same thread, at the same call site, after as many allocations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPlacement {
    /// The signature of the call site that allocated it.
    #[serde(rename = "site", alias = "signature", with = "crate::signature")]
    pub signature: u64,
    /// The thread of its process that allocated it. Threads are numbered in the order of their
    /// first allocations of regions.
    pub thread: u32,
    /// How many regions that thread had allocated at the site before.
    pub nth: u32,
    /// Its size.
    pub pages: u32,
    /// Runs of pages from the first page on: how many there are, and the kernel's number of their
    /// node. `None`: on the node that touched them.
    pub runs: Vec<(u32, Option<u32>)>,
}

/// Where a region's pages should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionTier {
    /// On the node that uses them, while it has room.
    Local,
    /// On another node, because the processors' caches hold what is needed of it.
    Remote,
}

/// An action that a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Move the original. Replicas stay; one at `to` becomes the original.
    Migrate {
        /// The block.
        block: Block,
        /// Its new home.
        to: Node,
    },
    /// Make a replica.
    Replicate {
        /// The block.
        block: Block,
        /// The node that gets it.
        to: Node,
    },
    /// Drop a copy. If it is the original and there are replicas, the latest of them becomes the
    /// original.
    Drop {
        /// The block.
        block: Block,
        /// The node that drops it.
        at: Node,
    },
    /// Make the replica at a node the original, and the original a replica; nothing moves.
    Promote {
        /// The block.
        block: Block,
        /// Where the replica is.
        at: Node,
    },
}

/// The outcome of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionOutcome {
    /// The action.
    pub action: Action,
    /// Whether it was done. If not, nothing has changed.
    pub done: bool,
}

/// How the block comes for which a node makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingBlock {
    /// The node that it comes from; `None` for storage.
    pub from: Option<Node>,
    /// Whether it [migrates](Action::Migrate), and so leaves a frame there.
    pub migrates: bool,
}

impl IncomingBlock {
    /// From storage.
    pub const FROM_STORAGE: IncomingBlock = IncomingBlock {
        from: None,
        migrates: false,
    };
}

/// The kind of an epoch, by what ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpochKind {
    /// An iteration of the program, as marked by the program or found by its observer.
    Iteration,
    /// A parallel construct within an iteration; counters are not reset.
    Construct,
    /// A period of time, for programs without iterations.
    Period,
}

/// The end of an iteration or a construct, as a trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The number of references before it.
    pub reference: u64,
    /// What ended.
    pub kind: EpochKind,
    /// The process; other processes of the trace continue.
    pub process: Process,
}

/// A point between accesses at which a policy may act on what it has seen.
#[derive(Clone, Copy, Debug)]
pub struct Epoch<'a> {
    /// What ended.
    pub kind: EpochKind,
    /// The process whose construct or iteration it was; none for a period, which is for all.
    pub process: Option<Process>,
    /// Accesses by block and node: of that process since its last iteration ended, or of all since
    /// the last period ended.
    pub counts: &'a Counters,
    /// Threads, of that process or of all, that run on another node than at the last epoch.
    pub thread_migrations: &'a [ThreadMigration],
    /// How many threads made accesses: of the process since its last iteration ended, or of all
    /// since the last period ended.
    pub active_threads: usize,
}

/// A thread that runs on another node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadMigration {
    /// The thread.
    pub thread: Thread,
    /// Its process.
    pub process: Process,
    /// The node it ran on.
    pub from: Node,
    /// The node it runs on.
    pub to: Node,
}
