//! Replicas are never older than what a program could know, nor torn, and a program's results are
//! those that it would have without them: while others write its files in every way, while its
//! agent is killed, and when the agent may open or allocate nothing. What happens while it is
//! stopped is in `replicas_stopped`.
//!
//! `HITHER_STRICT_READS` says how many reads the strictness test makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "replicas/strict.rs"]
mod strict;
mod support;

use hither_testing::skip::{skip, skip_on_this_machine};
use strict::{found, hither, make, start_writer, stop_writer};
use support::{figures, folder};

/// Whether nothing can have replicas here, which is said then.
fn is_left_alone(figures: &Value) -> bool {
    let alone =
        figures["leases"] == 0 && figures["refused_why"] != Value::Object(Default::default());
    if alone {
        skip_on_this_machine(&figures["refused_why"]);
    }
    alone
}

/// Reads under replicas beside a writer that nobody manages.
fn read_beside_a_writer(folder: &Path, reads: u64, ignoring: bool) -> ([u64; 3], u64, Value) {
    make(folder);
    let writer = start_writer(folder);
    let mut run = hither(folder);
    if ignoring {
        run.env("HITHER_TEST_IGNORE_LEASE_BREAKS", "1");
    }
    let run = run
        .arg("./program")
        .args(["read", ".", &reads.to_string()])
        .output()
        .expect("hither runs");
    let versions = stop_writer(folder, writer);
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let figures = figures(&run);
    println!(
        "{:?} of reads, stale, torn; {versions} versions; {figures}",
        found(&run.stdout)
    );
    (found(&run.stdout), versions, figures)
}

#[test]
fn no_read_is_stale_or_torn_and_the_test_would_notice() {
    let folder = folder("replicas/strict");
    let folder = folder.path();
    let reads = std::env::var("HITHER_STRICT_READS").ok();
    let reads = reads.map_or(400_000, |reads| reads.parse().expect("a number"));
    let ([made, stale, torn], versions, figures) = read_beside_a_writer(folder, reads, false);
    if is_left_alone(&figures) {
        return;
    }
    assert_eq!((stale, torn), (0, 0), "of {made} reads");
    assert!(
        versions > 2 && figures["files_ended"].as_u64() > Some(0),
        "{figures}"
    );
    assert!(
        figures["reads_served"].as_u64() > Some(reads / 20),
        "{figures}"
    );
    if !cfg!(debug_assertions) {
        return skip("the negative control is for builds with debug assertions");
    }
    let ([_, stale, _], ..) = read_beside_a_writer(folder, 400_000, true);
    assert!(stale > 0, "an agent that ignores writers is not noticed");
}

/// Kills the agent of readers at a random moment, beside a writer: what they read from before to
/// after.
fn read_beyond_the_agent(folder: &Path, random: &mut u64, outlived: bool) -> [u64; 3] {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    let writer = start_writer(folder);
    let script = "./program read . 300000 > found.partial; mv found.partial found";
    let mut agent = hither(folder);
    if outlived {
        agent.env("HITHER_TEST_OUTLIVE_AGENT", "1");
    }
    let agent = agent
        .args(["sh", "-c", script])
        .stderr(Stdio::null())
        .spawn();
    let mut agent = agent.expect("hither starts");
    thread::sleep(Duration::from_millis(100 + (*random >> 40) % 1000));
    agent.kill().expect("killed, or gone already");
    agent.wait().expect("waited for");
    let begun = Instant::now();
    while !folder.join("found").exists() {
        assert!(begun.elapsed() < Duration::from_secs(600), "it hangs");
        thread::sleep(Duration::from_millis(5));
    }
    stop_writer(folder, writer);
    let found = found(&fs::read(folder.join("found")).expect("there"));
    fs::remove_file(folder.join("found")).expect("removed");
    found
}

#[test]
fn a_killed_agent_leaves_nothing_stale_behind_and_the_test_would_notice() {
    let folder = folder("replicas/strict");
    let folder = folder.path();
    make(folder);
    let mut random = 20_261_122_u64;
    for round in 0..8 {
        let [reads, stale, torn] = read_beyond_the_agent(folder, &mut random, false);
        assert_eq!((stale, torn), (0, 0), "round {round}, of {reads} reads");
    }
    let (.., figures) = read_beside_a_writer(folder, 100_000, false);
    if !cfg!(debug_assertions) || is_left_alone(&figures) {
        return skip_on_this_machine("the negative control");
    }
    let mut stale = 0;
    for round in 0..40 {
        stale += read_beyond_the_agent(folder, &mut random, true)[1];
        println!("{stale} stale reads after {} rounds", round + 1);
        if stale > 0 {
            return;
        }
    }
    panic!("replicas that outlive their agent are not noticed");
}

/// The output of a program of random operations, alone or as `command` starts it.
fn equal(folder: &Path, mut command: Command, seed: u32) -> Output {
    let inside: PathBuf = folder.join("files");
    fs::create_dir_all(&inside).expect("a folder");
    let output = command
        .arg("files")
        .args([seed.to_string(), "1500".to_owned()])
        .current_dir(folder)
        .output();
    fs::remove_dir_all(inside).expect("removed");
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {seed}: {said}");
    output
}

fn under_hither(folder: &Path) -> Command {
    let mut run = hither(folder);
    run.arg("./program");
    run
}

