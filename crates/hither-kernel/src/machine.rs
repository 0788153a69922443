//! The machine as the agent that places memory pages sees it: memory nodes, where pages are, moving
//! them, watching page faults. One trait, so that every answer of the kernel can be given by a
//! test.
//!
//! Nobody can set another process's memory policy, but whoever may read its memory may move its
//! pages: `move_pages` asks for `PTRACE_MODE_READ` alone, which a process of the same user has
//! unless the other one is not dumpable (setuid programs). So the agent moves, and programs bind.

use std::fs;
use std::io;
use std::path::Path;

use hither_ids::{Address, KernelNode, Pid};

use crate::memory_probe::{MemoryProbe, ThisMachineProbe};
use crate::page_bytes;
use crate::page_faults::{self, PageFaults, WatchError};
use crate::page_map;
use crate::page_moves::move_pages;
use crate::samplers::{self, SamplerCandidate};
use crate::writable_memory::{self, WritableRange};

pub use crate::page_moves::{MoveError, PageState};
pub use crate::sysfs::{kib_field, parse_list};

/// One memory node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// The kernel's number for it; there may be gaps.
    pub node: KernelNode,
    /// The online CPUs next to it; none for a node with memory only.
    pub cpus: Vec<u32>,
    /// Memory in bytes.
    pub bytes: u64,
    /// Free memory in bytes.
    pub free_bytes: u64,
    /// Memory with pages of files that were not used for long (`Inactive(file)`), in bytes: the
    /// kernel reclaims them first, at little cost, so a node that is full of them is not full.
    pub idle_cache_bytes: u64,
    /// The firmware's distances to all nodes, in the order of the nodes' numbers; 10 is local.
    pub distances: Vec<u32>,
    /// What the firmware's table of latencies (HMAT) says, if it has one.
    pub nearest: Option<Nearest>,
}

/// Who is next to a node's memory, and how long it takes them to read it (`access0` in sysfs).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nearest {
    /// The nodes of the CPUs, by the kernel's numbers.
    pub nodes: Vec<KernelNode>,
    /// Time of a read.
    pub read_ns: u32,
}

/// What distinguishes machines, besides their nodes and distances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The processor's name for itself.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
}

impl NodeMemory {
    /// How much a new allocation can get.
    pub fn available_bytes(&self) -> u64 {
        (self.free_bytes + self.idle_cache_bytes).min(self.bytes)
    }

    /// How much is in use and not easily reclaimed.
    pub fn used_bytes(&self) -> u64 {
        self.bytes - self.available_bytes()
    }
}

/// What the agent asks of the kernel.
pub trait Machine: Send + Sync {
    /// The memory nodes in the order of their numbers, with what is free now.
    fn nodes(&self) -> io::Result<Vec<NodeMemory>>;

    /// Bytes in use on some nodes: less to read, so it can be called often.
    fn used_bytes(&self, nodes: &[KernelNode]) -> io::Result<Vec<u64>> {
        let all = self.nodes()?;
        let used = |&number: &KernelNode| {
            let node = all.iter().find(|node| node.node == number);
            node.map_or(0, NodeMemory::used_bytes)
        };
        Ok(nodes.iter().map(used).collect())
    }

    /// Size of a page in bytes.
    fn page_bytes(&self) -> u64;

    /// Size of a huge page, if a first touch may bring in a whole one (transparent huge pages are
    /// not off).
    fn huge_page_bytes(&self) -> Option<u64>;

    /// Moves pages of another process, given by their addresses, to node `to`, or asks where they
    /// are. A page that others have mapped as well stays. `states` gets an entry a page.
    fn move_pages(
        &self,
        pid: Pid,
        addresses: &[Address],
        to: Option<KernelNode>,
        states: &mut Vec<PageState>,
    ) -> Result<(), MoveError>;

    /// Whether each of these pages of a process is mapped as a part of a huge page; no where nobody
    /// can tell.
    fn are_huge(&self, pid: Pid, addresses: &[Address]) -> Vec<bool> {
        let _ = pid;
        vec![false; addresses.len()]
    }

    /// The memory that a process writes to ([`writable_memory`]).
    ///
    /// [`writable_memory`]: crate::writable_memory::writable_memory
    fn writable_memory(&self, pid: Pid) -> Vec<WritableRange> {
        let _ = pid;
        Vec::new()
    }

    /// Whether a process asks for certain nodes itself, for all of its memory.
    fn asks_for_nodes(&self, pid: Pid) -> bool {
        let _ = pid;
        false
    }

