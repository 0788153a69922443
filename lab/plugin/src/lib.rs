//! The TCG plugin: sees each data access of a guest, runs it through a modelled cache hierarchy,
//! and counts who served it.
//!
//! One library serves QEMU 7.2 (plugin API 1) to 10 (API 4): it links to nothing of QEMU's, asks
//! `dlsym` which functions there are, and says so in `qemu_plugin_version` before QEMU reads it
//! ([`ffi`]). What is counted is in [`model`]; when it is written in [`recorder`]; the arguments in
//! [`options`].
//!
//! # Physical addresses
//! `qemu_plugin_hwaddr_phys_addr` is the guest-physical address only from QEMU 9 on. QEMU 7.2 gives
//! `RAMBlock.offset + offset in the block + MemoryRegion.addr` (its `plugins/api.c`), that is,
//! twice the start of a memory backend whose region sits at the sum of the backends before it: node
//! `n`'s memory then is `[2 * S, 2 * S + bytes)` with `S` the bytes of nodes `0..n`, without a hole
//! below 4 GiB. Whoever starts QEMU passes `memory=` to suit its version.
//!
//! Counted on both in 2026-11 (7.2.22 and 10.0.2, two nodes, a stream of 524288 lines pinned to CPU
//! and memory, with MTTCG and under icount): 524287 or 524288 lines of user loads, and as many of
//! stores, each at the right pair of nodes; a range's second awaited load warms its last line.
//!
//! # Which vCPU
//! With one TCG thread, QEMU 10's callbacks name the wrong one; [`current`] finds it.
//!
//! # What is not modelled
//! Instruction fetches, page walks, prefetchers, the TLB, bandwidth and contention. Instructions
//! are counted a translation block at a time, so one cut short by an exception counts whole. Loads
//! and stores of one vCPU go through the model in program order; those of several in the order in
//! which the host ran them: with fewer host CPUs than vCPUs, threads alternate in the host's time
//! slices, and true or false sharing ping-pongs less than on a machine. An atomic read-modify-write
//! is one access (a store) on QEMU 7.2 and two (a load, then a store) on 10, of which the second
//! finds the line that the first brought.

pub mod current;
pub mod ffi;
pub mod marks;
pub mod model;
pub mod options;
pub mod output;
pub mod recorder;
