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

use crate::memory_probe::{MemoryProbe, ThisMachineProbe};
use crate::page_faults::{self, PageFaults, WatchError};
use crate::page_sampling::{self, SamplerCandidate};

/// One memory node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// The kernel's number for it; there may be gaps.
    pub node: u32,
    /// The CPUs next to it, offline ones not counted; none for a node that is memory alone.
    pub cpus: Vec<u32>,
    /// Memory in bytes.
    pub bytes: u64,
    /// Of these, what nothing is kept in.
    pub free_bytes: u64,
    /// Of these, pages of files that were not used for long (`Inactive(file)`): the first that the
    /// kernel gives up, at little cost, so a node that is full of them is not full.
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
    pub nodes: Vec<u32>,
    /// Time of a read.
    pub read_ns: u32,
}

/// What tells machines apart, nodes and their distances left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The processor's name for itself.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
}

impl NodeMemory {
    /// What a new allocation can have.
    pub fn available_bytes(&self) -> u64 {
        (self.free_bytes + self.idle_cache_bytes).min(self.bytes)
    }

    /// What is in use, and not easily had.
    pub fn used_bytes(&self) -> u64 {
        self.bytes - self.available_bytes()
    }
}

/// Where a page is, or why it is not where it was asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// On this node.
    On(u32),
    /// Not touched yet, or swapped out (ENOENT).
    Absent,
    /// No memory of the process, or the page of zeros that untouched memory is read from (EFAULT).
    Unmapped,
    /// Pinned, under I/O, or off the lists of pages for a moment: to be tried again (EBUSY,
    /// EAGAIN).
    Busy,
    /// Other processes have it mapped too: forked and not written since (EACCES).
    Shared,
    /// The node has no frame for it (ENOMEM).
    NoRoom,
    /// It could not be written back to its file (EIO).
    NotWrittenBack,
    /// The kernel did not come to it: it gave up before.
    Untried,
    /// Another error number.
    Other(i32),
}

impl PageState {
    fn from_kernel(status: i32) -> PageState {
        match status {
            UNTRIED => PageState::Untried,
            node if node >= 0 => PageState::On(node as u32),
            error => match -error {
                libc::ENOENT => PageState::Absent,
                libc::EFAULT => PageState::Unmapped,
                libc::EBUSY | libc::EAGAIN => PageState::Busy,
                libc::EACCES => PageState::Shared,
                libc::ENOMEM => PageState::NoRoom,
                libc::EIO => PageState::NotWrittenBack,
                error => PageState::Other(error),
            },
        }
    }
}

/// Not a node and no error number: what statuses are set to before the call, since the kernel
/// leaves those of pages that it did not come to as they are (move_pages(2), "Notes").
const UNTRIED: i32 = i32::MIN;

/// Move pages that no other process has mapped; the libc crate lacks it (linux/mempolicy.h).
const MPOL_MF_MOVE: i32 = 1 << 1;

/// Why a whole call of `move_pages` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The process is gone (ESRCH).
    NoProcess,
    /// Another user's process, or one that is not dumpable (EPERM).
    NotPermitted,
    /// The process may not use that node: its cpuset (EACCES).
    NodeNotAllowed,
    /// There is no such node, or it has no memory (ENODEV).
    NoNode,
    /// The kernel has no memory for the call itself (ENOMEM).
    NoMemory,
    /// A container forbids the call, or the kernel lacks it (ENOSYS).
    NoCall,
    /// Another error number.
    Other(i32),
}

