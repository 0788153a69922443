//! Turning a recording that another tool made into a trace folder.

use std::path::Path;

use hither_core::registry::Needs;

use crate::error::Result;
use crate::load::LoadOptions;
use crate::schema::{AccessRow, Meta, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow};
use crate::trace::Trace;
use crate::writer::Writer;

/// References decoded at a time.
const BATCH: usize = 8192;

/// Writes the references of `path`, which is in the format of that name, as a trace folder: each a read or write of one
/// block, at the time of its number in nanoseconds, since such a trace has no clock. Returns how many there are. `force` is
/// as for [`Writer::create`].
pub fn import(
    path: impl AsRef<Path>,
    format: &str,
    folder: impl AsRef<Path>,
    force: bool,
) -> Result<u64> {
    let path = path.as_ref();
    let options = LoadOptions {
        keep_repeats: true,
        ..LoadOptions::default()
    };
    let trace = Trace::load(path, Some(format), &options)?;
    let mut writer = Writer::create(folder, force)?;
    let block_bytes = u64::from(options.block_bytes);
    let mut batch = Vec::with_capacity(BATCH);
    let (mut done, mut highest) = (0, 0);
    let needs = Needs {
        objects: true,
        ..Needs::NOTHING
    };
    loop {
        trace.fill(done, BATCH, needs, &mut batch)?;
        if batch.is_empty() {
            break;
        }
        for access in &batch {
            highest = highest.max(access.index);
            writer.push(&AccessRow {
                time_ns: access.tick,
                process: access.process.0,
                thread: access.thread.0,
                site: access.site.0,
                object: access.object.0,
                op: match access.op {
                    hither_core::Op::Read => RowOp::Read,
                    hither_core::Op::Write => RowOp::Write,
                },
                offset: u64::from(access.index) * block_bytes,
                length: block_bytes,
                ..AccessRow::default()
            })?;
        }
        done += batch.len();
    }
    let meta = Meta {
        clock: "number of the reference".to_owned(),
        processes: numbered(trace.processes().max(1), |process| ProcessRow {
            process,
            ..ProcessRow::default()
        }),
        threads: numbered(trace.threads(), |thread| ThreadRow {
            thread,
            process: trace.process_of(hither_core::Thread(thread)).0,
            ..ThreadRow::default()
        }),
        ..trace.meta().clone()
    };
    // A trace of bare block numbers is of one object, named for the file that it came from.
    let device = [ObjectRow {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        size: (u64::from(highest) + 1) * block_bytes,
        last_seen_ns: done.saturating_sub(1) as u64,
        ..ObjectRow::default()
    }];
    let objects = if trace.has_objects() {
        trace.objects()
    } else {
        &device
    };
    let sites: &[SiteRow] = trace.sites();
    writer.finish(objects, sites, &meta)?;
    Ok(done as u64)
}

fn numbered<T>(count: usize, row: impl Fn(u32) -> T) -> Vec<T> {
    (0..).take(count).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_holds_the_same_references() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("a.trace");
        std::fs::write(&text, "7\n7\n3\n*\n9\n7\n").unwrap();
        let imported = folder.path().join("a.hither");
        assert_eq!(import(&text, "lirs", &imported, false).unwrap(), 5);
        let options = LoadOptions::default();
        let (from, to) = (
            Trace::load(&text, None, &options).unwrap(),
            Trace::load(&imported, None, &options).unwrap(),
        );
        assert_eq!(from.block_stream().unwrap(), to.block_stream().unwrap());
        assert_eq!(to.objects()[0].path, text.as_os_str().as_encoded_bytes());
        assert!(
            import(&text, "lirs", &imported, false).is_err(),
            "it exists"
        );
    }
}
