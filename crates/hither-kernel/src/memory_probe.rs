//! What memory costs on this machine, measured on memory of our own: dependent loads, and page
//! moves.
//!
//! *Loads*: a pointer chase through [`CHASE_LOADS`] lines, in an order that no prefetcher follows.
//! All lines are flushed from the caches first (on x86-64 by `clflush`, which reaches the caches of
//! all processors), so that each load goes to memory. lmbench's
//! `lat_mem_rd` uses a buffer larger than the last level of cache instead; but a guest sees the
//! host's last level (480 MiB for 2 CPUs, 2026-11), and 1 GiB takes half a second to fault in. The
//! lines are on 64 pages, which the first level of the TLB holds, so that page table walks are not
//! measured (the windows of Intel's Memory Latency Checker are as large). The memory is requested
//! with a preferred node, and then its node is checked: under a strict policy the kernel would kill
//! the process if the node is full.
//!
//! *Moves*: `move_pages` of [`MOVE_BATCH_PAGES`] pages there and back, in CPU time. What a program
//! pays when it finds its page gone is not measured.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hither_ids::{Address, KernelNode, Pid};

use crate::arch;
use crate::memory_policy::{Bind, BindMode};
use crate::page_bytes;
use crate::page_moves::move_pages;
use crate::process::thread_cpu_ns;
use crate::syscalls;

/// Loads of a chunk.
pub const CHASE_LOADS: usize = 1024;

/// Words between two stops in memory: four lines, so that a line that a processor prefetches
/// together with another is never the next stop.
const STRIDE_WORDS: usize = 32;

/// The longest time for which a pair of nodes is measured.
const PAIR_TIME_MAX: Duration = Duration::from_millis(90);

/// Pages moved at once.
pub const MOVE_BATCH_PAGES: usize = 512;

/// Why a cost could not be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// The node has no CPU that we may run on: none at all, or not in our cpuset.
    NoCpu,
    /// The memory is on another node: this one is full, or not in our cpuset.
    NoMemory,
    /// No way to flush the caches of this processor is known.
    NoFlush,
    /// The kernel refused with this error number.
    Refused(i32),
}

/// Measures costs, one node's memory at a time.
pub trait MemoryProbe {
    /// Picoseconds of a load from one of these CPUs to memory on a node, chunk by chunk.
    fn loads(
        &mut self,
        cpus: &[u32],
        node: KernelNode,
        chunks: usize,
    ) -> Result<Vec<u64>, ProbeError>;

    /// Nanoseconds of CPU time to move a page between two nodes, batch by batch.
    fn moves(
        &mut self,
        between: (KernelNode, KernelNode),
        batches: usize,
    ) -> Result<Vec<u64>, ProbeError>;
}

/// Measures this machine.
#[derive(Debug, Default)]
pub(crate) struct ThisMachineProbe {
    /// The memory that was used last, and its node: it serves the other CPUs as well.
    chain: Option<(KernelNode, Memory)>,
}

