//! Placements: `hither place`, its pictures, and what `sweep` and `advise` make of nodes.

use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::{Lab, keys, rounds};

/// A lab with the trace of eight runs of grep in four shells on two nodes.
fn with_grep() -> Lab {
    let lab = Lab::new();
    lab.run(
        "hither gen -q 'parallel-grep{runs=8,files=40,size_mib=1}' --threads 4 --nodes 2 -o \
             grep.hither",
    );
    lab
}

#[test]
fn a_table_of_placements_in_the_order_asked_for() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither place loop.trace --nodes 2 --placement \
                              round-robin,first-touch"), @"
    exit code: 0
    ----- stdout -----
    30 references to 10 distinct blocks of 4.00 KiB

    2 nodes of 10 frames (40.00 KiB) each, threads in turn
      placement     local  remote    miss  hops      hit  access  migrations  replicas  moved
      ... time  by round-robin
      round-robin  33.3 %  33.3 %  33.3 %  0.50  87.0 ns  420 ns           0         0  960 B  12.6
      ... µs           1.000
      first-touch  66.7 %   0.0 %  33.3 %  0.00  70.0 ns  403 ns           0         0    0 B  12.1
      ... µs           0.960

    ----- stderr -----
    ");
    assert_snapshot!(lab.run("hither place loop.trace --nodes mesh:1x2 --placement first-touch -s \
                              8 --traffic"), @"
    exit code: 0
    ----- stdout -----
    30 references to 10 distinct blocks of 4.00 KiB

    mesh:1x2: 2 nodes of 8 frames (32.00 KiB) each, threads in turn
      placement     local  remote    miss  hops      hit  access  migrations  replicas  moved
      ... time
      first-touch  53.3 %  13.3 %  33.3 %  0.20  76.8 ns  410 ns           0         0  384 B  12.3
      ... µs

    first-touch on mesh:1x2: accesses in %, from (row) to the node that served
      from     0     1
         0  80.0  20.0
         1     .     .

    ----- stderr -----
    ");
}

#[test]
fn where_nothing_is_hit_there_is_no_latency_of_a_hit() {
    let lab = Lab::new();
    lab.write("once.trace", rounds(10, 1));
    let ran = lab.run("hither place once.trace --nodes 2 --placement one-step");
    let row: Vec<&str> = ran
        .stdout()
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(
        row[..9],
        ["one-step", "0.0", "%", "0.0", "%", "100.0", "%", "-", "-"],
        "{ran}"
    );
}

#[test]
fn files_are_placed_in_caches_over_storage() {
    let lab = with_grep();
    assert_snapshot!(
        lab.run("hither place grep.hither --nodes 2 --placement first-and-forever,post-office -s \
                 20% -p lru,arc --warm-up 10% --costs disk_ns=1000000,contention=false"),
        @"
    exit code: 0
    ----- stdout -----
    2,216 references to 277 distinct blocks of 4.00 KiB, the first 222 not counted

    2 nodes of 55 blocks (220.00 KiB) each, lru, on the nodes that the trace says
      placement           local  remote    miss  hops     hit  access  migrations  replicas
      ... moved    time  by first-and-forever
      first-and-forever  11.9 %  49.8 %  38.3 %  0.81  623 ns  581 µs           0         0  3.88
      ... MiB  566 ms                 1.000
      post-office        11.9 %  49.8 %  38.3 %  0.81  623 ns  581 µs           0         0  3.88
      ... MiB  566 ms                 1.000

    2 nodes of 55 blocks (220.00 KiB) each, arc, on the nodes that the trace says
      placement           local  remote    miss  hops     hit  access  migrations  replicas
      ... moved    time  by first-and-forever
      first-and-forever  18.9 %  21.5 %  59.6 %  0.53  564 ns  864 µs           0         0  1.68
      ... MiB  848 ms                 1.000
      post-office        18.8 %  21.6 %  59.6 %  0.53  564 ns  865 µs           0         0  1.69
      ... MiB  846 ms                 0.998

    ----- stderr -----
    "
    );
}

