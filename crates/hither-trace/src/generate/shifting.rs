//! A working set that moves: for a phase, references to one set of blocks, then to one that
//! overlaps it in part. What a policy that counts references forever gets wrong, and an adaptive
//! one is for.
//!
//! With a phase of one reference and an overlap near 1 the set drifts instead of jumping.

use hither_core::random::Random;

use super::zipf::Ranks;
use super::{BURST, Generator, Pattern, Scatter, Step, WEIGHT, WRITES, blocks, real};
use hither_core::registry::{Param, ParamKind};

/// The line in the registry.
pub(super) const ENTRY: Generator = Generator {
    name: "shifting",
    summary: "a working set that moves on after each phase",
    params: &[
        blocks("blocks", "the size of the working set", 10_000),
        Param {
            name: "phase",
            doc: "references until the set moves",
            kind: ParamKind::Count {
                default: 100_000,
                min: 1,
                max: u64::MAX,
            },
        },
        real(
            "overlap",
            "the share of the set that stays in it when it moves",
            0.5,
            1.0,
        ),
        real(
            "skew",
            "the exponent of Zipf's law within the set; which block is popular is drawn anew in \
             each phase",
            0.0,
            20.0,
        ),
        WEIGHT,
        BURST,
        WRITES,
    ],
    places: &[""],
    build: |values, random| {
        let blocks = values.count(0);
        let leaving = (1.0 - values.real(2)) * blocks as f64;
        Box::new(Shifting {
            blocks,
            phase: values.count(1),
            step: leaving.round() as u64,
            ranks: Ranks::new(blocks, values.real(3)),
            scatter: Scatter::new(blocks, random.bits()),
            start: 0,
            left: values.count(1),
        })
    },
};

struct Shifting {
    blocks: u64,
    phase: u64,
    step: u64,
    ranks: Ranks,
    scatter: Scatter,
    start: u64,
    left: u64,
}

impl Pattern for Shifting {
    fn step(&mut self, random: &mut Random) -> Step {
        if self.left == 0 {
            self.left = self.phase;
            // A file has 2^32 blocks at most; after the last of them the set is back at the first.
            self.start = (self.start + self.step) & u64::from(u32::MAX);
            self.scatter = Scatter::new(self.blocks, random.bits());
        }
        self.left -= 1;
        let within = self.scatter.place(self.ranks.draw(random) - 1);
        let index = (self.start + within) as u32;
        Step { place: 0, index }
    }
}
