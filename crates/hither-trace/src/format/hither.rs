//! The trace folder, by its [`schema`](crate::schema). Accesses are decoded in batches and become
//! references at once, so memory does not hold the file.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use super::reader::{Format, RecordKind};
use crate::error::{Error, Result};
use crate::schema::{
    ACCESSES, ACCESSES_COLUMNS, AccessRow, FILES, FORMAT_VERSION, Frame, META, Meta, OBJECTS,
    OBJECTS_COLUMNS, ObjectKind, ObjectRow, RowOp, SITES, SITES_COLUMNS, SiteRow,
};
use crate::sink::Sink;
use crate::source::{self, Head, Input};
use crate::table::{RowBatch, Table};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "hither",
    doc: "folder of Parquet files, as hither record writes it (its accesses.parquet also names it)",
    records: RecordKind::Requests,
    matches: Some(|head| matches!(head, Head::Folder) || head.bytes().starts_with(b"PAR1")),
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let folder = folder_of(input)?;
    let meta = read_meta(&folder.join(META))?;
    let objects = read_objects(folder.join(OBJECTS))?;
    let sites = read_sites(folder.join(SITES))?;
    if sites.is_empty() {
        return Err(Error::NotATrace {
            path: folder,
            problem: format!("{SITES} holds no site 0"),
        });
    }
    let accesses = folder.join(ACCESSES);
    sink.describe(objects, sites, meta);
    sink.at(&accesses);
    let mut table = open_accesses(accesses)?;
    for_each_access(&mut table, |row| sink.request(row))?;
    let mut sums = String::new();
    for name in FILES {
        sums += &format!("{}  {name}\n", source::sha256_of_file(&folder.join(name))?);
    }
    Ok(Some(source::sha256_of_text(&sums)))
}

/// The trace folder of a path: the path itself, or the folder of its `accesses.parquet`.
fn folder_of(input: &Input<'_>) -> Result<PathBuf> {
    let path = input.path();
    let not_a_trace = |problem: String| Error::NotATrace {
        path: path.to_owned(),
        problem,
    };
    if !input.is_on_disk() {
        return Err(not_a_trace(
            "a folder cannot come through a pipe".to_owned(),
        ));
    }
    let metadata = path.metadata().map_err(Error::io(path))?;
    let problem = match path.parent() {
        _ if metadata.is_dir() && path.join(ACCESSES).exists() => return Ok(path.to_owned()),
        _ if metadata.is_dir() => format!("it holds no {ACCESSES}"),
        Some(parent) if path.file_name().is_some_and(|name| name == ACCESSES) => {
            return Ok(parent.to_owned());
        }
        _ => format!("it is a file other than {ACCESSES}"),
    };
    Err(not_a_trace(problem))
}

fn read_meta(path: &Path) -> Result<Meta> {
    let file = BufReader::new(File::open(path).map_err(Error::io(path))?);
    let meta: Meta = serde_json::from_reader(file).map_err(|source| Error::Json {
        path: path.to_owned(),
        source,
    })?;
    if meta.format != FORMAT_VERSION {
        return Err(Error::Version {
            path: path.to_owned(),
            found: meta.format,
            supported: FORMAT_VERSION,
        });
    }
    Ok(meta)
}

/// Opens the table of accesses.
pub(crate) fn open_accesses(path: PathBuf) -> Result<Table> {
    // The column `tick` is for other tools.
    let columns = ACCESSES_COLUMNS
        .iter()
        .filter(|column| column.name() != "tick");
    Table::open(path, columns)
}

/// Reads the rows that are left in a table of accesses.
pub(crate) fn for_each_access(
    table: &mut Table,
    mut each: impl FnMut(&AccessRow) -> Result<()>,
) -> Result<()> {
    while let Some(batch) = table.next_batch()? {
        let time_ns = batch.u64s("time_ns")?;
        let process = batch.u32s("process")?;
        let thread = batch.u32s("thread")?;
        let node = batch.u32s("node")?;
        let site = batch.u32s("site")?;
        let object = batch.u32s("object")?;
        let ops = batch.bytes("op")?;
        let in_kernel = batch.booleans("in_kernel")?;
        let offset = batch.u64s("offset")?;
        let length = batch.u64s("length")?;
        let count = batch.u32s("count")?;
        // Successive rows often have the same op. Then its name is not looked up again.
        let mut op = RowOp::Read;
        for row in 0..batch.len() {
            let name = ops[row].data();
            if name != op.name().as_bytes() {
                op = op_named(&batch, name)?;
            }
            each(&AccessRow {
                time_ns: time_ns.get(row),
                process: process.get(row),
                thread: thread.get(row),
                node: node.get(row),
                site: site.get(row),
                object: object.get(row),
                op,
                in_kernel: in_kernel[row],
                offset: offset.get(row),
                length: length.get(row),
                count: count.get(row),
            })?;
        }
    }
    Ok(())
}

