//! Events, and how they are read from the bytes that the programs send (`bpf/event.h`).

use std::path::PathBuf;

use hither_ids::{Pid, Tid};
use hither_kernel::file_id::Inode;
use hither_kernel::pid_namespace::PidNamespace;

use crate::bytes::{field, u32_at, u64_at};
use crate::stack::{CopiedStack, UserStack};

/// What happened to pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A program read them through a descriptor: read(2), splice, io_uring. The pages are those of
    /// the whole request, and there is one event for each request.
    Read = 1,
    /// A program touched a mapped page that was in no page table, nor mapped by a [`Kind::Map`].
    /// There is one event for each touch, even if the page had to be read.
    Fault = 2,
    /// A program touched a mapped page, and the kernel mapped what was cached around it: these
    /// pages at most. Which of them was touched is not known, and further touches are not seen.
    Map = 3,
    /// They came into the page cache.
    Insert = 4,
    /// They left the page cache.
    Evict = 5,
    /// They were clean, and a program has written to one of them. Further writes are not seen until
    /// they were written back.
    Dirty = 6,
}

/// All kinds, by their numbers.
const KINDS: [Kind; 6] = [
    Kind::Read,
    Kind::Fault,
    Kind::Map,
    Kind::Insert,
    Kind::Evict,
    Kind::Dirty,
];

impl Kind {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Kind> {
        KINDS.into_iter()
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "reads",
            Kind::Fault => "faults",
            Kind::Map => "mapped pages",
            Kind::Insert => "pages that come",
            Kind::Evict => "pages that go",
            Kind::Dirty => "writes",
        }
    }
}

/// The numbers of the other events.
pub(crate) mod number {
    pub(crate) const FILE: u8 = 8;
    pub(crate) const FORK: u8 = 9;
    pub(crate) const EXEC: u8 = 10;
    pub(crate) const EXIT: u8 = 11;
}

/// Flag of a [`Kind::Fault`] or [`Kind::Map`]: see [`What::Pages::same_fault`].
const SAME_FAULT: u8 = 1;

/// Flag of a file: see [`What::File::is_cut`].
const CUT: u8 = 2;

/// Flag of pages: see [`What::Pages::is_outside`].
const OUTSIDE: u8 = 4;

/// Flag of pages: see [`What::Pages::is_in_call`].
const IN_CALL: u8 = 8;

/// A device, by the number that the kernel uses inside: a file system's, as in
/// `/proc/self/mountinfo`. On Btrfs and overlayfs stat(2) shows programs another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device(pub u32);

impl Device {
    /// The device of these numbers.
    pub fn new(major: u32, minor: u32) -> Device {
        Device(major << 20 | minor & 0xf_ffff)
    }

    /// Its major number.
    pub fn major(self) -> u32 {
        self.0 >> 20
    }

    /// Its minor number.
    pub fn minor(self) -> u32 {
        self.0 & 0xf_ffff
    }
}

/// A file, for as long as it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct File {
    /// The file system.
    pub device: Device,
    /// The number of its inode, which another file gets when this one is removed.
    pub inode: u64,
    /// Tells apart the files that had this inode, on file systems that number them.
    pub generation: u32,
}

