//! Miss counts on public traces against counts by other people's programs.
//!
//! `reference_counts.csv` holds, for the seven traces of the LIRS authors at five sizes (1, 5, 10, 25 and 50 % of the
//! distinct blocks), the misses that libCacheSim 0.3.5 counts for LRU, ARC and Belady's algorithm. The traces are not part of
//! this repository: the folder that holds `lirs/*.trace.gz` is named by the environment variable `HITHER_TRACES`, and
//! without it the test says that it was skipped.

use hither_sim::{Configuration, Options, Size, run};
use hither_trace::{LoadOptions, Trace};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// trace, references, distinct, percent, cache_blocks, policy, misses
const COUNTS: &str = include_str!("reference_counts.csv");

#[test]
fn lru_arc_and_opt_miss_exactly_as_often_as_elsewhere() {
    let Some(folder) = std::env::var_os("HITHER_TRACES").map(PathBuf::from) else {
        println!("skipped: HITHER_TRACES does not name the folder with the traces");
        return;
    };
    let mut rows: BTreeMap<&str, Vec<Vec<&str>>> = BTreeMap::new();
    for line in COUNTS.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        rows.entry(fields[0]).or_default().push(fields);
    }
    let mut checked = 0;
    for (name, rows) in rows {
        let path = folder.join(format!("lirs/{name}.trace.gz"));
        let trace = Trace::load(&path, Some("lirs"), &LoadOptions::default()).expect("the trace");
        assert_eq!(trace.references().to_string(), rows[0][1], "{name}");
        assert_eq!(trace.blocks().to_string(), rows[0][2], "{name}");
        let configurations: Vec<Configuration> = rows
            .iter()
            .map(|row| {
                let size: Size = format!("{}%", row[3]).parse().expect("a percentage");
                Configuration {
                    spec: row[5].parse().expect("a policy"),
                    cache_blocks: size.blocks(4096, trace.blocks() as u64).expect("a size"),
                }
            })
            .collect();
        let outcomes =
            run(&trace, &configurations, &Options::default()).expect("blocks are enough");
        for (row, outcome) in rows.iter().zip(outcomes) {
            assert_eq!(
                outcome.cache_blocks.to_string(),
                row[4],
                "{name} {}",
                row[3]
            );
            assert_eq!(
                outcome.misses.to_string(),
                row[6],
                "{name} {} {}",
                row[3],
                row[5]
            );
            checked += 1;
        }
    }
    assert_eq!(checked, 7 * 5 * 3);
}
