//! What each process has mapped where.

use std::collections::BTreeMap;

use hither_ids::{Address, Pid};
use hither_kernel::address_spaces::{MappedRange, SpaceEvent};
use hither_kernel::file_id::Inode;
use rustc_hash::FxHashMap;

/// How far back the processes are followed that a process descends from.
const LINE_MAX: usize = 64;

/// A part of a file in a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileRange {
    start: Address,
    end: Address,
    /// Where in the file it begins.
    offset: u64,
    /// Device and inode.
    pub(super) file: Inode,
    /// The process cannot write to it.
    pub(super) is_read_only: bool,
}

impl FileRange {
    /// The offset in the file of an address within it.
    pub(super) fn offset_of(&self, address: Address) -> u64 {
        self.offset + (address - self.start)
    }

    /// Where an offset of the file is mapped, if it is within the range.
    pub(super) fn address_of(&self, offset: u64) -> Option<Address> {
        let within = offset.checked_sub(self.offset)?;
        (within < self.end - self.start).then(|| self.start + within)
    }
}

/// The memory of a process.
#[derive(Clone, Debug, Default)]
struct Space {
    /// By their first address; they do not overlap.
    ranges: BTreeMap<Address, FileRange>,
    threads: u32,
}

impl Space {
    /// Takes note of a mapping, which replaces what was mapped there. Code is no data.
    fn map(&mut self, mapped: &MappedRange) {
        let (start, end) = (mapped.addresses.start, mapped.addresses.end);
        let below = self.ranges.range(..end);
        let overlapping: Vec<FileRange> = below
            .rev()
            .map(|(_, &range)| range)
            .take_while(|range| range.end > start)
            .collect();
        for range in overlapping {
            self.ranges.remove(&range.start);
            if range.start < start {
                let before = FileRange {
                    end: start,
                    ..range
                };
                self.ranges.insert(before.start, before);
            }
            if range.end > end {
                let after = FileRange {
                    start: end,
                    offset: range.offset_of(end),
                    ..range
                };
                self.ranges.insert(end, after);
            }
        }
        if let Some(file) = mapped.file
            && !mapped.is_executable
            && start < end
        {
            let range = FileRange {
                start,
                end,
                offset: mapped.offset,
                file,
                is_read_only: !mapped.is_writable,
            };
            self.ranges.insert(start, range);
        }
    }
}

/// Where a process descends from. It is kept until all that descend from it have ended.
#[derive(Debug, Default)]
struct Descent {
    parent: Option<Pid>,
    /// The processes that it started and that are kept.
    children: u32,
    has_ended: bool,
}

/// The memory of all processes.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    by_pid: FxHashMap<Pid, Space>,
    descents: FxHashMap<Pid, Descent>,
    /// See [`take_forgotten`](Spaces::take_forgotten).
    forgotten: Vec<Pid>,
}

impl Spaces {
    /// The file that a process has mapped at an address.
    pub(super) fn at(&self, pid: Pid, address: Address) -> Option<FileRange> {
        let ranges = &self.by_pid.get(&pid)?.ranges;
        let (_, range) = ranges.range(..=address).next_back()?;
        (address < range.end).then_some(*range)
    }

    /// Whether a process has a file mapped as data.
    pub(super) fn has(&self, pid: Pid, file: Inode) -> bool {
        let space = self.by_pid.get(&pid);
        space.is_some_and(|space| space.ranges.values().any(|range| range.file == file))
    }

