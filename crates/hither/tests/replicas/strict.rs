//! Runs the readers and writers of `strict.c`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support;

pub(crate) fn hither(folder: &Path) -> Command {
    support::hither(folder, &["--replicas", "--replicate", "all"])
}

fn strict(folder: &Path, words: &[&str]) -> Command {
    let mut program = Command::new(folder.join("program"));
    program.args(words).current_dir(folder);
    program
}

pub(crate) fn make(folder: &Path) {
    let made = strict(folder, &["make", "."]).status().expect("it runs");
    assert!(made.success());
}

pub(crate) fn start_writer(folder: &Path) -> Child {
    let _ = fs::remove_file(folder.join("stop"));
    let writer = strict(folder, &["write", ".", "7"])
        .stdout(Stdio::piped())
        .spawn();
    writer.expect("it runs")
}

/// Ends a writer, and says how many versions it wrote.
pub(crate) fn stop_writer(folder: &Path, writer: Child) -> u64 {
    fs::write(folder.join("stop"), "").expect("written");
    let output = writer.wait_with_output().expect("it ran");
    assert!(output.status.success());
    number(&output.stdout)
}

fn number(text: &[u8]) -> u64 {
    String::from_utf8_lossy(text)
        .trim()
        .parse()
        .expect("a number")
}

/// Reads, stale ones and torn ones, as a reader says.
pub(crate) fn found(text: &[u8]) -> [u64; 3] {
    let text = String::from_utf8_lossy(text);
    let numbers = text
        .split_whitespace()
        .map(|word| word.parse().expect("a number"));
    let numbers: Vec<u64> = numbers.collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{text:?}"))
}
