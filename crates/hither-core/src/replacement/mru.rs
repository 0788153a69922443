//! Most recently used: evicts the block that was referenced last.
//!
//! Source: Chou and DeWitt, "An evaluation of buffer management strategies for relational database
//! systems", VLDB 1985. Optimal for a single loop longer than the cache, and bad at nearly
//! everything else.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ids::Slot;
use crate::list::{Links, List};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "mru",
    summary: "evicts the most recently used block",
    source: "Chou and DeWitt, VLDB 1985",
    params: &[],
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, _| Box::new(Mru::new(settings.capacity)),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Mru {
    links: Links,
    recency: List,
}

impl Mru {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Mru {
            links: Links::new(capacity as usize),
            recency: List::default(),
        }
    }
}

impl Replacement for Mru {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.recency.touch(&mut self.links, slot.0);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        Slot(
            self.recency
                .pop_front(&mut self.links)
                .expect("a full cache has a most recent block"),
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
