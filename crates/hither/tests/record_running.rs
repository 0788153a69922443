//! Programs that run already are recorded by what the kernel reports of them.

#[path = "support/observing.rs"]
mod observing;
#[allow(dead_code, reason = "not all who include this file use all of it")]
mod support;

#[path = "record_running/sites.rs"]
mod sites;

#[path = "record_running/beside.rs"]
mod beside;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use observing::can_observe;

const PAGE: u64 = 4096;

/// Pages of the file that is read.
const PAGES: u64 = 256;

fn hither(folder: &Path, arguments: &[&str]) -> Output {
    let mut hither = Command::new(env!("CARGO_BIN_EXE_hither"));
    hither.args(arguments).current_dir(folder);
    hither.output().expect("it starts")
}

fn stat(folder: &Path, trace: &str) -> Value {
    let output = hither(folder, &["stat", "--json", trace]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// A static program that reads its file once for each line on its stdin, and says so.
fn start(folder: &Path) -> Child {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record_running/program.c");
    let gcc = Command::new("gcc")
        .args(["-O1", "-static", "-o", "program"])
        .arg(source)
        .current_dir(folder)
        .status();
    assert!(gcc.expect("gcc starts").success());
    fs::write(folder.join("data"), vec![7; (PAGES * PAGE) as usize]).expect("written");
    Command::new(folder.join("program"))
        .arg(folder.join("data"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

fn read_once(program: &mut Child, said: &mut impl BufRead) {
    let input = program.stdin.as_mut().expect("piped");
    input.write_all(b"\n").expect("it reads");
    let mut line = String::new();
    said.read_line(&mut line).expect("it says so");
    assert_eq!(line, "read\n");
}

/// Starts to record a process into `t.hither`.
fn start_recording(folder: &Path, process: u32) -> Child {
    let process = process.to_string();
    let mut recording = Command::new(env!("CARGO_BIN_EXE_hither"))
        .args(["record", "-p", &process, "-o", "t.hither"])
        .current_dir(folder)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Its folder is made once all is seen.
    let is_recording = || {
        let mut names = fs::read_dir(folder).expect("read").flatten();
        names.any(|entry| entry.file_name().to_string_lossy().contains("t.hither"))
    };
    while !is_recording() {
        let ended = recording.try_wait().expect("asked");
        assert_eq!(ended, None, "it records");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    recording
}

#[test]
fn a_static_program_that_runs_already_is_recorded() {
    if !can_observe() {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let folder = folder.path();
    let mut program = start(folder);
    let mut said = BufReader::new(program.stdout.take().expect("piped"));
    read_once(&mut program, &mut said);
    let recording = start_recording(folder, program.id());
    for _ in 0..3 {
        read_once(&mut program, &mut said);
    }
    drop(program.stdin.take());
    program.wait().expect("waited for");
    let output = recording.wait_with_output().expect("waited for");
    assert!(output.status.success(), "{output:?}");
    let stat = stat(folder, "t.hither");
    assert_eq!(stat["bytes"]["read"], 3 * PAGES * PAGE, "{stat}");
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let none = hither(
        folder.path(),
        &["record", "-p", "4194304", "-o", "t.hither"],
    );
    assert!(!none.status.success());
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(
        said.contains("--pid 4194304: there is no such process"),
        "{said}"
    );
    assert!(!folder.path().join("t.hither").exists());
}