    /// The process and those that it descends from, the closest first.
    pub(super) fn line_of(&self, pid: Pid) -> impl Iterator<Item = Pid> + '_ {
        let parent = |of: &Pid| self.descents.get(of)?.parent;
        // Process numbers are used again, so that a line may not end.
        std::iter::successors(Some(pid), parent).take(LINE_MAX)
    }

    pub(super) fn on_event(&mut self, event: &SpaceEvent) {
        match event {
            SpaceEvent::Mapped(mapped) => self.by_pid.entry(mapped.pid).or_default().map(mapped),
            SpaceEvent::Forked { pid, parent } if pid == parent => {
                let space = self.by_pid.entry(*pid).or_default();
                space.threads = space.threads.saturating_add(1);
            }
            SpaceEvent::Forked { pid, parent } => {
                let space = self.by_pid.get(parent).cloned().unwrap_or_default();
                self.descend(*pid, *parent);
                self.by_pid.insert(
                    *pid,
                    Space {
                        threads: 0,
                        ..space
                    },
                );
            }
            SpaceEvent::Exec { pid } => {
                self.by_pid.insert(*pid, Space::default());
            }
            SpaceEvent::Ended { pid, .. } => {
                self.ended(*pid);
            }
            SpaceEvent::Fault(_) => {}
        }
    }

    /// A thread has ended. Whether it was the last of its process.
    pub(super) fn ended(&mut self, pid: Pid) -> bool {
        match self.by_pid.get_mut(&pid) {
            Some(space) if space.threads > 0 => {
                space.threads -= 1;
                false
            }
            Some(_) => {
                self.by_pid.remove(&pid);
                self.descents.entry(pid).or_default().has_ended = true;
                self.forget(pid);
                true
            }
            None => false,
        }
    }

    /// The processes that have ended and from which no other one descends any more, since the last
    /// call.
    pub(super) fn take_forgotten(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.forgotten)
    }

    fn descend(&mut self, pid: Pid, parent: Pid) {
        self.descents.entry(parent).or_default().children += 1;
        let descent = self.descents.entry(pid).or_default();
        descent.has_ended = false;
        // The number was another process's, from which others descend.
        if let Some(former) = descent.parent.replace(parent) {
            self.lose_child(former);
        }
    }

    fn lose_child(&mut self, pid: Pid) {
        if let Some(descent) = self.descents.get_mut(&pid) {
            descent.children = descent.children.saturating_sub(1);
            self.forget(pid);
        }
    }

    /// Forgets a process that has ended if none descends from it, and then likewise its parent.
    fn forget(&mut self, pid: Pid) {
        let is_done = |of: &Descent| of.has_ended && of.children == 0;
        if self.descents.get(&pid).is_some_and(is_done) {
            self.forgotten.push(pid);
            if let Some(parent) = self.descents.remove(&pid).and_then(|of| of.parent) {
                self.lose_child(parent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(pid: u32, start: Address, end: u64, offset: u64, inode: u64) -> SpaceEvent {
        SpaceEvent::Mapped(MappedRange {
            pid: Pid(pid),
            addresses: start..Address(end),
            offset,
            file: (inode != 0).then(|| Inode::on(0, 1, inode)),
            is_writable: false,
            is_executable: inode == 9,
        })
    }

    fn at(spaces: &Spaces, pid: u32, address: Address) -> Option<(u64, u64)> {
        let range = spaces.at(Pid(pid), address)?;
        Some((range.file.number, range.offset_of(address)))
    }

    #[test]
    fn a_mapping_replaces_what_was_there() {
        let mut spaces = Spaces::default();
        spaces.on_event(&mapped(1, Address(0x1000), 0x9000, 0x10000, 5));
        // Into its middle: another file, then memory without one, then code.
        spaces.on_event(&mapped(1, Address(0x3000), 0x4000, 0, 6));
        assert_eq!(at(&spaces, 1, Address(0xfff)), None);
        assert_eq!(at(&spaces, 1, Address(0x2fff)), Some((5, 0x11fff)));
        assert_eq!(at(&spaces, 1, Address(0x3001)), Some((6, 1)));
        assert_eq!(at(&spaces, 1, Address(0x4000)), Some((5, 0x13000)));
        let inode = Inode::on(0, 1, 6);
        assert!(spaces.has(Pid(1), inode) && !spaces.has(Pid(2), inode));
        assert!(!spaces.has(Pid(1), Inode::on(0, 2, 6)));
        let range = spaces.at(Pid(1), Address(0x4000)).expect("mapped");
        assert_eq!(range.address_of(0x13000), Some(Address(0x4000)));
        assert_eq!(range.address_of(0x12fff), None);
        assert_eq!(range.address_of(0x18000), None);
        spaces.on_event(&mapped(1, Address(0x2000), 0x5000, 0, 0));
        assert_eq!(at(&spaces, 1, Address(0x3001)), None);
        assert_eq!(at(&spaces, 1, Address(0x5000)), Some((5, 0x14000)));
        spaces.on_event(&mapped(1, Address(0), 0x10000, 0, 9));
        assert_eq!(at(&spaces, 1, Address(0x5000)), None);
        assert_eq!(at(&spaces, 2, Address(0x5000)), None);
    }

    #[test]
    fn a_child_has_what_its_parent_had_until_it_runs_another_program() {
        let mut spaces = Spaces::default();
        let mapping = |spaces: &Spaces, pid| at(spaces, pid, Address(0x1000)).is_some();
        spaces.on_event(&mapped(1, Address(0x1000), 0x2000, 0, 5));
        // A thread, which may outlive the first one.
        spaces.on_event(&SpaceEvent::Forked {
            pid: Pid(1),
            parent: Pid(1),
        });
        spaces.on_event(&SpaceEvent::Forked {
            pid: Pid(2),
            parent: Pid(1),
        });
        assert!(mapping(&spaces, 2));
        spaces.on_event(&SpaceEvent::Exec { pid: Pid(2) });
        assert!(mapping(&spaces, 1) && !mapping(&spaces, 2));
        assert!(!spaces.ended(Pid(1)) && mapping(&spaces, 1));
        assert!(spaces.ended(Pid(1)) && !mapping(&spaces, 1));
        assert!(spaces.line_of(Pid(2)).eq([Pid(2), Pid(1)]));
        // It is forgotten with the last that descends from it.
        spaces.on_event(&SpaceEvent::Forked {
            pid: Pid(3),
            parent: Pid(2),
        });
        assert!(spaces.ended(Pid(2)));
        assert!(spaces.take_forgotten().is_empty());
        assert!(spaces.line_of(Pid(3)).eq([Pid(3), Pid(2), Pid(1)]));
        assert!(spaces.ended(Pid(3)));
        assert_eq!(spaces.take_forgotten(), [Pid(3), Pid(2), Pid(1)]);
        assert!(spaces.descents.is_empty());
    }

    /// A number that is used again while a process descends from its former one.
    #[test]
    fn a_number_that_is_used_again_is_forgotten_once() {
        let mut spaces = Spaces::default();
        for (pid, parent) in [(2, 1), (3, 2)] {
            spaces.on_event(&SpaceEvent::Forked {
                pid: Pid(pid),
                parent: Pid(parent),
            });
        }
        assert!(spaces.ended(Pid(2)));
        spaces.on_event(&SpaceEvent::Forked {
            pid: Pid(2),
            parent: Pid(1),
        });
        assert!(spaces.ended(Pid(2)) && spaces.ended(Pid(3)));
        assert_eq!(spaces.take_forgotten(), [Pid(3), Pid(2)]);
        let left: Vec<(Pid, u32)> = spaces
            .descents
            .iter()
            .map(|(&pid, of)| (pid, of.children))
            .collect();
        assert_eq!(left, [(Pid(1), 0)], "which has not ended");
    }
}
