//! What the kernel reports of the page cache, as a source of events: it sees programs that have no
//! library of ours, such as static ones, and those that run already.
//!
//! [`Observer`] has the events. Here they become the records that the library would have made. A
//! process is announced by its first event, a file by its first use. Pages stand for bytes: of a
//! read it is known which pages it needed. Call sites are not known: all accesses of a program to a
//! file are of one.

use std::collections::VecDeque;
use std::fs;
use std::hash::Hasher;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hither_ids::{FileKey, Pid, Tid};
use hither_kernel::file_id::FileId;
use hither_kernel::mapped_files::identify;
use hither_kernel::page_bytes;
use hither_kernel::pid_namespace::PidNamespace;
use hither_kernel_events::event::{Event, File, Kind, What};
use hither_kernel_events::{Mounts, Observer};
use hither_session::record::{Op, Record, USED_FILE, signature};
use hither_session::session::{Lost, RingInfo};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::event_source::{EventSource, TakeRecord};

/// The library's rings have the indices below.
const FIRST_INDEX: usize = 1 << 16;

/// Program images of the library have lower numbers.
const FIRST_IMAGE: u32 = 1 << 31;

/// As much of a program's arguments as the library sends.
const ARGUMENTS_BYTES_MAX: usize = 1024;

/// Of the type of a file in its mode, and a regular file's.
const TYPE_OF_FILE: u32 = 0o170_000;
const REGULAR_FILE: u32 = 0o100_000;

/// See the module.
pub(crate) struct KernelSource {
    observer: Observer,
    named: Named,
}

/// What has got a name already.
#[derive(Debug, Default)]
struct Named {
    /// What processes run, as far as it was read while they lived.
    abouts: FxHashMap<Pid, About>,
    images: FxHashMap<Pid, ProcessImage>,
    /// How many there were.
    image_count: u32,
    /// Indices of threads that have ended, with the generation of each.
    free: VecDeque<(usize, u64)>,
    /// How many indices there are.
    index_count: usize,
    /// None of files that are not recorded.
    files: FxHashMap<File, Option<FileKey>>,
    /// Programs, and the files that each uses.
    sites: FxHashSet<(u64, FileKey)>,
    modules: FxHashSet<u64>,
    mounts: Mounts,
}

/// What a process runs.
#[derive(Debug)]
struct ProcessImage {
    number: u32,
    /// The key of the program's file.
    program: u64,
    exe: PathBuf,
    threads: FxHashMap<Tid, RingInfo>,
}

impl KernelSource {
    /// Of what an observer sees, of these processes at first.
    pub(crate) fn new(observer: Observer, processes: &[Pid]) -> KernelSource {
        let mut named = Named::default();
        processes.iter().for_each(|&process| named.look_up(process));
        KernelSource { observer, named }
    }
}

impl EventSource for KernelSource {
    fn drain(&mut self, until_ns: u64, take: &mut TakeRecord<'_>) -> usize {
        let KernelSource { observer, named } = self;
        observer.drain(until_ns, &mut |event| named.take(&event, take))
    }

    fn deadline_ns(&self) -> Option<u64> {
        Some(self.observer.deadline_ns())
    }

    fn lost(&self) -> Lost {
        let lost = self.observer.lost();
        let events = lost.events() - lost.damaged;
        Lost {
            events,
            // Of each at least a page.
            bytes: events.saturating_mul(page_bytes()),
            damaged: lost.damaged,
            ..Lost::default()
        }
    }

    fn close(&mut self) {
        self.observer.close();
    }
}

impl Named {
    /// Makes records of an event.
    fn take(&mut self, event: &Event<'_>, take: &mut TakeRecord<'_>) {
        match event.what {
            What::Pages {
                kind,
                file,
                first_page,
                last_page,
                same_fault,
                ..
            } => {
                let Some(&Some(object)) = self.files.get(&file) else {
                    return;
                };
                // Past the last page that a file can have, there is nothing.
                let pages = first_page..last_page.saturating_add(1);
                if pages.is_empty() {
                    return;
                }
                let ring = self.ring(event, take);
                let signature = self.site(&ring, object, take);
                for (op, pages) in accesses(kind, same_fault, pages).into_iter().flatten() {
                    let access = Record::Access {
                        op,
                        flags: 0,
                        cpu: event.cpu,
                        time_ns: event.time_ns,
                        signature,
                        object,
                        offset: pages.start.saturating_mul(page_bytes()),
                        length: (pages.end - pages.start).saturating_mul(page_bytes()),
                    };
                    take(&ring, access);
                }
            }
            What::File {
                file,
                size,
                mode,
                names,
                ..
            } => {
                if self.files.contains_key(&file) {
                    return;
                }
                if mode & TYPE_OF_FILE != REGULAR_FILE {
                    self.files.insert(file, None);
                    return;
                }
                let path = names.path().unwrap_or_default();
                let path = self.path(file, &path);
                let inode = file.inode();
                // A file without a path that leads to it is told apart by its generation.
                let (id, size) = identify(&path, inode).unwrap_or((
                    FileId {
                        device: inode.device,
                        inode: inode.number,
                        birth_ns: u64::from(file.generation),
                    },
                    size,
                ));
                let ring = self.ring(event, take);
                let object = id.key();
                self.files.insert(file, Some(object));
                let defined = Record::Object {
                    object,
                    id,
                    size,
                    asked_pages: None,
                    path: path.as_os_str().as_bytes(),
                };
                take(&ring, defined);
            }
            // It announces itself by its first event. Until it executes a program, it is its
            // parent's.
            What::Fork { parent } => {
                let about = self.abouts.get(&parent).cloned();
                let about = about.map(|about| About { parent, ..about });
                self.abouts
                    .extend(about.map(|about| (event.process, about)));
            }
            What::Exec => {
                self.forget(event.process);
                self.look_up(event.process);
            }
            What::Exit => self.forget(event.process),
        }
    }

