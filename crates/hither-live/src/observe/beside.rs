//! What the kernel reports beside the library in the programs: an access that both see counts once.
//!
//! Of a program with the library, the calls that read and write files are the library's. Of the
//! kernel's events those are recorded that are in no such call: by io_uring, of pages that were
//! written to through a mapping, and touches of files that the library has said to be mapped, which
//! are all but programs and libraries. A fork of such a program has the library, too, until it runs
//! another program. The kernel's side is told of it, so that these calls cost little. Programs in
//! Go load the library, but make their calls without libc: those are the kernel's.
//!
//! Of a program without the library, all events are recorded, but touches of its own file and of
//! shared libraries. That a program has none is known once it has had time to announce itself: till
//! then its events wait.

use std::collections::VecDeque;

use hither_ids::{FileKey, Pid};
use hither_kernel::file_id::Inode;
use hither_trace::schema::RowOp;
use rustc_hash::{FxHashMap, FxHashSet};

use super::intern::Definitions;
use super::order::HOLD_NS;
use super::streams::{FORKS_MAX, Image, NamespacedPid, Streams, file_name};
use super::tables::Event;
use crate::event_loop::Drained;
use crate::kernel_source::is_kernels_image;

/// How long a program may take to announce itself. Its events must still be in time to be sorted.
const WAIT_NS: u64 = HOLD_NS / 10 * 9;

/// How often it is looked for programs that have taken longer.
const LOOK_PERIOD_NS: u64 = HOLD_NS / 32;

/// The most events that wait: 40 MiB. Then those programs have no library that have not announced
/// themselves.
const WAITING_MAX: usize = 1 << 19;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// By program image, while it is not known whether it has the library.
    waiting: FxHashMap<u32, Vec<Waiting>>,
    /// How many events wait.
    count: usize,
    /// Program images that have not announced themselves in time.
    without: FxHashSet<u32>,
    /// Program images that have the library, and make their calls without it: the kernel tells of
    /// these.
    own_calls: FxHashSet<u32>,
    /// Programs of which the kernel's side has yet to learn that they have the library.
    pub(super) announced: Vec<Announced>,
    /// When it was last looked for these.
    looked_ns: u64,
    /// Files that the library has said to be mapped.
    mapped: FxHashSet<FileKey>,
    /// Touches of mapped files are sampled: the kernel's are not used where the library is.
    samples_touches: bool,
    files: SameFiles,
    /// Bytes of reads that the kernel alone has reported.
    read_bytes: u64,
    /// Those of them by programs that have the library.
    read_with_library_bytes: u64,
}

/// A program has announced itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    pub(super) process: Pid,
    pub(super) time_ns: u64,
}

/// An event of the kernel's.
#[derive(Debug)]
struct Waiting {
    event: Event,
    /// In a call that the library stands in place of, where it is.
    is_in_call: bool,
}

/// What is known of programs and files.
pub(super) struct Known<'a> {
    pub(super) streams: &'a Streams,
    pub(super) definitions: &'a Definitions,
}

impl Beside {
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

    /// Those of them by programs with the library: not by calls.
    pub(super) fn read_with_library_bytes(&self) -> u64 {
        self.read_with_library_bytes
    }

    /// The key that stands for a file.
    pub(super) fn file_of(&self, object: FileKey) -> FileKey {
        self.files.of(object)
    }

    /// A file gets its name. Returns whether it is one of which nothing was known.
    pub(super) fn define(&mut self, named: &NamedFile<'_>) -> bool {
        self.files.define(named);
        self.files.of(named.object) == named.object
    }

    /// A program image has the library, and makes its calls without it.
    pub(super) fn makes_own_calls(&mut self, image: u32) {
        self.own_calls.insert(image);
    }

    /// Whether an access that the library reports is recorded.
    pub(super) fn is_librarys(&self, image: u32, op: RowOp) -> bool {
        !matches!(op, RowOp::Read | RowOp::Write) || !self.own_calls.contains(&image)
    }

    /// The library has said that a file is mapped.
    pub(super) fn is_mapped(&mut self, object: FileKey) {
        self.mapped.insert(self.files.of(object));
    }

    /// The kernel has reported an access.
    pub(super) fn by_kernel(&mut self, streams: &Streams, event: Event, is_in_call: bool) {
        let image = streams.stream(event.stream).image;
        let waiting = Waiting { event, is_in_call };
        self.waiting.entry(image).or_default().push(waiting);
        self.count += 1;
    }

