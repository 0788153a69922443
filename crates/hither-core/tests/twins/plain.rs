//! Twins of the policies that look at blocks alone.

use crate::Twin;
use hither_core::{Access, Block, Tick};

/// LRU, FIFO and MRU: one list, the newest first.
pub(crate) struct NaiveList {
    capacity: usize,
    touch: bool,
    oldest_goes: bool,
    list: Vec<Block>,
}

impl NaiveList {
    pub(crate) fn new(capacity: usize, touch: bool, oldest_goes: bool) -> Self {
        NaiveList {
            capacity,
            touch,
            oldest_goes,
            list: Vec::new(),
        }
    }
}

impl Twin for NaiveList {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let hit = self.list.contains(&access.block);
        if hit && !self.touch {
            return (true, None);
        }
        self.remove(access.block);
        let mut evicted = None;
        if self.list.len() == self.capacity {
            let at = if self.oldest_goes {
                self.capacity - 1
            } else {
                0
            };
            evicted = Some(self.list.remove(at));
        }
        self.list.insert(0, access.block);
        (hit, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.list.retain(|&other| other != block);
    }
}

/// Belady: looks at the next reference of every block.
pub(crate) struct NaiveOpt {
    capacity: usize,
    next: Vec<(Tick, Block)>,
}

impl NaiveOpt {
    pub(crate) fn new(capacity: usize) -> Self {
        NaiveOpt {
            capacity,
            next: Vec::new(),
        }
    }
}

impl Twin for NaiveOpt {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let before = self.next.len();
        self.remove(access.block);
        let hit = self.next.len() < before;
        let mut evicted = None;
        if self.next.len() == self.capacity {
            let furthest = *self.next.iter().max().expect("it is full");
            self.next.retain(|&entry| entry != furthest);
            evicted = Some(furthest.1);
        }
        self.next.push((access.next, access.block));
        (hit, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.next.retain(|&(_, other)| other != block);
    }
}

/// Figure 4 of the ARC paper, in its own names and order. Lists have the most recent block last.
pub(crate) struct NaiveArc {
    c: usize,
    p: f64,
    t1: Vec<Block>,
    t2: Vec<Block>,
    b1: Vec<Block>,
    b2: Vec<Block>,
}

impl NaiveArc {
    pub(crate) fn new(c: usize) -> Self {
        NaiveArc {
            c,
            p: 0.0,
            t1: Vec::new(),
            t2: Vec::new(),
            b1: Vec::new(),
            b2: Vec::new(),
        }
    }

    fn replace(&mut self, in_b2: bool) -> Block {
        let t1 = self.t1.len() as f64;
        // The paper's T2 is never empty when T1 does not have to give; after removals it can be.
        if (t1 >= 1.0 && ((in_b2 && t1 == self.p) || t1 > self.p)) || self.t2.is_empty() {
            let block = self.t1.remove(0);
            self.b1.push(block);
            block
        } else {
            let block = self.t2.remove(0);
            self.b2.push(block);
            block
        }
    }
}

/// Takes `block` out of `list`; whether it was in.
pub(crate) fn take(list: &mut Vec<Block>, block: Block) -> bool {
    let before = list.len();
    list.retain(|&other| other != block);
    list.len() < before
}

impl Twin for NaiveArc {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let x = access.block;
        let full = self.t1.len() + self.t2.len() == self.c;
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.push(x);
            return (true, None);
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let mut evicted = None;
        if self.b1.contains(&x) {
            if full {
                let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
                self.p = (self.p + delta).min(self.c as f64);
                evicted = Some(self.replace(false));
            }
            take(&mut self.b1, x);
            self.t2.push(x);
        } else if self.b2.contains(&x) {
            if full {
                let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
                self.p = (self.p - delta).max(0.0);
                evicted = Some(self.replace(true));
            }
            take(&mut self.b2, x);
            self.t2.push(x);
        } else {
            let l1 = self.t1.len() + self.b1.len();
            let total = l1 + self.t2.len() + self.b2.len();
            if l1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.remove(0);
                    evicted = full.then(|| self.replace(false));
                } else {
                    evicted = Some(self.t1.remove(0));
                }
            } else if full {
                if total == 2 * self.c {
                    self.b2.remove(0);
                }
                evicted = Some(self.replace(false));
            } else if total == 2 * self.c {
                self.b2.remove(0);
            }
            self.t1.push(x);
        }
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        take(&mut self.t1, block);
        take(&mut self.t2, block);
    }
}
