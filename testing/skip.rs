//! How a test says that it cannot run here. Every crate's tests include this file by its path.
//!
//! With `HITHER_REQUIRE=all` in the environment, as in CI, [`skip`] fails the test: whatever can be
//! installed or set up has to be there. What a machine has or has not, its kernel, its hardware and
//! the rights of its user, is no fault of the setup: [`skip_on_this_machine`] never fails.
#![allow(dead_code, reason = "not every test that includes this file uses both")]

use std::fmt::Display;

/// Says that the test is skipped for want of something that can be installed or set up: a program,
/// a Python package, a folder of traces.
pub(crate) fn skip(missing: impl Display) {
    println!("skipped: {missing}");
    let required = std::env::var("HITHER_REQUIRE").is_ok_and(|what| what == "all");
    assert!(!required, "skipped under HITHER_REQUIRE=all: {missing}");
}

/// Says that the test is skipped for what this machine is: it lacks a second memory node, a PMU, a
/// feature of the kernel, a right of root's.
pub(crate) fn skip_on_this_machine(why: impl Display) {
    println!("skipped on this machine: {why}");
}
