//! Files that programs have mapped to read them: watches the page faults of their threads, and
//! drops what is mapped.
//!
//! Only large files are watched, and only while programs report accesses: a watched thread pays 0.3
//! to 1 us for each of its page faults, also those in other memory. A thread that is started later
//! is watched within [`LOOK_PERIOD_NS`]. Until then its faults are missing, and its next one is
//! taken for a jump.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use hither_ids::{Address, FileKey, Pid, Tid};
use hither_kernel::file_id::FileId;
use hither_kernel::file_id::Inode;
use hither_kernel::mapped_files::{MappedProcess, Mapping, identify, mappings};
use hither_kernel::page_cache::PageCacheError;
use hither_kernel::page_faults::{PageFaults, PerfRings, WatchError};

use crate::polling::Periodic;

/// How often the threads and mappings of the programs that are watched are looked up.
const LOOK_PERIOD_NS: u64 = 100_000_000;

/// A file of less than this share of the page cache, 1/8, is not watched.
const SMALLEST_DIVISOR: u64 = 8;

/// The most threads of a program that are watched: each takes a descriptor and 64 KiB.
const THREADS_MAX: usize = 64;

/// Why mapped files are left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedError {
    /// Their pages cannot be dropped.
    Drop(PageCacheError),
    /// Page faults cannot be watched.
    Watch(WatchError),
}

impl MappedError {
    /// Whether it is the same for all programs: it is not where a program has just ended.
    fn is_lasting(&self) -> bool {
        match self {
            MappedError::Drop(reason) => {
                matches!(
                    reason,
                    PageCacheError::NotPermitted | PageCacheError::NoCall
                )
            }
            MappedError::Watch(reason) => !matches!(reason, WatchError::Other(_)),
        }
    }
}

impl std::fmt::Display for MappedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MappedError::Drop(PageCacheError::NotPermitted) => {
                f.write_str("to drop their pages takes CAP_SYS_NICE (process_madvise)")
            }
            MappedError::Drop(reason) => write!(f, "process_madvise: {reason}"),
            MappedError::Watch(reason) => reason.fmt(f),
        }
    }
}

/// A file that a program has mapped to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedFile {
    pub(super) key: FileKey,
    pub(super) id: FileId,
    pub(super) bytes: u64,
    pub(super) path: PathBuf,
    pub(super) pid: Pid,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A file is watched from now on.
    Watched(MappedFile),
    /// It cannot be any more.
    LeftAlone { file: FileKey },
}

/// A program whose page faults are watched.
#[derive(Debug)]
struct WatchedProcess {
    process: MappedProcess,
    threads: BTreeMap<Tid, PerfRings>,
    /// By key.
    files: BTreeMap<FileKey, Vec<Mapping>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct MappedFiles {
    by_pid: BTreeMap<Pid, WatchedProcess>,
    /// Files that are left alone for good.
    left_alone: BTreeSet<Inode>,
    look: Periodic,
    refused: Option<MappedError>,
    /// For the next [`changes`](Self::changes).
    changes: Vec<Change>,
}

impl MappedFiles {
    pub(super) fn new() -> MappedFiles {
        MappedFiles {
            by_pid: BTreeMap::new(),
            left_alone: BTreeSet::new(),
            look: Periodic::from_start(LOOK_PERIOD_NS),
            refused: None,
            changes: Vec::new(),
        }
    }

    /// Why files that could have been watched were not.
    pub(super) fn refused(&self) -> Option<MappedError> {
        self.refused
    }

    /// What has changed since the last call.
    pub(super) fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn is_watched(&self, file: FileKey) -> bool {
        let mut processes = self.by_pid.values();
        processes.any(|process| process.files.contains_key(&file))
    }

    /// Whether a file may be watched of which a program has mapped so much. `room_bytes` is the
    /// size of the page cache.
    pub(super) fn may_watch(&self, mapped_bytes: u64, room_bytes: u64) -> bool {
        self.refused.is_none() && mapped_bytes >= room_bytes / SMALLEST_DIVISOR
    }

