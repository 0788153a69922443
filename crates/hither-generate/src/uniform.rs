//! Independent references, each block equally likely. Without knowledge of the future all policies
//! have the same hit ratio here, so any difference is an error.

use hither_core::random::Random;

use super::generator::{BURST, Generator, Pattern, Step, WEIGHT, WRITES, blocks};

/// The line in the registry.
pub(super) const ENTRY: Generator = Generator {
    name: "uniform",
    summary: "independent references, each block as likely as any other",
    params: &[
        blocks("blocks", "how many blocks there are", 10_000),
        WEIGHT,
        BURST,
        WRITES,
    ],
    files: &[""],
    build: |values, _| {
        Box::new(Uniform {
            blocks: values.count(0),
        })
    },
};

struct Uniform {
    blocks: u64,
}

impl Pattern for Uniform {
    fn step(&mut self, random: &mut Random) -> Step {
        let index = random.below(self.blocks) as u32;
        Step { file: 0, index }
    }
}
