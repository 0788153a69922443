//! What memory costs on this machine: how long loads take from each node to each, and what moving a
//! page does.
//!
//! Firmware tells distances, which are relative, coarse, and at times made up; so both are measured
//! ([`hither_sys::memory_probe`]) and kept (`cache`) under what the machine is. A pair that could
//! not be measured, or of which a measurement says nonsense, gets the firmware's latency (HMAT,
//! which tells the nearest only) or its distance, in proportion to a load that was measured.
//!
//! Nonsense is a remote load that is no slower than a local one. Where all are so, the nodes are
//! made up: a guest's whose memory lies anywhere on its host, or an emulator's. Then nothing
//! measured is believed, and distances are all that there is, as if nothing had been measured: what
//! is said of such nodes, by whoever made them up, is what is meant.

mod cache;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use hither_sys::machine::{Machine, NodeMemory};
use serde::{Deserialize, Serialize};

pub use self::cache::{Cache, cache_folder};
use crate::numa::topology;

/// Of the file.
const FORMAT: u32 = 1;

/// A load from another node that is slower than a local one by less, in hundredths, is as fast:
/// chunks of a busy machine differ by 2 to 4 (2026-11), and nodes within one socket by 8 and more.
const NOISE: u32 = 5;

/// What a machine is, as far as its memory's costs depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineKey {
    cpu: String,
    kernel: String,
    nodes: Vec<NodeKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeKey {
    node: u32,
    cpus: Vec<u32>,
    /// Rounded up: what the kernel keeps for itself differs from start to start.
    gib: u64,
    distances: Vec<u32>,
}

impl MachineKey {
    /// Nothing on a machine that does not say what it is.
    fn of(machine: &dyn Machine, nodes: &[NodeMemory]) -> Option<MachineKey> {
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

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    hither_calibration: u32,
    machine: MachineKey,
    /// A row for each node whose CPUs load, an entry for each whose memory is loaded from.
    load_ns: Vec<Vec<Option<u32>>>,
    /// Of a page, from the node of the row to that of the column or back.
    move_ns: Vec<Vec<Option<u32>>>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Chunks of a thousand loads, a pair of nodes.
    pub chunks: usize,
    /// Batches of moved pages, a pair of nodes.
    pub batches: usize,
    /// Given up where it takes longer, as soon as that shows.
    pub at_most: Duration,
}

impl Effort {
    /// Before a program starts. Some 1.5 ms a pair of nodes and 2 ms a node: machines of up to four
    /// or five nodes are measured so, once. Not while the program starts: each would slow the other
    /// down, and the decisions of a run are to begin with what it costs.
    pub const QUICK: Effort = Effort {
        chunks: 5,
        batches: 2,
        at_most: Duration::from_millis(50),
    };

    /// When asked for.
    pub const THOROUGH: Effort = Effort {
        chunks: 101,
        batches: 9,
        at_most: Duration::MAX,
    };
}

impl Calibration {
    /// Measures what can be; nothing where nothing can, or it would take too long.
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
        // Memory node by memory node: what lies there serves all CPUs.
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
            hither_calibration: FORMAT,
            machine: key,
            load_ns,
            move_ns,
        })
    }

    /// What moving a page costs: the median of the pairs.
    fn migration_ns(&self) -> Option<u64> {
        let pairs = self.move_ns.iter().flatten().flatten();
        median(pairs.map(|&ns| u64::from(ns)).collect()).map(u64::from)
    }

    /// Whether every remote load that was measured is as fast as a local one.
    fn is_flat(&self) -> bool {
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

    /// Whether it has a row and an entry for each of these nodes.
    fn is_of(&self, nodes: usize) -> bool {
        [&self.load_ns, &self.move_ns]
            .iter()
            .all(|rows| rows.len() == nodes && rows.iter().all(|row| row.len() == nodes))
    }
}

fn is_farther(remote_ns: u32, local_ns: u32) -> bool {
    u64::from(remote_ns) * 100 > u64::from(local_ns) * u64::from(100 + NOISE)
}

fn median(mut of: Vec<u64>) -> Option<u32> {
    of.sort_unstable();
    let middle = of.get(of.len() / 2)?;
    u32::try_from(*middle).ok()
}

/// Where a latency is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencySource {
    /// It was measured.
    Measured,
    /// The firmware's table of latencies (HMAT).
    Latencies,
    /// The firmware's table of distances (SLIT).
    Distances,
}

