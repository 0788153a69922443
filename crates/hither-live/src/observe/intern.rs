//! Gives dense numbers to the keys in records.
//!
//! Keys are numbered when an access that names them is written, so that numbers follow the order of
//! the trace. Definitions are kept by key: they may come before their use, after it, or never.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::Hash;
use std::os::unix::ffi::OsStrExt;

use hither_ids::{FileKey, Pid, Tid};
use hither_kernel::file_id::{FileId, mix};
use hither_kernel::pid_namespace::PidNamespace;
use hither_session::record::{self, RUN_TIME_CODE, Record};
use hither_session::session::RingInfo;
use rustc_hash::FxHashMap;

use super::hashed_names::HashedNames;
use super::perf_maps::PerfMaps;
use crate::symbolise::Module;

/// What names of Python functions begin with.
pub(super) const PYTHON_FUNCTION: &str = "py::";

/// The key of the module that stands for named code made at run time: offsets in it are hashes of
/// names. The key is no hash of a build-id but by an accident as rare as that of two build-ids.
const NAMED_CODE: u64 = 0x6e61_6d65_645f_6a69;

/// Numbers keys from 0 in order of first appearance.
#[derive(Debug)]
pub(crate) struct Numbers<K> {
    numbers: FxHashMap<K, u32>,
    keys: Vec<K>,
}

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Numbers {
            numbers: FxHashMap::default(),
            keys: Vec::new(),
        }
    }
}

impl<K: Copy + Eq + Hash> Numbers<K> {
    pub(crate) fn number(&mut self, key: K) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() as u32 - 1
        })
    }

    /// The keys, in the order of their numbers.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }
}

/// A call site, as a program reported it.
#[derive(Debug)]
pub(crate) struct SiteDefinition {
    pub(crate) truncated: bool,
    /// Module key and return address of each frame, innermost first.
    pub(crate) frames: Box<[(u64, u64)]>,
}

/// A file, as a program reported it.
#[derive(Debug, Default)]
pub(crate) struct ObjectDefinition {
    pub(crate) id: FileId,
    pub(crate) size: u64,
    pub(crate) path: Vec<u8>,
}

/// All definitions so far. Of several definitions of one key the first counts.
///
/// A call stack with code made at run time has another signature in each process, since that code
/// has other addresses there. Its site is defined by the names of such code instead, and the
/// process's signature stands for that of this site.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    sites: FxHashMap<u64, SiteDefinition>,
    /// The sites that the signatures of processes stand for.
    stands_for: FxHashMap<u64, u64>,
    /// Names of code made at run time, by their hashes.
    names: FxHashMap<u64, Box<str>>,
    perf_maps: PerfMaps,
    pub(crate) objects: FxHashMap<FileKey, ObjectDefinition>,
    pub(crate) modules: FxHashMap<u64, Module>,
    /// Files have these names, if they are not to have their own.
    pub(crate) hashed_names: Option<HashedNames>,
}

impl Definitions {
    /// What is known of a file.
    pub(crate) fn object(&self, object: FileKey) -> Option<&ObjectDefinition> {
        self.objects.get(&object)
    }

    /// The devices of all files.
    pub(crate) fn devices(&self) -> BTreeSet<u64> {
        self.objects.values().map(|file| file.id.device).collect()
    }

    /// The signature that is the same in each process.
    #[inline]
    pub(crate) fn site_of(&self, signature: u64) -> u64 {
        *self.stands_for.get(&signature).unwrap_or(&signature)
    }

    /// What is known of a site.
    pub(crate) fn site(&self, signature: u64) -> Option<&SiteDefinition> {
        self.sites.get(&self.site_of(signature))
    }

    /// The name of a frame of code made at run time.
    pub(crate) fn code_name(&self, (module, offset): (u64, u64)) -> Option<&str> {
        let name = (module == NAMED_CODE).then(|| self.names.get(&offset))?;
        name.map(|name| &**name)
    }

    fn is_run_time(&self, module: u64) -> bool {
        let module = self.modules.get(&module);
        module.is_some_and(|module| module.path.as_os_str().as_bytes() == RUN_TIME_CODE)
    }

