//! The time model: sets of latencies, and the rule that converts the plugin's counts to modelled
//! time.
//!
//! The rule is additive: an instruction costs its share of a cycle, an access beyond the L1 waits
//! for the level that serves it, and nothing overlaps. On a real machine memory-level parallelism
//! and prefetchers hide a part of the latency, more of it for a stream than for a pointer chase. So
//! times rank placements of one program; they do not predict seconds. Counts do not depend on the
//! model.

use serde::Serialize;

use crate::counts::{Cpu, Interval};
use crate::machine::Machine;

/// The latencies of one kind of machine, in nanoseconds.
#[derive(Debug, PartialEq)]
pub(crate) struct Constants {
    /// The name in scenarios.
    pub(crate) name: &'static str,
    /// The kind of machine.
    pub(crate) summary: &'static str,
    /// The sources of the figures, and which of them were chosen here.
    pub(crate) source: &'static str,
    /// One instruction whose data are in the L1: one per cycle.
    pub(crate) instruction_ns: f64,
    /// A hit in the L2.
    pub(crate) l2_ns: f64,
    /// A hit in the last-level cache, or in a sibling's cache on the same node.
    pub(crate) llc_ns: f64,
    /// Memory of the node itself.
    pub(crate) local_ns: f64,
    /// Added per 10 units of SLIT distance beyond 10.
    pub(crate) hop_ns: f64,
    /// Added to `local_ns` for memory of a node without CPUs, at any distance. `None`: by distance,
    /// like other nodes.
    pub(crate) memory_only_ns: Option<f64>,
}

/// Every set, by name.
pub(crate) const SETS: &[Constants] = &[
    Constants {
        name: "cxl",
        summary: "xeon2 with memory behind CXL in the nodes without CPUs: 169 ns",
        source: "Li et al., Pond, ASPLOS 2023: a small pool adds 70-90 ns to local DRAM, the \
                 middle is taken; the rest as xeon2",
        instruction_ns: 0.4,
        l2_ns: 5.6,
        llc_ns: 26.0,
        local_ns: 89.0,
        hop_ns: 50.0,
        memory_only_ns: Some(80.0),
    },
    Constants {
        name: "opteron2",
        summary: "two AMD Opteron 246 (2 GHz, 2003): 70 ns local, 104 ns remote",
        source: "Zhou, Meng and Ma, dual-layered file cache on cc-NUMA, section 1 (memory). Chosen \
                 without a source: L2 of 12 cycles, and the same for a modelled L3, which the \
                 machine lacks",
        instruction_ns: 0.5,
        l2_ns: 6.0,
        llc_ns: 6.0,
        local_ns: 70.0,
        hop_ns: 34.0,
        memory_only_ns: None,
    },
    Constants {
        name: "origin2000",
        summary: "SGI Origin2000 (R10000, 250 MHz): 300 ns local, 100 ns a router on the way",
        source: "Nikolopoulos et al., ICS 2000, section 3.1; Laudon and Lenoski, ISCA 1997 \
                 (memory). Chosen without a source: 14 cycles for the off-chip L2, which stands \
                 for the modelled L2 and for the LLC, which the machine lacks",
        instruction_ns: 4.0,
        l2_ns: 56.0,
        llc_ns: 56.0,
        local_ns: 300.0,
        hop_ns: 100.0,
        memory_only_ns: None,
    },
    Constants {
        name: "xeon2",
        summary: "two Xeon Scalable sockets (2.5 GHz): 89 ns local, 139 ns remote",
        source: "Skylake-SP: J. Chang, The Case for Single Processor, qdpma.com (memory); \
                 AnandTech 11544, page 13 (L2 14 cycles, L3 26 ns)",
        instruction_ns: 0.4,
        l2_ns: 5.6,
        llc_ns: 26.0,
        local_ns: 89.0,
        hop_ns: 50.0,
        memory_only_ns: None,
    },
];

