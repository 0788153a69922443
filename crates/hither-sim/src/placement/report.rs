//! The results of a placement: counts and modelled latencies, over time and between nodes.

use serde::{Deserialize, Serialize};

/// Counts and sums of a part of a run.
///
/// Every access is one of three: *local* (a copy on the accessing node), *remote* (a copy on
/// another node), or a *miss* (a block from storage, or the first touch of a page). An access
/// counts `count` times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// All accesses.
    pub accesses: u64,
    /// Accesses served by the accessing node.
    pub local: u64,
    /// Accesses served by another node.
    pub remote: u64,
    /// Accesses that no node served.
    pub misses: u64,
    /// Sum of the hops of remote accesses.
    pub hops: u64,
    /// Sum of the hops of the lookups of remote accesses, including the first step to the
    /// neighbours. 0 without lookups by message.
    pub lookup_hops: u64,
    /// Sum of the latencies of local and remote accesses.
    pub hit_ns: u64,
    /// Sum of the latencies of misses.
    pub miss_ns: u64,
    /// Blocks that changed their home while cached, without forwarded victims.
    pub migrations: u64,
    /// Migrations and replications that were refused.
    pub refused: u64,
    /// Replicas made.
    pub replications: u64,
    /// Copies dropped because the block was written.
    pub invalidations: u64,
    /// Victims that another node took.
    pub forwarded: u64,
    /// Copies evicted to make room.
    pub evictions: u64,
    /// Blocks written back to storage.
    pub write_backs: u64,
    /// Bytes sent between nodes: remote accesses, migrations, replications, forwarded victims.
    pub bytes_moved: u64,
    /// TLB flushes on all processors (memory pages only).
    pub tlb_shootdowns: u64,
    /// Time of migrating, replicating and sampling; not part of any access's latency.
    pub overhead_ns: u64,
}

impl Totals {
    /// The difference to the `earlier` values.
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

    /// The share of accesses served by the accessing node, from 0 to 1.
    pub fn local_hit_ratio(&self) -> f64 {
        ratio(self.local, self.accesses)
    }

    /// The share of accesses served by any node, from 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.local + self.remote, self.accesses)
    }

    /// Mean hops of the accesses served by a node; 0 for local ones.
    pub fn mean_hops(&self) -> f64 {
        ratio(self.hops, self.local + self.remote)
    }

    /// Mean latency of the accesses served by a node.
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

/// An interval of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// References before its end.
    pub end: u64,
    /// Modelled time at its end, from the start of the run.
    pub end_ns: u64,
    /// Counts of the interval.
    pub totals: Totals,
    /// Copies on each node at its end.
    pub used: Vec<u32>,
}

/// A move of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Move {
    /// References before it.
    pub reference: u64,
    /// The block's number in the trace.
    pub block: u32,
    /// The source node.
    pub from: u16,
    /// The target node.
    pub to: u16,
    /// Whether the block also stayed at `from`.
    pub replica: bool,
}

/// The result of one of several processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessTotals {
    /// Its local accesses after the warm-up.
    pub local: u64,
    /// Its remote accesses.
    pub remote: u64,
    /// Its misses.
    pub misses: u64,
    /// Modelled time before its first access, from the start of the run.
    pub start_ns: u64,
    /// Modelled time of its last access, from the start of the run.
    pub end_ns: u64,
}

/// The result of one placement.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementOutcome {
    /// The topology, as written by the user.
    pub nodes: String,
    /// Capacity of each node in blocks.
    pub capacity: Vec<u32>,
    /// All costs.
    pub costs: serde_json::Value,
    /// Counts after the warm-up.
    pub totals: Totals,
    /// Counts of the warm-up.
    pub warm_up: Totals,
    /// Modelled time after the warm-up: the sum over the intervals between barriers of the slowest
    /// thread's time.
    pub modelled_time_ns: u64,
    /// The intervals of the run, including the warm-up.
    pub timeline: Vec<Interval>,
    /// The iterations of the run, including the warm-up, by the marks of the trace. Accesses after
    /// the last mark are left out.
    pub iterations: Vec<Interval>,
    /// Accesses after the warm-up, by accessing node (row) and serving node. Misses count for the
    /// node on which the block was placed.
    pub traffic: Vec<u64>,
    /// By process, if there are several (memory pages only).
    pub processes: Vec<ProcessTotals>,
    /// The first moves, up to the number asked for.
    pub moves: Vec<Move>,
    /// The policy's own statistics.
    pub statistics: Vec<(&'static str, u64)>,
}

impl PlacementOutcome {
    /// Imbalance: the most accesses served by one node, divided by the mean. 1 is even.
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
