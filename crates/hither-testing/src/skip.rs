//! How a test reports that it cannot run here. Every crate's tests include this file by its path.
//!
//! With `HITHER_REQUIRE=all` in the environment, as in CI, [`skip`] fails the test, since
//! everything that can be installed or set up must exist. [`skip_on_this_machine`] never fails: the
//! kernel, the hardware and the user's rights are not part of the setup.

use std::fmt::Display;

/// Skips the test for lack of something that can be installed or set up: a program, a Python
/// package, a folder of traces.
pub fn skip(missing: impl Display) {
    println!("skipped: {missing}");
    let required = std::env::var("HITHER_REQUIRE").is_ok_and(|what| what == "all");
    assert!(!required, "skipped under HITHER_REQUIRE=all: {missing}");
}

/// Skips the test for lack of something that this machine does not have: a second memory node, a
/// PMU, a kernel feature, root's rights.
pub fn skip_on_this_machine(why: impl Display) {
    println!("skipped on this machine: {why}");
}
