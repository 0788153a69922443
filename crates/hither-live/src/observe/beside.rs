//! What the kernel reports beside the library in the programs: an access that both see counts once.
//!
//! The library reports a call after it has returned, with its file, its range and its thread. The
//! kernel has reported the pages of that call by then. So an event of the kernel waits until a
//! later call of its thread is known: if that call is of the same file and of some of these pages,
//! the event is part of it, and is left out. If not, or if no call follows, nobody else has seen
//! the access (io_uring, a call that the library does not stand in place of, a program without
//! the library), and it is recorded.
//!
//! Of a program with the library, what its loader does is left out, and touches of mapped files
//! are recorded only of files that the library has said to be mapped: all but programs and
//! libraries. Of other programs, touches of the program's own file and of shared libraries are left
//! out.

use std::collections::VecDeque;
use std::ops::Range;

use hither_ids::{FileKey, Tid};
use hither_kernel::file_id::Inode;
use hither_kernel::page_bytes;
use hither_kernel::pid_namespace::PidNamespace;
use hither_session::session::RingInfo;
use hither_trace::schema::RowOp;
use rustc_hash::{FxHashMap, FxHashSet};

use super::intern::Definitions;
use super::order::HOLD_NS;
use super::streams::{FORKS_MAX, Image, NamespacedPid, Streams, file_name};
use super::tables::Event;
use crate::event_loop::Drained;
use crate::kernel_source::is_kernels_image;

/// How long an event waits for the call that it may be part of. It must still be in time to be
/// sorted.
const WAIT_NS: u64 = HOLD_NS / 10 * 9;

/// How often it is looked for events that have waited long enough.
const OVERDUE_PERIOD_NS: u64 = HOLD_NS / 32;

/// How long calls are kept: an event may be read a little later than what was reported after it, if
/// the kernel was interrupted while another one was written.
const KEPT_NS: u64 = HOLD_NS / 10;

/// The most events that wait: 40 MiB. Then all are recorded that wait.
const WAITING_MAX: usize = 1 << 19;

/// The most events of a thread whose calls last longer than they can wait.
const OVERDUE_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Beside {
    threads: FxHashMap<Thread, Reports>,
    /// How many events wait.
    waiting: usize,
    /// When it was last looked for those that are overdue.
    looked_ns: u64,
    /// Files that the library has said to be mapped.
    mapped: FxHashSet<FileKey>,
    /// Touches of mapped files are sampled.
    samples_touches: bool,
    files: SameFiles,
    /// Bytes of reads that the kernel alone has reported.
    read_bytes: u64,
}

/// A thread, by its number in its own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Thread {
    namespace: PidNamespace,
    tid: Tid,
}

/// What was reported of a thread, in order of time.
#[derive(Debug, Default)]
struct Reports {
    /// By the library.
    calls: VecDeque<Access>,
    /// By the kernel, to be compared with later calls.
    waiting: VecDeque<Event>,
    /// Those that were recorded before a call came that they may be part of.
    overdue: Vec<Access>,
}

#[derive(Clone, Debug)]
struct Access {
    time_ns: u64,
    op: RowOp,
    object: FileKey,
    pages: Range<u64>,
}

impl Access {
    fn of(event: &Event) -> Access {
        let end = event.offset.saturating_add(event.length);
        Access {
            time_ns: event.time_ns,
            op: event.op,
            object: event.object,
            pages: event.offset / page_bytes()..end.div_ceil(page_bytes()),
        }
    }

    /// Whether an access of the same kind, which ended no earlier, is to some of the same pages.
    fn is_part_of(&self, call: &Access) -> bool {
        let both = self.pages.start.max(call.pages.start)..self.pages.end.min(call.pages.end);
        self.time_ns < call.time_ns && self.op == call.op && !both.is_empty()
    }
}

impl Beside {
    /// If touches are sampled, the kernel's events of them are not used where the library is.
    pub(super) fn new(samples_touches: bool) -> Beside {
        Beside {
            samples_touches,
            ..Beside::default()
        }
    }

    /// Bytes of reads that the kernel alone has reported.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The key that stands for a file.
    pub(super) fn file_of(&self, object: FileKey) -> FileKey {
        self.files.of(object)
    }

    /// A file gets its name. Returns whether it is one of which nothing was known.
    pub(super) fn define(&mut self, object: FileKey, inode: Inode, by_kernel: bool) -> bool {
        self.files.define(object, inode, by_kernel);
        self.files.of(object) == object
    }

