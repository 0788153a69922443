//! Reads what memory programs have: their mappings, by the kernel's list. Left out is shared memory
//! that several processes of the run map: the kernel moves a page that several have mapped for none
//! of them (`move_pages(2)`, EACCES), and while it is sampled, each of them faults on each page of
//! it, in place of sixteen at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use hither_ids::Pid;
use hither_kernel::file_id::Inode;
use hither_kernel::machine::Machine;
use hither_kernel::writable_memory::WritableRange;

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
    processes: BTreeMap<Pid, MappedProcess>,
    shared: SharedMemory,
}

struct MappedProcess {
    due_ns: u64,
    interval_ns: u64,
    ranges: Vec<WritableRange>,
}

/// Who maps which shared memory, by device and inode.
#[derive(Default)]
struct SharedMemory {
    users: BTreeMap<Inode, BTreeSet<Pid>>,
    /// What several processes were found to map.
    left_out: BTreeSet<Inode>,
}

impl SharedMemory {
    /// Takes what several processes map out of the memory of one. Returns the others that map what
    /// is left out from now on.
    fn leave_out(&mut self, pid: Pid, ranges: &mut Vec<WritableRange>) -> BTreeSet<Pid> {
        let mut others = BTreeSet::new();
        for file in ranges.iter().filter_map(|range| range.file) {
            let users = self.users.entry(file).or_default();
            users.insert(pid);
            if users.len() > 1 && self.left_out.insert(file) {
                others.extend(users.iter().filter(|&&user| user != pid));
            }
        }
        ranges.retain(|range| range.file.is_none_or(|file| !self.left_out.contains(&file)));
        others
    }

    /// A process has ended, or runs another program.
    fn ended(&mut self, pid: Pid) {
        self.users.retain(|_, users| {
            users.remove(&pid);
            !users.is_empty()
        });
    }
}

impl Mappings {
    pub(super) fn new(machine: Arc<dyn Machine>) -> Mappings {
        Mappings {
            machine,
            processes: BTreeMap::new(),
            shared: SharedMemory::default(),
        }
    }

    /// How many pieces of shared memory were left out.
    pub(super) fn left_out(&self) -> usize {
        self.shared.left_out.len()
    }

    /// A process begins to run a program.
    pub(super) fn started(&mut self, pid: Pid, now_ns: u64) {
        let process = MappedProcess {
            due_ns: now_ns + FIRST_NS,
            interval_ns: FIRST_NS,
            ranges: Vec::new(),
        };
        self.processes.insert(pid, process);
        self.shared.ended(pid);
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, pid: Pid) {
        self.processes.remove(&pid);
        self.shared.ended(pid);
    }

    /// Adds what has changed of the memory of processes that can be `sampled`.
    pub(super) fn read(
        &mut self,
        now_ns: u64,
        sampled: impl Fn(Pid) -> bool,
        inputs: &mut Vec<TimedInput>,
    ) {
        let due = self.processes.iter();
        let due = due.filter(|&(&pid, process)| process.due_ns <= now_ns && sampled(pid));
        let due: Vec<Pid> = due.map(|(&pid, _)| pid).collect();
        for pid in due {
            let began = Instant::now();
            let Some(process) = self.processes.get_mut(&pid) else {
                continue;
            };
            let own = process.ranges.is_empty() && self.machine.asks_for_nodes(pid);
            let mut ranges = if own {
                Vec::new()
            } else {
                self.machine.writable_memory(pid)
            };
            let others = self.shared.leave_out(pid, &mut ranges);
            let changed = ranges != process.ranges;
            let read_ns = began.elapsed().as_nanos() as u64;
            process.interval_ns = if changed {
                FIRST_NS
            } else {
                (2 * process.interval_ns).min(INTERVAL_NS_MAX)
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
            for other in others {
                if let Some(process) = self.processes.get_mut(&other) {
                    process.due_ns = now_ns;
                }
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

#[cfg(test)]
mod tests {
    use hither_kernel::writable_memory::MemoryKind;

    use hither_ids::Address;

    use super::*;

    #[test]
    fn shared_memory_of_several_processes_is_left_out() {
        let mut shared = SharedMemory::default();
        let range = |file: Option<u64>| WritableRange {
            start: Address(0x1000),
            end: Address(0x9000),
            kind: MemoryKind::Shared,
            file: file.map(|inode| Inode::on(0, 5, inode)),
        };
        let mut left = |pid, files: &[Option<u64>]| {
            let mut ranges: Vec<WritableRange> = files.iter().copied().map(range).collect();
            let others: Vec<Pid> = shared.leave_out(pid, &mut ranges).into_iter().collect();
            let files: Vec<_> = ranges
                .iter()
                .map(|of| of.file.map(|file| file.number))
                .collect();
            (files, others)
        };
        // Mapped twice by one process.
        assert_eq!(
            left(Pid(7), &[Some(1), Some(1)]),
            (vec![Some(1); 2], vec![])
        );
        assert_eq!(
            left(Pid(8), &[None, Some(1), Some(2)]),
            (vec![None, Some(2)], vec![Pid(7)])
        );
        assert_eq!(left(Pid(7), &[Some(1)]), (vec![], vec![]));
        assert_eq!(left(Pid(9), &[Some(1), Some(2)]), (vec![], vec![Pid(8)]));
        shared.ended(Pid(8));
        assert_eq!(shared.users[&Inode::on(0, 5, 2)], BTreeSet::from([Pid(9)]));
        assert_eq!(shared.left_out.len(), 2);
    }
}
