//! Writes a trace for other tools: as a trace folder, in libCacheSim's oracleGeneral, or as CSV.
//! Any readable trace can be written, reference by reference. What the format has no column for is
//! left out: for the accesses to a page of memory, oracleGeneral has one record per reference, and
//! only the trace folder has marks.
//!
//! A file gets its name when it is complete. To add a format, write a function here and a line in
//! [`EXPORTS`].

use std::io::{self, BufWriter, Write};
use std::path::Path;

use hither_core::registry::Needs;
use hither_core::{Access, Life, NEVER, Op};
use tempfile::{NamedTempFile, TempPath};

use crate::error::{Error, Result};
use crate::folder::{clear_leftovers, create_locked, partial_path};
use crate::import::write_references;
use crate::trace::Trace;
use crate::writer::Writer;

/// References decoded at a time.
const BATCH_REFERENCES: usize = 8192;

/// A format that traces can be written in.
#[derive(Debug)]
pub struct Export {
    /// Its name, for `--format`.
    pub name: &'static str,
    /// What it is, in a line.
    pub doc: &'static str,
    shape: Shape,
}

/// What a format writes.
#[derive(Debug)]
enum Shape {
    Folder,
    /// One stream of bytes: its header, what that ends with where objects have sizes, and the bytes
    /// of each reference.
    Stream {
        header: &'static str,
        of_objects: &'static str,
        record: fn(&Access, &Size, out: &mut Vec<u8>),
    },
}

/// How large the object of a reference is, or its block.
#[derive(Debug)]
enum Size {
    /// All are blocks of so many bytes.
    Block(u32),
    /// It is in the access, and this is when that was and how long it lives.
    Object(Life),
}

impl Size {
    fn bytes(&self, access: &Access) -> u64 {
        match self {
            Size::Block(bytes) => (*bytes).into(),
            Size::Object(_) => access.bytes,
        }
    }

    /// The time in seconds. References to blocks have none: their number serves as one, since it
    /// has the same order.
    fn time(&self, access: &Access) -> u64 {
        match self {
            Size::Block(_) => access.tick,
            Size::Object(life) => life.now_ns / NS_PER_SECOND,
        }
    }
}

const NS_PER_SECOND: u64 = 1_000_000_000;

/// The formats that traces can be written in, sorted by name.
pub const EXPORTS: &[Export] = &[
    Export {
        name: "csv",
        doc: "CSV with object, op, next access, thread, node and count (libCacheSim csv)",
        shape: Shape::Stream {
            header: "time,object,size,op,next_access_vtime,thread,node,count",
            of_objects: ",ttl,cost",
            record: csv,
        },
    },
    Export {
        name: "hither",
        doc: "trace folder, a row a reference",
        shape: Shape::Folder,
    },
    Export {
        name: "oracle-general",
        doc: "binary, 24 bytes a reference with its next access (libCacheSim oracleGeneral)",
        shape: Shape::Stream {
            header: "",
            of_objects: "",
            record: oracle_general,
        },
    },
];

