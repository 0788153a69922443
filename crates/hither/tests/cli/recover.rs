//! Recordings that end before the program does: by a full disk, or because hither is killed.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::Value;

use crate::{Lab, text};
use hither_testing::skip::skip_on_this_machine;

/// Reads a file in pieces of one byte, 300,000 times, and exits with code 5.
const MANY_READS: &str = "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    int main(void) {\n\
      char c;\n\
      int file = open(\"data\", O_RDONLY);\n\
      for (int i = 0; i < 300000; i++)\n\
        if (pread(file, &c, 1, rand() % 100) != 1) return 1;\n\
      return 5;\n\
    }\n";

fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("a.c", MANY_READS);
    lab.write("data", text(100));
    // The first recording of a version writes the library, which takes room too.
    let ready =
        lab.run("gcc -o many a.c && rm a.c && hither record -q -- true && rm -r trace.hither");
    assert_eq!(ready.code, 0, "{ready}");
    lab
}

/// Checks a recording of `many` that was cut, and says why it was.
fn cut_trace(lab: &Lab, prefix: &str, trace: &str) -> String {
    let line = format!("hither record -q --ring-bytes 32MiB -o {trace} -- ./many");
    let ran = lab.run(&format!("{prefix}{line}"));
    assert_eq!(ran.code, 5, "{ran}");
    let warning = format!("hither: warning: {trace} is cut: ");
    assert!(ran.stderr.starts_with(&warning), "{ran}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    let document = lab.json(&format!("hither advise -q --json {trace}"));
    let cut = &document["trace"]["coverage"]["cut"];
    let lost = cut["lost_accesses"].as_u64().unwrap();
    assert_eq!(document["trace"]["losses"]["dropped_events"], 0);
    let kept = lab.json(&format!("hither stat --json {trace}"))["bytes"]["read"].clone();
    assert_eq!(kept.as_u64().unwrap() + lost, 300_000);
    let advice = &document["advice"];
    let is_doubtful = advice["change"] == "unknown" || advice.to_string().contains("cut after");
    assert!(lost > 0 && is_doubtful, "{advice}");
    for command in ["stat", "advise --explain"] {
        let said = lab.run(&format!("hither {command} {trace}"));
        let first = said.stdout().lines().next().unwrap().to_lowercase();
        let first = first
            .trim_start_matches("seen")
            .trim_start_matches([':', ' ']);
        assert!(first.starts_with("cut after "), "{command}: {first}");
    }
    cut["reason"].as_str().unwrap().to_owned()
}

#[test]
fn a_full_disk_cuts_the_trace_and_keeps_the_exit_code() {
    let lab = lab();
    let mounted = lab.run("mkdir disk && mount -t tmpfs -o size=256k tmpfs disk");
    if mounted.code != 0 {
        skip_on_this_machine("mounting a small file system takes root");
        return;
    }
    let reason = cut_trace(&lab, "", "disk/t.hither");
    let left = lab.run("ls -A disk");
    lab.run("umount disk");
    assert_eq!(reason, "the disk was full");
    assert_eq!(left.stdout(), "t.hither\n");
}

#[test]
fn a_file_that_may_not_grow_cuts_the_trace_too() {
    let lab = lab();
    // In units of 512 bytes.
    let reason = cut_trace(&lab, "ulimit -f 400; ", "t.hither");
    assert_eq!(reason, "writing failed: File too large (os error 27)");
    assert_eq!(lab.names(), ["data", "many", "t.hither"]);
}

/// Records a program that reads `data` until there is a file `stop`, and kills the recorder when
/// there is something to recover.
fn kill_recorder(lab: &Lab) {
    let mut recorder = lab
        .command("hither")
        .args(["record", "-q", "-o", "t.hither", "--seen-by=library"])
        .args(["--", "sh", "-c"])
        .arg("until [ -e stop ]; do cat data >/dev/null; sleep 0.01; done; mv stop stopped")
        .spawn()
        .unwrap();
    let journal = lab.path(&format!(
        ".t.hither.partial-{}/journal.jsonl",
        recorder.id()
    ));
    let begun = Instant::now();
    let lines = || {
        fs::read_to_string(&journal)
            .unwrap_or_default()
            .lines()
            .count()
    };
    while lines() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no checkpoint");
        thread::sleep(Duration::from_millis(10));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    // The program goes on until now.
    lab.write("stop", "");
    while !lab.path("stopped").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it hangs");
        thread::sleep(Duration::from_millis(10));
    }
    fs::remove_file(lab.path("stopped")).unwrap();
}

#[test]
fn a_killed_recording_is_named_and_recovered() {
    let lab = Lab::new();
    lab.write("data", text(1000));
    assert_snapshot!(lab.run("hither recover t.hither"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: t.hither: no recording of it was killed that can be recovered
    ");
    kill_recorder(&lab);
    let names = lab.names();
    let [left, data] = &names[..] else {
        panic!("{names:?}")
    };
    assert_eq!(data, "data");
    let next = lab.run("hither record -o t.hither -- true");
    let named = format!(
        "hither: `{left}` was left by a recording that was killed; `hither recover {left}`\n"
    );
    assert!(next.stderr.starts_with(&named), "{next}");
    assert_snapshot!(lab.run("hither recover t.hither"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: t.hither: already exists (--force replaces it)
    ");
    let recovered = lab.run("hither recover --force t.hither");
    assert_eq!(recovered.code, 0, "{recovered}");
    assert!(
        recovered.stderr.starts_with("hither: seen: cut after "),
        "{recovered}"
    );
    assert_eq!(lab.names(), ["data", "t.hither"]);

    let document = lab.json("hither advise -q --json t.hither");
    let coverage = &document["trace"]["coverage"];
    assert_eq!(coverage["cut"]["reason"], "the recorder was killed");
    let read = coverage["recorded_bytes"].as_u64().unwrap();
    assert!(
        read > 0 && read.is_multiple_of(16_000),
        "{read}: whole files"
    );
    let doubts = document["advice"]["confidence"].to_string();
    assert!(doubts.contains("cut after"), "{}", document["advice"]);
    // Files and call sites have the names that they have in a recording that was not killed.
    lab.run("hither record -q -o whole.hither -- cat data >/dev/null");
    let names = |document: &Value, trace: &str| {
        let stats = lab.json(&format!("hither stat --json {trace}"));
        let file = stats["stats"]["by_object"][0]["name"].clone();
        let site = document["sites"][0]["label"].clone();
        assert!(file.is_string() && site.is_string(), "{file} {site}");
        (file, site)
    };
    let whole = lab.json("hither advise -q --json whole.hither");
    assert_eq!(names(&document, "t.hither"), names(&whole, "whole.hither"));
}

#[test]
fn of_several_recordings_one_must_be_named() {
    let lab = Lab::new();
    lab.write("data", text(1000));
    kill_recorder(&lab);
    kill_recorder(&lab);
    let ran = lab.run("hither recover t.hither");
    assert_eq!(ran.code, 2, "{ran}");
    let names = lab.names();
    let (one, two) = (&names[0], &names[1]);
    let says = format!("hither: t.hither: name one of what was left: {one}, {two}\n");
    assert_eq!(ran.stderr, says);
    let ran = lab.run(&format!("hither recover -q {two}"));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(lab.names(), [one, "data", "t.hither"]);
}