fn op_named(batch: &RowBatch<'_>, name: &[u8]) -> Result<RowOp> {
    let name = String::from_utf8_lossy(name);
    RowOp::from_name(&name).ok_or_else(|| batch.error("op", &format!("unknown op {name:?}")))
}

fn read_objects(path: PathBuf) -> Result<Vec<ObjectRow>> {
    let mut table = Table::open(path.clone(), &OBJECTS_COLUMNS)?;
    let mut objects = Vec::new();
    while let Some(batch) = table.next_batch()? {
        let ids = batch.u32s("object")?;
        let kind = batch.bytes("kind")?;
        let text = batch.bytes("path")?;
        let bytes = batch.optional_bytes("path_bytes")?;
        let (device, inode) = (batch.u64s("device")?, batch.u64s("inode")?);
        let size = batch.u64s("size")?;
        let first_seen_ns = batch.u64s("first_seen_ns")?;
        let last_seen_ns = batch.u64s("last_seen_ns")?;
        for (row, bytes) in bytes.into_iter().enumerate() {
            numbered(&path, objects.len(), ids.get(row))?;
            let kind = String::from_utf8_lossy(kind[row].data());
            objects.push(ObjectRow {
                kind: ObjectKind::from_name(&kind)
                    .ok_or_else(|| batch.error("kind", &format!("unknown kind {kind:?}")))?,
                path: bytes.unwrap_or_else(|| text[row].data()).to_owned(),
                device: device.get(row),
                inode: inode.get(row),
                size: size.get(row),
                first_seen_ns: first_seen_ns.get(row),
                last_seen_ns: last_seen_ns.get(row),
            });
        }
    }
    Ok(objects)
}

fn read_sites(path: PathBuf) -> Result<Vec<SiteRow>> {
    let mut table = Table::open(path.clone(), &SITES_COLUMNS)?;
    let mut sites = Vec::new();
    while let Some(batch) = table.next_batch()? {
        let ids = batch.u32s("site")?;
        let signature = batch.u64s("signature")?;
        let truncated = batch.booleans("truncated")?;
        let function = batch.optional_texts("function")?;
        let file = batch.optional_texts("file")?;
        let line = batch.optional_u32s("line")?;
        let module = batch.optional_texts("module")?;
        let lengths = batch.list_lengths("frames")?;
        let mut frames = read_frames(&batch)?.into_iter();
        for (row, length) in lengths.into_iter().enumerate() {
            numbered(&path, sites.len(), ids.get(row))?;
            sites.push(SiteRow {
                signature: signature.get(row),
                truncated: truncated[row],
                function: function[row].map(str::to_owned),
                file: file[row].map(str::to_owned),
                line: line[row],
                module: module[row].map(str::to_owned),
                frames: frames.by_ref().take(length).collect(),
            });
        }
    }
    Ok(sites)
}

/// The frames of all sites of a batch, one after the other.
fn read_frames(batch: &RowBatch<'_>) -> Result<Vec<Frame>> {
    let module = batch.optional_texts("frames.module")?;
    let build_id = batch.optional_texts("frames.build_id")?;
    let offset = batch.optional_u64s("frames.offset")?;
    let function = batch.optional_texts("frames.function")?;
    let file = batch.optional_texts("frames.file")?;
    let line = batch.optional_u32s("frames.line")?;
    let frame = |at: usize| Frame {
        module: module[at].unwrap_or_default().to_owned(),
        build_id: build_id[at].unwrap_or_default().to_owned(),
        offset: offset[at].unwrap_or_default(),
        function: function[at].map(str::to_owned),
        file: file[at].map(str::to_owned),
        line: line[at],
    };
    Ok((0..module.len()).map(frame).collect())
}

/// Checks that a table's rows are in the order of their numbers, without gaps.
fn numbered(path: &Path, row: usize, number: u32) -> Result<()> {
    if row == number as usize {
        return Ok(());
    }
    let problem = format!("number {number} stands at position {row}");
    Err(Error::Row {
        path: path.to_owned(),
        row: row as u64,
        problem,
    })
}
