//! The registry entries of placements, and what a placement is built from.

use std::fmt;
use std::sync::Arc;

use super::counters::Counters;
use super::interface::{FilePlacement, MemoryPlacement};
use crate::entry::{Compared, Mechanism, Needs, Param, ParamKind, RegistryEntry, Values};
use crate::spec::Spec;
use crate::topology::Topology;

/// What a policy places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Pages of memory on the nodes of a machine: nothing is evicted while there are frames.
    Memory,
    /// Blocks of files in the caches of nodes, over storage.
    Files,
}

/// The registry entry of a placement.
pub struct PlacementEntry {
    /// What a user writes; also the name of its file, with `_` for `-`.
    pub name: &'static str,
    /// One line on where it puts what.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its parameters, in the order in which they are written out.
    pub params: &'static [Param],
    /// What it must know of an access besides its block, node, thread and operation.
    pub needs: Needs,
    /// What it needs at epochs.
    pub epochs: EpochNeeds,
    /// The mechanisms of `hither run` that it can govern; empty for simulation only.
    pub live: &'static [Mechanism],
    /// Whether it is compared where the user names no placements.
    pub compared: Compared,
    /// Builds it; also says what it places.
    pub build: Build,
}

/// What a policy needs at [epochs](super::Epoch).
#[derive(Clone, Copy, Debug)]
pub struct EpochNeeds {
    /// Whether it uses the access counts of an epoch, so that a live run must count accesses.
    pub counts: bool,
    /// For given parameters, the time between two epochs of
    /// [`EpochKind::Period`](super::EpochKind::Period), if it acts by time; these then replace the
    /// program's iterations.
    pub period_ns: fn(&Values) -> Option<u64>,
}

impl EpochNeeds {
    /// Neither counts nor periods.
    pub const NONE: EpochNeeds = EpochNeeds {
        counts: false,
        period_ns: |_| None,
    };
}

/// How a placement is built, by what it places. For a placement of the registry it is a function.
#[derive(Clone, Copy)]
pub enum Build {
    /// It places pages of memory.
    Memory(&'static BuildMemory),
    /// It places blocks of files.
    Files(ReplicaLayer, &'static BuildFiles),
}

/// What builds a placement of pages of memory.
pub type BuildMemory =
    dyn Fn(&PlacementSettings<'_>, &Values) -> Box<dyn MemoryPlacement> + Send + Sync;

/// What builds a placement of blocks of files.
pub type BuildFiles =
    dyn Fn(&PlacementSettings<'_>, &Values) -> Box<dyn FilePlacement> + Send + Sync;

/// How the replicas of a placement of files share a node with originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaLayer {
    /// The node's replacement ranks all copies alike. If an original is evicted, its latest replica
    /// becomes the original.
    Shared,
    /// Replicas are a layer of their own: the policy ranks them
    /// ([`FilePlacement::replica_victim`]), the node's replacement never sees them, and they are
    /// dropped with their original.
    Separate,
}

/// What a placement is built from.
#[derive(Clone, Debug)]
pub struct PlacementSettings<'a> {
    /// The nodes.
    pub topology: Arc<Topology>,
    /// How many blocks each node holds.
    pub capacity: &'a [u32],
    /// The number of blocks.
    pub blocks: u32,
    /// Size of a block.
    pub block_bytes: u32,
    /// All accesses by block and node, for policies with [`Needs::totals`].
    pub totals: Option<&'a Counters>,
    /// For a placement that is made of another one: that one, in place of the one that its
    /// parameter names.
    pub initial: Option<Spec<PlacementEntry>>,
    /// Whether counts are estimates from samples of a running program: noisy, and averaged over the
    /// past already.
    pub sampled: bool,
}

impl PlacementSettings<'_> {
    /// Builds the memory placement that the parameter at `index` names, or the one that was given
    /// in its place.
    pub(super) fn initial(&self, values: &Values, index: usize) -> Box<dyn MemoryPlacement> {
        let initial = self.initial.unwrap_or_else(|| values.placement(index));
        let settings = PlacementSettings {
            initial: None,
            ..self.clone()
        };
        let built = initial.build_memory(&settings);
        built.expect("a placement is made of one of memory")
    }
}

/// The parameter of a placement of memory that moves pages: where they are before that.
pub(super) const INITIAL: Param = Param {
    name: "initial",
    doc: "the placement of pages before they move",
    kind: ParamKind::Placement {
        default: "first-touch",
        names: inner_placements,
    },
};

/// The placements that may be a parameter of another one: those of memory that are not made of
/// another one themselves.
fn inner_placements() -> Vec<&'static str> {
    let entries = PlacementEntry::all().iter();
    let is_inner =
        |entry: &&PlacementEntry| entry.target() == Target::Memory && !entry.is_made_of_another();
    entries.filter(is_inner).map(|entry| entry.name).collect()
}