impl Export {
    /// The format of that name.
    pub fn find(name: &str) -> Result<&'static Export> {
        let found = EXPORTS.iter().find(|export| export.name == name);
        let names: Vec<&str> = EXPORTS.iter().map(|export| export.name).collect();
        found.ok_or_else(|| Error::UnknownFormat {
            name: name.to_owned(),
            known: names.join(", "),
        })
    }

    /// Whether the format is one stream of bytes, which can be written to a pipe.
    pub fn is_stream(&self) -> bool {
        matches!(self.shape, Shape::Stream { .. })
    }

    /// Writes a trace at `path`. Without `force`, `path` must not exist. With it, only a regular
    /// file or a trace folder is replaced: `--force -o /dev/null` must not replace the device.
    /// `progress` is called with the number of references done.
    pub fn write(
        &self,
        trace: &Trace,
        path: &Path,
        force: bool,
        progress: impl FnMut(u64),
    ) -> Result<()> {
        if let Shape::Folder = self.shape {
            return write_references(trace, Writer::create(path, force)?, progress).map(|_| ());
        }
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(Error::NotAFile {
                path: path.to_owned(),
            });
        }
        if !force && path.symlink_metadata().is_ok() {
            return Err(Error::Exists {
                path: path.to_owned(),
            });
        }
        clear_leftovers(path);
        let partial = partial_path(path).ok_or_else(|| Error::NotAFile {
            path: path.to_owned(),
        })?;
        let parent = partial.parent().unwrap_or(path);
        let file = create_locked(&partial, 0o666).map_err(Error::create(path, parent))?;
        let path_to_remove = TempPath::try_from_path(&partial).map_err(Error::io(parent))?;
        let mut partial = NamedTempFile::from_parts(file, path_to_remove);
        let out = partial.as_file_mut();
        self.write_stream(trace, &mut *out, progress)
            .map_err(|error| error.of_output(path))?;
        out.sync_all().map_err(Error::io(path))?;
        let named = if force {
            partial.persist(path)
        } else {
            partial.persist_noclobber(path)
        };
        named.map_err(|error| Error::io(path)(error.error))?;
        Ok(())
    }

    /// Writes a trace into `out`. Errors of `out` name no path.
    ///
    /// # Panics
    ///
    /// Panics if the format is a folder.
    pub fn write_stream(
        &self,
        trace: &Trace,
        out: impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        let Shape::Stream {
            header,
            of_objects,
            record,
        } = self.shape
        else {
            panic!("{} is a folder, not a stream", self.name);
        };
        let mut out = BufWriter::with_capacity(1 << 18, out);
        if !header.is_empty() {
            let of_objects = if trace.has_sizes() { of_objects } else { "" };
            writeln!(out, "{header}{of_objects}").map_err(unnamed)?;
        }
        let needs = Needs {
            future: true,
            objects: true,
            sizes: true,
            ..Needs::NOTHING
        };
        let (mut batch, mut bytes) = (Vec::with_capacity(BATCH_REFERENCES), Vec::new());
        let mut lives = Vec::new();
        for start in (0..trace.references()).step_by(BATCH_REFERENCES) {
            trace.fill(start, BATCH_REFERENCES, needs, &mut batch)?;
            trace.fill_times(start, BATCH_REFERENCES, &mut lives)?;
            bytes.clear();
            for (at, access) in batch.iter().enumerate() {
                let size = match lives.get(at) {
                    Some(&life) => Size::Object(life),
                    None => Size::Block(trace.options().block_bytes),
                };
                record(access, &size, &mut bytes);
            }
            out.write_all(&bytes).map_err(unnamed)?;
            progress((start + batch.len()) as u64);
        }
        out.flush().map_err(unnamed)
    }
}

/// An error of an output without a path.
fn unnamed(source: io::Error) -> Error {
    Error::Output { source }
}

/// One number for the block: its object in the upper half, its index in the lower half.
fn id(access: &Access) -> u64 {
    u64::from(access.object.0) << 32 | u64::from(access.index)
}

/// The number of the next reference to the block, from 1, as in libCacheSim. -1 if there is none.
fn next(access: &Access) -> i64 {
    match access.next {
        NEVER => -1,
        next => next as i64 + 1,
    }
}

/// Times and sizes have 32 bits: larger ones are the largest.
fn oracle_general(access: &Access, size: &Size, out: &mut Vec<u8>) {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    out.extend_from_slice(&narrow(size.time(access)));
    out.extend_from_slice(&id(access).to_le_bytes());
    out.extend_from_slice(&narrow(size.bytes(access)));
    out.extend_from_slice(&next(access).to_le_bytes());
}

fn csv(access: &Access, size: &Size, out: &mut Vec<u8>) {
    let op = match access.op {
        Op::Read | Op::Map => "read",
        Op::Write => "write",
        Op::Delete => "delete",
    };
    let (time, bytes) = (size.time(access), size.bytes(access));
    let (id, next) = (id(access), next(access));
    let (thread, node, count) = (access.thread.0, access.node.0, access.count);
    // Writing to memory does not fail.
    let _ = write!(
        out,
        "{time},{id},{bytes},{op},{next},{thread},{node},{count}"
    );
    let _ = match size {
        Size::Block(_) => writeln!(out),
        Size::Object(life) => {
            let (ttl, cost) = (life.ttl_ns as f64 / NS_PER_SECOND as f64, access.cost);
            writeln!(out, ",{ttl},{cost}")
        }
    };
}
