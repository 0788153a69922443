//! The twin of LIRS: the stack and the queue as the paper draws them, the most recent first.

use crate::Twin;
use hither_core::{Access, Block};

pub(crate) struct NaiveLirs {
    lir_max: usize,
    stack_max: usize,
    /// S: each block with whether it is LIR.
    stack: Vec<(Block, bool)>,
    /// Q: the resident blocks that are not LIR.
    queue: Vec<Block>,
    capacity: usize,
    last: Option<Block>,
}

impl NaiveLirs {
    pub(crate) fn new(capacity: usize, queue_percent: usize, bound: usize) -> Self {
        let queue = (capacity * queue_percent / 100).max(2);
        let queue = if capacity == 1 {
            1
        } else {
            queue.min(capacity - 1)
        };
        NaiveLirs {
            lir_max: capacity - queue,
            stack_max: if bound == 0 {
                usize::MAX
            } else {
                bound * capacity
            },
            stack: Vec::new(),
            queue: Vec::new(),
            capacity,
            last: None,
        }
    }

    fn lirs(&self) -> usize {
        self.stack.iter().filter(|(_, lir)| *lir).count()
    }

    fn prune(&mut self) {
        while self.stack.last().is_some_and(|(_, lir)| !lir) {
            self.stack.pop();
        }
    }
}

impl Twin for NaiveLirs {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let x = access.block;
        let was_lir = self.stack.contains(&(x, true));
        let hit = was_lir || self.queue.contains(&x);
        if self.last.replace(x) == Some(x) && hit {
            return (true, None);
        }
        let mut evicted = None;
        if !hit && self.lirs() + self.queue.len() == self.capacity {
            evicted = self.queue.pop();
        }
        let on_stack = self.stack.iter().any(|(block, _)| *block == x);
        self.queue.retain(|&block| block != x);
        let lir = on_stack || self.lirs() < self.lir_max;
        self.stack.retain(|(block, _)| *block != x);
        self.stack.insert(0, (x, lir));
        if !lir {
            self.queue.insert(0, x);
        } else if self.lirs() > self.lir_max {
            let (bottom, _) = self.stack.pop().expect("x itself at least");
            self.queue.insert(0, bottom);
        }
        self.prune();
        if self.stack.len() > self.stack_max {
            let at = self.stack.iter().rposition(|(_, lir)| !lir);
            self.stack.remove(at.expect("LIR blocks alone fit"));
        }
        (hit, evicted)
    }

    fn remove(&mut self, block: Block) {
        if self.queue.contains(&block) || self.stack.contains(&(block, true)) {
            self.stack.retain(|(other, _)| *other != block);
            self.queue.retain(|&other| other != block);
            self.prune();
        }
    }
}
