//! `hither sim`.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{Lab, SHORT_ROWS, keys, rounds};

#[test]
fn a_table_of_hit_ratios() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither sim loop.trace -p lru,mru,opt -s 1,50%,32KiB,10"), @"
    exit code: 0
    ----- stdout -----
    30 references to 10 distinct blocks of 4.00 KiB
      hit ratio  1 (4.00 KiB)  50% (20.00 KiB)  32KiB (32.00 KiB)  10 (40.00 KiB)
      lru               0.0 %            0.0 %              0.0 %          66.7 %
      mru               0.0 %           33.3 %             53.3 %          66.7 %
      opt               0.0 %           33.3 %             53.3 %          66.7 %

    ----- stderr -----
    ");
}

#[test]
fn five_parts_of_the_data_unless_sizes_are_named() {
    let lab = Lab::new();
    lab.write("loop.trace", rounds(100, 5));
    assert_snapshot!(lab.run("hither sim loop.trace"), @"
    exit code: 0
    ----- stdout -----
    500 references to 100 distinct blocks of 4.00 KiB
      hit ratio  5% (20.00 KiB)  10% (40.00 KiB)  25% (100.00 KiB)  50% (200.00 KiB)  75% (300.00
      ... KiB)
      lru                 0.0 %            0.0 %             0.0 %             0.0 %             0.0
      ... %
      arc                 0.0 %            0.0 %             0.0 %             0.0 %             0.0
      ... %
      opt                 4.0 %            8.0 %            20.0 %            40.0 %            60.0
      ... %

    ----- stderr -----
    ");
}

#[test]
fn one_document_with_the_trace_and_a_result_for_each_cache() {
    let lab = Lab::with_loop();
    assert_snapshot!(
        lab.run("hither sim loop.trace -p 'lru,ubm{threshold=4}' -s 5 --json"),
        @r#"
    exit code: 0
    ----- stdout -----
    {
      "results": [
        {
          "accesses": 30,
          "cache_blocks": 5,
          "classes": {},
          "hit_ratio": 0.0,
          "hits": 0,
          "misses": 30,
          "params": {},
          "policy": "lru"
        },
        {
          "accesses": 30,
          "cache_blocks": 5,
          "classes": {
            "looping": 20,
            "other": 3,
            "sequential": 7
          },
          "hit_ratio": 0.3333333333333333,
          "hits": 10,
          "misses": 20,
          "params": {
            "as": "hither",
            "expire": 2.0,
            "gain": "segments",
            "mapped": "classified",
            "other": "lru",
            "period_of": "stream",
            "periods": "power",
            "sequential": "keep",
            "steady": 1,
            "threshold": 4
          },
          "policy": "ubm"
        }
      ],
      "trace": {
        "block_bytes": 4096,
        "command": [],
        "coverage": null,
        "distinct_blocks": 10,
        "format": "lirs",
        "hither": "[VERSION]",
        "loaded_with": {
          "block_bytes": 4096,
          "include_in_kernel": true,
          "include_maps": false,
          "keep_repeats": false,
          "sample": "all"
        },
        "losses": {
          "damaged_records": 0,
          "dropped_bytes": 0,
          "dropped_events": 0,
          "dropped_nested": 0,
          "dropped_no_ring": 0,
          "dropped_ring_full": 0,
          "not_recorded": []
        },
        "memory": null,
        "path": "loop.trace",
        "references": 30,
        "sha256": "[SHA256]",
        "skipped": {
          "empty": 0,
          "in_kernel": 0,
          "left_out": 0,
          "maps": 0,
          "merged": 0,
          "separators": 0
        }
      }
    }

    ----- stderr -----
    "#
    );
}

#[test]
fn results_go_by_policy_then_by_size_and_are_the_same_in_every_run() {
    let lab = Lab::with_recording();
    let line = "hither sim cat.hither -p lru,pcc,opt -s 10%,50% --json";
    let first = lab.run(line);
    assert_eq!(first.stdout, lab.run(line).stdout);
    let document: Value = serde_json::from_slice(&first.stdout).unwrap();
    let results = document["results"].as_array().unwrap();
    let order: Vec<(&str, u64)> = results
        .iter()
        .map(|result| {
            (
                result["policy"].as_str().unwrap(),
                result["cache_blocks"].as_u64().unwrap(),
            )
        })
        .collect();
    let [small, large] = [order[0].1, order[1].1];
    assert!(small < large, "{order:?}");
    assert_eq!(
        order,
        ["lru", "pcc", "opt"]
            .map(|policy| [(policy, small), (policy, large)])
            .concat()
    );
    for result in results {
        assert_eq!(
            keys(result),
            [
                "accesses",
                "cache_blocks",
                "classes",
                "hit_ratio",
                "hits",
                "misses",
                "params",
                "policy"
            ]
        );
        let count = |name: &str| result[name].as_u64().unwrap();
        assert_eq!(count("hits") + count("misses"), count("accesses"));
        assert_eq!(result["accesses"], document["trace"]["references"]);
        if result["policy"] == "pcc" {
            assert_eq!(keys(&result["classes"]), ["looping", "other", "sequential"]);
            let classes = result["classes"].as_object().unwrap();
            let sum: u64 = classes.values().map(|class| class.as_u64().unwrap()).sum();
            assert_eq!(sum, count("accesses"));
        }
    }
}

#[test]
fn what_one_run_learnt_helps_the_next() {
    let lab = Lab::with_recording();
    // Another run of the same program: the same call sites, by their signatures.
    lab.run("hither record -q -o again.hither -- cat data data data data >/dev/null");
    let simulated = |options: &str| {
        let line = format!("hither sim again.hither -p pcc -s 50% --json {options}");
        let result = &lab.json(&line)["results"][0];
        let misses = result["misses"].as_u64().unwrap();
        (misses, result["classes"]["looping"].as_u64().unwrap())
    };
    let untrained = simulated("");
    lab.json("hither sim cat.hither -p pcc -s 50% --json --profile known.json");
    let known: Value =
        serde_json::from_slice(&std::fs::read(lab.path("known.json")).unwrap()).unwrap();
    assert_eq!(keys(&known), ["format", "sites"]);
    let sites = known["sites"].as_object().unwrap();
    assert!(
        sites
            .values()
            .any(|site| site["looping"].as_u64().unwrap() > 0),
        "{known}"
    );

    let trained = simulated("--profile known.json");
    assert!(
        trained.0 <= untrained.0 && trained.1 > untrained.1,
        "{trained:?} against {untrained:?} untrained"
    );
    assert_eq!(
        lab.names(),
        ["again.hither", "cat.hither", "data", "known.json"]
    );
}

#[test]
fn policies_that_learn_nothing_leave_the_sites_alone() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither sim loop.trace -p lru -s 5 --profile known.json"), @"
    exit code: 0
    ----- stdout -----
    30 references to 10 distinct blocks of 4.00 KiB
      hit ratio  5 (20.00 KiB)
      lru                0.0 %

    ----- stderr -----
    hither: none of these policies learns about call sites: --profile is left as it was
    ");
    assert_eq!(lab.names(), ["loop.trace"]);
}

