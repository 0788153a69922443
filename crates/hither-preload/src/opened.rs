//! Defines a file when the program opens it, by the path that the program gave.
//!
//! The alternative is to ask /proc for the path when the file is first used, which `files` does for
//! descriptors of any other origin. That takes longer than the program's open, read and close
//! together: 4.1 us against 3.1 (2026-11). Here a relative path costs one `getcwd`, one below a
//! directory's descriptor a look into a table, and an absolute one nothing.
//!
//! The path is as the program gave it: a symbolic link in it is kept. Paths with "..", which only
//! the kernel can make absolute, or below /proc and /dev, which may name another descriptor, are
//! left to the first use.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use hither_kernel::file_id::mix;
use hither_kernel::syscalls;
use hither_session::program_session::{ProgramSession, Pushed};
use hither_session::record::Record;

use crate::cached_before::{self, Said};
use crate::open_buffers::{Buffers, Directory, PATH_BYTES_MAX};
use crate::thread::{self, Thread};
use crate::{files, process};

/// Files that this process has defined, each in one of the places that follow from its key, by its
/// key and the process, since the agent is to learn of each process what it uses, also after a
/// fork. The low bits ([`SIZE_TAG`]) say whether all of it was cached then, and tell sizes apart:
/// what it has grown by since was not. 32 KiB, as a program may have to lock all of its memory.
static DEFINED: [Places; 512] = [const { Places([const { AtomicU64::new(0) }; PLACES]) }; 512];

const PLACES: usize = 8;

const SIZE_TAG: u64 = (1 << 12) - 1;

/// A cache line.
#[repr(align(64))]
struct Places([AtomicU64; PLACES]);

/// The length of a [`Record::Cached`].
const CACHED_WORDS: usize = 4;

/// Where a file of a size is remembered, and by what.
struct Remembered {
    places: &'static [AtomicU64],
    id: u64,
    /// What the low bits are if all of it was cached.
    cached_tag: u64,
    bytes: u64,
}

impl Remembered {
    fn of(key: u64, bytes: u64) -> Remembered {
        let id = mix(key.wrapping_add(u64::from(process::last_id().0)));
        let places = DEFINED.get((key >> 2) as usize % DEFINED.len());
        Remembered {
            places: places.map_or(&[], |places| &places.0),
            id: id & !SIZE_TAG,
            cached_tag: (mix(bytes) | 1) & SIZE_TAG,
            bytes,
        }
    }

    /// How many bytes of it were cached when it was defined: all or 0. `None` if it is not defined.
    fn cached_bytes(&self) -> Option<u64> {
        self.places.iter().find_map(|place| {
            let tag = place.load(Ordering::Relaxed) ^ self.id;
            let was_cached = tag == self.cached_tag;
            (tag <= SIZE_TAG).then_some(if was_cached { self.bytes } else { 0 })
        })
    }

    /// It is defined. Where all places are taken, the file in one of them goes.
    fn remember(&self, is_cached: bool) {
        let is_free = |place: &&AtomicU64| place.load(Ordering::Relaxed) == 0;
        let free = self.places.iter().find(is_free);
        let any = self.places.get((self.id >> 16) as usize % PLACES);
        if let Some(place) = free.or(any) {
            let tag = if is_cached { self.cached_tag } else { 0 };
            place.store(self.id | tag, Ordering::Relaxed);
        }
    }
}

/// The program has just opened `fd`, which is its own, by `path`, relative to the directory behind
/// `at`. What is not defined here is looked up at its first use.
pub(crate) fn define(session: &'static ProgramSession, fd: c_int, at: c_int, path: &CStr) {
    let path = path.to_bytes();
    let path = match path.strip_prefix(b"./") {
        Some(below) if below.starts_with(b"/") => return,
        below => below.unwrap_or(path),
    };
    if !is_plain(path) {
        if session.samples_cached() && !is_special(path) {
            sample(session, fd);
        }
        return;
    }
    let opened = Opened { fd, at, path };
    thread::enter(
        session,
        |thread| opened.define(thread, session) == Outcome::Done,
        |thread| {
            // Before the first read, or nobody knows what was cached before.
            if session.samples_cached() {
                thread.claim_ring(session);
            }
            let outcome = opened.define(thread, session);
            if outcome == Outcome::DirectoryUnknown && opened.find_directory(thread) {
                opened.define(thread, session);
            }
        },
    );
}

