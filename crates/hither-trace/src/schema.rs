//! The trace folder: its files, their columns, and a Rust type for a row of each.
//!
//! | file | a row is |
//! |---|---|
//! | `accesses.parquet` | a call that moved or mapped bytes, accesses to a page of memory, or a mark; in order of time |
//! | `objects.parquet` | a file or a region of memory |
//! | `sites.parquet` | a call site: the signature of a call stack, and its frames |
//! | `meta.json` | (one document) machine, command, processes, threads, losses |
//!
//! Objects, sites, processes and threads are numbered from 0 without gaps. The number of a row is
//! its position, so readers index instead of joining. The number is also stored, for SQL. Site 0 is
//! "unknown".
//!
//! Parquet strings are UTF-8, and paths are bytes. `path` has U+FFFD for bytes that are not UTF-8,
//! for people to read. `path_bytes` has the exact bytes if the two differ, and is null otherwise.

use std::borrow::Cow;

use hither_core::placement::EpochKind;
use hither_core::signature;
use serde::{Deserialize, Serialize};

pub use crate::meta::{
    Cut, FORMAT_VERSION, Losses, Machine, MemoryLeft, MemoryNode, Meta, NotRecorded, ProcessRow,
    RegionReferences, Seen, ThreadRow, Touches,
};
use crate::table::{Column, ColumnType};

/// File of the accesses.
pub const ACCESSES: &str = "accesses.parquet";
/// File of the objects.
pub const OBJECTS: &str = "objects.parquet";
/// File of the call sites.
pub const SITES: &str = "sites.parquet";
/// File of the metadata.
pub const META: &str = "meta.json";
/// The files of a trace folder, sorted by name.
pub const FILES: [&str; 4] = [ACCESSES, META, OBJECTS, SITES];

/// The operation of a row of `accesses.parquet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowOp {
    /// Bytes read.
    Read,
    /// Bytes written.
    Write,
    /// A range mapped into memory. Accesses through the mapping are rows of their own
    /// ([`RowOp::Fault`]) if they were recorded.
    Map,
    /// A mapping removed.
    Unmap,
    /// A file truncated or extended: `offset` is its new length.
    Truncate,
    /// Memory read. A row is `count` successive accesses (usually cache misses) of one thread to
    /// one page. `offset` and `length` are those of the first access.
    Load,
    /// Memory written, in the way of [`RowOp::Load`].
    Store,
    /// Page faults, which may be reads or writes. Of a file: a sampled touch of this range where it
    /// was mapped.
    Fault,
    /// No access: the end of an iteration (`offset` 0), or of a parallel construct within one
    /// (`offset` 1).
    Mark,
}

impl RowOp {
    /// Every op.
    pub const ALL: [RowOp; 9] = [
        RowOp::Read,
        RowOp::Write,
        RowOp::Map,
        RowOp::Unmap,
        RowOp::Truncate,
        RowOp::Load,
        RowOp::Store,
        RowOp::Fault,
        RowOp::Mark,
    ];

    /// Its name in the column `op`.
    pub fn name(self) -> &'static str {
        match self {
            RowOp::Read => "read",
            RowOp::Write => "write",
            RowOp::Map => "map",
            RowOp::Unmap => "unmap",
            RowOp::Truncate => "truncate",
            RowOp::Load => "load",
            RowOp::Store => "store",
            RowOp::Fault => "fault",
            RowOp::Mark => "mark",
        }
    }

    /// Whether it is an access to memory.
    pub fn is_memory(self) -> bool {
        matches!(self, RowOp::Load | RowOp::Store | RowOp::Fault)
    }

    /// The op of that name.
    pub fn from_name(name: &str) -> Option<RowOp> {
        RowOp::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// A row of `accesses.parquet`, without its column `tick`. That is the number of accesses before
/// the row (the sum of their `count`), which the writer adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRow {
    /// When the call returned, in nanoseconds since the start of the recording. Rows are in this
    /// order.
    pub time_ns: u64,
    /// The process, an index into [`Meta::processes`].
    pub process: u32,
    /// The thread, an index into [`Meta::threads`].
    pub thread: u32,
    /// The memory node of the CPU that it ran on.
    pub node: u32,
    /// The call site, an index into `sites.parquet`.
    pub site: u32,
    /// The object, an index into `objects.parquet`.
    pub object: u32,
    /// The operation.
    pub op: RowOp,
    /// The kernel moved the bytes from file to file or socket; the program did not see them.
    pub in_kernel: bool,
    /// Offset in the object, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// The number of identical calls, or of accesses to one page, in direct succession. 1 for a
    /// single call.
    pub count: u32,
}

