//! Accesses to memory, nodes and marks: loading, writing and statistics.

mod common;

use std::path::Path;

use hither_core::placement::{EpochKind, Mark};
use hither_core::registry::Needs;
use hither_core::{Access, Op, Process};
use hither_trace::schema::{
    AccessRow, MemoryNode, Meta, ObjectKind, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow,
};
use hither_trace::{
    Error, Export, Input, LoadOptions, Result, Sample, SharingCounts, Stats, Trace, Writer, import,
};

const PAGE_BYTES: u64 = 4096;

fn access(op: RowOp, thread: u32, node: u32, page: u64, count: u32) -> AccessRow {
    AccessRow {
        thread,
        node,
        op,
        offset: page * PAGE_BYTES + 64,
        length: 64,
        count,
        ..AccessRow::default()
    }
}

fn write(folder: &Path, rows: &[AccessRow]) -> Result<()> {
    let region = ObjectRow {
        kind: ObjectKind::Memory,
        path: b"u".to_vec(),
        size: 100 * PAGE_BYTES,
        ..ObjectRow::default()
    };
    let thread = |thread| ThreadRow {
        thread,
        ..ThreadRow::default()
    };
    let meta = Meta {
        processes: vec![ProcessRow::default()],
        threads: (0..3).map(thread).collect(),
        nodes: vec![MemoryNode::default(); 4],
        ..Meta::default()
    };
    let mut writer = Writer::create(folder, false)?;
    rows.iter().try_for_each(|row| writer.push(row))?;
    writer.finish(&[region], &[SiteRow::unknown()], &meta)
}

fn load(path: &Path, sample: Sample) -> Result<Trace> {
    let options = LoadOptions {
        sample,
        ..LoadOptions::default()
    };
    Trace::load(path, None, &options)
}

fn accesses(trace: &Trace) -> Vec<Access> {
    let needs = Needs {
        objects: true,
        ..Needs::NOTHING
    };
    let mut all = Vec::new();
    trace
        .for_each_batch(1000, needs, |batch| all.extend_from_slice(batch))
        .unwrap();
    all
}

/// Page, thread, node, op and count of each reference.
fn flat(trace: &Trace) -> Vec<(u32, u32, u16, Op, u32)> {
    let flat = |access: &Access| {
        (
            access.index,
            access.thread.0,
            access.node.0,
            access.op,
            access.count,
        )
    };
    accesses(trace).iter().map(flat).collect()
}

fn sample_rows() -> Vec<AccessRow> {
    vec![
        access(RowOp::Fault, 0, 0, 5, 1),
        access(RowOp::Load, 0, 0, 5, 7),
        access(RowOp::Load, 0, 0, 5, 7),
        AccessRow::mark(EpochKind::Construct, 0),
        access(RowOp::Store, 1, 2, 5, 65_536),
        AccessRow {
            length: 2 * PAGE_BYTES,
            ..access(RowOp::Load, 2, 1, 8, 3)
        },
        AccessRow::mark(EpochKind::Construct, 0),
        AccessRow::mark(EpochKind::Iteration, 0),
    ]
}

fn expected() -> Vec<(u32, u32, u16, Op, u32)> {
    vec![
        (5, 0, 0, Op::Read, 1),
        (5, 0, 0, Op::Read, 7),
        (5, 0, 0, Op::Read, 7),
        (5, 1, 2, Op::Write, 65_535),
        (5, 1, 2, Op::Write, 1),
        (8, 2, 1, Op::Read, 3),
        (9, 2, 1, Op::Read, 3),
        (10, 2, 1, Op::Read, 3),
    ]
}

fn marks() -> [Mark; 3] {
    [
        (3, EpochKind::Construct),
        (8, EpochKind::Construct),
        (8, EpochKind::Iteration),
    ]
    .map(|(reference, kind)| Mark {
        reference,
        kind,
        process: Process(0),
    })
}