    /// The library has reported an access. Returns whether it is to be recorded.
    pub(super) fn by_library(&mut self, ring: &RingInfo, event: &Event) -> bool {
        if event.op == RowOp::Map {
            self.mapped.insert(self.files.of(event.object));
        }
        let call = Access::of(event);
        let files = &self.files;
        let reports = self.threads.entry(Thread::of(ring)).or_default();
        let before = reports.overdue.len();
        let is_same = |of: &Access| of.is_part_of(&call) && files.are_same(of.object, call.object);
        reports.overdue.retain(|of| !is_same(of));
        let is_recorded = reports.overdue.len() < before;
        reports.calls.push_back(call);
        !is_recorded
    }

    /// The kernel has reported an access.
    pub(super) fn by_kernel(&mut self, ring: &RingInfo, event: Event) {
        let reports = self.threads.entry(Thread::of(ring)).or_default();
        reports.waiting.push_back(event);
        self.waiting += 1;
    }

    /// All sources were drained. Returns what is to be recorded of the kernel's events.
    pub(super) fn settle(&mut self, known: &Known<'_>, drained: &Drained) -> Vec<Event> {
        let Drained {
            at_ns: now_ns,
            until_ns,
            last,
        } = *drained;
        let mut alone = Vec::new();
        let is_full = self.waiting > WAITING_MAX;
        let looks = last || is_full || now_ns.saturating_sub(self.looked_ns) >= OVERDUE_PERIOD_NS;
        if looks {
            self.looked_ns = now_ns;
        }
        let overdue_ns = if last || is_full {
            u64::MAX
        } else {
            now_ns.saturating_sub(WAIT_NS)
        };
        let kept_from_ns = now_ns.saturating_sub(KEPT_NS);
        let kept_from_ns = until_ns.map_or(kept_from_ns, |until_ns| kept_from_ns.min(until_ns));
        let mut threads = std::mem::take(&mut self.threads);
        threads.retain(|_, reports| {
            let mut later = 0;
            while let Some(event) = reports.waiting.front() {
                let access = Access::of(event);
                let is_before = |call: &Access| call.time_ns <= access.time_ns;
                while reports.calls.get(later).is_some_and(is_before) {
                    later += 1;
                }
                let has_returned = later < reports.calls.len();
                let is_overdue = looks && access.time_ns <= overdue_ns;
                if !has_returned && !is_overdue {
                    break;
                }
                let Some(event) = reports.waiting.pop_front() else {
                    break;
                };
                self.waiting -= 1;
                let mut next = reports.calls.range(later..);
                let call = next.next();
                // One call makes two records of a file that it reads and of one that it writes to.
                let other = next
                    .next()
                    .filter(|other| call.is_some_and(|call| call.op != other.op));
                let files = &mut self.files;
                let is_seen = |call: &Access| {
                    access.is_part_of(call) && files.are_of_a_call(known, &access, call)
                };
                if call.into_iter().chain(other).any(is_seen) {
                    continue;
                }
                if !has_returned && reports.overdue.len() < OVERDUE_MAX {
                    reports.overdue.push(access);
                }
                if self.counts(known, &event) {
                    if event.op == RowOp::Read {
                        self.read_bytes = self.read_bytes.saturating_add(event.length);
                    }
                    alone.push(event);
                }
            }
            let is_old = |call: &Access| call.time_ns < kept_from_ns;
            while reports.calls.front().is_some_and(is_old) {
                reports.calls.pop_front();
            }
            !looks || !reports.is_empty()
        });
        self.threads = threads;
        alone
    }

    /// Whether an event that nobody else has seen is recorded.
    fn counts(&self, known: &Known<'_>, event: &Event) -> bool {
        let image = known.image(event);
        let is_touch = matches!(event.op, RowOp::Fault | RowOp::Map);
        let object = self.files.of(event.object);
        if known.has_library(image) {
            let is_loading = !image.forked && event.time_ns < image.time_ns;
            let is_known = is_touch && (self.samples_touches || !self.mapped.contains(&object));
            !is_loading && !is_known
        } else {
            !is_touch || !known.is_code(image, object)
        }
    }
}

impl Reports {
    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.waiting.is_empty() && self.overdue.is_empty()
    }
}

impl Thread {
    fn of(ring: &RingInfo) -> Thread {
        Thread {
            namespace: ring.namespace,
            tid: ring.tid,
        }
    }
}

