//! A trace whose accesses are written and whose other files are not: at the end of each recording,
//! and after one that was cut, by a full disk or because the recorder was killed.
//!
//! What is on disk is whole row groups, and the footer that makes a Parquet file of them is written
//! last. So a trace can end after any row group.

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parquet::file::metadata::{KeyValue, RowGroupMetaData};

use crate::arrow_schema;
use crate::columns::{objects_cells, sites_cells, write_table};
use crate::error::{Error, Result};
use crate::folder::{Destination, PartialFolder, intended, sync_folder};
use crate::format::hither::{for_each_access, open_accesses};
use crate::journal::{self, JOURNAL};
use crate::private_file::create_private;
use crate::schema::{
    ACCESSES, ACCESSES_COLUMNS, AccessRow, META, Meta, OBJECTS, OBJECTS_COLUMNS, ObjectRow, RowOp,
    SITES, SITES_COLUMNS, SiteRow,
};
use crate::table::{self, MAGIC};

/// The rows of a trace, without its other files.
#[derive(Debug)]
pub struct PartialTrace {
    place: Destination,
    partial: PartialFolder,
    row_groups: Vec<RowGroupMetaData>,
    highest: HighestIds,
}

impl PartialTrace {
    pub(crate) fn new(
        place: Destination,
        partial: PartialFolder,
        row_groups: Vec<RowGroupMetaData>,
        highest: HighestIds,
    ) -> PartialTrace {
        PartialTrace {
            place,
            partial,
            row_groups,
            highest,
        }
    }

    /// Opens what a killed recorder has left, with the tables as far as its journal has them:
    /// files, call sites without names, and the metadata. It is to become the trace that it was
    /// meant to.
    pub fn open(
        path: &Path,
        force: bool,
    ) -> Result<(PartialTrace, Vec<ObjectRow>, Vec<SiteRow>, Meta)> {
        let place = intended_place(path, force)?;
        let partial = PartialFolder::open(path)?;
        let journal = journal::read(path)?;
        let accesses = partial.accesses().metadata();
        let length = accesses.map_err(Error::io(path))?.len();
        // If the machine stopped, the rows that a line names may be missing.
        let whole = |groups: &[RowGroupMetaData]| table::end_of(groups) <= length;
        let mut row_groups = journal.row_groups;
        while !row_groups.is_empty() && !whole(&row_groups) {
            row_groups.pop();
        }
        if row_groups.is_empty() {
            return Err(Error::NotATrace {
                path: path.to_owned(),
                problem: "it was killed before it had written an access".to_owned(),
            });
        }
        let trace = PartialTrace::new(place, partial, row_groups, HighestIds::default());
        Ok((trace, journal.objects, journal.sites, journal.meta))
    }

    /// The trace that it will be.
    pub fn destination(&self) -> &Path {
        &self.place.folder
    }

    /// The folder that it stays in if it is not completed. `None`: it is removed.
    pub fn left_behind(&self) -> Option<&Path> {
        let path = &self.partial.path;
        (self.partial.is_kept() && path.join(JOURNAL).exists()).then_some(path)
    }

    /// Makes the rows a readable table, and counts what is in them. Row groups that cannot be
    /// decoded, and those after them, are left out.
    pub fn count(&mut self) -> Result<Kept> {
        loop {
            self.seal()?;
            let mut kept = Kept::default();
            let mut table = open_accesses(self.partial.path.join(ACCESSES))?;
            let counted = for_each_access(&mut table, |row| {
                kept.add(row);
                Ok(())
            });
            match counted {
                Ok(()) => {
                    self.highest = kept.highest;
                    return Ok(kept);
                }
                Err(_) => self.row_groups.truncate(table.row_groups_read()),
            }
        }
    }

