//! Which node holds what: first placement, migration, replication, and where victims go. One
//! interface for all of it, memory pages and file blocks, one machine and a cluster; one file a
//! policy.
//!
//! The caller (a simulator's engine, or the live runtime) owns the truth, [`Nodes`]: it does what a
//! policy asks for as far as it can and says what came of it. A policy keeps only what it has
//! learnt.

mod a_priori;
mod always_migrate;
mod autonuma;
mod cache_aware;
mod counters;
mod dual_layer;
mod first_and_forever;
mod first_touch;
mod nodes;
mod one_step;
mod post_office;
mod round_robin;
mod single_node;
#[cfg(test)]
mod testing;
mod threshold;
mod upm;

use std::sync::Arc;

pub use counters::Counters;
pub use nodes::Nodes;

use crate::access::Access;
use crate::ids::{Block, Node, Object, Process, Thread};
use crate::registry::{Needs, Param, ParamKind};
use crate::spec::{RegistryEntry, Spec, Values};
use crate::topology::Topology;

/// Where blocks live on a topology.
///
/// Regions of memory are `allocated` before their pages are accessed, and may be `freed`. The calls
/// of an access come in this order: nobody holds the block: `place`; or it was found: `served`;
/// then, for a write, `written`. Making room for a copy on a full node: `reclaim`, or the node's
/// replacement names a victim and `victim` says where it goes; `gone` for each copy that left.
/// `epoch` between accesses. What is asked for through `out` is done, in order, before the next
/// call, and `settled` hears of it.
pub trait Placement: Send {
    /// A region of memory is there from now on: each object of a trace before the first access, or
    /// what a live program allocates as it runs. Accesses may also come to objects that nobody
    /// spoke of.
    fn allocated(&mut self, _region: &Region) {}

    /// A region is no more, after `gone` for each page of it that was somewhere. Its object may be
    /// allocated anew.
    fn freed(&mut self, _object: Object) {}

    /// A process is no more, after `freed` for each region of it. Its number may come again.
    fn ended(&mut self, _process: Process) {}

    /// What was found out about a region for good. Its pages can then be bound by ranges rather
    /// than placed one by one, and what its call site allocates next be known from the start.
    fn class(&self, _object: Object) -> Option<RegionTier> {
        None
    }

    /// Whether the next first faults of a region may still tell its [class](Placement::class).
    fn watches(&self, _object: Object) -> bool {
        false
    }

    /// Whether it acts on the counts that an [`Epoch`] brings, so that somebody must count. Asked
    /// once.
    fn counts(&self) -> bool {
        false
    }

    /// What moving a page costs, as measured by those who do it.
    fn set_migration_ns(&mut self, _migration_ns: u64) {}

    /// Blocks are numbered below `blocks` from now on, which is more than before: a live program
    /// has touched more memory than was expected.
    fn grow(&mut self, _blocks: u32) {}

    /// Nobody holds the block: the node that gets it. Where that node is full and cannot make room,
    /// the caller takes the nearest one that can.
    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node;

    /// The block was found at `from`, the holder nearest to the accessing node.
    fn served(&mut self, _access: &Access, _from: Node, _nodes: &Nodes, _out: &mut Vec<Action>) {}

    /// The block was written, after `served` or `place`. Replicas that the policy does not drop are
    /// brought up to date by the caller, which costs.
    fn written(&mut self, _access: &Access, _nodes: &Nodes, _out: &mut Vec<Action>) {}

    /// How replicas share the nodes with originals. Asked once.
    fn layer(&self) -> Layer {
        Layer::Shared
    }

    /// `at` is full and needs room for `incoming`: a block whose *replica* there is to go. `None`:
    /// the node's replacement chooses among all copies of [`Layer::Shared`], or among the originals
    /// of [`Layer::Own`].
    fn reclaim(&mut self, _at: Node, _incoming: Block, _nodes: &Nodes) -> Option<Block> {
        None
    }

