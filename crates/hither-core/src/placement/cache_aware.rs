//! Cache-aware placement: regions of memory that are first touched sequentially are expected to
//! stay in the processors' caches. They go to remote nodes, which leaves local frames to other
//! regions (thesis, chapter 4).
//!
//! A *region* is an object of at least `region` bytes; smaller objects are placed by first touch.
//! The first faults of a region are watched ([`sequence`]) and decide, for good, whether it is
//! *remote* or *local*. A page of a remote region goes to the remote node with the most free
//! frames, unless the usage there is above the threshold; then to the local node, unless that is
//! above it as well; then to the node of lowest usage. A page of a local region goes to the local
//! node while that has frames, then to the remote node of lowest usage. Where the next remote page
//! would exceed a given share of an application's memory, all its regions become local for good
//! (section 4.4.3).
//!
//! Readings, where the thesis leaves a choice:
//! - The fault that completes a sequence is already placed as remote (figure 4.1: detection comes
//!   before placement).
//! - A sequence "exceeds" the size threshold (section 4.4.1) when it reaches it: section 5.1.2
//!   defines it as the number of pages that are necessary. The tenth fault may still complete a
//!   sequence.
//! - A node at the usage threshold is not above it (section 4.4.2 speaks of above and below only).
//! - The thesis gives no number for the usage threshold; 0.8 is ours. Usage is the share of a
//!   node's frames that is allocated, as in the thesis' experiments, or that share times the share
//!   in use of a sample ([`usage`]). A node without a free frame is not chosen while another one
//!   has any, even if the sample calls it idle.
//! - The limit counts every page of the application that was placed on another node than the one
//!   that touched it, for whatever reason, and is never exceeded: the page that would exceed it is
//!   placed as a local one. The thesis does not treat reclaim; here a page that is reclaimed no
//!   longer counts, and may count again. An application's memory is all objects that its process is
//!   the first to use; for a live program, what it has allocated so far. A live program's regions
//!   of which an earlier run has sent all pages away count, but are not limited
//!   ([`Region::whole`]): that run had seen all that the program allocates.
//! - With several remote distances (proposed in section 5.1.1, not built there), sequential regions
//!   go to the furthest nodes with usage below the threshold, and local regions to the nearest ones
//!   with a free frame; the rules above decide among nodes of equal distance. With one remote
//!   distance, as on the thesis' machine, that makes no difference.
//! - The sample is drawn from the pages of all nodes together, so a node's share of it is that of
//!   its pages; a node without a sampled page keeps its last estimate. A page that is reclaimed
//!   within the period leaves the sample.
//! - Usage by the length of free lists, which section 4.5.3 considers, is the allocated share here:
//!   the simulated kernel reclaims on demand, so what is free is what was not allocated.
//! - The thesis treats programs of one thread. With several, the faults of all of them form one
//!   order, in which each may extend its own sequence; "local" is the node of the faulting thread.

mod sequence;
mod usage;

use std::sync::Arc;

use self::sequence::Sequences;
use self::usage::Usage;
use super::entry::{Build, EpochNeeds, PlacementEntry, PlacementSettings};
use super::events::{Action, Region, RegionTier};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, Values};
use crate::ids::{Block, Node, Object, Process};
use crate::topology::Topology;

const REGION: usize = 0;
const SEQUENCE: usize = 1;
const FAULTS: usize = 2;
const THRESHOLD: usize = 3;
const LIMIT: usize = 4;
const DISTANCES: usize = 5;
const SAMPLE: usize = 6;
const PERIOD_MS: usize = 7;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "cache-aware",
    summary: "puts what is touched in sequence on remote nodes, the rest on local ones",
    source: "cache-aware page placement, PhD thesis, University of Toronto",
    params: &[
        Param::count(
            "region",
            "the least size of an object that is a region, in bytes",
            1 << 20,
            0..=u64::MAX,
        ),
        Param::count(
            "sequence",
            "the number of adjacent faults that make a region remote",
            5,
            2..=1_000_000,
        ),
        Param::count(
            "faults",
            "the number of faults after which a region that is not remote is local",
            10,
            2..=1_000_000,
        ),
        Param::real(
            "threshold",
            "usage above which a node takes no remote pages while others are below",
            0.8,
            0.0..=1.0,
        ),
        Param::real(
            "limit",
            "the largest share of an application's pages that may be remote",
            0.5,
            0.0..=1.0,
        ),
        Param::count(
            "distances",
            "1: sequential regions go furthest, others nearest; 0: all remote nodes are alike",
            1,
            0..=1,
        ),
        Param::real(
            "sample",
            "the share of allocated pages that is sampled to see which are in use; 0: all \
                  that are allocated",
            0.0,
            0.0..=1.0,
        ),
        Param::count(
            "period_ms",
            "the time between two samples",
            100,
            1..=1_000_000,
        ),
    ],
    needs: Needs {
        objects: true,
        processes: true,
        ..Needs::NOTHING
    },
    epochs: EpochNeeds::NONE,
    live: &[Mechanism::Memory],
    compared: Compared::ByName,
    build: Build::Memory(&|settings, values| Box::new(CacheAware::new(settings, values))),
};