#[test]
fn random_operations_give_what_they_give_without() {
    let folder = folder("replicas/equal");
    let folder = folder.path();
    let mut served = 0;
    for seed in 1..=12 {
        let alone = equal(folder, Command::new(folder.join("program")), seed);
        let with = equal(folder, under_hither(folder), seed);
        assert_eq!(alone.stdout, with.stdout, "seed {seed}");
        let figures = figures(&with);
        if is_left_alone(&figures) {
            return;
        }
        served += figures["reads_served"].as_u64().unwrap_or(0);
    }
    assert!(served > 100, "{served} reads served: nothing was tested");
}

/// The descriptors of all processes that stand for a removed file of this name.
fn descriptors_of_removed(name: &str) -> usize {
    let link = |entry: fs::DirEntry| fs::read_link(entry.path()).ok();
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let tables = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok());
    let links = tables.flat_map(|table| table.flatten().filter_map(link));
    links
        .filter(|link| {
            link.to_string_lossy()
                .ends_with(&format!("{name} (deleted)"))
        })
        .count()
}

/// The agent gives a removed file up, and so its space, although the program that read it goes on.
#[test]
fn a_removed_file_is_given_up() {
    let folder = folder("replicas/strict");
    let folder = folder.path();
    let name = format!("removed-{}", std::process::id());
    let data = folder.join(&name);
    fs::write(&data, vec![7; 1 << 20]).expect("written");
    let script = format!(
        "for i in $(seq 100); do cat {name} > /dev/null; done; \
         rm {name}; touch removed; while [ ! -e enough ]; do sleep 0.01; done"
    );
    let run = hither(folder)
        .args(["sh", "-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .expect("hither starts");
    let begun = Instant::now();
    while !folder.join("removed").exists() || descriptors_of_removed(&name) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(300), "it is kept");
        thread::sleep(Duration::from_millis(20));
    }
    fs::write(folder.join("enough"), "").expect("written");
    let figures = figures(&run.wait_with_output().expect("it ran"));
    if !is_left_alone(&figures) {
        assert!(figures["replicas_made"].as_u64() > Some(0), "{figures}");
        assert_eq!(figures["files_ended"], 1, "{figures}");
    }
}

/// Sends from replicas, cut short by sockets that are full and by signals, deliver what the file
/// has, leave its offset where it belongs, and no descriptor behind. Also of a program whose first
/// thread has ended.
#[test]
fn what_is_sent_is_what_the_file_has() {
    for by in [&["2000"][..], &["2000", "late"]] {
        let folder = folder("replicas/send");
        let run = hither(folder.path())
            .args(["./program", "file"])
            .args(by)
            .output()
            .expect("hither runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{said}");
        let figures = figures(&run);
        if is_left_alone(&figures) {
            return;
        }
        assert!(figures["reads_served"].as_u64() > Some(500), "{figures}");
    }
}

/// What was decided follows from what was heard.
#[test]
fn the_log_of_a_run_replays() {
    let folder = folder("replicas/equal");
    let folder = folder.path();
    let log = folder.join("log");
    let mut run = Command::new(env!("CARGO_BIN_EXE_hither"));
    run.args(["run", "--replicas", "--replicate", "all", "--log"])
        .arg(&log)
        .args(["--", "./program"])
        .env("XDG_RUNTIME_DIR", folder);
    equal(folder, run, 5);
    let replayed = hither_live::replication::replay(&log).expect("a log");
    println!("{} decisions", replayed.expect("the same decisions"));
    // One decision changed is noticed.
    let text = fs::read_to_string(&log).expect("there");
    if text.contains("\"order\":\"hold\"") {
        let other = text.replacen("\"order\":\"hold\"", "\"order\":\"release\"", 1);
        fs::write(&log, other).expect("written");
        let replayed = hither_live::replication::replay(&log).expect("a log");
        assert!(replayed.is_err());
    }
}

/// An agent that may have hardly a descriptor, or hardly memory, serves less, and nothing wrong.
#[test]
fn an_agent_that_may_have_nothing_does_no_harm() {
    let folder = folder("replicas/equal");
    let folder = folder.path();
    let alone = equal(folder, Command::new(folder.join("program")), 3);
    for limit in ["ulimit -n 12", "ulimit -v 1200000"] {
        let mut shell = Command::new("sh");
        // The program gets its own limits back, as far as they may be raised.
        shell
            .arg("-c")
            .arg(format!(
                "ulimit -S{}; exec \"$0\" run --replicas --replicate all -- sh -c 'ulimit -Sn \
                    1000; ulimit -Sv unlimited; exec ./program \"$@\"' x \"$@\"",
                limit.trim_start_matches("ulimit -")
            ))
            .arg(env!("CARGO_BIN_EXE_hither"))
            .env("XDG_RUNTIME_DIR", folder);
        let inside: PathBuf = folder.join("files");
        fs::create_dir_all(&inside).expect("a folder");
        let output = shell
            .args(["files", "3", "1500"])
            .current_dir(folder)
            .output();
        fs::remove_dir_all(inside).expect("removed");
        let output = output.expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr);
        // An agent that cannot even start says so, and starts no program.
        if output.status.success() {
            assert_eq!(output.stdout, alone.stdout, "{limit}: {said}")
        } else {
            assert!(
                output.stdout.is_empty() && !said.is_empty(),
                "{limit}: {said}"
            )
        }
    }
}
