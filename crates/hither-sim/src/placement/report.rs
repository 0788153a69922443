//! What a placement did: counts and modelled latencies, over time, and from where to where.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts and sums over a part of a run.
///
/// Every access is one of three: *local* (a copy on the accessing node), *remote* (a copy on
/// another node), or a *miss* (a block from storage, or the first touch of a page). An access with
/// a `count` counts that often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// All accesses.
    pub accesses: u64,
    /// Those served by the accessing node itself.
    pub local: u64,
    /// Those served by another node.
    pub remote: u64,
    /// Those that nobody held.
    pub misses: u64,
    /// Hops of the remote ones, summed.
    pub hops: u64,
    /// Hops that the lookups of the remote ones made, the first step to the neighbours included; 0
    /// where nothing is looked up by message.
    pub lookup_hops: u64,
    /// Latency of local and remote ones, summed.
    pub hit_ns: u64,
    /// Latency of misses, summed.
    pub miss_ns: u64,
    /// Blocks that changed their home while cached, forwarded victims apart.
    pub migrations: u64,
    /// Migrations (and replications) asked for and refused.
    pub refused: u64,
    /// Replicas made.
    pub replications: u64,
    /// Copies dropped because the block was written.
    pub invalidations: u64,
    /// Victims that another node took in.
    pub forwarded: u64,
    /// Copies that were let go to make room.
    pub evictions: u64,
    /// Blocks written back to storage.
    pub write_backs: u64,
    /// Bytes that went from node to node: accesses served remotely, migrations, replications,
    /// forwarded victims.
    pub bytes_moved: u64,
    /// Translations that had to be flushed everywhere (memory pages only).
    pub tlb_shootdowns: u64,
    /// Time that migrating, replicating and watching cost, part of no access's latency.
    pub overhead_ns: u64,
}

impl Totals {
    /// What was added since these were `earlier`.
    pub fn since(&self, earlier: &Totals) -> Totals {
        Totals {
            accesses: self.accesses - earlier.accesses,
            local: self.local - earlier.local,
            remote: self.remote - earlier.remote,
            misses: self.misses - earlier.misses,
            hops: self.hops - earlier.hops,
            lookup_hops: self.lookup_hops - earlier.lookup_hops,
            hit_ns: self.hit_ns - earlier.hit_ns,
            miss_ns: self.miss_ns - earlier.miss_ns,
            migrations: self.migrations - earlier.migrations,
            refused: self.refused - earlier.refused,
            replications: self.replications - earlier.replications,
            invalidations: self.invalidations - earlier.invalidations,
            forwarded: self.forwarded - earlier.forwarded,
            evictions: self.evictions - earlier.evictions,
            write_backs: self.write_backs - earlier.write_backs,
            bytes_moved: self.bytes_moved - earlier.bytes_moved,
            tlb_shootdowns: self.tlb_shootdowns - earlier.tlb_shootdowns,
            overhead_ns: self.overhead_ns - earlier.overhead_ns,
        }
    }

    /// The part of the accesses that the accessing node served, from 0 to 1.
    pub fn local_hit_ratio(&self) -> f64 {
        ratio(self.local, self.accesses)
    }

    /// The part of the accesses that any node served, from 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.local + self.remote, self.accesses)
    }

    /// Mean hops of an access that any node served: 0 for local ones.
    pub fn mean_hops(&self) -> f64 {
        ratio(self.hops, self.local + self.remote)
    }

    /// Mean latency of an access that any node served.
    pub fn hit_latency_ns(&self) -> f64 {
        ratio(self.hit_ns, self.local + self.remote)
    }

    /// Mean latency of a miss.
    pub fn miss_latency_ns(&self) -> f64 {
        ratio(self.miss_ns, self.misses)
    }

    /// Mean latency of an access.
    pub fn access_latency_ns(&self) -> f64 {
        ratio(self.hit_ns + self.miss_ns, self.accesses)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// References before its end.
    pub end: u64,
    /// Modelled time at its end, since the start.
    pub end_ns: u64,
    /// What happened in it.
    pub totals: Totals,
    /// Copies on each node at its end.
    pub used: Vec<u32>,
}

/// A block that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// References before it.
    pub reference: u64,
    /// The block's number in the trace.
    pub block: u32,
    /// From where.
    pub from: u16,
    /// To where.
    pub to: u16,
    /// The block stayed at `from` as well.
    pub replica: bool,
}

/// What became of one process of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessTotals {
    /// Its accesses that the accessing node served, after the warm-up.
    pub local: u64,
    /// Those that another node served.
    pub remote: u64,
    /// Those that nobody held.
    pub misses: u64,
    /// Modelled time of its last access, since the start.
    pub end_ns: u64,
}

/// What became of one placement.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementOutcome {
    /// The placement's name.
    pub placement: &'static str,
    /// Its parameters, all written out.
    pub params: BTreeMap<&'static str, serde_json::Value>,
    /// The topology, as a user writes it.
    pub nodes: String,
    /// How many blocks each node holds.
    pub capacity: Vec<u32>,
    /// What things cost, all written out.
    pub costs: serde_json::Value,
    /// After the warm-up.
    pub totals: Totals,
    /// During the warm-up.
    pub warm_up: Totals,
    /// Modelled time of the run after the warm-up: of the slowest thread between any two barriers,
    /// summed.
    pub modelled_time_ns: u64,
    /// The run in parts, warm-up included.
    pub timeline: Vec<Interval>,
    /// The run by iterations, warm-up included, where the trace marks their ends; accesses after
    /// the last are left out.
    pub iterations: Vec<Interval>,
    /// Accesses from each node (row) to each node that served them, misses by the node that the
    /// block was placed on, after the warm-up.
    pub traffic: Vec<u64>,
    /// By process, where there are several (memory pages only).
    pub processes: Vec<ProcessTotals>,
    /// The first moves, as many as were asked for.
    pub moves: Vec<Move>,
    /// What the policy counted of its own doings.
    pub statistics: Vec<(&'static str, u64)>,
}

impl PlacementOutcome {
    /// How unevenly the nodes serve: the most accesses that one node served, by the mean. 1 is
    /// even.
    pub fn node_imbalance(&self) -> f64 {
        let nodes = self.capacity.len();
        let served = |node: usize| self.traffic.iter().skip(node).step_by(nodes).sum::<u64>();
        let most = (0..nodes).map(served).max().unwrap_or(0);
        match self.traffic.iter().sum::<u64>() {
            0 => 1.0,
            all => most as f64 * nodes as f64 / all as f64,
        }
    }
}
