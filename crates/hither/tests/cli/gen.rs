//! `hither gen`.

use std::thread;
use std::time::Duration;

use hither_generate::{GENERATORS, PROGRAMS};
use insta::assert_snapshot;

use crate::Lab;

#[test]
fn a_loop_that_lru_keeps_nothing_of() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither gen 'loop{blocks=100}' -n 500 && hither sim trace.hither -s \
                              50 -p lru,mru"), @"
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
    lab.run(
        "hither gen -q 'nested{outer=20,inner=50}' 'loop{blocks=300,weight=2}' \
             'loop{blocks=7}' -n 20k -o mixed",
    );
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
        "for seed in 1 1 2; do hither gen -q zipf -n 1000 --seed $seed -o z --force && sha256sum \
         z/accesses.parquet; done",
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
    error: invalid value 'oracle' for '--format <NAME>': unknown trace format "oracle" (known: csv,
      ... hither, oracle-general)

    For more information, try '--help'.
    "#);
}

#[test]
fn the_help_lists_every_pattern_and_every_program() {
    let help = Lab::new().run("hither gen --help");
    // In a line of its own each, however long it is.
    let words = help
        .stdout()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let patterns = GENERATORS
        .iter()
        .map(|entry| (entry.name, entry.summary, entry.params));
    let programs = PROGRAMS
        .iter()
        .map(|entry| (entry.name, entry.summary, entry.params));
    for (name, summary, params) in patterns.chain(programs) {
        assert!(words.contains(&format!("{name}: {summary}")), "{name}");
        for param in params {
            let (default, allowed) = (param.kind.default(), param.kind.allowed());
            let line = format!("{}={default} {} ({allowed})", param.name, param.doc);
            assert!(words.contains(&line), "{name}: {line}");
        }
    }
    let usage = help.stdout().split("Patterns:").next().unwrap();
    let usage: Vec<&str> = usage.lines().map(str::trim_end).collect();
    let usage = usage.join("\n");
    assert_snapshot!(usage, @"
    Generate a trace of patterns (zipf, scans, loops) or of programs

    Usage: hither gen [OPTIONS] <GENERATOR>...

    Arguments:
      <GENERATOR>...
              A pattern or program, such as loop or 'zipf{skew=0.9}'

              Several patterns take turns, several programs run at the same time, or in --queues.

    Options:
      -n, --references <N>
              Number of references of patterns, such as 500 or 10M [default: 1M]

      -q, --quiet
              Print only results and errors: no progress and no notes

          --seed <SEED>
              Seed of the random numbers; the same seed gives the same bytes

              [default: 1]

      -h, --help
              Print help (see a summary with '-h')

    Programs:
          --threads <N>
              Threads of each program [default: the program's]

          --nodes <N>
              Nodes of the machine that programs run on [default: one a thread]

          --migrate-every <N>
              Move the threads of programs to other nodes every N iterations [default: never]

              A program without iterations moves a thread after N of its requests.

          --queues <N>
              Run the programs in N queues [default: all at once]

              Programs are dealt to the queues in turn, as jobs to processors, and those of a queue
              run one after another.

    Output:
          --format <NAME>
              Format to write; `hither export --help` lists them

              [default: hither]

      -o, --output <PATH>
              The trace folder or file to write; - is standard output, for formats other than hither

              [default: trace.hither]

          --force
              Replace an existing file or folder
    ");
}

#[test]
fn a_program_has_processes_threads_nodes_and_a_clock() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither gen 'parallel-grep{runs=6,files=20,size_mib=1}' --threads 2 \
                              -o grep && hither stat grep --top 2 | sed '/^LRU/,/first use/d'"), @"
    exit code: 0
    ----- stdout -----
    command       hither gen parallel-grep{runs=6,files=20,size_mib=1,read_kib=32} --threads 2
      ... --seed 1
    references    1,596 to 266 distinct blocks of 4.00 KiB (1.04 MiB)
    requests      270 in 0.01 s, 55.6 % sequential
    bytes         6.00 MiB read, 0 B written, 0 B of these inside the kernel; 0 B mapped
    made by       1 call site in 6 threads of 6 processes on 2 nodes

    Sharing: blocks, and the accesses to them, by how many use them
               blocks of one   of two  of more  accesses to those of one   of two  of more
      thread           0.0 %    0.0 %  100.0 %                     0.0 %    0.0 %  100.0 %
      process          0.0 %    0.0 %  100.0 %                     0.0 %    0.0 %  100.0 %
      node             0.0 %  100.0 %    0.0 %                     0.0 %  100.0 %    0.0 %


        share  references  blocks      read  written  call site
      100.0 %       1,596     266  6.00 MiB      0 B  safe_read

       share  references  blocks        read  written  file
      45.9 %         732     122    2.85 MiB      0 B  /etc/d00/f0014.conf
      10.9 %         174      29  679.29 KiB      0 B  /etc/d00/f0018.conf
      ... 18 more (--top)

    ----- stderr -----
    hither: 270 rows in grep
    ");
    assert_eq!(lab.names(), ["grep"]);
    let of_nodes = |flags: &str| {
        lab.run(&format!(
            "hither gen -q iozone{{size_mib=1}} --force -o t {flags}"
        ));
        lab.json("hither stat t --json")["stats"]["nodes"].clone()
    };
    assert_eq!(of_nodes(""), 4);
    assert_eq!(of_nodes("--threads 3"), 3);
    assert_eq!(of_nodes("--threads 3 --nodes 2 --migrate-every 10"), 2);
}

#[test]
fn what_applications_share_is_in_the_statistics() {
    let lab = Lab::new();
    lab.run("hither gen -q 'shared-files{like=oltp,blocks=5000}' -o oltp");
    assert_snapshot!(lab.run("hither stat oltp --top 0 | sed -n '/^Sharing/,/^$/p'"), @"
    exit code: 0
    ----- stdout -----
    Sharing: blocks, and the accesses to them, by how many use them
              blocks of one  of two  of more  accesses to those of one  of two  of more
      thread         76.0 %   3.0 %   21.0 %                    28.1 %   1.3 %   70.6 %
      node           76.0 %   3.0 %   21.0 %                    28.1 %   1.3 %   70.6 %


    ----- stderr -----

    ");
}

#[test]
fn programs_in_other_formats_hold_the_same_references() {
    let lab = Lab::new();
    let program = "'web-server{requests=5,size_mib=1,files=20,files_mib=1}' --seed 3";
    for (format, name) in [
        ("hither", "t"),
        ("oracle-general", "t.bin"),
        ("csv", "t.csv"),
    ] {
        let ran = lab.run(&format!(
            "hither gen -q {program} --format {format} -o {name}"
        ));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{format}");
    }
    let results = |name: &str| {
        let outcome = lab.json(&format!("hither sim {name} -p lru,arc -s 50,300 --json"));
        let results = outcome["results"].as_array().unwrap().iter();
        let counts = results.map(|result| result["misses"].as_u64().unwrap());
        counts.collect::<Vec<u64>>()
    };
    let folder = results("t");
    assert!(folder.iter().all(|&misses| misses > 100), "{folder:?}");
    assert_eq!(results("t.bin"), folder);
    assert_eq!(results("t.csv"), folder);
    let first = lab.run("head -2 t.csv | tail -1");
    assert_eq!(first.stdout().split(',').count(), 8);
}

#[test]
fn a_program_over_memory_is_a_trace_of_its_misses() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither gen 'stencil{points=48,iterations=3,l2_kib=32}' --threads 4 \
                              --nodes 2 -o swim && hither stat swim --top 2 | sed '/^LRU/,/first \
                              use/d'"), @"
    exit code: 0
    ----- stdout -----
    command       hither gen stencil{points=48,iterations=3,serial_init=0,l1_ways=4,l2_kib=32,
      ... slice_ns=20000} --threads 4 --nodes 2 --seed 1
    references    2,037 to 70 distinct pages of 4.00 KiB (280.00 KiB)
    accesses      25,130 to memory in 0.00 s: 15,223 loads, 9,907 stores
    marks         3 iterations, 11 parallel constructs
    made by       5 call sites in 4 threads of 1 process on 2 nodes

    Sharing: pages, and the accesses to them, by how many use them
              pages of one  of two  of more  accesses to those of one  of two  of more
      thread        25.7 %  74.3 %    0.0 %                    17.8 %  82.2 %    0.0 %
      node          65.7 %  34.3 %    0.0 %                    62.5 %  37.5 %    0.0 %


       share  references  blocks  loads  stores  call site
      41.2 %         840      50  5,596   2,592  stencil::calc2
      20.2 %         412      35  1,833   3,283  stencil::calc1
      ... 3 more (--top)

      share  references  blocks  loads  stores  file or region
      8.7 %         177       5    792   1,110  stencil.z
      8.5 %         174       5    744   1,127  stencil.cu
      ... 12 more (--top)

    ----- stderr -----
    hither: 2,051 rows in swim
    ");
    assert_snapshot!(lab.run("hither gen cfd --threads 65 -o cfd"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: cfd has at most 64 threads
    ");
}

#[test]
fn patterns_and_programs_are_told_apart() {
    let lab = Lab::new();
    for line in [
        "hither gen zipf parallel-grep",
        "hither gen parallel-grep -n 5000",
        "hither gen zipf --threads 4",
        "hither gen zipf scan --nodes 4",
        "hither gen loop --migrate-every 4",
    ] {
        let ran = lab.run(line);
        assert_eq!((ran.code, ran.stdout()), (2, ""), "{line}");
        lab.run(&format!("({line}) 2>>messages"));
    }
    assert_snapshot!(lab.run("cat messages"), @"
    exit code: 0
    ----- stdout -----
    hither: zipf is a pattern without end and parallel-grep a program with a clock: they cannot be
      ... mixed
    hither: parallel-grep is a program, whose length goes by its parameters: a number of references
      ... is for patterns
    hither: zipf is a pattern of one thread: threads are for programs
    hither: zipf is a pattern of one thread: nodes are for programs
    hither: loop is a pattern of one thread: migrations are for programs

    ----- stderr -----
    ");
    assert_eq!(lab.names(), ["messages"]);
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
    error: invalid value 'zpif' for '<GENERATOR>...': unknown generator `zpif` (did you mean
      ... `zipf`?); the patterns are loop, nested, scan, shifting, uniform, zipf, and the programs
      ... [PROGRAMS]

    For more information, try '--help'.
    ");
}

#[test]
fn a_parameter_that_is_not_there() {
    assert_snapshot!(Lab::new().run("hither gen 'zipf{alpha=1}'"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'zipf{alpha=1}' for '<GENERATOR>...': `zipf` has no parameter `alpha`; it
      ... has blocks, skew, weight, burst, writes

    For more information, try '--help'.
    ");
}

#[test]
fn no_blocks() {
    assert_snapshot!(Lab::new().run("hither gen 'zipf{blocks=0}'"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'zipf{blocks=0}' for '<GENERATOR>...': `zipf`: `blocks=0` is not allowed:
      ... blocks is a whole number from 1 to 4294967295

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
    error: invalid value '1.5M' for '--references <N>': write a whole number, such as 5000, 100k or
      ... 10M

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
    hither: cannot create no/where in no: No such file or directory (os error 2) (-o PATH writes
      ... elsewhere)
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
    let pattern: &[&str] = &["scan", "-n", "4000M"];
    let program: &[&str] = &["shared-files{reuse=100000}"];
    for (args, signal) in [(pattern, "INT"), (pattern, "TERM"), (program, "INT")] {
        let mut command = lab.command("hither");
        let mut child = command.args(["gen", "-q"]).args(args).spawn().unwrap();
        while lab.names().is_empty() {
            assert_eq!(child.try_wait().unwrap(), None);
            thread::sleep(Duration::from_millis(5));
        }
        lab.run(&format!("kill -{signal} {}", child.id()));
        assert!(!child.wait().unwrap().success());
        assert!(lab.names().is_empty(), "{signal}: {:?}", lab.names());
    }
}
