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
//! - Am may have what A1in leaves. libCacheSim keeps it within its own share, which matters where
//!   objects have sizes (3 misses of a million on one trace).
//! - Where Am should give the victim but is empty, A1in gives it. With the paper's sizes this
//!   happens only in caches of one to three blocks; after removals from outside, in any.

use super::{Replacement, share};
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ghost_list::GhostList;
use crate::ids::{Block, Slot};
use crate::list::Links;
use crate::weight::{self, Bytes, Part, Unit, Weight, Weights};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "2q",
    summary: "keeps blocks that return after they have passed through a queue for new blocks",
    source: "Johnson and Shasha, VLDB 1994",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| {
        let shares = TwoQShares {
            kin: values.real(0),
            kout: values.real(1),
        };
        match settings.bytes {
            None => Box::new(TwoQ::<Unit>::new(settings.capacity.into(), shares)),
            Some(bytes) => Box::new(TwoQ::<Bytes>::new(bytes, shares)),
        }
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
pub struct TwoQ<W = Unit> {
    shares: TwoQShares,
    kin: u64,
    kout: u64,
    /// A1in.
    new: Part<W>,
    /// Am.
    main: Part<W>,
    links: Links,
    is_main: Vec<bool>,
    block: Vec<Block>,
    weight: Weights<W>,
    /// A1out.
    ghosts: GhostList<W>,
}

impl<W: Weight> TwoQ<W> {
    /// For a cache of `capacity` blocks or bytes.
    pub fn new(capacity: u64, shares: TwoQShares) -> Self {
        let mut policy = TwoQ {
            shares,
            kin: 0,
            kout: 0,
            new: Part::default(),
            main: Part::default(),
            links: Links::default(),
            is_main: Vec::new(),
            block: Vec::new(),
            weight: Weights::default(),
            ghosts: GhostList::default(),
        };
        policy.divide(capacity);
        policy
    }

    fn divide(&mut self, capacity: u64) {
        self.kin = share(capacity, self.shares.kin);
        self.kout = share(capacity, self.shares.kout);
        self.ghosts.cut(self.kout);
    }
}

impl<W: Weight> Replacement for TwoQ<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if self.is_main[slot.index()] {
            self.main.touch(&mut self.links, slot.0);
        }
    }

    /// As in libCacheSim, an object larger than A1in's share is not brought in.
    fn admits(&mut self, incoming: &Access) -> bool {
        incoming.bytes <= self.kin
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        if self.new.weight() > self.kin || self.main.list().is_empty() {
            let slot = self
                .new
                .pop_back(&mut self.links, &self.weight)
                .expect("a full cache has blocks");
            let weight = self.weight.of(slot);
            // One for which there is no room would push out all others.
            if weight.get() <= self.kout {
                self.ghosts.push(self.block[slot as usize], weight);
            }
            Slot(slot)
        } else {
            let slot = self.main.pop_back(&mut self.links, &self.weight);
            Slot(slot.expect("it is not empty"))
        }
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        let known = self.ghosts.take(access.block);
        self.ghosts.cut(self.kout);
        weight::set(&mut self.block, slot, access.block);
        self.weight.set(slot, access);
        weight::set(&mut self.is_main, slot, known);
        let list = if known { &mut self.main } else { &mut self.new };
        list.push_front(&mut self.links, slot.0, &self.weight);
    }

    fn removed(&mut self, slot: Slot) {
        let list = if self.is_main[slot.index()] {
            &mut self.main
        } else {
            &mut self.new
        };
        list.remove(&mut self.links, slot.0, &self.weight);
    }

    fn resized(&mut self, capacity: u32) {
        self.divide(capacity.into());
    }

    fn check(&self, resident: usize) {
        self.new.check(&self.links, &self.weight);
        self.main.check(&self.links, &self.weight);
        let (new, main) = (self.new.list(), self.main.list());
        assert_eq!(new.len() + main.len(), resident);
        let is_main = |slot: u32| self.is_main[slot as usize];
        assert!(!new.iter(&self.links).any(is_main));
        assert!(main.iter(&self.links).all(is_main));
        let slots = new.iter(&self.links).chain(main.iter(&self.links));
        self.ghosts
            .check(self.kout, slots.map(|slot| self.block[slot as usize]));
    }
}
