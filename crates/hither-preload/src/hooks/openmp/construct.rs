//! What all OpenMP runtimes share: the call site of a construct, its record, and where threads run.

use std::cell::Cell;

use hither_kernel::process::monotonic_ns;
use hither_kernel::syscalls;
use hither_session::record::{ConstructKind, Record};

use crate::signature::Caller;
use crate::{lifecycle, pages, thread};

thread_local! {
    /// Whether this thread is the master of an outermost team that [`gomp`](super::gomp) has
    /// reported.
    pub(super) static MASTER: Cell<bool> = const { Cell::new(false) };
    /// Where this thread last reached a construct; `None` before the first.
    static PLACE: Cell<Option<Location>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Location {
    cpu: u16,
    node: u32,
}

/// In place of a node that cannot be determined: then a thread reports once where it runs.
const UNKNOWN_NODE: u32 = u32::MAX;

/// The signature of a call site, if this process records. Before that, the policies
/// that the agent asks for are set: between two constructs they delay nobody but the master.
#[inline]
pub(super) fn located(caller: Caller) -> Option<u64> {
    pages::apply_bind_requests();
    thread::signature(lifecycle::session()?, caller)
}

/// Records a boundary between constructs.
#[inline]
pub(super) fn record(kind: ConstructKind, signature: u64, threads: u32) {
    let Some(session) = lifecycle::session() else {
        return;
    };
    let record = Record::Construct {
        kind,
        signature,
        time_ns: monotonic_ns(),
        cpu: thread::cpu(),
        threads: u16::try_from(threads).unwrap_or(u16::MAX),
    };
    thread::push(session, &record);
}

/// Records where this thread, which is not the master, runs, if that is on another node than
/// before.
#[inline]
pub(super) fn record_place() {
    // Reading the CPU takes two nanoseconds. Finding its node is a system call, and needed only if
    // the CPU has changed.
    let cpu = thread::cpu();
    let last = PLACE.get();
    if last.is_none_or(|last| last.cpu != cpu) {
        record_new_place(last, cpu);
    }
}

#[cold]
fn record_new_place(last: Option<Location>, cpu: u16) {
    let Some(session) = lifecycle::session() else {
        return;
    };
    let (cpu, node) =
        syscalls::cpu_and_node().map_or((cpu, UNKNOWN_NODE), |(cpu, node)| (cpu as u16, node));
    PLACE.set(Some(Location { cpu, node }));
    if last.is_none_or(|last| last.node != node) {
        let time_ns = monotonic_ns();
        thread::push(session, &Record::At { cpu, time_ns });
    }
}
