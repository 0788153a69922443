//! The twin of segmented LRU.

use crate::Twin;
use crate::plain::take;
use hither_core::{Access, Block};

/// The lowest segment first, each with its most recent block first.
pub(crate) struct NaiveSlru {
    capacity: usize,
    lowest: bool,
    segments: Vec<Vec<Block>>,
}

impl NaiveSlru {
    pub(crate) fn new(capacity: usize, segments: usize, lowest: bool) -> Self {
        NaiveSlru {
            capacity,
            lowest,
            segments: vec![Vec::new(); segments],
        }
    }
}

impl Twin for NaiveSlru {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let (x, top) = (access.block, self.segments.len() - 1);
        let max = self.capacity / self.segments.len();
        if let Some(at) = self.segments.iter().position(|list| list.contains(&x)) {
            take(&mut self.segments[at], x);
            self.segments[top.min(at + 1)].insert(0, x);
            for upper in (1..=top).rev() {
                if self.segments[upper].len() > max {
                    let least = self.segments[upper].pop().expect("it has some");
                    self.segments[upper - 1].insert(0, least);
                }
            }
            return (true, None);
        }
        let resident: usize = self.segments.iter().map(Vec::len).sum();
        let mut evicted = None;
        if resident == self.capacity {
            evicted = self.segments.iter_mut().find_map(Vec::pop);
        }
        let room = self.segments.iter().position(|list| list.len() < max);
        let at = room.filter(|_| !self.lowest).unwrap_or(0);
        self.segments[at].insert(0, x);
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.segments.iter_mut().for_each(|list| {
            take(list, block);
        });
    }
}
