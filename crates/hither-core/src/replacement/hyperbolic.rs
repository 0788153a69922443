//! Hyperbolic caching: the priority of a block is its references since it came in, divided by the
//! time since then. Of some blocks drawn at random the one with the lowest priority is evicted. The
//! priorities of blocks that are not used fall at different rates, so no order of all blocks could
//! be kept; sampling needs none.
//!
//! Source: Blankstein, Sen and Freedman, "Hyperbolic caching: flexible caching for web
//! applications", USENIX ATC 2017, sections 3 and 4. The priority is multiplied by the cost of an
//! object and divided by its bytes, the paper's extensions; `sizes=0` leaves the bytes out, as
//! libCacheSim's `Hyperbolic` does. Time is the number of references.
//!
//! Readings: blocks are drawn one by one, so one may be drawn twice. The first of equal ones goes.
//! Initial priorities of new blocks that follow the victims' (section 3.2) are left out, as in
//! libCacheSim. With `sizes=0`, miss counts differ from libCacheSim's by its random numbers.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ids::{Slot, Tick};
use crate::random::Random;
use crate::weight::{self, Bytes, Unit, Weight};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "hyperbolic",
    summary: "evicts, of a sample, the block with the fewest references for the time it was there",
    source: "Blankstein, Sen and Freedman, USENIX ATC 2017",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| {
        let (samples, seed) = (values.count(0), values.count(2));
        match settings.bytes {
            Some(_) if values.switched(1) => Box::new(Hyperbolic::<Bytes>::new(samples, seed)),
            _ => Box::new(Hyperbolic::<Unit>::new(samples, seed)),
        }
    },
};

const PARAMS: &[Param] = &[
    Param::count(
        "samples",
        "how many blocks are drawn for each eviction",
        64,
        1..=1 << 20,
    ),
    Param::switch(
        "sizes",
        "1: priorities are for each byte, where objects have sizes; 0: they are not (as in \
         libCacheSim)",
        true,
    ),
    Param::count("seed", "the seed of the random numbers", 1, 0..=u64::MAX),
];

/// A block in the cache.
#[derive(Clone, Copy, Debug)]
struct Member<W> {
    slot: u32,
    weight: W,
    uses: u64,
    cost: f32,
    entered: Tick,
}

impl<W: Weight> Member<W> {
    fn priority(&self, now: Tick) -> f64 {
        let age = now.saturating_sub(self.entered).max(1) as f64;
        let bytes = self.weight.get().max(1) as f64;
        self.uses as f64 * f64::from(self.cost) / (age * bytes)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Hyperbolic<W = Unit> {
    samples: u64,
    random: Random,
    /// The filled slots, in any order; one that leaves is replaced by the last.
    members: Vec<Member<W>>,
    /// By slot, its index in `members`.
    place: Vec<u32>,
}

impl<W: Weight> Hyperbolic<W> {
    /// Draws `samples` blocks, at least one, for each eviction.
    pub fn new(samples: u64, seed: u64) -> Self {
        Hyperbolic {
            samples,
            random: Random::new(seed),
            members: Vec::new(),
            place: Vec::new(),
        }
    }
}

impl<W: Weight> Replacement for Hyperbolic<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let member = &mut self.members[self.place[slot.index()] as usize];
        member.uses += 1;
        member.cost = access.cost;
    }

    fn victim(&mut self, incoming: &Access) -> Slot {
        let blocks = self.members.len() as u64;
        let mut lowest = None;
        for _ in 0..self.samples {
            let member = self.members[self.random.below(blocks) as usize];
            let priority = member.priority(incoming.tick);
            if lowest.is_none_or(|(_, least)| priority < least) {
                lowest = Some((Slot(member.slot), priority));
            }
        }
        let (slot, _) = lowest.expect("one is drawn at least");
        self.removed(slot);
        slot
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        weight::set(&mut self.place, slot, self.members.len() as u32);
        self.members.push(Member {
            slot: slot.0,
            weight: W::of(access),
            uses: 1,
            cost: access.cost,
            entered: access.tick,
        });
    }

    #[inline]
    fn removed(&mut self, slot: Slot) {
        let at = self.place[slot.index()];
        self.members.swap_remove(at as usize);
        if let Some(moved) = self.members.get(at as usize) {
            self.place[moved.slot as usize] = at;
        }
    }

    fn check(&self, resident: usize) {
        assert_eq!(self.members.len(), resident);
        for (at, member) in self.members.iter().enumerate() {
            assert_eq!(self.place[member.slot as usize] as usize, at);
            assert!(member.uses > 0);
        }
    }
}
