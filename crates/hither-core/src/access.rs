//! One reference to one block, as policies see it.

use crate::ids::{Block, NEVER, Node, Object, Process, Site, Thread, Tick};

/// What an access does to its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Op {
    /// The block is read.
    #[default]
    Read,
    /// The block is written.
    Write,
    /// The block is mapped into memory, which counts as one read; accesses through the mapping are
    /// not seen.
    Map,
    /// The object is deleted: no reference, but the end of what a cache has of it. Only caches of
    /// objects know it.
    Delete,
}

/// One reference to one block. A request that spans several blocks is several accesses in ascending
/// order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// When: the number of references before this one.
    pub tick: Tick,
    /// When the block is referenced next, or [`NEVER`]. Filled in only for policies that need the
    /// future; [`NEVER`] everywhere otherwise.
    pub next: Tick,
    /// Which block.
    pub block: Block,
    /// The file that the block belongs to. A trace without files has the one object 0.
    pub object: Object,
    /// The block's position within its object, in blocks.
    pub index: u32,
    /// The call site. A trace without call sites has the one site 0.
    pub site: Site,
    /// The thread.
    pub thread: Thread,
    /// The process.
    pub process: Process,
    /// What it does.
    pub op: Op,
    /// The node that the thread runs on. Only placement looks at it; 0 where nothing is known.
    pub node: Node,
    /// How many successive accesses this stands for: cache misses on a page of memory come in runs.
    /// 1 for a reference to a file. Replacement ignores it.
    pub count: u32,
    /// What it costs to bring the block in, in any unit; 1 where nothing is known.
    pub cost: f32,
    /// The size of the object, in a cache of objects of every size. 1 elsewhere: all blocks are
    /// alike.
    pub bytes: u64,
}

impl Access {
    /// A read of `block` at `tick` with nothing else known: what a trace of bare block numbers
    /// gives. The one object is numbered like the blocks, so `index` is the block number.
    pub fn bare(tick: Tick, block: Block) -> Self {
        Access {
            tick,
            next: NEVER,
            block,
            object: Object(0),
            index: block.0,
            site: Site(0),
            thread: Thread(0),
            process: Process(0),
            op: Op::Read,
            node: Node(0),
            count: 1,
            cost: 1.0,
            bytes: 1,
        }
    }
}
