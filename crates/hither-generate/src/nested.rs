//! Nested loops, as in a join of two tables: each block of the outer file, and after each the whole
//! inner file `repeats` times. The two call sites have different periods: the inner blocks are
//! worth keeping, the outer ones seldom.

use hither_core::random::Random;

use super::generator::{BURST, Generator, Pattern, Step, WEIGHT, WRITES, blocks};
use hither_core::registry::Param;

/// The line in the registry.
pub(super) const ENTRY: Generator = Generator {
    name: "nested",
    summary: "two nested loops over two files: after each block of the outer one, all of the \
              inner one",
    params: &[
        blocks("outer", "the length of the outer loop", 1000),
        blocks("inner", "the length of the inner loop", 100),
        Param::count(
            "repeats",
            "passes over the inner file after each block of the outer one",
            1,
            1..=1 << 32,
        ),
        WEIGHT,
        BURST,
        WRITES,
    ],
    files: &[".outer", ".inner"],
    build: |values, _| {
        Box::new(Nested {
            outer: values.count(0) as u32,
            inner: values.count(1) as u32,
            repeats: values.count(2),
            at_outer: 0,
            at_inner: 0,
            passes_left: 0,
        })
    },
};

struct Nested {
    outer: u32,
    inner: u32,
    repeats: u64,
    at_outer: u32,
    at_inner: u32,
    passes_left: u64,
}

/// Returns the block at `at` and advances it, back to 0 after `length`.
fn advance(at: &mut u32, length: u32) -> u32 {
    let index = *at;
    *at = if index + 1 == length { 0 } else { index + 1 };
    index
}

impl Pattern for Nested {
    fn step(&mut self, _random: &mut Random) -> Step {
        if self.passes_left == 0 {
            self.passes_left = self.repeats;
            let index = advance(&mut self.at_outer, self.outer);
            return Step { file: 0, index };
        }
        let index = advance(&mut self.at_inner, self.inner);
        self.passes_left -= u64::from(self.at_inner == 0);
        Step { file: 1, index }
    }
}
