//! The records that a recorded program sends to the agent, and their encoding as 64-bit words.
//!
//! Every record names things by 64-bit keys that mean the same in every process (a call site by its
//! signature, a file by a hash of its device, inode and birth time, a module by a hash of its
//! build-id), so no record depends on another: a definition that is lost costs a name, never an
//! access.
//!
//! Layout: word 0 is `kind | words << 8 | a << 24 | b << 32`, where `words` counts the whole record
//! (16 bits), `a` is 8 and `b` 32 bits of payload; the rest is payload. Byte strings are
//! zero-padded to whole words, with their length in a word before them.

use hither_ids::{Address, FileKey, Pid};
use hither_kernel::file_id::{FileId, mix};
use hither_kernel::memory_policy::{Bind, BindMode};

/// The largest record, in words: a path of 4096 bytes and its header fit.
pub const WORDS_MAX: usize = 640;

/// The most frames that a call stack is followed.
pub const FRAMES_MAX: usize = 64;

/// What an access does. The numbers are the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Bytes read from a file.
    Read = 1,
    /// Bytes written to a file.
    Write = 2,
    /// A part of a file mapped into memory; the touches are not seen.
    Map = 3,
    /// A mapping of a file removed.
    Unmap = 4,
    /// A file cut or extended: `offset` is the new length.
    Truncate = 5,
    /// A page of a mapped file touched, so that the kernel had to map it.
    Fault = 6,
    /// Pages came into the page cache, since a program reads or writes the file. Programs do not
    /// know, so that no ring has this or the next two.
    Insert = 7,
    /// Another program uses pages of the file.
    UseByOthers = 8,
    /// The kernel has given pages of the file up, or somebody has had them dropped.
    Evict = 9,
}

/// The error number (EEXIST) for a range, or for the thread that allocated it, that has a memory
/// policy of the program's own, so that we leave it alone.
pub const OWN_POLICY: u32 = 17;

/// Access flag: the kernel moved the bytes from file to file or socket, the program did not see
/// them (sendfile, copy_file_range, splice).
pub const IN_KERNEL: u16 = 1;

/// Access flag: of its call site no more is known than the program and the file.
pub const UNKNOWN_SITE: u16 = 2;

/// Access flag: the kernel has reported it, in a call that the library stands in place of where it
/// is.
pub const IN_CALL: u16 = 4;

/// The path of the module that stands for code that no file holds. Its key is another one in every
/// process, since offsets in it are addresses.
pub const RUN_TIME_CODE: &[u8] = b"[code made at run time]";

/// The module of a second frame that is no frame, but the file that the program of the first frame
/// uses (its key): of such a site no more is known.
pub const USED_FILE: u64 = u64::MAX - 1;

/// The signature of a call stack, given as in [`Record::Site`]; never 0.
pub fn signature(frames: &[u64]) -> u64 {
    let (frames, _) = frames.as_chunks::<2>();
    let sum = frames.iter().fold(0_u64, |sum, &[module, offset]| {
        sum.wrapping_add(mix(module ^ mix(offset)))
    });
    sum.max(1)
}

