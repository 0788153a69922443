//! The receiver of a format reader's records. A [`TraceBuilder`](crate::TraceBuilder) builds a
//! trace from them, and an import writes them to disk.

use std::path::Path;

use hither_core::Op;

use crate::error::Result;
use crate::object_columns::ObjectRequest;
use crate::schema::{AccessRow, Meta, ObjectRow, ProcessRow, SiteRow, ThreadRow};

/// Receives the records of a format reader. A trace consists of *keys* or of *requests*, not of
/// both. The rows of tables come before the requests that refer to them.
pub trait Sink {
    /// The size of a block, for formats of byte addresses without files.
    fn block_bytes(&self) -> u32;

    /// Adds a reference to a block that has only a number.
    fn key(&mut self, id: u64, op: Op) -> Result<()>;

    /// Adds a reference to an object of a known size. It is one to a key where sizes are not asked
    /// for.
    fn object(&mut self, request: &ObjectRequest) -> Result<()>;

    /// Adds a request. Its errors name a row; readers of text replace that by the line.
    fn request(&mut self, row: &AccessRow) -> Result<()>;

    /// Adds requests.
    fn requests(&mut self, rows: &[AccessRow]) -> Result<()> {
        rows.iter().try_for_each(|row| self.request(row))
    }

    /// Counts a line that only separates records.
    fn separator(&mut self);

    /// Counts a record that is no access, such as the opening of a file.
    fn left_out(&mut self);

    /// Sets all tables at once, before the first request, for formats that have them.
    fn describe(&mut self, objects: Vec<ObjectRow>, sites: Vec<SiteRow>, meta: Meta);

    /// Adds an object and returns its number.
    fn add_object(&mut self, row: ObjectRow) -> u32;

    /// Adds a call site and returns its number. Site 0, the unknown one, always exists.
    fn add_site(&mut self, row: SiteRow) -> u32;

    /// Adds a process and returns its number, which is also set in its row.
    fn add_process(&mut self, row: ProcessRow) -> u32;

    /// Adds a thread and returns its number, which is also set in its row.
    fn add_thread(&mut self, row: ThreadRow) -> u32;

    /// The trace's metadata.
    fn meta(&mut self) -> &mut Meta;

    /// Sets the table that the requests are read from, where that is one of a trace folder. Errors
    /// about requests name it.
    fn rows_of(&mut self, table: &Path);
}
