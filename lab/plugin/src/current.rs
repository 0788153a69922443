//! Finds the running vCPU where QEMU's callbacks do not name it.
//!
//! With one TCG thread for all vCPUs (as under icount), QEMU 10's callbacks name the vCPU that
//! *translated* the block, and not the one that executes it (`gen_cpu_index` in its
//! `accel/tcg/plugin-gen.c` makes the index a constant unless blocks may run in parallel). Counts
//! of pinned programs would then go to other nodes' CPUs. Linux's base of per-CPU data
//! distinguishes vCPUs: it is in GS while the kernel runs and in KERNEL_GS_BASE while a program
//! runs, and is the one of the two in the upper half. Each block's first execution shows to which
//! vCPU a base belongs: it follows the block's translation, so the constant is right then. QEMU may
//! switch vCPUs between the two, so the majority of such sightings decides. Rejected: marks on
//! every CPU (the guest would have to help) and the order of the bases (known only after all were
//! seen).
//!
//! The cost (2026-11, a user loop with one access per block): 16 to 22 million accesses per CPU
//! second, against 41 to 64 million where the callbacks are right (MTTCG). If every access misses,
//! 8 and 11 million.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// Tracks the running vCPU. With one thread for all vCPUs there is no concurrency; the atomics only
/// make it safe.
#[derive(Debug, Default)]
pub struct Current {
    /// The thread of the first vCPU.
    first_thread: Mutex<Option<ThreadId>>,
    shared_thread: AtomicBool,
    /// The block translated last, until its first execution.
    fresh: AtomicU64,
    /// The last base, and its vCPU.
    base: AtomicU64,
    cpu: AtomicUsize,
    /// Sightings of each base by vCPU.
    sightings: Mutex<Vec<(u64, Vec<u32>)>>,
}

impl Current {
    /// A vCPU starts on the calling thread.
    pub fn start(&self) {
        let first = &mut *self
            .first_thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match first {
            None => *first = Some(thread::current().id()),
            Some(first) if *first == thread::current().id() => {
                self.shared_thread.store(true, Relaxed)
            }
            Some(_) => {}
        }
    }

    /// Whether several vCPUs share a thread, so that callbacks may name the wrong one.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared_thread.load(Relaxed)
    }

    /// The vCPU that [`Self::execute`] found last.
    #[inline]
    pub fn cpu(&self) -> usize {
        self.cpu.load(Relaxed)
    }

    /// A block was translated. Its number is not 0.
    pub fn translate(&self, block: u64) {
        self.fresh.store(block, Relaxed);
    }

    /// A block starts. Its callback names `translator`, and `base` is that of the kernel's per-CPU
    /// data, if it is set up. Returns the running vCPU.
    pub fn execute(&self, block: u64, translator: usize, base: Option<u64>) -> usize {
        let fresh = self.fresh.load(Relaxed) == block;
        if !fresh && base == Some(self.base.load(Relaxed)) {
            return self.cpu();
        }
        // Firmware and early boot have no base: there the translator is the best guess.
        let cpu = base.map_or(translator, |base| self.sight(base, translator, fresh));
        self.fresh.store(0, Relaxed);
        self.base.store(base.unwrap_or(0), Relaxed);
        self.cpu.store(cpu, Relaxed);
        cpu
    }

    /// A block starts. This version of QEMU names the running vCPU.
    pub fn follow(&self, cpu: usize) -> usize {
        self.cpu.store(cpu, Relaxed);
        cpu
    }

    fn sight(&self, base: u64, translator: usize, fresh: bool) -> usize {
        let sightings = &mut *self
            .sightings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = sightings.iter().position(|(seen, _)| *seen == base);
        if !fresh && known.is_none() {
            return translator;
        }
        let index = known.unwrap_or_else(|| {
            sightings.push((base, Vec::new()));
            sightings.len() - 1
        });
        let cpus = &mut sightings[index].1;
        if fresh {
            cpus.resize(cpus.len().max(translator + 1), 0);
            cpus[translator] = cpus[translator].saturating_add(1);
        }
        (0..cpus.len())
            .max_by_key(|&cpu| cpus[cpu])
            .unwrap_or(translator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASES: [u64; 2] = [0xffff_8880_0100_0000, 0xffff_8880_0200_0000];

    #[test]
    fn the_first_execution_of_a_block_shows_whose_base_it_is() {
        let current = Current::default();
        for (cpu, base) in BASES.into_iter().enumerate() {
            let block = 8 + cpu as u64;
            current.translate(block);
            assert_eq!(current.execute(block, cpu, Some(base)), cpu);
        }
        // Blocks of either CPU that the other executes.
        assert_eq!(current.execute(8, 0, Some(BASES[1])), 1);
        assert_eq!(current.execute(9, 1, Some(BASES[0])), 0);
        assert_eq!(current.cpu(), 0);
    }

    #[test]
    fn a_sighting_gone_wrong_is_outvoted_and_other_blocks_show_nothing() {
        let current = Current::default();
        // Translated by CPU 1, but CPU 0 gets to it first.
        current.translate(7);
        assert_eq!(current.execute(7, 1, Some(BASES[0])), 1);
        for block in 10..12 {
            current.translate(block);
            current.execute(block, 0, Some(BASES[0]));
        }
        // If a translated block is not executed, later ones are still attributed.
        current.translate(20);
        assert_eq!(current.execute(7, 1, Some(BASES[0])), 0);
        assert_eq!(current.execute(21, 1, None), 1);
    }

    #[test]
    fn threads_tell_whether_they_are_shared() {
        let current = Current::default();
        current.start();
        thread::scope(|scope| scope.spawn(|| current.start()).join().unwrap());
        assert!(!current.is_shared());
        current.start();
        assert!(current.is_shared());
    }
}
