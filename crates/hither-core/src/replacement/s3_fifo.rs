//! S3-FIFO: three first-in-first-out queues. New blocks enter a small queue; those that are used
//! there go on to the main queue, and the others are evicted and leave a ghost. A block that
//! returns while it is a ghost goes straight to the main queue, where each use gives it another
//! round.
//!
//! Source: Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction",
//! SOSP 2023, section 4 and algorithm 1, and its authors' implementation in libCacheSim. Where the
//! two differ, this follows libCacheSim:
//! - The main queue is not cut as soon as a block moves there: the small queue goes on until it has
//!   evicted a block or is empty, and the next eviction is from the main queue while that is above
//!   its share.
//! - Ghosts are bounded by their number, 90 % of the capacity, not counting those that returned;
//!   the paper ages them by evictions.
//! - Until the first eviction, blocks for which the small queue has no room go to the main queue.
//!
//! Departure: the small queue has at least one block, and so have the ghosts, so that every size
//! works. libCacheSim admits nothing where the small queue's share is below two blocks.
//!
//! Variants, as parameters:
//! - `as=qd-lp` is QD-LP-FIFO: Yang, Qiu, Zhang, Yue and Rashmi, "FIFO can be better than LRU: the
//!   power of lazy promotion and quick demotion", HotOS 2023. One use in the small queue is enough.
//!   The turns at which each queue gives a victim are S3-FIFO's.
//! - `as=s3-fifo-d` is S3-FIFO-D (SOSP 2023, section 6.2), with the numbers of libCacheSim's
//!   `S3FIFOd`: it remembers the last victims of each queue, 10 % of the cache each (`history`). If
//!   those of one queue come back twice as often as the other's, that queue grows by a thousandth.
//!   libCacheSim looks at this on each request and compares what its main queue evicts to make room
//!   at once, and its ghosts grow with the small queue, so its counts differ.
//! - `as=clock2q+` is Clock2Q+ as libCacheSim 0.3.5 has it: in the small queue, a use only counts
//!   once so many newcomers came in after the block, half a small queue (`window`); a use keeps a
//!   block in the main queue for one more round (`rounds`).
//!
//! The source knows one cache. A block that moves here from another one was popular there: it goes
//! straight to the main queue, with one use. The small queue would evict it before its next use,
//! and moving blocks would cost the hits that the moves were to make cheaper.

mod adaptation;

use super::{Replacement, share};
use crate::access::Access;
use crate::cache::ReplacementPolicy;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ParamKind, Preset, ReplacementEntry, ReplacementSettings,
    Value, Values,
};
use crate::ghost_list::GhostList;
use crate::ids::{Block, Slot};
use crate::list::Links;
use crate::weight::{self, Bytes, Part, Unit, Weight, Weights};
use adaptation::Adaptation;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "s3-fifo",
    summary: "three queues: only blocks that are used in a small one enter the main one",
    source: "Yang et al., SOSP 2023",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &build,
};

fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let config = S3FifoConfig {
        small: values.real(0),
        ghost: values.real(1),
        threshold: values.count(2) as u8,
        rounds: values.count(3) as u8,
        window: values.real(4),
        history: values.real(5),
    };
    match settings.bytes {
        None => Box::new(S3Fifo::<Unit>::new(settings.capacity.into(), config)),
        Some(bytes) => Box::new(S3Fifo::<Bytes>::new(bytes, config)),
    }
}

/// Defaults as in the paper.
const PARAMS: &[Param] = &[
    Param::real(
        "small",
        "the small queue's share of the cache",
        0.1,
        0.0..=1.0,
    ),
    Param::real(
        "ghost",
        "how many evicted blocks are remembered, as a share of the cache",
        0.9,
        0.0..=100.0,
    ),
    Param::count(
        "threshold",
        "the uses in the small queue after which a block goes on to the main one",
        2,
        1..=255,
    ),
    Param::count(
        "rounds",
        "the most rounds in the main queue that uses earn; 3 is a two-bit counter",
        3,
        1..=255,
    ),
    Param::real(
        "window",
        "a use in the small queue counts after so much came in behind the block, as a share of it",
        0.0,
        0.0..=1.0,
    ),
    Param::real(
        "history",
        "how many victims of each queue tell how large the small one is, as a share of the cache; \
         0: its size is fixed",
        0.0,
        0.0..=100.0,
    ),
    Param {
        name: "as",
        doc: "a published variant, but for parameters that are given beside it",
        kind: ParamKind::Preset {
            default: "s3-fifo",
            presets: &[
                Preset {
                    name: "s3-fifo",
                    values: &[],
                },
                Preset {
                    name: "qd-lp",
                    values: &[("threshold", Value::Count(1))],
                },
                Preset {
                    name: "s3-fifo-d",
                    values: &[("history", Value::Real(0.1))],
                },
                Preset {
                    name: "clock2q+",
                    values: &[
                        ("threshold", Value::Count(1)),
                        ("rounds", Value::Count(1)),
                        ("window", Value::Real(0.5)),
                    ],
                },
            ],
        },
    },
];