#[test]
fn each_result_says_all_that_it_counted_and_what_it_came_from() {
    let lab = with_grep();
    let line = "hither place grep.hither --nodes mesh:1x2 --placement \
                post-office,first-and-forever -s 10% --json";
    let document = lab.json(line);
    assert_eq!(keys(&document), ["results", "trace"]);
    let results = document["results"].as_array().unwrap();
    let names: Vec<_> = results
        .iter()
        .map(|result| result["placement"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["post-office", "first-and-forever"]);
    for result in results {
        for name in [
            "placement",
            "nodes",
            "local_hit_ratio",
            "hops",
            "hit_latency_ns",
            "access_latency_ns",
            "migrations",
            "replications",
            "bytes_moved",
            "modelled_time_ns",
            "params",
            "capacity",
            "policy",
            "binding",
            "costs",
            "warm_up",
            "warm_up_references",
            "node_imbalance",
            "timeline",
            "iterations",
            "traffic",
            "statistics",
        ] {
            assert!(result.get(name).is_some(), "{name}");
        }
        let count = |name: &str| result[name].as_u64().unwrap();
        assert_eq!(
            count("local") + count("remote") + count("misses"),
            count("accesses")
        );
        assert_eq!(result["accesses"], document["trace"]["references"]);
        assert_eq!(result["binding"], "trace");
        let rows = result["traffic"].as_array().unwrap();
        let cells = rows.iter().flat_map(|row| row.as_array().unwrap());
        let served: u64 = cells.map(|cell| cell.as_u64().unwrap()).sum();
        assert_eq!((rows.len(), served), (2, count("accesses")));
        let steps = result["timeline"].as_array().unwrap();
        assert_eq!(steps.last().unwrap()["end"], result["accesses"]);
    }
    let bytes = lab.run(line).stdout;
    assert_eq!(
        bytes,
        lab.run(&format!("RAYON_NUM_THREADS=1 {line}")).stdout
    );
}

#[test]
fn pictures_and_what_is_over_time() {
    let lab = with_grep();
    let files = "--heatmap who.svg --mesh moves.svg --timeline time.csv";
    let line =
        format!("hither place grep.hither --nodes 2 --placement always-migrate,dual-layer {files}");
    let ran = lab.run(&line);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(
        ran.stderr,
        "hither: wrote who.svg\nhither: wrote moves.svg\nhither: wrote time.csv\n"
    );
    let read = |name: &str| fs::read_to_string(lab.path(name)).unwrap();
    for name in ["who.svg", "moves.svg"] {
        let svg = read(name);
        assert!(
            svg.starts_with("<svg ")
                && svg.contains(">always-migrate<")
                && svg.contains(">dual-layer<")
        );
    }
    assert!(read("moves.svg").contains("nodes of "));
    let table = read("time.csv");
    let mut lines = table.lines();
    let heads: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(
        heads[..7],
        [
            "placement",
            "nodes",
            "size",
            "policy",
            "end",
            "end_ns",
            "local_hit_ratio"
        ]
    );
    assert_eq!(heads[heads.len() - 2..], ["used_0", "used_1"]);
    assert_eq!(lines.count(), 2 * 50, "50 intervals each");

    let first = ["who.svg", "moves.svg", "time.csv"].map(read);
    lab.run(&line);
    assert!(
        first == ["who.svg", "moves.svg", "time.csv"].map(read),
        "other bytes in another run"
    );
    let ran = lab.run(
        "hither place -q grep.hither --nodes 2 --heatmap who.png --mesh moves.png \
                       --timeline time.png",
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for name in ["who.png", "moves.png", "time.png"] {
        assert_eq!(&fs::read(lab.path(name)).unwrap()[..4], b"\x89PNG");
    }
}

/// A lab with a trace of files, one of bare block numbers, an empty one, and a sweep without nodes.
fn with_loop_and_grep() -> Lab {
    let lab = with_grep();
    lab.write("loop.trace", rounds(10, 3));
    lab.write("empty.trace", "*\n");
    lab.write(
        "placed.toml",
        "placements = [\"one-step\"]\n[[traces]]\npath = \"loop.trace\"\n",
    );
    lab
}

/// Each command line ends with this code and has this text in its first line on stderr. None prints
/// or writes anything.
fn refuses(lab: &Lab, lines: &[(&str, i32, &str)]) {
    for &(line, code, expected) in lines {
        let ran = lab.run(&format!("hither {line}"));
        assert!(ran.stdout().is_empty(), "{line}: {ran}");
        let message = ran.stderr.lines().next().unwrap_or_default();
        assert!(
            ran.code == code && message.contains(expected),
            "{line}: {} {message}",
            ran.code
        );
    }
    let names = ["empty.trace", "grep.hither", "loop.trace", "placed.toml"];
    assert_eq!(lab.names(), names);
}

#[test]
fn unknown_placements_and_topologies_are_refused() {
    let lab = with_loop_and_grep();
    refuses(
        &lab,
        &[
            (
                "place loop.trace --nodes 2 --placement first-tuch",
                2,
                "unknown placement `first-tuch` (did you mean `first-touch`?)",
            ),
            (
                "place loop.trace --nodes 0",
                2,
                "hither: unknown topology `0`",
            ),
            (
                "place loop.trace --nodes gone.toml",
                1,
                "hither: gone.toml: No such file",
            ),
            ("place loop.trace --nodes mesh:0x5", 2, "hither: "),
        ],
    );
}

#[test]
fn a_placement_for_another_kind_of_data_is_refused() {
    let lab = with_loop_and_grep();
    refuses(
        &lab,
        &[
            (
                "place grep.hither --nodes 2 --placement upm",
                2,
                "hither: `upm` places pages of memory, and grep.hither is a trace of blocks of \
                 files; placements of those: ",
            ),
            (
                "place loop.trace --nodes 2 --placement one-step,upm",
                2,
                "hither: `upm` places pages of memory, and `one-step` places blocks of files",
            ),
        ],
    );
}

#[test]
fn sizes_warm_ups_and_costs_that_make_no_sense_are_refused() {
    let lab = with_loop_and_grep();
    refuses(
        &lab,
        &[
            (
                "place loop.trace --nodes 2 --placement first-touch -s 4",
                2,
                "hither: 8 frames (2 nodes of size 4) do not hold the 10 pages of the trace: \
                 `first-touch` needs 5 a node or more, or --costs refault_ns=N for pages that \
                 come back from swap",
            ),
            (
                "place loop.trace --nodes 2 --placement one-step -s 1B",
                2,
                "hither: a cache of size 1B holds no block",
            ),
            (
                "place loop.trace --nodes 2 --warm-up 30",
                2,
                "hither: a warm-up of 30 (30 references) leaves nothing of the 30 of the trace",
            ),
            (
                "place loop.trace --nodes 2 --warm-up 99%",
                2,
                "hither: a warm-up of 99% (30 references) leaves nothing of the 30 of the trace",
            ),
            (
                "place loop.trace --nodes 2 --warm-up 1iterations",
                2,
                "hither: a warm-up of 1iterations leaves nothing: the trace marks the end of 0",
            ),
            (
                "place loop.trace --nodes 2 --costs hop=1",
                2,
                "hither: `hop=1` is no list of costs",
            ),
            (
                "place loop.trace --nodes 2 --costs hop_ns=18446744073709551615",
                2,
                "`hop_ns=18446744073709551615`: at most 10000000000 (10 s) are possible",
            ),
            (
                "place loop.trace --nodes 2 --curve mrc.svg",
                2,
                "error: unexpected argument '--curve' found",
            ),
        ],
    );
}

#[test]
fn options_of_nodes_without_nodes_are_refused() {
    let lab = with_loop_and_grep();
    refuses(
        &lab,
        &[
            (
                "place loop.trace --placement upm",
                2,
                "error: the following required arguments were not provided:",
            ),
            (
                "advise loop.trace --warm-up 10",
                2,
                "hither: --placement, --bind, --warm-up and --costs are for nodes, which --nodes \
                 names",
            ),
            (
                "sweep placed.toml",
                2,
                "hither: loop.trace: placements are for nodes, and none are named",
            ),
        ],
    );
}

#[test]
fn pictures_that_cannot_be_drawn_or_written_are_refused() {
    let lab = with_loop_and_grep();
    refuses(
        &lab,
        &[
            (
                "place --format lirs empty.trace --nodes 2 --heatmap who.svg",
                2,
                "hither: empty.trace has no references: there is nothing to draw",
            ),
            (
                "place loop.trace --nodes 2 --heatmap gone/who.svg",
                1,
                "hither: cannot write gone/who.svg: gone: No such file",
            ),
            (
                "place loop.trace --nodes 2 --heatmap who.svg --timeline ./who.svg",
                2,
                "hither: ./who.svg: named for two pictures",
            ),
            (
                "place loop.trace --nodes 2 --mesh moves.pdf",
                2,
                "error: invalid value 'moves.pdf' for '--mesh <FILE>': the name ends in none of \
                 .svg, .png",
            ),
        ],
    );
}

#[test]
fn a_sweep_without_placements_takes_those_of_place() {
    let lab = with_grep();
    let placements = |command: &str| -> Vec<String> {
        let document: Value = serde_json::from_str(lab.run(command).stdout()).expect(command);
        let rows = document.get("results").unwrap_or(&document).as_array();
        let name = |row: &Value| row["placement"].as_str().expect("a placement").to_owned();
        rows.expect("rows").iter().map(name).collect()
    };
    let swept = placements("hither sweep -t grep.hither --nodes 2 -s 20% --to json -q");
    assert_eq!(
        swept,
        placements("hither place grep.hither --nodes 2 -s 20% --json -q")
    );
    assert_eq!(swept.len(), 5);
}

#[test]
fn a_sweep_over_topologies_and_placements() {
    let lab = with_grep();
    lab.write("loop.trace", rounds(10, 3));
    lab.write(
        "sweep.toml",
        "nodes = [2, \"mesh:2x2\"]\nplacements = \
         [\"first-and-forever\", \"post-office{window=8}\"]\nsizes = [\"10%\", 50]\n\
         [[traces]]\npath = \"grep.hither\"\n\
         [[traces]]\npath = \"loop.trace\"\nnodes = []\nplacements = []\npolicies = \
         [\"lru\"]\nsizes = [5]\n",
    );
    assert_snapshot!(lab.run("hither sweep sweep.toml --nodes 2 --placement one-step -s 30 -p lru \
                              -t loop.trace --costs disk_ns=1000000,contention=false"), @"
    exit code: 0
    ----- stdout -----
    loop.trace: 30 references to 10 distinct blocks of 4.00 KiB

    2 nodes of 30 blocks (120.00 KiB) each, lru
      placement   local  remote    miss  hops     hit  access  migrations  replicas  moved     time
      one-step   66.7 %   0.0 %  33.3 %  0.00  448 ns  334 µs           0         0    0 B  10.0 ms

    ----- stderr -----
    ");
    let ran = lab.run("hither sweep sweep.toml -o out.json");
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "hither: 9 rows in out.json\n")
    );
    let rows: Value = serde_json::from_slice(&fs::read(lab.path("out.json")).unwrap()).unwrap();
    let of = |name: &str| -> Vec<String> {
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row[name].as_str().unwrap_or("-").to_owned())
            .collect()
    };
    assert_eq!(
        of("nodes"),
        [
            "2", "2", "2", "2", "mesh:2x2", "mesh:2x2", "mesh:2x2", "mesh:2x2", "-"
        ]
    );
    assert_eq!(
        of("size"),
        ["10%", "10%", "50", "50", "10%", "10%", "50", "50", "5"]
    );
    let (faf, pop) = ("first-and-forever", "post-office");
    assert_eq!(
        of("placement"),
        [faf, pop, faf, pop, faf, pop, faf, pop, "-"]
    );
    assert_eq!(of("policy"), ["lru"; 9]);
    assert_eq!(rows[2]["cache_blocks"], 100);
    assert!(
        rows[1]["placement_spec"]
            .as_str()
            .unwrap()
            .contains("window=8")
    );
    for row in &rows.as_array().unwrap()[..8] {
        for name in [
            "local_hit_ratio",
            "hops",
            "hit_latency_ns",
            "access_latency_ns",
            "modelled_time_ns",
        ] {
            assert!(row[name].as_f64().unwrap() > 0.0, "{name}: {row}");
        }
    }
    assert_eq!(rows[8]["modelled_time_ns"], Value::Null);
}