    /// Watches the page faults of what the calling thread starts from now on.
    fn faults(&self) -> Result<Box<dyn PageFaults>, WatchError>;

    /// Pages that were moved on this machine since it started, as far as the kernel counts that.
    fn page_moves(&self) -> Option<PageMoves> {
        None
    }

    /// The ways to sample page use, the best first, each tried out. None where there is nothing to
    /// sample for.
    fn sampler_candidates(&self) -> Vec<SamplerCandidate> {
        Vec::new()
    }

    /// What measures the costs of its memory, if anything can.
    fn probe(&self) -> Option<Box<dyn MemoryProbe>> {
        None
    }

    /// The key under which a measurement is kept; none if it should not be kept.
    fn identity(&self) -> Option<Identity> {
        None
    }
}

/// Pages that the kernel has moved from node to node or within one, for whomever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageMoves {
    /// All of them (`pgmigrate_success`): calls of programs, NUMA balancing, compaction.
    pub all: u64,
    /// Those by NUMA balancing (`numa_pages_migrated`).
    pub balancing: u64,
}

impl PageMoves {
    /// Parses `/proc/vmstat`. `None` where the kernel does not move pages.
    fn in_vmstat(text: &str) -> Option<PageMoves> {
        let value = |name: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value?.parse().ok()
        };
        Some(PageMoves {
            all: value("pgmigrate_success")?,
            // Of a kernel without NUMA balancing.
            balancing: value("numa_pages_migrated").unwrap_or(0),
        })
    }

    /// Those since an earlier time.
    #[must_use]
    pub fn since(self, earlier: PageMoves) -> PageMoves {
        PageMoves {
            all: self.all.saturating_sub(earlier.all),
            balancing: self.balancing.saturating_sub(earlier.balancing),
        }
    }
}

const NODES: &str = "/sys/devices/system/node";

/// The machine that we run on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn nodes(&self) -> io::Result<Vec<NodeMemory>> {
        nodes_in(Path::new(NODES))
    }

    fn used_bytes(&self, nodes: &[KernelNode]) -> io::Result<Vec<u64>> {
        Ok(used_bytes_in(Path::new(NODES), nodes))
    }

    fn are_huge(&self, pid: Pid, addresses: &[Address]) -> Vec<bool> {
        page_map::are_huge(pid, addresses)
    }

    fn page_moves(&self) -> Option<PageMoves> {
        PageMoves::in_vmstat(&fs::read_to_string("/proc/vmstat").ok()?)
    }

    fn page_bytes(&self) -> u64 {
        page_bytes()
    }

    fn huge_page_bytes(&self) -> Option<u64> {
        huge_page_bytes_in(Path::new("/sys/kernel/mm/transparent_hugepage"))
    }

    fn move_pages(
        &self,
        pid: Pid,
        addresses: &[Address],
        to: Option<KernelNode>,
        states: &mut Vec<PageState>,
    ) -> Result<(), MoveError> {
        let statuses = move_pages(pid, addresses, to).map_err(MoveError::from_errno)?;
        states.clear();
        states.extend(statuses.into_iter().map(PageState::from_kernel));
        Ok(())
    }

    fn writable_memory(&self, pid: Pid) -> Vec<WritableRange> {
        writable_memory::writable_memory(pid)
    }

    fn asks_for_nodes(&self, pid: Pid) -> bool {
        writable_memory::asks_for_nodes(pid)
    }

    fn faults(&self) -> Result<Box<dyn PageFaults>, WatchError> {
        Ok(Box::new(page_faults::PerfRings::open()?))
    }

    fn sampler_candidates(&self) -> Vec<SamplerCandidate> {
        samplers::candidates()
    }

    fn probe(&self) -> Option<Box<dyn MemoryProbe>> {
        Some(Box::new(ThisMachineProbe::default()))
    }

    fn identity(&self) -> Option<Identity> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
        let cpus = fs::read_to_string("/proc/cpuinfo").ok()?;
        let named = |line: &str| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, name)| name.trim().to_owned())
        };
        Some(Identity {
            cpu: cpus.lines().find_map(named).unwrap_or_default(),
            kernel: kernel.trim().to_owned(),
        })
    }
}

fn huge_page_bytes_in(folder: &Path) -> Option<u64> {
    let enabled = fs::read_to_string(folder.join("enabled")).ok()?;
    let bytes = fs::read_to_string(folder.join("hpage_pmd_size")).ok()?;
    if enabled.contains("[never]") {
        None
    } else {
        bytes.trim().parse().ok()
    }
}