impl File {
    /// Where it lies.
    pub fn inode(self) -> Inode {
        Inode::on(self.device.major(), self.device.minor(), self.inode)
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub time_ns: u64,
    /// The process that it is about, by its number in the initial pid namespace. Of what comes into
    /// the page cache or leaves it, who made that happen.
    pub process: Pid,
    /// Its thread.
    pub thread: Tid,
    /// What it is called in its own pid namespace, if that is not the initial one.
    pub own_numbers: Option<OwnNumbers>,
    /// The processor that it ran on.
    pub cpu: u16,
    /// The cgroup of the thread: the inode of its folder, in the hierarchy of the observed cgroup,
    /// or else in the second version's.
    pub cgroup: u64,
    /// What happened.
    pub what: What<'a>,
}

/// What a thread is called in a pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnNumbers {
    /// The namespace.
    pub namespace: PidNamespace,
    /// The process.
    pub process: Pid,
    /// The thread.
    pub thread: Tid,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// Something happened to pages of a file.
    Pages {
        /// What it was.
        kind: Kind,
        /// The file.
        file: File,
        /// The first page.
        first_page: u64,
        /// The last page, which is included.
        last_page: u64,
        /// Of a [`Kind::Fault`] or a [`Kind::Map`]: the last one of this thread is of the same
        /// fault. The page of the [`Kind::Fault`] was touched, and what was mapped around it was
        /// not, so far.
        same_fault: bool,
        /// The process is not one that is observed: of a [`Kind::Evict`], or where it is asked for
        /// ([`Options::others`](crate::Options::others)).
        is_outside: bool,
        /// Of a [`Kind::Read`] or [`Kind::Dirty`]: in a call that reads or writes files, or that
        /// executes one, and so not by io_uring or through a mapping. Said only where it is asked
        /// for ([`Options::calls`](crate::Options::calls)).
        is_in_call: bool,
        /// Where the program was.
        stack: UserStack<'a>,
    },
    /// A file, before the first event about its pages. The same file may be reported again.
    File {
        /// The file.
        file: File,
        /// Its size in bytes.
        size: u64,
        /// Its type and permissions, as stat(2) has them.
        mode: u32,
        /// Its path below the root of its file system.
        names: Names<'a>,
        /// The path is longer than that: the first names are missing.
        is_cut: bool,
    },
    /// The process has begun.
    Fork {
        /// Its parent.
        parent: Pid,
    },
    /// The process has become another program.
    Exec {
        /// Its name, cut after 15 bytes.
        name: &'a [u8],
    },
    /// The process has ended.
    Exit,
}

/// The names of a file and of the folders that it is in, from the file on. Empty where the kernel
/// knew none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names<'a>(&'a [u8]);

impl<'a> Names<'a> {
    /// Each name, from the file on.
    pub fn from_file(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let names = self.0.strip_suffix(b"\0").unwrap_or(self.0);
        let names = (!names.is_empty()).then(|| names.split(|byte| *byte == 0));
        names.into_iter().flatten()
    }

    /// The path below the root of the file system. None if no name is known.
    pub fn path(&self) -> Option<PathBuf> {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let mut names: Vec<&[u8]> = self.from_file().collect();
        names.reverse();
        (!names.is_empty()).then(|| names.into_iter().map(OsStr::from_bytes).collect())
    }
}

/// Where the fields of the structures of `bpf/event.h` are.
mod at {
    pub(super) const TIME_NS: usize = 0;
    pub(super) const INODE: usize = 8;
    pub(super) const DEVICE: usize = 16;
    pub(super) const GENERATION: usize = 20;
    pub(super) const PROCESS: usize = 24;
    pub(super) const THREAD: usize = 28;
    pub(super) const CGROUP: usize = 32;
    pub(super) const PAYLOAD: usize = 40;
    pub(super) const CPU: usize = 44;
    pub(super) const KIND: usize = 46;
    pub(super) const FLAGS: usize = 47;
    pub(super) const NAMESPACE: usize = 48;
    pub(super) const OWN_PROCESS: usize = 52;
    pub(super) const OWN_THREAD: usize = 56;
    pub(super) const FIRST_PAGE: usize = 64;
    pub(super) const LAST_PAGE: usize = 72;
    pub(super) const STACK: usize = 80;
    pub(super) const SIZE: usize = 64;
    pub(super) const MODE: usize = 72;
    pub(super) const NAMES: usize = 80;
    pub(super) const PARENT: usize = 64;
    pub(super) const PROCESS_NAME: usize = 72;
    pub(super) const PROCESS_EVENT: usize = 88;
}

/// The fields by their names in `bpf/event.h`, and where they are: for the test that compares.
#[cfg(test)]
const FIELDS: &[(&str, &str, usize)] = &[
    ("event", "time_ns", at::TIME_NS),
    ("event", "inode", at::INODE),
    ("event", "device", at::DEVICE),
    ("event", "generation", at::GENERATION),
    ("event", "process", at::PROCESS),
    ("event", "thread", at::THREAD),
    ("event", "cgroup", at::CGROUP),
    ("event", "payload", at::PAYLOAD),
    ("event", "cpu", at::CPU),
    ("event", "kind", at::KIND),
    ("event", "flags", at::FLAGS),
    ("event", "namespace", at::NAMESPACE),
    ("event", "own_process", at::OWN_PROCESS),
    ("event", "own_thread", at::OWN_THREAD),
    ("pages_event", "first_page", at::FIRST_PAGE),
    ("pages_event", "last_page", at::LAST_PAGE),
    ("pages_event", "stack", at::STACK),
    ("file_event", "size", at::SIZE),
    ("file_event", "mode", at::MODE),
    ("file_event", "names", at::NAMES),
    ("process_event", "parent", at::PARENT),
    ("process_event", "name", at::PROCESS_NAME),
];

