//! Twin of SIEVE.

use crate::Twin;
use hither_core::{Access, Block};

/// Algorithm 1 of the paper, with the oldest block first.
pub(crate) struct NaiveSieve {
    capacity: usize,
    queue: Vec<(Block, bool)>,
    /// Where the hand is; none: at the oldest when it is needed next.
    hand: Option<usize>,
}

impl NaiveSieve {
    pub(crate) fn new(capacity: usize) -> Self {
        NaiveSieve {
            capacity,
            queue: Vec::new(),
            hand: None,
        }
    }

    fn take(&mut self, at: usize) -> Block {
        let block = self.queue.remove(at).0;
        self.hand = match self.hand {
            Some(hand) if at < hand => Some(hand - 1),
            hand => hand.filter(|&hand| hand < self.queue.len()),
        };
        block
    }
}

impl Twin for NaiveSieve {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        for (block, visited) in &mut self.queue {
            if *block == access.block {
                *visited = true;
                return (true, None);
            }
        }
        let mut evicted = None;
        if self.queue.len() == self.capacity {
            let mut hand = self.hand.unwrap_or(0);
            while std::mem::take(&mut self.queue[hand].1) {
                hand = (hand + 1) % self.capacity;
            }
            self.hand = Some(hand);
            evicted = Some(self.take(hand));
        }
        self.queue.push((access.block, false));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        if let Some(at) = self.queue.iter().position(|entry| entry.0 == block) {
            self.take(at);
        }
    }
}
