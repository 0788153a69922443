//! How a test reports that it cannot run here.
//!
//! With `HITHER_REQUIRE=all` in the environment, as in CI, [`skip`] fails the test, since
//! everything that can be installed or set up must exist. [`skip_on_this_machine`] never fails: the
//! kernel, the hardware and the user's rights are not part of the setup.
//!
//! A skipped test counts as passed. So each is noted in a file in the target folder, and the tests
//! of the last package, `skipped-tests`, print what a run of `cargo test` has skipped.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// Skips the test for lack of something that can be installed or set up: a program, a Python
/// package, a folder of traces.
pub fn skip(missing: impl Display) {
    println!("skipped: {missing}");
    let required = std::env::var("HITHER_REQUIRE").is_ok_and(|what| what == "all");
    assert!(!required, "skipped under HITHER_REQUIRE=all: {missing}");
    note(&missing);
}

/// Skips the test for lack of something that this machine does not have: a second memory node, a
/// PMU, a kernel feature, root's rights.
pub fn skip_on_this_machine(why: impl Display) {
    println!("skipped on this machine: {why}");
    note(&format_args!("this machine: {why}"));
}

/// The file of the tests that this run of cargo has skipped. None if no cargo runs the tests.
pub fn notes() -> Option<PathBuf> {
    let cargo = std::os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{cargo}/stat")).ok()?;
    let mut words = stat.strip_prefix(&format!("{cargo} (cargo) "))?.split(' ');
    // A number may be used again, by a process that starts at another time.
    let started = words.nth(19)?;
    // target/debug/deps/TEST
    let tests = std::env::current_exe().ok()?;
    let target = tests.ancestors().nth(2)?;
    Some(target.join(format!("skipped-tests.{cargo}.{started}")))
}

/// A test that cannot note that it was skipped is skipped all the same.
fn note(why: &dyn Display) {
    let Some(file) = notes() else { return };
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("{program} {test}: {why}").replace('\n', " ");
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)?;
        file.write_all(format!("{line}\n").as_bytes())
    };
    let _ = write();
}