/// A link to each node that is next to the memory, and what they have in common.
fn nearest_in(folder: &Path) -> Option<Nearest> {
    let read = fs::read_to_string(folder.join("read_latency")).ok()?;
    let read_ns = read.trim().parse().ok().filter(|&read_ns| read_ns > 0)?;
    Some(Nearest {
        nodes: numbers_in(folder).ok()?,
        read_ns,
    })
}

/// The numbers of the nodes that a folder has entries of, in order.
fn numbers_in(folder: &Path) -> io::Result<Vec<KernelNode>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        numbers.extend(
            number
                .and_then(|number| number.parse().ok())
                .map(KernelNode),
        );
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads the folder of nodes; what a file does not say is 0 or empty.
fn nodes_in(folder: &Path) -> io::Result<Vec<NodeMemory>> {
    let numbers = numbers_in(folder)?;
    let node = |node: KernelNode| {
        let folder = folder.join(format!("node{node}"));
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        NodeMemory {
            cpus: parse_list(&text("cpulist")),
            distances: text("distance")
                .split_whitespace()
                .filter_map(|distance| distance.parse().ok())
                .collect(),
            nearest: nearest_in(&folder.join("access0/initiators")),
            ..memory(node, &text("meminfo"))
        }
    };
    Ok(numbers.into_iter().map(node).collect())
}

/// What a node's `meminfo` says of it.
fn memory(node: KernelNode, meminfo: &str) -> NodeMemory {
    NodeMemory {
        node,
        bytes: kib_field(meminfo, "MemTotal:"),
        free_bytes: kib_field(meminfo, "MemFree:"),
        idle_cache_bytes: kib_field(meminfo, "Inactive(file):"),
        cpus: Vec::new(),
        distances: Vec::new(),
        nearest: None,
    }
}

