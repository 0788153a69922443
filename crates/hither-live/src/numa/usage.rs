//! Reads how full the nodes are, at a limited rate.

use std::sync::Arc;

use hither_ids::KernelNode;
use hither_kernel::machine::Machine;

/// The time between two readings on up to [`NODES_PER_PERIOD`] nodes; twice as long on up to twice
/// as many, and so on. Reading takes 50 us for each node, since sysfs formats a page of text, so
/// that this is at most two thousandths of a CPU where pages are placed at their first touch, and
/// two ten thousandths where they are moved later.
pub(crate) const PERIOD_NS: u64 = 100_000_000;
pub(crate) const LONG_PERIOD_NS: u64 = 1_000_000_000;
const NODES_PER_PERIOD: usize = 4;

/// Reads the nodes' usage.
pub(crate) struct Usage {
    machine: Arc<dyn Machine>,
    frame_bytes: u64,
    period_ns: u64,
    /// The kernel's numbers of the nodes that there were at the start, in order.
    nodes: Vec<KernelNode>,
    read_ns: Option<u64>,
}

impl Usage {
    /// Counts in frames of so many bytes, once in a period.
    pub(crate) fn new(machine: Arc<dyn Machine>, frame_bytes: u64, period_ns: u64) -> Usage {
        let nodes = machine.nodes().unwrap_or_default();
        let nodes = nodes.iter().map(|node| node.node).collect();
        Usage {
            nodes,
            machine,
            frame_bytes,
            period_ns,
            read_ns: None,
        }
    }

    /// Frames in use on each node. `None` if the period is not over, or usage cannot be read.
    pub(crate) fn read(&mut self, now_ns: u64) -> Option<Vec<u32>> {
        let recent = |read_ns: u64| {
            now_ns.saturating_sub(read_ns)
                < self.period_ns * self.nodes.len().div_ceil(NODES_PER_PERIOD) as u64
        };
        if self.nodes.is_empty() || self.read_ns.is_some_and(recent) {
            return None;
        }
        self.read_ns = Some(now_ns);
        let used_bytes = self.machine.used_bytes(&self.nodes).ok()?;
        let frames = |&bytes: &u64| u32::try_from(bytes / self.frame_bytes).unwrap_or(u32::MAX);
        Some(used_bytes.iter().map(frames).collect())
    }
}
