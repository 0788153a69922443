//! How full the nodes are, read at a rate while there is something to decide.

use std::sync::Arc;

use hither_sys::machine::Machine;

/// Reading takes some 50 us a node (sysfs formats a page of text): at most two thousandths of a CPU
/// at this rate, as more than four nodes are read as much more seldom.
const PERIOD_NS: u64 = 100_000_000;

/// Reads the nodes' usage.
pub(crate) struct Usage {
    machine: Arc<dyn Machine>,
    frame_bytes: u64,
    /// By the kernel's numbers, in order; what no file is there of is not asked again.
    nodes: Vec<u32>,
    read_ns: Option<u64>,
}

impl Usage {
    /// In frames of so many bytes.
    pub(crate) fn new(machine: Arc<dyn Machine>, frame_bytes: u64) -> Usage {
        let nodes = machine.nodes().unwrap_or_default();
        let nodes = nodes.iter().map(|node| node.node).collect();
        Usage {
            nodes,
            machine,
            frame_bytes,
            read_ns: None,
        }
    }

    /// Frames in use on each node, unless that was read a moment ago or cannot be read.
    pub(crate) fn read(&mut self, now_ns: u64) -> Option<Vec<u32>> {
        let recent = |read_ns: u64| {
            now_ns.saturating_sub(read_ns) < PERIOD_NS * self.nodes.len().div_ceil(4) as u64
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
