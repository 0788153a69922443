//! Bad input, wherever it comes from: a message that says what is wrong and where, the right exit
//! code (1: failed, 2: wrong usage), nothing on stdout, and nothing half-written.

use std::fs;

use insta::assert_snapshot;

use crate::{Lab, rounds, text};
use hither_testing::skip::skip_on_this_machine;

#[test]
fn no_command() {
    assert_snapshot!(Lab::new().run("hither"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    Keep data near the code that uses it: record, simulate, advise, run, mount

    Usage: hither [OPTIONS] <COMMAND>

    Commands:
      advise    Say what would help a program: a policy, more cache, a placement
      cache     Load, keep or drop files of a mount, and show what its cache does
      cluster   Make a cluster's certificates, show its members, replay decisions
      demo      Show what steering gains on this machine, in under a minute
      doctor    Show what this machine can do, what is lost, and how to get it
      export    Write a trace for other tools, such as libCacheSim
      gen       Generate a trace of patterns (zipf, scans, loops) or of programs
      import    Convert a trace in another format to a trace folder
      mount     Show a bucket or slow shared storage as a fast directory
      node      Run a member of a cluster cache, or a lone node, from a file
      place     Simulate placements of pages or file blocks on several nodes
      policies  List the policies and placements, their parameters and sources
      record    Record the file accesses of a program and of what it starts
      recover   Make a trace of what a recording has left that was killed
      report    Write an HTML page about a trace: verdict, curves, sites, files
      run       Run a program and steer its page cache, files or memory
      sim       Simulate caches of given policies and sizes on a trace
      stat      Show what is in a trace: requests, files, call sites, sharing
      sweep     Simulate many policies, sizes and traces; resumes if interrupted
      top       Watch runs, mounts and nodes: caches, local share, moves
      topo      Draw a topology: this machine, a mesh, a machine of the papers
      unmount   End a mount of `hither mount`
      help      Print this message or the help of the given subcommand(s)

    Options:
      -q, --quiet    Print only results and errors: no progress and no notes
      -h, --help     Print help
      -V, --version  Print version

    Examples:
      hither demo                          what steering gains, in a minute
      hither advise -- make                record a program and say what would help
      hither record -o make.hither -- make only record it
      hither sim make.hither -p lru,opt    simulate caches on a trace
      hither run -- make                   run a program with what can help
    ");
}

/// What an earlier version called otherwise: the whole new line.
#[test]
fn a_moved_command_says_its_new_line() {
    let lab = Lab::new();
    for (line, now) in [
        ("warm -j 3 '/mnt/a b'", "cache warm -j 3 '/mnt/a b'"),
        ("pin --remove /mnt", "cache pin --remove /mnt"),
        ("evict /mnt", "cache evict /mnt"),
        ("node --init-ca ca --cluster lab", "cluster ca --out ca lab"),
        ("node --issue a --ca ca", "cluster issue a --ca ca"),
        ("node --config n.toml --check", "node n.toml --check"),
        ("cluster status --socket /run/1", "cluster status /run/1"),
        ("topo --cluster", "cluster status --distances"),
        ("topo --live --calibrate", "doctor --calibrate"),
        (
            "sim a --nodes 2 --bind trace",
            "place a --nodes 2 --bind trace",
        ),
    ] {
        let ran = lab.run(&format!("hither {line}"));
        assert_eq!((ran.code, ran.stdout()), (2, ""), "{line}: {ran}");
        let tip = format!("\n  tip: it is now: hither {now}\n");
        assert!(ran.stderr.contains(&tip), "{line}: {ran}");
    }
}

#[test]
fn an_unknown_command() {
    assert_snapshot!(Lab::new().run("hither simulate"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: unrecognized subcommand 'simulate'

      tip: some similar subcommands exist: 'stat', 'cluster', 'sim'

    Usage: hither [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn a_missing_file() {
    assert_snapshot!(Lab::new().run("hither stat missing.hither"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: missing.hither: No such file or directory (os error 2)
    ");
}

#[test]
fn a_folder_that_is_no_trace() {
    let lab = Lab::new();
    fs::create_dir(lab.path("folder")).unwrap();
    assert_snapshot!(lab.run("hither stat folder"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: folder: not a trace folder: it holds no accesses.parquet
    ");
}

#[test]
fn a_file_of_something_else() {
    let lab = Lab::new();
    lab.write("letter.txt", "Dear reader,\n");
    assert_snapshot!(lab.run("hither sim letter.txt"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: letter.txt: not in a format that its content tells (address, alibaba, arc, blkparse,
      ... darshan-dxt, fio-iolog, hither, ibm-cos, lcs, libcachesim-csv, lirs, mooncake, msr,
      ... oracle-general, page-counts, perf-trace, spc, strace, systor, twitter, vscsi); --format
      ... names the others
    ");
}

#[test]
fn a_recording_that_was_cut() {
    let lab = Lab::with_recording();
    let sound = fs::read(lab.path("cat.hither/accesses.parquet")).unwrap();
    let end = sound.len();
    for cut in [0, 1, 4, end / 4, end / 2, end * 3 / 4, end - 8, end - 1] {
        lab.write("cat.hither/accesses.parquet", &sound[..cut]);
        for command in ["stat --json", "sim -p lru --json", "advise --json"] {
            let ran = lab.run(&format!("hither {command} cat.hither"));
            assert_eq!((ran.code, ran.stdout()), (1, ""), "{cut}: {ran}");
            let named = "hither: cat.hither/accesses.parquet: ";
            assert!(ran.stderr.starts_with(named), "{cut}: {ran}");
            assert_eq!(ran.stderr.lines().count(), 1, "{cut}: {ran}");
        }
    }
    assert_snapshot!(lab.run("hither stat cat.hither"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: cat.hither/accesses.parquet: not a readable Parquet file: Parquet error: Invalid Parquet
      ... file. Corrupt footer
    ");
    fs::remove_file(lab.path("cat.hither/sites.parquet")).unwrap();
    assert_snapshot!(lab.run("hither stat cat.hither"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: cat.hither/sites.parquet: No such file or directory (os error 2)
    ");
}

#[test]
fn a_line_of_junk() {
    let lab = Lab::new();
    lab.write("junk.trace", "1\n2\nthree\n4\n");
    assert_snapshot!(lab.run("hither sim junk.trace"), @r#"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: junk.trace:3: not a decimal number: "three"
    "#);
    assert_snapshot!(lab.run("hither import -o t.hither junk.trace"), @r#"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: junk.trace:3: not a decimal number: "three"
    "#);
    assert_eq!(lab.names(), ["junk.trace"]);
}

#[test]
fn an_unknown_format() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither stat --format lisr loop.trace"), @r#"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'lisr' for '--format <NAME>': unknown trace format "lisr" (known: address,
      ... alibaba, arc, blkparse, darshan-dxt, fio-iolog, hither, ibm-cos, lcs, libcachesim-csv,
      ... libcachesim-txt, lirs, mooncake, msr, oracle-general, page-counts, perf-trace, spc,
      ... strace, systor, tencent, twitter, u32be, u32le, u64be, u64le, vscsi, vscsi-requests,
      ... webcachesim, columns{key=N,...})

    For more information, try '--help'.
    "#);
    assert_snapshot!(lab.run("hither import --format lisr -o t.hither loop.trace"), @r#"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'lisr' for '--format <NAME>': unknown trace format "lisr" (known: address,
      ... alibaba, arc, blkparse, darshan-dxt, fio-iolog, hither, ibm-cos, lcs, libcachesim-csv,
      ... libcachesim-txt, lirs, mooncake, msr, oracle-general, page-counts, perf-trace, spc,
      ... strace, systor, tencent, twitter, u32be, u32le, u64be, u64le, vscsi, vscsi-requests,
      ... webcachesim, columns{key=N,...})

    For more information, try '--help'.
    "#);
    assert_eq!(lab.names(), ["loop.trace"]);
}

#[test]
fn a_policy_that_is_not_there() {
    assert_snapshot!(Lab::with_loop().run("hither sim loop.trace -p lru,acr"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'lru,acr' for '--policy <P[,P]>': unknown policy `acr` (did you mean
      ... `arc`?); the policies are [POLICIES]

    For more information, try '--help'.
    ");
}

#[test]
fn a_parameter_that_is_not_there() {
    assert_snapshot!(Lab::with_loop().run("hither sim loop.trace -p 'ubm{treshold=5}'"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'ubm{treshold=5}' for '--policy <P[,P]>': `ubm` has no parameter `treshold`
      ... (did you mean `threshold`?); it has threshold, expire, steady, periods, period_of, gain,
      ... sequential, mapped, other, as

    For more information, try '--help'.
    ");
}

#[test]
fn a_parameter_out_of_range() {
    assert_snapshot!(Lab::with_loop().run("hither sim loop.trace -p 'pcc{sample=0}'"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'pcc{sample=0}' for '--policy <P[,P]>': `pcc`: `sample=0` is not allowed:
      ... sample is a whole number from 1 to 1048576

    For more information, try '--help'.
    ");
}

#[test]
fn a_cache_of_nothing() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither sim loop.trace -s 0"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: a cache of size 0 holds no block (zero blocks); the smallest cache is one block
    ");
    assert_snapshot!(lab.run("hither sim loop.trace -s 5,4095B"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: a cache of size 4095B holds no block (a block is 4096 bytes); the smallest cache is one
      ... block
    ");
    assert_snapshot!(lab.run("hither advise loop.trace -s 1%"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: pcc is left out: this trace has no call sites
    hither: a cache of size 1% holds no block (the trace has 10 distinct blocks); the smallest cache
      ... is one block
    ");
}

#[test]
fn a_size_that_is_none() {
    assert_snapshot!(Lab::with_loop().run("hither sim loop.trace -s 5,ten"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'ten' for '--size <S[,S]>': `ten` is not a size: write blocks (512), bytes
      ... (64MiB) or a part of the distinct blocks (10%)

    For more information, try '--help'.
    ");
}

#[test]
fn a_policy_that_needs_what_the_trace_lacks() {
    assert_snapshot!(Lab::with_loop().run("hither sim loop.trace -p lru,pcc -s 5"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: policy `pcc` needs call sites, which this trace does not have; `hither record` makes
      ... traces that have them, and `ubm` does without
    ");
}

#[test]
fn a_file_of_call_sites_that_is_none() {
    let lab = Lab::with_recording();
    lab.write("known.json", "{\"format\": 1, \"sites\": [");
    assert_snapshot!(lab.run("hither sim cat.hither -p pcc --profile known.json"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: known.json: not a file of call sites that hither wrote: invalid type: sequence, expected
      ... a map at line 1 column 23
    ");
    lab.write("known.json", "{\"format\": 9, \"sites\": {}}");
    assert_snapshot!(lab.run("hither sim cat.hither -p pcc --profile known.json"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: known.json: format 9; this version of hither reads format 1
    ");
    assert_eq!(
        fs::read(lab.path("known.json")).unwrap(),
        b"{\"format\": 9, \"sites\": {}}"
    );
    assert_snapshot!(lab.run("hither sim cat.hither -p pcc --profile missing/known.json"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: missing/known.json: No such file or directory (os error 2)
    ");
    assert_eq!(lab.names(), ["cat.hither", "data", "known.json"]);
}

#[test]
fn a_program_that_does_not_exist() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither record -- ./no-such-program"), @"
    exit code: 127
    ----- stdout -----

    ----- stderr -----
    hither: ./no-such-program: program not found
    ");
    assert_snapshot!(lab.run("PATH=${PATH%%:*} hither advise -- no-such-program -x"), @"
    exit code: 127
    ----- stdout -----

    ----- stderr -----
    hither: no-such-program: program not found
    ");
    assert!(lab.names().is_empty(), "{:?}", lab.names());
}

#[test]
fn a_program_that_is_not_executable() {
    let lab = Lab::new();
    lab.write("notes", "echo hello\n");
    assert_snapshot!(lab.run("hither record -- ./notes"), @"
    exit code: 126
    ----- stdout -----

    ----- stderr -----
    hither: ./notes: Permission denied (os error 13)
    ");
    assert_eq!(lab.names(), ["notes"]);
}

#[test]
fn an_output_that_exists_is_not_touched_and_the_program_not_started() {
    let lab = Lab::new();
    lab.write("mine", "precious");
    assert_snapshot!(lab.run("hither record -o mine -- touch started"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: mine: already exists (--force replaces it, -o names another)
    ");
    assert_snapshot!(lab.run("hither record -o mine --force -- touch started"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: mine: not a trace folder: it is not a folder
    ");
    fs::create_dir(lab.path("folder")).unwrap();
    lab.write("folder/notes", "precious");
    assert_snapshot!(lab.run("hither record -o folder --force -- touch started"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: folder: not a trace folder: it holds notes
    ");
    assert_eq!(lab.names(), ["folder", "mine"]);
    assert_eq!(fs::read(lab.path("folder/notes")).unwrap(), b"precious");
}

#[test]
fn an_output_whose_folder_is_missing() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither record -o missing/t.hither -- touch started"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: cannot create missing/t.hither in missing: No such file or directory (os error 2) (-o
      ... PATH writes elsewhere)
    ");
    assert!(lab.names().is_empty(), "{:?}", lab.names());
}

/// Makes the folder `ro` read-only, in a namespace of its own. It takes root.
const READ_ONLY: &str = "unshare --mount sh -c 'mount --bind ro ro && \
                         mount -o remount,bind,ro ro && cd ro &&";

/// Each message says what cannot be created, where, and what to do.
#[test]
fn a_folder_that_cannot_be_written() {
    let lab = Lab::with_loop();
    fs::create_dir(lab.path("ro")).unwrap();
    if lab.run(&format!("{READ_ONLY} true'")).code != 0 {
        skip_on_this_machine("cannot mount a folder read-only");
        return;
    }
    let script = "
        hither record -- touch ../started
        hither gen zipf -n 10
        hither import ../loop.trace
        hither export ../loop.trace -o t.csv
        hither report -q ../loop.trace -o r.html
        hither topo -q mesh:2x2 -o t.svg
        hither sim -q ../loop.trace --policy lru --curve c.csv
        hither run -q --page-cache --cache 8MiB --log l.jsonl -- touch ../started
        TMPDIR=. hither record -o ../t.hither -- touch ../started
        TMPDIR=. hither advise -- touch ../started 2>&1 | sed s/hither-advise-....../hither-X/ >&2
        ls -A";
    assert_snapshot!(lab.run(&format!("{READ_ONLY}{script}'")), @r#"
    exit code: 0
    ----- stdout -----

    ----- stderr -----
    hither: cannot create trace.hither in the current folder: Read-only file system (os error 30)
      ... (-o PATH writes elsewhere)
    hither: cannot create trace.hither in the current folder: Read-only file system (os error 30)
      ... (-o PATH writes elsewhere)
    hither: cannot create trace.hither in the current folder: Read-only file system (os error 30)
      ... (-o PATH writes elsewhere)
    hither: cannot create t.csv in the current folder: Read-only file system (os error 30) (-o PATH
      ... writes elsewhere)
    hither: cannot write r.html: Read-only file system (os error 30)
    hither: cannot write t.svg: Read-only file system (os error 30)
    hither: cannot write c.csv: Read-only file system (os error 30)
    hither: cannot create the log l.jsonl: Read-only file system (os error 30) (--log names another
      ... file)
    hither: cannot put the preload library into ./hither-0 (TMPDIR names another place): Read-only
      ... file system (os error 30)
    hither: cannot create a folder for the recording (TMPDIR names another place): Read-only file
      ... system (os error 30) at path "[DIR]/ro/./hither-X"
    "#);
    assert_eq!(lab.names(), ["loop.trace", "ro"]);
}

/// A mount of its own in a namespace of its own, gone with the shell. It takes root.
const SMALL_DISK: &str = "unshare --mount sh -c 'mount -t tmpfs -o size=64k tmpfs disk &&";

#[test]
fn a_disk_that_fills_up_while_recording() {
    let lab = Lab::new();
    fs::create_dir(lab.path("disk")).unwrap();
    if lab.run(&format!("{SMALL_DISK} true'")).code != 0 {
        skip_on_this_machine("cannot mount a tmpfs");
        return;
    }
    lab.write("data", text(40_000));
    // A byte a call: over a million accesses, so that the disk is full long before the program
    // ends.
    let script = "
        hither record -q -o disk/t.hither -- dd if=data of=copy bs=1 status=none
        echo exit code $?
        cmp data copy && echo the copy is right; ls -A disk
        hither stat disk/t.hither | grep -o \"^seen.*cut after\\|^command.*\"";
    assert_snapshot!(lab.run(&format!("{SMALL_DISK}{script}'")), @"
    exit code: 0
    ----- stdout -----
    exit code 0
    the copy is right
    t.hither
    seen          cut after
    command       dd if=data of=copy bs=1 status=none

    ----- stderr -----
    hither: warning: disk/t.hither is cut: the disk was full; what the program did later is not in
      ... it
    ");
}

#[test]
fn standard_output_that_cannot_be_written() {
    let lab = Lab::with_loop();
    for command in ["policies", "stat loop.trace", "sim loop.trace --json"] {
        let ran = lab.run(&format!("hither {command} >/dev/full"));
        assert_eq!(ran.code, 1, "{ran}");
        assert_eq!(
            ran.stderr,
            "hither: standard output: No space left on device (os error 28)\n"
        );
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let lab = Lab::new();
    lab.write("loop.trace", rounds(100, 5));
    for arguments in [
        "policies",
        "policies --json",
        "stat loop.trace",
        "sim loop.trace --json",
        "advise -q loop.trace",
        "--help",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = lab.command("hither");
        command.args(arguments.split(' ')).stdout(writer);
        let ran = crate::Ran::new(command.output().unwrap(), lab.folder.path());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments}");
    }
}
