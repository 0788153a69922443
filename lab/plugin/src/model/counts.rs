//! Counts of one CPU and of one address range: totals since the start, from which intervals are
//! differences.
//! Totals only grow. They are not zeroed at a mark: a CPU adds to its own totals without a lock,
//! and could overwrite the zero with an old value.
//! and could write an old value over the zero.

use super::{Mode, Service};

/// The counts of one CPU; each pair is `[user, kernel]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCounts {
    /// The CPU's node.
    pub node: usize,
    /// Instructions executed.
    pub instructions: [u64; 2],
    /// Accesses that hit L1.
    pub l1_hits: [u64; 2],
    /// Accesses that hit L2.
    pub l2_hits: [u64; 2],
    /// Accesses served within the node.
    pub llc_hits: [u64; 2],
    /// Accesses served by caches of another node, by that node.
    pub cache_to_cache: Vec<[u64; 2]>,
    /// Lines read from memory on a load, by the memory's node.
    pub reads: Vec<[u64; 2]>,
    /// Lines read from memory on a store, by the memory's node.
    pub writes: Vec<[u64; 2]>,
    /// Modified lines written to memory, by the memory's node.
    pub write_backs: Vec<u64>,
    /// Accesses to device memory or to addresses of no node.
    pub unmapped: u64,
}

impl CpuCounts {
    pub(crate) fn zero(node: usize, nodes: usize) -> Self {
        Self {
            node,
            instructions: [0; 2],
            l1_hits: [0; 2],
            l2_hits: [0; 2],
            llc_hits: [0; 2],
            cache_to_cache: vec![[0; 2]; nodes],
            reads: vec![[0; 2]; nodes],
            writes: vec![[0; 2]; nodes],
            write_backs: vec![0; nodes],
            unmapped: 0,
        }
    }

    pub(crate) fn count(&mut self, service: Service, store: bool, mode: Mode) {
        let pair = match service {
            Service::L1 => &mut self.l1_hits,
            Service::L2 => &mut self.l2_hits,
            Service::Node => &mut self.llc_hits,
            Service::CacheOf(node) => &mut self.cache_to_cache[node],
            Service::MemoryOf(node) if store => &mut self.writes[node],
            Service::MemoryOf(node) => &mut self.reads[node],
        };
        pair[mode as usize] += 1;
    }

    /// Modelled accesses: the sum over all levels that serve.
    pub fn accesses(&self) -> [u64; 2] {
        let by_node = [&self.cache_to_cache, &self.reads, &self.writes];
        let pairs =
            by_node
                .into_iter()
                .flatten()
                .chain([&self.l1_hits, &self.l2_hits, &self.llc_hits]);
        pairs.fold([0; 2], |sum, pair| [sum[0] + pair[0], sum[1] + pair[1]])
    }

    /// The increase since an earlier total of the same CPU.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = |now: &[[u64; 2]], then: &[[u64; 2]]| {
            now.iter()
                .zip(then)
                .map(|(&now, &then)| difference(now, then))
                .collect()
        };
        Self {
            node: self.node,
            instructions: difference(self.instructions, earlier.instructions),
            l1_hits: difference(self.l1_hits, earlier.l1_hits),
            l2_hits: difference(self.l2_hits, earlier.l2_hits),
            llc_hits: difference(self.llc_hits, earlier.llc_hits),
            cache_to_cache: pairs(&self.cache_to_cache, &earlier.cache_to_cache),
            reads: pairs(&self.reads, &earlier.reads),
            writes: pairs(&self.writes, &earlier.writes),
            write_backs: self
                .write_backs
                .iter()
                .zip(&earlier.write_backs)
                .map(|(now, then)| now - then)
                .collect(),
            unmapped: self.unmapped - earlier.unmapped,
        }
    }
}

fn difference(now: [u64; 2], then: [u64; 2]) -> [u64; 2] {
    [now[0] - then[0], now[1] - then[1]]
}

/// Lines that user code fetched from memory within one range of virtual addresses.
///
/// The range belongs to no process, since a plugin cannot tell address spaces apart in every
/// version. Accesses of other programs to the same addresses are counted as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeCounts {
    first: u64,
    last: u64,
    /// Lines by the CPU's node and the memory's.
    pub lines: Vec<Vec<u64>>,
}

impl RangeCounts {
    pub(crate) fn zero(first: u64, last: u64, nodes: usize) -> Self {
        Self {
            first,
            last,
            lines: vec![vec![0; nodes]; nodes],
        }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// The increase since an earlier total of the same range, or everything without one.
    pub fn since(&self, earlier: Option<&Self>) -> Self {
        let mut added = self.clone();
        for (row, then) in added
            .lines
            .iter_mut()
            .zip(earlier.into_iter().flat_map(|earlier| &earlier.lines))
        {
            for (count, then) in row.iter_mut().zip(then) {
                *count -= then;
            }
        }
        added
    }
}
