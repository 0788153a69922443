//! Records touches of mapped files (`hither record --mapped`).
//!
//! A touch of a mapped page is no call. What can be seen is a page fault, by perf's software event.
//! The kernel maps up to 16 pages for each ("fault-around"), and no fault comes once a page is
//! mapped. So one page in each part of a file is watched: the agent takes it out of the page table
//! again and again, and leaves it cached (`hither_kernel::page_unmapping`). Its touches stand for
//! those of the whole part, as in SHARDS (Waldspurger et al., FAST 2015).
//!
//! [`spaces`] knows what is mapped where, [`pattern`] makes touched ranges of faults, and
//! [`arming`] unmaps the watched pages.

mod arming;
mod pattern;
mod spaces;

use std::ops::Range;
use std::path::Path;

use hither_ids::{Address, FileKey, Pid};
use hither_kernel::address_spaces::{AddressSpaces, SpaceEvent};
use hither_kernel::file_id::Inode;
use hither_kernel::mapped_files::mapped_inode;
use hither_kernel::page_bytes;
use hither_kernel::page_cache::PageCacheError;
use hither_kernel::page_faults::Fault;
use hither_trace::schema::Touches;
use rustc_hash::{FxHashMap, FxHashSet};

use arming::Arming;
use pattern::{FOLIO_BYTES_MAX, PageFault, Pattern, WatchedFile};
use spaces::Spaces;

/// A part of a file that was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) fault: Fault,
    /// The file's key.
    pub(super) object: FileKey,
    /// The call site that mapped it.
    pub(super) signature: u64,
    /// The process that did: this one, or one that it descends from.
    pub(super) mapped_by: Pid,
    pub(super) bytes: Range<u64>,
}

/// A file that programs have mapped by calls that were recorded.
#[derive(Debug)]
struct MappedFile {
    object: FileKey,
    watched: WatchedFile,
}

/// See the module.
#[derive(Debug)]
pub(super) struct MappedTouches {
    events: AddressSpaces,
    spaces: Spaces,
    pattern: Pattern,
    arming: Arming,
    /// By device and inode where they are mapped.
    files: FxHashMap<Inode, MappedFile>,
    /// The call sites that mapped them last, by process.
    sites: FxHashMap<Pid, FxHashMap<Inode, u64>>,
    /// Those of them that programs may write to where they are mapped.
    writable: FxHashSet<Inode>,
    /// The keys of files that a report of the kernel's names: their touches are seen.
    reported: FxHashSet<FileKey>,
    /// The devices of files where they are mapped, by those that `stat` gives.
    devices: FxHashMap<u64, u64>,
}

impl MappedTouches {
    pub(super) fn new(events: AddressSpaces) -> MappedTouches {
        MappedTouches {
            events,
            spaces: Spaces::default(),
            pattern: Pattern::default(),
            arming: Arming::default(),
            files: FxHashMap::default(),
            sites: FxHashMap::default(),
            writable: FxHashSet::default(),
            reported: FxHashSet::default(),
            devices: FxHashMap::default(),
        }
    }

    /// A process has mapped a file by a recorded call. Its touches count from now on. Shared memory
    /// is no file.
    pub(super) fn on_map(
        &mut self,
        pid: Pid,
        (object, signature): (FileKey, u64),
        file: Inode,
        (path, bytes): (&Path, u64),
    ) {
        if path.starts_with("/dev/shm") {
            return;
        }
        let file = self.where_mapped(file, path);
        let entry = self.files.entry(file).or_insert_with(|| {
            let now = std::fs::metadata(path).map_or(0, |about| about.len());
            MappedFile {
                object,
                watched: WatchedFile::new(bytes.max(now)),
            }
        });
        entry.object = object;
        self.sites.entry(pid).or_default().insert(file, signature);
        if !self.reported.contains(&object) && self.spaces.has(pid, file) {
            self.reported.insert(object);
        }
    }

