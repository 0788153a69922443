//! Adaptive replacement cache: two recency lists, of blocks seen once (T1) and more than once (T2),
//! each continued by a ghost list of blocks recently evicted from it (B1, B2). A hit in a ghost
//! list moves the target size `p` of T1 in favour of the list that would have had the hit.
//!
//! Source: Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003,
//! figure 4; `p` is a real number, as there. Departures, which change no decision unless blocks are
//! removed from outside:
//! - The ghost lists are cut after the insertion rather than before the replacement. The order
//!   makes no difference: the oldest ghost is cut, and where T1 fills the cache alone its victim
//!   passes through B1 and is cut at once.
//! - While slots are free (with ghosts present, only after removals from outside) a ghost hit
//!   promotes its block but does not change `p`: nothing had to be replaced, so nothing was learnt
//!   about what to replace.
//!
//! Of objects with sizes, all lengths are in bytes, and so are the steps of `p`: the paper's times
//! the size of the object that returns. libCacheSim moves `p` by the paper's numbers, in bytes,
//! which is next to nothing.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ghost_pair::{GhostKind, GhostPair};
use crate::ids::Slot;
use crate::list::Links;
use crate::weight::{self, Bytes, Part, Unit, Weight, Weights};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "arc",
    summary: "balances recency and frequency, and adapts to hits in its ghost lists",
    source: "Megiddo and Modha, FAST 2003",
    params: &[],
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::Everywhere(2),
    build: &|settings, _| match settings.bytes {
        None => Box::new(Arc::<Unit>::new(settings.capacity.into())),
        Some(bytes) => Box::new(Arc::<Bytes>::new(bytes)),
    },
};

/// A block in the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    block: u32,
    /// Whether it is in T2.
    is_often: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Arc<W = Unit> {
    capacity: u64,
    /// The target size of `once`, from 0 to the capacity.
    target: f64,
    slots: Links,
    /// T1 and T2, over slots.
    once: Part<W>,
    often: Part<W>,
    /// By slot.
    held: Vec<Held>,
    weight: Weights<W>,
    ghosts: GhostPair<W>,
    /// Whether the target was adapted for the block that is to come in.
    adapted: bool,
}

impl<W: Weight> Arc<W> {
    /// For a cache of `capacity` blocks or bytes.
    pub fn new(capacity: u64) -> Self {
        Arc {
            capacity,
            target: 0.0,
            slots: Links::default(),
            once: Part::default(),
            often: Part::default(),
            held: Vec::new(),
            weight: Weights::default(),
            ghosts: GhostPair::default(),
            adapted: false,
        }
    }

    fn cut_ghosts(&mut self) {
        let (once, often) = (self.once.weight(), self.often.weight());
        self.ghosts.cut(once, often, self.capacity);
    }
}

impl<W: Weight> Replacement for Arc<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if std::mem::replace(&mut self.held[slot.index()].is_often, true) {
            self.often.touch(&mut self.slots, slot.0);
        } else {
            self.once.remove(&mut self.slots, slot.0, &self.weight);
            self.often.push_front(&mut self.slots, slot.0, &self.weight);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Slot {
        let ghost = self.ghosts.kind(incoming.block.0);
        if !std::mem::replace(&mut self.adapted, true) {
            let weight = W::of(incoming);
            self.target = self
                .ghosts
                .adapted(ghost, self.target, self.capacity, weight);
        }
        let once = self.once.weight() as f64;
        let from_once = !self.once.list().is_empty()
            && (once > self.target
                || (ghost == GhostKind::Often && once == self.target)
                || self.often.list().is_empty());
        let (list, kind) = if from_once {
            (&mut self.once, GhostKind::Once)
        } else {
            (&mut self.often, GhostKind::Often)
        };
        let slot = list
            .pop_back(&mut self.slots, &self.weight)
            .expect("a full cache has a block in one of the two lists");
        let weight = self.weight.of(slot);
        self.ghosts
            .remember(self.held[slot as usize].block, kind, weight);
        Slot(slot)
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        let often = self.ghosts.forget(block) != GhostKind::No;
        self.adapted = false;
        let held = Held {
            block,
            is_often: often,
        };
        weight::set(&mut self.held, slot, held);
        self.weight.set(slot, access);
        let list = if often {
            &mut self.often
        } else {
            &mut self.once
        };
        list.push_front(&mut self.slots, slot.0, &self.weight);
        self.cut_ghosts();
    }

    fn removed(&mut self, slot: Slot) {
        let list = if self.held[slot.index()].is_often {
            &mut self.often
        } else {
            &mut self.once
        };
        list.remove(&mut self.slots, slot.0, &self.weight);
    }

    fn resized(&mut self, capacity: u32) {
        self.capacity = capacity.into();
        self.target = self.target.min(f64::from(capacity));
        self.cut_ghosts();
    }

    fn check(&self, resident: usize) {
        self.once.check(&self.slots, &self.weight);
        self.often.check(&self.slots, &self.weight);
        let (once, often) = (self.once.list(), self.often.list());
        assert_eq!(once.len() + often.len(), resident);
        let is_often = |slot: u32| self.held[slot as usize].is_often;
        assert!(!once.iter(&self.slots).any(is_often));
        assert!(often.iter(&self.slots).all(is_often));
        assert!((0.0..=self.capacity as f64).contains(&self.target));
        let slots = once.iter(&self.slots).chain(often.iter(&self.slots));
        self.ghosts.check(
            self.once.weight(),
            self.often.weight(),
            self.capacity,
            slots.map(|slot| self.held[slot as usize].block),
        );
    }
}
