//! The interface of placements: what all have in common, and what those of memory and those of files
//! add.

use super::events::{Action, ActionOutcome, Epoch, IncomingBlock, Region, RegionTier};
use super::nodes::Nodes;
use crate::access::Access;
use crate::ids::{Block, Node, Object, Process};

/// Where blocks live on a topology: what memory pages and file blocks have in common.
///
/// An access calls `place` if no node holds the block, or else `on_access`; then, for a write,
/// `on_write`. `on_removed` follows for each copy that left a node. `on_epoch` comes between
/// accesses. The actions that a policy pushes are carried out, in order, before the next call, and
/// `on_outcomes` reports what became of them.
pub trait Placement: Send {
    /// No node holds the block: the node that gets it. Where that node is full and cannot make
    /// room, the caller takes the nearest one that can.
    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node;

    /// The block was found at `from`, the holder nearest to the accessing node.
    fn on_access(&mut self, _: &Access, _from: Node, _: &Nodes, _actions: &mut Vec<Action>) {}

    /// The block was written, after `on_access` or `place`. Replicas that the policy does not drop
    /// are updated by the caller, which costs.
    fn on_write(&mut self, _: &Access, _: &Nodes, _actions: &mut Vec<Action>) {}

    /// A copy left a node: evicted, dropped or lost; `nodes` no longer has it there. If it was the
    /// original, the latest replica is the original now. Not called for migrations.
    fn on_removed(&mut self, _: Block, _at: Node, _: &Nodes, _actions: &mut Vec<Action>) {}

    /// An iteration, a construct or a period ended.
    fn on_epoch(&mut self, _: &Epoch<'_>, _: &Nodes, _actions: &mut Vec<Action>) {}

    /// What became of the actions asked for, in order: a full node refuses, and so does the kernel.
    fn on_outcomes(&mut self, _: &[ActionOutcome], _: &Nodes) {}

    /// Blocks are numbered below `blocks` from now on, which is more than before: a live program
    /// uses more memory, or reads more files, than was expected.
    fn grow(&mut self, _blocks: u32) {}

    /// Counts of the policy's own, for the result: name and number, in a fixed order.
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
    /// A region of memory exists from now on: each object of a trace before the first access, or
    /// what a live program allocates as it runs.
    fn on_region_allocated(&mut self, _: &Region) {}

    /// A region is freed, after `on_removed` for each of its pages that was somewhere. Its object
    /// may be allocated anew.
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

    /// Sets what moving a page costs, as measured by whoever moves them.
    fn set_migration_ns(&mut self, _migration_ns: u64) {}

    /// Takes the time that watching cost the program since the last call: hint faults, interrupts,
    /// reading of counters. Called after each `on_access` (the accessing thread waits) and after
    /// each `on_epoch` (all threads wait).
    fn take_overhead_ns(&mut self) -> u64 {
        0
    }
}

/// A placement of file blocks in the caches of nodes, over storage.
///
/// A full node makes room for a copy in one of two ways: the policy gives up one of its replicas
/// (`replica_victim`), or the node's replacement names a victim, and the policy says which node
/// takes that in (`forward_to`).
pub trait FilePlacement: Placement {
    /// `at` is full and needs room for `incoming`: a block whose *replica* there is evicted.
    /// `None`: the node's replacement chooses, among all copies of [`ReplicaLayer::Shared`](super::ReplicaLayer::Shared) or
    /// among the originals of [`ReplicaLayer::Separate`](super::ReplicaLayer::Separate).
    fn replica_victim(&mut self, _at: Node, _incoming: Block, _: &Nodes) -> Option<Block> {
        None
    }

    /// `evicted` leaves `at` to make room for `incoming`: the node that takes it in, making room in
    /// its turn, or `None` to let it go. Asked only where an original leaves and, with
    /// [`ReplicaLayer::Shared`](super::ReplicaLayer::Shared), no copy of it remains. A node that holds a replica of it makes
    /// that the original. A block that was forwarded and pushes out another one starts a cascade,
    /// which ends when a node has room, when this says `None`, or at a node that already gave up a
    /// block in it.
    fn forward_to(
        &mut self,
        _evicted: Block,
        _at: Node,
        _incoming: IncomingBlock,
        _: &Nodes,
    ) -> Option<Node> {
        None
    }

    /// Loads what the next accesses will look up into the processor's cache; changes nothing.
    fn prefetch(&self, _: &[Access]) {}
}
