//! Low inter-reference recency set: most of the cache holds blocks whose last two references were
//! close together (LIR). The rest, a small part, is a queue (Q) through which all other blocks
//! pass. A stack (S) of the latest references, down to the least recent LIR block, distinguishes
//! them: a block that is referenced while it is in S becomes LIR, and the bottom LIR block goes
//! into Q instead.
//!
//! Source: Jiang and Zhang, "LIRS: an efficient low inter-reference recency set replacement policy
//! to improve buffer cache performance", SIGMETRICS 2002, section 3. Where the paper leaves a
//! choice, this follows the authors' own program (lirs.c, 2002, and its successor in LIRS2, 2021),
//! whose miss counts this file reproduces:
//! - The queue has 1 % of the cache, rounded down, but at least 2 blocks.
//! - S is not bounded, so it may remember every block of the trace, at 13 bytes a block. `stack`
//!   bounds it; then, as in the authors' program, the least recent block of S that is not LIR
//!   leaves first, resident or not.
//! - A reference to the same block as the one before counts as a hit and changes nothing.
//! - While there is room for LIR blocks, a referenced block becomes LIR at once.
//!
//! Departures: the authors' program needs at least 10 blocks. Here the queue leaves at least one
//! block to the LIR set from 2 blocks up, and a cache of one block has no LIR set. S is empty as
//! long as there is no LIR block, because nothing would bound it. A block that is removed from
//! outside leaves S as well.

use super::Replacement;
use crate::access::Access;
use crate::cache::ReplacementPolicy;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
};
use crate::ids::Slot;
use crate::list::{Links, List, NIL};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lirs",
    summary: "keeps the blocks with the shortest distance between their last two references",
    source: "Jiang and Zhang, SIGMETRICS 2002",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &build,
};

const PARAMS: &[Param] = &[
    Param::real(
        "queue",
        "the percentage of the cache that is the queue of resident blocks that are not LIR",
        1.0,
        0.0..=100.0,
    ),
    Param::count(
        "queue_min",
        "the least size of that queue in blocks, where the cache has more",
        2,
        1..=1 << 30,
    ),
    Param::count(
        "stack",
        "the most blocks on the stack, in multiples of the cache; 0: no bound",
        0,
        0..=1 << 30,
    ),
];

fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let config = LirsConfig {
        queue_share: values.real(0) / 100.0,
        queue_min: values.count(1) as u32,
        stack_bound: values.count(2),
    };
    Box::new(Lirs::new(settings.capacity, config))
}

/// The parameters of LIRS.
#[derive(Clone, Copy, Debug)]
pub struct LirsConfig {
    /// The share of the cache that is the queue.
    pub queue_share: f64,
    /// The least number of blocks in it.
    pub queue_min: u32,
    /// The most blocks on the stack, in multiples of the cache; 0: no bound.
    pub stack_bound: u64,
}