/// The parameters of S3-FIFO. Sizes are shares of the capacity.
#[derive(Clone, Copy, Debug)]
pub struct S3FifoConfig {
    /// The share of the small queue.
    pub small: f64,
    /// The share of the remembered blocks.
    pub ghost: f64,
    /// The uses in the small queue that take a block to the main one.
    pub threshold: u8,
    /// The most rounds in the main queue that uses earn.
    pub rounds: u8,
    /// What has to come in before a use in the small queue counts, as a share of that queue.
    pub window: f64,
    /// The share of the victims that are remembered of each queue to adapt the share of the small
    /// one; 0: it does not adapt.
    pub history: f64,
}

impl Default for S3FifoConfig {
    fn default() -> Self {
        S3FifoConfig {
            small: 0.1,
            ghost: 0.9,
            threshold: 2,
            rounds: 3,
            window: 0.0,
            history: 0.0,
        }
    }
}

/// A block in the cache.
#[derive(Clone, Copy, Debug)]
struct Held {
    block: Block,
    /// The uses since it came in or last passed the end of its queue.
    uses: u8,
    is_main: bool,
}

impl Default for Held {
    fn default() -> Self {
        Held {
            block: Block(0),
            uses: 0,
            is_main: false,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct S3Fifo<W = Unit> {
    config: S3FifoConfig,
    capacity: u64,
    small_max: u64,
    window: u64,
    ghosts_max: u64,
    small: Part<W>,
    main: Part<W>,
    links: Links,
    /// By slot.
    held: Vec<Held>,
    weight: Weights<W>,
    ghosts: GhostList<W>,
    full_once: bool,
    /// What has entered the small queue.
    entered: u64,
    /// By slot, what had entered the small queue when it had; only where there is a window.
    entered_at: Vec<u64>,
    adaptation: Option<Adaptation<W>>,
}

impl<W: Weight> S3Fifo<W> {
    /// For a cache of `capacity` blocks or bytes.
    pub fn new(capacity: u64, config: S3FifoConfig) -> Self {
        let mut policy = S3Fifo {
            config,
            capacity,
            small_max: 0,
            window: 0,
            ghosts_max: 0,
            small: Part::default(),
            main: Part::default(),
            links: Links::default(),
            held: Vec::new(),
            weight: Weights::default(),
            ghosts: GhostList::default(),
            full_once: false,
            entered: 0,
            entered_at: Vec::new(),
            adaptation: (config.history > 0.0).then(|| Adaptation::new(0)),
        };
        policy.divide(capacity);
        policy
    }

    fn divide(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.small_max = share(capacity, self.config.small);
        self.window = (self.small_max as f64 * self.config.window) as u64;
        self.ghosts_max = share(capacity, self.config.ghost);
        self.ghosts.cut(self.ghosts_max);
        if let Some(adaptation) = &mut self.adaptation {
            adaptation.resize(share(capacity, self.config.history));
        }
    }

    /// Evicts from the small queue, moving on those that were used often enough; none if all were.
    fn evict_small(&mut self) -> Option<u32> {
        while let Some(slot) = self.small.pop_back(&mut self.links, &self.weight) {
            if self.held[slot as usize].uses < self.config.threshold {
                let weight = self.weight.of(slot);
                self.ghosts.push(self.held[slot as usize].block, weight);
                return Some(slot);
            }
            self.held[slot as usize].uses = 0;
            self.held[slot as usize].is_main = true;
            self.main.push_front(&mut self.links, slot, &self.weight);
        }
        None
    }

    /// A block is no ghost any more. Returns whether it was one.
    fn forget_ghost(&mut self, block: Block) -> bool {
        let known = self.ghosts.take(block);
        // Only after the block has left the ghosts, so that no other ghost is cut for it.
        self.ghosts.cut(self.ghosts_max);
        known
    }

    fn enter(&mut self, slot: Slot, is_main: bool) {
        self.held[slot.index()].is_main = is_main;
        if !is_main && self.config.window > 0.0 {
            self.entered += self.weight.of(slot.0).get();
            weight::set(&mut self.entered_at, slot, self.entered);
        }
        let queue = if is_main {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.push_front(&mut self.links, slot.0, &self.weight);
    }

    fn evict_main(&mut self) -> u32 {
        loop {
            let slot = self
                .main
                .pop_back(&mut self.links, &self.weight)
                .expect("a full cache has blocks");
            match self.held[slot as usize].uses.min(self.config.rounds) {
                0 => return slot,
                uses => self.held[slot as usize].uses = uses - 1,
            }
            self.main.push_front(&mut self.links, slot, &self.weight);
        }
    }

    /// A block comes in, with so many uses. Returns whether it was a ghost.
    fn come_in(&mut self, slot: Slot, access: &Access, uses: u8) -> bool {
        let held = Held {
            block: access.block,
            uses,
            is_main: false,
        };
        weight::set(&mut self.held, slot, held);
        self.weight.set(slot, access);
        if let Some(adaptation) = &mut self.adaptation {
            self.small_max = adaptation.missed(access.block, self.small_max, self.capacity);
        }
        self.forget_ghost(access.block)
    }
}

impl<W: Weight> Replacement for S3Fifo<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if self.window > 0 && !self.held[slot.index()].is_main {
            let since = self.entered - self.entered_at[slot.index()];
            if since < self.window {
                return;
            }
        }
        let uses = &mut self.held[slot.index()].uses;
        *uses = uses.saturating_add(1);
    }

    /// As in libCacheSim, an object larger than the small queue is not brought in.
    fn admits(&mut self, incoming: &Access) -> bool {
        incoming.bytes <= self.small_max
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        self.full_once = true;
        let small = if self.main.weight() > self.capacity - self.small_max {
            None
        } else {
            self.evict_small()
        };
        let slot = small.unwrap_or_else(|| self.evict_main());
        if let Some(adaptation) = &mut self.adaptation {
            let (block, weight) = (self.held[slot as usize].block, self.weight.of(slot));
            adaptation.evicted(block, small.is_none(), weight);
        }
        Slot(slot)
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        let known = self.come_in(slot, access, 0);
        let is_main = known || !self.full_once && self.small.weight() >= self.small_max;
        self.enter(slot, is_main);
    }

    fn moved_in(&mut self, slot: Slot, access: &Access) {
        self.come_in(slot, access, 1);
        self.enter(slot, true);
    }

    fn removed(&mut self, slot: Slot) {
        let queue = if self.held[slot.index()].is_main {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.remove(&mut self.links, slot.0, &self.weight);
    }

    fn resized(&mut self, capacity: u32) {
        self.divide(capacity.into());
    }

    fn check(&self, resident: usize) {
        self.small.check(&self.links, &self.weight);
        self.main.check(&self.links, &self.weight);
        let (small, main) = (self.small.list(), self.main.list());
        assert_eq!(small.len() + main.len(), resident);
        let is_main = |slot: u32| self.held[slot as usize].is_main;
        assert!(!small.iter(&self.links).any(is_main));
        assert!(main.iter(&self.links).all(is_main));
        assert!((1..=self.capacity.max(1)).contains(&self.small_max));
        let slots = small.iter(&self.links).chain(main.iter(&self.links));
        let blocks: Vec<Block> = slots.map(|slot| self.held[slot as usize].block).collect();
        self.ghosts.check(self.ghosts_max, blocks.iter().copied());
        if let Some(adaptation) = &self.adaptation {
            adaptation.check(blocks.iter().map(|block| block.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten slots, one of them for the small queue. Newcomers that are not used push each other out.
    #[test]
    fn a_block_that_moves_in_is_no_newcomer() {
        for moves in [false, true] {
            let mut policy = S3Fifo::<Unit>::new(10, S3FifoConfig::default());
            let access = |block: u32| Access::bare(0, Block(block));
            for slot in 0..10 {
                policy.inserted(Slot(slot), &access(slot));
            }
            let slot = policy.victim(&access(10));
            if moves {
                policy.moved_in(slot, &access(10))
            } else {
                policy.inserted(slot, &access(10))
            }
            policy.check(10);
            let outlived = (11..40).take_while(|&block| {
                let victim = policy.victim(&access(block));
                policy.inserted(victim, &access(block));
                policy.check(10);
                victim != slot
            });
            assert_eq!(outlived.count(), if moves { 29 } else { 0 });
        }
    }
}
