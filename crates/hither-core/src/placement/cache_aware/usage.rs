//! How much of a node's memory is in use: all that is allocated, or what a sample says (thesis,
//! sections 4.5.3 and 5.5.1).
//!
//! Where pages are replaced, frames that are allocated but idle are as good as free. At the
//! beginning of each period a given share of all allocated pages (1 % in the thesis) is drawn at
//! random and unmapped. A touched page is mapped again, which costs a trap. A node's usage is its
//! allocated share, times the share of its sampled pages that was touched in the last period.
//! Before the first period has ended, all pages count as used.

use crate::ids::{Block, Node};
use crate::placement::nodes::Nodes;
use crate::random::Random;

/// The cost of mapping a page again: a trap without the other work of a fault.
const TRAP_NS: u64 = 1_000;

/// Usage of each node.
pub(super) struct Usage {
    /// None where allocated pages count as used.
    sampler: Option<Sampler>,
}

struct Sampler {
    part: f64,
    period_ns: u64,
    next_ns: u64,
    random: Random,
    /// All pages that were ever placed, each once; and by page, whether it is among them.
    known: Vec<Block>,
    is_known: Vec<bool>,
    /// Pages that are unmapped now, and those that were at the beginning of the period.
    unmapped: Vec<bool>,
    drawn: Vec<Block>,
    /// By node: the pages of the sample, and how many of them were touched.
    sampled: Vec<u32>,
    touched: Vec<u32>,
    /// By node: the share that was touched in the last period.
    in_use: Vec<f64>,
    /// By node: its pages at the beginning of the period.
    pages: Vec<u32>,
    overhead_ns: u64,
}

impl Usage {
    pub(super) fn new(nodes: usize, blocks: u32, part: f64, period_ns: u64) -> Usage {
        let sampler = || Sampler {
            part,
            period_ns,
            next_ns: 0,
            random: Random::new(0),
            known: Vec::new(),
            is_known: vec![false; blocks as usize],
            unmapped: vec![false; blocks as usize],
            drawn: Vec::new(),
            sampled: vec![0; nodes],
            touched: vec![0; nodes],
            in_use: vec![1.0; nodes],
            pages: vec![0; nodes],
            overhead_ns: 0,
        };
        Usage {
            sampler: (part > 0.0).then(sampler),
        }
    }

    /// The share of a node's frames that is in use.
    pub(super) fn of(&self, node: Node, nodes: &Nodes) -> f64 {
        let allocated = f64::from(nodes.used(node)) / f64::from(nodes.capacity(node));
        let in_use = self
            .sampler
            .as_ref()
            .map_or(1.0, |sampler| sampler.in_use[node.index()]);
        allocated * in_use
    }

    /// The share of all allocated pages that the last samples found in use. None without samples.
    pub(super) fn in_use(&self) -> Option<f64> {
        let sampler = self.sampler.as_ref()?;
        let pages = sampler.pages.iter().map(|&pages| f64::from(pages));
        let all: f64 = pages.clone().sum();
        let used = pages
            .zip(&sampler.in_use)
            .map(|(pages, share)| pages * share);
        (all > 0.0).then(|| used.sum::<f64>() / all)
    }

    /// Blocks are numbered below `blocks` from now on.
    pub(super) fn grow(&mut self, blocks: u32) {
        if let Some(sampler) = &mut self.sampler {
            sampler.is_known.resize(blocks as usize, false);
            sampler.unmapped.resize(blocks as usize, false);
        }
    }

    /// Begins the periods that are due.
    pub(super) fn tick(&mut self, nodes: &Nodes) {
        if let Some(sampler) = &mut self.sampler
            && nodes.now_ns() >= sampler.next_ns
        {
            sampler.draw(nodes);
        }
    }

    /// A page was placed.
    pub(super) fn placed(&mut self, block: Block) {
        if let Some(sampler) = &mut self.sampler
            && !std::mem::replace(&mut sampler.is_known[block.index()], true)
        {
            sampler.known.push(block);
        }
    }

    /// A page was touched on a node.
    #[inline]
    pub(super) fn served(&mut self, block: Block, at: Node, nodes: &Nodes) {
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        if nodes.now_ns() >= sampler.next_ns {
            sampler.draw(nodes);
        }
        if std::mem::take(&mut sampler.unmapped[block.index()]) {
            sampler.touched[at.index()] += 1;
            sampler.overhead_ns += TRAP_NS;
        }
    }

    /// A copy left a node. A page that no node holds can no longer be touched, and no longer counts
    /// in the sample: what is reclaimed early in a period would otherwise seem unused.
    pub(super) fn gone(&mut self, block: Block, at: Node, nodes: &Nodes) {
        if let Some(sampler) = &mut self.sampler
            && nodes.home(block).is_none()
            && std::mem::take(&mut sampler.unmapped[block.index()])
        {
            // A page that had migrated was drawn on another node.
            let sampled = &mut sampler.sampled[at.index()];
            *sampled = sampled.saturating_sub(1);
        }
    }

    /// The cost of traps since the last call.
    #[inline]
    pub(super) fn overhead_ns(&mut self) -> u64 {
        let sampler = self.sampler.as_mut();
        sampler.map_or(0, |sampler| std::mem::take(&mut sampler.overhead_ns))
    }
}

