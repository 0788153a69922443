//! Gives dense numbers to the keys in records.
//!
//! Keys are numbered when an access that names them is written, so that numbers follow the order of
//! the trace. Definitions are kept by key: they may come before their use, after it, or never.

use std::ffi::OsStr;
use std::hash::Hash;
use std::os::unix::ffi::OsStrExt;

use hither_sys::record::Record;
use hither_sys::session::RingInfo;
use rustc_hash::FxHashMap;

use crate::symbolise::Module;

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
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) path: Vec<u8>,
}

/// All definitions so far. Of several definitions of one key the first counts.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    pub(crate) sites: FxHashMap<u64, SiteDefinition>,
    pub(crate) objects: FxHashMap<u64, ObjectDefinition>,
    pub(crate) modules: FxHashMap<u64, Module>,
}

impl Definitions {
    /// What is known of a file.
    pub(crate) fn object(&self, object: u64) -> Option<&ObjectDefinition> {
        self.objects.get(&object)
    }

    /// Takes in a record, if it defines something.
    pub(crate) fn on_record(&mut self, record: &Record<'_>) {
        match *record {
            Record::Site {
                signature,
                truncated,
                frames,
            } => {
                let definition = || SiteDefinition {
                    truncated,
                    frames: frames
                        .as_chunks::<2>()
                        .0
                        .iter()
                        .map(|&[module, offset]| (module, offset))
                        .collect(),
                };
                self.sites.entry(signature).or_insert_with(definition);
            }
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
                device,
                inode,
                size,
                path,
                ..
            } => {
                let definition = || ObjectDefinition {
                    device,
                    inode,
                    size,
                    path: path.to_owned(),
                };
                self.objects.entry(object).or_insert_with(definition);
            }
            _ => {}
        }
    }
}

/// A program image: what a process runs from its start, or from an exec, until the next exec or its
/// end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) exe: Vec<u8>,
    /// The arguments, each ended by a NUL byte.
    pub(crate) args: Vec<u8>,
    /// Whether its main thread has announced itself.
    led: bool,
    /// It has not announced itself: it was seen to touch what the process mapped that started it,
    /// and is taken for the same program.
    is_inferred: bool,
}

/// A thread of a program image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) tid: u32,
    pub(crate) image: u32,
}