/// A decoded record. Byte strings borrow from the buffer that it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// One call that moved bytes of a regular file.
    Access {
        /// What it did.
        op: Op,
        /// Flags, such as [`IN_KERNEL`].
        flags: u16,
        /// The CPU that it ran on.
        cpu: u16,
        /// CLOCK_MONOTONIC when the call returned, in nanoseconds.
        time_ns: u64,
        /// The call site's signature; 0 where it is unknown.
        signature: u64,
        /// The file's key.
        object: FileKey,
        /// Where in the file, in bytes.
        offset: u64,
        /// How many bytes were moved.
        length: u64,
    },
    /// A file, defined when it is first opened.
    Object {
        /// Its key.
        object: FileKey,
        /// Which file it is.
        id: FileId,
        /// Size when opened, in bytes.
        size: u64,
        /// Of how many pages of its front it is known what was cached when it was opened, before
        /// the program had read anything: what the [`Record::Cached`] before this one say. None if
        /// nobody asked.
        asked_pages: Option<u32>,
        /// Its path as the process sees it.
        path: &'a [u8],
    },
    /// A range of a file that was cached when the file was opened.
    Cached {
        /// The key of the file, which is defined next.
        object: FileKey,
        /// Where in the file, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// A call site, defined when its signature is first computed in a process.
    Site {
        /// Its signature.
        signature: u64,
        /// The walk ended early (depth limit, JIT code, no unwind information).
        truncated: bool,
        /// The frames, innermost first, as pairs of words: module key, offset of the return
        /// address.
        frames: &'a [u64],
    },
    /// A loaded program or library, defined when a frame first falls into it.
    Module {
        /// Its key.
        module: u64,
        /// Its build-id, empty where it has none.
        build_id: &'a [u8],
        /// Its path.
        path: &'a [u8],
    },
    /// A process image that records: pushed by each ring as its first record.
    Process {
        /// Process id.
        pid: Pid,
        /// Parent's process id; 0 if it is in another pid namespace.
        parent: Pid,
        /// The same for all threads of one program image, and for no other image of the session:
        /// process ids are used again.
        image: u32,
        /// A fork of a process that recorded, and not a program that an exec has started.
        forked: bool,
        /// CLOCK_MONOTONIC, in nanoseconds.
        time_ns: u64,
        /// Path of the program.
        exe: &'a [u8],
        /// The arguments, each ended by a NUL byte; cut at 1024 bytes.
        args: &'a [u8],
    },
    /// A process is about to become another program (exec), or a child that will (posix_spawn): if
    /// no [`Record::Process`] with this pid and a later time follows, that program was not
    /// recorded.
    Exec {
        /// Process id that will run it.
        pid: Pid,
        /// CLOCK_MONOTONIC, in nanoseconds.
        time_ns: u64,
        /// The program as given.
        path: &'a [u8],
        /// The program cannot load the recorder: the root of the process (chroot, a mount
        /// namespace) does not have the library.
        hidden: bool,
    },
    /// The last [`Record::Exec`] of this process failed.
    ExecFailed {
        /// Process id.
        pid: Pid,
    },
    /// The process has set up an io_uring: what it reads and writes by it is not seen.
    IoUring,
    /// The program has opened this file with `O_DIRECT`, or set that later: what it reads and
    /// writes so bypasses the page cache.
    Direct {
        /// The key of the file.
        object: FileKey,
    },
    /// Memory that the program got: an allocation of at least the session's `region_min` bytes. No
    /// part of it is in another region: such regions ended before.
    Region {
        /// Its first byte. Neither end need be a page's.
        start: Address,
        /// Length in bytes.
        length: u64,
        /// The call site's signature. Memory that was moved or resized keeps its first one.
        signature: u64,
        /// CLOCK_MONOTONIC when the call returned, in nanoseconds.
        time_ns: u64,
        /// The CPU that it ran on.
        cpu: u16,
        /// Where the memory came from.
        kind: RegionKind,
    },
    /// A range of memory that is in no region any more: freed, unmapped, replaced, or about to be
    /// moved. It may be part of a region, the rest of which remains, or span several.
    RegionEnd {
        /// Its first byte.
        start: Address,
        /// Length in bytes.
        length: u64,
        /// CLOCK_MONOTONIC before the call that ended it, in nanoseconds: whatever gets this memory
        /// next is later.
        time_ns: u64,
    },
    /// The program has given a range its memory policy (`mbind`), or tried to.
    Bound {
        /// The first byte of the requested range.
        start: Address,
        /// Its length in bytes.
        length: u64,
        /// The policy.
        bind: Bind,
        /// The error number, 0 where it was done. ENOENT: the range is no longer within a region,
        /// and was left alone. [`OWN_POLICY`]: the program has chosen itself, perhaps without being
        /// asked.
        error: u32,
        /// Whether it followed from what was known when the memory was allocated or moved (its
        /// site, or the policy that it had before), not from a request for this range.
        site: bool,
        /// CLOCK_MONOTONIC after the call, in nanoseconds.
        time_ns: u64,
    },
    /// The thread reached a boundary between parallel constructs, as the master of an outermost
    /// team; or the program marked the end of an iteration.
    Construct {
        /// The kind of boundary.
        kind: ConstructKind,
        /// The call site's signature; the same where a region begins and where it ends. 0 where it
        /// is unknown.
        signature: u64,
        /// CLOCK_MONOTONIC, in nanoseconds.
        time_ns: u64,
        /// The CPU that it ran on.
        cpu: u16,
        /// Threads of the team; those requested where a region begins. 0 where the runtime chooses,
        /// or it is unknown.
        threads: u16,
    },
    /// Where another thread of a team runs: at its first construct, and then at each one that it
    /// reaches on another node than the last.
    At {
        /// The CPU that it ran on.
        cpu: u16,
        /// CLOCK_MONOTONIC, in nanoseconds.
        time_ns: u64,
    },
}