impl Values {
    /// The placement that the parameter at `index` of the entry names, with its defaults.
    pub fn placement(&self, index: usize) -> Spec<PlacementEntry> {
        Spec::named(self.policy_name(index)).expect("checked on parsing")
    }
}

impl fmt::Debug for PlacementEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl PlacementEntry {
    /// What it places.
    pub fn target(&self) -> Target {
        match self.build {
            Build::Memory(_) => Target::Memory,
            Build::Files(..) => Target::Files,
        }
    }

    /// Whether it can govern a mechanism of a running program.
    pub fn runs(&self, mechanism: Mechanism) -> bool {
        self.live.contains(&mechanism)
    }

    /// Whether it can place blocks in a live cluster: it knows no more than what nodes report, and
    /// each node's replacement ranks all copies.
    pub fn runs_in_clusters(&self) -> bool {
        let is_of_files = self.target() == Target::Files;
        let is_shared = self.replica_layer() == ReplicaLayer::Shared;
        is_of_files && is_shared && self.needs == Needs::NOTHING && !self.epochs.counts
    }

    /// How its replicas share a node with originals. [`ReplicaLayer::Shared`] for memory, whose
    /// nodes rank all pages alike.
    pub fn replica_layer(&self) -> ReplicaLayer {
        match self.build {
            Build::Memory(_) => ReplicaLayer::Shared,
            Build::Files(layer, _) => layer,
        }
    }

    /// Whether it is made of another one: a parameter names where pages go first.
    pub fn is_made_of_another(&self) -> bool {
        let kinds = self.params.iter().map(|param| param.kind);
        kinds
            .into_iter()
            .any(|kind| matches!(kind, ParamKind::Placement { .. }))
    }
}

impl Spec<PlacementEntry> {
    /// Makes the policy, if it places memory.
    pub fn build_memory(
        &self,
        settings: &PlacementSettings<'_>,
    ) -> Option<Box<dyn MemoryPlacement>> {
        match self.entry().build {
            Build::Memory(new) => Some(new(settings, self.values())),
            Build::Files(..) => None,
        }
    }

    /// Makes the policy, if it places files.
    pub fn build_files(&self, settings: &PlacementSettings<'_>) -> Option<Box<dyn FilePlacement>> {
        match self.entry().build {
            Build::Memory(_) => None,
            Build::Files(_, new) => Some(new(settings, self.values())),
        }
    }

    /// What it must know, also for the placement that it is made of.
    pub fn needs(&self) -> Needs {
        self.inner().fold(self.entry().needs, |needs, inner| {
            needs.and(inner.entry().needs)
        })
    }

    /// The time between epochs, if it acts by time; see [`EpochNeeds::period_ns`].
    pub fn period_ns(&self) -> Option<u64> {
        (self.entry().epochs.period_ns)(self.values())
    }

    /// Whether it, and the placement that it is made of, can govern a mechanism of a running
    /// program.
    pub fn runs(&self, mechanism: Mechanism) -> bool {
        self.entry().runs(mechanism) && self.inner().all(|inner| inner.entry().runs(mechanism))
    }

    /// Whether it is made of another one.
    pub fn is_made_of_another(&self) -> bool {
        self.entry().is_made_of_another()
    }

    /// The placement that it is made of, as its parameter names it.
    pub fn initial(&self) -> Option<Spec<PlacementEntry>> {
        self.inner().next()
    }

    fn inner(&self) -> impl Iterator<Item = Spec<PlacementEntry>> + '_ {
        let params = self.entry().params.iter().enumerate();
        params
            .filter(|(_, param)| matches!(param.kind, ParamKind::Placement { .. }))
            .map(|(index, _)| self.values().placement(index))
    }
}
