//! `hither demo`. How much it reads and how long that takes is the machine's, and not tested.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use hither_testing::skip::skip_on_this_machine;
use serde_json::Value;

use crate::{Lab, Ran, keys};

/// The user that root's test becomes.
const USER: u32 = 65534;

/// Checks what a demo in the lab's folder printed, and that it left nothing there.
fn check(lab: &Lab, ran: &Ran) {
    assert_eq!(lab.names(), [""; 0], "{ran}");
    if ran.code != 0 {
        assert!(ran.stderr.contains(" is in memory: "), "{ran}");
        skip_on_this_machine("temporary files are in memory");
        return;
    }
    assert_eq!(ran.stderr, "", "{ran}");
    let outcome: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        keys(&outcome),
        [
            "file_bytes",
            "folder",
            "limit_bytes",
            "limited_by",
            "medians",
            "passes",
            "rounds"
        ]
    );
    let limited_by = outcome["limited_by"].as_str().unwrap();
    assert!(["cgroup", "systemd", "cache"].contains(&limited_by));
    let rounds = outcome["rounds"].as_array().unwrap();
    assert!((1..=3).contains(&rounds.len()), "{outcome}");
    for round in rounds.iter().chain([&outcome["medians"]]) {
        for run in ["plain", "steered"] {
            assert_eq!(keys(&round[run]), ["read_bytes", "seconds"]);
        }
    }
}

#[test]
fn a_demo_measures_and_leaves_nothing() {
    let lab = Lab::new();
    check(&lab, &lab.run("hither demo . --json"));
}

#[test]
fn a_demo_needs_no_rights() {
    if !rustix::process::getuid().is_root() {
        skip_on_this_machine("the other tests run as an ordinary user");
        return;
    }
    let lab = Lab::new();
    fs::set_permissions(lab.path("."), fs::Permissions::from_mode(0o777)).unwrap();
    let user = format!("setpriv --reuid {USER} --regid {USER} --clear-groups");
    check(&lab, &lab.run(&format!("{user} hither demo . --json")));
}

/// Whether a memory cgroup of a demo is left.
fn has_group(pid: u32) -> bool {
    let name = format!("hither-demo-{pid}");
    let found = Command::new("find")
        .args(["/sys/fs/cgroup", "-name", &name])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    !found.stdout.is_empty()
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    // While it writes its file, and while a program reads it.
    for waits in [Duration::ZERO, Duration::from_secs(2)] {
        let lab = Lab::new();
        let mut demo = lab.command("hither");
        let demo = demo.args(["demo", "."]).stderr(Stdio::piped());
        let mut demo = demo.stdout(Stdio::piped()).spawn().unwrap();
        while lab.names().is_empty() && demo.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(waits);
        let pid = rustix::process::Pid::from_child(&demo);
        let sent = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let ran = Ran::new(demo.wait_with_output().unwrap(), &lab.path("."));
        assert_eq!(lab.names(), [""; 0], "{ran}");
        assert!(!has_group(pid.as_raw_pid() as u32), "{ran}");
        if ran.stderr.contains(" is in memory: ") {
            skip_on_this_machine("temporary files are in memory");
            return;
        }
        assert_eq!((sent, ran.code), (Ok(()), 130), "{ran}");
        assert_eq!((ran.stdout(), &ran.stderr[..]), ("", ""), "{ran}");
    }
}