impl Refusal {
    fn from_errno(error: i32) -> Refusal {
        match error {
            libc::ESRCH => Refusal::NoProcess,
            libc::EPERM => Refusal::NotPermitted,
            libc::EACCES => Refusal::NodeNotAllowed,
            libc::ENODEV => Refusal::NoNode,
            libc::ENOMEM => Refusal::NoMemory,
            libc::ENOSYS => Refusal::NoCall,
            error => Refusal::Other(error),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::NoProcess => "the process is gone",
            Refusal::NotPermitted => {
                "not permitted: another user's process, or a container's filter of system calls"
            }
            Refusal::NodeNotAllowed => "the process may not use that node",
            Refusal::NoNode => "there is no such node",
            Refusal::NoMemory => "the kernel has no memory for it",
            Refusal::NoCall => "this kernel does not have it, or a container hides it",
            Refusal::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}

/// What the agent asks of the kernel.
pub trait Machine: Send + Sync {
    /// The memory nodes in the order of their numbers, with what is free now.
    fn nodes(&self) -> io::Result<Vec<NodeMemory>>;

    /// Bytes in use on each of some nodes, which is less to read: no more is asked often.
    fn used_bytes(&self, nodes: &[u32]) -> io::Result<Vec<u64>> {
        let all = self.nodes()?;
        let used = |&number: &u32| {
            let node = all.iter().find(|node| node.node == number);
            node.map_or(0, NodeMemory::used_bytes)
        };
        Ok(nodes.iter().map(used).collect())
    }

    /// Size of a page in bytes.
    fn page_bytes(&self) -> u64;

    /// Size of a huge page, where a first touch may bring in a whole one (transparent huge pages
    /// are not off).
    fn huge_page_bytes(&self) -> Option<u64>;

    /// Moves pages of another process, given by their addresses, to node `to`, or asks where they
    /// are. A page that others have mapped as well stays. `states` gets an entry a page.
    fn move_pages(
        &self,
        pid: u32,
        addresses: &[u64],
        to: Option<u32>,
        states: &mut Vec<PageState>,
    ) -> Result<(), Refusal>;

    /// Watches the page faults of what the calling thread starts from now on.
    fn faults(&self) -> Result<Box<dyn PageFaults>, WatchError>;

    /// The ways to sample who uses which page, the best first, each tried out. None where there is
    /// nothing to sample for.
    fn sampler_candidates(&self) -> Vec<SamplerCandidate> {
        Vec::new()
    }

    /// What measures the costs of its memory, if anything can.
    fn probe(&self) -> Option<Box<dyn MemoryProbe>> {
        None
    }

    /// What a measurement is kept under; nothing where it is not to be kept.
    fn identity(&self) -> Option<Identity> {
        None
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

    fn used_bytes(&self, nodes: &[u32]) -> io::Result<Vec<u64>> {
        Ok(used_bytes_in(Path::new(NODES), nodes))
    }

    fn page_bytes(&self) -> u64 {
        page_bytes()
    }

    fn huge_page_bytes(&self) -> Option<u64> {
        huge_page_bytes_in(Path::new("/sys/kernel/mm/transparent_hugepage"))
    }

    fn move_pages(
        &self,
        pid: u32,
        addresses: &[u64],
        to: Option<u32>,
        states: &mut Vec<PageState>,
    ) -> Result<(), Refusal> {
        let statuses = move_pages(pid, addresses, to).map_err(Refusal::from_errno)?;
        states.clear();
        states.extend(statuses.into_iter().map(PageState::from_kernel));
        Ok(())
    }

    fn faults(&self) -> Result<Box<dyn PageFaults>, WatchError> {
        Ok(Box::new(page_faults::PerfRings::open()?))
    }

    fn sampler_candidates(&self) -> Vec<SamplerCandidate> {
        page_sampling::sampler_candidates()
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

/// `move_pages` with the statuses that it leaves, or its error number. A positive result, the
/// number of pages that were not moved, is no error: their statuses say so.
pub(crate) fn move_pages(pid: u32, addresses: &[u64], to: Option<u32>) -> Result<Vec<i32>, i32> {
    let count = addresses.len();
    let mut statuses = vec![UNTRIED; count];
    let nodes = to.map(|node| vec![node as i32; count]);
    // SAFETY: the kernel reads `count` addresses (as numbers, of the other process) and as many
    // nodes, where there are any, and writes as many statuses; all three are as long and outlive
    // the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            i64::from(pid),
            count,
            addresses.as_ptr(),
            nodes
                .as_ref()
                .map_or(std::ptr::null(), |nodes| nodes.as_ptr()),
            statuses.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    match result {
        0.. => Ok(statuses),
        _ => match io::Error::last_os_error().raw_os_error() {
            // Kernels before 4.17 say so where no page needed to be moved.
            Some(libc::ENOENT) => Ok(statuses),
            error => Err(error.unwrap_or(libc::EIO)),
        },
    }
}

/// Size of a page in bytes.
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf takes no memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// The CPUs that are online.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    fs::read_to_string("/sys/devices/system/cpu/online").map(|list| parse_list(&list))
}

fn huge_page_bytes_in(folder: &Path) -> Option<u64> {
    let enabled = fs::read_to_string(folder.join("enabled")).ok()?;
    let bytes = fs::read_to_string(folder.join("hpage_pmd_size")).ok()?;
    match enabled.contains("[never]") {
        true => None,
        false => bytes.trim().parse().ok(),
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
fn numbers_in(folder: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads the folder of nodes; what a file does not say is 0 or empty.
fn nodes_in(folder: &Path) -> io::Result<Vec<NodeMemory>> {
    let numbers = numbers_in(folder)?;
    let node = |node: u32| {
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
fn memory(node: u32, meminfo: &str) -> NodeMemory {
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

fn used_bytes_in(folder: &Path, nodes: &[u32]) -> Vec<u64> {
    let used = |&node: &u32| {
        let meminfo = fs::read_to_string(folder.join(format!("node{node}/meminfo")));
        memory(node, &meminfo.unwrap_or_default()).used_bytes()
    };
    nodes.iter().map(used).collect()
}

/// The kernel's list format: `0-3,8,10-11`.
pub fn parse_list(list: &str) -> Vec<u32> {
    /// More CPUs than any machine has: a list that says otherwise is not believed.
    const CPUS_MAX: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<u32>()) {
            cpus.extend(first..=last.min(CPUS_MAX));
        }
    }
    cpus
}

/// A line `NAME  123 kB` somewhere in `text`, in bytes.
pub fn kib_field(text: &str, name: &str) -> u64 {
    let mut words = text
        .split_whitespace()
        .skip_while(|&word| word != name)
        .skip(1);
    let kib = words.next().and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list(""), Vec::<u32>::new());
        assert_eq!(parse_list("x,1-y,7"), [7]);
        assert_eq!(parse_list("3-1"), Vec::<u32>::new());
    }

    #[test]
    fn nodes_with_gaps_and_without_cpus() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (node, cpus, kib) in [(2, "4-5,1", 2048), (0, "", 1024)] {
            let node_folder = folder.path().join(format!("node{node}"));
            fs::create_dir(&node_folder).expect("made");
            fs::write(node_folder.join("cpulist"), format!("{cpus}\n")).expect("written");
            let meminfo = format!(
                "Node {node} MemTotal:  {kib} kB\nNode {node} MemFree: 512 kB\nNode {node} Inactive(file): 256 kB\n"
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
                node: 0,
                cpus: vec![],
                bytes: 1 << 20,
                free_bytes: 512 << 10,
                idle_cache_bytes: 256 << 10,
                distances: vec![10, 21],
                nearest: Some(Nearest {
                    nodes: vec![2],
                    read_ns: 130
                }),
            }
        );
        assert_eq!(nodes[1].nearest, None);
        assert_eq!(
            (nodes[1].node, nodes[1].cpus.as_slice()),
            (2, &[4, 5, 1][..])
        );
        assert_eq!(nodes[0].available_bytes(), 768 << 10);
        let used: Vec<u64> = nodes.iter().map(NodeMemory::used_bytes).collect();
        let numbers: Vec<u32> = nodes.iter().map(|node| node.node).collect();
        assert_eq!(used_bytes_in(folder.path(), &numbers), used);
        assert_eq!(used_bytes_in(folder.path(), &[77]), [0], "no such node");
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
            (3, PageState::On(3)),
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
            (libc::ESRCH, Refusal::NoProcess),
            (libc::EPERM, Refusal::NotPermitted),
            (libc::EACCES, Refusal::NodeNotAllowed),
            (libc::ENODEV, Refusal::NoNode),
            (libc::ENOMEM, Refusal::NoMemory),
            (libc::ENOSYS, Refusal::NoCall),
            (libc::E2BIG, Refusal::Other(libc::E2BIG)),
        ] {
            assert_eq!(Refusal::from_errno(error), refusal);
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
        let addresses: Vec<u64> = (0..4)
            .map(|index| (base as usize + index * page) as u64)
            .collect();
        let mut states = Vec::new();
        let asked = ThisMachine.move_pages(std::process::id(), &addresses, None, &mut states);
        match asked {
            Ok(()) => {
                assert!(matches!(states[0], PageState::On(_)), "{states:?}");
                assert_eq!(states[1..], [PageState::Absent; 3]);
            }
            // A container's filter of system calls; a kernel without NUMA.
            Err(refusal) => assert!(
                matches!(refusal, Refusal::NotPermitted | Refusal::NoCall),
                "{refusal:?}"
            ),
        }
        if let (Ok(()), Some(PageState::On(node))) = (asked, states.first().copied()) {
            let moved = ThisMachine.move_pages(
                std::process::id(),
                &addresses[..2],
                Some(node),
                &mut states,
            );
            assert_eq!((moved, states[0]), (Ok(()), PageState::On(node)));
            let nowhere =
                ThisMachine.move_pages(std::process::id(), &addresses, Some(1023), &mut states);
            assert_eq!(nowhere, Err(Refusal::NoNode));
        }
        assert_eq!(
            ThisMachine.move_pages(0x3fff_fff0, &addresses, None, &mut states),
            Err(match asked {
                Ok(()) => Refusal::NoProcess,
                Err(refusal) => refusal,
            })
        );
        // SAFETY: this test's own mapping, which nothing refers to any more.
        unsafe { crate::syscalls::unmap(base, 4 * page) };
    }
}
