//! Import and export: a trace exported in one format comes back as the same references, and
//! requests keep their fields.

mod common;

use std::path::Path;

use common::samples::samples;
use common::{Sample, names_in};
use hither_trace::{EXPORTS, Export, Input, LoadOptions, Trace, import};

fn load(path: &Path, format: Option<&str>) -> Trace {
    Trace::load(path, format, &LoadOptions::default()).unwrap()
}

fn read(name: &str, bytes: &[u8]) -> Trace {
    let input = Input::new("input", bytes).unwrap();
    Trace::read(input, Some(name), &LoadOptions::default()).unwrap()
}

/// The blocks, and which references write.
fn references(trace: &Trace) -> Vec<(u32, bool)> {
    let mut found = Vec::new();
    let needs = hither_core::registry::Needs::NOTHING;
    let each = |batch: &[hither_core::Access]| {
        let writes = |op| op == hither_core::Op::Write;
        found.extend(
            batch
                .iter()
                .map(|access| (access.block.0, writes(access.op))),
        );
    };
    trace.for_each_batch(100, needs, each).unwrap();
    found
}

/// The format of [`hither_trace::format`] that reads what an export wrote.
fn reader_of(export: &Export) -> &'static str {
    match export.name {
        "csv" => "libcachesim-csv",
        "hither" => "hither",
        "oracle-general" => "oracle-general",
        other => panic!("no reader is known for {other}"),
    }
}

#[test]
fn the_registry_is_sorted_and_documented() {
    assert!(EXPORTS.is_sorted_by(|a, b| a.name < b.name));
    for export in EXPORTS {
        assert!(!export.doc.is_empty());
        assert_eq!(Export::find(export.name).unwrap().name, export.name);
    }
    let error = Export::find("cvs").unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown trace format \"cvs\" (known: csv, hither, oracle-general)"
    );
}

#[test]
fn what_is_exported_is_told_by_its_content_and_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = folder.path().join("recorded");
    Sample::new(400).write(&recorded, false).unwrap();
    let mut traces = vec![load(&recorded, None)];
    traces.extend(samples().iter().map(|(name, bytes)| read(name, bytes)));
    for trace in &traces {
        for export in EXPORTS {
            let path = folder.path().join("out");
            let mut seen = 0;
            export
                .write(trace, &path, true, |done| seen = done)
                .unwrap();
            assert_eq!(seen, trace.references() as u64);
            let back = load(&path, None);
            assert_eq!(back.format(), reader_of(export));
            let (mut sent, mut came) = (references(trace), references(&back));
            if export.name == "oracle-general" {
                // It has no column of ops.
                sent.iter_mut()
                    .chain(&mut came)
                    .for_each(|reference| reference.1 = false);
            }
            assert_eq!(sent, came, "{} as {}", trace.format(), export.name);
            if path.is_dir() {
                std::fs::remove_dir_all(&path).unwrap();
            } else {
                std::fs::remove_file(&path).unwrap();
            }
        }
    }
    assert_eq!(names_in(folder.path()), ["recorded"]);
}

#[test]
fn oracle_general_has_the_time_object_size_and_next_of_each_reference() {
    let trace = read("lirs", b"7\n9\n7\n7\n");
    let mut bytes = Vec::new();
    let export = Export::find("oracle-general").unwrap();
    export.write_stream(&trace, &mut bytes, |_| ()).unwrap();
    let expected: Vec<u8> = [(0u32, 7u64, 3i64), (1, 9, -1), (2, 7, 4), (3, 7, -1)]
        .iter()
        .flat_map(|(time, object, next)| {
            let size = 4096u32.to_le_bytes();
            [
                &time.to_le_bytes()[..],
                &object.to_le_bytes(),
                &size,
                &next.to_le_bytes(),
            ]
            .concat()
        })
        .collect();
    assert_eq!(bytes, expected);
}

#[test]
fn an_export_is_replaced_on_request_only_and_leaves_nothing_half_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let trace = read("lirs", b"7\n9\n");
    let csv = Export::find("csv").unwrap();
    csv.write(&trace, &path, false, |_| ()).unwrap();
    let error = csv.write(&trace, &path, false, |_| ()).unwrap_err();
    assert!(
        error.to_string().ends_with("out.csv: already exists"),
        "{error}"
    );
    let shorter = read("lirs", b"7\n");
    csv.write(&shorter, &path, true, |_| ()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        "time,object,size,op,next_access_vtime,thread,node,count\n0,7,4096,read,-1,0,0,1\n"
    );
    let missing = folder.path().join("missing/out.csv");
    let error = csv.write(&trace, &missing, false, |_| ()).unwrap_err();
    assert!(
        error.to_string().contains("missing: No such file"),
        "{error}"
    );
    assert_eq!(names_in(folder.path()), ["out.csv"]);
}