impl<'a> Event<'a> {
    /// Reads an event. None if these bytes are none: nothing in them is relied on.
    pub fn decode(bytes: &'a [u8]) -> Option<Event<'a>> {
        let flags = *bytes.get(at::FLAGS)?;
        let file = File {
            device: Device(u32_at(bytes, at::DEVICE)?),
            inode: u64_at(bytes, at::INODE)?,
            generation: u32_at(bytes, at::GENERATION)?,
        };
        let what = match *bytes.get(at::KIND)? {
            number::FILE => What::File {
                file,
                size: u64_at(bytes, at::SIZE)?,
                mode: u32_at(bytes, at::MODE)?,
                names: Names(payload(bytes, at::NAMES)?),
                is_cut: flags & CUT != 0,
            },
            number::FORK => What::Fork {
                parent: Pid(u32_at(bytes, at::PARENT)?),
            },
            number::EXEC => {
                let name = bytes.get(at::PROCESS_NAME..at::PROCESS_EVENT)?;
                let end = name.iter().position(|byte| *byte == 0);
                What::Exec {
                    name: &name[..end.unwrap_or(name.len())],
                }
            }
            number::EXIT => What::Exit,
            number => {
                let kind = Kind::all().find(|kind| *kind as u8 == number)?;
                let stack = CopiedStack::decode(payload(bytes, at::STACK)?)?;
                let (first_page, last_page) = (
                    u64_at(bytes, at::FIRST_PAGE)?,
                    u64_at(bytes, at::LAST_PAGE)?,
                );
                if last_page < first_page {
                    return None;
                }
                What::Pages {
                    kind,
                    file,
                    first_page,
                    last_page,
                    same_fault: flags & SAME_FAULT != 0,
                    is_outside: flags & OUTSIDE != 0,
                    is_in_call: flags & IN_CALL != 0,
                    stack,
                }
            }
        };
        if matches!(what, What::Fork { .. } | What::Exec { .. } | What::Exit) {
            payload(bytes, at::PROCESS_EVENT)?;
        }
        let namespace = u32_at(bytes, at::NAMESPACE)?;
        let own_numbers = OwnNumbers {
            namespace: PidNamespace::of_inode(u64::from(namespace)),
            process: Pid(u32_at(bytes, at::OWN_PROCESS)?),
            thread: Tid(u32_at(bytes, at::OWN_THREAD)?),
        };
        Some(Event {
            time_ns: u64_at(bytes, at::TIME_NS)?,
            own_numbers: (namespace != 0).then_some(own_numbers),
            process: Pid(u32_at(bytes, at::PROCESS)?),
            thread: Tid(u32_at(bytes, at::THREAD)?),
            cpu: u16::from_ne_bytes(field(bytes, at::CPU)?),
            cgroup: u64_at(bytes, at::CGROUP)?,
            what,
        })
    }
}

/// What follows the fixed part, if it is as long as it says.
fn payload(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let payload = bytes.get(at..)?;
    (payload.len() as u64 == u64::from(u32_at(bytes, at::PAYLOAD)?)).then_some(payload)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::stack;

    /// The structures of the object's BTF (Documentation/bpf/btf.rst): size, and where each member
    /// is, in bytes.
    fn structures(object: &[u8]) -> BTreeMap<String, (usize, BTreeMap<String, usize>)> {
        let btf = section(object, ".BTF");
        let word = |at: usize| u32_at(btf, at).unwrap() as usize;
        let (header, types, types_len, strings) = (word(4), word(8), word(12), word(16));
        let name = |offset: usize| {
            let text = &btf[header + strings + offset..];
            let end = text.iter().position(|byte| *byte == 0).unwrap();
            String::from_utf8(text[..end].to_vec()).unwrap()
        };
        let mut found = BTreeMap::new();
        let mut at = header + types;
        while at < header + types + types_len {
            let (info, size) = (word(at + 4), word(at + 8));
            let (kind, count) = (info >> 24 & 0x1f, info & 0xffff);
            let members = at + 12;
            let trailing = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => count * 12,
                6 | 13 => count * 8,
                _ => 0,
            };
            if kind == 4 {
                let member = |index: usize| {
                    let member = members + index * 12;
                    (name(word(member)), word(member + 8) / 8)
                };
                found.insert(name(word(at)), (size, (0..count).map(member).collect()));
            }
            at = members + trailing;
        }
        found
    }