#[test]
fn a_trace_without_references() {
    let lab = Lab::new();
    lab.write("empty.trace", "*\n");
    assert_snapshot!(lab.run("hither sim --format lirs empty.trace -s 5"), @"
    exit code: 0
    ----- stdout -----
    empty.trace has no references

    ----- stderr -----
    ");
    assert_snapshot!(lab.run("hither sim --format lirs empty.trace --curve mrc.svg"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: empty.trace has no references: there is no curve
    ");
    assert_eq!(lab.names(), ["empty.trace"]);
}

#[test]
fn curves_as_data_and_as_pictures() {
    let lab = Lab::new();
    lab.write("loop.trace", rounds(300, 3));
    let files =
        "--curve mrc.csv --curve mrc.json --curve mrc.parquet --curve mrc.svg --curve mrc.png";
    let line = format!("hither sim loop.trace -p lru,mru,opt --points 4 {files}");
    assert_snapshot!(lab.run(&line), @"
    exit code: 0
    ----- stdout -----

    ----- stderr -----
    hither: wrote mrc.csv
    hither: wrote mrc.json
    hither: wrote mrc.parquet
    hither: wrote mrc.svg
    hither: wrote mrc.png
    ");
    let read = |name: &str| std::fs::read(lab.path(name)).unwrap();
    let names = ["mrc.csv", "mrc.json", "mrc.parquet", "mrc.svg", "mrc.png"];
    let first = names.map(read);
    lab.run(&format!("RAYON_NUM_THREADS=1 {line}"));
    assert!(first == names.map(read), "other bytes in another run");

    let rows: Value = serde_json::from_slice(&first[1]).unwrap();
    let rows = rows.as_array().unwrap();
    let of = |policy: &str| -> Vec<(u64, u64)> {
        rows.iter()
            .filter(|row| row["policy"] == policy)
            .map(|row| {
                let count = |name: &str| row[name].as_u64().unwrap();
                assert_eq!(count("hits") + count("misses"), 900);
                (count("cache_blocks"), count("hits"))
            })
            .collect()
    };
    let sizes: Vec<u64> = of("mru").iter().map(|point| point.0).collect();
    assert_eq!(sizes, [1, 7, 45, 300]);
    // Exact at every size, as there are fewer than a thousand.
    let lru: Vec<(u64, u64)> = (1..300).map(|size| (size, 0)).chain([(300, 600)]).collect();
    assert_eq!(of("lru"), lru);
    assert_eq!(of("opt").len(), 300);
    for (size, hits) in of("mru") {
        assert!(hits <= of("opt")[size as usize - 1].1);
    }
    let csv = String::from_utf8(first[0].clone()).unwrap();
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(first[2].starts_with(b"PAR1"));
    assert!(String::from_utf8_lossy(&first[3]).contains(">opt</text>"));
    assert!(first[4].starts_with(b"\x89PNG"));

    let linear = "hither sim -q loop.trace -p mru --points 4 --scale linear --curve linear.csv";
    assert_snapshot!(lab.run(&format!("{linear} && {SHORT_ROWS} linear.csv")), @"
    exit code: 0
    ----- stdout -----
    trace,format,sample_rate,references,distinct_blocks,distinct_bytes,block_bytes,policy,spec,size,
      ... cache_blocks,cache_bytes,hits,misses,miss_ratio,standard_error,hit_bytes,missed_bytes,
      ... byte_miss_ratio,byte_standard_error
    loop.trace,lirs,1,900,300,,4096,mru,mru,1,1,4096,0,900,1,,,,,
    loop.trace,lirs,1,900,300,,4096,mru,mru,12,12,49152,24,876,0.9733333333333334,,,,,
    loop.trace,lirs,1,900,300,,4096,mru,mru,151,151,618496,302,598,0.6644444444444444,,,,,
    loop.trace,lirs,1,900,300,,4096,mru,mru,300,300,1228800,600,300,0.3333333333333333,,,,,

    ----- stderr -----
    ");
}

#[test]
fn curves_that_cannot_be_written() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither sim loop.trace --curve mrc.pdf"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'mrc.pdf' for '--curve <FILE>': the name ends in none of .csv, .json,
      ... .parquet, .svg, .png

    For more information, try '--help'.
    ");
    assert_snapshot!(lab.run("hither sim loop.trace --curve missing/mrc.csv"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: cannot write missing/mrc.csv: missing: No such file or directory (os error 2)
    ");
    assert_snapshot!(lab.run("hither sim loop.trace --points 8"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: the following required arguments were not provided:
      --curve <FILE>

    Usage: hither sim --curve <FILE> --points <N> <TRACE>

    For more information, try '--help'.
    ");
    assert_eq!(lab.names(), ["loop.trace"]);
    // Sizes that are named are printed, too.
    let both = lab.run("hither sim loop.trace --curve mrc.csv -s 5");
    assert_eq!(both.code, 0, "{both}");
    let table = lab.run("hither sim loop.trace -s 5");
    assert_eq!(both.stdout, table.stdout);
    assert_eq!(lab.names(), ["loop.trace", "mrc.csv"]);
}

#[test]
fn a_sample_comes_with_its_error() {
    let lab = Lab::new();
    let made = lab.run("hither gen -q 'zipf{blocks=20000}' -n 200k --seed 1 -o z");
    assert_eq!(made.code, 0, "{made}");
    assert_snapshot!(lab.run("hither sim z -p lru,s3-fifo -s 200,2000,50% --sample 25%"), @"
    exit code: 0
    ----- stdout -----
    200,000 references to about 16,852 distinct blocks of 4.00 KiB
    estimated from a sample of 43,039 references (21.5 %) to 4,213 blocks, with 95 % intervals
      hit ratio  200 (800.00 KiB)  2000 (7.81 MiB)  50% (32.91 MiB)
      lru              42.5 % ± ?   69.3 % ± 2.8 %   86.4 % ± 1.5 %
      s3-fifo          53.2 % ± ?   74.5 % ± 2.4 %   87.1 % ± 1.1 %

    ----- stderr -----
    ");
    let json = lab.json("hither sim z -p lru -s 2000 --sample 3000 --json");
    let estimate = &json["results"][0]["estimate"];
    assert!(estimate["rate"].as_f64().unwrap() < 0.25, "{json}");
    assert!(estimate["standard_error"].as_f64().unwrap() > 0.0, "{json}");
    let refused = lab.run("hither sim z -p lru,pcc -s 2000 --sample 0.5");
    assert_eq!(refused.code, 2, "{refused}");
    assert!(
        refused.stderr.contains("all blocks in their order"),
        "{refused}"
    );
}

#[test]
fn a_sample_that_shows_nothing_of_a_policy_is_refused() {
    let lab = Lab::new();
    let made = lab.run("hither gen -q 'shifting{blocks=5000,phase=25000}' -n 250k --seed 2 -o s");
    assert_eq!(made.code, 0, "{made}");
    let line = "sim -q s -p sieve,clock -s 5493 --sample 3000";
    assert_snapshot!(lab.run(&format!("hither {line}")), @"
    exit code: 0
    ----- stdout -----
    250,000 references to about 27,671 distinct blocks of 4.00 KiB
    estimated from a sample of 27,343 references (10.9 %) to 3,000 blocks, with 95 % intervals
      hit ratio  5493 (21.46 MiB)
      sieve               refused
      clock        84.9 % ± 3.4 %
    sieve at 5493 is refused: its hit ratio depends on the size of the sample: 56.4 %, 67.2 % for
      ... halves of it and 73.8 % for eighths; leave --sample out or raise it

    ----- stderr -----
    ");
    let json = lab.json(&format!("hither {line} --json"));
    let [sieve, clock] = [&json["results"][0], &json["results"][1]];
    for count in ["hits", "misses", "hit_ratio"] {
        assert!(sieve[count].is_null(), "{sieve}");
        assert!(clock[count].is_number(), "{clock}");
    }
    assert!(sieve["estimate"]["interval"].is_null(), "{sieve}");
    assert!(clock["estimate"]["interval"][1].is_number(), "{clock}");
    assert!(clock["estimate"]["refused"].is_null(), "{clock}");
    let reason = sieve["estimate"]["refused"].as_str().unwrap();
    assert!(
        reason.contains("depends on the size of the sample"),
        "{sieve}"
    );
    // A sweep's rows have no counts, and its table says so.
    let sweep = "hither sweep -q -t s -p sieve,clock -s 5493 --sample 3000";
    let rows = lab.json(&format!("{sweep} --to json"));
    assert!(
        rows[0]["miss_ratio"].is_null() && rows[0]["hits"].is_null(),
        "{rows}"
    );
    assert!(rows[1]["miss_ratio"].is_number(), "{rows}");
    assert!(lab.run(sweep).stdout().contains("refused"));
    let curve = lab.run("hither sim -q s -p sieve,clock --sample 3000 --points 8 --curve c.svg");
    assert_eq!(curve.code, 0, "{curve}");
}

#[test]
fn a_sample_of_no_block_tells_nothing() {
    let lab = Lab::with_loop();
    let line = "for caches in sim 'sweep -t'; do hither $caches loop.trace -p lru -s 5 --sample \
                0.0000001%; done";
    assert_snapshot!(lab.run(line), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: loop.trace: none of the blocks of 30 references is in the sample; a larger one is needed
    hither: loop.trace: none of the blocks of 30 references is in the sample; a larger one is needed
    ");
}

#[test]
fn a_name_need_not_be_text() {
    let lab = Lab::with_loop();
    lab.run("mv loop.trace \"$(printf 'l\\377p')\"");
    let name = "\"$(printf 'l\\377p')\"";
    let found = lab.json(&format!("hither sim {name} -p lru -s 5 --json"));
    assert_eq!(found["trace"]["path"], "l\u{fffd}p");
    let found = lab.json(&format!("hither stat {name} --json"));
    assert_eq!(found["trace"]["path"], "l\u{fffd}p");
    let swept = format!("hither sweep -q -t {name} -p lru -s 5 -o o.json && cat o.json");
    assert_eq!(lab.json(&swept)[0]["trace"], "l\u{fffd}p");
}

#[test]
fn an_empty_file_is_of_no_format() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither sim /dev/null"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: /dev/null: empty, so that nothing tells its format; --format names one
    ");
}

#[test]
fn an_empty_tmpdir_is_none() {
    let lab = Lab::new();
    // In a folder that is gone, nothing can be written into the current one.
    let line = "mkdir gone && cd gone && rmdir ../gone && hither gen loop -n 20k --format csv -q \
                -o - \
                | TMPDIR= hither sim - -p lru -s 5 --memory 0";
    assert_snapshot!(lab.run(line), @"
    exit code: 0
    ----- stdout -----
    20,000 references to 1,000 distinct blocks of 4.00 KiB
      hit ratio  5 (20.00 KiB)
      lru                0.0 %

    ----- stderr -----
    ");
}

/// A bare number is a number of blocks, in each command that simulates.
#[test]
fn ten_is_ten_blocks() {
    let lab = Lab::with_loop();
    let sizes = |line: &str| {
        let ran = lab.run(line);
        assert_eq!(ran.code, 0, "{ran}");
        ran.stdout().to_owned()
    };
    for command in ["sim -q --policy lru", "advise -q"] {
        let ten = sizes(&format!("hither {command} loop.trace --size 10"));
        assert!(ten.contains("40.00 KiB"), "{ten}");
    }
    for command in ["sim", "advise", "report"] {
        let ran = lab.run(&format!("hither {command} loop.trace --cache 10"));
        assert_eq!(ran.code, 2, "{ran}");
        let hint = "--size names simulated caches: bytes (64MiB), blocks (512) or 10%";
        assert!(ran.stderr.contains(hint), "{ran}");
    }
}

#[test]
fn readahead_has_the_window_of_the_recording_or_a_given_one() {
    let lab = Lab::new();
    assert_eq!(
        lab.run("hither -q gen 'loop{blocks=64}' -n 640 -o loop.hither")
            .code,
        0
    );
    let requests = |window: &str| {
        let line = format!("hither -q sim loop.hither -p lru -s 64 --readahead {window} --json");
        let reads = &lab.json(&line)["results"][0]["reads"];
        reads["requests"].as_u64().expect("a number")
    };
    // A file of 64 blocks is read once, in order.
    assert_eq!(requests("4KiB"), 64);
    assert_eq!(requests("kernel"), requests("128KiB"));
    assert!(requests("kernel") < requests("8KiB"));
    assert!(requests("8KiB") < 64);
    for wrong in ["10%", "linux"] {
        let ran = lab.run(&format!("hither sim loop.hither --readahead {wrong}"));
        assert_eq!(ran.code, 2, "{ran}");
    }
}

/// A small trace of a key-value store: objects with sizes, a time to live, a write with another
/// size, and a delete.
pub(super) const OBJECTS: &str = "\
time,object,size,op,ttl
0,a,100,get,0
1,b,300,get,0
2,a,100,get,0
3,c,50,set,2
4,c,50,get,0
9,c,50,get,0
10,d,5000,get,0
11,a,200,set,0
12,a,200,get,0
13,b,300,delete,0
14,b,300,get,0
15,b,300,get,0
";

#[test]
fn sizes_in_bytes_are_of_objects_where_the_trace_has_sizes() {
    let lab = Lab::new();
    lab.write("kv.csv", OBJECTS);
    assert_snapshot!(lab.run("hither sim kv.csv -p lru,opt -s 450B,600B"), @"
    exit code: 0
    ----- stdout -----
    11 references and 1 delete to 4 distinct objects of 5.32 KiB
      hit ratio  450B: objects   bytes  600B: objects   bytes
      lru               45.5 %  12.8 %         45.5 %  12.8 %
      opt               45.5 %  12.8 %         45.5 %  12.8 %
    opt: a heuristic where objects have sizes, and no bound
    up to 1 miss not brought in, since objects were too large (lru, 450 B)

    ----- stderr -----
    ");
    // With the same sizes, in percent of all bytes, and with the bounds.
    assert_snapshot!(lab.run("hither sim kv.csv -p lru --objects --bounds -s 10%"), @"
    exit code: 0
    ----- stdout -----
    11 references and 1 delete to 4 distinct objects of 5.32 KiB
      hit ratio  10% (545 B): objects   bytes
      lru                      45.5 %  12.8 %
    up to 1 miss not brought in, since objects were too large (lru, 545 B)

      best cache        10% (545 B): objects   bytes
      at most (pfoo-l)                54.5 %  13.5 %
    what the best cache hits at least is not known where objects expire

    ----- stderr -----
    ");
    // All alike: nothing expires, and a delete is a write.
    assert_snapshot!(lab.run("hither sim kv.csv -p lru -s 50%"), @"
    exit code: 0
    ----- stdout -----
    12 references to 4 distinct blocks of 4.00 KiB
      hit ratio  50% (8.00 KiB)
      lru                50.0 %

    ----- stderr -----
    ");
}

#[test]
fn the_document_of_caches_of_objects() {
    let lab = Lab::new();
    lab.write("kv.csv", OBJECTS);
    let mut document = lab.json("hither sim kv.csv -p lru -s 450B --json");
    for (name, ratio) in [
        ("hit_ratio", 5.0 / 11.0),
        ("byte_hit_ratio", 850.0 / 6650.0),
    ] {
        let found = document["results"][0][name].take().as_f64().unwrap();
        assert!((found - ratio).abs() < 1e-12, "{name}: {found}");
    }
    assert_eq!(
        document["results"][0],
        json!({
            "policy": "lru", "params": {}, "cache_bytes": 450,
            "accesses": 11, "hits": 5, "misses": 6, "hit_ratio": null,
            "bytes": 6650, "hit_bytes": 850, "missed_bytes": 5800,
            "byte_hit_ratio": null,
            "expired": 1, "passed_by": 1, "deleted": 0,
        })
    );
    let objects = json!({ "distinct_bytes": 5450, "bytes": 6650, "deletes": 1 });
    assert_eq!(document["trace"]["objects"], objects);
    assert_eq!(document["trace"]["loaded_with"]["keep_sizes"], true);
}

#[test]
fn what_knows_no_sizes_refuses_them() {
    let lab = Lab::with_loop();
    lab.write("kv.csv", OBJECTS);
    for (command, said) in [
        (
            "hither sim kv.csv -s 450B -p lirs",
            "`lirs` does not take sizes",
        ),
        ("hither sim kv.csv -s 450B,7 -p lru", "not 7"),
        (
            "hither sim kv.csv -s 450B -p lru --folded",
            "--folded is for blocks",
        ),
        (
            "hither sim loop.trace --objects",
            "--objects and --bounds are for",
        ),
        (
            "hither advise kv.csv -s 450B",
            "here a size is a number of objects",
        ),
        (
            "hither place kv.csv -s 450B --nodes 2",
            "here a size is a number of objects",
        ),
    ] {
        let text = lab.run(command).to_string();
        assert!(text.contains(said), "{command}: {text}");
    }
}

#[test]
fn curves_of_objects_are_over_bytes() {
    let lab = Lab::new();
    lab.write("kv.csv", OBJECTS);
    lab.run("hither sim kv.csv -p lru --objects --points 3 --curve curve.csv --curve curve.svg");
    let read = |name: &str| std::fs::read_to_string(lab.path(name)).unwrap();
    let rows = read("curve.csv");
    let rows: Vec<&str> = rows.lines().skip(1).collect();
    let last = "lru,lru,5450B,,5450,5,6,0.5454545454545454,,850,5800,0.8721804511278195,,";
    assert!(rows.len() == 3 && rows[2].contains(last), "{rows:?}");
    assert!(read("curve.svg").contains("lru, bytes"));
}
