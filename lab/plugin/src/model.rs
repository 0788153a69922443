//! The modelled machine: L1 and L2 per CPU, a last-level cache per node, and a directory that keeps
//! them coherent line by line.
//!
//! # Rules
//! Every level is set-associative, LRU, write-back, write-allocate and inclusive: L1 within L2
//! within the node's LLC, so a line that a lower level evicts leaves the levels above. A hit
//! reorders only the level it hits. Coherence is MSI, whose counts are MESI's, since a store to a
//! line that nobody else holds waits for nobody. An access is served by
//! - L1 or L2, where they hold the line;
//! - the node (`llc_hits`): its LLC, another of its CPUs' caches, or, for a store to a line that
//!   the CPU has, the invalidation of the copies of other CPUs of the node;
//! - a cache of another node (`cache_to_cache`): one that has the line modified, or, for a store to
//!   a line that the node has, the lowest numbered other node that must give up its copy (a round
//!   trip as well, priced like one);
//! - memory (`reads`, `writes`): all else. Clean copies of other nodes do not answer, as in
//!   directory protocols (Laudon and Lenoski, The SGI Origin, ISCA 1997, section 2.3: memory
//!   replies unless the line is dirty elsewhere).
//!
//! A modified line read by another node is written to memory and both keep it clean; read by the
//! same node, the LLC becomes its owner (memory, where there is no LLC). A modified line stored to
//! by another CPU moves without a write-back.
//!
//! # Concurrency
//! vCPUs run in parallel. Most accesses hit L1, so that lookup takes no lock: tags are atomics,
//! each one word that carries the line and whether it is modified. Tags are written under the mutex
//! alone, by the owner (fill) or by others (invalidate, clean), and everything else of the model
//! lives inside the mutex. An owner that reads a tag just before another CPU takes the line away
//! has made its access before that CPU's: a legal order, since no other state depends on a hit.
//! Relaxed ordering suffices: a tag guards no other data, and the mutex orders its writers. Recency
//! and the counters of hits are written by the owner alone. (Move-to-front within the tags was
//! turned down: the owner could write back a tag that another CPU had cleared in between, and hold
//! for ever a line that the directory gave away.)

mod cache;
mod counts;
mod directory;
mod l1;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

pub use counts::{CpuCounts, RangeCounts};

use cache::Cache;
use directory::{Directory, Entry, Owner};
use l1::L1;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size and associativity of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of data.
    pub bytes: u64,
    /// Ways of each set.
    pub ways: usize,
}

/// Guest-physical memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The node.
    pub node: usize,
}

/// What is modelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The node of each vCPU.
    pub cpus: Vec<usize>,
    /// Memory, by start, without overlaps.
    pub memory: Vec<MemoryRange>,
    /// Bytes of a cache line, a power of two.
    pub line_bytes: u64,
    /// First level of each CPU: at most 16 ways, a power of two of sets.
    pub l1: Geometry,
    /// Second level of each CPU, if there is one.
    pub l2: Option<Geometry>,
    /// Last level of each node, if there is one.
    pub llc: Option<Geometry>,
}

impl Machine {
    /// The number of nodes: one more than the highest named.
    pub fn nodes(&self) -> usize {
        let nodes = self
            .cpus
            .iter()
            .copied()
            .chain(self.memory.iter().map(|range| range.node));
        nodes.max().map_or(0, |node| node + 1)
    }
}

/// The privilege of the instruction that accesses; the index of each pair of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// User code.
    User = 0,
    /// The kernel.
    Kernel = 1,
}

/// One access to one line.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The vCPU, below the number of CPUs.
    pub cpu: usize,
    /// Physical address of any byte of the line.
    pub physical: u64,
    /// Virtual address, for the address ranges.
    pub linear: u64,
    /// Whether it stores.
    pub store: bool,
    /// Who accesses.
    pub mode: Mode,
}

/// Who served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    L1,
    L2,
    Node,
    CacheOf(usize),
    MemoryOf(usize),
}

/// The machine and its counts.
#[derive(Debug)]
pub struct Model {
    line_shift: u32,
    l1: Vec<L1>,
    shared: Mutex<Shared>,
}

/// All that the mutex guards.
#[derive(Debug)]
struct Shared {
    node_of: Vec<usize>,
    /// The CPUs of each node, a bit each.
    cpus_of: Vec<u64>,
    l2: Vec<Cache>,
    llc: Vec<Cache>,
    directory: Directory,
    counts: Vec<CpuCounts>,
    ranges: Vec<RangeCounts>,
}