impl AccessRow {
    /// The mark that ends an iteration or a parallel construct. Epochs by time have no marks.
    pub fn mark(kind: EpochKind, time_ns: u64) -> AccessRow {
        AccessRow {
            time_ns,
            op: RowOp::Mark,
            offset: u64::from(kind == EpochKind::Construct),
            ..AccessRow::default()
        }
    }

    /// The kind of a mark. `None` if `offset` is not a known kind.
    pub fn marked(&self) -> Option<EpochKind> {
        match self.offset {
            0 => Some(EpochKind::Iteration),
            1 => Some(EpochKind::Construct),
            _ => None,
        }
    }
}

impl Default for AccessRow {
    /// A read of no bytes, once, by the first thread.
    fn default() -> Self {
        AccessRow {
            time_ns: 0,
            process: 0,
            thread: 0,
            node: 0,
            site: 0,
            object: 0,
            op: RowOp::Read,
            in_kernel: false,
            offset: 0,
            length: 0,
            count: 1,
        }
    }
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    /// A regular file.
    #[default]
    File,
    /// A region of memory.
    Memory,
}

impl ObjectKind {
    /// Its name in the column `kind`.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::File => "file",
            ObjectKind::Memory => "memory",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<ObjectKind> {
        [ObjectKind::File, ObjectKind::Memory]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// A row of `objects.parquet`. Its position is its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRow {
    /// The kind of object.
    pub kind: ObjectKind,
    /// Its path as the program saw it. Empty if its definition was lost.
    #[serde(with = "path_text")]
    pub path: Vec<u8>,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size when first opened, in bytes.
    pub size: u64,
    /// Time of its first access, in nanoseconds since the start of the recording.
    pub first_seen_ns: u64,
    /// Time of its last access, in nanoseconds since the start of the recording.
    pub last_seen_ns: u64,
}

impl ObjectRow {
    /// The path as text, with U+FFFD for invalid UTF-8.
    pub fn path_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.path)
    }
}

/// A path in JSON: text where it is UTF-8, else its bytes.
mod path_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Path {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &[u8], to: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(path) {
            Ok(text) => text.serialize(to),
            Err(_) => path.serialize(to),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Ok(match Path::deserialize(from)? {
            Path::Text(text) => text.into_bytes(),
            Path::Bytes(bytes) => bytes,
        })
    }
}

/// A frame of a call site's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Path of the program or library.
    pub module: String,
    /// Its build-id in hexadecimal; empty where it has none.
    pub build_id: String,
    /// The return address, as an offset in the module.
    pub offset: u64,
    /// The demangled function, if known.
    pub function: Option<String>,
    /// The source file, if known.
    pub file: Option<String>,
    /// The line, if known.
    pub line: Option<u32>,
}

/// A row of `sites.parquet`. Its position is its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteRow {
    /// The signature. It is the same in every run of the same program; only the unknown site has 0.
    #[serde(with = "hither_core::signature")]
    pub signature: u64,
    /// Whether the stack walk ended early.
    pub truncated: bool,
    /// Function of the frame that names the site, if known.
    pub function: Option<String>,
    /// Source file of that frame, if known.
    pub file: Option<String>,
    /// Line of that frame, if known.
    pub line: Option<u32>,
    /// Path of that frame's program or library, if known.
    pub module: Option<String>,
    /// The stack, innermost frame first.
    pub frames: Vec<Frame>,
}