    /// A section of a 64-bit ELF file.
    fn section<'a>(object: &'a [u8], wanted: &str) -> &'a [u8] {
        let long = |at: usize| u64_at(object, at).unwrap() as usize;
        let short = |at: usize| u16::from_ne_bytes(field(object, at).unwrap()) as usize;
        let header = |index: usize| long(0x28) + index * short(0x3a);
        let bytes = |index: usize| {
            let header = header(index);
            &object[long(header + 0x18)..][..long(header + 0x20)]
        };
        let names = bytes(short(0x3e));
        let is_wanted = |index: &usize| {
            let name = &names[u32_at(object, header(*index)).unwrap() as usize..];
            name.starts_with(wanted.as_bytes()) && name[wanted.len()] == 0
        };
        bytes((0..short(0x3c)).find(is_wanted).unwrap())
    }

    #[test]
    fn the_programs_have_the_same_layout() {
        let structures = structures(crate::observer::OBJECT);
        for (structure, field, at) in FIELDS.iter().chain(stack::FIELDS) {
            assert_eq!(structures[*structure].1[*field], *at, "{structure}.{field}");
        }
        assert_eq!(structures["event"].0, at::FIRST_PAGE);
        assert_eq!(structures["process_event"].0, at::PROCESS_EVENT);
        // Each field is read, but those for alignment.
        let events = ["event", "pages_event", "file_event", "process_event"];
        for name in events
            .into_iter()
            .chain(["user_stack", "stack_key", "known_stack"])
        {
            for field in structures[name].1.keys() {
                let is_read = FIELDS
                    .iter()
                    .chain(stack::FIELDS)
                    .any(|known| (known.0, known.1) == (name, field));
                assert!(
                    is_read || field == "common" || field == "unused",
                    "{name}.{field}"
                );
            }
        }
    }

    #[test]
    fn kinds_are_found_by_their_numbers() {
        for (index, kind) in Kind::all().enumerate() {
            assert_eq!(kind as usize, index + 1);
        }
    }

    #[test]
    fn names_become_a_path() {
        assert_eq!(Names(b"c\0b\0a\0").path(), Some(PathBuf::from("a/b/c")));
        assert_eq!(Names(b"").path(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            look_at(&bytes);
        }

        #[test]
        fn any_change_of_an_event_is_one_or_none(
            kind in 0_u8..16,
            payload in 0_usize..200,
            changes in proptest::collection::vec((0_usize..300, any::<u8>()), 0..6),
        ) {
            let mut bytes = vec![0; at::NAMES + payload];
            bytes[at::KIND] = kind;
            bytes[at::PAYLOAD..][..4].copy_from_slice(&(payload as u32).to_ne_bytes());
            let is_stack = payload == 0 || payload >= 40 && payload % 8 == 0;
            let is_whole = matches!(kind, 1..=6) && is_stack || kind == number::FILE;
            prop_assert_eq!(Event::decode(&bytes).is_some(), is_whole);
            for (at, byte) in changes {
                if let Some(to) = bytes.get_mut(at) {
                    *to = byte;
                }
            }
            look_at(&bytes);
        }
    }

    /// Looks at all that an event has. None of it is larger than the bytes.
    fn look_at(bytes: &[u8]) {
        match Event::decode(bytes).map(|event| event.what) {
            Some(What::Pages {
                stack: UserStack::Copied(stack),
                ..
            }) => assert!(stack.bytes() < bytes.len() as u64),
            Some(What::File { names, .. }) => {
                assert!(names.from_file().count() <= bytes.len());
                let path = names.path().unwrap_or_default();
                assert!(path.as_os_str().len() <= bytes.len());
            }
            _ => {}
        }
    }
}