/// What accesses and moves are taken to cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Of a load from the row's node to the column's memory, row by row, and where each is from.
    pub latencies: Vec<(u32, LatencySource)>,
    /// Of moving a page, where that was measured.
    pub migration_ns: Option<u64>,
}

impl Costs {
    /// From the best that is known of each pair. From a node to another takes always longer than to
    /// itself.
    pub fn of(nodes: &[NodeMemory], measured: Option<&Calibration>) -> Costs {
        let measured = measured.filter(|measured| measured.is_of(nodes.len()));
        let believed = measured.filter(|measured| !measured.is_flat());
        let load_ns = |from: usize, to: usize| believed.and_then(|of| of.load_ns[from][to]);
        let locals = (0..nodes.len()).filter_map(|node| load_ns(node, node));
        let usual_ns = median(locals.map(u64::from).collect());
        let usual_ns = usual_ns.unwrap_or(topology::LOCAL_NS);
        let mut latencies = Vec::with_capacity(nodes.len() * nodes.len());
        for from in 0..nodes.len() {
            latencies.extend(row(nodes, from, usual_ns, &load_ns));
        }
        Costs {
            latencies,
            migration_ns: measured.and_then(Calibration::migration_ns),
        }
    }

    /// The latencies, row by row.
    pub fn latency_ns(&self) -> Vec<u32> {
        self.latencies.iter().map(|&(ns, _)| ns).collect()
    }
}

/// Latencies from one node to all.
fn row(
    nodes: &[NodeMemory],
    from: usize,
    usual_ns: u32,
    load_ns: &impl Fn(usize, usize) -> Option<u32>,
) -> Vec<(u32, LatencySource)> {
    let told = |to: usize| {
        let nearest = nodes[to].nearest.as_ref()?;
        let ours = nearest.nodes.contains(&nodes[from].node);
        ours.then_some((nearest.read_ns, LatencySource::Latencies))
    };
    let known = |to: usize| {
        let measured = load_ns(from, to).map(|ns| (ns.max(1), LatencySource::Measured));
        measured.or_else(|| told(to))
    };
    let local = known(from).unwrap_or((usual_ns, LatencySource::Distances));
    let farther = |to: usize| known(to).filter(|&(ns, _)| is_farther(ns, local.0));
    let distance = |to| topology::distance(nodes, from, to);
    let by_distance = |to: usize| {
        let ns = u64::from(local.0) * u64::from(distance(to)) / u64::from(topology::LOCAL);
        let ns = u32::try_from(ns).unwrap_or(u32::MAX);
        // Not nearer than what is known of a nearer node, nor farther than what is of a farther
        // one.
        let others = (0..nodes.len()).filter(|&other| other != from);
        let others = others.filter_map(|other| Some((distance(other), farther(other)?.0)));
        let (mut least, mut most) = (local.0.saturating_add(1), u32::MAX);
        for (at, ns) in others {
            if at <= distance(to) {
                least = least.max(ns);
            }
            if at >= distance(to) {
                most = most.min(ns);
            }
        }
        (ns.min(most).max(least), LatencySource::Distances)
    };
    let one = |to| match to == from {
        true => local,
        false => farther(to).unwrap_or_else(|| by_distance(to)),
    };
    (0..nodes.len()).map(one).collect()
}

/// What is known at the start of a run.
#[derive(Debug, Default)]
pub(crate) struct StoredCalibration {
    pub(crate) calibration: Option<Calibration>,
    /// Why nothing was read or kept.
    pub(crate) problem: Option<String>,
}

impl StoredCalibration {
    /// Reads it, or measures what takes next to no time and keeps it: so only the first run on a
    /// machine waits for that. Without a place to keep it every run would.
    pub(crate) fn load(
        machine: &dyn Machine,
        nodes: &[NodeMemory],
        folder: Option<&Path>,
    ) -> StoredCalibration {
        let mut known = StoredCalibration::default();
        let Some(cache) = folder.filter(|_| nodes.len() > 1).map(Cache::new) else {
            return known;
        };
        match cache.read(machine, nodes) {
            Ok(Some(calibration)) => {
                known.calibration = Some(calibration);
                return known;
            }
            Ok(None) => {}
            Err(problem) => known.problem = Some(problem),
        }
        known.calibration = Calibration::measure(machine, nodes, Effort::QUICK);
        if let Some(calibration) = &known.calibration
            && let Err(error) = cache.keep(calibration)
        {
            known.problem = Some(error);
        }
        known
    }
}
