//! QEMU's command line for a machine, and the addresses of its nodes' memory.

use std::fmt::Write as _;
use std::ops::Range;

use crate::machine::Machine;

/// The kernel's command line. Address randomisation, mitigations and watchdogs are off, because
/// they change counts between runs or have no part in what is measured. The scenario decides about
/// NUMA balancing. `tsc=reliable`: under TCG all CPUs read one counter, and the watchdog that
/// compares it with the others would see the time between snapshot and resume as an error.
pub(super) const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet nokaslr mitigations=off \
    numa_balancing=disable transparent_hugepage=madvise panic=-1 tsc=reliable nowatchdog \
    rcupdate.rcu_cpu_stall_suppress=1 audit=0 apparmor=0";

/// Latency of a node's own memory in the HMAT; the distance scales it (a distance of 10 is local,
/// ACPI 6.5, 5.2.17).
const LOCAL_LATENCY_NS: u64 = 100;

/// Bandwidth of a node's own memory in the HMAT, which the distance divides.
const LOCAL_BANDWIDTH_MIB: u64 = 20 << 10;

/// From this memory size on, a `pc` leaves the addresses from 3 to 4 GiB to devices (QEMU,
/// `pc_init1`). Smaller memory is contiguous.
const PCI_HOLE_MEMORY_MIN_BYTES: u64 = 0xe000_0000;
const PCI_HOLE: Range<u64> = 0xc000_0000..1 << 32;

impl Machine {
    /// The node of each CPU.
    fn cpu_nodes(&self) -> impl Iterator<Item = usize> {
        self.nodes
            .iter()
            .enumerate()
            .flat_map(|(i, node)| std::iter::repeat_n(i, node.cpus.into()))
    }

    /// The plugin's `cpus=` argument.
    pub(super) fn cpus_argument(&self) -> String {
        let nodes: Vec<_> = self.cpu_nodes().map(|node| node.to_string()).collect();
        format!("cpus={}", nodes.join(":"))
    }

    /// The options that make up the machine.
    pub(super) fn options(&self, qemu_major: u32) -> Vec<String> {
        let mut options = Vec::new();
        let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
        add(
            "-machine",
            format!("pc,hmat={}", if self.hmat { "on" } else { "off" }),
        );
        // TCG executes string instructions byte by byte. A kernel that believes they are fast
        // (erms, fsrm) copies pages with them, with eight times the accesses of its other loop.
        // QEMU 7.2 loses the flags in CMPXCHG16B, which the kernel's allocator uses (it panics on
        // boot; 8 is correct).
        let cx16 = if qemu_major < 8 { ",cx16=off" } else { "" };
        add(
            "-cpu",
            format!("max,erms=off,fsrm=off,la57=off,smap=off,pku=off{cx16}"),
        );
        if self.icount {
            add("-accel", "tcg,thread=single".into());
            add("-icount", "shift=0,sleep=off".into());
        } else {
            add("-accel", "tcg,thread=multi".into());
        }
        let total_mib: u64 = self
            .nodes
            .iter()
            .map(|node| u64::from(node.memory_mib))
            .sum();
        add("-m", format!("{total_mib}M"));

        // If all nodes with CPUs have equally many, a node is a socket, so that Linux sees the
        // model's caches. Otherwise a CPU is a socket.
        let mut sizes: Vec<u16> = self
            .nodes
            .iter()
            .map(|node| node.cpus)
            .filter(|cpus| *cpus > 0)
            .collect();
        let sockets = sizes.len();
        sizes.dedup();
        let cores = if let [cores] = sizes[..] {
            u32::from(cores)
        } else {
            1
        };
        let sockets = if cores == 1 {
            self.cpus() as usize
        } else {
            sockets
        };
        add(
            "-smp",
            format!("{},sockets={sockets},cores={cores},threads=1", self.cpus()),
        );

        self.add_nodes(cores, &mut add);
        self.add_distances(&mut add);
        if self.hmat {
            self.add_hmat(&mut add);
        }
        options
    }

    /// Memory and CPUs of each node; a socket has so many cores.
    fn add_nodes(&self, cores: u32, add: &mut impl FnMut(&str, String)) {
        for (i, node) in self.nodes.iter().enumerate() {
            let backend = format!("memory-backend-ram,id=memory{i},size={}M", node.memory_mib);
            add("-object", backend);
            let mut numa = format!("node,nodeid={i},memdev=memory{i}");
            if self.hmat {
                write!(numa, ",initiator={}", self.initiator(i)).expect("writing to a string");
            }
            add("-numa", numa);
        }
        let mut first = 0;
        for (i, node) in self.nodes.iter().enumerate() {
            for socket in first..first + u32::from(node.cpus) / cores {
                add("-numa", format!("cpu,node-id={i},socket-id={socket}"));
            }
            first += u32::from(node.cpus) / cores;
        }
    }

    /// The distance of each node from each other.
    fn add_distances(&self, add: &mut impl FnMut(&str, String)) {
        for from in 0..self.nodes.len() {
            for to in 0..self.nodes.len() {
                let distance = self.distance(from, to);
                add("-numa", format!("dist,src={from},dst={to},val={distance}"));
            }
        }
    }