/// What is known of programs and files.
pub(super) struct Known<'a> {
    pub(super) streams: &'a Streams,
    pub(super) definitions: &'a Definitions,
}

impl Known<'_> {
    fn image(&self, event: &Event) -> &Image {
        let image = self.streams.stream(event.stream).image;
        &self.streams.images()[image as usize]
    }

    /// Whether a program has the library, or is a fork of one that has, and has done nothing yet
    /// that the library reports.
    fn has_library(&self, image: &Image) -> bool {
        let mut image = image;
        for _ in 0..FORKS_MAX {
            if !is_kernels_image(image.number) {
                return true;
            }
            let parent = NamespacedPid {
                pid: image.parent,
                ..image.pid
            };
            match self.streams.youngest(parent).filter(|_| image.forked) {
                Some(parent) => image = &self.streams.images()[parent as usize],
                None => return false,
            }
        }
        false
    }

    /// Whether a file is that of the program, of which no more than its name may be known, or a
    /// shared library, by its name.
    fn is_code(&self, image: &Image, object: FileKey) -> bool {
        let Some(file) = self.definitions.object(object) else {
            return false;
        };
        let program = self.definitions.named(&image.exe);
        let name = file_name(&file.path);
        let mut parts = name.split(|byte| *byte == b'.').skip(1);
        file.path == *program || name == &*program || parts.any(|part| part == b"so")
    }
}

/// The keys of each file: the library has another one than the kernel, which does not know when a
/// file was born.
#[derive(Debug, Default)]
struct SameFiles {
    /// The key that was known first, by the other one.
    first: FxHashMap<FileKey, FileKey>,
    /// The keys of an inode's file, as long as it has that number.
    keys: FxHashMap<Inode, Keys>,
    /// Keys of files that both have named.
    shared: FxHashSet<FileKey>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    library: Option<FileKey>,
    kernel: Option<FileKey>,
}

impl SameFiles {
    fn of(&self, object: FileKey) -> FileKey {
        *self.first.get(&object).unwrap_or(&object)
    }

    fn are_same(&self, one: FileKey, other: FileKey) -> bool {
        self.of(one) == self.of(other)
    }

    fn define(&mut self, object: FileKey, inode: Inode, by_kernel: bool) {
        let keys = self.keys.entry(inode).or_default();
        let own = if by_kernel { keys.kernel } else { keys.library };
        if own == Some(object) {
            return;
        }
        if own.is_some() {
            // The number is another file's by now.
            *keys = Keys::default();
        }
        let other = if by_kernel {
            keys.kernel = Some(object);
            keys.library
        } else {
            keys.library = Some(object);
            keys.kernel
        };
        if let Some(other) = other {
            self.join(other, object);
        }
    }

    /// Two keys are of one file.
    fn join(&mut self, first: FileKey, later: FileKey) {
        let first = self.of(first);
        if first != later {
            self.first.insert(later, first);
        }
        self.shared.extend([first, later]);
    }

    /// Whether an event is of the file of the call that it was in. On Btrfs and overlayfs, the
    /// library sees other devices than the kernel's events have, so that a file cannot be known by
    /// its inode: there, of two that have no other key yet, it is the same.
    fn are_of_a_call(&mut self, known: &Known<'_>, event: &Access, call: &Access) -> bool {
        if self.are_same(event.object, call.object) {
            return true;
        }
        if self.shared.contains(&event.object) || self.shared.contains(&call.object) {
            return false;
        }
        let of = |object| known.definitions.object(object);
        let (Some(by_kernel), Some(by_library)) = (of(event.object), of(call.object)) else {
            return false;
        };
        let is_same = by_kernel.id.device != by_library.id.device
            && by_kernel.size == by_library.size
            && file_name(&by_kernel.path) == file_name(&by_library.path);
        if is_same {
            self.join(call.object, event.object);
        }
        is_same
    }
}

#[cfg(test)]
mod tests {
    use hither_ids::Pid;
    use hither_kernel::file_id::FileId;
    use hither_session::record::Record;

    use super::*;

    /// Image numbers of the kernel.
    const KERNELS: u32 = 1 << 31;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Reports of a program that reads a file, by both.
    struct Reported {
        beside: Beside,
        streams: Streams,
        definitions: Definitions,
    }

    fn ring(index: usize, pid: u32, tid: u32) -> RingInfo {
        RingInfo {
            index,
            pid: Pid(pid),
            tid: Tid(tid),
            namespace: PidNamespace::OWN,
            generation: 0,
        }
    }