/// A boundary between parallel constructs. The numbers are the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConstructKind {
    /// A parallel region is about to begin.
    ParallelBegin = 1,
    /// A parallel region has ended.
    ParallelEnd = 2,
    /// A barrier of the team, also one that ends a work-sharing construct, was passed.
    Barrier = 3,
    /// The program marked the end of an iteration.
    Iteration = 4,
    /// Reported once: the OpenMP runtime's constructs cannot be seen, because its interface for
    /// tools belongs to another tool.
    Hidden = 5,
}

/// Where a region's memory came from. The numbers are the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RegionKind {
    /// The malloc family.
    Malloc = 1,
    /// A private anonymous mapping.
    Map = 2,
}

/// A buffer that any record fits into.
pub type Words = [u64; WORDS_MAX];

/// The length of the longest record of the fixed lengths, those of [`Record::Access`], of regions
/// and of constructs.
pub const ACCESS_WORDS: usize = 6;

/// The most bytes of a byte string that are sent; longer ones are cut.
const STRING_BYTES_MAX: usize = 4096;

/// The most bytes of an argument list that are sent.
const ARGS_BYTES_MAX: usize = 1024;

const ACCESS: u8 = 1;
const OBJECT: u8 = 2;
const SITE: u8 = 3;
const MODULE: u8 = 4;
const PROCESS: u8 = 5;
const EXEC: u8 = 6;
const EXEC_FAILED: u8 = 7;
const REGION: u8 = 8;
const REGION_END: u8 = 9;
const BOUND: u8 = 10;
const CONSTRUCT: u8 = 11;
const AT: u8 = 12;
const IO_URING: u8 = 13;
const DIRECT: u8 = 14;
const CACHED: u8 = 15;

/// In the payload of a [`Record::Bound`], beside the error number.
const SITE_BOUND: u32 = 1 << 31;

impl Op {
    fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            1 => Op::Read,
            2 => Op::Write,
            3 => Op::Map,
            4 => Op::Unmap,
            5 => Op::Truncate,
            6 => Op::Fault,
            _ => return None,
        })
    }
}

impl RegionKind {
    fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            1 => RegionKind::Malloc,
            2 => RegionKind::Map,
            _ => return None,
        })
    }
}

impl ConstructKind {
    fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            1 => ConstructKind::ParallelBegin,
            2 => ConstructKind::ParallelEnd,
            3 => ConstructKind::Barrier,
            4 => ConstructKind::Iteration,
            5 => ConstructKind::Hidden,
            _ => return None,
        })
    }
}

/// How many words the record that starts with this word has.
pub const fn words_of(head: u64) -> usize {
    (head >> 8) as u16 as usize
}