    /// Latency and bandwidth from each node with CPUs to each node's memory.
    fn add_hmat(&self, add: &mut impl FnMut(&str, String)) {
        let nodes = self.nodes.iter().enumerate();
        for (from, _) in nodes.filter(|(_, node)| node.cpus > 0) {
            for to in 0..self.nodes.len() {
                let distance = u64::from(self.distance(from, to));
                let latency_ns = LOCAL_LATENCY_NS * distance / 10;
                let bandwidth_mib = LOCAL_BANDWIDTH_MIB * 10 / distance;
                let entry = format!("hmat-lb,initiator={from},target={to},hierarchy=memory");
                let latency = format!("{entry},data-type=access-latency,latency={latency_ns}");
                add("-numa", latency);
                let bandwidth =
                    format!("{entry},data-type=access-bandwidth,bandwidth={bandwidth_mib}M");
                add("-numa", bandwidth);
            }
        }
    }

    /// The node whose CPUs are nearest to a node's memory.
    fn initiator(&self, node: usize) -> usize {
        (0..self.nodes.len())
            .filter(|from| self.nodes[*from].cpus > 0)
            .min_by_key(|from| self.distance(*from, node))
            .expect("node 0 has CPUs")
    }

    /// The address ranges of each node's memory as the plugin sees them. From QEMU 8 on these are
    /// guest-physical: the nodes one after the other, with the hole below 4 GiB. QEMU 7.2 returns
    /// the block's offset in its list of blocks plus its offset in the container of all nodes
    /// (`qemu_plugin_hwaddr_phys_addr`), which are the same number, and has no hole.
    pub(super) fn memory(&self, qemu_major: u32) -> Vec<(Range<u64>, usize)> {
        let total: u64 = self
            .nodes
            .iter()
            .map(|node| u64::from(node.memory_mib) << 20)
            .sum();
        let (mut ranges, mut start) = (Vec::new(), 0);
        for (i, node) in self.nodes.iter().enumerate() {
            let end = start + (u64::from(node.memory_mib) << 20);
            if qemu_major < 8 {
                ranges.push((2 * start..start + end, i));
            } else if total < PCI_HOLE_MEMORY_MIN_BYTES {
                ranges.push((start..end, i));
            } else {
                let moved = PCI_HOLE.end - PCI_HOLE.start;
                ranges.push((start..end.min(PCI_HOLE.start), i));
                ranges.push((start.max(PCI_HOLE.start) + moved..end + moved, i));
            }
            start = end;
        }
        ranges.retain(|(range, _)| !range.is_empty());
        ranges
    }

    /// The plugin's `memory=` argument.
    pub(super) fn memory_argument(&self, qemu_major: u32) -> String {
        let ranges = self.memory(qemu_major);
        let ranges: Vec<_> = ranges
            .iter()
            .map(|(range, node)| format!("{:x}-{:x}@{node}", range.start, range.end))
            .collect();
        format!("memory={}", ranges.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Node;

    fn machine(nodes: &[(u16, u32)]) -> Machine {
        let nodes = nodes
            .iter()
            .map(|&(cpus, memory_mib)| Node { cpus, memory_mib })
            .collect();
        Machine {
            nodes,
            distances: Vec::new(),
            hmat: false,
            icount: false,
        }
    }

    fn numa(machine: &Machine) -> Vec<String> {
        machine
            .options(10)
            .windows(2)
            .filter(|pair| pair[0] == "-numa")
            .map(|pair| pair[1].clone())
            .collect()
    }

    #[test]
    fn two_nodes_of_two_cpus() {
        let machine = machine(&[(2, 512), (2, 512)]);
        let options = machine.options(10).join(" ");
        assert!(
            options.contains("-m 1024M -smp 4,sockets=2,cores=2,threads=1 "),
            "{options}"
        );
        assert_eq!(
            numa(&machine),
            [
                "node,nodeid=0,memdev=memory0",
                "node,nodeid=1,memdev=memory1",
                "cpu,node-id=0,socket-id=0",
                "cpu,node-id=1,socket-id=1",
                "dist,src=0,dst=0,val=10",
                "dist,src=0,dst=1,val=20",
                "dist,src=1,dst=0,val=20",
                "dist,src=1,dst=1,val=10",
            ]
        );
        assert_eq!(machine.cpus_argument(), "cpus=0:0:1:1");
    }

    #[test]
    fn memory_without_cpus_has_the_nearest_node_as_initiator() {
        let mut machine = machine(&[(2, 512), (1, 512), (0, 1024)]);
        machine.hmat = true;
        machine.distances = vec![vec![10, 20, 40], vec![20, 10, 30], vec![40, 30, 10]];
        machine.check().unwrap();
        let numa = numa(&machine);
        assert_eq!(numa[2], "node,nodeid=2,memdev=memory2,initiator=1");
        assert_eq!(
            numa[3..6],
            [
                "cpu,node-id=0,socket-id=0",
                "cpu,node-id=0,socket-id=1",
                "cpu,node-id=1,socket-id=2"
            ]
        );
        let latency =
            "hmat-lb,initiator=1,target=2,hierarchy=memory,data-type=access-latency,latency=300";
        assert!(numa.iter().any(|option| option == latency), "{numa:?}");
    }

    #[test]
    fn memory_goes_around_the_hole_from_3_5_gib_on() {
        let small = machine(&[(1, 1024), (1, 2048)]);
        assert_eq!(
            small.memory_argument(10),
            "memory=0-40000000@0:40000000-c0000000@1"
        );
        let large = machine(&[(1, 2048), (1, 2048), (1, 1024)]);
        assert_eq!(
            large.memory_argument(10),
            "memory=0-80000000@0:80000000-c0000000@1:100000000-140000000@1:140000000-180000000@2"
        );
        assert_eq!(
            large.memory_argument(7),
            "memory=0-80000000@0:100000000-180000000@1:200000000-240000000@2"
        );
    }
}
