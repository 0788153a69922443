//! A small generated trace for tests: two processes, three threads, two files, three call sites.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod samples;

use std::path::Path;

use hither_trace::schema::{
    AccessRow, Frame, Losses, Meta, NotRecorded, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow,
};
use hither_trace::{Result, Writer};

/// The tables of the trace.
pub(crate) struct Sample {
    pub(crate) accesses: Vec<AccessRow>,
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) sites: Vec<SiteRow>,
    pub(crate) meta: Meta,
}

/// Three threads of two processes in turn: a scan, random reads, and random writes.
fn accesses(rows: usize) -> Vec<AccessRow> {
    let mut random = 1u64;
    let mut accesses = Vec::new();
    for row in 0..rows as u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let access = AccessRow {
            time_ns: row * 1000,
            node: 1,
            ..AccessRow::default()
        };
        accesses.push(match row % 4 {
            0 | 1 => AccessRow {
                site: 1,
                length: 8192,
                offset: row / 4 % 10 * 8192,
                ..access
            },
            2 => AccessRow {
                process: 1,
                thread: 2,
                site: 2,
                object: 1,
                length: 100,
                offset: random >> 44,
                ..access
            },
            _ => AccessRow {
                thread: 1,
                object: 1,
                op: RowOp::Write,
                length: 5000,
                offset: random >> 44,
                in_kernel: true,
                ..access
            },
        });
    }
    accesses
}

impl Sample {
    /// A trace of `rows` accesses: scans of one file, and random reads and writes of another.
    pub(crate) fn new(rows: usize) -> Sample {
        let accesses = accesses(rows);
        let objects = vec![
            ObjectRow {
                path: b"/data/scanned".to_vec(),
                inode: 7,
                size: 81920,
                ..ObjectRow::default()
            },
            ObjectRow {
                path: b"/data/not utf-8 \xff\xfe".to_vec(),
                inode: u64::MAX,
                ..ObjectRow::default()
            },
        ];
        let frame = Frame {
            module: "/bin/scan".to_owned(),
            build_id: "00ff".to_owned(),
            offset: 0x1234,
            function: Some("scan".to_owned()),
            file: None,
            line: Some(12),
        };
        let named = SiteRow {
            signature: u64::MAX,
            truncated: true,
            function: Some("scan".to_owned()),
            file: Some("scan.c".to_owned()),
            line: Some(12),
            module: Some("/bin/scan".to_owned()),
            frames: vec![
                frame.clone(),
                Frame {
                    offset: 9,
                    line: None,
                    function: None,
                    ..frame
                },
            ],
        };
        let bare = SiteRow {
            signature: 5,
            frames: vec![Frame::default()],
            ..SiteRow::default()
        };
        let process = |process| ProcessRow {
            process,
            pid: 100 + process,
            ..ProcessRow::default()
        };
        let thread = |thread, process| ThreadRow {
            thread,
            process,
            tid: 200 + thread,
        };
        let lost = NotRecorded {
            path: "/bin/static".to_owned(),
            reason: "statically linked".to_owned(),
            count: 2,
        };
        let meta = Meta {
            command: vec!["scan".to_owned(), "\u{fffd}".to_owned()],
            processes: vec![process(0), process(1)],
            threads: vec![thread(0, 0), thread(1, 0), thread(2, 1)],
            losses: Losses {
                dropped_events: 3,
                dropped_bytes: 4096,
                dropped_ring_full: 2,
                dropped_nested: 1,
                dropped_no_ring: 0,
                damaged_records: 3,
                not_recorded: vec![lost],
            },
            ..Meta::default()
        };
        Sample {
            accesses,
            objects,
            sites: vec![SiteRow::unknown(), named, bare],
            meta,
        }
    }

    /// Writes the trace as `folder`.
    pub(crate) fn write(&self, folder: &Path, force: bool) -> Result<()> {
        let mut writer = Writer::create(folder, force)?;
        for access in &self.accesses {
            writer.push(access)?;
        }
        writer.finish(&self.objects, &self.sites, &self.meta)
    }
}

/// What lies in a folder, hidden files too, sorted.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
