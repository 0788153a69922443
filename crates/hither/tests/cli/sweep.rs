//! `hither sweep`.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use insta::assert_snapshot;
use serde_json::Value;

use crate::{Lab, SHORT_ROWS, rounds};

/// A lab with traces `0.trace` to `5.trace`, of 30,000 references each, and what to do with them:
/// some 60 units of work.
fn with_traces() -> Lab {
    let lab = Lab::new();
    let mut state = 1u64;
    for trace in 0..6u64 {
        let blocks = 300 + 100 * trace;
        let text: String = (0..30_000u64)
            .map(|tick| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let random = state >> 40;
                // A loop with favourites in it.
                let block = if random.is_multiple_of(3) {
                    random / 3 % (blocks / 10)
                } else {
                    tick % blocks
                };
                format!("{block}\n")
            })
            .collect();
        lab.write(&format!("{trace}.trace"), text);
    }
    let traces: String = (0..6)
        .map(|trace| format!("[[traces]]\npath = \"{trace}.trace\"\n"))
        .collect();
    let spec = format!(
        "policies = [\"lru\", \"arc\", \"fifo\", \"mru\", \"opt\"]\n\
         sizes = [\"5%\", \"10%\", \"25%\", \"50%\", \"400KiB\", 7]\n{traces}"
    );
    lab.write("sweep.toml", spec);
    lab
}

const SWEEP: &str = "hither sweep sweep.toml --save-every 60K";

/// Starts a sweep with its messages in the file `stderr`.
fn start(lab: &Lab, arguments: &str) -> Child {
    let mut command = lab.command("hither");
    command.args(arguments.split(' ').skip(1));
    command.stdout(Stdio::null());
    command.stderr(File::create(lab.path("stderr")).unwrap());
    command.spawn().unwrap()
}

/// Lines in the journal of an output.
fn saved(lab: &Lab, output: &str) -> usize {
    let journal = fs::read_to_string(lab.path(&format!("{output}.journal")));
    journal.map_or(0, |text| text.lines().count())
}

