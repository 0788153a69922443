//! CLOCK with adaptive replacement: ARC with a clock for each of its two recency lists, so that a
//! hit only sets a bit. T1 has blocks that were not referenced since they came in, or whose bit the
//! hand has not seen yet. T2 has blocks that the hand of T1 found referenced, and blocks that
//! returned while they were ghosts. B1 and B2 remember what was evicted from each; a ghost hit
//! moves the target size `p` of T1.
//!
//! Source: Bansal and Modha, "CAR: Clock with adaptive replacement", FAST 2004, figure 2; `p` is a
//! real number, as in ARC. Departures, which change no decision unless blocks are removed from
//! outside: the ghost lists are cut after the insertion rather than before it (the same oldest
//! ghost is cut), and on every miss rather than only on a full cache.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ghost_pair::{GhostKind, GhostPair};
use crate::ids::Slot;
use crate::list::{Links, List};
use crate::weight::Unit;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "car",
    summary: "ARC with clocks instead of lists: a hit only sets a bit",
    source: "Bansal and Modha, FAST 2004",
    params: &[],
    needs: Needs::NOTHING,
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, _| Box::new(Car::new(settings.capacity)),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Car {
    capacity: u32,
    /// The target size of T1, from 0 to the capacity.
    target: f64,
    links: Links,
    /// T1 and T2, over slots; the hand is at the back.
    once: List,
    often: List,
    /// By slot.
    is_often: Vec<bool>,
    referenced: Vec<bool>,
    block_of: Vec<u32>,
    ghosts: GhostPair,
}

impl Car {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Car {
            capacity,
            target: 0.0,
            links: Links::new(capacity as usize),
            once: List::default(),
            often: List::default(),
            is_often: vec![false; capacity as usize],
            referenced: vec![false; capacity as usize],
            block_of: vec![0; capacity as usize],
            ghosts: GhostPair::default(),
        }
    }

    fn cut_ghosts(&mut self) {
        let (once, often) = (self.once.len() as u64, self.often.len() as u64);
        self.ghosts.cut(once, often, self.capacity.into());
    }
}

impl Replacement for Car {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.referenced[slot.index()] = true;
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        loop {
            let from_once = self.once.len() as f64 >= self.target.max(1.0);
            let list = if from_once {
                &mut self.once
            } else {
                &mut self.often
            };
            let slot = list
                .pop_back(&mut self.links)
                .expect("T1 is as large as its target unless T2 has blocks");
            if std::mem::replace(&mut self.referenced[slot as usize], false) {
                self.is_often[slot as usize] = true;
                self.often.push_front(&mut self.links, slot);
            } else {
                let kind = if from_once {
                    GhostKind::Once
                } else {
                    GhostKind::Often
                };
                self.ghosts
                    .remember(self.block_of[slot as usize], kind, Unit);
                return Slot(slot);
            }
        }
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        let ghost = self.ghosts.kind(block);
        self.target = self
            .ghosts
            .adapted(ghost, self.target, self.capacity.into(), Unit);
        self.block_of[slot.index()] = block;
        self.referenced[slot.index()] = false;
        self.is_often[slot.index()] = ghost != GhostKind::No;
        if ghost == GhostKind::No {
            self.once.push_front(&mut self.links, slot.0);
        } else {
            self.ghosts.forget(block);
            self.often.push_front(&mut self.links, slot.0);
        }
        self.cut_ghosts();
    }

    fn removed(&mut self, slot: Slot) {
        let list = if self.is_often[slot.index()] {
            &mut self.often
        } else {
            &mut self.once
        };
        list.remove(&mut self.links, slot.0);
    }

    fn resized(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.target = self.target.min(f64::from(capacity));
        self.cut_ghosts();
    }

    fn check(&self, resident: usize) {
        self.once.check(&self.links);
        self.often.check(&self.links);
        assert_eq!(self.once.len() + self.often.len(), resident);
        let is_often = |slot| self.is_often[slot as usize];
        assert!(!self.once.iter(&self.links).any(is_often));
        assert!(self.often.iter(&self.links).all(is_often));
        assert!((0.0..=f64::from(self.capacity)).contains(&self.target));
        let slots = self
            .once
            .iter(&self.links)
            .chain(self.often.iter(&self.links));
        self.ghosts.check(
            self.once.len() as u64,
            self.often.len() as u64,
            self.capacity.into(),
            slots.map(|slot| self.block_of[slot as usize]),
        );
    }
}
