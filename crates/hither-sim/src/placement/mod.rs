//! Engines that drive placement policies: `files`, caches on a topology over storage, and `pages`, memory pages on
//! the nodes of a machine. Both drive the same trait ([`hither_core::Placement`]) and report the same figures, so that a
//! result of one reads like a result of the other.

mod report;

pub use report::{Interval, Move, Outcome, Totals};

use hither_core::placement::Entry;
use hither_core::{Access, Node, Spec};
use serde::Serialize;

/// A placement policy with its parameters.
pub type PlacementSpec = Spec<Entry>;

/// Which node an access is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// As the trace says where it knows more than one node ([`Binding::Trace`]), or else by thread.
    #[default]
    Auto,
    /// The trace's own nodes, neighbours together where there are more of them than nodes.
    Trace,
    /// Threads in turn.
    Threads,
    /// Processes in turn.
    Processes,
}

impl Binding {
    /// What says which node, for a trace of `trace_nodes` nodes: never [`Binding::Auto`].
    pub fn resolved(self, trace_nodes: usize) -> Binding {
        match self {
            Binding::Auto if trace_nodes > 1 => Binding::Trace,
            Binding::Auto => Binding::Threads,
            named => named,
        }
    }

    /// Sets the node of each access of a trace of `trace_nodes` nodes to one of `nodes`.
    ///
    /// # Panics
    /// If it is [`Binding::Auto`].
    pub fn bind(self, trace_nodes: usize, nodes: usize, batch: &mut [Access]) {
        for access in batch {
            let node = match self {
                Binding::Auto => unreachable!("resolved before the run"),
                Binding::Trace if trace_nodes > nodes => access.node.index() * nodes / trace_nodes,
                Binding::Trace => access.node.index(),
                Binding::Threads => access.thread.index() % nodes,
                Binding::Processes => access.process.index() % nodes,
            };
            access.node = Node(node as u16);
        }
    }
}
