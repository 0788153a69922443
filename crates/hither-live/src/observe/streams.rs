//! Which thread of which program image a ring is of.

use hither_ids::{Pid, Tid};
use hither_kernel::pid_namespace::PidNamespace;
use hither_session::record::Record;
use hither_session::session::RingInfo;
use rustc_hash::FxHashMap;

use crate::kernel_source::is_kernels_image;

/// A process, by its id in its pid namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NamespacedPid {
    pub(crate) namespace: PidNamespace,
    pub(crate) pid: Pid,
}

impl NamespacedPid {
    /// The process of a ring's owner.
    pub(crate) fn of(ring: &RingInfo) -> NamespacedPid {
        NamespacedPid {
            namespace: ring.namespace,
            pid: ring.pid,
        }
    }

    /// A process in the agent's own namespace.
    pub(crate) fn own(pid: Pid) -> NamespacedPid {
        NamespacedPid {
            namespace: PidNamespace::OWN,
            pid,
        }
    }
}

/// A program image: what a process runs from its start, or from an exec, until the next exec or its
/// end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) pid: NamespacedPid,
    /// Its parent's id, in the namespace of its own.
    pub(crate) parent: Pid,
    /// CLOCK_MONOTONIC when it first announced itself.
    pub(crate) time_ns: u64,
    pub(crate) exe: Vec<u8>,
    /// The arguments, each ended by a NUL byte.
    pub(crate) args: Vec<u8>,
    /// Its memory is a copy of its parent's.
    pub(super) forked: bool,
    /// What distinguishes it in the session; images that are younger have larger numbers. 0 if its
    /// announcement was lost.
    pub(super) number: u32,
    /// It has not announced itself: it was seen to touch what the process mapped that started it,
    /// and is taken for the same program.
    pub(super) is_inferred: bool,
}

/// What a process runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Program<'a> {
    exe: &'a [u8],
    args: &'a [u8],
}

impl Program<'_> {
    /// Whether the kernel's program is the library's. Of one that had ended when it was looked up,
    /// the kernel knows no more than the name: that of its file, or of the script that it runs.
    fn is_known_as(self, librarys: Program<'_>) -> bool {
        if self.exe.contains(&b'/') {
            return self == librarys;
        }
        let words = librarys
            .args
            .split(|byte| *byte == 0)
            .take(SCRIPT_WORDS_MAX);
        let mut words = words.chain([librarys.exe]);
        words.any(|word| {
            let name = file_name(word);
            &name[..name.len().min(COMMAND_NAME_MAX)] == self.exe
        })
    }
}

/// The last part of a path.
pub(super) fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

impl Image {
    fn program(&self) -> Program<'_> {
        Program {
            exe: &self.exe,
            args: &self.args,
        }
    }

    /// Whether it is no older than another one of its process.
    fn is_younger(&self, other: &Image) -> bool {
        if is_kernels_image(self.number) == is_kernels_image(other.number) {
            self.number >= other.number
        } else {
            self.time_ns >= other.time_ns
        }
    }
}

/// A thread of a program image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) tid: Tid,
    pub(crate) image: u32,
}

/// The most bytes that the kernel keeps of a program's name.
const COMMAND_NAME_MAX: usize = 15;

/// The first words of a command line among which the name of a script is: interpreter, its option,
/// script.
const SCRIPT_WORDS_MAX: usize = 3;

/// How many generations of forked processes are asked for names.
pub(super) const FORKS_MAX: usize = 8;

/// The thread and program image of each ring.
///
/// Each ring begins with the announcement of its program image, by the number that the session has
/// given it: neither process ids that are used again nor those of other pid namespaces mix images
/// up.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    images: Vec<Image>,
    /// By their numbers in the session.
    numbered: FxHashMap<u32, u32>,
    /// The youngest image of each process.
    youngest: FxHashMap<NamespacedPid, u32>,
    /// All images of each process.
    of_process: FxHashMap<NamespacedPid, Vec<u32>>,
    /// When each process has begun to run a program, by the kernel's first event of it.
    began_ns: FxHashMap<NamespacedPid, Vec<u64>>,
    streams: Vec<Stream>,
    /// Generation and stream of each ring's owner.
    owners: Vec<Option<(u64, u32)>>,
    /// The youngest stream of each thread.
    by_thread: FxHashMap<Stream, u32>,
}

