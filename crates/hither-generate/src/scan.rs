//! A scan: each block once, in order, and never again. Scans pollute an LRU cache.

use hither_core::random::Random;

use super::generator::{BURST, Generator, Pattern, Step, WEIGHT, WRITES};

/// The line in the registry.
pub(super) const ENTRY: Generator = Generator {
    name: "scan",
    summary: "each block once, in order",
    params: &[WEIGHT, BURST, WRITES],
    files: &[""],
    build: |_, _| Box::new(Scan { next: 0 }),
};

/// Starts again after 2^32 blocks, the largest file.
struct Scan {
    next: u32,
}

impl Pattern for Scan {
    fn step(&mut self, _random: &mut Random) -> Step {
        let index = self.next;
        self.next = index.wrapping_add(1);
        Step { file: 0, index }
    }
}
