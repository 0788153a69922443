//! `hither run`: what the program sees of it (nothing), and what it says. Runs that place pages are
//! dry, for most machines have one node.

use std::fs;
use std::thread;
use std::time::Duration;

use insta::assert_snapshot;
use serde_json::Value;

use crate::{Lab, text};
use hither_testing::memory_group::MemoryGroup;
use hither_testing::skip::skip_on_this_machine;

#[test]
fn exit_code_and_output_pass_through() {
    let lab = Lab::new();
    let ran = lab
        .run("hither run --memory=cache-aware --dry-run -- sh -c 'echo out; echo err >&2; exit 3'");
    assert_eq!((ran.code, ran.stdout()), (3, "out\n"));
    let said = ran.redacted(&ran.stderr);
    assert!(
        said.starts_with("err\nhither: [REGIONS]\nhither: a dry run: nothing was bound or moved\n"),
        "{said}"
    );
    assert_eq!(lab.names(), [""; 0]);
    for (signal, code) in [("KILL", 137), ("TERM", 143)] {
        let ran = lab.run(&format!(
            "hither run -q --memory=cache-aware --dry-run -- sh -c 'kill -{signal} $$'"
        ));
        assert_eq!((ran.code, ran.stderr.as_str()), (code, ""), "{ran}");
    }
}

#[test]
fn what_comes_of_it_is_json_on_any_machine() {
    let lab = Lab::new();
    for options in [
        "--memory=upm",
        "--memory=upm --dry-run",
        "--file-placement=upm",
    ] {
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
        let mut told = ran.stdout().lines();
        let told = told.find(|line| line.contains("  write-protect  "));
        let told = told.expect("an answer");
        // What it costs differs each time.
        told.split(';').next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        answer("sh -c 'ulimit -n 128; hither doctor'"),
        answer("hither doctor")
    );
}

#[test]
fn programs_that_cannot_be_seen_are_told_of() {
    let lab = Lab::new();
    lab.write("a.c", "int main(void) { return 7; }");
    // As Go's linker does.
    let note = r#".long 4, 4, 4; .ascii "Go\0\0name""#;
    lab.write(
        "go.s",
        format!(".section .note.go.buildid,\"a\",@note\n{note}\n"),
    );
    let compiled = lab.run("gcc -static -o fixed a.c && gcc -o plain a.c && gcc -o go a.c go.s");
    assert_eq!(compiled.code, 0, "{compiled}");
    let left = "is left as it is, but for programs that it starts";
    let limited = "only the files are seen that it has open";
    for (options, told) in [
        ("--memory=upm --dry-run", left),
        ("--replicas", left),
        ("--page-cache --cache 64MiB --seen-by=library", limited),
        ("--no-cache --seen-by=library", limited),
    ] {
        for (program, why) in [
            ("./fixed", "statically linked"),
            ("./go", "made by Go, which calls the kernel without libc"),
        ] {
            let unseen = lab.run(&format!("hither run {options} -- {program}"));
            assert_eq!(unseen.code, 7, "{unseen}");
            let told = if told == left {
                format!("hither: {program} {told}: {why}\n")
            } else {
                format!("hither: of {program} {told}: {why}\n")
            };
            assert!(unseen.stderr.contains(&told), "{unseen}");
        }
        let plain = lab.run(&format!("hither run {options} -- ./plain"));
        assert!(
            plain.code == 7 && !plain.stderr.contains("./plain"),
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
            "hither run -q --memory=cache-aware --dry-run --region-min 64KiB -- {line}"
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
        let ran = lab.run(&format!("hither run --memory='{policy}' -- true"));
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
        later.contains(
            "cannot follow a running program; cache-aware, first-touch, majority, upm can"
        ),
        "{later}"
    );
    assert!(later.contains("cache-aware"), "{later}");
    let inner = refused("upm{initial=autonuma}");
    assert!(inner.contains("autonuma"), "{inner}");
    let two = refused("upm,cache-aware");
    assert!(two.contains("as in cache-aware,majority"), "{two}");
    let replay = refused("upm{replay=5}");
    assert!(
        replay.contains("replay is not for a running program"),
        "{replay}"
    );
    let unknown = refused("cache-awre");
    assert!(
        unknown.contains(
            "(did you mean `cache-aware`?); cache-aware, first-touch, majority, upm can follow"
        ),
        "{unknown}"
    );
    let parameter = refused("cache-aware{limits=1}");
    assert!(parameter.contains("limit"), "{parameter}");
}

#[test]
fn bad_usage_is_told_before_the_program_starts() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run --memory --region-min 100 -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '100' for '--region-min <BYTES>': an allocation of less than a page (4KiB)
      ... has none to place

    For more information, try '--help'.
    ");
    lab.write("junk", "junk");
    let ran = lab.run("hither run --memory=cache-aware --profile junk -- touch started");
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("junk: not a file of call sites"),
        "{ran}"
    );
    let ran = lab.run("hither run --memory=upm --read-only-profile none -- touch started");
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("none: No such file"), "{ran}");
    let ran = lab.run("hither run --memory=cache-aware --dry-run --log none/log -- touch started");
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("none/log"), "{ran}");
    assert_snapshot!(lab.run("hither run --memory=cache-aware --dry-run -- ./no-such-program"), @"
    exit code: 127
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
        "hither run --memory=cache-aware --dry-run --profile sites --log log -- python3 -c \
         '{STREAM}'"
    );
    let ran = lab.run(&line);
    assert_eq!(ran.code, 0, "{ran}");
    if ran.stderr.contains("were not watched") {
        skip_on_this_machine(&ran.stderr);
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
    let options = ["--memory=cache-aware", "--dry-run"];
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
    let options = ["--page-cache=mru", "--cache", "8MiB", "--all-files"];
    assert_eq!(
        out_of_a_program_whose_agent_is_killed(&lab, &options, work),
        format!("{}\n", 40 * 3 * 3072)
    );
}