    /// Watches the files of a process that can be steered.
    pub(super) fn watch(&mut self, pid: Pid, room_bytes: u64) {
        for mapping in steerable(&mappings(pid)) {
            let length = mapping.addresses.end - mapping.addresses.start;
            if self.may_watch(length, room_bytes) && !self.left_alone.contains(&mapping.file) {
                self.watch_file(pid, mapping);
            }
        }
        if let Some(process) = self.by_pid.get_mut(&pid) {
            process.look_up(pid, &mut Vec::new());
        }
    }

    fn watch_file(&mut self, pid: Pid, mapping: Mapping) {
        let Some((id, bytes)) = identify(&mapping.path, mapping.file) else {
            return;
        };
        let key = id.key();
        let holders = self.by_pid.iter();
        let mut holders = holders.filter(|(_, process)| process.files.contains_key(&key));
        match holders.next() {
            Some((&of, _)) if of == pid => return,
            // What two processes have mapped is not dropped.
            Some(_) => return self.leave_alone(key, mapping.file),
            None => {}
        }
        let process = match self.by_pid.entry(pid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match WatchedProcess::new(pid) {
                Ok(process) => entry.insert(process),
                Err(reason) => {
                    self.refused = Some(reason).filter(MappedError::is_lasting);
                    return;
                }
            },
        };
        process.files.insert(key, vec![mapping.clone()]);
        let path = mapping.path;
        self.changes.push(Change::Watched(MappedFile {
            key,
            id,
            bytes,
            path,
            pid,
        }));
    }

    /// Looks up threads and mappings, when it is time.
    pub(super) fn look(&mut self, now_ns: u64) {
        if self.by_pid.is_empty() || !self.look.is_due(now_ns) {
            return;
        }
        for (&pid, process) in &mut self.by_pid {
            process.watch_threads(pid);
        }
        self.look_up();
    }

    /// Looks up where files are mapped now: what is dropped there must be of the file.
    pub(super) fn look_up(&mut self) {
        let mut others = Vec::new();
        for (&pid, process) in &mut self.by_pid {
            process.look_up(pid, &mut others);
        }
        self.by_pid.retain(|_, process| !process.files.is_empty());
        for (key, file) in others {
            self.leave_alone(key, file);
        }
    }

    /// Passes on the faults in files that are watched: time, file, offset, thread.
    pub(super) fn drain(&mut self, mut sink: impl FnMut(u64, FileKey, u64, Tid)) {
        for process in self.by_pid.values_mut() {
            let WatchedProcess { threads, files, .. } = process;
            for rings in threads.values_mut() {
                rings.drain(&mut |fault| {
                    let at = |(&key, mappings): (&FileKey, &Vec<Mapping>)| {
                        let mut mappings = mappings.iter();
                        let found = mappings.find(|of| of.addresses.contains(&fault.address))?;
                        Some((key, found.offset + (fault.address - found.addresses.start)))
                    };
                    if let Some((key, offset)) = files.iter().find_map(at) {
                        sink(fault.time_ns, key, offset, fault.tid);
                    }
                });
            }
        }
    }

    /// Drops the mapped pages of a range of a file, where the file was mapped when
    /// [`look_up`](Self::look_up) was called last.
    pub(super) fn drop_pages(
        &self,
        file: FileKey,
        offset: u64,
        length: u64,
    ) -> Result<(), PageCacheError> {
        for process in self.by_pid.values() {
            for mapping in process.files.get(&file).into_iter().flatten() {
                if let Some(addresses) = addresses_of(mapping, offset..offset + length) {
                    process.process.drop_pages(addresses)?;
                }
            }
        }
        Ok(())
    }

    /// Watches a file no more.
    pub(super) fn unwatch(&mut self, file: FileKey) {
        for process in self.by_pid.values_mut() {
            let mappings = process.files.remove(&file);
            self.left_alone
                .extend(mappings.into_iter().flatten().map(|mapping| mapping.file));
        }
        self.by_pid.retain(|_, process| !process.files.is_empty());
    }

    /// Watches nothing any more, for now.
    pub(super) fn pause(&mut self) {
        self.by_pid.clear();
    }