#[test]
fn a_row_is_a_reference_a_page_with_its_count_and_marks_lie_between() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    write(&path, &sample_rows()).unwrap();
    let trace = load(&path, Sample::All).unwrap();
    assert_eq!(flat(&trace), expected());
    assert_eq!(trace.marks(), marks());
    assert_eq!(trace.nodes(), 4);
    let stats = Stats::of(&trace).unwrap();
    let total = stats.counts.total;
    // Statistics count references: a row over three pages counts three times its count.
    assert_eq!(stats.accesses, 15 + 65_536 + 9);
    assert_eq!((total.loads, total.stores, total.faults), (17, 65_536, 1));
    assert_eq!((total.requests, stats.sequential_share), (0, 0.0));
    assert_eq!((stats.iterations, stats.constructs), (1, 2));
    let shared = SharingCounts {
        blocks: [3, 1, 0],
        accesses: [9, 15 + 65_536, 0],
    };
    assert_eq!(
        (stats.sharing.threads, stats.sharing.nodes),
        (shared, shared)
    );
}

#[test]
fn a_folder_of_single_references_keeps_counts_nodes_and_marks() {
    let folder = tempfile::tempdir().unwrap();
    let [path, again, imported] = ["t", "again", "imported"].map(|name| folder.path().join(name));
    write(&path, &sample_rows()).unwrap();
    let trace = load(&path, Sample::All).unwrap();
    let export = Export::find("hither").unwrap();
    export.write(&trace, &again, false, |_| {}).unwrap();
    let input = Input::open(&path).unwrap();
    import(input, None, &LoadOptions::default(), &imported, false).unwrap();
    for path in [again, imported] {
        let trace = load(&path, Sample::All).unwrap();
        assert_eq!((flat(&trace), trace.marks()), (expected(), &marks()[..]));
    }
    let mut csv = Vec::new();
    let export = Export::find("csv").unwrap();
    export.write_stream(&trace, &mut csv, |_| {}).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert_eq!(csv.lines().nth(4), Some("3,5,4096,write,5,1,2,65535"));
}

#[test]
fn the_marks_of_a_sample_lie_between_its_references() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let mut rows = Vec::new();
    for iteration in 0..3 {
        rows.extend((0..1000).map(|page| access(RowOp::Load, 0, 0, page, 1 + iteration)));
        rows.push(AccessRow::mark(EpochKind::Iteration, 0));
    }
    write(&path, &rows).unwrap();
    for sample in [Sample::Rate(0.3), Sample::Blocks(200)] {
        let trace = load(&path, sample).unwrap();
        let blocks = trace.blocks() as u64;
        assert!((150..400).contains(&blocks), "{blocks}");
        let found: Vec<u64> = trace.marks().iter().map(|mark| mark.reference).collect();
        assert_eq!(found, [blocks, 2 * blocks, 3 * blocks]);
        let accesses = accesses(&trace);
        assert!(
            (accesses.iter()).all(|access| u64::from(access.count) == 1 + access.tick / blocks)
        );
    }
}

#[test]
fn nodes_of_calls_on_files_are_known_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    common::Sample::new(100).write(&path, false).unwrap();
    let trace = load(&path, Sample::All).unwrap();
    assert_eq!(trace.nodes(), 2);
    assert!(
        accesses(&trace)
            .iter()
            .all(|access| (access.node.0, access.count) == (1, 1))
    );
}

#[test]
fn rows_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            access(RowOp::Load, 0, 65_535, 0, 1),
            "node 65535, not below 65535",
        ),
        (
            access(RowOp::Store, 0, 0, 1 << 32, 1),
            "lie beyond 2^32 - 1 blocks",
        ),
        (
            AccessRow {
                offset: 2,
                ..AccessRow::mark(EpochKind::Iteration, 0)
            },
            "a mark of kind 2, neither 0 (iteration) nor 1 (construct)",
        ),
        (
            AccessRow {
                length: PAGE_BYTES << 29,
                ..access(RowOp::Load, 0, 0, 0, 1)
            },
            "references, more than 2^28",
        ),
    ];
    for (number, (row, problem)) in cases.into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        write(&path, &[row]).unwrap();
        let error = load(&path, Sample::All).unwrap_err();
        assert!(matches!(error, Error::Row { .. }), "{error}");
        assert!(error.to_string().ends_with(problem), "{error}");
    }
}
