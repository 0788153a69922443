//! The references of a run with their simulated nodes, for both engines.

use hither_core::Access;
use hither_core::registry::Needs;

use super::{Binding, PlacementConfiguration, PlacementOptions};
use crate::caches::Error;
use crate::references::References;

/// References read at a time. With their decoding they stay in a core's second-level cache, as in
/// `caches`.
pub(super) const BATCH_REFERENCES: usize = 8192;

/// References with their simulated nodes.
pub(super) struct Source<'a, R> {
    pub(super) references: &'a R,
    binding: Binding,
    trace_nodes: usize,
    pub(super) nodes: usize,
    needs: Needs,
}

impl<'a, R: References> Source<'a, R> {
    /// `needs` is what the engine must know of an access, in addition to the placement's needs.
    pub(super) fn new(
        references: &'a R,
        configuration: &PlacementConfiguration,
        needs: Needs,
        options: &PlacementOptions<'_>,
    ) -> Self {
        let trace_nodes = references.nodes();
        Source {
            references,
            binding: options.binding.resolved(trace_nodes),
            trace_nodes,
            nodes: configuration.topology.nodes(),
            needs: configuration.spec.needs().and(needs),
        }
    }

    /// Replaces `out` by the next accesses from `start` on, up to [`BATCH_REFERENCES`].
    pub(super) fn fill(&self, start: u64, out: &mut Vec<Access>) -> Result<(), Error> {
        self.references
            .fill(start, BATCH_REFERENCES, self.needs, out)?;
        self.binding.bind(self.trace_nodes, self.nodes, out);
        Ok(())
    }
}