impl Constants {
    /// The set of that name.
    pub(crate) fn named(name: &str) -> Option<&'static Constants> {
        SETS.iter().find(|set| set.name == name)
    }

    /// The wait of a CPU of node `from` for a line of node `to`, from its memory or a cache there.
    /// (On a real machine a dirty line in a third node's cache costs one more message. The plugin
    /// counts it for the node that holds it.)
    pub(crate) fn latency_ns(&self, machine: &Machine, from: usize, to: usize) -> f64 {
        if let (Some(extra), 0) = (self.memory_only_ns, machine.nodes[to].cpus) {
            return self.local_ns + extra;
        }
        let distance = machine.distance(from, to);
        self.local_ns + self.hop_ns * (f64::from(distance) - 10.0).max(0.0) / 10.0
    }
}

/// The totals of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Totals {
    /// Lines fetched from memory by user code: `[cpu node][memory node]`.
    pub(crate) user_misses: Vec<Vec<u64>>,
    /// The same for the kernel.
    pub(crate) kernel_misses: Vec<Vec<u64>>,
    /// Accesses served by a cache of another node, user and kernel: `[cpu node][node that served]`.
    pub(crate) cache_to_cache: Vec<Vec<u64>>,
    /// Data accesses, user and kernel.
    pub(crate) accesses: [u64; 2],
    /// Data accesses that the CPU's own L1 served.
    pub(crate) l1_hits: [u64; 2],
    /// Lines written back to memory, for which no CPU waits.
    pub(crate) write_backs: u64,
    /// Instructions, user and kernel.
    pub(crate) instructions: [u64; 2],
    /// The sum over intervals of the slowest CPU's time, in nanoseconds.
    pub(crate) time_ns: f64,
    /// The part of it in the last half of the intervals. Of an odd number of intervals it is the
    /// smaller half, since the first interval is then the time before the iterations.
    pub(crate) last_half_ns: f64,
    /// The part of the total time spent waiting beyond the L1, on the slowest CPUs.
    pub(crate) stall_ns: f64,
    /// The time of all CPUs together: user, kernel.
    pub(crate) cpu_ns: [f64; 2],
    /// Accesses to no node's memory (devices), which cost nothing here.
    pub(crate) unmapped: u64,
    /// Lines fetched from memory by user code in each range: `[range][cpu node][memory node]`.
    pub(crate) ranges: Vec<Vec<Vec<u64>>>,
}

impl Totals {
    /// All lines fetched from memory.
    pub(crate) fn misses(&self) -> u64 {
        sum(&self.user_misses) + sum(&self.kernel_misses)
    }

    /// Those fetched by user code.
    pub(crate) fn misses_of_user(&self) -> u64 {
        sum(&self.user_misses)
    }

    /// By node pair, user and kernel together.
    pub(crate) fn misses_by_pair(&self) -> Vec<Vec<u64>> {
        let mut pairs = self.user_misses.clone();
        add(&mut pairs, &self.kernel_misses);
        pairs
    }

    /// The share fetched from the CPU's own node.
    pub(crate) fn local_share(&self) -> f64 {
        local(&self.misses_by_pair())
    }

    /// The share of user code's lines fetched from the CPU's own node.
    pub(crate) fn local_share_of_user(&self) -> f64 {
        local(&self.user_misses)
    }

    /// The kernel's share of the time of all CPUs.
    pub(crate) fn kernel_share(&self) -> f64 {
        let all = self.cpu_ns[0] + self.cpu_ns[1];
        if all > 0.0 { self.cpu_ns[1] / all } else { 0.0 }
    }
}

/// The share on the diagonal, or 1 without any lines.
pub(crate) fn local(pairs: &[Vec<u64>]) -> f64 {
    let all = sum(pairs);
    let own: u64 = pairs.iter().enumerate().map(|(node, row)| row[node]).sum();
    if all == 0 {
        1.0
    } else {
        own as f64 / all as f64
    }
}

fn sum(pairs: &[Vec<u64>]) -> u64 {
    pairs.iter().flatten().sum()
}

fn add(to: &mut Vec<Vec<u64>>, from: &[Vec<u64>]) {
    to.resize(to.len().max(from.len()), Vec::new());
    for (to, from) in to.iter_mut().zip(from) {
        to.resize(to.len().max(from.len()), 0);
        for (to, from) in to.iter_mut().zip(from) {
            *to += from;
        }
    }
}

