//! Engines that drive placement policies: `files`, caches on a topology above storage, and
//! `memory`, pages on the nodes of a machine. Both drive the same trait
//! ([`hither_core::Placement`]) and report the same figures, so their results can be compared.

mod costs;
pub mod files;
pub mod memory;
mod report;
mod source;
mod timeline;

pub use costs::CostsError;
pub use report::{Interval, Move, PlacementOutcome, ProcessTotals, Totals};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hither_core::placement::{EpochKind, PlacementEntry, Target};
use hither_core::registry::baseline;
use hither_core::{Access, Node, Spec, Topology};
use serde::Serialize;

use crate::caches::{Error, missing};
use crate::references::References;

/// A placement policy with its parameters.
pub type PlacementSpec = Spec<PlacementEntry>;

/// One placement to simulate.
#[derive(Clone, Debug)]
pub struct PlacementConfiguration {
    /// The placement policy and its parameters.
    pub spec: PlacementSpec,
    /// The nodes.
    pub topology: Arc<Topology>,
    /// Capacity of each node in blocks, at least 1.
    pub capacity: Vec<u32>,
    /// The replacement policy of the nodes' file caches, if the placement leaves it open. Pages are
    /// reclaimed by a clock.
    pub replacement: Spec,
}

impl PlacementConfiguration {
    /// `blocks` blocks on each node, and `lru` if the placement leaves it open.
    pub fn even(
        spec: PlacementSpec,
        topology: Arc<Topology>,
        blocks: u32,
    ) -> PlacementConfiguration {
        PlacementConfiguration {
            capacity: vec![blocks; topology.nodes()],
            spec,
            topology,
            replacement: baseline(),
        }
    }

    /// Rejects what the engine of `of` cannot simulate.
    fn check(&self, references: &impl References, target: Target) -> Result<(), Error> {
        let placement = self.spec.entry().name;
        let named = |target| match target {
            Target::Memory => "pages of memory",
            Target::Files => "blocks of files",
        };
        if self.spec.entry().target() != target {
            return Err(Error::WrongKind {
                placement,
                of: named(self.spec.entry().target()),
                asked: named(target),
            });
        }
        if self.capacity.len() != self.topology.nodes() {
            return Err(Error::Capacities {
                topology: self.topology.name().to_owned(),
                nodes: self.topology.nodes(),
                given: self.capacity.len(),
            });
        }
        if self.capacity.contains(&0) {
            return Err(Error::NoRoom { policy: placement });
        }
        if references.sampled().is_some() {
            return Err(Error::Lacks {
                policy: placement,
                what: "all blocks",
                advice: ", being a sample",
            });
        }
        let lacks = missing(self.spec.needs(), references.knows());
        lacks.map_or(Ok(()), |(what, advice)| {
            Err(Error::Lacks {
                policy: placement,
                what,
                advice,
            })
        })
    }
}

/// Options of a run.
#[derive(Clone, Copy)]
pub struct PlacementOptions<'a> {
    /// The node that makes an access.
    pub binding: Binding,
    /// The warm-up, which is counted separately.
    pub warm_up: WarmUp,
    /// Number of intervals of the timeline, of equal length.
    pub intervals: usize,
    /// Number of moves kept, from the first on.
    pub moves: usize,
    /// Modelled time between epochs, for a trace without marks.
    pub period_ns: u64,
    /// Checks every invariant of the nodes and of the policy after each access: for tests.
    pub check: bool,
    /// Called now and then with the number of references done.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Cancels the run with [`Error::Cancelled`] soon after it becomes true.
    pub cancel: Option<&'a AtomicBool>,
}

impl Default for PlacementOptions<'_> {
    /// No warm-up, a timeline of 50 intervals, no moves kept, and 10 ms between epochs: about a
    /// million cache misses of 16 threads.
    fn default() -> Self {
        PlacementOptions {
            binding: Binding::Auto,
            warm_up: WarmUp::References(0),
            intervals: 50,
            moves: 0,
            period_ns: 10_000_000,
            check: false,
            progress: None,
            cancel: None,
        }
    }
}

impl PlacementOptions<'_> {
    /// Reports progress, and whether to continue.
    fn report(&self, done: u64) -> Result<(), Error> {
        if let Some(progress) = self.progress {
            progress(done);
        }
        match self.cancel {
            Some(cancel) if cancel.load(Ordering::Relaxed) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }
}

/// The length of the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// A number of references.
    References(u64),
    /// A number of iterations, by the marks of the trace.
    Iterations(u64),
}

impl WarmUp {
    /// The first reference after the warm-up.
    fn end(self, references: &impl References) -> u64 {
        match self {
            WarmUp::References(count) => count.min(references.references()),
            WarmUp::Iterations(0) => 0,
            WarmUp::Iterations(count) => {
                let ends = references.marks().iter();
                ends.filter(|mark| mark.kind == EpochKind::Iteration)
                    .nth(count as usize - 1)
                    .map_or(references.references(), |mark| mark.reference)
            }
        }
    }
}

/// The node that makes an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// [`Binding::Trace`] if the trace has more than one node; otherwise by thread.
    #[default]
    Auto,
    /// The nodes of the trace. If they are more than the nodes, neighbours share one.
    Trace,
    /// Threads are dealt to the nodes in turn.
    Threads,
    /// Processes are dealt to the nodes in turn.
    Processes,
}

impl Binding {
    /// The binding for a trace of `trace_nodes` nodes. Never [`Binding::Auto`].
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
        if self == Binding::Trace && trace_nodes <= nodes {
            return;
        }
        for access in batch {
            let node = match self {
                Binding::Auto => unreachable!("resolved before the run"),
                Binding::Trace => access.node.index() * nodes / trace_nodes,
                Binding::Threads => access.thread.index() % nodes,
                Binding::Processes => access.process.index() % nodes,
            };
            access.node = Node(node as u16);
        }
    }
}
