//! The interface of placements: [`Placement`] is common to all, [`MemoryPlacement`] and
//! [`FilePlacement`] extend it.

use super::events::{Action, ActionOutcome, Epoch, IncomingBlock, Region, RegionTier};
use super::nodes::Nodes;
use crate::access::Access;
use crate::ids::{Block, Node, Object, Process};

/// Where blocks are on a topology: what placements of memory pages and of file blocks have in
/// common.
///
/// For an access, `place` is called if no node holds the block, otherwise `on_access`; then, for a
/// write, `on_write`. `on_removed` follows for each copy that left a node. `on_epoch` comes between
/// accesses. The actions that a policy pushes are carried out, in order, before the next call, and
/// `on_outcomes` reports their outcomes.
pub trait Placement: Send {
    /// No node holds the block: returns the node that gets it. If that node is full and cannot make
    /// room, the caller takes the nearest one that can.
    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node;

    /// The block was found at `from`, the holder nearest to the accessing node.
    fn on_access(&mut self, _: &Access, _from: Node, _: &Nodes, _actions: &mut Vec<Action>) {}

    /// The block was written, after `on_access` or `place`. The caller updates replicas that the
    /// policy does not drop, which costs time.
    fn on_write(&mut self, _: &Access, _: &Nodes, _actions: &mut Vec<Action>) {}

    /// A copy left a node: evicted, dropped or lost. `nodes` no longer has it there. If it was the
    /// original, the latest replica is the original now. Not called for migrations.
    fn on_removed(&mut self, _: Block, _at: Node, _: &Nodes, _actions: &mut Vec<Action>) {}

    /// An iteration, a construct or a period ended.
    fn on_epoch(&mut self, _: &Epoch<'_>, _: &Nodes, _actions: &mut Vec<Action>) {}

    /// The outcomes of the actions, in order: a full node refuses, and so may the kernel.
    fn on_outcomes(&mut self, _: &[ActionOutcome], _: &Nodes) {}

    /// No node holds the block, and its number will stand for another one: what was learnt of it is
    /// void.
    fn forget(&mut self, _: Block) {}

    /// The number of blocks has grown to `blocks`: a live program uses more memory, or reads more
    /// files, than expected.
    fn grow(&mut self, _blocks: u32) {}

    /// The policy's own counts, for the result: names and numbers, in a fixed order.
    fn statistics(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Walks every invariant and panics on a broken one.
    fn check(&self, _: &Nodes) {}
}

/// A placement of memory pages on the nodes of a machine.
///
/// Regions are allocated before their pages are accessed, and may be freed. Accesses may also come
/// to objects that were never announced.
pub trait MemoryPlacement: Placement {
    /// A region of memory was allocated: each object of a trace before the first access; in a live
    /// program, at any time.
    fn on_region_allocated(&mut self, _: &Region) {}

    /// A region was freed, after `on_removed` for each of its placed pages. Its object may be
    /// allocated again.
    fn on_region_freed(&mut self, _: Object) {}

    /// A process exited, after `on_region_freed` for each of its regions. Its number may be used
    /// again.
    fn on_process_exit(&mut self, _: Process) {}

    /// The tier of a region, once the policy has decided it for good. Its pages can then be bound
    /// by ranges rather than placed one by one, and later regions of the same call site start with
    /// it.
    fn region_tier(&self, _: Object) -> Option<RegionTier> {
        None
    }

    /// Whether the policy still needs first faults of a region to decide its
    /// [tier](MemoryPlacement::region_tier).
    fn needs_first_faults(&self, _: Object) -> bool {
        false
    }

    /// Sets the measured cost of moving a page.
    fn set_migration_ns(&mut self, _migration_ns: u64) {}

    /// Takes the time that observation cost the program since the last call: hint faults,
    /// interrupts, reading of counters. Called after each `on_access` (the accessing thread waits)
    /// and after each `on_epoch` (all threads wait).
    fn take_overhead_ns(&mut self) -> u64 {
        0
    }
}

/// Which accesses a placement of file blocks is told of in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessesWanted {
    /// Of none: `on_access` never does anything.
    None,
    /// Of those that another node's copy serves, before it does: `on_access` may act on each.
    Remote,
    /// Of all, those that a node's own copy serves too, but they may be reported late.
    All,
}

/// A placement of file blocks in the caches of nodes, over storage.
///
/// A full node makes room for a copy in one of two ways: the policy evicts one of its replicas
/// (`replica_victim`), or the node's replacement names a victim and the policy says which node
/// takes it (`forward_to`).
pub trait FilePlacement: Placement {
    /// `at` is full and needs room for `incoming`: returns a block whose *replica* there is
    /// evicted. `None`: the node's replacement chooses, among all copies with
    /// [`ReplicaLayer::Shared`], among the originals with [`ReplicaLayer::Separate`].
    ///
    /// [`ReplicaLayer::Shared`]: super::ReplicaLayer::Shared
    /// [`ReplicaLayer::Separate`]: super::ReplicaLayer::Separate
    fn replica_victim(&mut self, _at: Node, _incoming: Block, _: &Nodes) -> Option<Block> {
        None
    }

    /// `evicted` leaves `at` to make room for `incoming`: returns the node that takes it, making
    /// room in its turn, or `None` to let it go. Only called where an original leaves and, with
    /// [`ReplicaLayer::Shared`], no copy of it remains. A node that holds a replica of it makes
    /// that the original. A forwarded block may push out another one. Such a cascade ends when a
    /// node has room, when this returns `None`, or at a node that has already given up a block in
    /// it.
    ///
    /// [`ReplicaLayer::Shared`]: super::ReplicaLayer::Shared
    fn forward_to(
        &mut self,
        _evicted: Block,
        _at: Node,
        _incoming: IncomingBlock,
        _: &Nodes,
    ) -> Option<Node> {
        None
    }

    /// Whether `forward_to` may name a node. Otherwise a cluster need not ask.
    fn forwards(&self) -> bool {
        false
    }

    /// Of which accesses a cluster has to tell the placement.
    fn accesses_wanted(&self) -> AccessesWanted {
        AccessesWanted::Remote
    }

    /// Prefetches into the processor's cache what the next accesses will look up; changes nothing.
    fn prefetch(&self, _: &[Access]) {}
}
