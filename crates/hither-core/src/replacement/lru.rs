//! Least recently used: evicts the block whose last reference is oldest.
//!
//! Source: Denning, "The working set model for program behavior", CACM 11(5), 1968, and common use
//! since. Every other policy is measured against it, and the Linux page cache approximates it.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ids::Slot;
use crate::list::{Links, List};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lru",
    summary: "evicts the least recently used block",
    source: "Denning, CACM 11(5), 1968",
    params: &[],
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::Everywhere(1),
    build: &|settings, _| Box::new(Lru::new(settings.capacity)),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Lru {
    links: Links,
    recency: List,
}

impl Lru {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Lru {
            links: Links::new(capacity as usize),
            recency: List::default(),
        }
    }

    /// The block that would be evicted next.
    pub(super) fn least(&self) -> Option<Slot> {
        self.recency.back().map(Slot)
    }

    /// All blocks, the most recent first.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.recency.iter(&self.links).map(Slot)
    }
}

impl Replacement for Lru {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.recency.touch(&mut self.links, slot.0);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        Slot(
            self.recency
                .pop_back(&mut self.links)
                .expect("a full cache has a least recent block"),
        )
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, _access: &Access) {
        self.links.cover(slot.0);
        self.recency.push_front(&mut self.links, slot.0);
    }

    fn removed(&mut self, slot: Slot) {
        self.recency.remove(&mut self.links, slot.0);
    }

    fn check(&self, resident: usize) {
        self.recency.check(&self.links);
        assert_eq!(self.recency.len(), resident);
    }
}
