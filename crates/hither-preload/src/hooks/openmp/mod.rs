//! Parallel constructs: where regions of OpenMP begin and end, and where their teams pass a
//! barrier.
//!
//! The agent finds a program's iterations in the sequence of these, so only the master of an
//! outermost team tells of them. The other threads of a team say where they run: at their first
//! construct, and later if they meet one on another node.
//!
//! gcc's calls are hooked ([`gomp`]); LLVM's runtime has an interface for tools ([`ompt`]). A
//! program compiled by gcc may run on LLVM's runtime, which then tells of the region that our hook
//! is about to begin: [`MASTER`] keeps that from being told twice. Where neither runtime is,
//! nothing here is ever called.
//!
//! A program whose iterations are no loops over constructs can tell where they end, by
//! `include/hither.h`.

mod gomp;
mod libraries;
mod ompt;
mod runtime;

use std::cell::Cell;

use hither_sys::process::monotonic_ns;
use hither_sys::record::{ConstructKind, Record};
use hither_sys::syscalls;

use super::trampoline;
use crate::signature::Caller;
use crate::{pages, recorder};

trampoline! {
    hither_iteration => iteration, 0;
}

thread_local! {
    /// Whether this thread is the master of an outermost team that [`gomp`] has told of.
    static MASTER: Cell<bool> = const { Cell::new(false) };
    /// Where this thread last met a construct; `None` before the first.
    static PLACE: Cell<Option<Place>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Place {
    cpu: u16,
    node: u32,
}

/// In place of a node that cannot be asked for: then a thread says once where it runs.
const UNKNOWN: u32 = u32::MAX;

unsafe extern "C-unwind" fn iteration(sp: *const u64, rbp: u64) {
    if let Some(signature) = located(Caller { sp, rbp }) {
        tell(ConstructKind::Iteration, signature, 0);
    }
}

/// The signature of a call site, if this process records. Before that, the agent's orders are
/// carried out: between two constructs they hold nobody up but the master.
#[inline]
fn located(caller: Caller) -> Option<u64> {
    pages::apply_bind_requests();
    recorder::signature(recorder::session()?, caller)
}

/// Records a boundary between constructs.
#[inline]
fn tell(kind: ConstructKind, signature: u64, threads: u32) {
    let Some(session) = recorder::session() else {
        return;
    };
    let record = Record::Construct {
        kind,
        signature,
        time_ns: monotonic_ns(),
        cpu: recorder::cpu(),
        threads: u16::try_from(threads).unwrap_or(u16::MAX),
    };
    recorder::region(session, &record);
}

/// Records where this thread, which is no master, runs, if it has come from another node.
#[inline]
fn tell_place() {
    // It costs two nanoseconds; asking for the node is a system call, and needed only where the CPU
    // is another.
    let cpu = recorder::cpu();
    let last = PLACE.get();
    if last.is_none_or(|last| last.cpu != cpu) {
        tell_new_place(last, cpu);
    }
}

#[cold]
fn tell_new_place(last: Option<Place>, cpu: u16) {
    let Some(session) = recorder::session() else {
        return;
    };
    // libc asks for the CPU without a system call, which a sandbox may kill for.
    let asked = (!session.is_confined())
        .then(syscalls::cpu_and_node)
        .flatten();
    let (cpu, node) = asked.map_or((cpu, UNKNOWN), |(cpu, node)| (cpu as u16, node));
    PLACE.set(Some(Place { cpu, node }));
    if last.is_none_or(|last| last.node != node) {
        let time_ns = monotonic_ns();
        recorder::region(session, &Record::At { cpu, time_ns });
    }
}

/// Looks the runtime up that the program was linked to, before it has threads.
pub(crate) fn prepare() {
    runtime::prepare();
}