    fn file(device: u64, inode: u64, birth_ns: u64) -> FileId {
        FileId {
            device,
            inode,
            birth_ns,
        }
    }

    impl Reported {
        /// The process 7 has the library, and 8 has not.
        fn new() -> Reported {
            let mut reported = Reported {
                beside: Beside::new(false),
                streams: Streams::default(),
                definitions: Definitions::default(),
            };
            reported.announce(&ring(0, 7, 7), 1, 10, "/bin/dynamic", false);
            reported.announce(&ring(70_000, 8, 8), KERNELS, 10, "/bin/static", false);
            reported
        }

        fn announce(&mut self, ring: &RingInfo, image: u32, time_ns: u64, exe: &str, forked: bool) {
            let record = Record::Process {
                pid: ring.pid,
                parent: Pid(7),
                image,
                forked,
                time_ns,
                exe: exe.as_bytes(),
                args: b"",
            };
            self.streams.on_record(ring, &record);
        }

        fn define(&mut self, id: FileId, path: &str, by_kernel: bool) -> FileKey {
            let object = id.key();
            if self.beside.define(object, id.inode(), by_kernel) {
                let record = Record::Object {
                    object,
                    id,
                    size: 1 << 20,
                    asked_pages: None,
                    path: path.as_bytes(),
                };
                self.definitions.on_record(&record, Vec::new);
            }
            object
        }

        fn event(&mut self, ring: &RingInfo, time_ns: u64, op: RowOp, object: FileKey) -> Event {
            Event {
                time_ns,
                signature: 0,
                object,
                offset: 0,
                length: page_bytes(),
                stream: self.streams.of(ring),
                node: 0,
                op,
                in_kernel: false,
                unknown_site: false,
            }
        }

        fn by_kernel(&mut self, ring: &RingInfo, time_ns: u64, op: RowOp, object: FileKey) {
            let event = self.event(ring, time_ns, op, object);
            self.beside.by_kernel(ring, event);
        }

        fn by_library(
            &mut self,
            ring: &RingInfo,
            time_ns: u64,
            op: RowOp,
            object: FileKey,
        ) -> bool {
            let event = self.event(ring, time_ns, op, object);
            self.beside.by_library(ring, &event)
        }

        /// The times of what is recorded after a drain.
        fn settled(&mut self, at_ns: u64, last: bool) -> Vec<u64> {
            let known = Known {
                streams: &self.streams,
                definitions: &self.definitions,
            };
            let drained = Drained {
                at_ns,
                until_ns: None,
                last,
            };
            let alone = self.beside.settle(&known, &drained);
            alone.into_iter().map(|event| event.time_ns).collect()
        }
    }

    #[test]
    fn a_read_that_both_have_seen_counts_once() {
        let mut reported = Reported::new();
        let (library, kernel) = (ring(0, 7, 7), ring(70_001, 7, 7));
        let seen = reported.define(file(1, 2, 99), "/data", false);
        let same = reported.define(file(1, 2, 3), "/data", true);
        assert_ne!(seen, same);
        assert_eq!(reported.beside.file_of(same), seen);
        assert!(reported.by_library(&library, 110, RowOp::Read, seen));
        reported.by_kernel(&kernel, 100, RowOp::Read, same);
        assert!(reported.settled(200, false).is_empty());
        // The call has not returned when the kernel's event is read.
        reported.by_kernel(&kernel, 210, RowOp::Read, same);
        assert!(reported.settled(220, false).is_empty());
        assert!(reported.by_library(&library, 230, RowOp::Read, seen));
        assert!(reported.settled(240, true).is_empty());
        assert_eq!(reported.beside.read_bytes(), 0);
    }

    #[test]
    fn what_the_library_has_not_seen_is_recorded() {
        let mut reported = Reported::new();
        let (library, kernel) = (ring(0, 7, 7), ring(70_001, 7, 7));
        let seen = reported.define(file(1, 2, 99), "/data", false);
        let other = reported.define(file(1, 4, 0), "/other", true);
        // A call that is no hook's, of another file, another kind, or another thread.
        reported.by_kernel(&kernel, 100, RowOp::Read, other);
        reported.by_kernel(&kernel, 101, RowOp::Write, seen);
        reported.by_kernel(&ring(70_002, 7, 9), 102, RowOp::Read, seen);
        reported.by_kernel(&kernel, 103, RowOp::Read, seen);
        reported.by_library(&library, 110, RowOp::Read, seen);
        let mut recorded = reported.settled(200, false);
        assert_eq!(recorded, [100, 101]);
        recorded = reported.settled(300, true);
        assert_eq!(recorded, [102]);
        // A program without the library.
        reported.by_kernel(&ring(70_000, 8, 8), 400, RowOp::Read, seen);
        assert!(reported.settled(500, false).is_empty());
        assert_eq!(reported.settled(400 + SECOND_NS, false), [400]);
        assert_eq!(reported.beside.read_bytes(), 3 * page_bytes());
    }