impl Model {
    /// A machine with cold caches.
    ///
    /// # Panics
    /// Where the machine breaks the limits that [`crate::options::Options::parse`] checks.
    pub fn new(machine: &Machine) -> Self {
        let nodes = machine.nodes();
        assert!(machine.cpus.len() <= 64);
        assert!(nodes <= 32);
        let mut cpus_of = vec![0; nodes];
        for (cpu, &node) in machine.cpus.iter().enumerate() {
            cpus_of[node] |= 1 << cpu;
        }
        let caches = |level: Option<Geometry>, count: usize| {
            level.map_or(Vec::new(), |level| {
                vec![Cache::new(level, machine.line_bytes); count]
            })
        };
        Self {
            line_shift: machine.line_bytes.trailing_zeros(),
            l1: machine
                .cpus
                .iter()
                .map(|_| L1::new(machine.l1, machine.line_bytes))
                .collect(),
            shared: Mutex::new(Shared {
                l2: caches(machine.l2, machine.cpus.len()),
                llc: caches(machine.llc, nodes),
                directory: Directory::new(&machine.memory, machine.line_bytes),
                counts: machine
                    .cpus
                    .iter()
                    .map(|&node| CpuCounts::zero(node, nodes))
                    .collect(),
                ranges: Vec::new(),
                node_of: machine.cpus.clone(),
                cpus_of,
            }),
        }
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u64 {
        1 << self.line_shift
    }

    /// Counts an access that hits L1 and needs no other CPU. Returns false if [`Self::miss`] must
    /// be called. Must be called by the CPU's own thread.
    #[inline]
    pub fn hit(&self, access: &Access) -> bool {
        let l1 = &self.l1[access.cpu];
        let hit = l1.hit(access.physical >> self.line_shift, access.store);
        if hit {
            l1.count_hit(access.mode);
        }
        hit
    }

    /// Serves and counts an access that [`Self::hit`] did not. Must be called by the CPU's own
    /// thread.
    pub fn miss(&self, access: &Access) {
        self.lock()
            .access(&self.l1, access, access.physical >> self.line_shift);
    }

    /// Counts an access to device memory.
    pub fn device(&self, cpu: usize) {
        self.lock().counts[cpu].unmapped += 1;
    }

    /// Counts instructions. Must be called by the CPU's own thread.
    #[inline]
    pub fn instructions(&self, cpu: usize, count: u64, mode: Mode) {
        self.l1[cpu].count_instructions(count, mode);
    }

    /// Names `[first, last]` as the next range of user addresses.
    pub fn add_range(&self, first: u64, last: u64) {
        let shared = &mut *self.lock();
        let nodes = shared.cpus_of.len();
        shared
            .ranges
            .push(RangeCounts::zero(first.min(last), first.max(last), nodes));
    }

    /// All counts since the start, of CPUs and of ranges.
    pub fn totals(&self) -> (Vec<CpuCounts>, Vec<RangeCounts>) {
        let shared = self.lock();
        let mut cpus = shared.counts.clone();
        for (counts, l1) in cpus.iter_mut().zip(&self.l1) {
            l1.add_to(counts);
        }
        (cpus, shared.ranges.clone())
    }

    /// Only a broken invariant panics while the lock is held, and then QEMU ends. So poisoning is
    /// ignored.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn access(&mut self, l1: &[L1], access: &Access, line: u64) {
        let Access {
            cpu, store, mode, ..
        } = *access;
        let Some((home, slot)) = self.directory.locate(line) else {
            self.counts[cpu].unmapped += 1;
            return;
        };
        let before = self.directory.get(slot);
        let in_l1 = l1[cpu].holds(line);
        let service = self.service(cpu, store, before, in_l1, home);
        self.counts[cpu].count(service, store, mode);
        if let (Service::MemoryOf(_), Mode::User) = (service, mode) {
            let node = self.node_of[cpu];
            for range in self
                .ranges
                .iter_mut()
                .filter(|range| range.contains(access.linear))
            {
                range.lines[node][home] += 1;
            }
        }

        let mut entry = before;
        if store {
            self.take_from_others(l1, cpu, line, &mut entry);
        } else if entry.owner.is_some_and(|owner| owner != Owner::Cpu(cpu)) {
            self.clean_for(l1, cpu, line, &mut entry, home);
        }
        let held = before.cpus & 1 << cpu != 0;
        self.fill(l1, cpu, line, slot, entry, held, in_l1);
    }

    /// What serves the access, by the state before it.
    fn service(&self, cpu: usize, store: bool, entry: Entry, in_l1: bool, home: usize) -> Service {
        let node = self.node_of[cpu];
        let near = entry.cpus & self.cpus_of[node];
        if near == 0 && entry.nodes & 1 << node == 0 {
            return match entry.owner {
                Some(Owner::Cpu(owner)) => Service::CacheOf(self.node_of[owner]),
                Some(Owner::Node(owner)) => Service::CacheOf(owner),
                None => Service::MemoryOf(home),
            };
        }
        if store && let Some(far) = self.lowest_other_node(node, entry) {
            return Service::CacheOf(far);
        }
        let own = 1 << cpu;
        if near & own == 0 || (store && near != own) {
            Service::Node
        } else if in_l1 {
            Service::L1
        } else {
            Service::L2
        }
    }

