//! The records that a recorded program sends to the agent, and their encoding as 64-bit words.
//!
//! Every record names things by 64-bit keys that mean the same in every process (a call site by its signature, a
//! file by a hash of its device, inode and birth time, a module by a hash of its build-id), so no record depends
//! on another: a definition that is lost costs a name, never an access.
//!
//! Layout: word 0 is `kind | words << 8 | a << 24 | b << 32`, where `words` counts the whole record (16 bits),
//! `a` is 8 and `b` 32 bits of payload; the rest is payload. Byte strings are zero-padded to whole words, with their
//! length in a word before them.

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
}

/// Access flag: the kernel moved the bytes from file to file or socket, the program did not see them
/// (sendfile, copy_file_range, splice).
pub const IN_KERNEL: u32 = 1;

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
        object: u64,
        /// Where in the file, in bytes.
        offset: u64,
        /// How many bytes were moved.
        length: u64,
    },
    /// A file, defined when it is first opened.
    Object {
        /// Its key.
        object: u64,
        /// Device number.
        device: u64,
        /// Inode number.
        inode: u64,
        /// Birth time in nanoseconds since the epoch, 0 where the file system has none.
        birth_ns: u64,
        /// Size when opened, in bytes.
        size: u64,
        /// Its path as the process sees it.
        path: &'a [u8],
    },
    /// A call site, defined when its signature is first computed in a process.
    Site {
        /// Its signature.
        signature: u64,
        /// The walk ended early (depth limit, JIT code, no unwind information).
        truncated: bool,
        /// The frames, innermost first, as pairs of words: module key, offset of the return address.
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
        pid: u32,
        /// Parent's process id.
        parent: u32,
        /// CLOCK_MONOTONIC, in nanoseconds.
        time_ns: u64,
        /// Path of the program.
        exe: &'a [u8],
        /// The arguments, each ended by a NUL byte; cut at 1024 bytes.
        args: &'a [u8],
    },
    /// A process is about to become another program (exec), or a child that will (posix_spawn): if no
    /// [`Record::Process`] with this pid and a later time follows, that program was not recorded.
    Exec {
        /// Process id that will run it.
        pid: u32,
        /// CLOCK_MONOTONIC, in nanoseconds.
        time_ns: u64,
        /// The program as given, or as found along PATH.
        path: &'a [u8],
    },
    /// The last [`Record::Exec`] of this process failed.
    ExecFailed {
        /// Process id.
        pid: u32,
    },
}
