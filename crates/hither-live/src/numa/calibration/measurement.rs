//! Measures what memory costs: loads between each pair of nodes, and moving a page.

use std::time::{Duration, Instant};

use hither_ids::KernelNode;
use hither_kernel::machine::{Machine, NodeMemory};
use serde::{Deserialize, Serialize};

/// Version of the file.
pub(super) const FORMAT_VERSION: u32 = 1;

/// A remote load that is slower than a local one by less than this counts as equally fast, in
/// hundredths. Chunks differ by 2 to 4 hundredths on a busy machine (2026-11), and nodes within one
/// socket by 8 and more.
const NOISE_PERCENT: u32 = 5;

/// What identifies a machine, as far as the costs of its memory depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineKey {
    cpu: String,
    kernel: String,
    nodes: Vec<NodeKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeKey {
    node: KernelNode,
    cpus: Vec<u32>,
    /// Rounded up: what the kernel keeps for itself differs from boot to boot.
    gib: u64,
    distances: Vec<u32>,
}

impl MachineKey {
    /// `None` on a machine that does not identify itself.
    pub(super) fn of(machine: &dyn Machine, nodes: &[NodeMemory]) -> Option<MachineKey> {
        let identity = machine.identity()?;
        let node = |node: &NodeMemory| NodeKey {
            node: node.node,
            cpus: node.cpus.clone(),
            gib: node.bytes.div_ceil(1 << 30),
            distances: node.distances.clone(),
        };
        Some(MachineKey {
            cpu: identity.cpu,
            kernel: identity.kernel,
            nodes: nodes.iter().map(node).collect(),
        })
    }
}

/// What was measured on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Version of the file.
    pub(super) hither_calibration: u32,
    pub(super) machine: MachineKey,
    /// Of a load: a row for each node whose CPUs load, a column for each node whose memory they
    /// load from.
    pub(super) load_ns: Vec<Vec<Option<u32>>>,
    /// Of moving a page between the row's and the column's node, in either direction.
    move_ns: Vec<Vec<Option<u32>>>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Chunks of 1000 loads for each pair of nodes.
    pub chunks: usize,
    /// Batches of moved pages for each pair of nodes.
    pub batches: usize,
    /// The measurement is given up as soon as it shows that it would take longer.
    pub at_most: Duration,
}

impl Effort {
    /// When asked for.
    pub const THOROUGH: Effort = Effort {
        chunks: 101,
        batches: 9,
        at_most: Duration::MAX,
    };
}

impl Calibration {
    /// Measures what can be measured. `None` where nothing can, or where it would take too long.
    pub fn measure(
        machine: &dyn Machine,
        nodes: &[NodeMemory],
        effort: Effort,
    ) -> Option<Calibration> {
        let key = MachineKey::of(machine, nodes)?;
        let mut probe = machine.probe()?;
        let begun = Instant::now();
        let count = nodes.len();
        let mut load_ns = vec![vec![None; count]; count];
        let mut move_ns = load_ns.clone();
        // By memory node: the memory that is allocated on one serves the CPUs of all.
        for (to, memory) in nodes.iter().enumerate() {
            for (from, node) in nodes.iter().enumerate() {
                let chunks = probe.loads(&node.cpus, memory.node, effort.chunks);
                load_ns[from][to] = chunks.ok().and_then(median).map(|ps| ps.div_ceil(1000));
                let projected = begun.elapsed() / (to * count + from + 1) as u32;
                if projected.saturating_mul((count * count) as u32) > effort.at_most {
                    return None;
                }
            }
        }
        for (from, of) in nodes.iter().enumerate() {
            for (to, other) in nodes.iter().enumerate().skip(from + 1) {
                if begun.elapsed() < effort.at_most {
                    let batches = probe.moves((of.node, other.node), effort.batches);
                    move_ns[from][to] = batches.ok().and_then(median);
                }
            }
        }
        let mut all = load_ns.iter().chain(&move_ns).flatten();
        all.any(Option::is_some).then_some(Calibration {
            hither_calibration: FORMAT_VERSION,
            machine: key,
            load_ns,
            move_ns,
        })
    }

    /// What moving a page costs: the median over the pairs of nodes.
    pub(super) fn migration_ns(&self) -> Option<u64> {
        let pairs = self.move_ns.iter().flatten().flatten();
        median(pairs.map(|&ns| u64::from(ns)).collect()).map(u64::from)
    }

    /// Whether all remote loads that were measured are as fast as local ones.
    pub(super) fn is_flat(&self) -> bool {
        let mut remote = Vec::new();
        for (from, row) in self.load_ns.iter().enumerate() {
            let Some(local_ns) = row[from] else {
                continue;
            };
            let others = row.iter().enumerate().filter(|&(to, _)| to != from);
            remote.extend(others.filter_map(|(_, ns)| Some(is_farther((*ns)?, local_ns))));
        }
        !remote.is_empty() && !remote.contains(&true)
    }

    /// Whether it has a row and a column for each of so many nodes.
    pub(super) fn is_of(&self, nodes: usize) -> bool {
        [&self.load_ns, &self.move_ns]
            .iter()
            .all(|rows| rows.len() == nodes && rows.iter().all(|row| row.len() == nodes))
    }
}

/// Whether a remote load is slower than a local one, by more than noise.
pub(super) fn is_farther(remote_ns: u32, local_ns: u32) -> bool {
    u64::from(remote_ns) * 100 > u64::from(local_ns) * u64::from(100 + NOISE_PERCENT)
}

pub(super) fn median(mut values: Vec<u64>) -> Option<u32> {
    values.sort_unstable();
    let middle = values.get(values.len() / 2)?;
    u32::try_from(*middle).ok()
}