    /// The frame of code made at run time, by the maps of these processes.
    fn named_frame(&mut self, address: u64, pids: &[Pid]) -> Option<[u64; 2]> {
        let maps = &mut self.perf_maps;
        let name: Box<str> = pids
            .iter()
            .find_map(|&pid| maps.name(pid, address).map(Box::from))?;
        let hash = name
            .bytes()
            .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        self.names.entry(hash).or_insert(name);
        Some([NAMED_CODE, hash])
    }

    /// Leaves out the frames of CPython's program or library from a stack with Python functions:
    /// which of its functions make a call changes while it runs, as it specialises its bytecode.
    fn leave_out_interpreter(&self, frames: &mut Vec<[u64; 2]>) {
        let is_python = |&[module, offset]: &[u64; 2]| {
            let name = self.code_name((module, offset));
            name.is_some_and(|name| name.starts_with(PYTHON_FUNCTION))
        };
        // A trampoline calls the interpreter's loop. That of the innermost one comes first of all.
        let innermost = frames.iter().position(is_python);
        let called = innermost.and_then(|at| frames.get(at.checked_sub(1)?));
        if let Some(&[interpreter, _]) = called {
            frames.retain(|&[module, _]| module != interpreter);
        }
    }

    /// A call site of a process, as [`Definitions::on_record`].
    fn on_site(
        &mut self,
        signature: u64,
        mut truncated: bool,
        frames: &[[u64; 2]],
        maps_of: impl FnOnce() -> Vec<Pid>,
    ) {
        if self.stands_for.contains_key(&signature) {
            return;
        }
        let mut site = signature;
        let mut frames = frames.to_vec();
        if frames.iter().any(|&[module, _]| self.is_run_time(module)) {
            let pids = maps_of();
            let mut named: Vec<[u64; 2]> = Vec::new();
            for [module, offset] in frames {
                let frame = if self.is_run_time(module) {
                    self.named_frame(offset, &pids)
                } else {
                    Some([module, offset])
                };
                // What lies beyond code without a name is as little known.
                let Some(frame) = frame else {
                    truncated = true;
                    break;
                };
                if !named.contains(&frame) {
                    named.push(frame);
                }
            }
            self.leave_out_interpreter(&mut named);
            site = record::signature(named.as_flattened());
            self.stands_for.insert(signature, site);
            frames = named;
        }
        let definition = || SiteDefinition {
            truncated,
            frames: frames
                .into_iter()
                .map(|[module, at]| (module, at))
                .collect(),
        };
        self.sites.entry(site).or_insert_with(definition);
    }

    /// Takes in a record, if it defines something. `maps_of`: the processes whose maps may have the
    /// names of code made at run time, as [`Streams::maps_of`] says.
    pub(crate) fn on_record(&mut self, record: &Record<'_>, maps_of: impl FnOnce() -> Vec<Pid>) {
        match *record {
            Record::Site {
                signature,
                truncated,
                frames,
            } => self.on_site(signature, truncated, frames.as_chunks().0, maps_of),
            Record::Module {
                module,
                build_id,
                path,
            } => {
                let definition = || Module {
                    path: OsStr::from_bytes(path).into(),
                    build_id: build_id.to_owned(),
                };
                self.modules.entry(module).or_insert_with(definition);
            }
            Record::Object {
                object,
                id,
                size,
                path,
                ..
            } => {
                let definition = || ObjectDefinition {
                    id,
                    size,
                    path: match &self.hashed_names {
                        Some(names) => names.path(path),
                        None => path.to_owned(),
                    },
                };
                self.objects.entry(object).or_insert_with(definition);
            }
            _ => {}
        }
    }
}

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

/// A thread of a program image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) tid: Tid,
    pub(crate) image: u32,
}