impl Sampler {
    /// Ends a period and begins the next one.
    fn draw(&mut self, nodes: &Nodes) {
        for node in 0..self.in_use.len() {
            if self.sampled[node] > 0 {
                // A page that has migrated since is touched on another node than it was drawn on.
                let part = f64::from(self.touched[node]) / f64::from(self.sampled[node]);
                self.in_use[node] = part.min(1.0);
            }
        }
        for (pages, node) in self.pages.iter_mut().zip(nodes.all()) {
            *pages = nodes.used(node);
        }
        self.sampled.fill(0);
        self.touched.fill(0);
        for block in self.drawn.drain(..) {
            self.unmapped[block.index()] = false;
        }
        let count = (self.part * self.known.len() as f64).ceil() as usize;
        for _ in 0..count {
            let block = self.known[self.random.below(self.known.len() as u64) as usize];
            if let Some(node) = nodes.home(block)
                && !std::mem::replace(&mut self.unmapped[block.index()], true)
            {
                self.sampled[node.index()] += 1;
                self.drawn.push(block);
            }
        }
        self.next_ns = nodes.now_ns() + self.period_ns;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::Slot;
    use crate::topology::Topology;

    fn full(nodes: usize, frames: u32) -> Nodes {
        let capacity = vec![frames; nodes];
        let mut all = Nodes::new(
            Arc::new(Topology::uniform(nodes)),
            capacity,
            nodes as u32 * frames,
        );
        for block in 0..all.blocks() {
            all.insert(Block(block), Node((block % nodes as u32) as u16), Slot(0));
        }
        all
    }

    #[test]
    fn allocated_is_used_without_a_sample() {
        let mut nodes = full(2, 4);
        nodes.remove(Block(1), Node(1));
        let usage = Usage::new(2, 8, 0.0, 1);
        assert_eq!(
            (usage.of(Node(0), &nodes), usage.of(Node(1), &nodes)),
            (1.0, 0.75)
        );
    }

    #[test]
    fn what_is_touched_is_used() {
        // All pages are sampled in each period; those of node 0 are touched, of node 1 every fourth
        // of its own.
        let (mut nodes, frames) = (full(2, 1000), 1000);
        let mut usage = Usage::new(2, 2 * frames, 1.0, 100);
        (0..2 * frames).for_each(|block| usage.placed(Block(block)));
        usage.tick(&nodes);
        assert_eq!(
            usage.of(Node(1), &nodes),
            1.0,
            "before the first period has ended"
        );
        for block in (0..2 * frames).filter(|block| block % 2 == 0 || block % 8 == 1) {
            usage.served(Block(block), Node((block % 2) as u16), &nodes);
        }
        assert!(usage.overhead_ns() > 0);
        assert_eq!(usage.overhead_ns(), 0, "told once");
        nodes.set_now_ns(100);
        usage.tick(&nodes);
        assert_eq!(usage.of(Node(0), &nodes), 1.0);
        let quarter = usage.of(Node(1), &nodes);
        assert!((0.2..0.3).contains(&quarter), "{quarter}");
    }

    #[test]
    fn what_is_reclaimed_leaves_the_sample() {
        let mut nodes = full(1, 4);
        let mut usage = Usage::new(1, 4, 1.0, 100);
        (0..4).for_each(|block| usage.placed(Block(block)));
        usage.tick(&nodes);
        let drawn = |usage: &Usage| {
            let sampler = usage.sampler.as_ref().unwrap();
            (0..4)
                .filter(|&page| sampler.unmapped[page as usize])
                .collect::<Vec<u32>>()
        };
        let all = drawn(&usage);
        assert!(all.len() > 1);
        for &block in &all[1..] {
            nodes.remove(Block(block), Node(0));
            usage.gone(Block(block), Node(0), &nodes);
        }
        usage.served(Block(all[0]), Node(0), &nodes);
        nodes.set_now_ns(100);
        usage.tick(&nodes);
        assert_eq!(usage.in_use(), Some(1.0));
    }

    #[test]
    fn follows_a_working_set() {
        // Figure 5.13: a sample of 1 % tracks a working set that grows and shrinks.
        let frames = 20_000;
        let mut nodes = full(1, frames);
        let mut usage = Usage::new(1, frames, 0.01, 100);
        (0..frames).for_each(|block| usage.placed(Block(block)));
        usage.tick(&nodes);
        for (period, tenths) in [2, 9, 5, 1, 7].into_iter().enumerate() {
            for block in (0..frames).filter(|block| block % 10 < tenths) {
                usage.served(Block(block), Node(0), &nodes);
            }
            nodes.set_now_ns(100 * (period as u64 + 1));
            usage.tick(&nodes);
            let (estimate, truth) = (usage.of(Node(0), &nodes), f64::from(tenths) / 10.0);
            let in_use = usage.in_use().unwrap();
            assert!((in_use - estimate).abs() < 1e-9, "one node, which is full");
            // 200 pages: three standard errors are 0.11 at most.
            assert!((estimate - truth).abs() < 0.11, "{estimate} for {truth}");
        }
    }
}
