//! Writes a trace of a program that reads a file twice, loads it again and prints its statistics:
//! `write_and_load [FOLDER]`. Without a folder, into one that is removed.

use std::error::Error;
use std::path::Path;

use hither_trace::schema::{AccessRow, Meta, ObjectRow, ProcessRow, SiteRow, ThreadRow};
use hither_trace::{LoadOptions, Stats, Trace, Writer};

const FILE_BYTES: u64 = 1 << 20;
const READ_BYTES: u64 = 64 << 10;

fn write(folder: &Path) -> hither_trace::Result<()> {
    let mut writer = Writer::create(folder, false)?;
    let offsets = (0..FILE_BYTES).step_by(READ_BYTES as usize);
    for (number, offset) in offsets.clone().chain(offsets).enumerate() {
        writer.push(&AccessRow {
            time_ns: number as u64 * 1000,
            offset,
            length: READ_BYTES,
            ..AccessRow::default()
        })?;
    }
    let file = ObjectRow {
        path: b"/data/table".to_vec(),
        size: FILE_BYTES,
        ..ObjectRow::default()
    };
    let meta = Meta {
        processes: vec![ProcessRow::default()],
        threads: vec![ThreadRow::default()],
        ..Meta::default()
    };
    writer.finish(&[file], &[SiteRow::default()], &meta)
}

fn statistics(folder: &Path) -> hither_trace::Result<Stats> {
    write(folder)?;
    Stats::of(&Trace::load(folder, None, &LoadOptions::default())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let removed = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1);
    let folder = folder.map_or_else(|| removed.path().join("trace"), Into::into);
    let stats = statistics(&folder)?;
    println!(
        "{} references to {} blocks of {} bytes",
        stats.references, stats.blocks, stats.block_bytes
    );
    Ok(())
}

#[test]
fn each_block_is_referenced_twice() {
    let folder = tempfile::tempdir().unwrap();
    let stats = statistics(&folder.path().join("trace")).unwrap();
    assert_eq!((stats.references, stats.blocks), (512, 256));
}