/// How many generations of forked processes are asked for names.
const FORKS_MAX: usize = 8;

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
        let inferred = known.is_none().then(|| self.inferred(pid, exe, args));
        let inferred = inferred.flatten();
        if let Some(image) = inferred {
            let announced = &mut self.images[image as usize];
            (announced.number, announced.is_inferred) = (number, false);
            (announced.parent, announced.time_ns, announced.forked) = (parent, time_ns, forked);
            self.numbered.insert(number, image);
        }
        let is_new = known.is_none();
        let known = known.or(inferred);
        let image = known.unwrap_or_else(|| {
            self.add(Image {
                pid,
                parent,
                time_ns,
                exe: exe.to_owned(),
                args: args.to_owned(),
                forked,
                number,
                is_inferred: false,
            })
        });
        self.claim(ring, image);
        is_new.then_some(image)
    }

    /// The image of a process that was taken for this program before it announced itself.
    fn inferred(&self, pid: NamespacedPid, exe: &[u8], args: &[u8]) -> Option<u32> {
        self.youngest(pid).filter(|&image| {
            let image = &self.images[image as usize];
            image.is_inferred && (&*image.exe, &*image.args) == (exe, args)
        })
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

    fn add(&mut self, image: Image) -> u32 {
        let index = self.images.len() as u32;
        self.numbered.insert(image.number, index);
        let youngest = self.youngest.entry(image.pid).or_insert(index);
        // Rings are read in any order.
        if *youngest != index && self.images[*youngest as usize].number <= image.number {
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
    fn numbers_follow_first_appearance() {
        let mut numbers = Numbers::default();
        assert_eq!(
            [7, 3, 7, 9, 3].map(|key| numbers.number(key)),
            [0, 1, 0, 2, 1]
        );
        assert_eq!(numbers.keys(), [7, 3, 9]);
    }

    #[test]
    fn stacks_through_trampolines_are_named_alike_in_each_process() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let map = |pid: Pid, base: u64| {
            let lines = format!(
                "{base:x} b py::load:a.py\n{:x} b py::main:a.py\n{:x} b stub\n",
                base + 0x10,
                base + 0x20
            );
            std::fs::write(folder.path().join(format!("perf-{pid}.map")), lines).expect("written");
        };
        let mut definitions = Definitions {
            perf_maps: PerfMaps::new(folder.path()),
            ..Definitions::default()
        };
        let (libc, python, one, two) = (1, 2, 3, 4);
        for (module, path) in [
            (one, RUN_TIME_CODE),
            (two, RUN_TIME_CODE),
            (python, b"/python"),
        ] {
            let module = Record::Module {
                module,
                build_id: &[],
                path,
            };
            definitions.on_record(&module, Vec::new);
        }
        let mut define = |signature, frames: &[u64], pids: &[Pid]| {
            let site = Record::Site {
                signature,
                truncated: false,
                frames,
            };
            definitions.on_record(&site, || pids.to_vec());
            let site = definitions.site_of(signature);
            let SiteDefinition { truncated, frames } = definitions.site(signature).expect("known");
            let names: Vec<String> = frames
                .iter()
                .map(|&frame| match definitions.code_name(frame) {
                    Some(name) => name.to_owned(),
                    None => format!("{}:{}", frame.0, frame.1),
                })
                .collect();
            let truncated = if *truncated { " ..." } else { "" };
            (site, names.join(" ") + truncated)
        };
        map(Pid(7), 0x1000);
        map(Pid(8), 0x8000);
        let whole = define(
            70,
            &[libc, 5, python, 6, one, 0x1006, python, 7, one, 0x1016],
            &[Pid(7)],
        );
        assert_eq!(whole.1, "1:5 py::load:a.py py::main:a.py");
        // Another process, other positions in the interpreter.
        let frames = [
            libc, 5, python, 9, two, 0x8006, python, 8, two, 0x8016, python, 1,
        ];
        assert_eq!(define(80, &frames, &[Pid(8)]), whole);
        // A forked child, whose own map does not have the functions that called the fork.
        let frames = [libc, 5, python, 6, two, 0x1006, two, 0x1016];
        assert_eq!(define(81, &frames, &[Pid(9), Pid(7)]), whole);
        // Other code is named, and nothing is left out.
        let other = define(71, &[libc, 5, python, 6, one, 0x1026, python, 7], &[Pid(7)]);
        assert_eq!(other.1, "1:5 2:6 stub 2:7");
        // Without a name, the stack ends there, as that of a walk that ends there.
        let unnamed = define(72, &[libc, 5, python, 6, one, 0x1036, python, 7], &[Pid(7)]);
        let ended = [libc, 5, python, 6];
        assert_eq!(
            unnamed,
            (record::signature(&ended), "1:5 2:6 ...".to_owned())
        );
        // What has no such code is what it was.
        assert_eq!(define(90, &ended, &[Pid(7)]), (90, "1:5 2:6".to_owned()));
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
}
