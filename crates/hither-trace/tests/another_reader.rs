//! Counts by another reader: Python writes traces with its own csv, struct and tarfile, and counts
//! what it wrote. hither counts the same.

use std::path::Path;
use std::process::Command;

use hither_core::Op;
use hither_core::registry::Needs;
use hither_testing::skip::skip;
use hither_trace::{LoadOptions, Trace};

#[test]
fn python_counts_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/another_reader.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(folder.path())
        .output();
    let Ok(output) = output else {
        skip("there is no python3");
        return;
    };
    let said = String::from_utf8(output.stdout).unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problem}");
    for line in said.lines() {
        let [path, format, references, blocks, writes] =
            line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let format = Some(format).filter(|format| *format != "-");
        let trace = Trace::load(path, format, &LoadOptions::default())
            .unwrap_or_else(|error| panic!("{error}"));
        let mut written = 0;
        trace
            .for_each_batch(4096, Needs::NOTHING, |batch| {
                written += batch.iter().filter(|access| access.op == Op::Write).count();
            })
            .unwrap();
        let found = [trace.references(), trace.blocks(), written];
        let expected: [usize; 3] = [references, blocks, writes].map(|count| count.parse().unwrap());
        assert_eq!(found, expected, "{path}");
    }
    assert!(said.lines().count() > 30, "{said}");
}
