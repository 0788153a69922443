//! The command as a user meets it: whole command lines, and what they print, where, and with which
//! exit code.
//!
//! A test gives a line to a shell in a folder of its own, with `hither` first on its PATH, so that
//! a snapshot reads like a terminal and the lines can be pasted into one. Inputs are made by the
//! tests: text traces of a few lines, and recordings of small programs that every machine has.

mod advise;
mod completions;
mod demo;
mod doctor;
mod documents;
mod effects;
mod errors;
mod export;
mod r#gen;
mod help;
mod import;
mod man;
mod metrics;
mod names;
mod place;
mod policies;
mod record;
mod recover;
mod report;
mod run;
mod sim;
mod stat;
mod sweep;
mod top;
mod topo;
mod version;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use hither_core::registry::ReplacementEntry;
use serde_json::Value;

/// A folder in which command lines run.
struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        Lab {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// One with a text trace, `loop.trace`: ten blocks, three times over.
    fn with_loop() -> Lab {
        let lab = Lab::new();
        lab.write("loop.trace", rounds(10, 3));
        lab
    }

    /// One with a file of text, `data`, and its recording, `cat.hither`: four passes over the file,
    /// by one call site.
    fn with_recording() -> Lab {
        let lab = Lab::new();
        lab.write("data", text(DATA_LINES));
        let ran = lab.run("hither record -q -o cat.hither -- cat data data data data >/dev/null");
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Everything in the folder, hidden or not, in order.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A program that runs in the folder and finds `hither`. A terminal's signals end it also where
    /// the tests were started in a shell's background, which ignores them.
    fn command(&self, program: &str) -> Command {
        let hither = Path::new(env!("CARGO_BIN_EXE_hither"));
        let mut path = OsString::from(hither.parent().unwrap());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT,QUIT", program])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("LC_ALL", "C")
            .env("COLUMNS", SNAPSHOT_COLUMNS.to_string())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command line.
    fn run(&self, line: &str) -> Ran {
        let output = self.command("sh").args(["-c", line]).output().unwrap();
        Ran::new(output, self.folder.path())
    }

    /// Runs a command line that is to succeed, say nothing on stderr and print one JSON document.
    fn json(&self, line: &str) -> Value {
        let ran = self.run(line);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line}");
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

/// How wide snapshots are: with their indentation they are no wider than the code.
const SNAPSHOT_COLUMNS: usize = 96;

/// What a command line did.
struct Ran {
    stdout: Vec<u8>,
    stderr: String,
    /// As a shell gives it: 128 + the signal where there was one.
    code: i32,
    folder: PathBuf,
}

impl Ran {
    fn new(output: Output, folder: &Path) -> Ran {
        use std::os::unix::process::ExitStatusExt;
        let signal = || 128 + output.status.signal().unwrap();
        Ran {
            code: output.status.code().unwrap_or_else(signal),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
            folder: folder.to_owned(),
        }
    }

    fn stdout(&self) -> &str {
        str::from_utf8(&self.stdout).unwrap()
    }

    /// Leaves out what differs from run to run and from machine to machine.
    fn redacted(&self, text: &str) -> String {
        let version = format!("\"hither\": \"{}\"", env!("CARGO_PKG_VERSION"));
        let text = text
            .replace(self.folder.to_str().unwrap(), "[DIR]")
            .replace(&version, "\"hither\": \"[VERSION]\"")
            .replace(&policies(|_| true), "[POLICIES]")
            .replace(&policies(|entry| !entry.needs.future), "[LIVE POLICIES]")
            .replace(&policies(|entry| entry.needs.nothing()), "[PLAIN POLICIES]")
            .replace(&programs(), "[PROGRAMS]");
        text.lines()
            // Whether there is one is the machine's affair.
            .filter(|line| !line.starts_with("hither: one memory node:"))
            .map(|line| folded(redacted_line(line).trim_end()) + "\n")
            .collect()
    }
}

/// The names of the policies that are `wanted`, as messages list them: a new policy is to change no
/// snapshot.
fn policies(wanted: impl Fn(&ReplacementEntry) -> bool) -> String {
    let names: Vec<&str> = hither_core::registry::replacement_policies()
        .iter()
        .filter(|entry| wanted(entry))
        .map(|entry| entry.name)
        .collect();
    names.join(", ")
}

/// The names of the programs of `hither gen`, as messages list them.
fn programs() -> String {
    let programs = hither_generate::PROGRAMS.iter();
    let names: Vec<&str> = programs.map(|entry| entry.name).collect();
    names.join(", ")
}

/// A line in pieces of a snapshot's width, of which all but the first begin with dots.
fn folded(line: &str) -> String {
    let fits = |text: &str| text.chars().count() <= SNAPSHOT_COLUMNS;
    let (mut folded, mut piece) = (String::new(), String::new());
    for word in line.split_inclusive([' ', ',']) {
        if !piece.is_empty() && !fits(&format!("{piece}{}", word.trim_end())) {
            folded += &format!("{}\n", piece.trim_end());
            piece = "  ... ".to_owned();
        }
        piece += word;
    }
    folded + &piece
}

fn redacted_line(line: &str) -> String {
    // How many calls a program makes is its own affair; what matters is that the line is there.
    if line.starts_with("hither: ") && line.contains(" read, ") {
        return "hither: [COUNTS]".to_owned();
    }
    if let Some((before, _)) = line.split_once("\"sha256\": ") {
        return format!("{before}\"sha256\": \"[SHA256]\",");
    }
    // How many regions a program has, and how busy the agent was, is theirs.
    let tells_of_regions = |line: &str| {
        let alone = line.ends_with(" region") || line.ends_with(" regions");
        alone || line.contains(" wanted on another node")
    };
    if line.starts_with("hither: ") && tells_of_regions(line) {
        return "hither: [REGIONS]".to_owned();
    }
    if line.starts_with("hither: the agent took ") {
        return "hither: the agent took [SHARE]".to_owned();
    }
    match line.split_once(".partial-") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}.partial-[PID]{after}")
        }
        None => line.to_owned(),
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "exit code: {}", self.code)?;
        writeln!(f, "----- stdout -----\n{}", self.redacted(self.stdout()))?;
        write!(f, "----- stderr -----\n{}", self.redacted(&self.stderr))
    }
}

/// Leaves out of CSV what is long or differs (hash, options, version) and what only placements
/// have.
const SHORT_ROWS: &str = r#"sed -e 's/,"{[^}]*}"//' -e 's/,[0-9a-f]\{64\}//' \
    -e 's/,sha256//;s/,loaded_with//' -e 's/,[^,]*$//' -e 's/,placement,.*//' -e 's/,\{15\}$//'"#;

/// A text trace: blocks 1 to `blocks`, `rounds` times over.
fn rounds(blocks: u32, rounds: u32) -> String {
    (0..rounds)
        .flat_map(|_| 1..=blocks)
        .map(|block| format!("{block}\n"))
        .collect()
}

/// Lines in the file of a recording: 400 blocks, more than the 100 from which PCC calls a call site
/// sequential.
const DATA_LINES: u32 = 102_400;

/// So many lines of 16 bytes, not in order.
fn text(lines: u32) -> String {
    (0..lines)
        .map(|line| format!("{:015}\n", u64::from(line) * 7_919 % 1_000_003))
        .collect()
}

/// The keys of a JSON object, in order.
fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}
