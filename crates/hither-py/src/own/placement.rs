//! Placements.

use std::sync::{Arc, Mutex};

use hither_core::placement::{
    Action, ActionOutcome, Build, Epoch, EpochNeeds, FilePlacement, IncomingBlock, MemoryPlacement,
    Nodes as NodeStates, Placement, PlacementEntry, PlacementSettings, ReplicaLayer, Target,
};
use hither_core::registry::{Compared, Needs};
use hither_core::spec::Values;
use hither_core::{Access, Block, Node, Spec, Topology};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use super::object::{Entries, Own, derived, entry_of, shown};
use crate::errors::refused;

/// The placement of a class that derives from `hither.Placement`, for pages of memory or for blocks
/// of files.
pub(crate) fn placement(
    class: &Bound<'_, PyAny>,
    target: Target,
) -> PyResult<Spec<PlacementEntry>> {
    static OF_FILES: Entries<PlacementEntry> = Mutex::new(None);
    static OF_MEMORY: Entries<PlacementEntry> = Mutex::new(None);
    let entries = match target {
        Target::Files => &OF_FILES,
        Target::Memory => &OF_MEMORY,
    };
    let entry = entry_of(entries, derived(class, "Placement")?, |name, class| {
        let make = move |settings: &PlacementSettings<'_>, _: &Values| {
            let nodes = Nodes {
                topology: Arc::clone(&settings.topology),
                capacity: settings.capacity.to_vec(),
            };
            let own = Own::new(name, &class, "Placement", &METHODS, |py| {
                Ok(Py::new(py, nodes)?.into_any())
            });
            Box::new(OwnPlacement { own })
        };
        PlacementEntry {
            name,
            summary: "",
            source: "",
            params: &[],
            needs: Needs::NOTHING,
            epochs: EpochNeeds::NONE,
            live: &[],
            compared: Compared::ByName,
            build: match target {
                Target::Files => Build::Files(
                    ReplicaLayer::Shared,
                    Box::leak(Box::new(
                        move |settings: &PlacementSettings<'_>, values: &Values| {
                            make(settings, values) as Box<dyn FilePlacement>
                        },
                    )),
                ),
                Target::Memory => Build::Memory(Box::leak(Box::new(
                    move |settings: &PlacementSettings<'_>, values: &Values| {
                        make(settings, values) as Box<dyn MemoryPlacement>
                    },
                ))),
            },
        }
    });
    entry.map(Spec::defaults)
}

/// The nodes that a placement is for.
#[pyclass(frozen, module = "hither")]
pub(crate) struct Nodes {
    topology: Arc<Topology>,
    capacity: Vec<u32>,
}

#[pymethods]
impl Nodes {
    fn __len__(&self) -> usize {
        self.topology.nodes()
    }

    /// The name of the topology.
    #[getter]
    fn name(&self) -> &str {
        self.topology.name()
    }

    /// Blocks that a node holds.
    fn capacity(&self, py: Python<'_>, node: u32) -> PyResult<u32> {
        Ok(self.capacity[self.node(py, node)?.index()])
    }

    /// Links between two nodes on the way that messages take.
    fn hops(&self, py: Python<'_>, of: u32, to: u32) -> PyResult<u32> {
        Ok(self.topology.hops(self.node(py, of)?, self.node(py, to)?))
    }

    /// Latency of an access of a node to the memory of another, or to its own.
    fn latency_ns(&self, py: Python<'_>, of: u32, to: u32) -> PyResult<u32> {
        Ok(self
            .topology
            .latency_ns(self.node(py, of)?, self.node(py, to)?))
    }

    /// The next node on the way to `to`.
    fn next_hop(&self, py: Python<'_>, of: u32, to: u32) -> PyResult<u16> {
        let (of, to) = (self.node(py, of)?, self.node(py, to)?);
        Ok(self.topology.next_hop(of, to).0)
    }

    /// The node with the smallest sum of weight times hops, over all nodes.
    fn median(&self, py: Python<'_>, weights: Vec<u32>) -> PyResult<u16> {
        if weights.len() != self.topology.nodes() {
            let (given, nodes) = (weights.len(), self.topology.nodes());
            return Err(refused(py, format!("{given} weights for {nodes} nodes")));
        }
        Ok(self.topology.median(&weights).0)
    }
}

impl Nodes {
    fn node(&self, py: Python<'_>, number: u32) -> PyResult<Node> {
        let nodes = self.topology.nodes();
        match u16::try_from(number) {
            Ok(node) if usize::from(node) < nodes => Ok(Node(node)),
            _ => Err(refused(py, format!("node {number} of {nodes}"))),
        }
    }
}

const METHODS: [&str; 7] = [
    "place", "accessed", "written", "removed", "refused", "forward", "ended",
];
const PLACE: usize = 0;
const ACCESSED: usize = 1;
const WRITTEN: usize = 2;
const REMOVED: usize = 3;
const REFUSED: usize = 4;
const FORWARD: usize = 5;
const ENDED: usize = 6;

struct OwnPlacement {
    own: Own,
}

