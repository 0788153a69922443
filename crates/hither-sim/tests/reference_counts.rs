//! Miss counts on public traces against those of other programs.
//!
//! `reference_counts.csv` has the misses of eighteen traces at five sizes (1, 5, 10, 25 and 50 % of
//! the distinct blocks): those of libCacheSim 0.3.5 with its defaults, and for `lirs` those of the
//! LIRS authors' program (zhongch4g/LIRS2, 7987d0a; only their traces, OLTP and P3). Our counts
//! must be equal, except for `w-tinylfu`: see [`DISTANCE_MAX`]. The file has no rows where
//! libCacheSim's S3-FIFO (below 20 blocks) or W-TinyLFU (below 100) admits nothing.
//!
//! The traces are not in this repository. The environment variable `HITHER_TRACES` names their
//! folder; without it the test is skipped with a message.

use hither_sim::{CacheConfiguration, CacheOptions, Size, run};
use hither_testing::skip::skip;
use hither_trace::{LoadOptions, Trace};
use std::path::PathBuf;

/// trace, references, distinct, percent, cache_blocks, policy, misses
const COUNTS: &str = include_str!("reference_counts.csv");

/// Name in [`COUNTS`], file, format. Addresses become pages of 4096 bytes, the default.
const TRACES: [(&str, &str, &str); 18] = [
    ("arc_OLTP", "arc/OLTP.lis.zst", "arc"),
    ("arc_P3", "arc/P3.lis.zst", "arc"),
    ("arc_P6", "arc/P6.lis.zst", "arc"),
    ("cache2k_orm-night", "cache2k/orm-night.trace.xz", "u32be"),
    ("cache2k_web07", "cache2k/web07.trace.xz", "u32be"),
    ("corda_vaultservice", "corda/trace_vaultservice.gz", "u64be"),
    (
        "lcs_cloudPhysicsIO",
        "libcachesim/cloudPhysicsIO.txt",
        "libcachesim-txt",
    ),
    (
        "lcs_twitter_cluster52",
        "libcachesim/twitter_cluster52.csv.zst",
        "libcachesim-csv",
    ),
    ("lirs_2_pools", "lirs/2_pools.trace.gz", "lirs"),
    ("lirs_cpp", "lirs/cpp.trace.gz", "lirs"),
    ("lirs_cs", "lirs/cs.trace.gz", "lirs"),
    ("lirs_loop", "lirs/loop.trace.gz", "lirs"),
    ("lirs_multi1", "lirs/multi1.trace.gz", "lirs"),
    ("lirs_ps", "lirs/ps.trace.gz", "lirs"),
    ("lirs_scan", "lirs/scan.trace.gz", "lirs"),
    ("page4k_gcc", "address/gcc.trace.gz", "address"),
    ("page4k_swim", "address/swim.trace.gz", "address"),
    ("page4k_twolf", "address/twolf.trace.gz", "address"),
];

/// How far the miss ratio of `w-tinylfu` may differ from libCacheSim's: on any trace, and in the
/// median of all rows.
///
/// The two are different algorithms. libCacheSim counts hits in the main part, insertions, and
/// blocks that leave the window (not hits in the window), in ten or more 32-bit counters per block,
/// halved every 32 cache sizes of hits in the main part. Ours counts all references, as in the
/// paper, in four-bit counters, halved every ten cache sizes. Measured 2026-11 on 66 rows: 0.0068
/// in the median, 0.0772 at most (half of `lirs_loop`, where ours has fewer misses: a loop is the
/// extreme case, since all blocks are equally frequent and admission depends on the noise of the
/// sketch).
const DISTANCE_MAX: f64 = 0.08;
const DISTANCE_MEDIAN: f64 = 0.01;

#[test]
fn policies_miss_exactly_as_often_as_elsewhere() {
    let Some(folder) = std::env::var_os("HITHER_TRACES").map(PathBuf::from) else {
        skip("HITHER_TRACES does not name the folder with the traces");
        return;
    };
    let rows: Vec<Vec<&str>> = COUNTS
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();
    let mut equal = 0;
    let mut distances = Vec::new();
    for (name, file, format) in TRACES {
        let rows: Vec<&Vec<&str>> = rows.iter().filter(|row| row[0] == name).collect();
        let trace = Trace::load(folder.join(file), Some(format), &LoadOptions::default())
            .expect("the trace");
        assert_eq!(trace.references().to_string(), rows[0][1], "{name}");
        assert_eq!(trace.blocks().to_string(), rows[0][2], "{name}");
        let configurations: Vec<CacheConfiguration> = rows
            .iter()
            .map(|row| {
                let size: Size = format!("{}%", row[3]).parse().expect("a percentage");
                CacheConfiguration {
                    spec: row[5].parse().expect("a policy"),
                    cache_blocks: size.blocks(4096, trace.blocks() as u64).expect("a size"),
                }
            })
            .collect();
        let outcomes =
            run(&trace, &configurations, &CacheOptions::default()).expect("blocks are enough");
        for (row, outcome) in rows.into_iter().zip(outcomes) {
            let row_name = row.join(",");
            assert_eq!(outcome.cache_blocks.to_string(), row[4], "{row_name}");
            if row[5] == "w-tinylfu" {
                let theirs: f64 = row[6].parse().expect("a count");
                let apart = (outcome.misses as f64 - theirs) / outcome.accesses as f64;
                println!("{apart:+.4} from {row_name}");
                distances.push(apart.abs());
            } else {
                assert_eq!(outcome.misses.to_string(), row[6], "{row_name}");
                equal += 1;
            }
        }
    }
    assert_eq!(equal + distances.len(), rows.len(), "a trace is not run");
    distances.sort_by(f64::total_cmp);
    let (median, max) = (
        distances[distances.len() / 2],
        distances[distances.len() - 1],
    );
    println!("equal: {equal}; w-tinylfu: median distance {median:.4}, largest {max:.4}");
    assert!(median <= DISTANCE_MEDIAN, "{median}");
    assert!(max <= DISTANCE_MAX, "{max}");
}
