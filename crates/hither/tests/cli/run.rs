//! `hither run`: what the program sees of it (nothing), and what it says. Runs that place pages are
//! dry, for most machines have one node.

use std::fs;
use std::thread;
use std::time::Duration;

use insta::assert_snapshot;
use serde_json::Value;

use crate::{Lab, text};

#[test]
fn exit_code_and_output_pass_through() {
    let lab = Lab::new();
    let ran = lab
        .run("hither run --pages cache-aware --dry-run -- sh -c 'echo out; echo err >&2; exit 3'");
    assert_eq!((ran.code, ran.stdout()), (3, "out\n"));
    let said = ran.redacted(&ran.stderr);
    assert!(
        said.starts_with("err\nhither: [REGIONS]\nhither: a dry run: nothing was bound or moved\n"),
        "{said}"
    );
    assert_eq!(lab.names(), [""; 0]);
    for (signal, code) in [("KILL", 137), ("TERM", 143)] {
        let ran = lab.run(&format!(
            "hither run -q --pages cache-aware --dry-run -- sh -c 'kill -{signal} $$'"
        ));
        assert_eq!((ran.code, ran.stderr.as_str()), (code, ""), "{ran}");
    }
}

#[test]
fn what_comes_of_it_is_json_on_any_machine() {
    let lab = Lab::new();
    for options in ["--pages upm", "--pages upm --dry-run", "--place-files upm"] {
        let ran = lab.run(&format!("hither run {options} --json -- sh -c 'exit 3'"));
        assert_eq!(ran.code, 3, "{ran}");
        let said: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert!(said.is_object(), "{options}: {said}");
    }
}

#[test]
fn few_descriptors_are_enough_to_count() {
    let lab = Lab::new();
    let answer = |line: &str| {
        let ran = lab.run(line);
        assert_eq!(ran.code, 0, "{ran}");
        let told = ran.stdout().lines();
        let mut told = told.filter_map(|line| line.trim().strip_prefix("write-protect"));
        let told = told.next().expect("an answer").trim();
        // What it costs differs each time.
        told.split(':').next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        answer("sh -c 'ulimit -n 128; hither topo --live'"),
        answer("hither topo --live")
    );
}

#[test]
fn programs_that_cannot_be_seen_are_told_of() {
    let lab = Lab::new();
    lab.write("a.c", "int main(void) { return 7; }");
    let compiled = lab.run("gcc -static -o fixed a.c && gcc -o plain a.c");
    assert_eq!(compiled.code, 0, "{compiled}");
    for options in [
        "--pages upm --dry-run",
        "--files --cache 64MiB",
        "--replicas",
    ] {
        let fixed = lab.run(&format!("hither run {options} -- ./fixed"));
        assert_eq!(fixed.code, 7, "{fixed}");
        assert!(
            fixed.stderr.contains("hither: ./fixed is left as it is, but for programs that it starts: statically linked\n"),
            "{fixed}"
        );
        let plain = lab.run(&format!("hither run {options} -- ./plain"));
        assert!(
            plain.code == 7 && !plain.stderr.contains("left as it is"),
            "{plain}"
        );
    }
}

#[test]
fn programs_print_the_same_bytes() {
    let lab = Lab::new();
    lab.write("data", text(20_000));
    for line in [
        "sort -r data",
        "sh -c 'cat data | sort | head -100; wc -c <data'",
        "grep -n 0042 data",
    ] {
        let plain = lab.run(line);
        let placed = lab.run(&format!(
            "hither run -q --pages cache-aware --dry-run --region-min 64KiB -- {line}"
        ));
        assert!(!plain.stdout.is_empty(), "{line}");
        assert!(plain.stdout == placed.stdout, "{line}: other output");
        assert_eq!(
            (plain.code, plain.stderr),
            (placed.code, placed.stderr),
            "{line}"
        );
    }
}

