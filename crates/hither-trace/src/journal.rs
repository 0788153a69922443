//! The journal of a recording: what is needed to complete its trace if the recorder is killed.
//!
//! A Parquet file without its footer cannot be read, and the other tables are written at the end.
//! So a recorder notes beside `accesses.parquet`, in `journal.jsonl`, what is not yet in a file: a
//! line for each checkpoint, with the row groups that were written since the last one and the rows
//! that the tables have got. The first line is the `meta.json` as far as it is known at the start.
//!
//! A line is complete when it ends with a newline. What the kernel has taken from a process stays
//! when the process is killed, and row groups are written before the line that names them. So each
//! complete line is true, and the first incomplete one is where the recorder was killed. The
//! journal is removed when the trace is complete.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write as _};
use std::path::Path;

use parquet::file::metadata::{ParquetMetaDataReader, RowGroupMetaData};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::private_file::create_private;
use crate::schema::{ACCESSES_COLUMNS, Losses, Meta, ObjectRow, ProcessRow, SiteRow, ThreadRow};
use crate::table;

/// The file of the journal.
pub(crate) const JOURNAL: &str = "journal.jsonl";

/// What the tables have got since the last checkpoint. A row that is named again replaces the
/// earlier one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableRows {
    /// Files, each with its number.
    pub objects: Vec<(u32, ObjectRow)>,
    /// Call sites, each with its number. Their frames have no names yet.
    pub sites: Vec<(u32, SiteRow)>,
    /// Processes, in the order of their numbers.
    pub processes: Vec<ProcessRow>,
    /// Threads, in the order of their numbers.
    pub threads: Vec<ThreadRow>,
    /// What was lost until now.
    pub losses: Losses,
    /// What was read of pipes and the like until now.
    pub other_bytes: u64,
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct Checkpoint<'a> {
    /// Each row group as a Parquet footer of its own, in hexadecimal.
    row_groups: Vec<String>,
    #[serde(flatten)]
    rows: Cow<'a, TableRows>,
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// How many row groups it names.
    row_groups: usize,
}

impl Journal {
    pub(crate) fn create(folder: &Path, meta: &Meta) -> Result<Journal> {
        let path = folder.join(JOURNAL);
        let mut file = create_private(&path).map_err(Error::io(&path))?;
        write_line(&mut file, &path, meta)?;
        Ok(Journal {
            file,
            row_groups: 0,
        })
    }

    /// How many row groups it names.
    pub(crate) fn row_groups(&self) -> usize {
        self.row_groups
    }

    /// Notes the row groups that it does not name yet, and new rows.
    pub(crate) fn append(
        &mut self,
        folder: &Path,
        row_groups: &[RowGroupMetaData],
        rows: &TableRows,
    ) -> Result<()> {
        let path = folder.join(JOURNAL);
        let new = &row_groups[self.row_groups..];
        let footers: parquet::errors::Result<Vec<String>> = new
            .iter()
            .map(|group| {
                Ok(hex(&table::footer(
                    &ACCESSES_COLUMNS,
                    std::slice::from_ref(group),
                    None,
                )?))
            })
            .collect();
        let line = Checkpoint {
            row_groups: footers.map_err(Error::parquet(&path))?,
            rows: Cow::Borrowed(rows),
        };
        write_line(&mut self.file, &path, &line)?;
        self.row_groups = row_groups.len();
        Ok(())
    }
}

fn write_line(file: &mut File, path: &Path, line: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(line).map_err(|source| Error::Json {
        path: path.to_owned(),
        source,
    })?;
    text.push(b'\n');
    file.write_all(&text).map_err(Error::io(path))
}

/// What a journal says.
#[derive(Debug)]
pub(crate) struct Journaled {
    pub(crate) meta: Meta,
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) sites: Vec<SiteRow>,
    pub(crate) row_groups: Vec<RowGroupMetaData>,
}

/// Reads the journal of a folder up to its last complete line.
pub(crate) fn read(folder: &Path) -> Result<Journaled> {
    let path = folder.join(JOURNAL);
    let not_one = |problem: &str| Error::NotATrace {
        path: folder.to_owned(),
        problem: format!("{JOURNAL} {problem}"),
    };
    let mut file = BufReader::new(File::open(&path).map_err(Error::io(&path))?);
    let mut line = Vec::new();
    let mut next = |line: &mut Vec<u8>| -> Result<bool> {
        line.clear();
        let read = file.read_until(b'\n', line).map_err(Error::io(&path))?;
        Ok(read > 0 && line.ends_with(b"\n"))
    };
    if !next(&mut line)? {
        return Err(not_one("is empty"));
    }
    let meta: Meta = serde_json::from_slice(&line).map_err(|source| Error::Json {
        path: path.clone(),
        source,
    })?;
    let mut found = Journaled {
        meta,
        objects: Vec::new(),
        sites: Vec::new(),
        row_groups: Vec::new(),
    };
    // A line that cannot be read is where the machine stopped, if it was not the recorder alone.
    while next(&mut line)?
        && let Ok(checkpoint) = serde_json::from_slice::<Checkpoint<'_>>(&line)
        && let Some(row_groups) = decoded(&checkpoint.row_groups)
    {
        found.row_groups.extend(row_groups);
        let rows = checkpoint.rows.into_owned();
        let objects = rows.objects.into_iter();
        objects.for_each(|(number, row)| put(&mut found.objects, number, row));
        let sites = rows.sites.into_iter();
        sites.for_each(|(number, row)| put(&mut found.sites, number, row));
        found.meta.processes.extend(rows.processes);
        found.meta.threads.extend(rows.threads);
        found.meta.losses = rows.losses;
        let seen = found.meta.seen.get_or_insert_default();
        seen.other_bytes = rows.other_bytes;
    }
    Ok(found)
}

/// Whether the journal of a folder names a row group. False without a journal that is one; an error
/// where the system does not let it be read.
pub(crate) fn has_row_group(folder: &Path) -> Result<bool> {
    match read(folder) {
        Ok(journal) => Ok(!journal.row_groups.is_empty()),
        Err(Error::Io { source, .. })
            if matches!(
                source.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(error @ Error::Io { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Sets a row. A number is first named in the order of numbers.
fn put<T>(rows: &mut Vec<T>, number: u32, row: T) {
    match rows.get_mut(number as usize) {
        Some(place) => *place = row,
        None => rows.push(row),
    }
}

fn decoded(footers: &[String]) -> Option<Vec<RowGroupMetaData>> {
    let mut row_groups = Vec::new();
    for footer in footers {
        let bytes = unhex(footer)?;
        // The length and the magic number follow.
        let metadata = bytes.get(..bytes.len().checked_sub(8)?)?;
        let metadata = ParquetMetaDataReader::decode_metadata(metadata).ok()?;
        row_groups.extend_from_slice(metadata.row_groups());
    }
    Some(row_groups)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}
