//! Belady's optimum: evicts the block whose next reference is furthest in the future. No policy
//! that must bring in every missing block has fewer misses, so this is the bound for all others.
//!
//! Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966; proof in Mattson et al., IBM Systems Journal 9(2), 1970.
//!
//! Ties occur only among blocks that are never referenced again (no two blocks have the same next
//! reference): the one in the highest slot is evicted. No count depends on that. A missing block is
//! always brought in, even if it is never used again: a cache that can bypass blocks has another
//! bound.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Needs, ReplacementEntry};
use crate::heap::IndexedHeap;
use crate::ids::{Slot, Tick};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "opt",
    summary: "knows the future: evicts the block that is needed last, the bound for all others",
    source: "Belady, IBM Systems Journal 5(2), 1966",
    params: &[],
    needs: Needs {
        future: true,
        ..Needs::NOTHING
    },
    takes_sizes: true,
    live: &[],
    compared: Compared::Everywhere(6),
    build: &|_, _| Box::new(Opt::new()),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Opt {
    next: IndexedHeap<Tick>,
}

impl Opt {
    /// For a cache of any capacity; accesses must carry their next reference.
    pub fn new() -> Self {
        Opt {
            next: IndexedHeap::new(),
        }
    }
}

impl Default for Opt {
    fn default() -> Self {
        Self::new()
    }
}

impl Replacement for Opt {
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.next.set(slot.0, access.next);
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        let (_, slot) = self.next.top().expect("a full cache has a furthest block");
        self.next.remove(slot);
        Slot(slot)
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        self.next.set(slot.0, access.next);
    }

    fn removed(&mut self, slot: Slot) {
        self.next.remove(slot.0);
    }

    fn check(&self, resident: usize) {
        self.next.check();
        assert_eq!(self.next.len(), resident);
    }
}
