//! A loop: the same blocks in the same order, again and again. LRU gets no hit in a loop that is
//! larger than the cache; MRU gets as many as fit.
//!
//! With `jitter` the order differs from pass to pass: each stretch of `jitter` blocks is shuffled
//! anew. Every block still comes once per pass, and its period varies by less than twice the
//! stretch.

use hither_core::random::Random;

use super::generator::{BURST, Generator, Pattern, Step, WEIGHT, WRITES, blocks};
use hither_core::registry::Param;

/// The longest stretch, which is held in memory while it is shuffled.
const JITTER_MAX: u64 = 1 << 20;

/// The line in the registry.
pub(super) const ENTRY: Generator = Generator {
    name: "loop",
    summary: "the same blocks in the same order, again and again",
    params: &[
        blocks("blocks", "the length of a pass", 1000),
        Param::count(
            "jitter",
            "length in blocks of the stretches that are shuffled in each pass; 0: the order \
                  never changes",
            0,
            0..=JITTER_MAX,
        ),
        WEIGHT,
        BURST,
        WRITES,
    ],
    files: &[""],
    build: |values, _| {
        Box::new(Loop {
            blocks: values.count(0) as u32,
            stretch: values.count(1).max(1) as u32,
            next: 0,
            shuffled: Vec::new(),
        })
    },
};

struct Loop {
    blocks: u32,
    stretch: u32,
    /// The first block of the next stretch.
    next: u32,
    /// The rest of the current stretch, in reverse order.
    shuffled: Vec<u32>,
}

impl Pattern for Loop {
    fn step(&mut self, random: &mut Random) -> Step {
        let index = match self.shuffled.pop() {
            Some(index) => index,
            None => self.begin_stretch(random),
        };
        Step { file: 0, index }
    }
}

impl Loop {
    /// Shuffles the next stretch (Fisher and Yates) and returns its first block. A stretch of one
    /// block takes no random number.
    fn begin_stretch(&mut self, random: &mut Random) -> u32 {
        let end = self.blocks.min(self.next.saturating_add(self.stretch));
        self.shuffled.extend((self.next..end).rev());
        for last in (1..self.shuffled.len()).rev() {
            self.shuffled
                .swap(last, random.below(last as u64 + 1) as usize);
        }
        self.next = if end == self.blocks { 0 } else { end };
        self.shuffled.pop().expect("a stretch has a block")
    }
}
