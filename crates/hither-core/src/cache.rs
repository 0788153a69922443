//! The contents of a cache: which block is in which slot, which slots are free, and the counts of
//! hits and misses.
//!
//! Residency is separate from the policy, so that a policy only ranks slots, and the simulator and
//! the live agent account for blocks with the same code.

use crate::access::Access;
use crate::ids::{Block, Slot};
use crate::list::NIL;
use crate::replacement::Replacement;
use crate::sized::{Life, SizedResidency};

/// How an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessResult {
    /// The block was in the cache.
    Hit,
    /// The block was not in the cache, and was brought in.
    Miss {
        /// The block that was evicted for it, if one had to be.
        evicted: Option<Block>,
    },
}

/// The contents of a cache of fixed capacity.
#[derive(Clone, Debug)]
pub struct Residency {
    capacity: u32,
    /// By block; grows as blocks appear, so that the live agent need not know them in advance.
    slot_of: Vec<u32>,
    /// By slot; as long as the highest slot ever filled, so that a cache larger than its trace
    /// takes no more memory.
    block_of: Vec<u32>,
    free: Vec<u32>,
    hits: u64,
    misses: u64,
}

impl Residency {
    /// An empty cache of `capacity` blocks, at least one. `blocks` is the expected number of
    /// distinct blocks: a hint.
    pub fn new(capacity: u32, blocks: usize) -> Self {
        assert!(capacity > 0, "a cache holds at least one block");
        Residency {
            capacity,
            slot_of: vec![NIL; blocks],
            block_of: Vec::new(),
            free: Vec::new(),
            hits: 0,
            misses: 0,
        }
    }

    /// Serves one access. On a miss the block is always brought in; if no slot is free, `policy`
    /// names the one to evict, and it may name one while there are free slots.
    #[inline]
    pub fn access<P: Replacement + ?Sized>(
        &mut self,
        policy: &mut P,
        access: &Access,
    ) -> AccessResult {
        let block = access.block.index();
        if block >= self.slot_of.len() {
            self.slot_of.resize(block + 1, NIL);
        }
        let slot = self.slot_of[block];
        if slot != NIL {
            self.hits += 1;
            policy.hit(Slot(slot), access);
            return AccessResult::Hit;
        }
        self.misses += 1;
        let full = self.free.is_empty() && self.block_of.len() == self.capacity as usize;
        let victim = if full {
            Some(policy.victim(access))
        } else {
            policy.discarded(access)
        };
        let (slot, evicted) = if let Some(Slot(slot)) = victim {
            let evicted = std::mem::replace(&mut self.block_of[slot as usize], access.block.0);
            assert_ne!(evicted, NIL, "the victim's slot {slot} is empty");
            self.slot_of[evicted as usize] = NIL;
            (slot, Some(Block(evicted)))
        } else if let Some(slot) = self.free.pop() {
            self.block_of[slot as usize] = access.block.0;
            (slot, None)
        } else {
            self.block_of.push(access.block.0);
            (self.block_of.len() as u32 - 1, None)
        };
        self.slot_of[block] = slot;
        policy.inserted(Slot(slot), access);
        AccessResult::Miss { evicted }
    }

    /// Prefetches the slots of the next accesses into the processor's cache. These loads are
    /// independent of one another, whereas those of [`Residency::access`] wait for the branches
    /// before them.
    #[inline]
    pub(crate) fn prefetch(&self, accesses: &[Access]) {
        let slots = accesses
            .iter()
            .map(|access| self.slot_of.get(access.block.index()));
        std::hint::black_box(slots.fold(0, |sum: u32, slot| sum ^ slot.copied().unwrap_or(0)));
    }

    /// Removes a block that left from outside (invalidated, truncated). False if it was not in the
    /// cache.
    pub fn remove<P: Replacement + ?Sized>(&mut self, policy: &mut P, block: Block) -> bool {
        let Some(slot) = self.slot(block) else {
            return false;
        };
        policy.removed(slot);
        self.slot_of[block.index()] = NIL;
        self.block_of[slot.index()] = NIL;
        self.free.push(slot.0);
        true
    }

    /// The slot that holds `block`.
    pub fn slot(&self, block: Block) -> Option<Slot> {
        match self.slot_of.get(block.index()) {
            Some(&slot) if slot != NIL => Some(Slot(slot)),
            _ => None,
        }
    }

    /// The block in `slot`.
    pub fn block(&self, slot: Slot) -> Option<Block> {
        match self.block_of.get(slot.index()) {
            Some(&block) if block != NIL => Some(Block(block)),
            _ => None,
        }
    }

    /// The resident blocks, by slot.
    pub fn resident(&self) -> impl Iterator<Item = Block> + '_ {
        self.block_of
            .iter()
            .filter(|&&block| block != NIL)
            .map(|&block| Block(block))
    }

    /// How many blocks are in the cache.
    pub fn len(&self) -> usize {
        self.block_of.len() - self.free.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many blocks fit.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Accesses that found their block in the cache.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Accesses that did not.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Panics unless both maps agree and every slot is either filled or free, once.
    pub fn check(&self) {
        for (slot, &block) in self.block_of.iter().enumerate() {
            let free = self.free.contains(&(slot as u32));
            assert_eq!(block == NIL, free, "slot {slot} is neither filled nor free");
            assert!(
                free || self.slot_of[block as usize] as usize == slot,
                "block {block} is not where slot {slot} says"
            );
        }
        let placed = self.slot_of.iter().filter(|&&slot| slot != NIL).count();
        assert_eq!(
            placed,
            self.len(),
            "a block has a slot that does not hold it"
        );
        assert!(self.block_of.len() <= self.capacity as usize);
    }
}

/// A policy behind one pointer. Calling [`ReplacementPolicy::drive`] costs one indirect call a
/// batch, not one an access: the loop inside is compiled for each policy.
pub trait ReplacementPolicy: Replacement + Send {
    /// Serves a batch of accesses in order.
    fn drive(&mut self, cache: &mut Residency, batch: &[Access]);

    /// Serves a batch of accesses to objects of every size. `lives` is as long, or empty where
    /// nothing expires.
    fn drive_sized(&mut self, cache: &mut SizedResidency, batch: &[Access], lives: &[Life]);
}

/// Accesses that are looked up before the first of them is served.
const PREFETCH_ACCESSES: usize = 16;

impl<P: Replacement + Send> ReplacementPolicy for P {
    fn drive(&mut self, cache: &mut Residency, batch: &[Access]) {
        for few in batch.chunks(PREFETCH_ACCESSES) {
            cache.prefetch(few);
            for access in few {
                cache.access(self, access);
            }
        }
    }

    fn drive_sized(&mut self, cache: &mut SizedResidency, batch: &[Access], lives: &[Life]) {
        let mut lives = lives.iter().copied();
        for few in batch.chunks(PREFETCH_ACCESSES) {
            cache.prefetch(few);
            for access in few {
                cache.access(self, access, lives.next().unwrap_or_default());
            }
        }
    }
}