#[test]
fn options_replace_what_a_sweeps_file_says_one_by_one() {
    let lab = with_grep();
    lab.write(
        "sweep.toml",
        "nodes = [2]\nplacements = [\"one-step\"]\nwarm-up = \"10%\"\ncosts = \"disk_ns=7\"\nbind \
         = \"threads\"\n\
         [[traces]]\npath = \"grep.hither\"\n",
    );
    let row = |options: &str| -> Vec<String> {
        let ran = lab.run(&format!(
            "hither sweep sweep.toml --to json -q -s 20% {options}"
        ));
        let rows: Value = serde_json::from_str(ran.stdout()).expect(options);
        let names = ["nodes", "placement", "warm_up", "costs", "binding"];
        let text = |name| rows[0][name].as_str().unwrap_or("-").to_owned();
        names.map(text).to_vec()
    };
    assert_eq!(row(""), ["2", "one-step", "10%", "disk_ns=7", "threads"]);
    assert_eq!(
        row("--nodes 4"),
        ["4", "one-step", "10%", "disk_ns=7", "threads"]
    );
    assert_eq!(
        row("--placement post-office --warm-up 100 --bind processes"),
        ["2", "post-office", "100", "disk_ns=7", "processes"]
    );
    assert_eq!(
        row("--costs disk_ns=8"),
        ["2", "one-step", "10%", "disk_ns=8", "threads"]
    );
}

