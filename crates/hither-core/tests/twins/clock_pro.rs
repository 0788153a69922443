//! The twin of CLOCK-Pro: the circle as a list, with the hands as positions in it.

use crate::{Twin, share};
use hither_core::{Access, Block};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Hot,
    Cold,
    Evicted,
}

/// A block, whether it was referenced, and whether it is in its test period.
#[derive(Clone, Copy)]
struct Page {
    block: Block,
    kind: Kind,
    referenced: bool,
    tested: bool,
}

pub(crate) struct NaiveClockPro {
    m: usize,
    m_c: usize,
    circle: Vec<Page>,
    /// Where the hot, the cold and the test hand are.
    hands: [usize; 3],
}

const HOT: usize = 0;
const COLD: usize = 1;
const TEST: usize = 2;

impl NaiveClockPro {
    pub(crate) fn new(m: usize, cold: f64) -> Self {
        NaiveClockPro {
            m,
            m_c: share(m, cold),
            circle: Vec::new(),
            hands: [0; 3],
        }
    }

    fn count(&self, kind: Kind) -> usize {
        self.circle.iter().filter(|page| page.kind == kind).count()
    }

    fn take(&mut self, at: usize) -> Page {
        let page = self.circle.remove(at);
        for hand in &mut self.hands {
            *hand -= usize::from(at < *hand);
            if *hand >= self.circle.len() {
                *hand = 0;
            }
        }
        page
    }

    /// Puts a block behind the hot hand.
    fn put(&mut self, page: Page) {
        let at = self.hands[HOT];
        for hand in &mut self.hands {
            *hand += usize::from(*hand >= at && !self.circle.is_empty());
        }
        self.circle.insert(at, page);
        if self.circle.len() > 1 {
            return;
        }
        self.hands = [0; 3];
    }

    fn step(&mut self, hand: usize) {
        self.hands[hand] = (self.hands[hand] + 1) % self.circle.len();
    }

    /// Ends the test period of the block at a hand, which then goes on.
    fn end_test(&mut self, hand: usize) {
        let at = self.hands[hand];
        let page = self.circle[at];
        if !page.tested || page.kind == Kind::Hot || page.referenced {
            return self.step(hand);
        }
        self.m_c = (self.m_c - 1).max(1);
        self.circle[at].tested = false;
        if page.kind == Kind::Evicted {
            self.take(at);
        } else {
            self.step(hand);
        }
    }

    fn run_hot(&mut self) {
        loop {
            let page = &mut self.circle[self.hands[HOT]];
            if page.kind != Kind::Hot {
                self.end_test(HOT);
                continue;
            }
            let used = std::mem::take(&mut page.referenced);
            if !used {
                page.kind = Kind::Cold;
            }
            self.step(HOT);
            if !used {
                return;
            }
        }
    }

    fn make_hot(&mut self, block: Block) {
        self.m_c = (self.m_c + 1).min(self.m);
        self.put(Page {
            block,
            kind: Kind::Hot,
            referenced: false,
            tested: false,
        });
        while self.count(Kind::Hot) > self.m - self.m_c {
            self.run_hot();
        }
    }

    fn put_cold(&mut self, block: Block) {
        self.put(Page {
            block,
            kind: Kind::Cold,
            referenced: false,
            tested: true,
        });
    }

    fn evict(&mut self) -> Block {
        loop {
            let at = self.hands[COLD];
            let page = self.circle[at];
            if page.kind != Kind::Cold {
                self.step(COLD);
            } else if page.referenced {
                self.take(at);
                if page.tested {
                    self.make_hot(page.block);
                } else {
                    self.put_cold(page.block);
                }
            } else {
                if page.tested {
                    self.circle[at].kind = Kind::Evicted;
                    self.step(COLD);
                } else {
                    self.take(at);
                }
                while self.count(Kind::Evicted) > self.m {
                    self.end_test(TEST);
                }
                return page.block;
            }
        }
    }

    fn find(&self, block: Block) -> Option<usize> {
        self.circle.iter().position(|page| page.block == block)
    }
}

impl Twin for NaiveClockPro {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        if let Some(at) = self.find(access.block)
            && self.circle[at].kind != Kind::Evicted
        {
            self.circle[at].referenced = true;
            return (true, None);
        }
        let full = self.count(Kind::Hot) + self.count(Kind::Cold) == self.m;
        let evicted = full.then(|| self.evict());
        match self.find(access.block) {
            Some(at) => {
                self.take(at);
                self.make_hot(access.block);
            }
            None => self.put_cold(access.block),
        }
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        if let Some(at) = self.find(block)
            && self.circle[at].kind != Kind::Evicted
        {
            self.take(at);
        }
    }
}
