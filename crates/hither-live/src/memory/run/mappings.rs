//! Reads what memory programs have: their mappings, by the kernel's list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use hither_sys::machine::Machine;
use hither_sys::writable_memory::WritableRange;

use super::super::event::{Input, MappedRange, TimedInput};

/// A program is asked about for the first time when it is so old: most processes are short, and
/// have nothing to gain.
const FIRST_NS: u64 = 100_000_000;

/// While nothing changes the interval doubles, up to this.
const INTERVAL_NS_MAX: u64 = 5_000_000_000;

/// The interval is at least so many times as long as reading takes: a thousandth of a CPU.
const INTERVAL_PER_READ: u64 = 1_000;

/// The mappings of all processes of the program.
pub(super) struct Mappings {
    machine: Arc<dyn Machine>,
    processes: BTreeMap<u32, MappedProcess>,
}

struct MappedProcess {
    due_ns: u64,
    interval_ns: u64,
    ranges: Vec<WritableRange>,
}

impl Mappings {
    pub(super) fn new(machine: Arc<dyn Machine>) -> Mappings {
        Mappings {
            machine,
            processes: BTreeMap::new(),
        }
    }

    /// A process begins to run a program.
    pub(super) fn started(&mut self, pid: u32, now_ns: u64) {
        let process = MappedProcess {
            due_ns: now_ns + FIRST_NS,
            interval_ns: FIRST_NS,
            ranges: Vec::new(),
        };
        self.processes.insert(pid, process);
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Adds what has changed of the memory of processes that can be `sampled`.
    pub(super) fn read(
        &mut self,
        now_ns: u64,
        sampled: impl Fn(u32) -> bool,
        inputs: &mut Vec<TimedInput>,
    ) {
        let due = self.processes.iter();
        let due = due.filter(|&(&pid, process)| process.due_ns <= now_ns && sampled(pid));
        let due: Vec<u32> = due.map(|(&pid, _)| pid).collect();
        for pid in due {
            let began = Instant::now();
            let Some(process) = self.processes.get_mut(&pid) else {
                continue;
            };
            let own = process.ranges.is_empty() && self.machine.asks_for_nodes(pid);
            let ranges = match own {
                true => Vec::new(),
                false => self.machine.writable_memory(pid),
            };
            let changed = ranges != process.ranges;
            let read_ns = began.elapsed().as_nanos() as u64;
            process.interval_ns = match changed {
                true => FIRST_NS,
                false => (2 * process.interval_ns).min(INTERVAL_NS_MAX),
            };
            process.interval_ns = process.interval_ns.max(INTERVAL_PER_READ * read_ns);
            process.due_ns = now_ns + process.interval_ns;
            if changed || own {
                inputs.push(TimedInput {
                    time_ns: now_ns,
                    input: Input::Memory {
                        pid,
                        own,
                        ranges: ranges.iter().map(mapped).collect(),
                    },
                });
            }
            process.ranges = ranges;
            if own {
                self.processes.remove(&pid);
            }
        }
    }
}

fn mapped(range: &WritableRange) -> MappedRange {
    MappedRange {
        start: range.start,
        length: range.end - range.start,
        kind: range.kind,
    }
}
