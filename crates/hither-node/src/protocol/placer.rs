//! Where copies go: a home's [`FileHost`], which runs a placement of the core for the blocks of the
//! chunks that the home has in its directory.
//!
//! The core numbers blocks and nodes; here they have names. A chunk's blocks get numbers when they
//! are first seen. They keep them after their last copy is gone, since what a placement has learnt
//! of a block tells whether it returns, until there are twice as many as this home's share of all
//! frames, or too many chunks: then the oldest one of which nobody holds anything is forgotten.
//! Nodes are numbered as the view lists its members. A new view or other distances start a new
//! placer, which learns anew.
//!
//! An order that nobody confirms in time is given up.
//!
//! All calls that change the host go through one function, which writes them to a log if one is
//! kept.

use std::collections::VecDeque;
use std::sync::Arc;

use hither_core::placement::{
    AccessesWanted, Action, FileHost, FileHostSettings, HostAnswer, HostCall, IncomingBlock,
    PlacementEntry, log_line, start_line,
};
use hither_core::{Block, Node, Spec, Topology};
use rustc_hash::FxHashMap;

use super::event::Time;
use super::message::{Blocks, Frames, Keep};
use super::view::MemberId;
use crate::key::{ChunkKey, bits};

/// See the module.
#[derive(Debug)]
pub(super) struct Placer {
    host: FileHost,
    members: Vec<MemberId>,
    topology: Arc<Topology>,
    chunks: FxHashMap<ChunkKey, Numbers>,
    /// All chunks, in the order in which they are examined when one has to go.
    order: VecDeque<ChunkKey>,
    chunks_max: usize,
    /// Numbers of forgotten blocks.
    free: Vec<Block>,
    /// The number of blocks that ever were.
    used: u32,
    /// What is under way, with the time when it is given up, in that order.
    under_way: VecDeque<UnderWay>,
    order_ns: u64,
    now: Time,
    /// The time that the host knows.
    told: Time,
    /// Lines that were not taken yet, if a log is kept.
    log: Option<Vec<String>>,
}

/// What a [`Placer`] starts from.
#[derive(Clone, Debug)]
pub(super) struct PlacerSettings {
    pub(super) policy: Spec<PlacementEntry>,
    /// Distances between the members, in their order.
    pub(super) topology: Arc<Topology>,
    /// In ascending order; this node is one of them.
    pub(super) members: Vec<MemberId>,
    pub(super) me: MemberId,
    pub(super) chunks_max: usize,
    /// Time after which an order is given up.
    pub(super) order_ns: u64,
    /// Whether a log is kept.
    pub(super) logs: bool,
}

/// What is to be done with a copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It goes to another member.
    Send { to: MemberId, keep: Keep },
    /// A member drops its copy.
    Drop { at: MemberId },
}

/// The numbers of a chunk's blocks: those of `mask` have one each, in their order.
#[derive(Debug, Default)]
struct Numbers {
    mask: u64,
    blocks: Vec<Block>,
}

impl Numbers {
    fn get(&self, bit: u32) -> Option<Block> {
        let before = self.mask & ((1 << bit) - 1);
        let is_there = self.mask & 1 << bit != 0;
        is_there.then(|| self.blocks[before.count_ones() as usize])
    }
}

#[derive(Debug)]
struct UnderWay {
    until: Time,
    block: Block,
    action: Action,
}

/// Chunks examined when one has to go: bounds the time, not the quality.
const EXAMINED_MAX: usize = 64;

impl Placer {
    /// `None` if the policy is none for clusters.
    pub(super) fn new(settings: PlacerSettings) -> Option<Placer> {
        let at = number(&settings.members, settings.me)?;
        let host_settings = FileHostSettings {
            policy: settings.policy,
            topology: Arc::clone(&settings.topology),
            at,
            // Members say how many frames they have.
            capacity: vec![0; settings.members.len()],
            block_bytes: 0,
        };
        Some(Placer {
            host: FileHost::new(&host_settings)?,
            log: settings.logs.then(|| vec![start_line(&host_settings)]),
            members: settings.members,
            topology: settings.topology,
            chunks: FxHashMap::default(),
            order: VecDeque::new(),
            chunks_max: settings.chunks_max,
            free: Vec::new(),
            used: 0,
            under_way: VecDeque::new(),
            order_ns: settings.order_ns,
            now: Time::default(),
            told: Time::default(),
        })
    }

    fn call(&mut self, call: HostCall) -> HostAnswer {
        if self.told != self.now {
            self.told = self.now;
            self.make(HostCall::Time(self.now.0));
        }
        self.make(call)
    }