    /// Gives up something so that the rest fits on a full disk: the journal first, and then the
    /// last row group. False if there is nothing left to give up.
    pub fn give_room(&mut self) -> bool {
        self.remove_tables();
        if fs::remove_file(self.partial.path.join(JOURNAL)).is_ok() {
            // Without it, nothing can be recovered.
            self.partial.keep(false);
            return true;
        }
        self.row_groups.pop().is_some()
    }

    /// Completes the trace and gives it its name. Site 0 of `sites` must be [`SiteRow::unknown`],
    /// and every number in the accesses must have a row in `objects`, `sites` or the tables of
    /// `meta`; otherwise it is [`Error::Inconsistent`].
    pub fn complete(
        &mut self,
        objects: &[ObjectRow],
        sites: &[SiteRow],
        meta: &Meta,
    ) -> Result<()> {
        self.consistent(objects, sites, meta)?;
        self.place.check()?;
        self.seal()?;
        self.remove_tables();
        let folder = &self.partial.path;
        let accesses = self.partial.accesses().sync_all();
        accesses.map_err(Error::io(&folder.join(ACCESSES)))?;
        write_table(
            &folder.join(OBJECTS),
            &OBJECTS_COLUMNS,
            &objects_cells(objects),
        )?;
        write_table(&folder.join(SITES), &SITES_COLUMNS, &sites_cells(sites))?;
        write_meta(&folder.join(META), meta)?;
        // From here on the folder is a whole trace, which lacks only its name.
        let _ = fs::remove_file(folder.join(JOURNAL));
        sync_folder(folder)?;
        self.place.publish(folder)?;
        self.partial.keep(true);
        Ok(())
    }

    /// Cuts off what follows the last row group, and writes the footer.
    fn seal(&mut self) -> Result<()> {
        let file = self.partial.accesses();
        let end = table::end_of(&self.row_groups);
        let arrow = KeyValue::new(
            arrow_schema::METADATA_KEY.to_owned(),
            arrow_schema::ACCESSES_SCHEMA.to_owned(),
        );
        let path = self.partial.path.join(ACCESSES);
        let footer = table::footer(&ACCESSES_COLUMNS, &self.row_groups, Some(vec![arrow]));
        let footer = footer.map_err(Error::parquet(&path))?;
        // Without any row group, not even the first bytes may have been written.
        file.set_len(end)
            .and_then(|()| file.write_all_at(MAGIC, 0))
            .and_then(|()| file.write_all_at(&footer, end))
            .map_err(Error::io(&path))
    }

    /// Removes the tables of an attempt that failed.
    fn remove_tables(&self) {
        for name in [OBJECTS, SITES, META] {
            let _ = fs::remove_file(self.partial.path.join(name));
        }
    }

    fn consistent(&self, objects: &[ObjectRow], sites: &[SiteRow], meta: &Meta) -> Result<()> {
        let tables = [
            ("object", self.highest.object, objects.len()),
            ("site", self.highest.site, sites.len()),
            ("process", self.highest.process, meta.processes.len()),
            ("thread", self.highest.thread, meta.threads.len()),
        ];
        let missing = tables
            .into_iter()
            .find(|&(_, highest, rows)| highest.is_some_and(|id| id as usize >= rows));
        let problem = if let Some((table, highest, rows)) = missing {
            format!("{table} {} of {rows}", highest.unwrap_or_default())
        } else if sites.first() != Some(&SiteRow::unknown()) {
            "site 0 is not the unknown site".to_owned()
        } else if let Some(row) = (0u32..)
            .zip(&meta.processes)
            .find(|(id, row)| row.process != *id)
        {
            format!("process {} stands at position {}", row.1.process, row.0)
        } else if let Some(row) = (0u32..)
            .zip(&meta.threads)
            .find(|(id, row)| row.thread != *id)
        {
            format!("thread {} stands at position {}", row.1.thread, row.0)
        } else {
            return Ok(());
        };
        Err(Error::Inconsistent {
            path: self.place.folder.clone(),
            problem,
        })
    }
}