    /// All sources were drained. Returns what is to be recorded of the kernel's events.
    pub(super) fn settle(&mut self, known: &Known<'_>, drained: &Drained) -> Vec<Event> {
        let Drained { at_ns, last, .. } = *drained;
        let is_full = self.count > WAITING_MAX;
        let looks = last || is_full || at_ns.saturating_sub(self.looked_ns) >= LOOK_PERIOD_NS;
        if looks {
            self.looked_ns = at_ns;
        }
        let mut alone = Vec::new();
        let mut all = std::mem::take(&mut self.waiting);
        all.retain(|&number, waiting| {
            let image = &known.streams.images()[number as usize];
            let has_library = known.has_library(image);
            if !has_library && !self.without.contains(&number) {
                let first = waiting.first().map_or(at_ns, |first| first.event.time_ns);
                let is_late = at_ns.saturating_sub(first) >= WAIT_NS;
                if !(looks && (last || is_full || is_late)) {
                    return true;
                }
                self.without.insert(number);
            }
            let has_calls = has_library && !self.own_calls.contains(&number);
            self.count -= waiting.len();
            for Waiting { event, is_in_call } in waiting.drain(..) {
                let is_librarys = is_in_call && has_calls;
                if !self.counts(known, image, has_library, &event, is_librarys) {
                    continue;
                }
                if event.op == RowOp::Read {
                    self.read_bytes = self.read_bytes.saturating_add(event.length);
                    let bytes = if has_calls { event.length } else { 0 };
                    self.read_with_library_bytes =
                        self.read_with_library_bytes.saturating_add(bytes);
                }
                alone.push(event);
            }
            false
        });
        self.waiting = all;
        alone
    }

    /// Whether an event is recorded.
    fn counts(
        &self,
        known: &Known<'_>,
        image: &Image,
        has_library: bool,
        event: &Event,
        is_librarys: bool,
    ) -> bool {
        let object = self.files.of(event.object);
        match event.op {
            RowOp::Fault | RowOp::Map if has_library => {
                !self.samples_touches && self.mapped.contains(&object)
            }
            RowOp::Fault | RowOp::Map => !known.is_code(image, object),
            _ => !is_librarys,
        }
    }
}