    /// The thread of an event, which is announced by the first one.
    fn ring(&mut self, event: &Event<'_>, take: &mut TakeRecord<'_>) -> RingInfo {
        let (pid, tid) = (event.process, event.thread);
        let known = self.images.get(&pid).and_then(|of| of.threads.get(&tid));
        if let Some(ring) = known {
            return *ring;
        }
        let (index, generation) = self.free.pop_front().unwrap_or_else(|| {
            self.index_count += 1;
            (FIRST_INDEX + self.index_count - 1, 0)
        });
        let ring = RingInfo {
            index,
            pid,
            tid,
            namespace: PidNamespace::OWN,
            generation: generation + 1,
        };
        if !self.abouts.contains_key(&pid) {
            self.look_up(pid);
        }
        let about = self.abouts.get(&pid).cloned().unwrap_or_default();
        let image_count = &mut self.image_count;
        let image = self.images.entry(pid).or_insert_with(|| {
            *image_count += 1;
            ProcessImage {
                number: FIRST_IMAGE + *image_count - 1,
                program: hash(about.exe.as_os_str().as_bytes()),
                exe: about.exe.clone(),
                threads: FxHashMap::default(),
            }
        });
        image.threads.insert(tid, ring);
        let process = Record::Process {
            pid,
            parent: about.parent,
            image: image.number,
            forked: false,
            time_ns: event.time_ns,
            exe: about.exe.as_os_str().as_bytes(),
            args: &about.args,
        };
        take(&ring, process);
        ring
    }

    /// Finds out what a process runs, if it has not ended.
    fn look_up(&mut self, process: Pid) {
        let about = About::of(process);
        if !about.exe.as_os_str().is_empty() {
            self.abouts.insert(process, about);
        }
    }

    /// The site of a program's accesses to a file, which is defined by the first one.
    fn site(&mut self, ring: &RingInfo, object: FileKey, take: &mut TakeRecord<'_>) -> u64 {
        let Some(image) = self.images.get(&ring.pid) else {
            return 0;
        };
        let frames = [image.program, 0, USED_FILE, object.0];
        let signature = signature(&frames);
        if self.sites.insert((image.program, object)) {
            if self.modules.insert(image.program) {
                let module = Record::Module {
                    module: image.program,
                    build_id: &[],
                    path: image.exe.as_os_str().as_bytes(),
                };
                take(ring, module);
            }
            let site = Record::Site {
                signature,
                truncated: true,
                frames: &frames,
            };
            take(ring, site);
        }
        signature
    }

    /// A process has ended, or runs another program.
    fn forget(&mut self, process: Pid) {
        self.abouts.remove(&process);
        let threads = self.images.remove(&process).map(|image| image.threads);
        let threads = threads.into_iter().flat_map(FxHashMap::into_values);
        self.free
            .extend(threads.map(|ring| (ring.index, ring.generation)));
    }

    /// Where a file is. File systems may be mounted meanwhile.
    fn path(&mut self, file: File, below_root: &Path) -> PathBuf {
        let found = self.mounts.path(file.device, below_root);
        let found = found.or_else(|| {
            self.mounts = Mounts::read().ok()?;
            self.mounts.path(file.device, below_root)
        });
        found.unwrap_or_else(|| Path::new("/").join(below_root))
    }
}

/// The same for the same bytes in each recording.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// What the kernel's event is to a program: nothing if it is the kernel's own doing.
fn accesses(kind: Kind, same_fault: bool, pages: Range<u64>) -> [Option<(Op, Range<u64>)>; 2] {
    match kind {
        Kind::Read => [Some((Op::Read, pages)), None],
        Kind::Fault => [Some((Op::Fault, pages)), None],
        Kind::Dirty => [Some((Op::Write, pages)), None],
        Kind::Map => {
            // Which of these was touched is not known, nor which will be.
            let first = pages.start..pages.start + 1;
            let touched = (!same_fault).then_some((Op::Fault, first));
            let others = pages.end - pages.start > 1;
            [touched, others.then_some((Op::Map, pages))]
        }
        Kind::Insert | Kind::Evict => [None, None],
    }
}

/// What /proc says of a process. It may have ended.
#[derive(Clone, Debug, Default)]
struct About {
    parent: Pid,
    exe: PathBuf,
    args: Vec<u8>,
}

impl About {
    fn of(pid: Pid) -> About {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
        let mut args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        args.truncate(ARGUMENTS_BYTES_MAX);
        About {
            parent: parent.and_then(|pid| pid.parse().ok()).unwrap_or_default(),
            exe: fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default(),
            args,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_around_a_touch_is_no_touch() {
        let of = |kind, same_fault, pages| accesses(kind, same_fault, pages);
        let some = |op, pages| Some((op, pages));
        assert_eq!(of(Kind::Read, false, 2..9), [some(Op::Read, 2..9), None]);
        assert_eq!(of(Kind::Dirty, false, 2..9), [some(Op::Write, 2..9), None]);
        let (fault, map) = (some(Op::Fault, 2..3), some(Op::Map, 2..9));
        assert_eq!(of(Kind::Map, false, 2..9), [fault.clone(), map.clone()]);
        assert_eq!(of(Kind::Map, true, 2..9), [None, map]);
        assert_eq!(of(Kind::Map, false, 2..3), [fault, None]);
        assert_eq!(of(Kind::Evict, false, 2..9), [None, None]);
    }
}