impl OwnPlacement {
    /// The node that a method names. Only `forward` may name none.
    fn node(
        &mut self,
        method: usize,
        arguments: (u32, u16, Option<u16>),
        nodes: &NodeStates,
    ) -> Option<Node> {
        let all = nodes.topology().nodes();
        let read = |answer: Bound<'_, PyAny>| {
            let node = answer
                .extract::<u16>()
                .ok()
                .filter(|&node| usize::from(node) < all);
            match node {
                Some(node) => Ok(Ok(Some(Node(node)))),
                None if method == FORWARD && answer.is_none() => Ok(Ok(None)),
                None => Ok(Err(shown(&answer))),
            }
        };
        let answer = match method {
            FORWARD => self.own.ask(method, arguments, read),
            _ => self.own.ask(method, (arguments.0, arguments.1), read),
        };
        match answer? {
            Ok(node) => node,
            Err(answer) => {
                let (name, block) = (METHODS[method], arguments.0);
                self.own.refuse(&format!(
                    "for block {block}, {name}() returned {answer}, which is none of the {all} \
                     nodes"
                ));
                None
            }
        }
    }

    /// The actions that a method returns: (what, block, node) each, or `None`.
    fn actions(
        &mut self,
        method: usize,
        arguments: impl for<'py> PyCallArgs<'py>,
        nodes: &NodeStates,
        out: &mut Vec<Action>,
    ) {
        let (all, blocks) = (nodes.topology().nodes(), nodes.blocks());
        let read = |answer: Bound<'_, PyAny>| {
            if answer.is_none() {
                return Ok(Ok(()));
            }
            for item in answer.try_iter()? {
                let item = item?;
                let action = item.extract::<(String, u32, u16)>().ok().and_then(parsed);
                let is_possible = |action: &Action| {
                    let (block, node) = subject(action);
                    block.0 < blocks && node.index() < all
                };
                match action.filter(is_possible) {
                    Some(action) => out.push(action),
                    None => return Ok(Err(shown(&item))),
                }
            }
            Ok(Ok(()))
        };
        if let Some(Err(item)) = self.own.ask(method, arguments, read) {
            let name = METHODS[method];
            self.own.refuse(&format!(
                "{name}() returned {item}, which is no action: (\"migrate\", \"replicate\" or \
                 \"drop\", block, node)"
            ));
        }
    }
}

fn parsed((what, block, node): (String, u32, u16)) -> Option<Action> {
    let (block, to, at) = (Block(block), Node(node), Node(node));
    match what.as_str() {
        "migrate" => Some(Action::Migrate { block, to }),
        "replicate" => Some(Action::Replicate { block, to }),
        "drop" => Some(Action::Drop { block, at }),
        _ => None,
    }
}

fn subject(action: &Action) -> (Block, Node) {
    match *action {
        Action::Migrate { block, to } | Action::Replicate { block, to } => (block, to),
        Action::Drop { block, at } | Action::Promote { block, at } => (block, at),
    }
}

impl Placement for OwnPlacement {
    fn place(&mut self, access: &Access, nodes: &NodeStates) -> Node {
        let arguments = (access.block.0, access.node.0, None);
        self.node(PLACE, arguments, nodes).unwrap_or(access.node)
    }

    fn on_access(
        &mut self,
        access: &Access,
        from: Node,
        nodes: &NodeStates,
        actions: &mut Vec<Action>,
    ) {
        if self.own.has(ACCESSED) {
            let home = nodes.home(access.block).unwrap_or(from);
            let arguments = (access.block.0, access.node.0, from.0, home.0);
            self.actions(ACCESSED, arguments, nodes, actions);
        }
    }

    fn on_write(&mut self, access: &Access, nodes: &NodeStates, actions: &mut Vec<Action>) {
        self.actions(WRITTEN, (access.block.0, access.node.0), nodes, actions);
    }

    fn on_removed(
        &mut self,
        block: Block,
        at: Node,
        nodes: &NodeStates,
        actions: &mut Vec<Action>,
    ) {
        self.actions(REMOVED, (block.0, at.0), nodes, actions);
    }

    fn on_epoch(&mut self, _: &Epoch<'_>, nodes: &NodeStates, actions: &mut Vec<Action>) {
        self.actions(ENDED, (), nodes, actions);
    }

    fn on_outcomes(&mut self, outcomes: &[ActionOutcome], _: &NodeStates) {
        for outcome in outcomes.iter().filter(|outcome| !outcome.done) {
            let what = match outcome.action {
                Action::Migrate { .. } => "migrate",
                Action::Replicate { .. } => "replicate",
                Action::Drop { .. } | Action::Promote { .. } => "drop",
            };
            let (block, node) = subject(&outcome.action);
            self.own.ask(REFUSED, (what, block.0, node.0), |_| Ok(()));
        }
    }
}

impl MemoryPlacement for OwnPlacement {}

impl FilePlacement for OwnPlacement {
    fn forward_to(
        &mut self,
        evicted: Block,
        at: Node,
        incoming: IncomingBlock,
        nodes: &NodeStates,
    ) -> Option<Node> {
        let from = incoming.from.map(|node| node.0);
        self.node(FORWARD, (evicted.0, at.0, from), nodes)
    }

    fn forwards(&self) -> bool {
        self.own.has(FORWARD)
    }
}