impl<'a> Record<'a> {
    /// Writes the record to the front of `buffer` and returns its length in words. Byte strings
    /// that are too long are cut, frames beyond [`FRAMES_MAX`] are left out. It neither allocates
    /// nor panics: it runs inside other people's programs. A buffer shorter than the record needs
    /// ([`ACCESS_WORDS`], or [`WORDS_MAX`] for definitions) gives a record that does not decode.
    pub fn encode(&self, buffer: &mut [u64]) -> usize {
        let mut writer = Writer { buffer, at: 1 };
        let (kind, a, b) = match *self {
            Record::Access {
                op,
                flags,
                cpu,
                time_ns,
                signature,
                object,
                offset,
                length,
            } => {
                for word in [time_ns, signature, object.0, offset, length] {
                    writer.word(word);
                }
                (ACCESS, op as u8, u32::from(flags) | u32::from(cpu) << 16)
            }
            Record::Object { .. }
            | Record::Site { .. }
            | Record::Module { .. }
            | Record::Process { .. } => self.encode_definition(&mut writer),
            Record::Exec {
                pid,
                time_ns,
                path,
                hidden,
            } => {
                writer.word(time_ns);
                writer.bytes(path, STRING_BYTES_MAX);
                (EXEC, u8::from(hidden), pid.0)
            }
            Record::ExecFailed { pid } => (EXEC_FAILED, 0, pid.0),
            Record::IoUring => (IO_URING, 0, 0),
            Record::Cached {
                object,
                offset,
                length,
            } => {
                for word in [object.0, offset, length] {
                    writer.word(word);
                }
                (CACHED, 0, 0)
            }
            Record::Direct { object } => {
                writer.word(object.0);
                (DIRECT, 0, 0)
            }
            Record::Region {
                start,
                length,
                signature,
                time_ns,
                cpu,
                kind,
            } => {
                for word in [start.0, length, signature, time_ns] {
                    writer.word(word);
                }
                (REGION, kind as u8, u32::from(cpu))
            }
            Record::RegionEnd {
                start,
                length,
                time_ns,
            } => {
                for word in [start.0, length, time_ns] {
                    writer.word(word);
                }
                (REGION_END, 0, 0)
            }
            Record::Bound {
                start,
                length,
                bind,
                error,
                site,
                time_ns,
            } => {
                for word in [start.0, length, bind.nodes, time_ns] {
                    writer.word(word);
                }
                let site = if site { SITE_BOUND } else { 0 };
                (BOUND, bind.mode as u8, error & !SITE_BOUND | site)
            }
            Record::Construct {
                kind,
                signature,
                time_ns,
                cpu,
                threads,
            } => {
                writer.word(signature);
                writer.word(time_ns);
                let both = u32::from(cpu) | u32::from(threads) << 16;
                (CONSTRUCT, kind as u8, both)
            }
            Record::At { cpu, time_ns } => {
                writer.word(time_ns);
                (AT, 0, u32::from(cpu))
            }
        };
        let words = writer.at;
        let head = u64::from(kind) | (words as u64) << 8 | u64::from(a) << 24 | u64::from(b) << 32;
        if let Some(first) = buffer.first_mut() {
            *first = head;
        }
        words
    }

    /// As [`Record::encode`], of a record that defines what others name by a key: its payload, and
    /// what its head says.
    fn encode_definition(&self, writer: &mut Writer<'_>) -> (u8, u8, u32) {
        match *self {
            Record::Object {
                object,
                id,
                size,
                asked_pages,
                path,
            } => {
                for word in [object.0, id.device, id.inode, id.birth_ns, size] {
                    writer.word(word);
                }
                writer.bytes(path, STRING_BYTES_MAX);
                (
                    OBJECT,
                    0,
                    asked_pages.map_or(0, |pages| pages.saturating_add(1)),
                )
            }
            Record::Site {
                signature,
                truncated,
                frames,
            } => {
                writer.word(signature);
                for &word in frames.iter().take(2 * FRAMES_MAX) {
                    writer.word(word);
                }
                (SITE, u8::from(truncated), 0)
            }
            Record::Module {
                module,
                build_id,
                path,
            } => {
                writer.word(module);
                writer.bytes(build_id, 64);
                writer.bytes(path, STRING_BYTES_MAX);
                (MODULE, 0, 0)
            }
            Record::Process {
                pid,
                parent,
                image,
                forked,
                time_ns,
                exe,
                args,
            } => {
                writer.word(u64::from(parent.0) | u64::from(image) << 32);
                writer.word(time_ns);
                // Both at their limits still fit: 6 header words, 384 and 128 of payload.
                writer.bytes(exe, 3072);
                writer.bytes(args, ARGS_BYTES_MAX);
                (PROCESS, u8::from(forked), pid.0)
            }
            _ => (0, 0, 0),
        }
    }

