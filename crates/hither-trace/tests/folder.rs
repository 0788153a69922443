//! The trace folder: what is written is read back, and a trace is complete or does not exist.

mod common;

use std::fs;

use common::{Sample, names_in};
use hither_core::registry::Needs;
use hither_core::{Block, NEVER};
use hither_trace::schema::AccessRow;
use hither_trace::{Error, LoadOptions, Trace, Writer};

fn load(path: &std::path::Path, options: &LoadOptions) -> Trace {
    Trace::load(path, None, options).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let sample = Sample::new(200_000);
    sample.write(&path, false).unwrap();
    assert_eq!(
        names_in(&path),
        [
            "accesses.parquet",
            "meta.json",
            "objects.parquet",
            "sites.parquet"
        ]
    );
    assert_eq!(names_in(folder.path()), ["t"]);

    let options = LoadOptions {
        keep_repeats: true,
        ..LoadOptions::default()
    };
    let trace = load(&path, &options);
    assert_eq!(trace.objects(), sample.objects);
    assert_eq!(trace.sites(), sample.sites);
    assert_eq!(*trace.meta(), sample.meta);
    assert_eq!(
        (trace.format(), trace.threads(), trace.processes()),
        ("hither", 3, 2)
    );

    let mut accesses = Vec::new();
    let objects = Needs {
        objects: true,
        ..Needs::NOTHING
    };
    trace
        .for_each_batch(1000, objects, |batch| accesses.extend_from_slice(batch))
        .unwrap();
    let mut expected = Vec::new();
    for row in &sample.accesses {
        for index in row.offset / 4096..=(row.offset + row.length - 1) / 4096 {
            let op = if row.op.name() == "write" {
                hither_core::Op::Write
            } else {
                hither_core::Op::Read
            };
            expected.push((
                row.object,
                index as u32,
                row.site,
                row.thread,
                row.process,
                op,
            ));
        }
    }
    let flat = |access: &hither_core::Access| {
        (
            access.object.0,
            access.index,
            access.site.0,
            access.thread.0,
            access.process.0,
            access.op,
        )
    };
    assert_eq!(accesses.iter().map(flat).collect::<Vec<_>>(), expected);
    assert!(
        accesses
            .iter()
            .enumerate()
            .all(|(tick, access)| access.tick == tick as u64 && access.next == NEVER)
    );

    let mut requests = Vec::new();
    let each = |row: &AccessRow| requests.push(*row);
    trace.for_each_request(each).unwrap();
    assert_eq!(requests, sample.accesses);

    let named = load(&path.join("accesses.parquet"), &options);
    assert_eq!(named.block_stream().unwrap(), trace.block_stream().unwrap());
    assert_eq!(named.sha256(), trace.sha256());
}

#[test]
fn any_part_of_the_stream_can_be_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    Sample::new(50).write(&path, false).unwrap();
    let trace = load(&path, &LoadOptions::default());
    let (mut whole, mut part) = (Vec::new(), Vec::new());
    trace.fill(0, usize::MAX, Needs::ALL, &mut whole).unwrap();
    assert_eq!(whole.len(), trace.references());
    for start in 0..=whole.len() + 1 {
        for count in [0, 1, 7, usize::MAX] {
            trace.fill(start, count, Needs::ALL, &mut part).unwrap();
            let from = start.min(whole.len());
            assert_eq!(
                part,
                whole[from..from.saturating_add(count).min(whole.len())]
            );
        }
    }
    for access in &whole {
        let after = whole[access.tick as usize + 1..]
            .iter()
            .find(|later| later.block == access.block);
        assert_eq!(access.next, after.map_or(NEVER, |later| later.tick));
        assert_eq!(trace.object_of(access.block), access.object);
    }
    assert_eq!(trace.index_of(Block(0)), 0);
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Sample::new(1000);
    sample.write(&folder.path().join("a"), false).unwrap();
    sample.write(&folder.path().join("b"), false).unwrap();
    for name in hither_trace::schema::FILES {
        let read = |trace: &str| fs::read(folder.path().join(trace).join(name)).unwrap();
        assert_eq!(read("a"), read("b"), "{name}");
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(folder.path().join("t"), false).unwrap();
    for access in &Sample::new(100_000).accesses {
        writer.push(access).unwrap();
    }
    let during = names_in(folder.path());
    assert_eq!(during, [format!(".t.partial-{}", std::process::id())]);
    drop(writer);
    assert!(names_in(folder.path()).is_empty());
}

#[test]
fn rows_that_point_nowhere_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    type Spoil = fn(&mut Sample);
    let cases: [(&str, Spoil); 6] = [
        ("object 1 of 1", |sample| sample.objects.truncate(1)),
        ("site 2 of 2", |sample| sample.sites.truncate(2)),
        ("thread 2 of 0", |sample| sample.meta.threads.clear()),
        ("process 1 of 1", |sample| sample.meta.processes.truncate(1)),
        ("site 0 is not the unknown site", |sample| {
            sample.sites.reverse()
        }),
        ("thread 1 stands at position 0", |sample| {
            sample.meta.threads.swap(0, 1)
        }),
    ];
    for (problem, spoil) in cases {
        let mut sample = Sample::new(10);
        spoil(&mut sample);
        let error = sample.write(&folder.path().join("t"), false).unwrap_err();
        assert!(error.to_string().ends_with(problem), "{error}");
        assert!(names_in(folder.path()).is_empty());
    }
}

#[test]
fn only_a_trace_is_replaced_and_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    Sample::new(10).write(&path, false).unwrap();
    let error = Writer::create(&path, false).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");

    Sample::new(20).write(&path, true).unwrap();
    assert_eq!(
        load(&path, &LoadOptions::default()).counts().total.requests,
        20
    );
    assert_eq!(names_in(folder.path()), ["t"]);

    fs::write(path.join("notes.txt"), "mine").unwrap();
    let error = Writer::create(&path, true).unwrap_err();
    assert!(error.to_string().ends_with("it holds notes.txt"), "{error}");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let error = Writer::create(&empty, true).unwrap_err();
    assert!(
        error.to_string().ends_with("it holds no accesses.parquet"),
        "{error}"
    );
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let error = Writer::create(&file, true).unwrap_err();
    assert!(error.to_string().ends_with("it is not a folder"), "{error}");
}

#[test]
fn a_name_that_is_taken_while_writing_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let sample = Sample::new(0);
    let writer = Writer::create(&path, false).unwrap();
    fs::write(&path, "mine").unwrap();
    let error = writer
        .finish(&sample.objects, &sample.sites, &sample.meta)
        .unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    assert_eq!(names_in(folder.path()), ["t"]);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}
