//! The requests of a trace, for what goes by more than blocks: where they begin and end, and when.
//!
//! A loaded trace has references alone. So the rows of a trace folder are read again, which takes
//! no memory.

use std::path::Path;

use hither_core::Op;
use hither_core::registry::Needs;

use crate::error::Result;
use crate::format::hither::{for_each_access, open_accesses};
use crate::schema::{AccessRow, RowOp};
use crate::trace::Trace;

/// References decoded at a time.
const BATCH_REFERENCES: usize = 8192;

impl Trace {
    /// Hands the requests that make references to `each` in order, as reads and writes.
    ///
    /// A trace that was not loaded from a trace folder has its blocks alone, and one request a
    /// reference is what remains: for the whole block, at about its time.
    pub fn for_each_request(&self, each: impl FnMut(&AccessRow)) -> Result<()> {
        match &self.rows {
            Some(rows) => self.for_each_row(rows, each),
            None => self.for_each_reference(each),
        }
    }

    fn for_each_row(&self, path: &Path, mut each: impl FnMut(&AccessRow)) -> Result<()> {
        let mut table = open_accesses(path.to_owned())?;
        for_each_access(&mut table, |row| {
            let op = match row.op {
                RowOp::Read | RowOp::Write if row.in_kernel && !self.options.include_in_kernel => {
                    return Ok(());
                }
                RowOp::Read | RowOp::Write => row.op,
                RowOp::Map if self.options.include_maps => RowOp::Read,
                _ => return Ok(()),
            };
            if row.length > 0 {
                each(&AccessRow { op, ..*row });
            }
            Ok(())
        })
    }

    fn for_each_reference(&self, mut each: impl FnMut(&AccessRow)) -> Result<()> {
        let block_bytes = u64::from(self.options.block_bytes);
        let times = self.reference_times();
        let mut times = times.iter().peekable();
        let mut time_ns = 0;
        let needs = Needs {
            sites: true,
            objects: true,
            processes: true,
            ..Needs::NOTHING
        };
        self.for_each_batch(BATCH_REFERENCES, needs, |batch| {
            for access in batch {
                while let Some(passed) = times.next_if(|point| point.reference <= access.tick) {
                    time_ns = passed.time_ns;
                }
                each(&AccessRow {
                    time_ns,
                    process: access.process.0,
                    thread: access.thread.0,
                    node: access.node.0.into(),
                    site: access.site.0,
                    object: access.object.0,
                    op: match access.op {
                        Op::Write | Op::Delete => RowOp::Write,
                        Op::Read | Op::Map => RowOp::Read,
                    },
                    offset: u64::from(access.index) * block_bytes,
                    length: block_bytes,
                    ..AccessRow::default()
                });
            }
        })
    }
}