    /// `evicted` leaves `at` to make room: the node that takes it in, making room in its turn, or
    /// `None` to let it go. Asked only where an original leaves and, with [`Layer::Shared`], no
    /// copy of it remains. A node that holds a replica of it makes that the original. A block that
    /// was forwarded and pushes out another one starts a cascade that ends when a node has room,
    /// when this says `None`, or at a node that gave up a block in it already.
    fn victim(
        &mut self,
        _evicted: Block,
        _at: Node,
        _for: IncomingBlock,
        _nodes: &Nodes,
    ) -> Option<Node> {
        None
    }

    /// A copy left a node: evicted, dropped or lost; `nodes` no longer has it there. Where it was
    /// the original, the latest replica is the original now. Not called for migrations.
    fn gone(&mut self, _block: Block, _at: Node, _nodes: &Nodes, _out: &mut Vec<Action>) {}

    /// An iteration, a construct or a period ended.
    fn epoch(&mut self, _epoch: &Epoch<'_>, _nodes: &Nodes, _out: &mut Vec<Action>) {}

    /// What became of the actions asked for, in order: a full node refuses, and so does the kernel.
    fn settled(&mut self, _outcomes: &[ActionOutcome], _nodes: &Nodes) {}

    /// Reads what the next accesses will look up, for nothing but to have it in the processor's
    /// cache.
    fn prefetch(&self, _accesses: &[Access]) {}

    /// Time that watching cost the program since this was last asked: hint faults, interrupts,
    /// reading of counters. Asked after each `served` (it is the accessing thread that waits) and
    /// after each `epoch` (all wait).
    fn overhead_ns(&mut self) -> u64 {
        0
    }

    /// A policy that acts by time and not by iterations: the time between two epochs of
    /// [`EpochKind::Period`], which come in place of the program's iterations. Asked once.
    fn period_ns(&self) -> Option<u64> {
        None
    }

    /// What it counted of its own doings, for the result: name and number, in a fixed order.
    fn statistics(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Walks every invariant and panics on a broken one.
    fn check(&self, _nodes: &Nodes) {}
}

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
    pub known: Option<RegionTier>,
}

/// Where a region's pages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionTier {
    /// On the node that uses them, while it has room.
    Local,
    /// On another node, since processors' caches do without its being near.
    Remote,
}

/// How replicas share a node with originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The node's replacement ranks all copies alike. The latest replica of an original that leaves
    /// takes its place.
    Shared,
    /// Replicas are a layer of their own: the policy ranks them ([`Placement::reclaim`]), the
    /// node's replacement never sees them, and they leave with their original.
    Own,
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
    pub moved: &'a [ThreadMigration],
    /// Threads of the process that made accesses since its last iteration ended; of all since the
    /// last period.
    pub threads: usize,
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

/// What a policy places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Pages of memory on the nodes of a machine: nothing is evicted while there are frames.
    Memory,
    /// Blocks of files in the caches of nodes, over storage.
    Files,
}

/// One placement policy.
#[derive(Debug)]
pub struct PlacementEntry {
    /// What a user writes; also the name of its file, with `_` for `-`.
    pub name: &'static str,
    /// One line on where it puts what.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its parameters, in the order in which they are written out.
    pub params: &'static [Param],
    /// What it places.
    pub target: Target,
    /// What it must know of an access besides its block, node, thread and op.
    pub needs: Needs,
    /// Whether it must know beforehand who uses what ([`PlacementSettings::totals`]).
    pub foresight: bool,
    /// Whether it can follow a live program, whose memory grows ([`Placement::grow`]) and is freed.
    pub live: bool,
    /// Makes one.
    pub build: fn(&PlacementSettings<'_>, &Values) -> Box<dyn Placement>,
}

/// What a policy is built for.
#[derive(Clone, Debug)]
pub struct PlacementSettings<'a> {
    /// The nodes.
    pub topology: Arc<Topology>,
    /// How many blocks each node holds.
    pub capacity: &'a [u32],
    /// Blocks are numbered below it.
    pub blocks: u32,
    /// Size of a block.
    pub block_bytes: u32,
    /// All accesses by block and node, for policies with [`PlacementEntry::foresight`].
    pub totals: Option<&'a Counters>,
    /// What a placement that is made of another one is made of, instead of what its own parameter
    /// names: this one has parameters of its own.
    pub initial: Option<Spec<PlacementEntry>>,
    /// Whether counts are estimates from samples of a running program, which are a history of their
    /// own and noisy.
    pub sampled: bool,
}