#[test]
fn policies_that_cannot_place_a_running_program_are_refused() {
    let lab = Lab::new();
    let refused = |policy: &str| {
        let ran = lab.run(&format!("hither run --pages '{policy}' -- true"));
        assert_eq!(ran.code, 2, "{ran}");
        ran.stderr
    };
    let files = refused("post-office");
    assert!(
        files.contains("places blocks of files; placements of memory are"),
        "{files}"
    );
    let later = refused("autonuma");
    assert!(
        later.contains("cannot follow a running program; cache-aware, first-touch, upm can"),
        "{later}"
    );
    assert!(later.contains("cache-aware"), "{later}");
    let inner = refused("upm{initial=autonuma}");
    assert!(inner.contains("autonuma"), "{inner}");
    let two = refused("upm,cache-aware");
    assert!(two.contains("as in cache-aware,upm"), "{two}");
    let replay = refused("upm{replay=5}");
    assert!(
        replay.contains("replay is not for a running program"),
        "{replay}"
    );
    let unknown = refused("cache-awre");
    assert!(
        unknown.contains("(did you mean `cache-aware`?); cache-aware, first-touch, upm can follow"),
        "{unknown}"
    );
    let parameter = refused("cache-aware{limits=1}");
    assert!(parameter.contains("limit"), "{parameter}");
}

#[test]
fn bad_usage_is_told_before_the_program_starts() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run --pages cache-aware --region-min 100 -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '100' for '--region-min <BYTES>': an allocation of less than a page (4KiB) has none to place

    For more information, try '--help'.
    ");
    lab.write("junk", "junk");
    let ran = lab.run("hither run --pages cache-aware --sites junk -- touch started");
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("junk: not a file of call sites"),
        "{ran}"
    );
    let ran = lab.run("hither run --pages upm --apply none -- touch started");
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("none: No such file"), "{ran}");
    let ran = lab.run("hither run --pages cache-aware --dry-run --log none/log -- touch started");
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("none/log"), "{ran}");
    assert_snapshot!(lab.run("hither run --pages cache-aware --dry-run -- ./no-such-program"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: ./no-such-program: program not found
    ");
    assert_eq!(lab.names(), ["junk"]);
}

/// A region that is filled from its start to its end, twice over: not before the agent, which may
/// have to wait for a processor, has seen it.
const STREAM: &str = "import time; x = bytearray(8 << 20); time.sleep(0.5); x[:] = bytes(8 << 20)";

#[test]
fn what_is_learnt_about_call_sites_is_kept() {
    let lab = Lab::new();
    let line = format!(
        "hither run --pages cache-aware --dry-run --sites sites --log log -- python3 -c '{STREAM}'"
    );
    let ran = lab.run(&line);
    assert_eq!(ran.code, 0, "{ran}");
    if ran.stderr.contains("were not watched") {
        println!("skipped: {}", ran.stderr);
        return;
    }
    let learnt = fs::read_to_string(lab.path("sites")).unwrap();
    assert!(learnt.contains("\"remote\""), "{learnt}");
    assert!(
        fs::read_to_string(lab.path("log"))
            .unwrap()
            .contains("\"settled\"")
    );
    let again = lab.run(&line);
    assert!(
        again.stderr.contains("known of their call sites"),
        "{again}"
    );
    // The interpreter's own regions may be decided in one run and not in another, so there may be
    // more of them now.
    let kept = fs::read_to_string(lab.path("sites")).unwrap();
    let regions = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim().trim_end_matches(','));
        let regions =
            lines.filter(|line| line.ends_with("\"remote\"") || line.ends_with("\"local\""));
        regions.map(str::to_owned).collect()
    };
    let (before, after) = (regions(&learnt), regions(&kept));
    assert!(
        before.iter().all(|site| after.contains(site)),
        "{learnt}{kept}"
    );
}

