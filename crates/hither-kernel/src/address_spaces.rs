//! What programs map, and their page faults, as one stream in order of time, by the records that
//! perf's events of page faults bring along.
//!
//! The kernel reports each mapping (`PERF_RECORD_MMAP2`), fork, exec and end of a thread, also
//! those that no library sees (the dynamic linker's own, programs that map and end within a
//! millisecond). It does not report `munmap`: a fault at an address that was unmapped can only
//! follow another mapping there. Nor does it report `mremap`.

use std::ops::Range;

use hither_ids::{Address, Pid, Tid};

use crate::file_id::Inode;
use crate::page_faults::{Event, Fault, PageFaults, PerfRings, RingRecord, WatchError};
use crate::process::monotonic_ns;

const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_FORK: u32 = 7;
const RECORD_MMAP2: u32 = 10;
/// Of a `PERF_RECORD_COMM`: the name is that of another program.
const COMM_IS_EXEC: u16 = 1 << 13;

/// Something that happened to the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceEvent {
    /// A page fault.
    Fault(Fault),
    /// A part of a file or other memory was mapped, or its protection was changed.
    Mapped(MappedRange),
    /// A thread was started, or a process with a copy of its parent's memory.
    Forked {
        /// The new thread's process.
        pid: Pid,
        /// The process that started it; `pid` for a thread.
        parent: Pid,
    },
    /// The process runs another program; what it had mapped is gone.
    Exec {
        /// The process.
        pid: Pid,
    },
    /// A thread ended.
    Ended {
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
}

/// What was mapped where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// The process.
    pub pid: Pid,
    /// The addresses.
    pub addresses: Range<Address>,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The file; `None` for memory without a file.
    pub file: Option<Inode>,
    /// It can be written to.
    pub is_writable: bool,
    /// It holds code.
    pub is_executable: bool,
}

/// The events of what the calling thread starts after [`open`](AddressSpaces::open), and of
/// everything that this starts.
#[derive(Debug)]
pub struct AddressSpaces {
    rings: PerfRings,
    /// With their times: those that have not been passed on.
    held: Vec<(u64, SpaceEvent)>,
}

impl AddressSpaces {
    /// Watches what the calling thread starts from now on.
    pub fn open() -> Result<AddressSpaces, WatchError> {
        let rings = PerfRings::of(&[Event {
            with_address_spaces: true,
            ..Event::PAGE_FAULTS
        }])?;
        Ok(AddressSpaces {
            rings,
            held: Vec::new(),
        })
    }

    /// Passes on, in order of time, what has happened up to `until_ns` or up to now, whichever is
    /// earlier. Returns the number of events.
    pub fn drain(&mut self, until_ns: u64, sink: &mut dyn FnMut(SpaceEvent)) -> usize {
        let AddressSpaces { rings, held } = self;
        // What happened before this is in the rings. Later events of one ring may be found where
        // earlier ones of another are not.
        let until_ns = until_ns.min(monotonic_ns());
        let own = rings.own();
        rings.records(&mut |record| held.extend(event(&record, own.0)));
        held.sort_by_key(|&(time_ns, _)| time_ns);
        let due = held.partition_point(|&(time_ns, _)| time_ns <= until_ns);
        held.drain(..due).for_each(|(_, event)| sink(event));
        due
    }

    /// Events that were lost because a ring was full.
    pub fn lost(&self) -> u64 {
        self.rings.lost()
    }
}

/// The event of a record and its time.
fn event(record: &RingRecord<'_>, own: u32) -> Option<(u64, SpaceEvent)> {
    if let Some(fault) = record.fault() {
        return (fault.pid != Pid(own)).then_some((fault.time_ns, SpaceEvent::Fault(fault)));
    }
    // The last three words are the process and thread, the time, and the CPU.
    let time_ns = record.word(record.words.checked_sub(2)?);
    let (pid, other) = halves(record.word(1));
    let event = match record.kind {
        RECORD_MMAP2 if record.words > 8 => SpaceEvent::Mapped(mapped(Pid(pid), record)),
        RECORD_COMM if record.flags & COMM_IS_EXEC != 0 => SpaceEvent::Exec { pid: Pid(pid) },
        RECORD_FORK => SpaceEvent::Forked {
            pid: Pid(pid),
            parent: Pid(other),
        },
        RECORD_EXIT => SpaceEvent::Ended {
            pid: Pid(pid),
            tid: Tid(halves(record.word(2)).0),
        },
        _ => return None,
    };
    Some((time_ns, event))
}

/// The mapping of a record (`PERF_RECORD_MMAP2`, perf_event_open(2)).
fn mapped(pid: Pid, record: &RingRecord<'_>) -> MappedRange {
    let (major, minor) = halves(record.word(5));
    let (protection, _) = halves(record.word(8));
    let (start, inode) = (record.word(2), record.word(6));
    MappedRange {
        pid,
        addresses: Address(start)..Address(start.saturating_add(record.word(3))),
        offset: record.word(4),
        file: (inode != 0).then(|| Inode::on(major, minor, inode)),
        is_writable: protection & libc::PROT_WRITE as u32 != 0,
        is_executable: protection & libc::PROT_EXEC as u32 != 0,
    }
}

/// The two 32-bit fields of a word.
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::mapped_files::mappings;
    use hither_testing::skip::skip_on_this_machine;

    /// A shell that runs another program: all of what is mapped is reported before it is touched.
    #[test]
    fn mappings_forks_execs_and_ends_come_in_order() {
        let mut spaces = match AddressSpaces::open() {
            Ok(spaces) => spaces,
            Err(reason) => return skip_on_this_machine(reason),
        };
        let mut child = Command::new("sh")
            .args(["-c", "cat /dev/null; read line; exit 0"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut events = Vec::new();
        // The shell waits for a line when it has run the other program.
        let ended = |pid: Pid, events: &[SpaceEvent]| {
            let others = events.iter().filter(|event| match event {
                SpaceEvent::Ended { pid: of, .. } => *of != pid,
                _ => false,
            });
            others.count() > 0
        };
        while !ended(Pid::of(&child), &events) {
            spaces.drain(u64::MAX, &mut |event| events.push(event));
        }
        let known = mappings(Pid::of(&child));
        drop(child.stdin.take());
        child.wait().expect("it ends");
        let [pid, tid] = [child.id(); 2];
        while !events.contains(&SpaceEvent::Ended {
            pid: Pid(pid),
            tid: Tid(tid),
        }) {
            spaces.drain(u64::MAX, &mut |event| events.push(event));
        }
        assert_eq!(spaces.lost(), 0);
        let at = |wanted: &dyn Fn(&SpaceEvent) -> bool| events.iter().position(wanted);
        let exec = at(&|event| {
            *event
                == SpaceEvent::Exec {
                    pid: Pid::of(&child),
                }
        })
        .expect("an exec");
        let is_fork = |event: &SpaceEvent| {
            let SpaceEvent::Forked { parent, pid } = event else {
                return false;
            };
            *parent == Pid::of(&child) && pid != parent
        };
        let fork = at(&is_fork);
        assert!(fork.expect("a fork") > exec);
        // What /proc shows was reported, with its file and place in it.
        assert!(!known.is_empty());
        for mapping in known {
            let reported = events.iter().any(|event| match event {
                SpaceEvent::Mapped(range) => {
                    range.pid == Pid::of(&child)
                        && range.file == Some(mapping.file)
                        && range.addresses.contains(&mapping.addresses.start)
                        && range.offset + (mapping.addresses.start - range.addresses.start)
                            == mapping.offset
                }
                _ => false,
            });
            assert!(reported, "{mapping:?}");
        }
    }
}
