//! A working set that moves: the references of a phase go to one set of blocks, those of the next
//! phase to another one that overlaps it. Policies that count references forever do badly here,
//! adaptive ones well.
//!
//! With a phase of one reference and an overlap near 1 the set drifts instead of jumping.

use hither_core::random::Random;

use super::generator::{BURST, Generator, Pattern, Step, WEIGHT, WRITES, blocks};
use super::permutation::Permutation;
use super::zipf::ZipfRanks;
use hither_core::registry::Param;

/// The line in the registry.
pub(super) const ENTRY: Generator = Generator {
    name: "shifting",
    summary: "a working set that moves on after each phase",
    params: &[
        blocks("blocks", "the size of the working set", 10_000),
        Param::count(
            "phase",
            "references until the set moves",
            100_000,
            1..=u64::MAX,
        ),
        Param::real(
            "overlap",
            "the share of the set that stays in it when it moves",
            0.5,
            0.0..=1.0,
        ),
        Param::real(
            "skew",
            "the exponent of Zipf's law within the set; which block is popular is drawn anew in \
             each phase",
            0.0,
            0.0..=20.0,
        ),
        WEIGHT,
        BURST,
        WRITES,
    ],
    files: &[""],
    build: |values, random| {
        let blocks = values.count(0);
        let leaving = (1.0 - values.real(2)) * blocks as f64;
        Box::new(Shifting {
            blocks,
            phase: values.count(1),
            step: leaving.round() as u64,
            ranks: ZipfRanks::new(blocks, values.real(3)),
            permutation: Permutation::new(blocks, random.bits()),
            start: 0,
            left: values.count(1),
        })
    },
};

struct Shifting {
    blocks: u64,
    phase: u64,
    step: u64,
    ranks: ZipfRanks,
    permutation: Permutation,
    start: u64,
    left: u64,
}

impl Pattern for Shifting {
    fn step(&mut self, random: &mut Random) -> Step {
        if self.left == 0 {
            self.left = self.phase;
            // A file has at most 2^32 blocks. After the last one the set wraps around to the first.
            self.start = (self.start + self.step) & u64::from(u32::MAX);
            self.permutation = Permutation::new(self.blocks, random.bits());
        }
        self.left -= 1;
        let within = self.permutation.apply(self.ranks.draw(random) - 1);
        let index = (self.start + within) as u32;
        Step { file: 0, index }
    }
}