    fn leave_alone(&mut self, key: FileKey, file: Inode) {
        self.unwatch(key);
        self.left_alone.insert(file);
        self.changes.push(Change::LeftAlone { file: key });
    }
}

impl WatchedProcess {
    fn new(pid: Pid) -> Result<WatchedProcess, MappedError> {
        let process = MappedProcess::open(pid).map_err(MappedError::Drop)?;
        // The first thread is there as long as the process; it may end at any time.
        let first = PerfRings::of_thread(pid.first_thread()).map_err(MappedError::Watch)?;
        let mut process = WatchedProcess {
            process,
            threads: BTreeMap::from([(pid.first_thread(), first)]),
            files: BTreeMap::new(),
        };
        process.watch_threads(pid);
        Ok(process)
    }

    /// Watches the threads that are new, and forgets those that have ended.
    fn watch_threads(&mut self, pid: Pid) {
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        let threads = threads.into_iter().flatten().flatten();
        let tid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<Tid>().ok();
        let threads: BTreeSet<Tid> = threads.filter_map(tid).take(THREADS_MAX).collect();
        self.threads.retain(|tid, _| threads.contains(tid));
        for tid in threads {
            if let Entry::Vacant(entry) = self.threads.entry(tid)
                && let Ok(rings) = PerfRings::of_thread(tid)
            {
                entry.insert(rings);
            }
        }
    }

    /// Looks up where the files are mapped now, and forgets those that are not. Those that are
    /// mapped in another way as well are added to `others`.
    fn look_up(&mut self, pid: Pid, others: &mut Vec<(FileKey, Inode)>) {
        let found = mappings(pid);
        let steerable = steerable(&found);
        self.files.retain(|&key, mappings| {
            let Some(file) = mappings.first().map(|mapping| mapping.file) else {
                return false;
            };
            let of_file = |mapping: &&Mapping| mapping.file == file;
            *mappings = steerable.iter().filter(of_file).cloned().collect();
            if mappings.is_empty() && found.iter().any(|mapping| mapping.file == file) {
                others.push((key, file));
            }
            !mappings.is_empty()
        });
    }
}

/// The mappings of files that are mapped to be read, and in no other way.
fn steerable(mappings: &[Mapping]) -> Vec<Mapping> {
    let others = mappings.iter().filter(|mapping| !mapping.is_read_only);
    let others: BTreeSet<Inode> = others.map(|mapping| mapping.file).collect();
    let only_read = |mapping: &&Mapping| !others.contains(&mapping.file);
    mappings.iter().filter(only_read).cloned().collect()
}

/// Where a range of a file is mapped.
fn addresses_of(mapping: &Mapping, range: Range<u64>) -> Option<Range<Address>> {
    let length = mapping.addresses.end - mapping.addresses.start;
    let from = range.start.max(mapping.offset) - mapping.offset;
    let to = range.end.saturating_sub(mapping.offset).min(length);
    let start = mapping.addresses.start;
    (from < to).then(|| start + from..start + to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(inode: u64, is_read_only: bool) -> Mapping {
        Mapping {
            addresses: Address(0x10_0000)..Address(0x50_0000),
            offset: 0x2000,
            file: Inode::on(0, 1, inode),
            is_read_only,
            is_writable: false,
            path: PathBuf::from("/a"),
        }
    }

    #[test]
    fn files_that_are_mapped_in_another_way_too_are_not_steered() {
        let all = [mapping(1, true), mapping(2, true), mapping(2, false)];
        assert_eq!(steerable(&all), [mapping(1, true)]);
    }

    #[test]
    fn ranges_of_a_file_are_found_where_they_are_mapped() {
        let at = |range| addresses_of(&mapping(1, true), range).map(|of| of.start.0..of.end.0);
        assert_eq!(at(0x2000..0x3000), Some(0x10_0000..0x10_1000));
        assert_eq!(at(0..0x3000), Some(0x10_0000..0x10_1000));
        assert_eq!(at(0x3000..u64::MAX), Some(0x10_1000..0x50_0000));
        assert_eq!(at(0..0x2000), None);
        assert_eq!(at(0x40_2000..0x40_3000), None);
    }

    #[test]
    fn refusals_say_what_is_missing() {
        let refused = MappedError::Drop(PageCacheError::NotPermitted).to_string();
        assert!(refused.contains("CAP_SYS_NICE"), "{refused}");
    }
}
