//! The trace folder, by its [`schema`](crate::schema). Accesses are decoded in batches and become
//! references at once, so memory does not hold the file. One thread decodes the next rows and
//! another one hashes the files, while the rows before become references.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, ScopedJoinHandle};

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
    sink.rows_of(&accesses);
    let table = open_accesses(accesses)?;
    thread::scope(|scope| {
        let sha256 = scope.spawn(|| sha256_of_files(&folder));
        // At an error the receiver is dropped, which ends the decoding.
        let (decoded, batches) = mpsc::sync_channel(1);
        let (used, spare) = mpsc::channel();
        let decoding = scope.spawn(move || decode(table, &decoded, &spare));
        for rows in batches {
            sink.requests(&rows)?;
            // It has no receiver when all is decoded.
            let _ = used.send(rows);
        }
        join(decoding)?;
        join(sha256).map(Some)
    })
}

/// Decodes a table of accesses into `decoded`, in vectors from `spare` if there are any.
fn decode(
    mut table: Table,
    decoded: &mpsc::SyncSender<Vec<AccessRow>>,
    spare: &mpsc::Receiver<Vec<AccessRow>>,
) -> Result<()> {
    loop {
        let mut rows = spare.try_recv().unwrap_or_default();
        if !next_accesses(&mut table, &mut rows)? || decoded.send(rows).is_err() {
            return Ok(());
        }
    }
}

/// What a thread returned, or its panic.
fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn sha256_of_files(folder: &Path) -> Result<String> {
    let mut sums = String::new();
    for name in FILES {
        sums += &format!("{}  {name}\n", source::sha256_of_file(&folder.join(name))?);
    }
    Ok(source::sha256_of_text(&sums))
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
    if metadata.is_dir() {
        let accesses = path.join(ACCESSES);
        return match accesses.metadata() {
            Ok(_) => Ok(path.to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(not_a_trace(format!("it holds no {ACCESSES}")))
            }
            // The system's answer says nothing of what the folder is.
            Err(error) => Err(Error::io(&accesses)(error)),
        };
    }
    let problem = match path.parent() {
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
    let mut rows = Vec::new();
    while next_accesses(table, &mut rows)? {
        rows.iter().try_for_each(&mut each)?;
    }
    Ok(())
}

/// Replaces `rows` by the next rows of a table of accesses. False at the end.
fn next_accesses(table: &mut Table, rows: &mut Vec<AccessRow>) -> Result<bool> {
    let Some(batch) = table.next_batch()? else {
        return Ok(false);
    };
    let len = batch.len();
    let time_ns = batch.u64s("time_ns")?.first(len);
    let process = batch.u32s("process")?.first(len);
    let thread = batch.u32s("thread")?.first(len);
    let node = batch.u32s("node")?.first(len);
    let site = batch.u32s("site")?.first(len);
    let object = batch.u32s("object")?.first(len);
    let op = batch.parsed("op", RowOp::from_name)?;
    let op = &op[..len];
    let in_kernel = &batch.booleans("in_kernel")?[..len];
    let offset = batch.u64s("offset")?.first(len);
    let length = batch.u64s("length")?.first(len);
    let count = batch.u32s("count")?.first(len);
    rows.clear();
    rows.extend((0..len).map(move |row| AccessRow {
        time_ns: time_ns.get(row),
        process: process.get(row),
        thread: thread.get(row),
        node: node.get(row),
        site: site.get(row),
        object: object.get(row),
        op: op[row],
        in_kernel: in_kernel[row],
        offset: offset.get(row),
        length: length.get(row),
        count: count.get(row),
    }));
    Ok(true)
}

fn read_objects(path: PathBuf) -> Result<Vec<ObjectRow>> {
    let mut table = Table::open(path.clone(), &OBJECTS_COLUMNS)?;
    let mut objects = Vec::new();
    while let Some(batch) = table.next_batch()? {
        let ids = batch.u32s("object")?;
        let kind = batch.parsed("kind", ObjectKind::from_name)?;
        let text = batch.bytes("path")?;
        let bytes = batch.optional_bytes("path_bytes")?;
        let (device, inode) = (batch.u64s("device")?, batch.u64s("inode")?);
        let size = batch.u64s("size")?;
        let first_seen_ns = batch.u64s("first_seen_ns")?;
        let last_seen_ns = batch.u64s("last_seen_ns")?;
        for (row, bytes) in bytes.into_iter().enumerate() {
            numbered(&path, objects.len(), ids.get(row))?;
            objects.push(ObjectRow {
                kind: kind[row],
                path: bytes.unwrap_or(text[row]).to_owned(),
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