/// Prices the intervals of one run. CPUs wait for each other at the end of an interval (the
/// programs' iterations end in a barrier), so an interval takes as long as its slowest CPU.
pub(crate) fn price(intervals: &[Interval], machine: &Machine, constants: &Constants) -> Totals {
    let nodes = machine.nodes.len();
    let square = || vec![vec![0; nodes]; nodes];
    let mut totals = Totals {
        user_misses: square(),
        kernel_misses: square(),
        cache_to_cache: square(),
        ..Totals::default()
    };
    let last_half = intervals.len().div_ceil(2);
    for (index, interval) in intervals.iter().enumerate() {
        let mut slowest = (0.0, 0.0);
        for cpu in &interval.cpus {
            let node = usize::from(cpu.node);
            let mut time = 0.0;
            let mut stall = 0.0;
            for mode in 0..2 {
                let waited = stall_ns(cpu, mode, machine, constants);
                let all = waited + cpu.instructions[mode] as f64 * constants.instruction_ns;
                totals.accesses[mode] += cpu.accesses[mode];
                totals.l1_hits[mode] += cpu.l1_hits[mode];
                totals.instructions[mode] += cpu.instructions[mode];
                totals.cpu_ns[mode] += all;
                time += all;
                stall += waited;
                let misses = if mode == 0 {
                    &mut totals.user_misses
                } else {
                    &mut totals.kernel_misses
                };
                for (memory, (reads, writes)) in cpu.reads.iter().zip(&cpu.writes).enumerate() {
                    misses[node][memory] += reads[mode] + writes[mode];
                }
                for (holder, served) in cpu.cache_to_cache.iter().enumerate() {
                    totals.cache_to_cache[node][holder] += served[mode];
                }
            }
            totals.write_backs += cpu.write_backs.iter().sum::<u64>();
            totals.unmapped += cpu.unmapped;
            if time > slowest.0 {
                slowest = (time, stall);
            }
        }
        totals.time_ns += slowest.0;
        if index >= last_half {
            totals.last_half_ns += slowest.0;
        }
        totals.stall_ns += slowest.1;
        totals
            .ranges
            .resize(totals.ranges.len().max(interval.ranges.len()), Vec::new());
        for (total, range) in totals.ranges.iter_mut().zip(&interval.ranges) {
            add(total, range);
        }
    }
    totals
}