impl Known<'_> {
    /// Whether a program has the library, or is a fork of one that has.
    fn has_library(&self, image: &Image) -> bool {
        let mut image = image;
        for _ in 0..FORKS_MAX {
            if !is_kernels_image(image.number) {
                return true;
            }
            if !image.forked {
                return self.streams.has_library(image);
            }
            let parent = NamespacedPid {
                pid: image.parent,
                ..image.pid
            };
            match self.streams.ran_at(parent, image.time_ns) {
                Some(parent) => image = parent,
                // The first process of a pid namespace has a parent outside.
                None => return !image.pid.namespace.is_own(),
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

/// A file, as the library or the kernel has named it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedFile<'a> {
    pub(super) object: FileKey,
    pub(super) inode: Inode,
    pub(super) path: &'a [u8],
    pub(super) by_kernel: bool,
}

/// The keys of each file: the library has another one than the kernel, which does not know when a
/// file was born.
///
/// They are joined by the inode, whose number is used again when a file is removed: the first file
/// that the one has named with the first that the other has, if they have the same name.
#[derive(Debug, Default)]
struct SameFiles {
    /// The key that was known first, by the other one.
    first: FxHashMap<FileKey, FileKey>,
    /// Files of an inode that only one has named so far, the oldest first.
    single: FxHashMap<Inode, VecDeque<Single>>,
    named: FxHashSet<FileKey>,
}

#[derive(Debug)]
struct Single {
    object: FileKey,
    name: Box<[u8]>,
    by_kernel: bool,
}

impl SameFiles {
    fn of(&self, object: FileKey) -> FileKey {
        *self.first.get(&object).unwrap_or(&object)
    }

    fn define(&mut self, named: &NamedFile<'_>) {
        let NamedFile {
            object,
            inode,
            path,
            by_kernel,
        } = *named;
        if !self.named.insert(object) {
            return;
        }
        let name = file_name(path);
        let single = self.single.entry(inode).or_default();
        let is_other = |of: &Single| of.by_kernel != by_kernel && *of.name == *name;
        match single.iter().position(is_other) {
            Some(at) => {
                let other = single.remove(at).map_or(object, |other| other.object);
                if other != object {
                    self.first.insert(object, other);
                }
            }
            None => single.push_back(Single {
                object,
                name: name.into(),
                by_kernel,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use hither_ids::Tid;
    use hither_kernel::file_id::FileId;
    use hither_kernel::page_bytes;
    use hither_kernel::pid_namespace::PidNamespace;
    use hither_session::record::Record;
    use hither_session::session::RingInfo;

    use super::*;

    /// Image numbers of the kernel.
    const KERNELS: u32 = 1 << 31;

    const SECOND_NS: u64 = 1_000_000_000;

    /// What both have reported.
    struct Reported {
        beside: Beside,
        streams: Streams,
        definitions: Definitions,
    }

    fn ring(index: usize, pid: u32) -> RingInfo {
        RingInfo {
            index,
            pid: Pid(pid),
            tid: Tid(pid),
            namespace: PidNamespace::OWN,
            generation: 0,
        }
    }

    fn file(inode: u64, birth_ns: u64) -> FileId {
        FileId {
            device: 1,
            inode,
            birth_ns,
        }
    }

    impl Reported {
        /// The process 7 has the library.
        fn new() -> Reported {
            let mut reported = Reported {
                beside: Beside::new(false),
                streams: Streams::default(),
                definitions: Definitions::default(),
            };
            reported.announce(&ring(0, 7), 1, "/bin/dynamic", false);
            reported
        }

        fn announce(&mut self, ring: &RingInfo, image: u32, exe: &str, forked: bool) {
            self.announce_at(ring, image, exe, forked, 10, 7);
        }

        fn announce_at(
            &mut self,
            ring: &RingInfo,
            image: u32,
            exe: &str,
            forked: bool,
            time_ns: u64,
            parent: u32,
        ) {
            let record = Record::Process {
                pid: ring.pid,
                parent: Pid(parent),
                image,
                forked,
                time_ns,
                exe: exe.as_bytes(),
                args: b"",
            };
            self.streams.on_record(ring, &record);
        }

        fn define(&mut self, id: FileId, path: &str, by_kernel: bool) -> FileKey {
            let named = NamedFile {
                object: id.key(),
                inode: id.inode(),
                path: path.as_bytes(),
                by_kernel,
            };
            if self.beside.define(&named) {
                let record = Record::Object {
                    object: id.key(),
                    id,
                    size: 1 << 20,
                    asked_pages: None,
                    path: path.as_bytes(),
                };
                self.definitions.on_record(&record, Vec::new);
            }
            id.key()
        }

        fn report(&mut self, ring: &RingInfo, time_ns: u64, op: RowOp, object: FileKey) {
            self.report_call(ring, time_ns, op, object, false);
        }

        fn report_call(
            &mut self,
            ring: &RingInfo,
            time_ns: u64,
            op: RowOp,
            object: FileKey,
            is_in_call: bool,
        ) {
            let event = Event {
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
            };
            self.beside.by_kernel(&self.streams, event, is_in_call);
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
            let mut times: Vec<u64> = alone.into_iter().map(|event| event.time_ns).collect();
            times.sort_unstable();
            times
        }
    }

    #[test]
    fn calls_of_a_program_with_the_library_are_the_librarys() {
        let mut reported = Reported::new();
        let data = reported.define(file(2, 99), "/data", false);
        let same = reported.define(file(2, 3), "/data", true);
        assert_ne!(data, same);
        assert_eq!(reported.beside.file_of(same), data);
        let main = ring(70_000, 7);
        reported.announce(&main, KERNELS, "/bin/dynamic", false);
        reported.report_call(&main, 100, RowOp::Read, same, true);
        reported.report_call(&main, 101, RowOp::Write, same, true);
        // By io_uring, and through a mapping.
        reported.report(&main, 102, RowOp::Read, same);
        reported.report(&main, 103, RowOp::Write, same);
        // A fork has the library, whether it reports anything or not.
        let fork = ring(70_001, 9);
        reported.announce(&fork, KERNELS + 1, "/bin/dynamic", true);
        reported.report_call(&fork, 104, RowOp::Read, same, true);
        assert_eq!(reported.settled(200, false), [102, 103]);
        assert_eq!(reported.beside.read_bytes(), page_bytes());
        assert_eq!(reported.beside.read_with_library_bytes(), page_bytes());
    }

    #[test]
    fn calls_that_a_program_makes_without_libc_are_the_kernels() {
        let mut reported = Reported::new();
        let data = reported.define(file(2, 99), "/data", false);
        let main = ring(70_000, 7);
        reported.announce(&main, KERNELS, "/bin/dynamic", false);
        let by = reported.streams.of(&main);
        let image = reported.streams.stream(by).image;
        assert!(reported.beside.is_librarys(image, RowOp::Read));
        reported.beside.makes_own_calls(image);
        assert!(!reported.beside.is_librarys(image, RowOp::Read));
        assert!(reported.beside.is_librarys(image, RowOp::Map));
        reported.report_call(&main, 100, RowOp::Read, data, true);
        assert_eq!(reported.settled(200, false), [100]);
        assert_eq!(reported.beside.read_bytes(), page_bytes());
        assert_eq!(reported.beside.read_with_library_bytes(), 0);
    }

    #[test]
    fn a_fork_has_what_its_parent_ran_then() {
        let mut reported = Reported::new();
        let data = reported.define(file(2, 99), "/data", false);
        // A program without the library forks, and then runs one that has it.
        let parent = ring(70_000, 8);
        reported.announce_at(&parent, KERNELS, "/bin/static", false, 10, 7);
        let fork = ring(70_001, 9);
        reported.announce_at(&fork, KERNELS + 1, "/bin/static", true, 20, 8);
        reported.announce_at(&ring(70_002, 8), KERNELS + 2, "/bin/next", false, 30, 7);
        reported.announce_at(&ring(1, 8), 2, "/bin/next", false, 40, 7);
        reported.report_call(&fork, 50, RowOp::Read, data, true);
        assert_eq!(reported.settled(60, true), [50]);
    }

    #[test]
    fn a_program_without_the_library_is_known_after_a_while() {
        let mut reported = Reported::new();
        let data = reported.define(file(2, 99), "/data", false);
        let (fixed, late) = (ring(70_000, 8), ring(70_001, 9));
        reported.announce(&fixed, KERNELS, "/bin/static", false);
        reported.announce(&late, KERNELS + 1, "/bin/late", false);
        reported.report_call(&fixed, 100, RowOp::Read, data, true);
        reported.report_call(&late, 100, RowOp::Read, data, true);
        assert!(reported.settled(200, false).is_empty());
        // The loader has read what the library did not see, and then it begins.
        reported.announce(&ring(1, 9), 2, "/bin/late", false);
        assert_eq!(reported.settled(SECOND_NS, false), [100]);
        // From now on nothing waits.
        reported.report_call(&fixed, SECOND_NS, RowOp::Read, data, true);
        assert_eq!(reported.settled(SECOND_NS + 1, false), [SECOND_NS]);
        assert_eq!(reported.beside.read_bytes(), 2 * page_bytes());
        assert_eq!(reported.beside.read_with_library_bytes(), 0);
        // At the end it is known of all.
        let last = ring(70_002, 10);
        reported.announce(&last, KERNELS + 2, "/bin/last", false);
        reported.report_call(&last, SECOND_NS + 2, RowOp::Read, data, true);
        assert_eq!(reported.settled(SECOND_NS + 3, true), [SECOND_NS + 2]);
    }

    #[test]
    fn touches_count_of_what_the_library_has_said_to_be_mapped() {
        let mut reported = Reported::new();
        let data = reported.define(file(2, 99), "/data", false);
        let code = reported.define(file(4, 0), "/lib/libc.so.6", true);
        reported.beside.is_mapped(data);
        let main = ring(70_000, 7);
        reported.announce(&main, KERNELS, "/bin/dynamic", false);
        reported.report(&main, 100, RowOp::Fault, data);
        reported.report(&main, 101, RowOp::Fault, code);
        // A program without the library touches itself, and others.
        let program = reported.define(file(5, 0), "/bin/static", true);
        let fixed = ring(70_001, 8);
        reported.announce(&fixed, KERNELS + 1, "/bin/static", false);
        reported.report(&fixed, 104, RowOp::Fault, program);
        reported.report(&fixed, 105, RowOp::Fault, data);
        reported.report(&fixed, 106, RowOp::Map, code);
        assert_eq!(reported.settled(SECOND_NS, true), [100, 105]);
        // They are sampled: the kernel's events of them are not used.
        reported.beside.samples_touches = true;
        reported.report(&main, 200, RowOp::Fault, data);
        assert!(reported.settled(2 * SECOND_NS, true).is_empty());
    }

    #[test]
    fn a_number_that_is_used_again_is_another_file() {
        let mut files = SameFiles::default();
        let mut define = |number, path: &[u8], by_kernel| {
            files.define(&NamedFile {
                object: FileKey(number),
                inode: file(2, 0).inode(),
                path,
                by_kernel,
            });
        };
        // The library's are known first: two files of one number, and one that the kernel has not
        // seen.
        define(10, b"/a", false);
        define(11, b"/b", false);
        define(12, b"/a", false);
        define(20, b"/x/a", true);
        define(22, b"/x/a", true);
        define(20, b"/x/a", true);
        // The kernel's is first.
        define(23, b"/c", true);
        define(13, b"/c", false);
        let of = |number| files.of(FileKey(number)).0;
        assert_eq!([20, 22, 11, 13].map(of), [10, 12, 11, 23]);
    }
}