    fn make(&mut self, call: HostCall) -> HostAnswer {
        let answer = call.make(&mut self.host);
        if let Some(log) = &mut self.log {
            log.push(log_line(call, answer));
        }
        answer
    }

    /// Lines of an earlier placer come first.
    pub(super) fn go_on_with_log(&mut self, lines: Vec<String>) {
        if let Some(log) = &mut self.log {
            log.splice(0..0, lines);
        }
    }

    /// The lines of the log since the last call.
    pub(super) fn take_log(&mut self) -> Vec<String> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Which reads are to be reported.
    pub(super) fn accesses_wanted(&self) -> AccessesWanted {
        self.host.accesses_wanted()
    }

    /// Whether victims are to be asked for.
    pub(super) fn forwards(&self) -> bool {
        self.host.forwards()
    }

    /// The way from one member to another, in hops; 0 if one is unknown.
    pub(super) fn hops(&self, from: MemberId, to: MemberId) -> u32 {
        let nodes = number(&self.members, from).zip(number(&self.members, to));
        nodes.map_or(0, |(from, to)| self.topology.hops(from, to))
    }

    /// Sets the time, and gives up what was not confirmed.
    pub(super) fn set_now(&mut self, now: Time) {
        self.now = now;
        while let Some(first) = self.under_way.front().filter(|it| it.until <= now) {
            let (block, action) = (first.block, first.action);
            self.under_way.pop_front();
            if self.host.under_way(block) == Some(action) {
                self.call(HostCall::EndAction(block, false));
            }
        }
    }

    /// How full a member is. All homes hear of the same free frames, and none of them of what the
    /// others send there until the next ping: each counts on its share of them.
    pub(super) fn set_frames(&mut self, member: MemberId, frames: Frames) {
        if let Some(node) = number(&self.members, member) {
            let free = frames.free.min(frames.all) / self.members.len() as u32;
            self.call(HostCall::Frames(node, frames.all, free));
        }
    }

    /// Nobody holds a block, and `by` reads it from the source: who keeps it.
    pub(super) fn keeper(&mut self, chunk: ChunkKey, bit: u32, by: MemberId) -> MemberId {
        let Some(node) = number(&self.members, by) else {
            return by;
        };
        let block = self.block(chunk, bit);
        let keeper = self.call(HostCall::Place(block, node)).node();
        keeper.map_or(by, |keeper| self.members[keeper.index()])
    }

    /// A member has read a block: what is to be done with its copies.
    pub(super) fn on_read(&mut self, chunk: ChunkKey, bit: u32, by: MemberId) -> Option<Order> {
        let node = number(&self.members, by)?;
        let block = self.block(chunk, bit);
        let action = self.call(HostCall::Access(block, node)).action()?;
        let order = match action {
            Action::Migrate { to, .. } => Order::Send {
                to: self.members[to.index()],
                keep: Keep::Moved,
            },
            Action::Replicate { to, .. } => Order::Send {
                to: self.members[to.index()],
                keep: Keep::Copy,
            },
            // The host itself promotes.
            Action::Drop { at, .. } | Action::Promote { at, .. } => Order::Drop {
                at: self.members[at.index()],
            },
        };
        self.put_under_way(block, action);
        Some(order)
    }

    /// Orders for blocks are not carried out.
    pub(super) fn refused(&mut self, blocks: Blocks) {
        for bit in bits(blocks.mask) {
            if let Some(block) = self.known(blocks.chunk, bit) {
                self.call(HostCall::EndAction(block, false));
            }
        }
    }

    /// A member holds blocks now. Adds to `left` the copies that are to be dropped, since their
    /// blocks have moved.
    pub(super) fn held(&mut self, blocks: Blocks, by: MemberId, left: &mut Vec<(u32, MemberId)>) {
        let Some(node) = number(&self.members, by) else {
            return;
        };
        for bit in bits(blocks.mask) {
            let block = self.block(blocks.chunk, bit);
            if let Some(from) = self.call(HostCall::Added(block, node)).node() {
                left.push((bit, self.members[from.index()]));
            }
        }
    }

    /// A member holds blocks no longer.
    pub(super) fn dropped(&mut self, blocks: Blocks, by: MemberId) {
        let Some(node) = number(&self.members, by) else {
            return;
        };
        for bit in bits(blocks.mask) {
            if let Some(block) = self.known(blocks.chunk, bit) {
                self.call(HostCall::Removed(block, node));
            }
        }
    }