impl PlacementSettings<'_> {
    /// Makes the placement that the parameter at `index` names, or the one that was given in its
    /// stead.
    fn initial(&self, values: &Values, index: usize) -> Box<dyn Placement> {
        let initial = self.initial.unwrap_or_else(|| values.placement(index));
        initial.build(&PlacementSettings {
            initial: None,
            ..self.clone()
        })
    }
}

impl RegistryEntry for PlacementEntry {
    const SINGULAR: &'static str = "placement";
    const PLURAL: &'static str = "placement_policies";

    fn all() -> &'static [PlacementEntry] {
        PLACEMENT_POLICIES
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> &'static [Param] {
        self.params
    }
}

impl Spec<PlacementEntry> {
    /// Makes the policy.
    pub fn build(&self, settings: &PlacementSettings<'_>) -> Box<dyn Placement> {
        (self.entry().build)(settings, self.values())
    }

    /// What it must know of an access, also for the placement that it is made of.
    pub fn needs(&self) -> Needs {
        self.inner().fold(self.entry().needs, |needs, inner| {
            needs.and(inner.entry().needs)
        })
    }

    /// Whether it, or the placement that it is made of, must be given [`PlacementSettings::totals`].
    pub fn foresight(&self) -> bool {
        self.entry().foresight || self.inner().any(|inner| inner.entry().foresight)
    }

    /// Whether it, and the placement that it is made of, can follow a live program.
    pub fn live(&self) -> bool {
        self.entry().live && self.inner().all(|inner| inner.entry().live)
    }

    /// Whether it is made of another one.
    pub fn is_made_of_another(&self) -> bool {
        self.inner().next().is_some()
    }

    fn inner(&self) -> impl Iterator<Item = Spec<PlacementEntry>> + '_ {
        let params = self.entry().params.iter().enumerate();
        params
            .filter(|(_, param)| matches!(param.kind, ParamKind::Placement { .. }))
            .map(|(index, _)| self.values().placement(index))
    }
}

/// All placement policies, by name.
pub fn placement_policies() -> &'static [PlacementEntry] {
    PLACEMENT_POLICIES
}

/// One line a policy, sorted by name; the rest of it is in its file.
static PLACEMENT_POLICIES: &[PlacementEntry] = &[
    a_priori::ENTRY,
    always_migrate::ENTRY,
    autonuma::ENTRY,
    cache_aware::ENTRY,
    dual_layer::ENTRY,
    first_and_forever::ENTRY,
    first_touch::ENTRY,
    one_step::ENTRY,
    post_office::ENTRY,
    round_robin::ENTRY,
    single_node::ENTRY,
    threshold::ENTRY,
    upm::ENTRY,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_unique_documented_and_parseable() {
        assert!(PLACEMENT_POLICIES.is_sorted_by(|a, b| a.name < b.name));
        for entry in PLACEMENT_POLICIES {
            for text in [entry.name, entry.summary, entry.source] {
                assert!(!text.trim().is_empty(), "{} lacks a text", entry.name);
            }
            assert!(entry.params.iter().all(|param| !param.doc.is_empty()));
            let spec: Spec<PlacementEntry> = entry.name.parse().unwrap();
            assert_eq!(
                spec.to_string().parse::<Spec<PlacementEntry>>().unwrap(),
                spec
            );
        }
    }
}