    #[test]
    fn of_a_call_that_lasts_the_kernels_event_stays() {
        let mut reported = Reported::new();
        let (library, kernel) = (ring(0, 7, 7), ring(70_001, 7, 7));
        let seen = reported.define(file(1, 2, 99), "/data", false);
        reported.by_kernel(&kernel, 100, RowOp::Read, seen);
        assert_eq!(reported.settled(3 * SECOND_NS, false), [100]);
        assert!(!reported.by_library(&library, 3 * SECOND_NS + 1, RowOp::Read, seen));
        assert!(reported.by_library(&library, 3 * SECOND_NS + 2, RowOp::Read, seen));
    }

    #[test]
    fn touches_count_of_what_the_library_has_said_to_be_mapped() {
        let mut reported = Reported::new();
        let (library, kernel) = (ring(0, 7, 7), ring(70_001, 7, 7));
        let data = reported.define(file(1, 2, 99), "/data", false);
        let code = reported.define(file(1, 4, 0), "/lib/libc.so", true);
        reported.by_library(&library, 50, RowOp::Map, data);
        // The loader's, before the library begins.
        reported.by_kernel(&kernel, 5, RowOp::Read, code);
        reported.by_kernel(&kernel, 100, RowOp::Fault, data);
        reported.by_kernel(&kernel, 101, RowOp::Fault, code);
        // A fork that has done nothing yet that the library reports.
        let fork = ring(70_003, 9, 9);
        reported.announce(&fork, KERNELS + 1, 90, "/bin/dynamic", true);
        reported.by_kernel(&fork, 102, RowOp::Fault, code);
        reported.by_kernel(&fork, 103, RowOp::Read, code);
        // A program without the library touches itself, and others.
        let program = reported.define(file(1, 5, 0), "/bin/static", true);
        let fixed = ring(70_000, 8, 8);
        reported.by_kernel(&fixed, 104, RowOp::Fault, program);
        reported.by_kernel(&fixed, 105, RowOp::Fault, data);
        reported.by_kernel(&fixed, 106, RowOp::Fault, code);
        let mut recorded = reported.settled(SECOND_NS, true);
        recorded.sort_unstable();
        assert_eq!(recorded, [100, 103, 105]);
        // They are sampled: the kernel's events of them are not used.
        reported.beside.samples_touches = true;
        reported.by_kernel(&kernel, 200, RowOp::Fault, data);
        assert!(reported.settled(2 * SECOND_NS, true).is_empty());
    }

    #[test]
    fn a_number_that_is_used_again_is_another_file() {
        let mut files = SameFiles::default();
        let inode = file(1, 2, 0).inode();
        let key = |number| FileKey(number);
        files.define(key(10), inode, false);
        files.define(key(20), inode, true);
        assert!(files.are_same(key(10), key(20)));
        // The kernel is first to name the next one.
        files.define(key(21), inode, true);
        files.define(key(11), inode, false);
        assert!(files.are_same(key(11), key(21)));
        assert!(!files.are_same(key(10), key(21)));
        assert_eq!(files.of(key(11)), key(21));
    }

    #[test]
    fn a_file_whose_device_has_two_numbers_is_known_by_a_call() {
        let mut reported = Reported::new();
        let (library, kernel) = (ring(0, 7, 7), ring(70_001, 7, 7));
        let seen = reported.define(file(50, 2, 99), "/merged/data", false);
        let same = reported.define(file(1, 900, 0), "/upper/data", true);
        let other = reported.define(file(1, 901, 0), "/upper/other", true);
        reported.by_kernel(&kernel, 100, RowOp::Read, other);
        reported.by_kernel(&kernel, 101, RowOp::Read, same);
        reported.by_library(&library, 110, RowOp::Read, seen);
        assert_eq!(reported.settled(SECOND_NS, true), [100]);
        assert_eq!(reported.beside.file_of(same), seen);
    }
}