struct CacheAware {
    topology: Arc<Topology>,
    block_bytes: u64,
    /// The least size of a region, in bytes.
    region: u64,
    sequence: u64,
    faults: u64,
    threshold: f64,
    limit: f64,
    distances: bool,
    /// By object.
    regions: Vec<ObjectState>,
    /// By process.
    applications: Vec<Application>,
    /// By page: the application for which it counts as remote.
    remote: Vec<Option<Process>>,
    usage: Usage,
}

/// What is known of an object.
#[derive(Default)]
struct ObjectState {
    owner: Process,
    pages: u64,
    /// The limit does not hold for it.
    whole: bool,
    state: RegionState,
}

#[derive(Default)]
enum RegionState {
    /// Smaller than a region, or never announced.
    #[default]
    None,
    Watched(Sequences),
    Decided(RegionTier),
}

#[derive(Clone, Copy, Default)]
struct Application {
    /// Pages of its memory.
    pages: u64,
    /// Placed pages that are remote.
    remote: u64,
    /// Whether it reached the limit.
    limited: bool,
}

impl CacheAware {
    fn new(settings: &PlacementSettings<'_>, values: &Values) -> CacheAware {
        CacheAware {
            topology: Arc::clone(&settings.topology),
            block_bytes: settings.block_bytes.into(),
            region: values.count(REGION),
            sequence: values.count(SEQUENCE),
            faults: values.count(FAULTS),
            threshold: values.real(THRESHOLD),
            limit: values.real(LIMIT),
            distances: values.count(DISTANCES) == 1,
            regions: Vec::new(),
            applications: Vec::new(),
            remote: vec![None; settings.blocks as usize],
            usage: Usage::new(
                settings.topology.nodes(),
                settings.blocks,
                values.real(SAMPLE),
                values.count(PERIOD_MS) * 1_000_000,
            ),
        }
    }

    /// The tier of a page's region, this fault included; none if it is of no region.
    fn fault(&mut self, access: &Access) -> Option<RegionTier> {
        let state = &mut self.regions.get_mut(access.object.index())?.state;
        if let RegionState::Watched(sequences) = state
            && let Some(class) = sequences.fault(access.index)
        {
            *state = RegionState::Decided(class);
        }
        match state {
            RegionState::None => None,
            RegionState::Watched(_) => Some(RegionTier::Local),
            RegionState::Decided(class) => Some(*class),
        }
    }

    /// The other nodes in groups of equal distance, the nearest first; one group if distances are
    /// ignored.
    fn others(&self, local: Node) -> impl DoubleEndedIterator<Item = &[Node]> {
        let alike = move |a: &Node, b: &Node| {
            let latency_ns = |node: &Node| self.topology.latency_ns(local, *node);
            !self.distances || latency_ns(a) == latency_ns(b)
        };
        self.topology.nearest(local)[1..].chunk_by(alike)
    }

    fn for_remote(&self, local: Node, nodes: &Nodes) -> Node {
        let above = |node: Node| self.usage.of(node, nodes) > self.threshold;
        for group in self.others(local).rev() {
            let most_free = group.iter().copied().min_by_key(|&node| {
                let free = nodes.free(node);
                (std::cmp::Reverse(free), node)
            });
            if let Some(node) = most_free.filter(|&node| nodes.free(node) > 0 && !above(node)) {
                return node;
            }
        }
        if nodes.free(local) > 0 && !above(local) {
            return local;
        }
        self.lowest(self.topology.nearest(local), nodes)
            .unwrap_or(local)
    }

    fn for_local(&self, local: Node, nodes: &Nodes) -> Node {
        if nodes.free(local) > 0 {
            return local;
        }
        let mut groups = self.others(local);
        groups
            .find_map(|group| self.lowest(group, nodes))
            .unwrap_or(local)
    }

    /// The node of lowest usage among those with a free frame, the first among equals.
    fn lowest(&self, among: &[Node], nodes: &Nodes) -> Option<Node> {
        let with_room = among.iter().copied().filter(|&node| nodes.free(node) > 0);
        let usage = |node: &Node| self.usage.of(*node, nodes);
        with_room.min_by(|a, b| usage(a).total_cmp(&usage(b)))
    }
}