/// Looks up the file behind `fd` at once, before it is read: how much of it is cached is asked for.
fn sample(session: &'static ProgramSession, fd: c_int) {
    thread::enter(
        session,
        |_| false,
        |thread| {
            files::look_up_opened(fd, &mut |record| thread.push(session, record));
        },
    );
}

/// Whether a path needs nothing but a directory before it.
fn is_plain(path: &[u8]) -> bool {
    let below = path.strip_prefix(b"/").unwrap_or(path);
    path.len() < PATH_BYTES_MAX
        && !is_special(path)
        && !below
            .split(|&byte| byte == b'/')
            .any(|part| matches!(part, b"" | b"." | b".."))
}

/// Whether a path may name what another descriptor stands for.
fn is_special(path: &[u8]) -> bool {
    let special: [&[u8]; 2] = [b"/proc/", b"/dev/"];
    special.iter().any(|prefix| path.starts_with(prefix))
}

/// A descriptor and what the program opened.
#[derive(Clone, Copy)]
struct Opened<'a> {
    fd: c_int,
    at: c_int,
    path: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All was done that could be.
    Done,
    /// The path of the directory has to be found first.
    DirectoryUnknown,
    /// The thread has no ring, and is to have one.
    NoRing,
}

impl Opened<'_> {
    /// Defines the file, if the thread has a ring.
    fn define(self, thread: &mut Thread, session: &ProgramSession) -> Outcome {
        let Some((producer, buffers)) = thread.for_opened() else {
            return if session.samples_cached() {
                Outcome::NoRing
            } else {
                Outcome::Done
            };
        };
        let Some(status) = files::opened_file(self.fd, &mut buffers.status) else {
            return Outcome::Done;
        };
        let key = status.id.key();
        let remembered = Remembered::of(key.0, status.size);
        if let Some(cached_bytes) = remembered.cached_bytes() {
            files::defined(self.fd, key.0, cached_bytes);
            return Outcome::Done;
        }
        let path = match self.whole_path(buffers) {
            Ok(Some(length)) => buffers.path.get(..length).unwrap_or(&[]),
            Ok(None) => return Outcome::Done,
            Err(unknown) => return unknown,
        };
        let mut push = |record: &Record<'_>| {
            let mut words = [0; CACHED_WORDS];
            let length = record.encode(&mut words);
            let record = words.get(..length).unwrap_or(&[]);
            session.push(producer, record, None) == Pushed::Taken
        };
        let said = if session.samples_cached() {
            cached_before::push(self.fd, key.0, status.size, &mut push)
        } else {
            Said::default()
        };
        let object = files::object(&status, said.asked_pages, path);
        let words = object.encode(&mut buffers.words);
        let record = buffers.words.get(..words).unwrap_or(&[]);
        if session.push(producer, record, None) == Pushed::Taken {
            files::defined(self.fd, key.0, if said.is_whole { status.size } else { 0 });
            remembered.remember(said.is_whole);
        }
        Outcome::Done
    }

    /// Writes the absolute path to the front of the thread's buffer. Returns its length, `None` if
    /// it is too long or the directory has no path.
    fn whole_path(self, buffers: &mut Buffers) -> Result<Option<usize>, Outcome> {
        let Buffers {
            path: into,
            directories,
            ..
        } = buffers;
        let before = match self.at {
            _ if self.path.starts_with(b"/") => 0,
            libc::AT_FDCWD => match syscalls::current_directory(into) {
                Ok(length) if into.starts_with(b"/") => length,
                _ => return Ok(None),
            },
            at => {
                let known = Directory::of(directories, files::directory(at));
                let directory = known.ok_or(Outcome::DirectoryUnknown)?;
                for (to, from) in into.iter_mut().zip(directory) {
                    *to = *from;
                }
                directory.len()
            }
        };
        let slash: &[u8] = if before <= 1 { b"" } else { b"/" };
        let mut end = before;
        for part in [slash, self.path] {
            let Some(room) = into.get_mut(end..end + part.len()) else {
                return Ok(None);
            };
            room.copy_from_slice(part);
            end += part.len();
        }
        let is_special = into.get(..end).is_none_or(is_special);
        Ok((!is_special).then_some(end))
    }

    /// Finds the path of the directory and remembers it. False if it has none.
    fn find_directory(self, thread: &mut Thread) -> bool {
        let mut path = [0; 4096];
        let path = files::path_of(self.at, &mut path);
        let Some((_, buffers)) = thread.for_opened().filter(|_| path.starts_with(b"/")) else {
            return false;
        };
        let token = files::remember_directory(self.at);
        token != 0 && buffers.remember(token, path)
    }
}
