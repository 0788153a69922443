//! What a reader of a format hands its records to. A [`Builder`] makes a trace in memory of them,
//! and an import writes them to disk as they come.

use std::path::Path;

use hither_core::Op;

use crate::error::Result;
use crate::load::Builder;
use crate::schema::{AccessRow, Meta, ObjectRow, ProcessRow, SiteRow, ThreadRow};

/// Takes in what a format's reader finds. A trace is of *keys* or of *requests*, not of both;
/// requests point into tables that have to be there before them.
pub trait Sink {
    /// The size of a block, for formats of byte addresses without files.
    fn block_bytes(&self) -> u32;

    /// A reference to a block that is known by a number alone.
    fn key(&mut self, id: u64, op: Op) -> Result<()>;

    /// A request. Its place in an error is a row; readers of text put the line there.
    fn request(&mut self, row: &AccessRow) -> Result<()>;

    /// A line that separates and does not refer.
    fn separator(&mut self);

    /// All tables at once, for formats that have them; before the first request.
    fn describe(&mut self, objects: Vec<ObjectRow>, sites: Vec<SiteRow>, meta: Meta);

    /// One more object; returns its number.
    fn add_object(&mut self, row: ObjectRow) -> u32;

    /// One more call site; returns its number. Site 0, the unknown one, is there from the start.
    fn add_site(&mut self, row: SiteRow) -> u32;

    /// One more process; returns its number, which its row gets.
    fn add_process(&mut self, row: ProcessRow) -> u32;

    /// One more thread; returns its number, which its row gets.
    fn add_thread(&mut self, row: ThreadRow) -> u32;

    /// What the trace says about its making.
    fn meta(&mut self) -> &mut Meta;

    /// Errors about requests name this file, where it is not the path of the trace.
    fn at(&mut self, file: &Path);
}

impl Sink for Builder {
    fn block_bytes(&self) -> u32 {
        Builder::block_bytes(self)
    }

    fn key(&mut self, id: u64, op: Op) -> Result<()> {
        Builder::key(self, id, op)
    }

    fn request(&mut self, row: &AccessRow) -> Result<()> {
        Builder::request(self, row)
    }

    fn separator(&mut self) {
        Builder::separator(self);
    }

    fn describe(&mut self, objects: Vec<ObjectRow>, sites: Vec<SiteRow>, meta: Meta) {
        Builder::describe(self, objects, sites, meta);
    }

    fn add_object(&mut self, row: ObjectRow) -> u32 {
        Builder::add_object(self, row)
    }

    fn add_site(&mut self, row: SiteRow) -> u32 {
        Builder::add_site(self, row)
    }

    fn add_process(&mut self, row: ProcessRow) -> u32 {
        Builder::add_process(self, row)
    }

    fn add_thread(&mut self, row: ThreadRow) -> u32 {
        Builder::add_thread(self, row)
    }

    fn meta(&mut self) -> &mut Meta {
        Builder::meta(self)
    }

    fn at(&mut self, file: &Path) {
        Builder::at(self, file);
    }
}
