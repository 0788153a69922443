//! First in, first out: evicts the block that has been in the cache longest, however often it was
//! used.
//!
//! Source: common use. The baseline without any work on a hit.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ids::Slot;
use crate::list::{Links, List};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "fifo",
    summary: "evicts the block that came in first",
    source: "common use",
    params: &[],
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, _| Box::new(Fifo::new(settings.capacity)),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Fifo {
    links: Links,
    age: List,
}

impl Fifo {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Fifo {
            links: Links::new(capacity as usize),
            age: List::default(),
        }
    }
}

impl Replacement for Fifo {
    #[inline]
    fn hit(&mut self, _slot: Slot, _access: &Access) {}

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        Slot(
            self.age
                .pop_back(&mut self.links)
                .expect("a full cache has a oldest block"),
        )
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, _access: &Access) {
        self.links.cover(slot.0);
        self.age.push_front(&mut self.links, slot.0);
    }

    fn removed(&mut self, slot: Slot) {
        self.age.remove(&mut self.links, slot.0);
    }

    fn check(&self, resident: usize) {
        self.age.check(&self.links);
        assert_eq!(self.age.len(), resident);
    }
}