impl Streams {
    /// The stream that writes to a ring.
    pub(crate) fn of(&mut self, ring: &RingInfo) -> u32 {
        match self.owners.get(ring.index) {
            Some(&Some((generation, stream))) if generation == ring.generation => stream,
            // Its announcement was lost: it belongs to the process's latest image.
            _ => {
                let pid = NamespacedPid::of(ring);
                let image = self.youngest(pid).unwrap_or_else(|| {
                    self.add(Image {
                        pid,
                        ..Image::default()
                    })
                });
                self.claim(ring, image)
            }
        }
    }

    /// A record of a ring, which may announce a program image. Returns the image if it is new.
    pub(crate) fn on_record(&mut self, ring: &RingInfo, record: &Record<'_>) -> Option<u32> {
        let Record::Process {
            parent,
            image: number,
            forked,
            time_ns,
            exe,
            args,
            ..
        } = *record
        else {
            return None;
        };
        let pid = NamespacedPid::of(ring);
        // The number may be one that a stray store of the program wrote.
        let is_its = |image: &u32| self.images[*image as usize].pid == pid;
        let known = self.numbered.get(&number).copied().filter(is_its);
        let announced = Image {
            pid,
            parent,
            time_ns,
            exe: exe.to_owned(),
            args: args.to_owned(),
            forked,
            number,
            is_inferred: false,
        };
        if is_kernels_image(number) && known.is_none() && !forked {
            self.began_ns.entry(pid).or_default().push(time_ns);
        }
        let same = known.is_none().then(|| self.same(pid, &announced));
        let same = same.flatten();
        if let Some(image) = same.filter(|_| is_kernels_image(number)) {
            self.numbered.insert(number, image);
        } else if let Some(image) = same {
            let known = &mut self.images[image as usize];
            (known.number, known.is_inferred) = (number, false);
            (known.parent, known.time_ns, known.forked) = (parent, time_ns, forked);
            // Of a program that had ended when it was looked up, the kernel knows a name alone.
            known.exe.clone_from(&announced.exe);
            known.args.clone_from(&announced.args);
            self.numbered.insert(number, image);
        }
        let is_new = known.is_none();
        let known = known.or(same);
        let image = known.unwrap_or_else(|| self.add(announced));
        self.claim(ring, image);
        is_new.then_some(image)
    }

    /// The image of a process that runs this program, which is announced by the kernel or by the
    /// library: if it was announced by the other one, or was taken for this program before.
    ///
    /// Either may announce several programs of a process before the other does. The kernel tells of
    /// a program before the library in it has begun.
    fn same(&self, pid: NamespacedPid, announced: &Image) -> Option<u32> {
        let by_kernel = is_kernels_image(announced.number);
        let image = |number: &u32| &self.images[*number as usize];
        let youngest = self.youngest(pid)?;
        let is_same = |number: &u32| {
            let known = image(number);
            if is_kernels_image(known.number) == by_kernel {
                *number == youngest && known.is_inferred && announced.program() == known.program()
            } else if by_kernel {
                announced.program().is_known_as(known.program())
                    && (announced.forked || announced.time_ns <= known.time_ns)
            } else {
                known.program().is_known_as(announced.program())
                    && (announced.forked || known.time_ns <= announced.time_ns)
            }
        };
        let of_process = self.of_process.get(&pid)?.iter().filter(|of| is_same(of));
        let nearest = of_process.min_by_key(|of| image(of).time_ns.abs_diff(announced.time_ns));
        nearest.copied()
    }

    /// The processes that may have named the code made at run time of a ring's owner: itself, and
    /// its parents as far as it was forked and runs on with their memory. None in another pid
    /// namespace, where ids of processes mean others.
    pub(crate) fn maps_of(&mut self, ring: &RingInfo) -> Vec<Pid> {
        let mut pids = Vec::new();
        if !ring.namespace.is_own() {
            return pids;
        }
        let of = self.of(ring);
        let mut image = Some(self.stream(of).image);
        while let Some(at) = image.filter(|_| pids.len() < FORKS_MAX) {
            let Image {
                pid,
                parent,
                forked,
                ..
            } = self.images[at as usize];
            pids.push(pid.pid);
            let parent = NamespacedPid { pid: parent, ..pid };
            image = forked.then(|| self.youngest(parent)).flatten();
        }
        pids
    }

    /// The image that a process runs.
    pub(crate) fn youngest(&self, pid: NamespacedPid) -> Option<u32> {
        self.youngest.get(&pid).copied()
    }

    /// What a process ran at a time.
    pub(super) fn ran_at(&self, pid: NamespacedPid, time_ns: u64) -> Option<&Image> {
        let of_process = self.of_process.get(&pid)?.iter();
        let of_process = of_process.map(|&number| &self.images[number as usize]);
        // The library tells of a program a little after it has begun.
        let first = of_process.clone().min_by_key(|of| of.time_ns);
        let before = of_process.filter(|of| of.time_ns <= time_ns);
        before.max_by_key(|of| of.time_ns).or(first)
    }