/// The element with this number; tables grow as numbers appear.
fn at<T: Default>(all: &mut Vec<T>, index: usize) -> &mut T {
    if index >= all.len() {
        all.resize_with(index + 1, T::default);
    }
    &mut all[index]
}

impl Placement for CacheAware {
    fn grow(&mut self, blocks: u32) {
        self.remote.resize(blocks as usize, None);
        self.usage.grow(blocks);
    }

    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        self.usage.tick(nodes);
        let class = self.fault(access);
        let local = access.node;
        let of = at(&mut self.applications, access.process.index());
        let whole = |object: &ObjectState| object.whole;
        let whole = self.regions.get(access.object.index()).is_some_and(whole);
        if class == Some(RegionTier::Remote)
            && !whole
            && (of.remote + 1) as f64 > self.limit * of.pages as f64
        {
            of.limited = true;
        }
        let limited = of.limited && !whole;
        let node = match class {
            None => local,
            Some(RegionTier::Remote) if !limited => self.for_remote(local, nodes),
            Some(_) => self.for_local(local, nodes),
        };
        if node != local || nodes.free(node) == 0 {
            at(&mut self.applications, access.process.index()).remote += 1;
            self.remote[access.block.index()] = Some(access.process);
        }
        self.usage.placed(access.block);
        node
    }

    fn on_access(&mut self, access: &Access, from: Node, nodes: &Nodes, _: &mut Vec<Action>) {
        self.usage.served(access.block, from, nodes);
    }

    fn on_removed(&mut self, block: Block, at: Node, nodes: &Nodes, _: &mut Vec<Action>) {
        self.usage.gone(block, at, nodes);
        if nodes.home(block).is_none()
            && let Some(process) = self.remote[block.index()].take()
        {
            self.applications[process.index()].remote -= 1;
        }
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let count = |of: &dyn Fn(&RegionState) -> bool| {
            self.regions
                .iter()
                .filter(|region| of(&region.state))
                .count() as u64
        };
        let decided =
            |class| count(&|state| matches!(state, RegionState::Decided(tier) if *tier == class));
        let limited = self.applications.iter().filter(|of| of.limited).count();
        let in_use = self.usage.in_use();
        let in_use = in_use.map(|share| ("sampled_in_use_permille", (1e3 * share).round() as u64));
        let counts = [
            ("remote_regions", decided(RegionTier::Remote)),
            ("local_regions", decided(RegionTier::Local)),
            (
                "undecided_regions",
                count(&|state| matches!(state, RegionState::Watched(_))),
            ),
            ("limited_applications", limited as u64),
        ];
        counts.into_iter().chain(in_use).collect()
    }
}

impl MemoryPlacement for CacheAware {
    fn on_region_allocated(&mut self, region: &Region) {
        let pages = region.bytes.div_ceil(self.block_bytes);
        let state = match (
            region.bytes >= self.region && region.bytes > 0,
            region.expected_tier,
        ) {
            (false, _) => RegionState::None,
            (true, None) => RegionState::Watched(Sequences::new(self.sequence, self.faults)),
            (true, Some(class)) => RegionState::Decided(class),
        };
        *at(&mut self.regions, region.object.index()) = ObjectState {
            owner: region.owner,
            pages,
            whole: region.whole,
            state,
        };
        let application = at(&mut self.applications, region.owner.index());
        application.pages += pages;
        // The limit is now a share of more memory. The regions of a trace are all announced before
        // the first page is placed.
        application.limited = false;
    }

    fn on_region_freed(&mut self, object: Object) {
        if let Some(region) = self.regions.get_mut(object.index()) {
            let ObjectState { owner, pages, .. } = std::mem::take(region);
            at(&mut self.applications, owner.index()).pages -= pages;
        }
    }

    fn on_process_exit(&mut self, process: Process) {
        if let Some(application) = self.applications.get_mut(process.index()) {
            *application = Application::default();
        }
    }

    fn region_tier(&self, object: Object) -> Option<RegionTier> {
        match self.regions.get(object.index())?.state {
            RegionState::Decided(class) => Some(class),
            _ => None,
        }
    }

    fn needs_first_faults(&self, object: Object) -> bool {
        let region = self.regions.get(object.index());
        region.is_some_and(|region| matches!(region.state, RegionState::Watched(_)))
    }

    fn take_overhead_ns(&mut self) -> u64 {
        self.usage.overhead_ns()
    }
}

#[cfg(test)]
mod tests;
