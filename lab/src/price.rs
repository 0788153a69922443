//! The time model: sets of latencies, and the rule that converts the plugin's counts to modelled
//! time.
//!
//! The rule is additive: an instruction costs its share of a cycle, an access beyond the L1 waits
//! for the level that serves it, and nothing overlaps. On a real machine memory-level parallelism
//! and prefetchers hide a part of the latency, more of it for a stream than for a pointer chase. So
//! times rank placements of one program; they do not predict seconds. Counts do not depend on the
//! model.
//!
//! A set may have a [`Load`]: then accesses overlap each other and the instructions, memories and
//! links carry so much and no more, and accesses wait longer as these fill up. It shows what
//! latencies alone do not: that memory which all use is better spread over the nodes.

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
    /// What memories and links carry. `None`: as much as is asked of them.
    pub(crate) load: Option<Load>,
}

/// Two sockets of the kind that most servers have; other sets differ from it in a few figures.
const XEON2: Constants = Constants {
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
    load: None,
};

/// Every set, by name.
pub(crate) const SETS: &[Constants] = &[
    Constants {
        name: "cxl",
        summary: "xeon2 with memory behind CXL in the nodes without CPUs: 169 ns",
        source: "Li et al., Pond, ASPLOS 2023: a small pool adds 70-90 ns to local DRAM, the \
                 middle is taken; the rest as xeon2",
        memory_only_ns: Some(80.0),
        ..XEON2
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
        load: None,
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
        load: None,
    },
    XEON2,
    Constants {
        name: "xeon2-load",
        summary: "xeon2 with the bandwidth of memories and links, and queues before them",
        source: "latencies as xeon2; bandwidths: MLC 3.5 on a Skylake-SP of two sockets, 90.9 GB/s \
                 of a node's own memory and 34.4 GB/s of the other's \
                 (github.com/cncf/cnf-testbed, issue 129), divided by the 14 cores that a socket \
                 of such servers of Packet has; queues: MLC 3.5's loaded latencies of a Xeon \
                 Silver 4110 with 12 DIMMs (community.intel.com, thread 1126268). Chosen without \
                 a source: 10 lines under way, with which a core alone asks for about its share of \
                 the memory (the L1 of Skylake has 12 fill buffers)",
        load: Some(Load {
            overlap: 10.0,
            memory_gb_s: 90.9 / 14.0,
            link_gb_s: 34.4 / 14.0,
            curve: &[
                (0.0, 1.0),
                (0.032, 1.045),
                (0.072, 1.071),
                (0.135, 1.101),
                (0.217, 1.126),
                (0.315, 1.154),
                (0.504, 1.207),
                (0.968, 1.509),
                (1.0, 1.590),
            ],
        }),
        ..XEON2
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

/// What memories and links carry, and how accesses wait as they fill up. An access to memory waits
/// for the memory and for the link that its line comes over; a written line that goes back takes
/// its part of both, and nobody waits for it. Each pair of nodes has a link for each direction,
/// those two hops apart too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Lines that a core has under way at once, while it computes: each wait counts so many times
    /// less, and only what is longer than the instructions.
    pub(crate) overlap: f64,
    /// What a node's memory carries for each of the node's cores, in bytes a nanosecond.
    pub(crate) memory_gb_s: f64,
    /// What a link carries, in one direction, for each core of a node.
    pub(crate) link_gb_s: f64,
    /// How many times longer an access takes (second), by the part of the bandwidth that is used
    /// (first): points from 0 to 1, between which it is linear.
    pub(crate) curve: &'static [(f64, f64)],
}

impl Load {
    fn factor(&self, used: f64) -> f64 {
        let after = self.curve.iter().position(|&(at, _)| at >= used);
        match after {
            None => self.curve.last().map_or(1.0, |&(_, factor)| factor),
            Some(0) => self.curve[0].1,
            Some(after) => {
                let ((from, low), (to, high)) = (self.curve[after - 1], self.curve[after]);
                low + (high - low) * (used - from) / (to - from)
            }
        }
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
/// programs' iterations end in a barrier), so an interval takes as long as its slowest CPU, or as
/// its busiest memory or link.
pub(crate) fn price(
    intervals: &[Interval],
    machine: &Machine,
    constants: &Constants,
    line_bytes: u32,
) -> Totals {
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
        for cpu in &interval.cpus {
            totals.add_counts(cpu);
        }
        let traffic = Traffic::of(interval, machine, line_bytes);
        let took = traffic.time(interval, machine, constants);
        for times in &took.cpus {
            for (total, of) in totals.cpu_ns.iter_mut().zip(times) {
                *total += of.all_ns;
            }
        }
        totals.time_ns += took.time_ns;
        if index >= last_half {
            totals.last_half_ns += took.time_ns;
        }
        totals.stall_ns += took.stall_ns;
        totals
            .ranges
            .resize(totals.ranges.len().max(interval.ranges.len()), Vec::new());
        for (total, range) in totals.ranges.iter_mut().zip(&interval.ranges) {
            add(total, range);
        }
    }
    totals
}

impl Totals {
    fn add_counts(&mut self, cpu: &Cpu) {
        let node = usize::from(cpu.node);
        for mode in 0..2 {
            self.accesses[mode] += cpu.accesses[mode];
            self.l1_hits[mode] += cpu.l1_hits[mode];
            self.instructions[mode] += cpu.instructions[mode];
            let misses = if mode == 0 {
                &mut self.user_misses
            } else {
                &mut self.kernel_misses
            };
            for (memory, (reads, writes)) in cpu.reads.iter().zip(&cpu.writes).enumerate() {
                misses[node][memory] += reads[mode] + writes[mode];
            }
            for (holder, served) in cpu.cache_to_cache.iter().enumerate() {
                self.cache_to_cache[node][holder] += served[mode];
            }
        }
        self.write_backs += cpu.write_backs.iter().sum::<u64>();
        self.unmapped += cpu.unmapped;
    }
}

/// The bytes that memories and links carry in an interval.
struct Traffic {
    /// Of each node's memory.
    memories: Vec<f64>,
    /// `[from node][to node]`.
    links: Vec<Vec<f64>>,
}

/// The time of a CPU in one mode.
#[derive(Clone, Copy)]
struct CpuTime {
    all_ns: f64,
    stall_ns: f64,
}

/// The time of an interval.
struct IntervalTime {
    time_ns: f64,
    /// The part of it that the slowest CPU does not compute.
    stall_ns: f64,
    /// By CPU: user, kernel.
    cpus: Vec<[CpuTime; 2]>,
}

/// Steps of bisection for the time of an interval: to a part in 2^40.
const TIME_STEPS: u32 = 40;

impl Traffic {
    fn of(interval: &Interval, machine: &Machine, line_bytes: u32) -> Traffic {
        let nodes = machine.nodes.len();
        let mut traffic = Traffic {
            memories: vec![0.0; nodes],
            links: vec![vec![0.0; nodes]; nodes],
        };
        let bytes = |lines: u64| lines as f64 * f64::from(line_bytes);
        for cpu in &interval.cpus {
            let node = usize::from(cpu.node);
            for (memory, (reads, writes)) in cpu.reads.iter().zip(&cpu.writes).enumerate() {
                let fetched = bytes(reads.iter().chain(writes).sum());
                traffic.memories[memory] += fetched;
                traffic.links[memory][node] += fetched;
            }
            for (memory, &written) in cpu.write_backs.iter().enumerate() {
                traffic.memories[memory] += bytes(written);
                traffic.links[node][memory] += bytes(written);
            }
            for (holder, served) in cpu.cache_to_cache.iter().enumerate() {
                traffic.links[holder][node] += bytes(served.iter().sum());
            }
        }
        (0..nodes).for_each(|node| traffic.links[node][node] = 0.0);
        traffic
    }

    /// The time of the interval. Where load counts, accesses wait the longer the more there are in
    /// the time that they take together: the time is the one that agrees with its own waits.
    fn time(&self, interval: &Interval, machine: &Machine, constants: &Constants) -> IntervalTime {
        let least_ns = constants.load.map_or(0.0, |load| {
            let (memories, links) = self.used(&load, machine, 1.0);
            let all = memories.iter().chain(links.iter().flatten());
            all.copied().fold(0.0, f64::max)
        });
        let at = |time_ns: f64| self.cpus_in(time_ns, interval, machine, constants);
        let slowest = |cpus: &[[CpuTime; 2]]| {
            let sum = |times: &[CpuTime; 2]| {
                let [user, kernel] = times;
                (user.all_ns + kernel.all_ns, user.stall_ns + kernel.stall_ns)
            };
            let longer = |a: (f64, f64), b: (f64, f64)| if b.0 > a.0 { b } else { a };
            cpus.iter().map(sum).fold((0.0, 0.0), longer)
        };
        let mut cpus = at(least_ns);
        let (mut low, mut high) = (least_ns, slowest(&cpus).0);
        if constants.load.is_some() && high > low {
            for _ in 0..TIME_STEPS {
                let middle = f64::midpoint(low, high);
                if slowest(&at(middle)).0 > middle {
                    low = middle
                } else {
                    high = middle
                }
            }
            cpus = at(high);
        }
        let (cpu_ns, stall_ns) = slowest(&cpus);
        let time_ns = cpu_ns.max(least_ns);
        IntervalTime {
            time_ns,
            stall_ns: stall_ns + (time_ns - cpu_ns),
            cpus,
        }
    }

    /// The part of their bandwidth that memories and links use, if this traffic takes so long.
    fn used(&self, load: &Load, machine: &Machine, time_ns: f64) -> (Vec<f64>, Vec<Vec<f64>>) {
        let most = machine.nodes.iter().map(|node| node.cpus).max();
        let most = f64::from(most.unwrap_or(1));
        // Memory of a node without CPUs is as fast as another's.
        let cores = |node: usize| match machine.nodes[node].cpus {
            0 => most,
            cpus => f64::from(cpus),
        };
        let memory = |(node, bytes): (usize, &f64)| bytes / (load.memory_gb_s * cores(node));
        let memories = self.memories.iter().enumerate().map(memory);
        let links = self.links.iter().map(|to| {
            let link = to.iter().map(|bytes| bytes / (load.link_gb_s * most));
            link.map(|ns| ns / time_ns).collect()
        });
        (memories.map(|ns| ns / time_ns).collect(), links.collect())
    }

    /// The times of all CPUs, if the interval takes so long.
    fn cpus_in(
        &self,
        time_ns: f64,
        interval: &Interval,
        machine: &Machine,
        constants: &Constants,
    ) -> Vec<[CpuTime; 2]> {
        let load = constants.load.filter(|_| time_ns > 0.0);
        let used = load.map(|load| (load, self.used(&load, machine, time_ns)));
        // For a line of a node's memory, or of a cache there.
        let wait_ns = |from: usize, to: usize, of_memory: bool| {
            let alone_ns = constants.latency_ns(machine, from, to);
            let Some((load, (memories, links))) = &used else {
                return alone_ns;
            };
            let here_ns = alone_ns.min(constants.local_ns);
            let memory = if of_memory { memories[to] } else { 0.0 };
            here_ns * load.factor(memory) + (alone_ns - here_ns) * load.factor(links[to][from])
        };
        let time = |cpu: &Cpu, mode: usize| {
            let node = usize::from(cpu.node);
            let caches = cpu.l2_hits[mode] as f64 * constants.l2_ns
                + cpu.llc_hits[mode] as f64 * constants.llc_ns;
            let fetched = |counts: &[[u64; 2]], of_memory: bool| -> f64 {
                let of_node = |(to, count): (usize, &[u64; 2])| {
                    count[mode] as f64 * wait_ns(node, to, of_memory)
                };
                counts.iter().enumerate().map(of_node).sum()
            };
            let memory = fetched(&cpu.reads, true) + fetched(&cpu.writes, true);
            let waits_ns = caches + memory + fetched(&cpu.cache_to_cache, false);
            let computes_ns = cpu.instructions[mode] as f64 * constants.instruction_ns;
            let stall_ns = match constants.load {
                None => waits_ns,
                Some(load) => (waits_ns / load.overlap - computes_ns).max(0.0),
            };
            CpuTime {
                all_ns: stall_ns + computes_ns,
                stall_ns,
            }
        };
        let both = |cpu: &Cpu| [time(cpu, 0), time(cpu, 1)];
        interval.cpus.iter().map(both).collect()
    }
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
        let once = price(std::slice::from_ref(&interval), &machine(), opteron, 64);
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
        let both = price(&[interval, turned], &machine(), opteron, 64);
        assert_eq!(both.time_ns, 1494.0 + 486.0 + 6.0 + 0.5 * (10_000.0 - 60.0));
        // The second interval has half of the time. With three intervals it still has.
        assert_eq!(both.last_half_ns, both.time_ns - 1494.0);
        let three = price(&three, &machine(), opteron, 64);
        assert_eq!(three.last_half_ns, both.last_half_ns);
        assert_eq!(once.last_half_ns, 0.0);
        assert_eq!(both.ranges, [[[10, 4, 0], [0, 2, 0], [0, 0, 0]]]);
    }

    #[test]
    fn a_full_memory_takes_its_time() {
        let loaded = Constants::named("xeon2-load").expect("it is there");
        let load = loaded.load.expect("it has one");
        let lines = 1_000_000;
        // A CPU on each of two nodes, which reads so many lines of each memory, and writes some
        // back to its own.
        let time_ns = |reads: [[u64; 3]; 2], written: u64, instructions: u64| {
            let cpu = |node: u16| Cpu {
                node,
                instructions: [instructions, 0],
                reads: reads[usize::from(node)].map(|lines| [lines, 0]).to_vec(),
                writes: vec![[0, 0]; 3],
                write_backs: (0..3)
                    .map(|to| if to == node { written } else { 0 })
                    .collect(),
                ..Cpu::default()
            };
            let interval = Interval {
                cpus: vec![cpu(0), cpu(1)],
                ..Interval::default()
            };
            price(&[interval], &machine(), loaded, 64).time_ns
        };
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-3, "{a} {b}");
        let (memory_ns, link_ns) = (64.0 / load.memory_gb_s, 64.0 / load.link_gb_s);
        // Each its own: a tenth of 89 ns would be less than the memory can, so that it is the waits
        // which grow.
        let own = time_ns([[lines, 0, 0], [0, lines, 0]], 0, 0) / lines as f64;
        assert!(memory_ns / own > 0.75 && memory_ns < own, "{own}");
        near(own, 8.9 * load.factor(memory_ns / own));
        // With three lines written for each that is read, the memory is full.
        let written = time_ns([[lines, 0, 0], [0, lines, 0]], 3 * lines, 0) / lines as f64;
        near(written, 4.0 * memory_ns);
        // All on one node, or each the other's: the link is.
        near(
            time_ns([[lines, 0, 0], [lines, 0, 0]], 0, 0) / lines as f64,
            link_ns,
        );
        near(
            time_ns([[0, lines, 0], [lines, 0, 0]], 0, 0) / lines as f64,
            link_ns,
        );
        // What computes for longer does not wait.
        let busy = time_ns([[lines, 0, 0], [0, lines, 0]], 0, 100 * lines) / lines as f64;
        near(busy, 40.0);
    }

    #[test]
    fn waits_grow_with_what_is_used() {
        for load in SETS.iter().filter_map(|set| set.load) {
            assert!(load.curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
            assert_eq!(load.factor(0.0), 1.0);
            assert_eq!(load.factor(2.0), load.factor(1.0));
            let steps: Vec<f64> = (0..=100)
                .map(|at| load.factor(f64::from(at) / 100.0))
                .collect();
            assert!(steps.is_sorted());
        }
    }

    #[test]
    fn nothing_fetched_is_all_local() {
        let none = price(&[], &machine(), &SETS[0], 64);
        assert_eq!(none.local_share(), 1.0);
        assert_eq!(none.kernel_share(), 0.0);
    }
}
