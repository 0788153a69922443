//! 2Q: new blocks enter a first-in-first-out queue (A1in). A block that is referenced again after
//! it has left that queue, while it is still remembered (A1out), enters an LRU list (Am) and is
//! kept. Repeated references soon after the first do not count.
//!
//! Source: Johnson and Shasha, "2Q: a low overhead high performance buffer management replacement
//! algorithm", VLDB 1994, section 2.3, the full version, with the sizes recommended there: Kin is
//! 25 % of the cache, Kout the block numbers of 50 %. (`2q` cannot be the name of a module.)
//!
//! Readings and departures:
//! - A block that returns leaves A1out before another one is forgotten to make room; the paper does
//!   not say which comes first.
//! - Kin and Kout are at least one.
//! - Where Am should give the victim but is empty, A1in gives it. With the paper's sizes this
//!   happens only in caches of one to three blocks; after removals from outside, in any.

use super::{Replacement, share};
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ghost_list::GhostList;
use crate::ids::{Block, Slot};
use crate::list::{Links, List};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "2q",
    summary: "keeps blocks that return after they have passed through a queue for new blocks",
    source: "Johnson and Shasha, VLDB 1994",
    params: PARAMS,
    needs: Needs::NOTHING,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| {
        let shares = TwoQShares {
            kin: values.real(0),
            kout: values.real(1),
        };
        Box::new(TwoQ::new(settings.capacity, shares))
    },
};

const PARAMS: &[Param] = &[
    Param::real(
        "in",
        "the share of the cache above which the queue of new blocks gives the victim (Kin)",
        0.25,
        0.0..=1.0,
    ),
    Param::real(
        "out",
        "how many blocks that left the queue are remembered, as a share of the cache (Kout)",
        0.5,
        0.0..=100.0,
    ),
];

/// Sizes as shares of the capacity.
#[derive(Clone, Copy, Debug)]
pub struct TwoQShares {
    /// The share above which A1in gives the victim.
    pub kin: f64,
    /// The size of A1out.
    pub kout: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct TwoQ {
    shares: TwoQShares,
    kin: u32,
    kout: u32,
    /// A1in.
    new: List,
    /// Am.
    main: List,
    links: Links,
    is_main: Vec<bool>,
    block: Vec<Block>,
    /// A1out.
    ghosts: GhostList,
}

impl TwoQ {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, shares: TwoQShares) -> Self {
        let mut policy = TwoQ {
            shares,
            kin: 0,
            kout: 0,
            new: List::default(),
            main: List::default(),
            links: Links::new(capacity as usize),
            is_main: vec![false; capacity as usize],
            block: vec![Block(0); capacity as usize],
            ghosts: GhostList::default(),
        };
        policy.resized(capacity);
        policy
    }
}

impl Replacement for TwoQ {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if self.is_main[slot.index()] {
            self.main.touch(&mut self.links, slot.0);
        }
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        if self.new.len() > self.kin as usize || self.main.is_empty() {
            let slot = self
                .new
                .pop_back(&mut self.links)
                .expect("a full cache has blocks");
            self.ghosts.push(self.block[slot as usize]);
            Slot(slot)
        } else {
            let slot = self.main.pop_back(&mut self.links);
            Slot(slot.expect("it is not empty"))
        }
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        let known = self.ghosts.take(access.block);
        self.ghosts.cut(self.kout);
        self.block[slot.index()] = access.block;
        self.is_main[slot.index()] = known;
        let list = if known { &mut self.main } else { &mut self.new };
        list.push_front(&mut self.links, slot.0);
    }

    fn removed(&mut self, slot: Slot) {
        let list = if self.is_main[slot.index()] {
            &mut self.main
        } else {
            &mut self.new
        };
        list.remove(&mut self.links, slot.0);
    }

    fn resized(&mut self, capacity: u32) {
        self.kin = share(capacity, self.shares.kin);
        self.kout = share(capacity, self.shares.kout);
        self.ghosts.cut(self.kout);
    }

    fn check(&self, resident: usize) {
        self.new.check(&self.links);
        self.main.check(&self.links);
        assert_eq!(self.new.len() + self.main.len(), resident);
        let mut new = self.new.iter(&self.links);
        assert!(new.all(|slot| !self.is_main[slot as usize]));
        let mut main = self.main.iter(&self.links);
        assert!(main.all(|slot| self.is_main[slot as usize]));
        let slots = self
            .new
            .iter(&self.links)
            .chain(self.main.iter(&self.links));
        self.ghosts
            .check(self.kout, slots.map(|slot| self.block[slot as usize]));
    }
}
