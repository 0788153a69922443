//! The frames of each node, and the choice of the page to reclaim: CLOCK (second chance), with one
//! hand per node.
//!
//! The reference bit belongs to the page and not to the frame. So an access sets it without looking
//! for the copy that served it, and a page and its replicas share it.

use hither_core::{Block, Node, Slot};

/// The page in each frame of each node.
pub(super) struct Frames {
    nodes: Vec<NodeFrames>,
    referenced: Vec<bool>,
}

#[derive(Default)]
struct NodeFrames {
    /// It grows as frames are used, so a large memory costs nothing.
    blocks: Vec<Option<Block>>,
    free: Vec<Slot>,
    hand: usize,
}

/// Frames after the victim of the hand among which a better one may be, as a share of all of a
/// node: those of about the same age.
const EQUAL_VICTIMS_SHARE: usize = 16;

impl Frames {
    pub(super) fn new(nodes: usize, blocks: u32) -> Frames {
        Frames {
            nodes: (0..nodes).map(|_| NodeFrames::default()).collect(),
            referenced: vec![false; blocks as usize],
        }
    }

    #[inline]
    pub(super) fn touch(&mut self, block: Block) {
        self.referenced[block.index()] = true;
    }

    /// Puts a page into a free frame of a node.
    pub(super) fn take(&mut self, node: Node, block: Block) -> Slot {
        let of = &mut self.nodes[node.index()];
        match of.free.pop() {
            Some(slot) => {
                of.blocks[slot.index()] = Some(block);
                slot
            }
            None => {
                of.blocks.push(Some(block));
                Slot(of.blocks.len() as u32 - 1)
            }
        }
    }

    pub(super) fn release(&mut self, node: Node, slot: Slot) {
        let of = &mut self.nodes[node.index()];
        of.blocks[slot.index()] = None;
        of.free.push(slot);
    }

    /// The first page from the hand on that was not touched since the hand last passed it.
    pub(super) fn victim(&mut self, node: Node) -> Block {
        let of = &mut self.nodes[node.index()];
        loop {
            let at = of.hand;
            of.hand = (at + 1) % of.blocks.len();
            if let Some(block) = of.blocks[at]
                && !std::mem::take(&mut self.referenced[block.index()])
            {
                return block;
            }
        }
    }

    /// A victim as of [`victim`](Frames::victim), or the next untouched page for which `better`
    /// holds, if it is near. No bit is cleared on the way to it.
    pub(super) fn victim_among_equals(
        &mut self,
        node: Node,
        better: impl Fn(Block) -> bool,
    ) -> Block {
        let first = self.victim(node);
        let of = &self.nodes[node.index()];
        let frames = of.blocks.len();
        let near = (0..frames / EQUAL_VICTIMS_SHARE).map(|step| (of.hand + step) % frames);
        let mut near = near.filter_map(|at| of.blocks[at]);
        if better(first) {
            return first;
        }
        near.find(|&block| !self.referenced[block.index()] && better(block))
            .unwrap_or(first)
    }

    /// Panics unless it agrees with `copies`: block, node and frame of all copies.
    pub(super) fn check(&self, copies: impl Iterator<Item = (Block, Node, Slot)>) {
        let mut held = 0;
        for (block, node, slot) in copies {
            let of = &self.nodes[node.index()];
            assert_eq!(of.blocks[slot.index()], Some(block), "{node:?} {slot:?}");
            held += 1;
        }
        let taken = |of: &NodeFrames| of.blocks.iter().flatten().count();
        assert_eq!(self.nodes.iter().map(taken).sum::<usize>(), held);
        let free = |of: &NodeFrames| of.blocks.len() - taken(of) == of.free.len();
        assert!(self.nodes.iter().all(free), "free frames");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_chance() {
        let mut frames = Frames::new(1, 4);
        let node = Node(0);
        for block in 0..3 {
            frames.take(node, Block(block));
        }
        frames.touch(Block(0));
        frames.touch(Block(1));
        // The hand passes 0 and 1, clears their bits, and finds 2.
        assert_eq!(frames.victim(node), Block(2));
        frames.release(node, Slot(2));
        assert_eq!(frames.take(node, Block(3)), Slot(2));
        frames.touch(Block(0));
        // It continues at 0, which was touched again, and finds 1.
        assert_eq!(frames.victim(node), Block(1));
    }

    #[test]
    fn a_better_victim_is_near_and_untouched() {
        let mut frames = Frames::new(1, 64);
        let node = Node(0);
        for block in 0..64 {
            frames.take(node, Block(block));
        }
        // A sixteenth of 64 frames: 1 to 4 after 0.
        let mut victim = |better: u32| frames.victim_among_equals(node, |it| it.0 == better);
        assert_eq!(victim(3), Block(3));
        // The hand went on by one frame: 2 to 5 after 1.
        assert_eq!(victim(6), Block(1));
        frames.touch(Block(4));
        assert_eq!(frames.victim_among_equals(node, |it| it.0 == 4), Block(2));
    }
}