impl SiteRow {
    /// Site 0 of every trace: accesses with an unknown call stack.
    pub fn unknown() -> SiteRow {
        SiteRow::default()
    }

    /// The frame that names the site.
    pub(crate) fn naming(&self) -> Option<usize> {
        self.frames.iter().position(|frame| {
            Some(&frame.module) == self.module.as_ref() && frame.function == self.function
        })
    }

    /// The most precise label of the site: `function (file:line)`, else module and offset, else the
    /// signature.
    pub fn label(&self) -> String {
        let named = self.naming().map(|at| self.frames[at].label());
        match (named, &self.function, &self.file) {
            (Some(label), _, _) => label,
            (None, Some(function), Some(file)) => match self.line {
                Some(line) => format!("{function} ({file}:{line})"),
                None => format!("{function} ({file})"),
            },
            (None, Some(function), None) => function.clone(),
            (None, None, _) if self.signature == 0 => "unknown".to_owned(),
            (None, None, _) => signature::text(self.signature),
        }
    }
}

impl Frame {
    /// The label of the frame: `function (file:line)`, else the module's name and the offset in it.
    pub fn label(&self) -> String {
        let name = self.module.rsplit('/').next().unwrap_or_default();
        match (&self.function, &self.file, self.line) {
            (Some(function), Some(file), Some(line)) => format!("{function} ({file}:{line})"),
            (Some(function), Some(file), None) => format!("{function} ({file})"),
            (Some(function), ..) => format!("{function} in {name}"),
            (None, ..) => format!("{name}+{:#x}", self.offset),
        }
    }
}

const fn field(name: &'static str, column_type: ColumnType) -> Column {
    Column::required(name, column_type)
}

const fn nullable(name: &'static str, column_type: ColumnType) -> Column {
    Column::nullable(name, column_type)
}

/// Columns of `accesses.parquet`.
pub(crate) const ACCESSES_COLUMNS: [Column; 12] = [
    field("tick", ColumnType::UInt64),
    field("time_ns", ColumnType::UInt64),
    field("process", ColumnType::UInt32),
    field("thread", ColumnType::UInt32),
    field("node", ColumnType::UInt32),
    field("site", ColumnType::UInt32),
    field("object", ColumnType::UInt32),
    field("op", ColumnType::Utf8),
    field("in_kernel", ColumnType::Boolean),
    field("offset", ColumnType::UInt64),
    field("length", ColumnType::UInt64),
    field("count", ColumnType::UInt32),
];

/// Columns of `objects.parquet`.
pub(crate) const OBJECTS_COLUMNS: [Column; 9] = [
    field("object", ColumnType::UInt32),
    field("kind", ColumnType::Utf8),
    field("path", ColumnType::Utf8),
    nullable("path_bytes", ColumnType::Binary),
    field("device", ColumnType::UInt64),
    field("inode", ColumnType::UInt64),
    field("size", ColumnType::UInt64),
    field("first_seen_ns", ColumnType::UInt64),
    field("last_seen_ns", ColumnType::UInt64),
];

/// Fields of a frame in `sites.parquet`.
const FRAME_FIELDS: [Column; 6] = [
    field("module", ColumnType::Utf8),
    field("build_id", ColumnType::Utf8),
    field("offset", ColumnType::UInt64),
    nullable("function", ColumnType::Utf8),
    nullable("file", ColumnType::Utf8),
    nullable("line", ColumnType::UInt32),
];

/// Columns of `sites.parquet`.
pub(crate) const SITES_COLUMNS: [Column; 8] = [
    field("site", ColumnType::UInt32),
    field("signature", ColumnType::UInt64),
    field("truncated", ColumnType::Boolean),
    nullable("function", ColumnType::Utf8),
    nullable("file", ColumnType::Utf8),
    nullable("line", ColumnType::UInt32),
    nullable("module", ColumnType::Utf8),
    field("frames", ColumnType::List(&FRAME_FIELDS)),
];