    /// Whether the library has begun in a program that the kernel has announced, before the process
    /// ran another one.
    pub(super) fn has_library(&self, image: &Image) -> bool {
        let since = |&time_ns: &u64| time_ns >= image.time_ns;
        let of_process = self.of_process.get(&image.pid).into_iter().flatten();
        let of_process = of_process.map(|&number| &self.images[number as usize]);
        let librarys = of_process.filter(|of| !is_kernels_image(of.number));
        let first = librarys.map(|of| of.time_ns).filter(since).min();
        let began_ns = self.began_ns.get(&image.pid).into_iter().flatten();
        let next = began_ns
            .copied()
            .filter(|&began| began > image.time_ns)
            .min();
        first.is_some_and(|first| next.is_none_or(|next| first < next))
    }

    fn add(&mut self, image: Image) -> u32 {
        let index = self.images.len() as u32;
        self.numbered.insert(image.number, index);
        self.of_process.entry(image.pid).or_default().push(index);
        let youngest = self.youngest.entry(image.pid).or_insert(index);
        // Rings are read in any order.
        let before = self.images.get(*youngest as usize);
        if before.is_some_and(|before| image.is_younger(before)) {
            *youngest = index;
        }
        self.images.push(image);
        index
    }

    fn claim(&mut self, ring: &RingInfo, image: u32) -> u32 {
        let stream = self.add_stream(Stream {
            tid: ring.tid,
            image,
        });
        if self.owners.len() <= ring.index {
            self.owners.resize(ring.index + 1, None);
        }
        self.owners[ring.index] = Some((ring.generation, stream));
        stream
    }

    fn add_stream(&mut self, stream: Stream) -> u32 {
        let number = self.streams.len() as u32;
        self.streams.push(stream);
        self.by_thread.insert(stream, number);
        number
    }

    /// The stream of a thread, which may have no ring, by its numbers here. Its process is
    /// `parent`, or descends from it; it has not announced itself if it has made no recorded call.
    /// `None` if that process is not recorded.
    pub(crate) fn of_thread(&mut self, pid: Pid, tid: Tid, parent: Pid) -> Option<u32> {
        let image = match self.youngest(NamespacedPid::own(pid)) {
            Some(image) => image,
            None => {
                let started_by = self.youngest(NamespacedPid::own(parent))?;
                let same = self.images[started_by as usize].clone();
                self.add(Image {
                    pid: NamespacedPid::own(pid),
                    parent,
                    number: 0,
                    is_inferred: true,
                    ..same
                })
            }
        };
        let stream = Stream { tid, image };
        let known = self.by_thread.get(&stream).copied();
        Some(known.unwrap_or_else(|| self.add_stream(stream)))
    }

    pub(crate) fn stream(&self, stream: u32) -> Stream {
        self.streams[stream as usize]
    }

