//! `hither top`.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::Value;

use crate::{Lab, Ran};

/// Ends its run, whatever becomes of the test; and the program in it, whose standard input ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks for runs of this lab's alone.
fn seen_from(lab: &Lab, line: &str) -> Ran {
    let folder = lab.path("");
    lab.run(&format!("env XDG_RUNTIME_DIR={} {line}", folder.display()))
}

#[test]
fn nothing_runs() {
    let lab = Lab::new();
    assert_snapshot!(seen_from(&lab, "hither top"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: nothing of yours runs under `hither run`
    ");
    assert_snapshot!(seen_from(&lab, "hither top 7"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: no run of yours has the process number 7
    ");
    assert_eq!(seen_from(&lab, "hither top --json").stdout(), "[]\n");
}

#[test]
fn a_run_is_seen_until_it_ends() {
    let lab = Lab::new();
    let mut run = lab.command("hither");
    let words = ["run", "-q", "--memory=upm", "--dry-run", "--", "cat"];
    run.args(words).env("XDG_RUNTIME_DIR", lab.path(""));
    let mut run = Running(
        run.stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("spawned"),
    );
    let begun = Instant::now();
    let seen = loop {
        let seen: Value =
            serde_json::from_str(seen_from(&lab, "hither top --json").stdout()).expect("JSON");
        if seen != serde_json::json!([]) {
            break seen;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "nothing was said"
        );
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(seen[0]["agent"], run.0.id());
    assert_eq!(seen[0]["command"], serde_json::json!(["cat"]));
    assert_eq!(seen[0]["figures"]["regions"], 0);
    let shown = seen_from(&lab, &format!("hither top {}", run.0.id()));
    assert!(shown.stdout().contains(": cat\n  upm for "), "{shown}");
    // Killed, the run takes nothing down: who looks does.
    run.0.kill().expect("killed");
    run.0.wait().expect("waited for");
    assert_eq!(seen_from(&lab, "hither top --json").stdout(), "[]\n");
    assert_eq!(lab.names(), ["hither"]);
    assert_eq!(
        std::fs::read_dir(lab.path("hither"))
            .expect("a folder")
            .count(),
        0
    );
}
