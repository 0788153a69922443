//! The log of a run whose file cache is steered.

use std::path::Path;

use super::driver::{Config, Driver};
use super::event::{At, Decision};
use crate::error::Result;
use crate::log::{self, Driven, Mismatch};

/// A log that is written.
pub(crate) type Log = log::Log<Driver>;

impl Driven for Driver {
    const FORMAT: (&'static str, u32) = ("hither_files", 2);
    type Config = Config;
    type Input = At;
    type Decision = Decision;

    fn start(config: &Config) -> Result<Driver> {
        Driver::new(config)
    }

    fn hear(&mut self, at: &At, out: &mut Vec<Decision>) {
        self.input(at, out);
    }
}

/// Replays a log: drives the policy by its inputs once more, and compares the decisions. Returns how many there were, or
/// the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    log::replay::<Driver>(path)
}

#[cfg(test)]
mod tests;