#[test]
fn a_sweep_of_placements_goes_on_where_it_was() {
    let lab = with_grep();
    let line = "hither sweep -t grep.hither --nodes 2,mesh:2x2 --placement \
                first-and-forever,one-step,always-migrate -s 10%,20%,40%";
    let whole = lab.run(&format!("{line} -q -o whole.csv"));
    assert_eq!(whole.code, 0, "{whole}");
    // Killed as soon as something is in its journal, or soon after.
    let mut started = lab.command("hither");
    started
        .args(line.split(' ').skip(1))
        .args(["-o", "part.csv", "--save-every", "1"]);
    let mut started = started.spawn().unwrap();
    let journal = lab.path("part.csv.journal");
    while started.try_wait().unwrap().is_none() {
        let lines = fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        if lines > 3 {
            break;
        }
    }
    started.kill().unwrap();
    started.wait().unwrap();
    let ran = lab.run(&format!("{line} -q -o part.csv --force"));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(fs::read(lab.path("part.csv")).unwrap() == fs::read(lab.path("whole.csv")).unwrap());
}

#[test]
fn advice_on_where_data_should_be() {
    let lab = with_grep();
    let ran = lab.run("hither advise grep.hither -q -s 20%");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(
        ran.stdout()
            .contains("\nNo placement that was simulated on 2 nodes")
            || ran
                .stdout()
                .contains("\nAnother placement would help: on 2 nodes"),
        "{ran}"
    );
    let document = lab.json(
        "hither advise grep.hither --nodes mesh:1x2,4 --placement \
                             first-and-forever,one-step --json",
    );
    assert_eq!(
        keys(&document),
        [
            "advice",
            "placement",
            "placements",
            "results",
            "sites",
            "trace"
        ]
    );
    let advice = document["placement"].as_array().unwrap();
    let nodes: Vec<_> = advice
        .iter()
        .map(|advice| advice["nodes"].as_str().unwrap())
        .collect();
    assert_eq!(nodes, ["mesh:1x2", "4"]);
    assert!(
        advice
            .iter()
            .all(|advice| advice["baseline"] == "first-and-forever")
    );
    assert_eq!(document["placements"].as_array().unwrap().len(), 4);
}