/// Gives the trace in the hidden folder `path` its name, if its writer was killed when all but that
/// was done. Returns the name.
pub fn publish_complete(path: &Path, force: bool) -> Result<Option<PathBuf>> {
    let place = intended_place(path, force)?;
    let mut partial = PartialFolder::open(path)?;
    if path.join(JOURNAL).exists() || !path.join(META).exists() {
        return Ok(None);
    }
    place.publish(path)?;
    partial.keep(true);
    Ok(Some(place.folder))
}

fn intended_place(path: &Path, force: bool) -> Result<Destination> {
    let trace = intended(path).ok_or_else(|| Error::NotATrace {
        path: path.to_owned(),
        problem: "it is not what a killed recording leaves: .NAME.partial-PID".to_owned(),
    })?;
    let place = Destination::new(&trace, force)?;
    place.check()?;
    Ok(place)
}

fn write_meta(path: &Path, meta: &Meta) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(meta).map_err(|source| Error::Json {
        path: path.to_owned(),
        source,
    })?;
    text.push(b'\n');
    let mut file = create_private(path).map_err(Error::io(path))?;
    file.write_all(&text).map_err(Error::io(path))?;
    file.sync_all().map_err(Error::io(path))
}

/// The highest number so far in each column that refers to a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HighestIds {
    object: Option<u32>,
    site: Option<u32>,
    process: Option<u32>,
    thread: Option<u32>,
}

impl HighestIds {
    pub(crate) fn add(&mut self, row: &AccessRow) {
        self.object = self.object.max(Some(row.object));
        self.site = self.site.max(Some(row.site));
        self.process = self.process.max(Some(row.process));
        self.thread = self.thread.max(Some(row.thread));
    }
}

/// What the rows of a trace that was cut hold.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The number of accesses.
    pub accesses: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// The time of the last access.
    pub last_ns: u64,
    /// Each file that is accessed, in the order of their numbers.
    pub objects: Vec<KeptObject>,
    highest: HighestIds,
}

/// What the rows of a trace that was cut say of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptObject {
    /// The first and the last access to it.
    seen_ns: Option<(u64, u64)>,
    /// What is mapped of it, from the lowest byte to the highest.
    pub mapped: Option<Range<u64>>,
}

impl Kept {
    fn add(&mut self, row: &AccessRow) {
        self.highest.add(row);
        if row.op == RowOp::Mark {
            return;
        }
        self.accesses += u64::from(row.count);
        self.last_ns = self.last_ns.max(row.time_ns);
        let number = row.object as usize;
        if self.objects.len() <= number {
            self.objects.resize(number + 1, KeptObject::default());
        }
        let object = &mut self.objects[number];
        let (first_ns, last_ns) = object.seen_ns.unwrap_or((row.time_ns, row.time_ns));
        object.seen_ns = Some((first_ns.min(row.time_ns), last_ns.max(row.time_ns)));
        match row.op {
            RowOp::Read => self.bytes_read = self.bytes_read.saturating_add(row.length),
            RowOp::Write => self.bytes_written = self.bytes_written.saturating_add(row.length),
            RowOp::Map => {
                let range = row.offset..row.offset.saturating_add(row.length);
                let all = object.mapped.clone().unwrap_or(range.clone());
                object.mapped = Some(all.start.min(range.start)..all.end.max(range.end));
            }
            _ => {}
        }
    }

    /// Leaves only those rows in the tables that the accesses name. Processes stay.
    pub fn trim(&self, objects: &mut Vec<ObjectRow>, sites: &mut Vec<SiteRow>, meta: &mut Meta) {
        let rows = |highest: Option<u32>| highest.map_or(0, |highest| highest as usize + 1);
        objects.truncate(self.objects.len());
        for (row, object) in objects.iter_mut().zip(&self.objects) {
            (row.first_seen_ns, row.last_seen_ns) = object.seen_ns.unwrap_or_default();
        }
        sites.truncate(rows(self.highest.site).max(1));
        meta.threads.truncate(rows(self.highest.thread));
    }
}
