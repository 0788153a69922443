//! Programs that run already are recorded by what the kernel reports of them.

#[path = "support/observing.rs"]
mod observing;
#[allow(dead_code, reason = "not all who include this file use all of it")]
mod support;

#[path = "record_running/beside.rs"]
mod beside;
#[path = "record_running/containers.rs"]
mod containers;
#[path = "record_running/files.rs"]
mod files;
#[path = "record_running/sites.rs"]
mod sites;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

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

/// A static program that reads its files once for each line on its stdin, and says so.
fn compiled(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record_running/program.c");
    let program = folder.join("program");
    let gcc = Command::new("gcc")
        .args(["-O1", "-static", "-o"])
        .args([&program, &source])
        .status();
    assert!(gcc.expect("gcc starts").success());
    program
}

/// A file of so many pages.
fn file(path: &Path, pages: u64) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    fs::write(path, vec![7; (pages * PAGE) as usize]).expect("written");
}

/// The program, started.
fn started(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut program = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let said = BufReader::new(program.stdout.take().expect("piped"));
    (program, said)
}

fn read_once(program: &mut Child, said: &mut impl BufRead) {
    let input = program.stdin.as_mut().expect("piped");
    input.write_all(b"\n").expect("it reads");
    let mut line = String::new();
    said.read_line(&mut line).expect("it says so");
    assert_eq!(line, "read\n");
}

/// The bytes that were read of each file, by its name.
fn read_bytes(folder: &Path, trace: &str) -> BTreeMap<String, u64> {
    let output = hither(folder, &["stat", "--json", "--top", "1000", trace]);
    let stat: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let files = stat["stats"]["by_object"].as_array().expect("files");
    let files = files.iter().map(|file| {
        let name = file["name"].as_str().expect("a name").to_owned();
        (name, file["read_bytes"].as_u64().expect("a number"))
    });
    files.collect()
}

/// Starts to record a process into `t.hither`.
fn start_recording(folder: &Path, process: u32) -> Child {
    start_recording_by(
        Command::new(env!("CARGO_BIN_EXE_hither")),
        folder,
        process,
        &[],
    )
}

/// The same, with more options, by a command that may start hither elsewhere.
fn start_recording_by(mut hither: Command, folder: &Path, process: u32, options: &[&str]) -> Child {
    let process = process.to_string();
    let mut recording = hither
        .args(["record", "-p", &process, "-o"])
        .arg(folder.join("t.hither"))
        .args(options)
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
    file(&folder.join("data"), PAGES);
    let mut command = Command::new(compiled(folder));
    command.arg(folder.join("data"));
    let (mut program, mut said) = started(command);
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