/// Kills the agent of a program that works for a while, and gives what the program wrote to `out`.
fn out_of_a_program_whose_agent_is_killed(lab: &Lab, options: &[&str], work: &str) -> String {
    lab.write(
        "work.py",
        format!(
            "import sys, time\n\
             open('started', 'w').close()\n\
             total = 0\n\
             for round in range(40):\n    \
                 {work}\n    \
                 time.sleep(0.01)\n\
             print(total)\n\
             sys.stdout.flush()\n\
             open('ended', 'w').close()\n"
        ),
    );
    let mut agent = lab
        .command("hither")
        .args(["run", "-q"])
        .args(options)
        .args(["--", "python3", "work.py"])
        .stdout(fs::File::create(lab.path("out")).unwrap())
        .spawn()
        .unwrap();
    let wait_for = |name: &str| {
        while !lab.path(name).exists() {
            thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for("started");
    agent.kill().unwrap();
    agent.wait().unwrap();
    wait_for("ended");
    fs::read_to_string(lab.path("out")).unwrap()
}

#[test]
fn an_agent_that_is_killed_leaves_the_program_running() {
    let lab = Lab::new();
    let work =
        "block = bytearray(4 << 20); block[::4096] = bytes([round]) * 1024; total += sum(block)";
    let options = ["--pages", "cache-aware", "--dry-run"];
    let total: u32 = (0..40).map(|round| round * 1024).sum();
    assert_eq!(
        out_of_a_program_whose_agent_is_killed(&lab, &options, work),
        format!("{total}\n")
    );
}

#[test]
fn an_agent_that_is_killed_leaves_files_to_the_kernel() {
    let lab = Lab::new();
    lab.write("data", vec![3; 12 << 20]);
    let work = "total += sum(open('data', 'rb').read()[::4096])";
    let options = ["--files", "mru", "--cache", "8MiB", "--all-files"];
    assert_eq!(
        out_of_a_program_whose_agent_is_killed(&lab, &options, work),
        format!("{}\n", 40 * 3 * 3072)
    );
}

#[test]
fn programs_with_steered_files_are_as_they_are_alone() {
    let lab = Lab::new();
    let ran = lab.run("hither run --files --cache 64MiB -- sh -c 'echo out; echo err >&2; exit 3'");
    assert_eq!((ran.code, ran.stdout()), (3, "out\n"));
    assert!(ran.stderr.starts_with("err\nhither: "), "{ran}");
    assert!(
        ran.stderr
            .contains("hither: nothing was to be dropped\nhither: the agent took"),
        "{ran}"
    );
    lab.write("data", text(20_000));
    for line in [
        "sort -r data",
        "sh -c 'cat data | sort | head -100; wc -c <data'",
        "grep -n 0042 data",
    ] {
        let plain = lab.run(line);
        for policy in ["", "pcc{other=arc}", "ubm", "random"] {
            let steered = lab.run(
                &format!("hither run -q --files '{policy}' --cache 8MiB -- {line}")
                    .replace("''", ""),
            );
            assert!(plain.stdout == steered.stdout, "{line}: other output");
            assert_eq!(
                (plain.code, &plain.stderr),
                (steered.code, &steered.stderr),
                "{line}"
            );
        }
    }
    assert_eq!(lab.names(), ["data"]);
}

#[test]
fn what_does_not_go_together_is_refused_with_the_reason() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run --files --cache 1GiB --replicas -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --files with --replicas: of the reads that copies serve only one in 16 is told of, so what the page cache is to keep could not be judged
    ");
    assert_snapshot!(lab.run("hither run --pages upm --place-files -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --place-files with --pages: a run does one of them
    ");
    assert_snapshot!(lab.run("hither run --pages upm --cache 1GiB -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --cache with --pages: it is for --files
    ");
    assert_eq!(lab.names(), [""; 0]);
}

#[test]
fn what_is_learnt_of_a_loop_is_kept_and_said() {
    let lab = Lab::new();
    lab.write("data", vec![b'x'; 24 << 20]);
    let line = "hither run --files --cache 8MiB --dry-run --json --all-files --sites sites --log log -- cat data data data data data data";
    let ran = lab.run(&format!("{line} >/dev/null"));
    assert_eq!(ran.code, 0, "{ran}");
    let said: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert!(
        said["missed_bytes"].as_u64() < said["lru_missed_bytes"].as_u64(),
        "{said}"
    );
    assert!(said["classes"]["looping"].as_u64() > Some(0), "{said}");
    assert!(said["drops"].as_u64() > Some(0), "{said}");
    let learnt = fs::read_to_string(lab.path("sites")).unwrap();
    assert!(learnt.contains("\"looping\""), "{learnt}");
    let log = fs::read_to_string(lab.path("log")).unwrap();
    assert!(log.contains("\"decision\":\"drop\""));
    // Of pages the same file says something else, and it is left in there.
    let ran = lab.run("hither run -q --pages cache-aware --dry-run --sites sites -- true");
    assert_eq!(ran.code, 0, "{ran}");
    let kept = fs::read_to_string(lab.path("sites")).unwrap();
    assert!(kept.contains("\"looping\""), "{kept}");
}

#[test]
fn replicas_and_what_belongs_to_them() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run --replicas upm -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --replicas upm: it does not replicate files of a running program; dual-layer does
    ");
    let ran = lab.run("hither run --files --replicate all --cache 1GiB -- touch started");
    assert!(
        ran.code == 2 && ran.stderr.contains("cannot be used with"),
        "{ran}"
    );
    assert_snapshot!(lab.run("hither run --replicas --replica-memory 5% -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '5%' for '--replica-memory <SIZE>': give a size in bytes, at least 1MiB

    For more information, try '--help'.
    ");
    assert!(!lab.path("started").exists());
    let ran = lab.run("hither run --replicas --replicate all --json -- sh -c 'exit 3'");
    assert_eq!(ran.code, 3, "{ran}");
    let said: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(said["replicas_made"], 0, "{said}");
}

#[test]
fn pages_of_files_are_placed() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run --place-files post-office -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --place-files post-office: round-robin and single-node say where pages of files come into memory, upm moves them to where they are read
    ");
    assert_snapshot!(lab.run("hither run --place-files --log moves -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --log: with --place-files round-robin the program itself places pages as it reads, and there is nothing to watch; there is with upm
    ");
    assert_snapshot!(lab.run("hither run --place-files first-touch -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --place-files first-touch: that is what the kernel does anyway
    ");
    // A kernel that gives nobody a policy, as in some containers, says that first.
    let ran = lab.run("hither run --place-files 'single-node{node=63}' -- touch started");
    assert!(
        ran.stderr.contains("node 63 has no memory") || ran.stderr.contains("set_mempolicy"),
        "{ran}"
    );
    assert!(!lab.path("started").exists());
    let ran = lab.run("hither run --place-files --json -- sh -c 'exit 3'");
    if !ran.stderr.contains("set_mempolicy") {
        assert_eq!(ran.code, 3, "{ran}");
        let said: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
        assert!(said["nodes"].is_array(), "{said}");
    }
}

#[test]
fn pages_of_files_follow_their_readers() {
    let lab = Lab::new();
    lab.write("data", vec![7; 4 << 20]);
    // On one node nothing can be far: what is decided is tried as far as that goes.
    let script = "for i in 1 2 3 4 5 6; do cat data > /dev/null; sleep 0.1; done; exit 3";
    let ran = lab.run(&format!(
        "hither run --place-files upm --dry-run --log moves --json -- sh -c '{script}'"
    ));
    assert_eq!(ran.code, 3, "{ran}");
    let said: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(said["file_pages_moved"], 0, "{said}");
    assert!(said["files"].as_u64() > Some(0), "{said}");
    let replayed = hither_live::file_migration::replay(&lab.path("moves")).expect("a log");
    replayed.expect("the same decisions");
    let ran = lab.run("hither run --place-files upm -- sh -c 'exit 3'");
    assert_eq!(ran.code, 3, "{ran}");
}

#[test]
fn files_or_pages_and_with_what_belongs_to_each() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: the following required arguments were not provided:
      <--files [<POLICY>]|--replicas [<POLICY>]|--place-files [<POLICY>]|--pages <POLICY[,POLICY]>|--plan <FILE>>

    Usage: hither run <--files [<POLICY>]|--replicas [<POLICY>]|--place-files [<POLICY>]|--pages <POLICY[,POLICY]>|--plan <FILE>> -- <CMD>...

    For more information, try '--help'.
    ");
    assert_snapshot!(lab.run("hither run --files pcc --pages upm --cache 1GiB -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --files with --pages: a run does one of them
    ");
    assert_snapshot!(lab.run("hither run --files opt --cache 1GiB -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --files opt: it needs the future; 2q, arc, car, clock, dear, eelru, fifo, lfu, lirs, lrfu, lru, lru-k, mq, mru, pcc, random, s3-fifo, seq, sieve, ubm, w-tinylfu do not
    ");
    assert_snapshot!(lab.run("hither run --files pc --cache 1GiB -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --files pc: unknown policy `pc` (did you mean `pcc`?); the policies are [POLICIES]
    ");
    assert_snapshot!(lab.run("hither run --files --cache 4MiB -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '4MiB' for '--cache <SIZE>': what is dropped at once is 2MiB: give at least 8MiB

    For more information, try '--help'.
    ");
    assert_snapshot!(lab.run("hither run --files --cache 10% -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '10%' for '--cache <SIZE>': give a size in bytes, as in 256MiB

    For more information, try '--help'.
    ");
    for line in [
        "hither run --pages upm --cache 1GiB -- touch started",
        "hither run --pages upm --all-files -- touch started",
        "hither run --files --cache 1GiB --region-min 2MiB -- touch started",
        "hither run --files --cache 1GiB --counters write-protect -- touch started",
    ] {
        assert_eq!(lab.run(line).code, 2, "{line}");
    }
    assert_eq!(lab.names(), [""; 0]);
}