    /// Reads the record at the front of `words`, which may hold more. Anything malformed gives
    /// `None`: the words come from memory that the recorded program can write to.
    pub fn decode(words: &'a [u64]) -> Option<Self> {
        let head = *words.first()?;
        let (kind, a, b) = (head as u8, (head >> 24) as u8, (head >> 32) as u32);
        let mut reader = Reader {
            rest: words.get(1..words_of(head))?,
        };
        let record = match kind {
            ACCESS => Record::Access {
                op: Op::from_wire(a)?,
                flags: b as u16,
                cpu: (b >> 16) as u16,
                time_ns: reader.word()?,
                signature: reader.word()?,
                object: FileKey(reader.word()?),
                offset: reader.word()?,
                length: reader.word()?,
            },
            OBJECT => Record::Object {
                object: FileKey(reader.word()?),
                id: FileId {
                    device: reader.word()?,
                    inode: reader.word()?,
                    birth_ns: reader.word()?,
                },
                size: reader.word()?,
                asked_pages: b.checked_sub(1),
                path: reader.bytes()?,
            },
            SITE => {
                let signature = reader.word()?;
                let frames = std::mem::take(&mut reader.rest);
                if !frames.len().is_multiple_of(2) || frames.len() > 2 * FRAMES_MAX {
                    return None;
                }
                Record::Site {
                    signature,
                    truncated: a != 0,
                    frames,
                }
            }
            MODULE => Record::Module {
                module: reader.word()?,
                build_id: reader.bytes()?,
                path: reader.bytes()?,
            },
            PROCESS => {
                let ids = reader.word()?;
                Record::Process {
                    pid: Pid(b),
                    parent: Pid(ids as u32),
                    image: (ids >> 32) as u32,
                    forked: a != 0,
                    time_ns: reader.word()?,
                    exe: reader.bytes()?,
                    args: reader.bytes()?,
                }
            }
            EXEC => Record::Exec {
                pid: Pid(b),
                time_ns: reader.word()?,
                path: reader.bytes()?,
                hidden: a != 0,
            },
            EXEC_FAILED => Record::ExecFailed { pid: Pid(b) },
            IO_URING => Record::IoUring,
            CACHED => Record::Cached {
                object: FileKey(reader.word()?),
                offset: reader.word()?,
                length: reader.word()?,
            },
            DIRECT => Record::Direct {
                object: FileKey(reader.word()?),
            },
            REGION => Record::Region {
                start: Address(reader.word()?),
                length: reader.word()?,
                signature: reader.word()?,
                time_ns: reader.word()?,
                cpu: b as u16,
                kind: RegionKind::from_wire(a)?,
            },
            REGION_END => Record::RegionEnd {
                start: Address(reader.word()?),
                length: reader.word()?,
                time_ns: reader.word()?,
            },
            BOUND => Record::Bound {
                start: Address(reader.word()?),
                length: reader.word()?,
                bind: Bind {
                    mode: BindMode::from_wire(a)?,
                    nodes: reader.word()?,
                },
                time_ns: reader.word()?,
                error: b & !SITE_BOUND,
                site: b & SITE_BOUND != 0,
            },
            CONSTRUCT => Record::Construct {
                kind: ConstructKind::from_wire(a)?,
                signature: reader.word()?,
                time_ns: reader.word()?,
                cpu: b as u16,
                threads: (b >> 16) as u16,
            },
            AT => Record::At {
                cpu: b as u16,
                time_ns: reader.word()?,
            },
            _ => return None,
        };
        reader.rest.is_empty().then_some(record)
    }
}

struct Writer<'b> {
    buffer: &'b mut [u64],
    at: usize,
}

impl Writer<'_> {
    fn word(&mut self, word: u64) {
        if let Some(slot) = self.buffer.get_mut(self.at) {
            *slot = word;
            self.at += 1;
        }
    }

    fn bytes(&mut self, bytes: &[u8], limit: usize) {
        let bytes = bytes.get(..limit).unwrap_or(bytes);
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.word(u64::from_ne_bytes(word));
        }
    }
}

struct Reader<'a> {
    rest: &'a [u64],
}

impl<'a> Reader<'a> {
    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.word()?).ok()?;
        let (words, rest) = self.rest.split_at_checked(length.div_ceil(8))?;
        self.rest = rest;
        // SAFETY: the words are initialised memory of 8 * words.len() bytes, u8 has no alignment or
        // invalid values, and the slice keeps the lifetime of the words.
        let bytes =
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), 8 * words.len()) };
        bytes.get(..length)
    }
}

#[cfg(test)]
mod tests;