    /// A file's inode where it is mapped; that of `stat` if it cannot be asked.
    fn where_mapped(&mut self, file: Inode, path: &Path) -> Inode {
        if let Some(&device) = self.devices.get(&file.device) {
            return Inode { device, ..file };
        }
        let Some(inode) = mapped_inode(path, file) else {
            return file;
        };
        if inode.number == file.number {
            self.devices.insert(file.device, inode.device);
        }
        inode
    }

    /// Passes on the touches up to `until_ns`. Returns the number of the kernel's events.
    pub(super) fn drain(&mut self, until_ns: u64, mut sink: impl FnMut(Touch)) -> usize {
        let MappedTouches {
            events,
            spaces,
            pattern,
            arming,
            files,
            sites,
            writable,
            reported,
            ..
        } = self;
        let drained = events.drain(until_ns, &mut |event| match event {
            SpaceEvent::Fault(fault) => {
                let Some(hit) = spaces.at(fault.pid, fault.address) else {
                    return;
                };
                let Some(file) = files.get_mut(&hit.file) else {
                    return;
                };
                let page = fault.address.page_start(page_bytes());
                let offset = hit.offset_of(page);
                file.watched.reached(offset);
                // A child has the mappings of the process that started it.
                let mut line = spaces.line_of(fault.pid);
                let by = line.find_map(|pid| Some((pid, *sites.get(&pid)?.get(&hit.file)?)));
                let Some((mapped_by, signature)) = by else {
                    return;
                };
                let was_armed = arming.faulted(fault.pid, page);
                let page_fault = PageFault {
                    offset,
                    address: page,
                    was_armed,
                };
                let names = (fault.tid, hit.file);
                if let Some(bytes) = pattern.on_fault(names, &file.watched, page_fault) {
                    sink(Touch {
                        fault,
                        object: file.object,
                        signature,
                        mapped_by,
                        bytes,
                    });
                }
                if !hit.is_read_only {
                    writable.insert(hit.file);
                    return;
                }
                let around = if was_armed {
                    offset..offset + 1
                } else {
                    let start = offset - offset % FOLIO_BYTES_MAX;
                    start..start + FOLIO_BYTES_MAX
                };
                for offset in file.watched.watched_pages(around) {
                    if let Some(address) = hit.address_of(offset) {
                        arming.watch(fault.pid, hit.file, address, offset);
                    }
                }
            }
            SpaceEvent::Exec { pid } => {
                arming.forget(pid);
                spaces.on_event(&event);
            }
            SpaceEvent::Ended { pid, tid } => {
                pattern.ended(tid);
                if spaces.ended(pid) {
                    arming.forget(pid);
                }
            }
            _ => {
                if let SpaceEvent::Mapped(range) = &event
                    && let Some(file) = range.file.and_then(|file| files.get(&file))
                    && !range.is_executable
                {
                    reported.insert(file.object);
                }
                spaces.on_event(&event);
            }
        });
        for pid in spaces.take_forgotten() {
            sites.remove(&pid);
        }
        drained
    }

    /// Unmaps watched pages, when it is time, for at most a few milliseconds.
    pub(super) fn arm(&mut self, now_ns: u64) {
        let spaces = &self.spaces;
        self.arming.step(now_ns, |pid, address, file, offset| {
            let hit = spaces.at(Pid(pid), Address(address));
            hit.is_some_and(|hit| hit.file == file && hit.offset_of(Address(address)) == offset)
        });
    }

    /// Why watched pages cannot be unmapped.
    pub(super) fn refused(&self) -> Option<PageCacheError> {
        self.arming.refused()
    }

    /// Whether the touches of a file are seen at all.
    pub(super) fn sees(&self, object: FileKey) -> bool {
        self.reported.contains(&object)
    }

    /// What the trace says of them, but for the files that are not seen.
    pub(super) fn summary(&self) -> Touches {
        let first_only = match self.arming.refused() {
            Some(_) => self.files.len(),
            None => {
                let mut files = self.writable.clone();
                files.extend(self.arming.never_armed());
                files.len()
            }
        };
        Touches {
            interval_ns: self.arming.longest_interval_ns(),
            first_only_files: first_only as u64,
            lost_faults: self.events.lost(),
            ..Touches::default()
        }
    }
}
