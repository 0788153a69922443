//! CLOCK, or second chance: blocks form a circle in order of arrival. The hand skips blocks that
//! were used since it last passed, and evicts the first that was not.
//!
//! Source: Corbató, "A paging experiment with the Multics system", MIT Project MAC, 1968. Its shift
//! register of `k` usage bits a page is the parameter `bits`: a use keeps a block for `bits` rounds
//! of the hand. So 0 is FIFO, 1 is what is commonly called CLOCK, and large values come close to
//! LRU.
//!
//! Readings and departures:
//! - A new block is unused: the reference that misses does not count as a use, as in libCacheSim.
//!   With a hardware bit the first use of the page would set it.
//! - The circle is a list with the hand at its back: skipping a block moves it to the front. A
//!   block that is removed from outside leaves no empty frame in the circle; the next block comes
//!   in behind the hand.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ids::Slot;
use crate::list::{Links, List};
use crate::weight;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "clock",
    summary: "evicts the oldest block that was not used since the hand last passed it",
    source: "Corbató, MIT Project MAC, 1968",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| Box::new(Clock::new(settings.capacity, values.count(0) as u8)),
};

const PARAMS: &[Param] = &[Param::count(
    "bits",
    "how many rounds of the hand a use keeps a block; 0: first in, first out",
    1,
    0..=255,
)];

/// See the module.
#[derive(Clone, Debug)]
pub struct Clock {
    bits: u8,
    /// The hand is at the back.
    circle: List,
    links: Links,
    /// By slot, how many more rounds it is kept.
    rounds: Vec<u8>,
}

impl Clock {
    /// For a cache of `capacity` blocks; a use keeps a block for `bits` rounds.
    pub fn new(capacity: u32, bits: u8) -> Self {
        Clock {
            bits,
            circle: List::default(),
            links: Links::new(capacity as usize),
            rounds: vec![0; capacity as usize],
        }
    }
}

impl Replacement for Clock {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.rounds[slot.index()] = self.bits;
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        loop {
            let slot = self
                .circle
                .pop_back(&mut self.links)
                .expect("a full cache has blocks");
            match &mut self.rounds[slot as usize] {
                0 => return Slot(slot),
                rounds => *rounds -= 1,
            }
            self.circle.push_front(&mut self.links, slot);
        }
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, _access: &Access) {
        weight::set(&mut self.rounds, slot, 0);
        self.links.cover(slot.0);
        self.circle.push_front(&mut self.links, slot.0);
    }

    fn removed(&mut self, slot: Slot) {
        self.circle.remove(&mut self.links, slot.0);
    }

    fn check(&self, resident: usize) {
        self.circle.check(&self.links);
        assert_eq!(self.circle.len(), resident);
        assert!(self.rounds.iter().all(|&rounds| rounds <= self.bits));
    }
}