#[test]
fn an_import_keeps_requests_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in samples() {
        let path = folder.path().join(name);
        let input = Input::new(name, bytes.as_slice()).unwrap();
        let options = LoadOptions::default();
        let imported = import(input, Some(name), &options, &path, false).unwrap();
        assert_eq!(imported.format, name);
        let (from, to) = (read(name, &bytes), load(&path, None));
        assert_eq!(references(&from), references(&to), "{name}");
        if from.has_objects() {
            let counts = from.counts();
            // How many rows accesses to memory and marks took is not counted.
            if counts.total.loads + counts.total.stores == 0 {
                assert_eq!(imported.rows, counts.total.requests + counts.maps);
            }
            // A trace folder has accesses and marks alone.
            let mut counts = *counts;
            counts.skipped.separators = 0;
            counts.skipped.left_out = 0;
            assert_eq!(&counts, to.counts(), "{name}");
            let names = |trace: &Trace| -> Vec<Vec<u8>> {
                trace
                    .objects()
                    .iter()
                    .map(|object| object.path.clone())
                    .collect()
            };
            assert_eq!(names(&from), names(&to));
            assert!(to.objects().iter().all(|object| object.size > 0));
        } else {
            assert_eq!(imported.rows, from.references() as u64);
            assert_eq!(to.objects()[0].path, name.as_bytes());
        }
        // An impossible request is refused here, at its line, and not when the trace is read.
        let text = b"1,a,0,Read,0,1,1\n1,a,0,Read,18446744073709551615,2,1\n";
        let input = Input::new("far.csv", text.as_slice()).unwrap();
        let far = folder.path().join("far");
        let error = import(input, Some("msr"), &options, &far, false).unwrap_err();
        assert!(
            error.to_string().starts_with("far.csv:2: bytes 184467"),
            "{error}"
        );
        assert!(!far.exists());
    }
}

#[test]
fn an_import_of_a_trace_folder_is_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    Sample::new(400).write(&from, false).unwrap();
    let options = LoadOptions::default();
    import(Input::open(&from).unwrap(), None, &options, &to, false).unwrap();
    assert_eq!(load(&from, None).sha256(), load(&to, None).sha256());
}

#[test]
fn a_trace_folder_cannot_come_through_a_pipe() {
    let input = Input::new("pipe", b"PAR1".as_slice()).unwrap();
    let error = Trace::read(input, None, &LoadOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("cannot come through a pipe"),
        "{error}"
    );
}

/// What a trace of objects says of each reference.
fn objects(trace: &Trace) -> Vec<String> {
    let mut lives = Vec::new();
    trace.fill_lives(0, usize::MAX, &mut lives).unwrap();
    let mut found = Vec::new();
    let needs = hither_core::registry::Needs::ALL;
    let each = |batch: &[hither_core::Access]| {
        found.extend(batch.iter().map(|access| {
            let hither_core::Access {
                block,
                op,
                bytes,
                cost,
                ..
            } = access;
            format!("{block:?} {op:?} {bytes} {cost}")
        }));
    };
    trace.for_each_batch(100, needs, each).unwrap();
    let lives = lives.iter().map(|life| format!("{life:?}"));
    found.into_iter().chain(lives).collect()
}

#[test]
fn objects_come_back_with_their_sizes_times_and_costs() {
    let text = "time,key,size,op,ttl,cost\n\
                7,a,100,get,0,1\n8,b,5000000000,set,2.5,0.25\n\
                9,a,100,delete,0,1\n9,a,120,get,0,3\n";
    let options = LoadOptions {
        keep_sizes: true,
        ..LoadOptions::default()
    };
    let read = |format: &str, bytes: &[u8]| {
        let input = Input::new("input", bytes).unwrap();
        Trace::read(input, Some(format), &options).unwrap()
    };
    let trace = read("libcachesim-csv", text.as_bytes());
    assert!(trace.has_sizes() && trace.has_lives());
    let written = |format: &str| {
        let mut bytes = Vec::new();
        let export = Export::find(format).unwrap();
        export.write_stream(&trace, &mut bytes, |_| ()).unwrap();
        bytes
    };
    let csv = written("csv");
    assert_eq!(
        str::from_utf8(&csv).unwrap(),
        "time,object,size,op,next_access_vtime,thread,node,count,ttl,cost\n\
         7,0,100,read,-1,0,0,1,0,1\n8,1,5000000000,write,-1,0,0,1,2.5,0.25\n\
         9,0,100,delete,4,0,0,1,0,1\n9,0,120,read,-1,0,0,1,0,3\n"
    );
    assert_eq!(objects(&read("libcachesim-csv", &csv)), objects(&trace));
    let records = written("oracle-general");
    let record = |at: usize| &records[24 * at..][..24];
    let of = |time: u32, id: u64, size: u32, next: i64| {
        let [time, size] = [time, size].map(u32::to_le_bytes);
        [&time[..], &id.to_le_bytes(), &size, &next.to_le_bytes()].concat()
    };
    assert_eq!(record(0), of(7, 0, 100, -1));
    assert_eq!(record(1), of(8, 1, u32::MAX, -1), "sizes have 32 bits");
}
