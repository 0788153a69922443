//! What the library shares in a process lives as long as the process: programs whose threads end in
//! all ways, the first one too, and that read in handlers and destructors meanwhile, do what they
//! do alone.

#[allow(dead_code, reason = "not all who include this file use all of it")]
mod support;

use std::path::Path;
use std::process::{Command, Output};

use hither_testing::skip::skip_on_this_machine;

/// What each is to end with: a status of its own, after the reads that the kind is about.
const KINDS: [(&str, i32); 8] = [
    ("main", 3),
    ("atexit", 4),
    ("last", 0),
    ("keys", 5),
    ("detached", 6),
    ("_exit", 7),
    ("fork", 8),
    ("signals", 9),
];

/// A session of its own each, and the features of the library that keep something in the process.
const MODES: [&[&str]; 4] = [
    &["record", "--force", "-o", "trace.hither", "--"],
    &["run", "--page-cache", "--cache", "8MiB", "--"],
    &["run", "--replicas", "--replicate", "all", "--json", "--"],
    &["run", "--memory", "--file-placement", "--"],
];

fn run(folder: &Path, before: &[&str], kind: &str) -> Output {
    let program = folder.join("program");
    let mut command = match before {
        [] => Command::new(&program),
        _ => {
            let mut hither = Command::new(env!("CARGO_BIN_EXE_hither"));
            hither.args(before).arg(&program);
            hither
        }
    };
    command
        .args([kind, "data"])
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .env("XDG_CACHE_HOME", folder);
    command.output().expect("it starts")
}

#[test]
fn programs_that_read_while_their_threads_end_do_what_they_do_alone() {
    let folder = support::folder("lifetimes/program");
    let folder = folder.path();
    let mut served = 0;
    let mut wrong = Vec::new();
    for (kind, status) in KINDS {
        let alone = run(folder, &[], kind);
        let said = String::from_utf8_lossy(&alone.stdout).into_owned();
        assert_eq!(alone.status.code(), Some(status), "{kind}, alone: {said}");
        assert!(!said.contains(": 1"), "{kind}, alone: {said}");
        for mode in MODES {
            let under = run(folder, mode, kind);
            if (&under.stdout, under.status.code()) != (&alone.stdout, Some(status)) {
                wrong.push(format!("{kind}, {mode:?}: {under:?}"));
            } else if mode.contains(&"--replicas") {
                let figures = support::figures(&under);
                served += figures["reads_served"].as_u64().unwrap_or(0);
                if figures["leases"] == 0 {
                    skip_on_this_machine(&figures["refused_why"]);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{served} reads were served");
}