#[test]
fn a_program_runs_as_alone_where_nobody_can_be_told_anything() {
    let lab = Lab::new();
    for mode in [
        "run",
        "run --json --no-cache",
        "run --page-cache --cache 8MiB",
        "run --memory --dry-run",
        "record --force -o told.hither",
    ] {
        let ran = lab.run(&format!(
            "sh -c 'hither {mode} -- sh -c \"echo out; exit 3\" 2>/dev/full'"
        ));
        assert_eq!((ran.code, ran.stdout()), (3, "out\n"), "{mode}: {ran}");
    }
}

#[test]
fn programs_with_steered_files_are_as_they_are_alone() {
    let lab = Lab::new();
    let ran =
        lab.run("hither run --page-cache --cache 64MiB -- sh -c 'echo out; echo err >&2; exit 3'");
    assert_eq!((ran.code, ran.stdout()), (3, "out\n"));
    assert!(ran.stderr.starts_with("err\nhither: "), "{ran}");
    for said in ["nothing had to be dropped", "the agent took"] {
        assert!(ran.stderr.contains(&format!("hither: {said}")), "{ran}");
    }
    lab.write("data", text(20_000));
    for line in [
        "sort -r data",
        "sh -c 'cat data | sort | head -100; wc -c <data'",
        "grep -n 0042 data",
    ] {
        let plain = lab.run(line);
        for policy in ["", "='pcc{other=arc}'", "=ubm", "=random"] {
            let steered = lab.run(&format!(
                "hither run -q --page-cache{policy} --cache 8MiB -- {line}"
            ));
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
fn a_backup_leaves_nothing_in_the_page_cache() {
    let lab = Lab::new();
    lab.write("data", vec![7; 24 << 20]);
    let ran = lab.run("hither run --no-cache --json -- tar cf copy.tar data");
    assert_eq!((ran.code, ran.stdout()), (0, ""), "{ran}");
    let said: Value = serde_json::from_str(&ran.stderr).unwrap();
    // By the library's reports, or the kernel's.
    let limits = [Some(8 << 20), Some(32 << 20)];
    assert!(limits.contains(&said["limit_bytes"].as_u64()), "{said}");
    assert!(said["dropped_bytes"].as_u64() > Some(24 << 20), "{said}");
    let ran = lab.run("hither run --no-cache -- cmp data copy.tar");
    assert!(ran.stderr.contains("\nhither: dropped "), "{ran}");
    assert!(!ran.stderr.contains("left to the kernel"), "{ran}");
}

#[test]
fn what_does_not_go_together_is_refused_with_the_reason() {
    let lab = Lab::new();
    for line in [
        "hither run --page-cache --cache 1GiB --replicas -- touch started",
        "hither run --replicas --file-placement -- touch started",
        "hither run --memory --cache 1GiB -- touch started",
        "hither run --memory --plan plan.toml -- touch started",
        "hither run --no-cache --replicas -- touch started",
        "hither run --no-cache --page-cache -- touch started",
        "hither run --no-cache --cache 8MiB -- touch started",
        "hither run --page-cache --cache 1GiB --replicate all -- touch started",
        "hither run --page-cache --cache 1GiB --region-min 2MiB -- touch started",
        "hither run --replicas --profile sites -- touch started",
    ] {
        let ran = lab.run(line);
        assert_eq!(ran.code, 2, "{line}: {ran}");
    }
    assert_snapshot!(
        lab.run("hither run --page-cache --cache 1GiB --replicas -- touch started"),
        @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --page-cache with --replicas: of the reads that replicas serve only one in 16 is
      ... reported, so what the page cache should keep could not be judged
    "
    );
    let ran = lab.run("hither run --replicas --file-placement -- touch started");
    let refused = "hither: --replicas with --file-placement: replicas are made of pages";
    assert!(ran.stderr.starts_with(refused), "{ran}");
    assert_snapshot!(lab.run("hither run --memory --cache 1GiB -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --cache is an option of --page-cache, which is off
    ");
    assert_snapshot!(lab.run("hither run --memory --plan plan.toml -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --memory with --plan: the plan says what to do
    ");
    assert_eq!(lab.names(), [""; 0]);
}

#[test]
fn what_is_learnt_of_a_loop_is_kept_and_said() {
    let lab = Lab::new();
    lab.write("data", vec![b'x'; 24 << 20]);
    let line = "hither run --page-cache --cache 8MiB --dry-run --json --all-files \
                --profile sites --log log -- cat data data data data data data";
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
    assert!(log.contains("\"order\":\"drop\""));
    // Of pages the same file says something else, and it is left in there.
    let ran = lab.run("hither run -q --memory=cache-aware --dry-run --profile sites -- true");
    assert_eq!(ran.code, 0, "{ran}");
    let kept = fs::read_to_string(lab.path("sites")).unwrap();
    assert!(kept.contains("\"looping\""), "{kept}");
}

#[test]
fn a_run_that_is_recorded_can_be_simulated_and_advised_on() {
    let lab = Lab::new();
    lab.write("data", vec![b'x'; 24 << 20]);
    let line = "hither run -q --page-cache --cache 8MiB --record steered.hither \
                -- cat data data data >/dev/null";
    let ran = lab.run(line);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran}");
    for command in ["stat", "sim", "advise"] {
        let ran = lab.run(&format!("hither {command} -q steered.hither"));
        assert_eq!(ran.code, 0, "{ran}");
    }
    let ran = lab.run(line);
    assert_eq!(ran.code, 1, "the trace is not replaced: {ran}");
}

#[test]
fn the_page_cache_and_memory_go_together() {
    let lab = Lab::new();
    lab.write("data", vec![b'x'; 24 << 20]);
    let ran = lab.run(
        "hither run --page-cache --cache 8MiB --all-files --memory=cache-aware \
         --dry-run --json --profile both --log log -- cat data data data data data data >/dev/null",
    );
    assert_eq!(ran.code, 0, "{ran}");
    let said: Value = serde_json::from_str(&ran.stderr).unwrap();
    let page_cache = &said["page_cache"];
    assert!(page_cache["drops"].as_u64() > Some(0), "{said}");
    assert!(
        page_cache["missed_bytes"].as_u64() < page_cache["lru_missed_bytes"].as_u64(),
        "{said}"
    );
    assert!(said["memory"]["regions"].is_u64(), "{said}");
    let log = fs::read_to_string(lab.path("log")).unwrap();
    assert!(log.contains("\"controller\":\"page_cache\""), "{log}");
    assert!(log.contains("\"controller\":\"memory\""), "{log}");
    let profile = fs::read_to_string(lab.path("both")).unwrap();
    assert!(profile.contains("\"looping\""), "{profile}");
}

#[test]
fn replicas_and_what_belongs_to_them() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run --replicas=upm -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --replicas=upm: it does not replicate files of a running program; dual-layer does
    ");
    let ran = lab.run("hither run --page-cache --replicate all --cache 1GiB -- touch started");
    assert!(
        ran.code == 2 && ran.stderr.contains("is an option of --replicas"),
        "{ran}"
    );
    assert_snapshot!(lab.run("hither run --replicas --replica-memory 5% -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '5%' for '--replica-memory <SIZE>': give a size in bytes, as in 256MiB

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
    assert_snapshot!(lab.run("hither run --file-placement=post-office -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --file-placement=post-office: it does not place pages of files; round-robin and
      ... single-node place them as they come into memory, upm moves them to where they are read
    ");
    assert_snapshot!(lab.run("hither run --file-placement --log moves -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --log with --file-placement=round-robin: the program itself places pages as it reads, so
      ... there is nothing to watch; with --file-placement=upm there is
    ");
    assert_snapshot!(lab.run("hither run --file-placement=first-touch -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --file-placement=first-touch: that is what the kernel does anyway
    ");
    // A kernel that gives nobody a policy, as in some containers, says that first.
    let ran = lab.run("hither run --file-placement='single-node{node=63}' -- touch started");
    assert!(
        ran.stderr.contains("node 63 has no memory") || ran.stderr.contains("set_mempolicy"),
        "{ran}"
    );
    assert!(!lab.path("started").exists());
    let ran = lab.run("hither run --file-placement --json -- sh -c 'exit 3'");
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
        "hither run --file-placement=upm --dry-run --log moves --json -- sh -c '{script}'"
    ));
    assert_eq!(ran.code, 3, "{ran}");
    let said: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(said["file_pages_moved"], 0, "{said}");
    assert!(said["files"].as_u64() > Some(0), "{said}");
    let replayed = hither_live::file_placement::replay(&lab.path("moves")).expect("a log");
    replayed.expect("the same decisions");
    let ran = lab.run("hither run --file-placement=upm -- sh -c 'exit 3'");
    assert_eq!(ran.code, 3, "{ran}");
}

#[test]
fn policies_and_sizes_that_no_page_cache_can_be_steered_by_are_refused() {
    let lab = Lab::new();
    let refused = |switches: &str| lab.run(&format!("hither run {switches} -- touch started"));
    assert_snapshot!(refused("--page-cache=opt --cache 1GiB"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --page-cache=opt: it needs the future; [LIVE POLICIES] do not
    ");
    assert_snapshot!(refused("--page-cache=pc --cache 1GiB"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: --page-cache=pc: unknown policy `pc` (did you mean `pcc`?); the policies are [POLICIES]
    ");
    assert_snapshot!(refused("--page-cache --cache 4MiB"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '4MiB' for '--cache <SIZE>': drops are of 2MiB at once: give at least 8MiB

    For more information, try '--help'.
    ");
    assert_snapshot!(refused("--page-cache --cache 10%"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '10%' for '--cache <SIZE>': give a size in bytes, as in 256MiB

    For more information, try '--help'.
    ");
    assert_snapshot!(refused("--page-cache --cache 10"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '10' for '--cache <SIZE>': 10 has no unit, and only simulated caches are
      ... counted in blocks: write bytes, as in 256MiB

    For more information, try '--help'.
    ");
    assert_snapshot!(refused("--replicas --replica-memory 10"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value '10' for '--replica-memory <SIZE>': 10 has no unit, and only simulated
      ... caches are counted in blocks: write bytes, as in 256MiB

    For more information, try '--help'.
    ");
    lab.write("plan.toml", "page-cache = \"pcc\"\ncache = \"10\"\n");
    assert_snapshot!(refused("--plan plan.toml"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: plan.toml: cache: 10 has no unit, and only simulated caches are counted in blocks: write
      ... bytes, as in 256MiB
    ");
    std::fs::remove_file(lab.path("plan.toml")).unwrap();
    for switches in [
        "--memory=upm --cache 1GiB",
        "--memory=upm --all-files",
        "--page-cache --cache 1GiB --region-min 2MiB",
        "--page-cache --cache 1GiB --counters write-protect",
    ] {
        assert_eq!(refused(switches).code, 2, "{switches}");
    }
    assert_eq!(lab.names(), [""; 0]);
}

/// What is switched on is the machine's affair; that one line says it is not.
#[test]
fn without_a_switch_the_run_is_automatic() {
    let lab = Lab::new();
    let ran = lab.run("hither run -- sh -c 'echo out; echo err >&2; exit 3'");
    assert_eq!((ran.code, ran.stdout()), (3, "out\n"), "{ran}");
    let lines = ran.stderr.lines();
    let automatic = lines.filter(|line| line.starts_with("hither: automatic: "));
    assert_eq!(automatic.count(), 1, "{ran}");
    assert!(ran.stderr.starts_with("hither: automatic: "), "{ran}");
    let quiet = lab.run("hither run -q -- sh -c 'echo out; echo err >&2; exit 3'");
    assert_eq!(
        (quiet.code, quiet.stdout(), &quiet.stderr[..]),
        (3, "out\n", "err\n")
    );
    assert_eq!(lab.names(), [""; 0]);
}

#[test]
fn a_memory_limit_switches_the_page_cache_on() {
    let Some(group) = MemoryGroup::new(256) else {
        return;
    };
    let lab = Lab::new();
    let ran = lab.run(&format!("{} && exec hither run -- true", group.enter()));
    assert_eq!(ran.code, 0, "{ran}");
    let automatic =
        "hither: automatic: --page-cache=pcc, because memory is limited to 256.00 MiB\n";
    assert!(ran.stderr.starts_with(automatic), "{ran}");
}

#[test]
fn a_switch_by_an_earlier_name_or_without_an_equals_sign_is_corrected() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run --pages -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: unexpected argument '--pages' found

      tip: it is now --memory[=POLICY]

    Usage: hither run --page-cache[=<POLICY>] [-- <CMD>...]

    For more information, try '--help'.
    ");
    assert_snapshot!(lab.run("hither run --memory upm -- touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: unexpected argument 'upm' found

      tip: a policy follows `=`: --memory=upm

    Usage: hither run [OPTIONS] [-- <CMD>...]

    For more information, try '--help'.
    ");
    assert_snapshot!(lab.run("hither run --memory touch started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: unexpected argument 'touch' found

      tip: put `--` before the program: hither run --memory -- touch started

    Usage: hither run [OPTIONS] [-- <CMD>...]

    For more information, try '--help'.
    ");
    assert_eq!(lab.names(), [""; 0]);
}

#[test]
fn a_program_that_cannot_be_started_is_told_as_a_shell_tells_it() {
    let lab = Lab::new();
    lab.write("notes", "echo hello\n");
    for switches in [
        "",
        "--memory --dry-run",
        "--page-cache --cache 64MiB",
        "--replicas",
        "--file-placement=upm --dry-run",
    ] {
        for (program, code) in [("./none", 127), ("./notes", 126)] {
            let ran = lab.run(&format!("hither run {switches} -- {program}"));
            assert_eq!(ran.code, code, "{switches}: {ran}");
            let problem = format!("\nhither: {program}: ");
            assert!(format!("\n{}", ran.stderr).contains(&problem), "{ran}");
        }
    }
    assert_eq!(lab.names(), ["notes"]);
}