/// Waits until a sweep has saved so many lines or has ended.
fn wait_for_lines(lab: &Lab, output: &str, lines: usize, sweep: &mut Child) {
    while saved(lab, output) < lines && sweep.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_table_of_miss_ratios_for_each_trace() {
    let lab = Lab::with_loop();
    lab.write("long.trace", rounds(100, 3));
    lab.write("empty.trace", "*\n");
    let traces = "-t loop.trace --trace long.trace -t empty.trace";
    let line = format!("hither sweep --format lirs {traces} -p lru,mru -s 50%,8");
    assert_snapshot!(lab.run(&line), @"
    exit code: 0
    ----- stdout -----
    loop.trace: 30 references to 10 distinct blocks of 4.00 KiB
      miss ratio  50% (20.00 KiB)  8 (32.00 KiB)
      lru                 100.0 %        100.0 %
      mru                  66.7 %         46.7 %

    long.trace: 300 references to 100 distinct blocks of 4.00 KiB
      miss ratio  50% (200.00 KiB)  8 (32.00 KiB)
      lru                  100.0 %        100.0 %
      mru                   66.7 %         94.7 %

    empty.trace has no references

    ----- stderr -----
    ");
    assert_snapshot!(lab.run("hither sweep -t loop.trace"), @"
    exit code: 0
    ----- stdout -----
    loop.trace: 30 references to 10 distinct blocks of 4.00 KiB
      miss ratio  5% (4.00 KiB)  10% (4.00 KiB)  25% (12.00 KiB)  50% (20.00 KiB)  75% (32.00 KiB)
      lru               100.0 %         100.0 %          100.0 %          100.0 %          100.0 %
      arc               100.0 %         100.0 %          100.0 %          100.0 %          100.0 %
      opt               100.0 %         100.0 %           80.0 %           66.7 %           46.7 %

    ----- stderr -----
    ");
    assert_eq!(lab.names(), ["empty.trace", "long.trace", "loop.trace"]);
}

#[test]
fn what_the_command_line_names_replaces_what_the_file_says() {
    let lab = Lab::with_loop();
    fs::create_dir(lab.path("folder")).unwrap();
    lab.write("folder/other.trace", rounds(20, 2));
    lab.write(
        "folder/spec.toml",
        "policies = [\"mru\", \"lru\"]\nsizes = [8]\n\
         [[traces]]\npath = \"other.trace\"\nformat = \"lirs\"\nblock = \"64KiB\"\n\
         [[traces]]\npath = \"../loop.trace\"\nsizes = [\"50%\", 2]\npolicies = \
         [\"ubm{threshold=4}\"]\n",
    );
    let with = |options: &str| lab.run(&format!("hither sweep --to csv {options} | {SHORT_ROWS}"));
    assert_snapshot!(with("folder/spec.toml"), @r#"
    exit code: 0
    ----- stdout -----
    trace,format,sample_rate,references,distinct_blocks,distinct_bytes,block_bytes,policy,spec,size,
      ... cache_blocks,cache_bytes,hits,misses,miss_ratio,standard_error,hit_bytes,missed_bytes,
      ... byte_miss_ratio,byte_standard_error
    other.trace,lirs,1,40,20,,65536,mru,mru,8,8,524288,8,32,0.8,,,,,
    other.trace,lirs,1,40,20,,65536,lru,lru,8,8,524288,0,40,1,,,,,
    ../loop.trace,lirs,1,30,10,,4096,ubm,"ubm{threshold=4,expire=2,steady=1,periods=power,
      ... period_of=stream,gain=segments,sequential=keep,mapped=classified,other=lru,as=hither}",
      ... 50%,5,20480,10,20,0.6666666666666666,,,,,
    ../loop.trace,lirs,1,30,10,,4096,ubm,"ubm{threshold=4,expire=2,steady=1,periods=power,
      ... period_of=stream,gain=segments,sequential=keep,mapped=classified,other=lru,as=hither}",2,
      ... 2,8192,2,28,0.9333333333333333,,,,,

    ----- stderr -----
    "#);
    assert_snapshot!(with("folder/spec.toml -p opt -s 3"), @"
    exit code: 0
    ----- stdout -----
    trace,format,sample_rate,references,distinct_blocks,distinct_bytes,block_bytes,policy,spec,size,
      ... cache_blocks,cache_bytes,hits,misses,miss_ratio,standard_error,hit_bytes,missed_bytes,
      ... byte_miss_ratio,byte_standard_error
    other.trace,lirs,1,40,20,,65536,opt,opt,3,3,196608,3,37,0.925,,,,,
    ../loop.trace,lirs,1,30,10,,4096,opt,opt,3,3,12288,6,24,0.8,,,,,

    ----- stderr -----
    ");
    assert_snapshot!(with("folder/spec.toml -t loop.trace"), @"
    exit code: 0
    ----- stdout -----
    trace,format,sample_rate,references,distinct_blocks,distinct_bytes,block_bytes,policy,spec,size,
      ... cache_blocks,cache_bytes,hits,misses,miss_ratio,standard_error,hit_bytes,missed_bytes,
      ... byte_miss_ratio,byte_standard_error
    loop.trace,lirs,1,30,10,,4096,lru,lru,5%,1,4096,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,lru,lru,10%,1,4096,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,lru,lru,25%,3,12288,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,lru,lru,50%,5,20480,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,lru,lru,75%,8,32768,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,arc,arc,5%,1,4096,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,arc,arc,10%,1,4096,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,arc,arc,25%,3,12288,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,arc,arc,50%,5,20480,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,arc,arc,75%,8,32768,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,opt,opt,5%,1,4096,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,opt,opt,10%,1,4096,0,30,1,,,,,
    loop.trace,lirs,1,30,10,,4096,opt,opt,25%,3,12288,6,24,0.8,,,,,
    loop.trace,lirs,1,30,10,,4096,opt,opt,50%,5,20480,10,20,0.6666666666666666,,,,,
    loop.trace,lirs,1,30,10,,4096,opt,opt,75%,8,32768,16,14,0.4666666666666667,,,,,

    ----- stderr -----
    ");
}

#[test]
fn rows_say_all_that_is_needed_to_make_them_again() {
    let lab = Lab::with_loop();
    let line =
        "hither sweep -q -t loop.trace -p 'ubm{threshold=4}' -s 50% --keep-repeats --to json";
    let mut row = lab.json(line)[0].take();
    assert_eq!(row["sha256"].as_str().unwrap().len(), 64);
    row["sha256"] = "[SHA256]".into();
    let spec = "ubm{threshold=4,expire=2,steady=1,periods=power,period_of=stream,gain=segments,\
                sequential=keep,mapped=classified,other=lru,as=hither}";
    assert_eq!(row["spec"].take(), spec);
    assert_eq!(row["hither"].take(), env!("CARGO_PKG_VERSION"));
    let loaded_with = row["loaded_with"].as_str().unwrap();
    row["loaded_with"] = serde_json::from_str(loaded_with).unwrap();
    assert_snapshot!(serde_json::to_string_pretty(&row).unwrap(), @r#"
    {
      "access_latency_ns": null,
      "binding": null,
      "block_bytes": 4096,
      "byte_miss_ratio": null,
      "byte_standard_error": null,
      "bytes_moved": null,
      "cache_blocks": 5,
      "cache_bytes": 20480,
      "costs": null,
      "distinct_blocks": 10,
      "distinct_bytes": null,
      "format": "lirs",
      "hit_bytes": null,
      "hit_latency_ns": null,
      "hither": null,
      "hits": 10,
      "hops": null,
      "loaded_with": {
        "block_bytes": 4096,
        "include_in_kernel": true,
        "include_maps": false,
        "keep_repeats": true,
        "sample": "all"
      },
      "local_hit_ratio": null,
      "migrations": null,
      "miss_ratio": 0.6666666666666666,
      "missed_bytes": null,
      "misses": 20,
      "modelled_time_ns": null,
      "node_imbalance": null,
      "nodes": null,
      "placement": null,
      "placement_spec": null,
      "policy": "ubm",
      "references": 30,
      "replications": null,
      "sample_rate": 1.0,
      "sha256": "[SHA256]",
      "size": "50%",
      "spec": null,
      "standard_error": null,
      "trace": "loop.trace",
      "warm_up": null
    }
    "#);
}

#[test]
fn the_same_bytes_for_any_number_of_threads() {
    let lab = with_traces();
    for ending in ["csv", "json", "parquet"] {
        let with = |options: &str| {
            let line = format!("hither sweep sweep.toml -q -o out.{ending} --force {options}");
            let ran = lab.run(&line);
            assert_eq!((ran.code, ran.stdout(), ran.stderr.as_str()), (0, "", ""));
            fs::read(lab.path(&format!("out.{ending}"))).unwrap()
        };
        let one = with("--save-every 60K --threads 1");
        assert!(one == with("--save-every 60K --threads 3"), "{ending}");
        assert!(one == with(""), "{ending}");
        assert!(
            one == lab
                .run(&format!(
                    "RAYON_NUM_THREADS=2 hither sweep sweep.toml --to {ending}"
                ))
                .stdout
        );
    }
    assert!(lab.names().iter().all(|name| !name.contains("journal")));
}

#[test]
fn a_sweep_that_is_killed_again_and_again_gives_the_same_bytes() {
    let lab = with_traces();
    let mut state = 2_463_534_242u32;
    for ending in ["csv", "json", "parquet"] {
        let (whole, output) = (format!("whole.{ending}"), format!("out.{ending}"));
        assert_eq!(lab.run(&format!("{SWEEP} -o {whole}")).code, 0);
        let line = format!("{SWEEP} -o {output}");

        let mut sweep = start(&lab, &line);
        wait_for_lines(&lab, &output, 4, &mut sweep);
        sweep.kill().unwrap();
        sweep.wait().unwrap();
        assert!(!lab.path(&output).exists(), "it ended before it was killed");

        for _ in 0..12 {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            let before = saved(&lab, &output);
            let mut sweep = start(&lab, &line);
            thread::sleep(Duration::from_micros(u64::from(state % 60_000)));
            sweep.kill().unwrap();
            sweep.wait().unwrap();
            if lab.path(&output).exists() {
                break;
            }
            assert!(saved(&lab, &output) >= before, "what was saved is lost");
        }
        let last = lab.run(&format!("{line} --force"));
        assert_eq!(last.code, 0, "{last}");
        let read = |name: &str| fs::read(lab.path(name)).unwrap();
        assert!(read(&whole) == read(&output), "other bytes in {output}");
        let left: Vec<String> = lab
            .names()
            .into_iter()
            .filter(|name| name.starts_with("out."))
            .collect();
        assert!(
            !left
                .iter()
                .any(|name| name.contains("journal") || name.contains("partial")),
            "{left:?}"
        );
    }
}

#[test]
fn an_interrupt_saves_and_says_how_to_go_on() {
    let lab = with_traces();
    let line = format!("{SWEEP} -o out.csv");
    let mut sweep = start(&lab, &line);
    wait_for_lines(&lab, "out.csv", 3, &mut sweep);
    assert!(lab.run(&format!("kill -INT {}", sweep.id())).code == 0);
    assert_eq!(sweep.wait().unwrap().code(), Some(130));
    let stderr = fs::read_to_string(lab.path("stderr")).unwrap();
    let (count, rest) = stderr
        .strip_prefix("hither: interrupted: ")
        .unwrap()
        .split_once(' ')
        .unwrap();
    assert_eq!(
        rest,
        "caches done and saved; the same command goes on from there\n"
    );
    assert!(!lab.path("out.csv").exists());

    let last = lab.run(&line);
    assert_eq!(last.code, 0);
    assert_eq!(
        last.stderr,
        format!("hither: going on: {count} caches done before\nhither: 180 rows in out.csv\n")
    );
    lab.run(&format!("{SWEEP} -o whole.csv"));
    assert!(fs::read(lab.path("out.csv")).unwrap() == fs::read(lab.path("whole.csv")).unwrap());
}

#[test]
fn other_plans_changed_traces_and_second_sweeps_are_refused() {
    let lab = with_traces();
    let line = format!("{SWEEP} -o out.csv");
    let mut sweep = start(&lab, &line);
    wait_for_lines(&lab, "out.csv", 3, &mut sweep);
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    lab.write("stderr", "");

    assert_snapshot!(lab.run(&format!("{line} -p lru")), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: out.csv.journal: the journal of an unfinished sweep with other traces, policies, sizes
      ... or options, or by another version of hither; without the file the sweep begins anew, -o
      ... names another output
    ");

    let trace = fs::read(lab.path("0.trace")).unwrap();
    lab.write("0.trace", rounds(10, 3));
    let changed = lab.run(&line);
    assert_eq!(changed.code, 1, "{changed}");
    let begins = "\nhither: 0.trace: the trace has changed since the sweep began (SHA-256 ";
    assert!(changed.stderr.contains(begins), "{changed}");
    assert!(
        changed
            .stderr
            .ends_with("; without the sweep's journal it begins anew\n"),
        "{changed}"
    );

    // The same content with another time of change is the same trace.
    lab.write("0.trace", trace);
    let journal = File::options()
        .append(true)
        .open(lab.path("out.csv.journal"))
        .unwrap();
    journal.try_lock().unwrap();
    assert_snapshot!(lab.run(&line), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: out.csv.journal: another sweep with this output is at work
    ");
    drop(journal);
    let going_on = lab.run(&line);
    assert_eq!(going_on.code, 0, "{going_on}");

    assert_snapshot!(lab.run(&line), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: out.csv: already exists (--force replaces it, -o names another)
    ");
    assert_snapshot!(lab.run(&format!("{line} --force -s 10% -p lru")), @"
    exit code: 0
    ----- stdout -----

    ----- stderr -----
    hither: 6 rows in out.csv
    ");

    lab.write("out.csv.journal", "somebody's notes\n");
    assert_snapshot!(lab.run(&line), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: out.csv.journal: a damaged journal of a sweep; without the file the sweep begins anew:
      ... line 1 is damaged
    ");
}

#[test]
fn what_is_wrong_is_said_before_anything_is_simulated() {
    let lab = Lab::with_loop();
    lab.write(
        "bad.toml",
        "policies = [\"lru\"]\n\n[[traces]]\npath = \"loop.trace\"\nblok = 512\n",
    );
    lab.write("none.toml", "policies = [\"lru\"]\n");
    assert_snapshot!(lab.run("hither sweep bad.toml"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: bad.toml:5: unknown field `blok`, expected one of `path`, `format`, `block`,
      ... `keep-repeats`, `no-in-kernel`, `maps`, `objects`, `sample`, `policies`, `sizes`, `nodes`,
      ... `placements`, `bind`, `warm-up`, `costs`
    ");
    assert_snapshot!(lab.run("hither sweep none.toml"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: no traces: name some with --trace or in a TOML file
    ");
    assert_snapshot!(lab.run("hither sweep missing.toml"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: missing.toml: No such file or directory (os error 2)
    ");
    assert_snapshot!(lab.run("hither sweep -t loop.trace -t missing.trace"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: missing.trace: No such file or directory (os error 2)
    ");
    lab.write("letter", "Dear reader,\n");
    let letter = lab.run("hither sweep -t loop.trace -t letter -o out.csv");
    assert_eq!((letter.code, letter.stdout()), (1, ""), "{letter}");
    assert!(letter.stderr.starts_with("hither: letter: "), "{letter}");
    assert_snapshot!(lab.run("hither sweep -t loop.trace -o out.txt"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: out.txt: the name ends in none of .csv, .json, .parquet; --to names a format
    ");
    assert_snapshot!(lab.run("hither sweep -t loop.trace -o missing/out.csv"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: cannot write missing/out.csv: missing: No such file or directory (os error 2)
    ");
    assert_snapshot!(lab.run("hither sweep -t loop.trace --print rows"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: the following required arguments were not provided:
      --output <FILE>

    Usage: hither sweep --output <FILE> --trace <TRACE> --print <WHAT> [SPEC]

    For more information, try '--help'.
    ");
    assert_snapshot!(lab.run("hither sweep -t loop.trace -p pcc -s 5 -o out.csv"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: loop.trace: policy `pcc` needs call sites, which this trace does not have; `hither
      ... record` makes traces that have them, and `ubm` does without
    ");
    assert_snapshot!(lab.run("hither sweep -t loop.trace -s 1% -o other.csv"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: loop.trace: a cache of size 1% holds no block (the trace has 10 distinct blocks); the
      ... smallest cache is one block
    ");
    // Nothing was done, so there is nothing to go on with.
    let names = ["bad.toml", "letter", "loop.trace", "none.toml"];
    assert_eq!(lab.names(), names);
}

#[test]
fn json_is_an_array_of_rows_in_the_order_of_the_plan() {
    let lab = with_traces();
    let rows = lab.json("hither sweep -q sweep.toml --to json");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 6 * 5 * 6);
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(text(row, "trace"), format!("{}.trace", index / 30));
        let policy = ["lru", "arc", "fifo", "mru", "opt"][index / 6 % 5];
        assert_eq!(text(row, "policy"), policy);
        assert_eq!(
            text(row, "size"),
            ["5%", "10%", "25%", "50%", "400KiB", "7"][index % 6]
        );
        let count = |name: &str| row[name].as_u64().unwrap();
        assert_eq!(count("hits") + count("misses"), 30_000);
        assert!(
            row["misses"].as_u64() >= rows[index / 30 * 30 + 24 + index % 6]["misses"].as_u64()
        );
    }
}

#[test]
fn samples_are_estimates_with_their_error() {
    let lab = with_traces();
    let line = "hither sweep -q -t 5.trace -p arc -s 50% --sample 50%";
    let rows = lab.json(&format!("{line} --to json"));
    let row = &rows[0];
    assert!(
        (0.4..0.6).contains(&row["sample_rate"].as_f64().unwrap()),
        "{row}"
    );
    assert_eq!(row["references"], 30_000);
    assert_eq!(
        row["hits"].as_u64().unwrap() + row["misses"].as_u64().unwrap(),
        30_000
    );
    assert!(row["standard_error"].as_f64().unwrap() > 0.0, "{row}");
    let table = lab.run(line);
    assert!(table.stdout().contains(" ± "), "{table}");
    assert!(table.stdout().contains("with 95 % intervals"), "{table}");
    let whole = lab.run("hither sweep -q -t 5.trace -p arc -s 50%");
    assert!(!whole.stdout().contains("95 %"), "{whole}");
    lab.write(
        "spec.toml",
        "[[traces]]\npath = \"5.trace\"\nsample = \"50%\"\n",
    );
    let by_file = lab.json("hither sweep -q spec.toml -p arc -s 50% --to json");
    assert_eq!(by_file, rows);
}

#[test]
fn standard_input_is_no_trace_and_no_output() {
    let lab = Lab::with_loop();
    let line = "hither sweep -t - -p lru -s 5 <loop.trace; hither sweep -t loop.trace -p lru -s 5 \
                --to csv -o -";
    assert_snapshot!(lab.run(line), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: a sweep may read its traces again, so none of them is standard input (a file -: ./-)
    hither: results go to standard output without --output
    ");
    assert_eq!(lab.names(), ["loop.trace"]);
}

#[test]
fn a_journal_that_cannot_be_begun_is_not_left() {
    let lab = Lab::with_loop();
    let line = "trap '' XFSZ; ulimit -f 0; hither sweep -t loop.trace -p lru -s 5 -o o.csv";
    assert_snapshot!(lab.run(line), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: o.csv.journal: File too large (os error 27)
    ");
    assert_eq!(lab.names(), ["loop.trace"]);
}

#[test]
fn shards_make_the_same_output_as_one_sweep() {
    let lab = with_traces();
    let whole = lab.run(&format!("{SWEEP} -o whole.csv"));
    assert!(whole.stderr.contains("180 rows"), "{whole}");
    let expected = fs::read(lab.path("whole.csv")).unwrap();
    for of in [1, 3, 40] {
        for shard in (1..=of).rev() {
            let done = lab.run(&format!("{SWEEP} -o parts.csv --shard {shard}/{of}"));
            let says = format!("shard {shard}/{of} is done, ");
            assert!(done.stderr.contains(&says), "{done}");
            assert!(!lab.path("parts.csv").exists());
        }
        // Done again, there is nothing left to do.
        let again = lab.run(&format!("{SWEEP} -o parts.csv --shard 1/{of}"));
        assert!(again.stderr.contains("is done, "), "{again}");
        let merged = lab.run(&format!("{SWEEP} -o parts.csv --shard merge"));
        assert!(merged.stderr.contains("180 rows in parts.csv"), "{merged}");
        assert_eq!(fs::read(lab.path("parts.csv")).unwrap(), expected, "{of}");
        assert!(lab.names().iter().all(|name| !name.contains(".shard-")));
        fs::remove_file(lab.path("parts.csv")).unwrap();
    }
}

#[test]
fn rows_are_printed_while_parts_are_at_work() {
    let lab = with_traces();
    let printed = |line: &str| String::from_utf8(lab.run(line).stdout).unwrap();
    let whole = printed(&format!("{SWEEP} --to csv"));
    let so_far = format!("{SWEEP} -o parts.csv --print rows");
    assert_eq!(printed(&so_far).lines().count(), 1);
    let none = lab.run(&format!("{so_far} --shard 1/3"));
    assert!(
        none.stderr.contains("parts.csv.shard-1-of-3: No such"),
        "{none}"
    );
    let mut rows = 0;
    for shard in [3, 1, 2] {
        lab.run(&format!("{SWEEP} -o parts.csv --shard {shard}/3"));
        let part = printed(&format!("{so_far} --shard {shard}/3"));
        rows += part.lines().count() - 1;
        let all = printed(&so_far);
        assert_eq!(all.lines().count() - 1, rows);
        assert!(
            part.lines()
                .all(|line| all.contains(line) && whole.contains(line))
        );
    }
    assert_eq!(printed(&so_far), whole);
    // It reads the file of a part at work, which holds a lock, and leaves it as it is.
    let path = lab.path("parts.csv.shard-2-of-3");
    let mut part = fs::OpenOptions::new().append(true).open(&path).unwrap();
    part.lock().unwrap();
    part.write_all(b"0123456789abcdef {\"half").unwrap();
    let before = fs::read(&path).unwrap();
    assert_eq!(printed(&so_far), whole);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_merge_says_what_is_missing() {
    let lab = with_traces();
    let merge = format!("{SWEEP} -o parts.csv --shard merge");
    assert_snapshot!(lab.run(&merge), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: parts.csv: 0.trace, 1.trace, 2.trace, 3.trace, 4.trace, 5.trace are not all done; shards
      ... that are there: none
    ");
    lab.run(&format!("{SWEEP} -o parts.csv --shard 1/3"));
    lab.run(&format!("{SWEEP} -o parts.csv --shard 3/3"));
    assert_snapshot!(lab.run(&merge), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: parts.csv: 2.trace, 3.trace, 4.trace are not all done; shards that are there: 1/3, 3/3
    ");
    // A shard that was interrupted goes on.
    let mut sweep = start(&lab, &format!("{SWEEP} -o parts.csv --shard 2/3"));
    let lines = || {
        let path = lab.path("parts.csv.shard-2-of-3");
        fs::read_to_string(path).map_or(0, |text| text.lines().count())
    };
    while lines() < 3 && sweep.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_micros(200));
    }
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    lab.run(&format!("{SWEEP} -o parts.csv --shard 2/3"));
    assert!(lab.run(&merge).stderr.contains("180 rows in parts.csv"));
    // Traces that changed between two shards, and shards that are none.
    fs::remove_file(lab.path("parts.csv")).unwrap();
    lab.run(&format!("{SWEEP} -o parts.csv --shard 1/2"));
    let text = fs::read_to_string(lab.path("3.trace")).unwrap();
    lab.write("3.trace", text.replacen("1\n", "2\n", 1));
    lab.run(&format!("{SWEEP} -o parts.csv --shard 2/2"));
    assert_snapshot!(lab.run(&merge), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: parts.csv.shard-2-of-2: not of this sweep: 3.trace differs from that of another shard
    ");
    let none = lab.run(&format!("{SWEEP} -o parts.csv --shard 3/2"));
    assert!(none.stderr.contains("`3/2` is no shard"), "{none}");
    let nowhere = lab.run(&format!("{SWEEP} --shard merge"));
    assert!(nowhere.stderr.contains("--output <FILE>"), "{nowhere}");
}

#[test]
fn copies_are_read_and_results_name_the_traces() {
    let lab = with_traces();
    lab.run(&format!("{SWEEP} -o whole.csv"));
    let whole = fs::read_to_string(lab.path("whole.csv")).unwrap();
    let spec = fs::read_to_string(lab.path("sweep.toml")).unwrap();
    lab.write("urls.toml", spec.replace("path = \"", "path = \"s3://b/"));
    let sweep = "hither sweep urls.toml --copies copies.toml --memory 100KiB -o parts.csv";
    let sizes: Vec<u64> = (0..6)
        .map(|trace| {
            fs::metadata(lab.path(&format!("{trace}.trace")))
                .unwrap()
                .len()
        })
        .collect();
    let mut listed = String::new();
    for shard in 1..=3 {
        let copies = |named: &str| {
            let copy = |(trace, bytes): (usize, &u64)| {
                let url = format!("s3://b/{trace}.trace");
                let path = if named.contains(&url) {
                    format!("path = \"{trace}.trace\"\n")
                } else {
                    String::new()
                };
                format!("[[copies]]\ntrace = \"{url}\"\n{path}bytes = {bytes}\n")
            };
            lab.write(
                "copies.toml",
                sizes.iter().enumerate().map(copy).collect::<String>(),
            );
        };
        copies("");
        let names = lab.run(&format!("{sweep} --shard {shard}/3 --print traces"));
        listed += names.stdout();
        copies(names.stdout());
        let done = lab.run(&format!("{sweep} --shard {shard}/3"));
        assert!(done.stderr.contains("is done"), "{done}");
    }
    // Two traces are of two shards.
    let two: Vec<_> = listed.lines().collect();
    assert!((7..=8).contains(&two.len()), "{listed}");
    fs::remove_file(lab.path("copies.toml")).unwrap();
    let merged = lab.run("hither sweep urls.toml -o parts.csv --shard merge");
    assert!(merged.stderr.contains("180 rows"), "{merged}");
    let parts = fs::read_to_string(lab.path("parts.csv")).unwrap();
    assert_eq!(parts.replace("s3://b/", ""), whole);
    assert_snapshot!(lab.run("hither sweep -t s3://b/x"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: s3://b/x: the command reads no URLs; `hither.sweep` in Python does, and --copies names
      ... copies on this machine
    ");
}

#[test]
fn caches_of_objects_in_a_sweep() {
    let lab = Lab::new();
    lab.write("kv.csv", super::sim::OBJECTS);
    assert_snapshot!(lab.run("hither sweep -t kv.csv -p lru,opt -s 450B,100%"), @"
    exit code: 0
    ----- stdout -----
    kv.csv: 12 references to 4 distinct objects of 5.32 KiB
      miss ratio  450B: objects   bytes  100% (5.32 KiB): objects   bytes
      lru                54.5 %  87.2 %                    54.5 %  87.2 %
      opt                54.5 %  87.2 %                    54.5 %  87.2 %
    opt: a heuristic where objects have sizes, and no bound

    ----- stderr -----
    ");
    // As in one go, after an interruption; and by what the file says.
    lab.write(
        "kv.toml",
        "policies = [\"lru\", \"fifo\"]\nsizes = [\"10%\", \"50%\"]\n\
         [[traces]]\npath = \"kv.csv\"\nobjects = true",
    );
    lab.run("hither sweep kv.toml -o whole.csv");
    for part in ["1/2", "2/2", "merge"] {
        lab.run(&format!("hither sweep kv.toml -o parts.csv --shard {part}"));
    }
    let [whole, parts] = ["whole.csv", "parts.csv"].map(|name| fs::read(lab.path(name)).unwrap());
    assert!(whole == parts && whole.len() > 500);
    let lirs = lab
        .run("hither sweep -t kv.csv -p lirs -s 450B")
        .to_string();
    assert!(
        lirs.contains("kv.csv: policy `lirs` does not take sizes"),
        "{lirs}"
    );
}