/// The thread and program image of each ring.
///
/// Each ring begins with the announcement of its process. A process has one main thread, so that a
/// second announcement by the main thread is that of the next program, after an exec. Other threads
/// belong to the program that was announced last.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    images: Vec<Image>,
    /// The youngest image of each process.
    youngest: FxHashMap<u32, u32>,
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
                let image = self.youngest(ring.pid).unwrap_or_else(|| {
                    self.add(Image {
                        pid: ring.pid,
                        ..Image::default()
                    })
                });
                self.claim(ring, image)
            }
        }
    }

    /// A process announces itself on a ring. Returns its image if that is new.
    pub(crate) fn announced(
        &mut self,
        ring: &RingInfo,
        parent: u32,
        exe: &[u8],
        args: &[u8],
    ) -> Option<u32> {
        let main = ring.tid == ring.pid;
        let known = self.youngest(ring.pid).filter(|&image| {
            let image = &self.images[image as usize];
            let is_other = image.is_inferred && (&*image.exe, &*image.args) != (exe, args);
            !is_other && !(main && image.led)
        });
        let image = known.unwrap_or_else(|| {
            self.add(Image {
                pid: ring.pid,
                parent,
                exe: exe.to_owned(),
                args: args.to_owned(),
                ..Image::default()
            })
        });
        let announced = &mut self.images[image as usize];
        let is_new = known.is_none() || announced.is_inferred;
        announced.led |= main;
        announced.is_inferred = false;
        self.claim(ring, image);
        is_new.then_some(image)
    }

    /// The image that a process runs.
    pub(crate) fn youngest(&self, pid: u32) -> Option<u32> {
        self.youngest.get(&pid).copied()
    }

    fn add(&mut self, image: Image) -> u32 {
        let number = self.images.len() as u32;
        self.youngest.insert(image.pid, number);
        self.images.push(image);
        number
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

    /// The stream of a thread, which may have no ring. Its process is `parent`, or descends from
    /// it; it has not announced itself if it has made no recorded call. `None` if that process is
    /// not recorded.
    pub(crate) fn of_thread(&mut self, pid: u32, tid: u32, parent: u32) -> Option<u32> {
        let image = match self.youngest(pid) {
            Some(image) => image,
            None => {
                let started_by = self.youngest(parent)?;
                let same = self.images[started_by as usize].clone();
                self.add(Image {
                    pid,
                    parent,
                    led: false,
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

    fn ring(index: usize, pid: u32, tid: u32, generation: u64) -> RingInfo {
        RingInfo {
            index,
            pid,
            tid,
            other_pid_namespace: false,
            generation,
        }
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
    fn an_exec_starts_a_new_image_and_a_thread_does_not() {
        let mut streams = Streams::default();
        assert_eq!(
            streams.announced(&ring(0, 5, 5, 0), 1, b"/bin/sh", b""),
            Some(0)
        );
        assert_eq!(
            streams.announced(&ring(1, 5, 6, 0), 1, b"/bin/sh", b""),
            None
        );
        let (shell, thread) = (streams.of(&ring(0, 5, 5, 0)), streams.of(&ring(1, 5, 6, 0)));
        assert_eq!(
            streams.announced(&ring(2, 5, 5, 0), 1, b"/bin/ls", b""),
            Some(1)
        );
        // The old ring may still hold the shell's events.
        assert_eq!(streams.of(&ring(0, 5, 5, 0)), shell);
        let list = streams.of(&ring(2, 5, 5, 0));
        let images = [shell, thread, list].map(|stream| streams.stream(stream).image);
        assert_eq!(images, [0, 0, 1]);
        assert_eq!(streams.images()[1].exe, b"/bin/ls");
    }

    #[test]
    fn a_thread_read_before_its_main_thread_is_of_the_same_image() {
        let mut streams = Streams::default();
        assert_eq!(
            streams.announced(&ring(0, 5, 6, 0), 1, b"/bin/sort", b""),
            Some(0)
        );
        assert_eq!(
            streams.announced(&ring(1, 5, 5, 0), 1, b"/bin/sort", b""),
            None
        );
        assert_eq!(streams.images().len(), 1);
    }

    #[test]
    fn a_thread_without_a_ring_has_a_stream_of_its_process() {
        let mut streams = Streams::default();
        assert_eq!(streams.of_thread(5, 5, 5), None);
        streams.announced(&ring(0, 5, 5, 0), 1, b"/bin/sort", b"");
        let first = streams.of(&ring(0, 5, 5, 0));
        assert_eq!(streams.of_thread(5, 5, 5), Some(first));
        let other = streams.of_thread(5, 6, 5).expect("of the process");
        assert_eq!(streams.of_thread(5, 6, 5), Some(other));
        assert_eq!(streams.stream(other), Stream { tid: 6, image: 0 });
    }

    #[test]
    fn a_child_that_has_announced_nothing_is_the_program_of_its_parent() {
        let mut streams = Streams::default();
        streams.announced(&ring(0, 5, 5, 0), 1, b"/bin/sort", b"");
        for child in [7, 8] {
            let stream = streams.of_thread(child, child, 5).expect("a process");
            let image = streams.stream(stream).image;
            assert_eq!(streams.images()[image as usize].exe, b"/bin/sort");
        }
        // One makes a call after all, the other runs another program.
        let same = streams.announced(&ring(1, 7, 7, 0), 5, b"/bin/sort", b"");
        assert_eq!(same, Some(1));
        assert_eq!(
            streams.announced(&ring(2, 8, 8, 0), 5, b"/bin/ls", b""),
            Some(3)
        );
        assert_eq!(streams.images().len(), 4);
    }

    #[test]
    fn a_ring_with_another_owner_is_another_stream() {
        let mut streams = Streams::default();
        streams.announced(&ring(0, 5, 5, 0), 1, b"/bin/a", b"");
        let first = streams.of(&ring(0, 5, 5, 0));
        // The announcement of the next owner was lost.
        let second = streams.of(&ring(0, 8, 8, 1));
        assert_ne!(first, second);
        assert_eq!(
            streams.images()[streams.stream(second).image as usize].pid,
            8
        );
        assert_eq!(streams.of(&ring(0, 8, 8, 1)), second);
    }
}
