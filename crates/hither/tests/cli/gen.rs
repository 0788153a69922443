//! `hither gen`.

use std::thread;
use std::time::Duration;

use insta::assert_snapshot;

use crate::Lab;

#[test]
fn a_loop_that_lru_keeps_nothing_of() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither gen 'loop{blocks=100}' -n 500 && hither sim trace.hither -s 50 -p lru,mru"), @"
    exit code: 0
    ----- stdout -----
    500 references to 100 distinct blocks of 4.00 KiB
      hit ratio  50 (200.00 KiB)
      lru                  0.0 %
      mru                 40.0 %

    ----- stderr -----
    hither: 500 references in trace.hither
    ");
    assert_eq!(lab.names(), ["trace.hither"]);
}

#[test]
fn parts_are_told_apart() {
    let lab = Lab::new();
    lab.run("hither gen -q 'nested{outer=20,inner=50}' 'loop{blocks=300,weight=2}' 'loop{blocks=7}' -n 20k -o mixed");
    let stat = &lab.json("hither stat mixed --json")["stats"];
    let names = |table: &str| {
        let rows = stat[table].as_array().unwrap().iter();
        let mut names: Vec<String> = rows
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let places = ["loop-1", "loop-2", "nested.inner", "nested.outer"];
    assert_eq!(names("by_object"), places);
    assert_eq!(names("by_site"), places);
    let advice = lab.json("hither advise mixed --json -s 10% -p pcc");
    let sites = advice["sites"].as_array().unwrap();
    let inner = sites
        .iter()
        .find(|site| site["label"] == "nested.inner")
        .unwrap();
    assert_eq!(inner["class"], "looping");
}

#[test]
fn the_seed_decides() {
    let lab = Lab::new();
    let ran = lab.run(
        "for seed in 1 1 2; do hither gen -q zipf -n 1000 --seed $seed -o z --force && sha256sum z/accesses.parquet; done",
    );
    let sums: Vec<&str> = ran.stdout().lines().collect();
    assert_eq!(sums.len(), 3, "{ran}");
    assert_eq!(sums[0], sums[1]);
    assert_ne!(sums[0], sums[2]);
}

#[test]
fn other_formats_hold_the_same_references() {
    let lab = Lab::new();
    let parts = "'zipf{blocks=500}' 'loop{blocks=300,writes=0.5}' -n 20k";
    for (format, name) in [
        ("hither", "t"),
        ("oracle-general", "t.bin"),
        ("csv", "t.csv"),
    ] {
        let ran = lab.run(&format!(
            "hither gen -q {parts} --format {format} -o {name}"
        ));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{format}");
    }
    assert_eq!(lab.names(), ["t", "t.bin", "t.csv"]);
    let misses = |name: &str| {
        let outcome = lab.json(&format!(
            "hither sim {name} -p lru,arc,opt -s 50,100 --json"
        ));
        let results = outcome["results"].as_array().unwrap().iter();
        let misses = results.map(|result| result["misses"].as_u64().unwrap());
        misses.collect::<Vec<u64>>()
    };
    let folder = misses("t");
    assert!(folder.iter().all(|&misses| misses > 800), "{folder:?}");
    assert_eq!(misses("t.bin"), folder);
    assert_eq!(misses("t.csv"), folder);
}

#[test]
fn a_format_that_is_not_there() {
    assert_snapshot!(Lab::new().run("hither gen zipf --format oracle"), @r#"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'oracle' for '--format <NAME>': unknown trace format "oracle" (known: csv, hither, oracle-general)

    For more information, try '--help'.
    "#);
}

#[test]
fn the_help_lists_every_generator() {
    assert_snapshot!(Lab::new().run("hither gen --help"), @"
    exit code: 0
    ----- stdout -----
    Make up a trace: zipf, scans, loops, shifting working sets, alone or mixed

    Usage: hither gen [OPTIONS] <GENERATOR>...

    Arguments:
      <GENERATOR>...
              What to generate, such as loop or 'zipf{blocks=1M,skew=0.9}'; several take turns

    Options:
      -n, --references <N>
              How many references, such as 500 or 10M
              
              [default: 1M]

      -q, --quiet
              Print no progress and no notes, only results and errors

          --seed <SEED>
              The same seed gives the same bytes
              
              [default: 1]

          --format <NAME>
              Format to write; `hither export --help` lists them
              
              [default: hither]

      -o, --output <PATH>
              The trace folder or file to write; - is standard output, for formats other than hither
              
              [default: trace.hither]

          --force
              Replace what is there already

      -h, --help
              Print help (see a summary with '-h')

    Generators:
      loop: the same blocks in the same order, again and again
        blocks=1000  the length of a pass (a whole number from 1 to 4294967295)
        jitter=0  shuffle each stretch of so many blocks anew in each pass; 0: the order is always the
        same (a whole number from 0 to 1048576)
      nested: two nested loops over two files: after each block of the outer one, all of the inner one
        outer=1000  the length of the outer loop (a whole number from 1 to 4294967295)
        inner=100  the length of the inner loop (a whole number from 1 to 4294967295)
        repeats=1  passes over the inner file after each block of the outer one (a whole number from 1
        to 4294967296)
      scan: each block once, in order
      shifting: a working set that moves on after each phase
        blocks=10000  the size of the working set (a whole number from 1 to 4294967295)
        phase=100000  references until the set moves (a whole number of at least 1)
        overlap=0.5  the share of the set that stays in it when it moves (a number from 0 to 1)
        skew=0  the exponent of Zipf's law within the set; which block is popular is drawn anew in each
        phase (a number from 0 to 20)
      uniform: independent references, each block as likely as any other
        blocks=10000  how many blocks there are (a whole number from 1 to 4294967295)
      zipf: independent references, the k-th most popular block in proportion to k^-skew
        blocks=100000  how many blocks there are (a whole number from 1 to 4294967295)
        skew=1  the exponent of Zipf's law; 0: all alike (a number from 0 to 20)
      All of them:
        weight=1  its share of the references, relative to the other parts' (a number from 0.000001 to
        1000000)
        burst=16  how many references it makes before another part may have its turn (a whole number
        from 1 to 4294967296)
        writes=0  the share of its references that are writes (a number from 0 to 1)

    Each part of a mixture is a process with one thread, files and call sites of its own, named for the
    generator.

    Examples:
      hither gen 'zipf{blocks=1M,skew=1.0}' -n 10M -o zipf.hither
      hither gen scan 'loop{burst=100}' --format oracle-general -o mixed.bin  for libCacheSim too
      hither gen 'loop{blocks=2000}' 'scan{weight=0.5}' -n 100k --seed 7   mixed 2 to 1
      hither gen 'nested{outer=500,inner=100}' 'zipf{weight=3,writes=0.2,burst=64}'

    ----- stderr -----
    ");
}

#[test]
fn nothing_to_generate() {
    assert_snapshot!(Lab::new().run("hither gen"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: the following required arguments were not provided:
      <GENERATOR>...

    Usage: hither gen <GENERATOR>...

    For more information, try '--help'.
    ");
}

#[test]
fn a_generator_that_is_not_there() {
    assert_snapshot!(Lab::new().run("hither gen zpif"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'zpif' for '<GENERATOR>...': unknown generator `zpif` (did you mean `zipf`?); the generators are loop, nested, scan, shifting, uniform, zipf

    For more information, try '--help'.
    ");
}

#[test]
fn a_parameter_that_is_not_there() {
    assert_snapshot!(Lab::new().run("hither gen 'zipf{alpha=1}'"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'zipf{alpha=1}' for '<GENERATOR>...': `zipf` has no parameter `alpha`; it has blocks, skew, weight, burst, writes

    For more information, try '--help'.
    ");
}

#[test]
fn no_blocks() {
    assert_snapshot!(Lab::new().run("hither gen 'zipf{blocks=0}'"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'zipf{blocks=0}' for '<GENERATOR>...': `zipf`: `blocks=0` is not allowed: blocks is a whole number from 1 to 4294967295

    For more information, try '--help'.
    ");
}

#[test]
fn no_references() {
    assert_snapshot!(Lab::new().run("hither gen zipf -n 0"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '0' for '--references <N>': a trace has at least one reference

    For more information, try '--help'.
    ");
}

#[test]
fn references_that_are_no_number() {
    assert_snapshot!(Lab::new().run("hither gen zipf -n 1.5M"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '1.5M' for '--references <N>': write a whole number, such as 5000, 100k or 10M

    For more information, try '--help'.
    ");
}

#[test]
fn a_trace_that_is_there_already() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither gen -q loop -n 10 && hither gen loop -n 10"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: trace.hither: already exists (--force replaces it, -o names another)
    ");
}

#[test]
fn a_folder_that_is_not_there() {
    assert_snapshot!(Lab::new().run("hither gen loop -n 10 -o no/where"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: no: No such file or directory (os error 2)
    ");
}

#[test]
fn a_stream_goes_to_standard_output_and_a_folder_does_not() {
    let lab = Lab::new();
    let line = "hither gen -q scan -n 2 --format csv -o -; hither gen -q scan -n 2 -o -";
    assert_snapshot!(lab.run(line), @"
    exit code: 2
    ----- stdout -----
    time,object,size,op,next_access_vtime,thread,node,count
    0,0,4096,read,-1,0,0,1
    1,1,4096,read,-1,0,0,1

    ----- stderr -----
    hither: hither is a folder and cannot go to standard output
    ");
    assert!(lab.names().is_empty());
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let lab = Lab::new();
    for signal in ["INT", "TERM"] {
        let mut command = lab.command("hither");
        let mut child = command
            .args(["gen", "-q", "scan", "-n", "4000M"])
            .spawn()
            .unwrap();
        while lab.names().is_empty() {
            assert_eq!(child.try_wait().unwrap(), None);
            thread::sleep(Duration::from_millis(5));
        }
        lab.run(&format!("kill -{signal} {}", child.id()));
        assert!(!child.wait().unwrap().success());
        assert!(lab.names().is_empty(), "{signal}: {:?}", lab.names());
    }
}