impl MemoryProbe for ThisMachineProbe {
    fn loads(
        &mut self,
        cpus: &[u32],
        node: KernelNode,
        chunks: usize,
    ) -> Result<Vec<u64>, ProbeError> {
        if !arch::CAN_FLUSH {
            return Err(ProbeError::NoFlush);
        }
        if cpus.is_empty() {
            return Err(ProbeError::NoCpu);
        }
        if self.chain.as_ref().is_none_or(|&(of, _)| of != node) {
            self.chain = Some((node, chain(node)?));
        }
        let Some((_, memory)) = &self.chain else {
            return Err(ProbeError::NoMemory);
        };
        let words = memory.words();
        thread::scope(|scope| {
            let chasing = scope.spawn(|| {
                run_on(cpus)?;
                let begun = Instant::now();
                let mut took = Vec::with_capacity(chunks);
                while took.len() < chunks && begun.elapsed() < PAIR_TIME_MAX {
                    took.push(chase(words));
                }
                Ok(took)
            });
            match chasing.join() {
                Ok(took) => took,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn moves(
        &mut self,
        (from, to): (KernelNode, KernelNode),
        batches: usize,
    ) -> Result<Vec<u64>, ProbeError> {
        let memory = Memory::on(from, MOVE_BATCH_PAGES * page_bytes() as usize)?;
        let pages = memory.pages();
        let mut took = Vec::with_capacity(batches);
        for there in [to, from].into_iter().cycle().take(batches) {
            let before_ns = thread_cpu_ns();
            let states = move_pages(Pid::own(), &pages, Some(there));
            let took_ns = thread_cpu_ns() - before_ns;
            let states = states.map_err(ProbeError::Refused)?;
            if states.iter().any(|&state| state != there.0 as i32) {
                return Err(ProbeError::NoMemory);
            }
            took.push(took_ns / MOVE_BATCH_PAGES as u64);
        }
        Ok(took)
    }
}

/// The chain in the memory of a node: the word of each stop holds the index of the next.
fn chain(node: KernelNode) -> Result<Memory, ProbeError> {
    let mut memory = Memory::on(node, CHASE_LOADS * STRIDE_WORDS * 8)?;
    let words = memory.words_mut();
    for stop in 0..CHASE_LOADS {
        words[stop * STRIDE_WORDS] = (next_stop(stop) * STRIDE_WORDS) as u64;
    }
    Ok(memory)
}

/// The stop after this one. The order visits all stops and looks random: a linear congruence of
/// full period (Hull and Dobell, "Random number generators", 1962: an odd addend, a factor of 1
/// modulo 4, a power of two).
const fn next_stop(stop: usize) -> usize {
    (stop * 661 + 331) % CHASE_LOADS
}

/// One chunk; returns picoseconds a load.
fn chase(words: &[u64]) -> u64 {
    for stop in 0..CHASE_LOADS {
        arch::flush(&words[stop * STRIDE_WORDS]);
    }
    arch::fence();
    let begun = Instant::now();
    let mut at = 0;
    for _ in 0..CHASE_LOADS {
        at = words[at] as usize;
    }
    std::hint::black_box(at);
    begun.elapsed().as_nanos() as u64 * 1000 / CHASE_LOADS as u64
}

/// Binds the calling thread to these CPUs, as far as allowed.
fn run_on(cpus: &[u32]) -> Result<(), ProbeError> {
    let mut set = [0_u64; 1024];
    for &cpu in cpus {
        if let Some(word) = set.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    // SAFETY: the kernel reads as many bytes as the array has, of CPUs that there are or not.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), (&raw const set).cast()) };
    match result {
        0 => Ok(()),
        _ => Err(ProbeError::NoCpu),
    }
}

/// Memory on one node.
#[derive(Debug)]
struct Memory {
    start: *mut u8,
    length: usize,
}

impl Memory {
    /// Whether all of it is present, on small pages.
    fn on(node: KernelNode, length: usize) -> Result<Memory, ProbeError> {
        let start = syscalls::map(length, None).map_err(ProbeError::Refused)?;
        let memory = Memory { start, length };
        // SAFETY: the mapping is this value's alone, and the advice discards nothing. A refusal
        // leaves a kernel without huge pages.
        let _ = unsafe { syscalls::advise(start, length, libc::MADV_NOHUGEPAGE) };
        let bind = Bind {
            mode: BindMode::Preferred,
            nodes: node.mask().ok_or(ProbeError::NoMemory)?,
        };
        match syscalls::bind(Address(start as u64), length as u64, bind) {
            Ok(()) => {}
            Err(libc::EINVAL) => return Err(ProbeError::NoMemory),
            Err(error) => return Err(ProbeError::Refused(error)),
        }
        let pages = memory.pages();
        for &page in &pages {
            // SAFETY: the mapping is writable and this value's own, and nobody else looks at it.
            unsafe { AtomicU8::from_ptr(page.0 as *mut u8) }.store(1, Ordering::Relaxed);
        }
        let found = move_pages(Pid::own(), &pages, None);
        let found = found.map_err(ProbeError::Refused)?;
        if found.iter().all(|&at| at == node.0 as i32) {
            Ok(memory)
        } else {
            Err(ProbeError::NoMemory)
        }
    }

    fn pages(&self) -> Vec<Address> {
        let pages = (0..self.length).step_by(page_bytes() as usize);
        pages
            .map(|at| Address(self.start as u64 + at as u64))
            .collect()
    }

    fn words(&self) -> &[u64] {
        // SAFETY: the mapping is readable, all of it initialised by the kernel, aligned to a page,
        // and lives as long as this.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length / 8) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and nobody else has a reference to it while this one is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.length / 8) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `on`, and nothing refers to it any more.
        unsafe { syscalls::unmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, ThisMachine};
    use hither_testing::skip::skip_on_this_machine;

    #[test]
    fn a_chase_comes_by_every_stop() {
        let mut seen = [false; CHASE_LOADS];
        let mut at = 0;
        for _ in 0..CHASE_LOADS {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = next_stop(at);
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn this_machine_is_measured_or_says_why_not() {
        let Ok(nodes) = ThisMachine.nodes() else {
            skip_on_this_machine("no nodes in sysfs");
            return;
        };
        let mut probe = ThisMachineProbe::default();
        let node = nodes.iter().find(|node| !node.cpus.is_empty());
        let node = node.expect("a node with CPUs");
        match probe.loads(&node.cpus, node.node, 3) {
            // However fast memory is, a load takes time.
            Ok(took) => assert!(!took.is_empty() && took.iter().all(|&ps| ps > 0)),
            Err(reason) => skip_on_this_machine(format_args!("{reason:?}")),
        }
        assert_eq!(probe.loads(&[], node.node, 1), Err(ProbeError::NoCpu));
        assert_eq!(
            probe.loads(&[65_000], node.node, 1).err(),
            Some(ProbeError::NoCpu)
        );
        assert!(
            probe.loads(&node.cpus, KernelNode(63), 1).is_err(),
            "no such node"
        );
        assert!(
            probe.loads(&node.cpus, KernelNode(64), 1).is_err(),
            "past the mask"
        );
        // Pages that are where they are to go take no move, but every call is answered.
        if let Ok(took) = probe.moves((node.node, node.node), 2) {
            assert_eq!(took.len(), 2);
        }
        assert!(
            probe.moves((node.node, KernelNode(63)), 2).is_err(),
            "no such node"
        );
    }
}