fn used_bytes_in(folder: &Path, nodes: &[KernelNode]) -> Vec<u64> {
    let used = |&node: &KernelNode| {
        let meminfo = fs::read_to_string(folder.join(format!("node{node}/meminfo")));
        memory(node, &meminfo.unwrap_or_default()).used_bytes()
    };
    nodes.iter().map(used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_moves::UNTRIED;

    #[test]
    fn moved_pages_are_read() {
        let text = "nr_free_pages 7\npgmigrate_success 12\npgmigrate_fail 1\n";
        let of = |all, balancing| Some(PageMoves { all, balancing });
        assert_eq!(PageMoves::in_vmstat(text), of(12, 0));
        let balanced = format!("numa_pages_migrated 5\n{text}");
        assert_eq!(PageMoves::in_vmstat(&balanced), of(12, 5));
        assert_eq!(PageMoves::in_vmstat("nr_free_pages 7\n"), None);
        let since = PageMoves::in_vmstat(&balanced).zip(of(10, 7));
        assert_eq!(since.map(|(now, then)| now.since(then)), of(2, 0));
    }

    #[test]
    fn nodes_with_gaps_and_without_cpus() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (node, cpus, kib) in [(2, "4-5,1", 2048), (0, "", 1024)] {
            let node_folder = folder.path().join(format!("node{node}"));
            fs::create_dir(&node_folder).expect("made");
            fs::write(node_folder.join("cpulist"), format!("{cpus}\n")).expect("written");
            let meminfo = format!(
                "Node {node} MemTotal:  {kib} kB\nNode {node} MemFree: 512 kB\n\
                 Node {node} Inactive(file): 256 kB\n"
            );
            fs::write(node_folder.join("meminfo"), meminfo).expect("written");
            fs::write(node_folder.join("distance"), "10 21\n").expect("written");
        }
        fs::write(folder.path().join("online"), "0,2\n").expect("written");
        let initiators = folder.path().join("node0/access0/initiators");
        fs::create_dir_all(initiators.join("node2")).expect("made");
        fs::write(initiators.join("read_latency"), "130\n").expect("written");
        let nodes = nodes_in(folder.path()).expect("read");
        assert_eq!(
            nodes[0],
            NodeMemory {
                node: KernelNode(0),
                cpus: vec![],
                bytes: 1 << 20,
                free_bytes: 512 << 10,
                idle_cache_bytes: 256 << 10,
                distances: vec![10, 21],
                nearest: Some(Nearest {
                    nodes: vec![KernelNode(2)],
                    read_ns: 130
                }),
            }
        );
        assert_eq!(nodes[1].nearest, None);
        assert_eq!(
            (nodes[1].node, nodes[1].cpus.as_slice()),
            (KernelNode(2), &[4, 5, 1][..])
        );
        assert_eq!(nodes[0].available_bytes(), 768 << 10);
        let used: Vec<u64> = nodes.iter().map(NodeMemory::used_bytes).collect();
        let numbers: Vec<KernelNode> = nodes.iter().map(|node| node.node).collect();
        assert_eq!(used_bytes_in(folder.path(), &numbers), used);
        assert_eq!(
            used_bytes_in(folder.path(), &[KernelNode(77)]),
            [0],
            "no such node"
        );
        assert!(nodes_in(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn huge_pages_are_on_unless_never() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let with = |enabled: &str| {
            fs::write(folder.path().join("enabled"), enabled).expect("written");
            huge_page_bytes_in(folder.path())
        };
        assert_eq!(with("[always] madvise never\n"), None, "no size");
        fs::write(folder.path().join("hpage_pmd_size"), "2097152\n").expect("written");
        assert_eq!(with("[always] madvise never\n"), Some(2 << 20));
        assert_eq!(with("always [madvise] never\n"), Some(2 << 20));
        assert_eq!(with("always madvise [never]\n"), None);
    }

    #[test]
    fn every_error_number_has_its_name() {
        for (status, state) in [
            (3, PageState::On(KernelNode(3))),
            (-libc::ENOENT, PageState::Absent),
            (-libc::EFAULT, PageState::Unmapped),
            (-libc::EBUSY, PageState::Busy),
            (-libc::EAGAIN, PageState::Busy),
            (-libc::EACCES, PageState::Shared),
            (-libc::ENOMEM, PageState::NoRoom),
            (-libc::EIO, PageState::NotWrittenBack),
            (-libc::EINVAL, PageState::Other(libc::EINVAL)),
            (UNTRIED, PageState::Untried),
        ] {
            assert_eq!(PageState::from_kernel(status), state);
        }
        for (error, refusal) in [
            (libc::ESRCH, MoveError::NoProcess),
            (libc::EPERM, MoveError::NotPermitted),
            (libc::EACCES, MoveError::NodeNotAllowed),
            (libc::ENODEV, MoveError::NoNode),
            (libc::ENOMEM, MoveError::NoMemory),
            (libc::ENOSYS, MoveError::NoCall),
            (libc::E2BIG, MoveError::Other(libc::E2BIG)),
        ] {
            assert_eq!(MoveError::from_errno(error), refusal);
        }
    }

    /// Pages of this process: touched ones are somewhere, others are absent, and no memory is said
    /// to be none.
    #[test]
    fn the_kernel_says_where_pages_are() {
        let page = page_bytes() as usize;
        let base = crate::syscalls::map(4 * page, None).expect("mapped");
        // SAFETY: the first page of a fresh private mapping of this test's.
        unsafe { base.write_volatile(1) };
        let addresses: Vec<Address> = (0..4)
            .map(|index| Address((base as usize + index * page) as u64))
            .collect();
        let mut states = Vec::new();
        let asked = ThisMachine.move_pages(Pid::own(), &addresses, None, &mut states);
        match asked {
            Ok(()) => {
                assert!(matches!(states[0], PageState::On(_)), "{states:?}");
                assert_eq!(states[1..], [PageState::Absent; 3]);
            }
            // A container's filter of system calls; a kernel without NUMA.
            Err(refusal) => assert!(
                matches!(refusal, MoveError::NotPermitted | MoveError::NoCall),
                "{refusal:?}"
            ),
        }
        if let (Ok(()), Some(PageState::On(node))) = (asked, states.first().copied()) {
            let moved =
                ThisMachine.move_pages(Pid::own(), &addresses[..2], Some(node), &mut states);
            assert_eq!((moved, states[0]), (Ok(()), PageState::On(node)));
            let nowhere =
                ThisMachine.move_pages(Pid::own(), &addresses, Some(KernelNode(1023)), &mut states);
            assert_eq!(nowhere, Err(MoveError::NoNode));
        }
        assert_eq!(
            ThisMachine.move_pages(Pid(0x3fff_fff0), &addresses, None, &mut states),
            Err(match asked {
                Ok(()) => MoveError::NoProcess,
                Err(refusal) => refusal,
            })
        );
        // SAFETY: this test's own mapping, which nothing refers to any more.
        unsafe { crate::syscalls::unmap(base, 4 * page) };
    }
}
