//! Other Parquet readers read a trace: DuckDB and pandas join its tables and get the same counts,
//! and a trace that they wrote loads again. `HITHER_PYTHON` names a Python with duckdb, pandas and
//! pyarrow.

mod common;

use std::path::Path;
use std::process::Command;

use common::Sample;
use hither_testing::skip::skip;
use hither_trace::{LoadOptions, Stats, Trace};

const SCRIPT: &str = r#"
import os, sys, json, duckdb, pandas
trace = sys.argv[1]
rows = duckdb.sql(f"""
    select o.path, s.function, count(*), sum(a.length)::bigint, len(any_value(s.frames))
    from '{trace}/accesses.parquet' a
    join '{trace}/sites.parquet' s using (site)
    join '{trace}/objects.parquet' o using (object)
    where a.op = 'read' group by all order by all""").fetchall()
for row in rows:
    print("duckdb", json.dumps(row))
frame = duckdb.sql(
    f"select s.frames[1].build_id, s.frames[1].offset from '{trace}/sites.parquet' s"
    " where site = 1")
print("frame", json.dumps(frame.fetchall()[0]))
accesses = pandas.read_parquet(f"{trace}/accesses.parquet")
sites = pandas.read_parquet(f"{trace}/sites.parquet")
objects = pandas.read_parquet(f"{trace}/objects.parquet")
joined = accesses.merge(sites, on="site").merge(objects, on="object")
reads = joined[joined.op == "read"]
for key, group in reads.groupby(["path", "function"], dropna=False):
    path, function = key
    function = function if isinstance(function, str) else None
    frames = len(group.frames.iloc[0])
    row = [path, function, len(group), int(group.length.sum()), frames]
    print("pandas", json.dumps(row))
print("bytes", objects.path_bytes.iloc[1], objects.path_bytes.iloc[0])
print("ticks", (accesses.tick == accesses.index).all(), accesses.op.dtype)
accesses.to_parquet(f"{trace}/accesses.parquet")
# Not by pandas, which makes floats of integers among nulls.
duckdb.sql(f"copy (from '{trace}/sites.parquet') to '{trace}/copy' (format parquet)")
os.rename(f"{trace}/copy", f"{trace}/sites.parquet")
"#;

#[test]
fn duckdb_and_pandas_read_a_trace_and_write_one() {
    let Some(python) = std::env::var_os("HITHER_PYTHON") else {
        skip("HITHER_PYTHON is not set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    Sample::new(1000).write(&path, false).unwrap();
    let load = |path: &Path| Trace::load(path, None, &LoadOptions::default()).unwrap();
    let before = load(&path);

    let output = Command::new(python)
        .args(["-c", SCRIPT])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8(output.stdout).unwrap();
    let tables = |who: &str| {
        [
            format!(r#"{who} ["/data/not utf-8 \ufffd\ufffd", null, 250, 25000, 1]"#),
            format!(r#"{who} ["/data/scanned", "scan", 500, 4096000, 2]"#),
        ]
    };
    let mut expected = Vec::from(tables("duckdb"));
    expected.push(r#"frame ["00ff", 4660]"#.to_owned());
    expected.extend(tables("pandas"));
    expected.push(r"bytes b'/data/not utf-8 \xff\xfe' None".to_owned());
    expected.push("ticks True category".to_owned());
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);

    let after = load(&path);
    assert_eq!(Stats::of(&after).unwrap(), Stats::of(&before).unwrap());
    assert_eq!(after.sites(), before.sites());
    assert_ne!(after.sha256(), before.sha256());
}
