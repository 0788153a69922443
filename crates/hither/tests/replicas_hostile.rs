//! Programs that change descriptors and memory behind libc's back get the bytes and the errors that
//! they get without replicas, and live.
//!
//! `HITHER_HOSTILE_ROUNDS` says how often each repeats what it does. The strictness test beside all
//! of them at once makes `HITHER_STRICT_READS` reads.

use std::path::Path;
use std::process::{Command, Output, Stdio};

mod support;

use hither_testing::skip::skip_on_this_machine;
use support::{figures, folder};

/// The exit status of a program that cannot do here what it is to do.
const IMPOSSIBLE: i32 = 4;

/// What may end before its file has replicas.
const UNSERVED: [&str; 1] = ["leased"];

fn rounds() -> String {
    std::env::var("HITHER_HOSTILE_ROUNDS").unwrap_or_else(|_| "400".to_owned())
}

fn program(folder: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(folder.join("program"));
    let output = program.args(arguments).current_dir(folder).output();
    output.expect("it runs")
}

/// Makes the files, and says which kinds of programs there are.
fn kinds(folder: &Path) -> Vec<String> {
    assert!(program(folder, &["make", "."]).status.success());
    let listed = program(folder, &["list"]);
    let kinds: Vec<String> = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    assert!(kinds.len() >= 20, "{kinds:?}");
    kinds
}

#[test]
fn each_gets_what_it_gets_without() {
    let folder = folder("replicas/hostile");
    let folder = folder.path();
    let mut served = Vec::new();
    let mut wrong = Vec::new();
    for kind in kinds(folder) {
        let rounds = rounds();
        let alone = program(folder, &[&kind, ".", &rounds]);
        if alone.status.code() == Some(IMPOSSIBLE) {
            let said = String::from_utf8_lossy(&alone.stderr);
            skip_on_this_machine(format_args!("{kind}: {}", said.trim()));
            continue;
        }
        assert!(alone.status.success(), "{kind}, alone: {alone:?}");
        let run = support::hither(folder, &["--replicas", "--replicate", "all"])
            .args(["./program", &kind, ".", &rounds])
            .output()
            .expect("hither runs");
        let said = String::from_utf8_lossy(&run.stderr);
        if !run.status.success() {
            wrong.push(format!("{kind}: {}: {said}", run.status));
            continue;
        }
        let figures = figures(&run);
        if figures["leases"] == 0 {
            return skip_on_this_machine(&figures["refused_why"]);
        }
        served.push((kind, figures["reads_served"].as_u64().unwrap_or(0)));
    }
    println!("{served:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (kind, served) in served {
        assert!(
            served > 0 || UNSERVED.contains(&kind.as_str()),
            "{kind}: no read was served, so nothing was tested"
        );
    }
}

/// Readers beside a writer, as in the strictness test, and beside all hostile programs at once,
/// under one agent.
#[test]
fn no_read_is_stale_or_torn_beside_all_of_them() {
    let strict = folder("replicas/strict");
    let hostile = folder("replicas/hostile");
    let kinds = kinds(hostile.path());
    let strict = strict.path();
    let made = Command::new("./program")
        .args(["make", "."])
        .current_dir(strict)
        .status();
    assert!(made.expect("it runs").success());
    let writer = Command::new("./program")
        .args(["write", ".", "7"])
        .current_dir(strict)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let reads = std::env::var("HITHER_STRICT_READS").unwrap_or_else(|_| "200000".to_owned());
    // Each hostile program is run again until the readers are done, with pauses in which these get
    // on.
    let script = format!(
        "for kind in {}; do \
             (while [ ! -e done ]; do \
                  {hostile}/program $kind {hostile} {rounds} 2>> {hostile}/said; status=$?; \
                  [ $status = 0 ] || [ $status = 4 ] || echo $kind $status >> {hostile}/failed; \
                  echo $kind >> {hostile}/runs; sleep 1; \
              done) & \
         done; ./program read . {reads}; status=$?; touch done; wait; exit $status",
        kinds.join(" "),
        hostile = hostile.path().display(),
        rounds = rounds(),
    );
    let run = support::hither(strict, &["--replicas", "--replicate", "all"])
        .args(["sh", "-c", &script])
        .output()
        .expect("hither runs");
    std::fs::write(strict.join("stop"), "").expect("written");
    let writer = writer.wait_with_output().expect("it ran");
    let read = |name: &str| std::fs::read_to_string(hostile.path().join(name)).unwrap_or_default();
    let (failed, said) = (read("failed"), read("said"));
    assert!(failed.is_empty(), "{failed}{said}");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{stderr}");
    let found = String::from_utf8_lossy(&run.stdout);
    let figures = figures(&run);
    println!(
        "{} of reads, stale, torn; {} versions; {} hostile runs; {figures}",
        found.trim(),
        String::from_utf8_lossy(&writer.stdout).trim(),
        read("runs").lines().count()
    );
    assert!(found.trim().ends_with(" 0 0"), "{found}");
    if figures["leases"] == 0 {
        skip_on_this_machine(&figures["refused_why"]);
    }
}
