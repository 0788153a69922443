//! The trace folder, as [`schema`](crate::schema) describes it. The accesses are decoded batch by
//! batch while the references are made, so memory holds the references and not the file.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use arrow::array::{
    Array, BinaryArray, BooleanArray, DictionaryArray, ListArray, StringArray, StructArray,
    UInt32Array, UInt64Array,
};
use arrow::datatypes::Int32Type;

use crate::error::{Error, Result};
use crate::format::{Format, Records};
use crate::schema::{
    ACCESSES, AccessRow, FILES, FORMAT_VERSION, Frame, META, Meta, OBJECTS, ObjectKind, ObjectRow,
    RowOp, SITES, SiteRow, accesses_schema, objects_schema, sites_schema,
};
use crate::sink::Sink;
use crate::source::{self, Head, Input};
use crate::table::{Batch, Table};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "hither",
    doc: "folder of Parquet files, as hither record writes it (its accesses.parquet also names it)",
    records: Records::Requests,
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
    read_accesses(accesses, sink)?;
    let mut sums = String::new();
    for name in FILES {
        sums += &format!("{}  {name}\n", source::sha256_of_file(&folder.join(name))?);
    }
    Ok(Some(source::sha256_of_text(&sums)))
}

/// The trace folder that a path names: itself, or the one that its `accesses.parquet` lies in.
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

fn read_accesses(path: PathBuf, sink: &mut dyn Sink) -> Result<()> {
    const COLUMNS: [&str; 11] = [
        "time_ns",
        "process",
        "thread",
        "node",
        "site",
        "object",
        "op",
        "in_kernel",
        "offset",
        "length",
        "count",
    ];
    let mut table = Table::open(path.clone(), &accesses_schema(), &COLUMNS)?;
    while let Some(batch) = table.next_batch()? {
        let time_ns = batch.column::<UInt64Array>("time_ns")?.values();
        let process = batch.column::<UInt32Array>("process")?.values();
        let thread = batch.column::<UInt32Array>("thread")?.values();
        let node = batch.column::<UInt32Array>("node")?.values();
        let site = batch.column::<UInt32Array>("site")?.values();
        let object = batch.column::<UInt32Array>("object")?.values();
        let op = batch.column::<DictionaryArray<Int32Type>>("op")?;
        let ops = ops(&batch, op)?;
        let in_kernel = batch.column::<BooleanArray>("in_kernel")?.values();
        let offset = batch.column::<UInt64Array>("offset")?.values();
        let length = batch.column::<UInt64Array>("length")?.values();
        let count = batch.column::<UInt32Array>("count")?.values();
        for (row, key) in op.keys().values().iter().enumerate() {
            sink.request(&AccessRow {
                time_ns: time_ns[row],
                process: process[row],
                thread: thread[row],
                node: node[row],
                site: site[row],
                object: object[row],
                op: *ops
                    .get(*key as usize)
                    .ok_or_else(|| batch.error("op", "points outside its dictionary"))?,
                in_kernel: in_kernel.value(row),
                offset: offset[row],
                length: length[row],
                count: count[row],
            })?;
        }
    }
    Ok(())
}

/// The ops of a batch's dictionary.
fn ops(batch: &Batch, column: &DictionaryArray<Int32Type>) -> Result<Vec<RowOp>> {
    let names: Option<&StringArray> = column.values().as_any().downcast_ref();
    let names = names.ok_or_else(|| batch.error("op", "has an unexpected type"))?;
    let op = |name: Option<&str>| {
        let name = name.unwrap_or_default();
        RowOp::from_name(name).ok_or_else(|| batch.error("op", &format!("unknown op {name:?}")))
    };
    names.iter().map(op).collect()
}

fn read_objects(path: PathBuf) -> Result<Vec<ObjectRow>> {
    let schema = objects_schema();
    let columns: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let mut table = Table::open(path.clone(), &schema, &columns)?;
    let mut objects = Vec::new();
    while let Some(batch) = table.next_batch()? {
        let ids = batch.column::<UInt32Array>("object")?;
        let kind = batch.column::<StringArray>("kind")?;
        let text = batch.column::<StringArray>("path")?;
        let bytes = batch.nullable::<BinaryArray>("path_bytes")?;
        let numbers = |name| batch.column::<UInt64Array>(name);
        let (device, inode, size) = (numbers("device")?, numbers("inode")?, numbers("size")?);
        let (first_seen_ns, last_seen_ns) = (numbers("first_seen_ns")?, numbers("last_seen_ns")?);
        for row in 0..batch.len() {
            numbered(&path, objects.len(), ids.value(row))?;
            let kind = kind.value(row);
            objects.push(ObjectRow {
                kind: ObjectKind::from_name(kind)
                    .ok_or_else(|| batch.error("kind", &format!("unknown kind {kind:?}")))?,
                path: if bytes.is_valid(row) {
                    bytes.value(row)
                } else {
                    text.value(row).as_bytes()
                }
                .to_owned(),
                device: device.value(row),
                inode: inode.value(row),
                size: size.value(row),
                first_seen_ns: first_seen_ns.value(row),
                last_seen_ns: last_seen_ns.value(row),
            });
        }
    }
    Ok(objects)
}

fn read_sites(path: PathBuf) -> Result<Vec<SiteRow>> {
    let schema = sites_schema();
    let columns: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let mut table = Table::open(path.clone(), &schema, &columns)?;
    let mut sites = Vec::new();
    while let Some(batch) = table.next_batch()? {
        let ids = batch.column::<UInt32Array>("site")?;
        let signature = batch.column::<UInt64Array>("signature")?;
        let truncated = batch.column::<BooleanArray>("truncated")?;
        let function = batch.nullable::<StringArray>("function")?;
        let file = batch.nullable::<StringArray>("file")?;
        let line = batch.nullable::<UInt32Array>("line")?;
        let module = batch.nullable::<StringArray>("module")?;
        let lists = batch.column::<ListArray>("frames")?;
        for row in 0..batch.len() {
            numbered(&path, sites.len(), ids.value(row))?;
            sites.push(SiteRow {
                signature: signature.value(row),
                truncated: truncated.value(row),
                function: text(function, row),
                file: text(file, row),
                line: line.is_valid(row).then(|| line.value(row)),
                module: text(module, row),
                frames: read_frames(&batch, &lists.value(row))?,
            });
        }
    }
    Ok(sites)
}

fn read_frames(batch: &Batch, frames: &dyn Array) -> Result<Vec<Frame>> {
    let frames: Option<&StructArray> = frames.as_any().downcast_ref();
    let frames = frames.ok_or_else(|| batch.error("frames", "has an unexpected type"))?;
    let module = batch.nested::<StringArray>(frames, "module")?;
    let build_id = batch.nested::<StringArray>(frames, "build_id")?;
    let offset = batch.nested::<UInt64Array>(frames, "offset")?;
    let function = batch.nested::<StringArray>(frames, "function")?;
    let file = batch.nested::<StringArray>(frames, "file")?;
    let line = batch.nested::<UInt32Array>(frames, "line")?;
    let frame = |row| Frame {
        module: text(module, row).unwrap_or_default(),
        build_id: text(build_id, row).unwrap_or_default(),
        offset: offset.value(row),
        function: text(function, row),
        file: text(file, row),
        line: line.is_valid(row).then(|| line.value(row)),
    };
    Ok((0..frames.len()).map(frame).collect())
}

fn text(column: &StringArray, row: usize) -> Option<String> {
    column.is_valid(row).then(|| column.value(row).to_owned())
}

/// A table's rows stand in the order of their numbers, without gaps.
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
