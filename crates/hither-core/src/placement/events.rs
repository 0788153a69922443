//! What placements are told and what they ask for: regions, epochs, actions and their outcomes.

use super::counters::Counters;
use crate::ids::{Block, Node, Object, Process, Thread};

/// A region of memory: what a program allocates at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its number.
    pub object: Object,
    /// The process that it belongs to: the first to use it, where that is not known better.
    pub owner: Process,
    /// Its size in bytes.
    pub bytes: u64,
    /// What earlier regions of the same call site turned out to be, where there were any.
    pub expected_tier: Option<RegionTier>,
}

/// Where a region's pages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionTier {
    /// On the node that uses them, while it has room.
    Local,
    /// On another node, since processors' caches do without its being near.
    Remote,
}

/// What a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Move the original; replicas stay, but for one at `to`, which becomes the original.
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
        /// Where.
        to: Node,
    },
    /// Drop a copy. Where it is the original and there are replicas, the latest of them becomes the
    /// original.
    Drop {
        /// The block.
        block: Block,
        /// Where.
        at: Node,
    },
    /// Make the replica there the original and the original a replica; nothing moves.
    Promote {
        /// The block.
        block: Block,
        /// Where the replica is.
        at: Node,
    },
}

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionOutcome {
    /// The action.
    pub action: Action,
    /// Whether it was done. If not, nothing has changed.
    pub done: bool,
}

/// Why a node makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingBlock {
    /// The block that comes.
    pub block: Block,
    /// The node that it comes from; `None` from storage.
    pub from: Option<Node>,
}

/// What ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpochKind {
    /// An iteration of the program, as it (or whoever watches it) marks it.
    Iteration,
    /// A parallel construct within an iteration; counters go on.
    Construct,
    /// A period of time, for programs without iterations.
    Period,
}

/// The end of an iteration or a construct, as a trace tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// References before it.
    pub reference: u64,
    /// What ended.
    pub kind: EpochKind,
    /// Whose: other processes of the trace go on.
    pub process: Process,
}

/// A point between accesses at which a policy may act on what it saw.
#[derive(Clone, Copy, Debug)]
pub struct Epoch<'a> {
    /// What ended.
    pub kind: EpochKind,
    /// Whose construct or iteration it was; a period is everybody's.
    pub process: Option<Process>,
    /// Accesses by block and node: of that process since its last iteration ended, or of all since
    /// the last period did.
    pub counts: &'a Counters,
    /// Threads that run on another node than at the last epoch, of that process or of all.
    pub thread_migrations: &'a [ThreadMigration],
    /// Threads of the process that made accesses since its last iteration ended; of all since the
    /// last period.
    pub active_threads: usize,
}

/// A thread that runs on another node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadMigration {
    /// The thread.
    pub thread: Thread,
    /// Its process.
    pub process: Process,
    /// Where it ran.
    pub from: Node,
    /// Where it runs.
    pub to: Node,
}