impl LirsConfig {
    /// How many blocks may be LIR.
    fn lir_max(&self, capacity: u32) -> u32 {
        let queue = ((self.queue_share * f64::from(capacity)) as u32).max(self.queue_min);
        capacity - queue.min(capacity - 1).max(1)
    }
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LirsState {
    /// Neither resident nor on the stack.
    Out,
    /// Low inter-reference recency: resident and on the stack.
    Lir,
    /// In the queue and on the stack.
    Both,
    /// In the queue alone.
    Queued,
    /// On the stack alone.
    Ghost,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lirs {
    config: LirsConfig,
    lir_max: u32,
    lir_len: u32,
    stack_max: u64,
    /// The block referenced last.
    last: u32,
    /// By block.
    state: Vec<LirsState>,
    slot_of: Vec<u32>,
    /// S, over blocks.
    stack: List,
    stack_links: Links,
    /// The blocks of S that are not LIR, in the same order; kept only where S is bounded.
    others: List,
    others_links: Links,
    /// By slot.
    block_of: Vec<u32>,
    /// Q, over slots.
    queue: List,
    queue_links: Links,
}

impl Lirs {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, config: LirsConfig) -> Self {
        Lirs {
            config,
            lir_max: config.lir_max(capacity),
            lir_len: 0,
            stack_max: config.stack_bound * u64::from(capacity),
            last: NIL,
            state: Vec::new(),
            slot_of: Vec::new(),
            stack: List::default(),
            stack_links: Links::default(),
            others: List::default(),
            others_links: Links::default(),
            block_of: vec![NIL; capacity as usize],
            queue: List::default(),
            queue_links: Links::new(capacity as usize),
        }
    }

    fn bounded(&self) -> bool {
        self.config.stack_bound > 0
    }

    /// Handles a reference to a block that is neither LIR nor, at this moment, in the queue.
    fn reference(&mut self, slot: Slot, block: u32) {
        let state = self.state[block as usize];
        let on_stack = matches!(state, LirsState::Both | LirsState::Ghost);
        if on_stack {
            self.leave_stack(block);
        }
        if on_stack || self.lir_len < self.lir_max {
            self.state[block as usize] = LirsState::Lir;
            self.stack.push_front(&mut self.stack_links, block);
            self.lir_len += 1;
            self.demote();
            return;
        }
        self.queue.push_front(&mut self.queue_links, slot.0);
        if self.lir_len == 0 {
            self.state[block as usize] = LirsState::Queued;
            return;
        }
        self.state[block as usize] = LirsState::Both;
        self.stack.push_front(&mut self.stack_links, block);
        if self.bounded() {
            self.others.push_front(&mut self.others_links, block);
            self.cut_stack();
        }
    }

    /// Removes a block that is not LIR from the stack; the caller sets its state.
    #[inline]
    fn leave_stack(&mut self, block: u32) {
        self.stack.remove(&mut self.stack_links, block);
        if self.bounded() {
            self.others.remove(&mut self.others_links, block);
        }
    }

    /// A block that is not LIR is no longer on the stack.
    fn forget(&mut self, block: u32) {
        self.leave_stack(block);
        let state = &mut self.state[block as usize];
        *state = match state {
            LirsState::Both => LirsState::Queued,
            _ => LirsState::Out,
        };
    }

    /// Moves LIR blocks from the bottom of the stack into the queue until their number is within
    /// its bound.
    fn demote(&mut self) {
        while self.lir_len > self.lir_max {
            let block = self
                .stack
                .pop_back(&mut self.stack_links)
                .expect("the bottom of the stack is LIR");
            self.lir_len -= 1;
            self.state[block as usize] = LirsState::Queued;
            self.queue
                .push_front(&mut self.queue_links, self.slot_of[block as usize]);
            self.prune();
        }
    }

    /// Removes blocks from the bottom of the stack until the bottom block is LIR.
    fn prune(&mut self) {
        while let Some(block) = self.stack.back() {
            if self.state[block as usize] == LirsState::Lir {
                break;
            }
            self.forget(block);
        }
    }

    fn cut_stack(&mut self) {
        while self.stack.len() as u64 > self.stack_max {
            let Some(block) = self.others.back() else {
                break;
            };
            self.forget(block);
        }
    }
}

impl Replacement for Lirs {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        if std::mem::replace(&mut self.last, block) == block {
            return;
        }
        if self.state[block as usize] == LirsState::Lir {
            let bottom = self.stack.back() == Some(block);
            self.stack.touch(&mut self.stack_links, block);
            if bottom {
                self.prune();
            }
        } else {
            self.queue.remove(&mut self.queue_links, slot.0);
            self.reference(slot, block);
        }
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        let slot = self
            .queue
            .pop_back(&mut self.queue_links)
            .expect("the LIR blocks do not fill the cache");
        let state = &mut self.state[self.block_of[slot as usize] as usize];
        *state = match state {
            LirsState::Both => LirsState::Ghost,
            _ => LirsState::Out,
        };
        Slot(slot)
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        if block as usize >= self.state.len() {
            self.state.resize(block as usize + 1, LirsState::Out);
            self.slot_of.resize(block as usize + 1, NIL);
            self.stack_links.cover(block);
            if self.bounded() {
                self.others_links.cover(block);
            }
        }
        self.last = block;
        self.block_of[slot.index()] = block;
        self.slot_of[block as usize] = slot.0;
        self.reference(slot, block);
    }

    fn removed(&mut self, slot: Slot) {
        let block = self.block_of[slot.index()];
        let state = std::mem::replace(&mut self.state[block as usize], LirsState::Out);
        match state {
            LirsState::Lir => {
                self.stack.remove(&mut self.stack_links, block);
                self.lir_len -= 1;
                self.prune();
            }
            LirsState::Both => {
                self.leave_stack(block);
                self.queue.remove(&mut self.queue_links, slot.0);
            }
            _ => self.queue.remove(&mut self.queue_links, slot.0),
        }
    }

    fn resized(&mut self, capacity: u32) {
        self.lir_max = self.config.lir_max(capacity);
        self.stack_max = self.config.stack_bound * u64::from(capacity);
        self.demote();
        if self.bounded() {
            self.cut_stack();
        }
    }

    fn check(&self, resident: usize) {
        self.stack.check(&self.stack_links);
        self.others.check(&self.others_links);
        self.queue.check(&self.queue_links);
        let count = |kind| self.state.iter().filter(|&&state| state == kind).count();
        let lir = count(LirsState::Lir);
        assert_eq!(lir, self.lir_len as usize);
        assert!(self.lir_len <= self.lir_max);
        assert_eq!(lir + self.queue.len(), resident);
        assert_eq!(
            count(LirsState::Both) + count(LirsState::Queued),
            self.queue.len()
        );
        let on_stack = count(LirsState::Both) + count(LirsState::Ghost);
        assert_eq!(lir + on_stack, self.stack.len());
        let is = |block: u32, kind| self.state[block as usize] == kind;
        assert!(
            self.stack
                .back()
                .is_none_or(|block| is(block, LirsState::Lir)),
            "the stack is not pruned"
        );
        for block in self.stack.iter(&self.stack_links) {
            assert!(!is(block, LirsState::Out) && !is(block, LirsState::Queued));
            if is(block, LirsState::Lir) {
                let slot = self.slot_of[block as usize];
                assert_eq!(self.block_of[slot as usize], block);
            }
        }
        for slot in self.queue.iter(&self.queue_links) {
            let block = self.block_of[slot as usize];
            assert!(is(block, LirsState::Both) || is(block, LirsState::Queued));
        }
        if self.bounded() {
            let others = self.others.iter(&self.others_links);
            let on_stack = self.stack.iter(&self.stack_links);
            assert!(others.eq(on_stack.filter(|&block| !is(block, LirsState::Lir))));
            assert!(self.stack.len() as u64 <= self.stack_max.max(lir as u64));
        }
    }
}