    fn lowest_other_node(&self, node: usize, entry: Entry) -> Option<usize> {
        let nodes = (0..self.cpus_of.len()).filter(|&other| other != node);
        let mut holding = nodes.filter(|&other| {
            entry.nodes & 1 << other != 0 || entry.cpus & self.cpus_of[other] != 0
        });
        let far = entry.cpus & !self.cpus_of[node] != 0 || entry.nodes & !(1 << node) != 0;
        if far { holding.next() } else { None }
    }

    /// A store: all other copies are invalidated, and the CPU owns the line.
    fn take_from_others(&mut self, l1: &[L1], cpu: usize, line: u64, entry: &mut Entry) {
        let own = 1 << cpu;
        for other in bits(entry.cpus & !own) {
            l1[other].invalidate(line);
            if let Some(l2) = self.l2.get_mut(other) {
                l2.remove(line);
            }
        }
        let node = 1 << self.node_of[cpu];
        for other in bits(u64::from(entry.nodes & !node)) {
            self.llc[other].remove(line);
        }
        entry.cpus &= own;
        entry.nodes &= node;
        entry.owner = Some(Owner::Cpu(cpu));
    }

    /// A load of a line that another CPU has modified. The line becomes clean there. Its contents
    /// go to the node's LLC if reader and owner share one, otherwise to memory.
    fn clean_for(&mut self, l1: &[L1], cpu: usize, line: u64, entry: &mut Entry, home: usize) {
        let node = self.node_of[cpu];
        let owner_node = match entry.owner {
            Some(Owner::Cpu(owner)) => {
                l1[owner].clean(line);
                self.node_of[owner]
            }
            Some(Owner::Node(owner)) => owner,
            None => return,
        };
        entry.owner = if owner_node == node && !self.llc.is_empty() {
            Some(Owner::Node(node))
        } else {
            self.counts[cpu].write_backs[home] += 1;
            None
        };
    }

    /// Inserts the line into the CPU's caches, the last level first, so that inclusion always
    /// holds.
    #[expect(
        clippy::too_many_arguments,
        reason = "one caller, which has them all at hand"
    )]
    fn fill(
        &mut self,
        l1: &[L1],
        cpu: usize,
        line: u64,
        slot: usize,
        mut entry: Entry,
        held: bool,
        in_l1: bool,
    ) {
        let node = self.node_of[cpu];
        let modified = entry.owner == Some(Owner::Cpu(cpu));
        entry.cpus |= 1 << cpu;
        if !self.llc.is_empty() {
            entry.nodes |= 1 << node;
        }
        self.directory.set(slot, entry);
        if in_l1 {
            l1[cpu].touch(line, modified);
            return;
        }
        if !held && let Some(victim) = self.llc.get_mut(node).and_then(|llc| llc.fetch(line)) {
            self.leave_node(l1, cpu, node, victim);
        }
        if let Some(l2) = self.l2.get_mut(cpu) {
            if let Some(victim) = l2.fetch(line) {
                l1[cpu].invalidate(victim);
                self.leave_cpu(cpu, victim);
            }
            l1[cpu].insert(line, modified);
        } else if let Some(victim) = l1[cpu].insert(line, modified) {
            self.leave_cpu(cpu, victim);
        }
    }

    /// The CPU's caches evicted the line.
    fn leave_cpu(&mut self, cpu: usize, victim: u64) {
        let (home, slot, mut entry) = self.cached(victim);
        entry.cpus &= !(1 << cpu);
        if entry.owner == Some(Owner::Cpu(cpu)) {
            entry.owner = if self.llc.is_empty() {
                self.counts[cpu].write_backs[home] += 1;
                None
            } else {
                Some(Owner::Node(self.node_of[cpu]))
            };
        }
        self.directory.set(slot, entry);
    }

    /// The node's LLC evicted the line on behalf of `cpu`. No CPU of the node keeps it.
    fn leave_node(&mut self, l1: &[L1], cpu: usize, node: usize, victim: u64) {
        let (home, slot, mut entry) = self.cached(victim);
        for holder in bits(entry.cpus & self.cpus_of[node]) {
            l1[holder].invalidate(victim);
            if let Some(l2) = self.l2.get_mut(holder) {
                l2.remove(victim);
            }
        }
        entry.cpus &= !self.cpus_of[node];
        entry.nodes &= !(1 << node);
        // A modified line is on one node only, so its owner is on this one.
        if entry.owner.take().is_some() {
            self.counts[cpu].write_backs[home] += 1;
        }
        self.directory.set(slot, entry);
    }

    fn cached(&self, line: u64) -> (usize, usize, Entry) {
        let (home, slot) = self
            .directory
            .locate(line)
            .expect("only lines of memory are cached");
        (home, slot, self.directory.get(slot))
    }
}

/// The numbers of the bits that are set.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            bit
        })
    })
}