    pub(crate) fn images(&self) -> &[Image] {
        &self.images
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(index: usize, pid: Pid, tid: Tid, generation: u64) -> RingInfo {
        RingInfo {
            index,
            pid,
            tid,
            namespace: PidNamespace::OWN,
            generation,
        }
    }

    fn announced(streams: &mut Streams, ring: &RingInfo, image: u32, exe: &str) -> Option<u32> {
        let record = Record::Process {
            pid: ring.pid,
            parent: Pid(1),
            image,
            forked: false,
            time_ns: u64::from(image),
            exe: exe.as_bytes(),
            args: b"",
        };
        streams.on_record(ring, &record)
    }

    #[test]
    fn names_are_looked_for_in_the_maps_of_parents_with_the_same_memory() {
        let mut streams = Streams::default();
        let mut process = |pid: Pid, parent, forked| {
            let ring = ring(pid.0 as usize, pid, pid.first_thread(), 0);
            let record = Record::Process {
                pid,
                parent,
                image: pid.0,
                forked,
                time_ns: 0,
                exe: b"/bin/a",
                args: b"",
            };
            streams.on_record(&ring, &record);
            streams
                .maps_of(&ring)
                .iter()
                .map(|pid| pid.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(process(Pid(1), Pid(0), true), [1]);
        assert_eq!(
            process(Pid(2), Pid(1), false),
            [2],
            "it runs another program"
        );
        assert_eq!(process(Pid(3), Pid(2), true), [3, 2]);
        assert_eq!(process(Pid(4), Pid(3), true), [4, 3, 2]);
        assert_eq!(
            process(Pid(5), Pid(5), true),
            [5; FORKS_MAX],
            "a parent that cannot be"
        );
        let inside = RingInfo {
            namespace: PidNamespace::from_bits(77),
            ..ring(9, Pid(4), Tid(4), 0)
        };
        assert!(streams.maps_of(&inside).is_empty());
    }

    #[test]
    fn an_exec_starts_a_new_image_and_a_thread_does_not() {
        let mut streams = Streams::default();
        let (main, thread, next) = (
            ring(0, Pid(5), Tid(5), 0),
            ring(1, Pid(5), Tid(6), 0),
            ring(2, Pid(5), Tid(5), 0),
        );
        // The thread's ring may be read first.
        assert_eq!(announced(&mut streams, &thread, 3, "/bin/sh"), Some(0));
        assert_eq!(announced(&mut streams, &main, 3, "/bin/sh"), None);
        let before = [streams.of(&main), streams.of(&thread)];
        assert_eq!(announced(&mut streams, &next, 4, "/bin/ls"), Some(1));
        // The old ring may still hold the shell's events.
        assert_eq!(streams.of(&main), before[0]);
        let rings = [before[0], before[1], streams.of(&next)];
        let images = rings.map(|stream| streams.stream(stream).image);
        assert_eq!(images, [0, 0, 1]);
        assert_eq!(streams.images()[1].exe, b"/bin/ls");
        assert_eq!(streams.youngest(NamespacedPid::own(Pid(5))), Some(1));
    }

    #[test]
    fn a_process_id_used_again_is_another_process() {
        let mut streams = Streams::default();
        let (first, later) = (ring(0, Pid(5), Tid(5), 0), ring(1, Pid(5), Tid(9), 0));
        // The later one's is read first, of a thread that is not its main one.
        assert_eq!(announced(&mut streams, &later, 8, "/bin/b"), Some(0));
        assert_eq!(announced(&mut streams, &first, 2, "/bin/a"), Some(1));
        assert_eq!(streams.youngest(NamespacedPid::own(Pid(5))), Some(0));
        let images = [first, later].map(|ring| {
            let stream = streams.of(&ring);
            streams.stream(stream).image
        });
        assert_eq!(images, [1, 0]);
    }

    #[test]
    fn equal_ids_of_two_pid_namespaces_are_two_processes() {
        let mut streams = Streams::default();
        let inside = |index, bits| RingInfo {
            namespace: PidNamespace::from_bits(bits),
            ..ring(index, Pid(1), Tid(1), 0)
        };
        let rings = [ring(0, Pid(1), Tid(1), 0), inside(1, 77), inside(2, 78)];
        for (number, ring) in (1..).zip(&rings) {
            assert_eq!(
                announced(&mut streams, ring, number, "/bin/a"),
                Some(number - 1)
            );
        }
        for (image, ring) in (0..).zip(&rings) {
            assert_eq!(streams.youngest(NamespacedPid::of(ring)), Some(image));
        }
        // Written over by a program: a number that another process has.
        assert_eq!(
            announced(&mut streams, &inside(3, 79), 1, "/bin/a"),
            Some(3)
        );
    }

    #[test]
    fn a_thread_without_a_ring_has_a_stream_of_its_process() {
        let mut streams = Streams::default();
        assert_eq!(streams.of_thread(Pid(5), Tid(5), Pid(5)), None);
        announced(&mut streams, &ring(0, Pid(5), Tid(5), 0), 1, "/bin/sort");
        let first = streams.of(&ring(0, Pid(5), Tid(5), 0));
        assert_eq!(streams.of_thread(Pid(5), Tid(5), Pid(5)), Some(first));
        let other = streams
            .of_thread(Pid(5), Tid(6), Pid(5))
            .expect("of the process");
        assert_eq!(streams.of_thread(Pid(5), Tid(6), Pid(5)), Some(other));
        assert_eq!(
            streams.stream(other),
            Stream {
                tid: Tid(6),
                image: 0
            }
        );
    }

    #[test]
    fn a_child_that_has_announced_nothing_is_the_program_of_its_parent() {
        let mut streams = Streams::default();
        announced(&mut streams, &ring(0, Pid(5), Tid(5), 0), 1, "/bin/sort");
        for child in [7, 8] {
            let stream = streams
                .of_thread(Pid(child), Tid(child), Pid(5))
                .expect("a process");
            let image = streams.stream(stream).image;
            assert_eq!(streams.images()[image as usize].exe, b"/bin/sort");
        }
        // One makes a call after all, the other runs another program.
        let same = announced(&mut streams, &ring(1, Pid(7), Tid(7), 0), 2, "/bin/sort");
        assert_eq!(same, Some(1));
        assert_eq!(
            announced(&mut streams, &ring(2, Pid(8), Tid(8), 0), 3, "/bin/ls"),
            Some(3)
        );
        assert_eq!(streams.images().len(), 4);
    }

    #[test]
    fn a_ring_with_another_owner_is_another_stream() {
        let mut streams = Streams::default();
        announced(&mut streams, &ring(0, Pid(5), Tid(5), 0), 1, "/bin/a");
        let first = streams.of(&ring(0, Pid(5), Tid(5), 0));
        // The announcement of the next owner was lost.
        let second = streams.of(&ring(0, Pid(8), Tid(8), 1));
        assert_ne!(first, second);
        let image = streams.stream(second).image;
        assert_eq!(
            streams.images()[image as usize].pid,
            NamespacedPid::own(Pid(8))
        );
        assert_eq!(streams.of(&ring(0, Pid(8), Tid(8), 1)), second);
    }

    /// Of several programs of a process, one after the other, the one may tell before the other.
    #[test]
    fn the_kernels_programs_are_the_librarys_in_whatever_order_they_are_told_of() {
        const KERNELS: u32 = 1 << 31;
        let of = |image, time_ns, exe: &'static [u8], args: &'static [u8]| Record::Process {
            pid: Pid(5),
            parent: Pid(1),
            image,
            forked: false,
            time_ns,
            exe,
            args,
        };
        // A program without the library is in between. Of the last one the kernel knows the name.
        let librarys = [
            of(1, 12, b"/bin/a", b"a\x001"),
            of(2, 22, b"/bin/a", b"a\x002"),
            of(3, 42, b"/bin/a", b"a\x002"),
            of(4, 52, b"/bin/sh", b"sh\0./b"),
        ];
        let kernels = [
            of(KERNELS, 10, b"/bin/a", b"a\x001"),
            of(KERNELS + 1, 20, b"/bin/a", b"a\x002"),
            of(KERNELS + 2, 30, b"/bin/static", b"static"),
            of(KERNELS + 3, 40, b"/bin/a", b"a\x002"),
            of(KERNELS + 4, 50, b"b", b""),
        ];
        let images = |records: &[&Record<'_>]| {
            let mut streams = Streams::default();
            for (index, record) in records.iter().enumerate() {
                let ring = ring(index, Pid(5), Tid(5), 0);
                streams.on_record(&ring, record);
            }
            let mut times: Vec<(u64, bool)> = streams
                .images()
                .iter()
                .map(|image| (image.time_ns, is_kernels_image(image.number)))
                .collect();
            times.sort_unstable();
            let last = streams.images().iter().find(|image| image.time_ns == 52);
            assert_eq!(last.map(|image| &image.exe[..]), Some(&b"/bin/sh"[..]));
            times
        };
        let expected = [
            (12, false),
            (22, false),
            (30, true),
            (42, false),
            (52, false),
        ];
        let all: Vec<&Record<'_>> = librarys.iter().chain(&kernels).collect();
        assert_eq!(images(&all), expected);
        let all: Vec<&Record<'_>> = kernels.iter().chain(&librarys).collect();
        assert_eq!(images(&all), expected);
    }

    #[test]
    fn a_program_has_the_library_that_begins_before_the_next_program() {
        const KERNELS: u32 = 1 << 31;
        let mut streams = Streams::default();
        let mut announce = |index, image, time_ns, exe: &str| {
            let record = Record::Process {
                pid: Pid(5),
                parent: Pid(1),
                image,
                forked: false,
                time_ns,
                exe: exe.as_bytes(),
                args: b"",
            };
            streams.on_record(&ring(index, Pid(5), Tid(5), 0), &record);
        };
        // What it was called is not known rightly: it runs another one by then.
        announce(0, KERNELS, 10, "/bin/later");
        announce(1, KERNELS + 1, 20, "/bin/static");
        announce(2, KERNELS + 2, 30, "/bin/b");
        announce(3, 1, 12, "/bin/a");
        announce(4, 2, 32, "/bin/b");
        announce(5, KERNELS + 3, 40, "/bin/static");
        let has = |image: &Image| (image.time_ns, streams.has_library(image));
        let kernels = streams.images().iter();
        let kernels = kernels.filter(|image| is_kernels_image(image.number));
        let found: Vec<(u64, bool)> = kernels.map(has).collect();
        assert_eq!(found, [(10, true), (20, false), (40, false)]);
    }
}
