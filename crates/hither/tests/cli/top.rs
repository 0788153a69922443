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
    let folder = folder.display();
    lab.run(&format!(
        "env XDG_RUNTIME_DIR={folder} HITHER_RUNTIME_DIR={folder}/hither {line}"
    ))
}

#[test]
fn nothing_runs() {
    let lab = Lab::new();
    assert_snapshot!(seen_from(&lab, "hither top"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: nothing of yours runs under `hither run`, no mount and no node
    ");
    assert_snapshot!(seen_from(&lab, "hither top 7"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: no run or node of yours has the process number 7
    ");
    assert_eq!(seen_from(&lab, "hither top --json").stdout(), "[]\n");
}

/// A run whose program goes on until its standard input ends, once it is seen; and what is seen.
fn running(lab: &Lab) -> (Running, Value) {
    let mut run = lab.command("hither");
    let words = ["run", "-q", "--memory=upm", "--dry-run", "--", "cat"];
    run.args(words).env("XDG_RUNTIME_DIR", lab.path(""));
    run.stdin(Stdio::piped()).stdout(Stdio::null());
    let run = Running(run.spawn().expect("spawned"));
    let begun = Instant::now();
    loop {
        let seen = seen_from(lab, "hither top --json");
        let seen: Value = serde_json::from_str(seen.stdout()).expect("JSON");
        if seen != serde_json::json!([]) {
            return (run, seen);
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "nothing was said"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_run_is_seen_until_it_ends() {
    let lab = Lab::new();
    let (mut run, seen) = running(&lab);
    assert_eq!(seen[0]["agent"], run.0.id());
    assert_eq!(seen[0]["command"], serde_json::json!(["cat"]));
    assert_eq!(seen[0]["mechanisms"][0]["figures"]["regions"], 0);
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

/// Watches on a terminal of 24 lines until the run is shown, ends the watching as it is told, and
/// says how that ended and whether the terminal is as before.
const TERMINAL: &str = r#"
import fcntl, os, pty, select, struct, subprocess, sys, termios
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
before = termios.tcgetattr(slave)
top = subprocess.Popen(["hither", "top"], stdin=slave, stdout=slave, stderr=slave)
shown = b""
def wait_for(mark):
    global shown
    while mark not in shown:
        if not select.select([master], [], [], 60)[0]:
            sys.exit(f"no {mark}: {shown}")
        shown += os.read(master, 4096)
wait_for(b"cat")
wait_for(b"q ends")
key = sys.argv[1]
if key == "TERM":
    top.terminate()
else:
    os.write(master, key.encode())
code = top.wait()
wait_for(b"\x1b[?1049l")
print(code, b"\x1b[?25h" in shown, termios.tcgetattr(slave) == before)
"#;

#[test]
fn whatever_ends_the_watching_gives_the_terminal_back() {
    let lab = Lab::new();
    lab.write("terminal.py", TERMINAL);
    let _run = running(&lab);
    for (end, code) in [("q", 0), (r"$(printf '\003')", -2), ("TERM", -15)] {
        let ran = seen_from(&lab, &format!("python3 terminal.py {end}"));
        assert_eq!(ran.stdout(), format!("{code} True True\n"), "{end}: {ran}");
    }
}
