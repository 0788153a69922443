//! Engines that drive placement policies: `files`, caches on a topology over storage, and
//! `memory`, pages on the nodes of a machine. Both drive the same trait
//! ([`hither_core::Placement`]) and report the same figures, so that a result of one reads like a
//! result of the other.

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
    /// The placement with its parameters.
    pub spec: PlacementSpec,
    /// The nodes.
    pub topology: Arc<Topology>,
    /// How many blocks each node holds, one number a node, each at least 1.
    pub capacity: Vec<u32>,
    /// What a node of a file cache gives up where the placement does not say; pages are reclaimed
    /// by a clock.
    pub replacement: Spec,
}

impl PlacementConfiguration {
    /// `blocks` blocks on each node, and `lru` where the placement leaves the choice.
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

    /// Refuses what cannot be simulated by the engine of `of`.
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

/// What goes with a run besides the trace and the configuration.
#[derive(Clone, Copy)]
pub struct PlacementOptions<'a> {
    /// Which node an access is made from.
    pub binding: Binding,
    /// What is counted apart, at the beginning.
    pub warm_up: WarmUp,
    /// In how many parts of equal length the timeline is.
    pub intervals: usize,
    /// How many moves are kept, from the first on.
    pub moves: usize,
    /// Modelled time between two epochs of a trace without marks.
    pub period_ns: u64,
    /// Walks every invariant of the nodes and of the policy after each access: for tests.
    pub check: bool,
    /// Called now and then with the number of references done.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Ends the run with [`Error::Cancelled`] soon after it becomes true.
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
    /// Says how far the run is, and whether it is to go on.
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

/// How long a run warms up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// For so many references.
    References(u64),
    /// For so many iterations, as the trace marks them.
    Iterations(u64),
}

impl WarmUp {
    /// The first reference after it.
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
