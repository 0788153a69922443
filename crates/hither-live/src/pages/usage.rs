//! How full the nodes are, read at a rate while there is something to decide.

use std::sync::Arc;

use hither_sys::machine::Machine;

/// Reading takes some 50 us a node (sysfs formats a page of text): half a thousandth of a CPU at this rate.
const PERIOD_NS: u64 = 100_000_000;

/// Reads the nodes' usage.
pub(crate) struct Usage {
    machine: Arc<dyn Machine>,
    frame_bytes: u64,
    read_ns: Option<u64>,
}

impl Usage {
    /// In frames of so many bytes.
    pub(crate) fn new(machine: Arc<dyn Machine>, frame_bytes: u64) -> Usage {
        Usage {
            machine,
            frame_bytes,
            read_ns: None,
        }
    }

    /// Frames in use on each node, unless that was read a moment ago or cannot be read.
    pub(crate) fn read(&mut self, now_ns: u64) -> Option<Vec<u32>> {
        let recent = |read_ns: u64| now_ns.saturating_sub(read_ns) < PERIOD_NS;
        if self.read_ns.is_some_and(recent) {
            return None;
        }
        self.read_ns = Some(now_ns);
        let nodes = self.machine.nodes().ok()?;
        let used = |node: &hither_sys::machine::NodeMemory| {
            let used_bytes = node.bytes.saturating_sub(node.available_bytes());
            u32::try_from(used_bytes / self.frame_bytes).unwrap_or(u32::MAX)
        };
        Some(nodes.iter().map(used).collect())
    }
}