    /// A member did not keep blocks that it was sent.
    pub(super) fn not_kept(&mut self, blocks: Blocks, by: MemberId) {
        for bit in bits(blocks.mask) {
            let Some(block) = self.known(blocks.chunk, bit) else {
                continue;
            };
            let action = self.host.under_way(block);
            if let Some(Action::Migrate { to, .. } | Action::Replicate { to, .. }) = action
                && self.members[to.index()] == by
            {
                self.call(HostCall::EndAction(block, false));
            }
        }
    }

    /// A block leaves a member to make room for one that has moved there from another, or came from
    /// the source. Returns who takes it. If nobody does, the copy is gone; otherwise it is on its
    /// way.
    pub(super) fn victim(
        &mut self,
        chunk: ChunkKey,
        bit: u32,
        at: MemberId,
        moved_from: Option<MemberId>,
    ) -> Option<MemberId> {
        let (block, node) = (self.known(chunk, bit)?, number(&self.members, at)?);
        let incoming = IncomingBlock {
            from: moved_from.and_then(|from| number(&self.members, from)),
            migrates: moved_from.is_some(),
        };
        let to = self.call(HostCall::Victim(block, node, incoming)).node()?;
        self.put_under_way(block, Action::Migrate { block, to });
        Some(self.members[to.index()])
    }

    fn put_under_way(&mut self, block: Block, action: Action) {
        self.under_way.push_back(UnderWay {
            until: self.now.after(self.order_ns),
            block,
            action,
        });
    }

    fn known(&self, chunk: ChunkKey, bit: u32) -> Option<Block> {
        self.chunks.get(&chunk)?.get(bit)
    }

    /// The number of a block.
    fn block(&mut self, chunk: ChunkKey, bit: u32) -> Block {
        if let Some(block) = self.known(chunk, bit) {
            return block;
        }
        if !self.chunks.contains_key(&chunk) {
            let is_full = self.chunks.len() >= self.chunks_max;
            if is_full || self.used - self.free.len() as u32 > self.blocks_max() {
                self.forget_one(is_full);
            }
            self.order.push_back(chunk);
        }
        let block = match self.free.pop() {
            Some(block) => block,
            None => {
                self.used += 1;
                if self.used > self.host.nodes().blocks() {
                    self.call(HostCall::Grow(self.used));
                }
                Block(self.used - 1)
            }
        };
        let numbers = self.chunks.entry(chunk).or_default();
        let before = numbers.mask & ((1 << bit) - 1);
        numbers.blocks.insert(before.count_ones() as usize, block);
        numbers.mask |= 1 << bit;
        block
    }

    /// Blocks from which on those are forgotten that nobody holds: twice this home's share of all
    /// frames.
    fn blocks_max(&self) -> u32 {
        let nodes = self.host.nodes();
        let frames: u64 = nodes.all().map(|it| u64::from(nodes.capacity(it))).sum();
        u32::try_from(2 * frames / nodes.len() as u64).unwrap_or(u32::MAX)
    }

    /// Forgets a chunk of which nobody holds anything; without one, any chunk if one `must` go.
    fn forget_one(&mut self, must: bool) {
        for last in (0..EXAMINED_MAX.min(self.order.len())).rev() {
            let Some(chunk) = self.order.pop_front() else {
                return;
            };
            let blocks = self.chunks.get(&chunk).map(|it| &it.blocks);
            let mut blocks = blocks.into_iter().flatten();
            let is_held = blocks.any(|&block| self.host.nodes().home(block).is_some());
            if is_held && (last > 0 || !must) {
                self.order.push_back(chunk);
                continue;
            }
            let numbers = self.chunks.remove(&chunk).unwrap_or_default();
            for &block in &numbers.blocks {
                self.call(HostCall::Forget(block));
            }
            self.free.extend(numbers.blocks);
            return;
        }
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self) {
        self.host.check();
        assert_eq!(self.order.len(), self.chunks.len());
        assert!(self.chunks.len() <= self.chunks_max.max(1));
        let mut numbers: Vec<Block> = self.free.clone();
        for chunk in self.chunks.values() {
            assert_eq!(chunk.mask.count_ones() as usize, chunk.blocks.len());
            numbers.extend(&chunk.blocks);
        }
        numbers.sort_unstable();
        assert!(numbers.iter().map(|it| it.0).eq(0..self.used));
    }
}

fn number(members: &[MemberId], member: MemberId) -> Option<Node> {
    let at = members.binary_search(&member).ok()?;
    Some(Node(at as u16))
}