/// The CPU's waits beyond its L1, as user (0) or kernel (1).
fn stall_ns(cpu: &Cpu, mode: usize, machine: &Machine, constants: &Constants) -> f64 {
    let node = usize::from(cpu.node);
    let caches =
        cpu.l2_hits[mode] as f64 * constants.l2_ns + cpu.llc_hits[mode] as f64 * constants.llc_ns;
    let fetched = |counts: &[[u64; 2]]| -> f64 {
        let of_node = |(to, count): (usize, &[u64; 2])| {
            count[mode] as f64 * constants.latency_ns(machine, node, to)
        };
        counts.iter().enumerate().map(of_node).sum()
    };
    caches + fetched(&cpu.reads) + fetched(&cpu.writes) + fetched(&cpu.cache_to_cache)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Node;

    fn machine() -> Machine {
        let node = |cpus| Node {
            cpus,
            memory_mib: 128,
        };
        Machine {
            nodes: vec![node(1), node(1), node(0)],
            distances: Vec::new(),
            hmat: false,
            icount: false,
        }
    }

    fn cpu(node: u16, instructions: [u64; 2], reads: [[u64; 2]; 3]) -> Cpu {
        Cpu {
            node,
            instructions,
            l2_hits: [10, 0],
            llc_hits: [2, 1],
            cache_to_cache: vec![[0, 0], [3, 0], [0, 0]],
            reads: reads.to_vec(),
            writes: vec![[1, 0], [0, 0], [0, 0]],
            write_backs: vec![7, 7, 7],
            ..Cpu::default()
        }
    }

    #[test]
    fn names_are_sorted_and_sources_given() {
        assert!(SETS.is_sorted_by(|a, b| a.name < b.name));
        for set in SETS {
            assert!(set.source.len() > 20, "{} has no source", set.name);
            assert_eq!(Constants::named(set.name), Some(set));
        }
        assert_eq!(Constants::named("vax"), None);
    }

    #[test]
    fn the_readme_has_the_same_figures() {
        let readme = include_str!("../README.md");
        for set in SETS {
            let row = format!(
                "| `{}` | {} ns | {} ns | {} ns | {} ns | {} ns",
                set.name, set.instruction_ns, set.l2_ns, set.llc_ns, set.local_ns, set.hop_ns
            );
            let found = readme.lines().find(|line| line.starts_with(&row));
            let found = found.unwrap_or_else(|| panic!("lab/README.md has no row {row}"));
            if let Some(extra) = set.memory_only_ns {
                assert!(
                    found.contains(&format!("a node without CPUs {extra} ns")),
                    "{found}"
                );
            }
        }
    }

    #[test]
    fn latencies_follow_the_distances() {
        let mut machine = machine();
        let xeon = Constants::named("xeon2").expect("it is there");
        let cxl = Constants::named("cxl").expect("it is there");
        assert_eq!(xeon.latency_ns(&machine, 0, 0), 89.0);
        assert_eq!(xeon.latency_ns(&machine, 0, 1), 139.0);
        assert_eq!(xeon.latency_ns(&machine, 0, 2), 139.0);
        assert_eq!(cxl.latency_ns(&machine, 1, 2), 169.0);
        machine.distances = vec![vec![10, 30, 15], vec![30, 10, 20], vec![15, 20, 10]];
        assert_eq!(xeon.latency_ns(&machine, 0, 1), 189.0);
        assert_eq!(xeon.latency_ns(&machine, 0, 2), 114.0);
    }

    #[test]
    fn an_interval_priced_by_hand() {
        // CPU 0, opteron2: user 100 x 0.5 + 10 x 6 + 2 x 6 + 5 x 70 + 2 x 104 + (write) 70 + 3 x
        // 104 = 1062; kernel 20 x 0.5 + 6 + 4 x 104 = 432. CPU 1, on node 1: user 60 x 0.5 + 60 +
        // 12 + 1 x 70 + (write) 104 + 3 x 70 = 486; kernel 6.
        let interval = Interval {
            cpus: vec![
                cpu(0, [100, 20], [[5, 0], [2, 4], [0, 0]]),
                cpu(1, [60, 0], [[0, 0], [1, 0], [0, 0]]),
            ],
            ranges: vec![vec![vec![5, 2, 0], vec![0, 1, 0], vec![0, 0, 0]]],
            ..Interval::default()
        };
        let opteron = Constants::named("opteron2").expect("it is there");
        let once = price(std::slice::from_ref(&interval), &machine(), opteron);
        assert_eq!(once.time_ns, 1494.0);
        assert_eq!(once.stall_ns, 1494.0 - 60.0);
        assert_eq!(once.cpu_ns, [1062.0 + 486.0, 432.0 + 6.0]);
        assert_eq!(once.user_misses, [[6, 2, 0], [1, 1, 0], [0, 0, 0]]);
        assert_eq!(once.kernel_misses, [[0, 4, 0], [0, 0, 0], [0, 0, 0]]);
        assert_eq!(once.cache_to_cache, [[0, 3, 0], [0, 3, 0], [0, 0, 0]]);
        assert_eq!(once.local_share_of_user(), 0.7);
        assert_eq!(once.local_share(), 0.5);
        assert_eq!(once.misses(), 14);
        assert_eq!(once.write_backs, 42);

        // Intervals end in a barrier: the sum of the slowest CPUs, not the CPU with the largest
        // sum.
        let mut turned = interval.clone();
        turned.cpus.swap(0, 1);
        turned.cpus[0].instructions = [10_000, 0];
        let three = [interval.clone(), interval.clone(), turned.clone()];
        let both = price(&[interval, turned], &machine(), opteron);
        assert_eq!(both.time_ns, 1494.0 + 486.0 + 6.0 + 0.5 * (10_000.0 - 60.0));
        // The second interval has half of the time. With three intervals it still has.
        assert_eq!(both.last_half_ns, both.time_ns - 1494.0);
        let three = price(&three, &machine(), opteron);
        assert_eq!(three.last_half_ns, both.last_half_ns);
        assert_eq!(once.last_half_ns, 0.0);
        assert_eq!(both.ranges, [[[10, 4, 0], [0, 2, 0], [0, 0, 0]]]);
    }

    #[test]
    fn nothing_fetched_is_all_local() {
        let none = price(&[], &machine(), &SETS[0]);
        assert_eq!(none.local_share(), 1.0);
        assert_eq!(none.kernel_share(), 0.0);
    }
}
