//! CLOCK-Pro: LIRS with reference bits in place of a stack. All blocks are in one circle: hot ones,
//! cold ones, and for the length of their *test period* cold ones that were evicted. A block that
//! is referenced in its test period becomes hot. Three hands go around the circle. The cold hand
//! looks for victims among the cold blocks, the hot hand makes hot blocks cold that were not used,
//! and the test hand ends test periods. Hits in test periods make room for cold blocks, and test
//! periods that end without one make room for hot blocks.
//!
//! Source: Jiang, Chen and Zhang, "CLOCK-Pro: an effective improvement of the CLOCK replacement",
//! USENIX ATC 2005, section 4.
//!
//! Readings, where the paper leaves a choice:
//! - Cold blocks have half of the cache at first (`cold`), and then at least one block.
//! - A block whose test period would end while its reference bit is set was referenced in it: the
//!   period goes on until the cold hand gets there.
//! - At most as many evicted blocks are in the circle as fit in the cache.
//! - The hot hand does not go on to the next hot block once it has made one cold.
//!
//! Departure: where no block is cold, which takes removals from outside or objects with sizes, the
//! hot hand makes one cold first. Of objects with sizes, all numbers of blocks are bytes.
//!
//! libCacheSim 0.3.5 has a `ClockPro` whose misses are nearly twice those of LRU on its own traces;
//! it was not followed.

use super::{Replacement, share};
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ids::Slot;
use crate::list::{Links, List, NIL};
use crate::weight::{self, Bytes, Unit, Weight};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "clock-pro",
    summary: "approximates LIRS with three hands on one circle of hot, cold and evicted blocks",
    source: "Jiang, Chen and Zhang, USENIX ATC 2005",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| match settings.bytes {
        None => Box::new(ClockPro::<Unit>::new(
            settings.capacity.into(),
            values.real(0),
        )),
        Some(bytes) => Box::new(ClockPro::<Bytes>::new(bytes, values.real(0))),
    },
};

const PARAMS: &[Param] = &[Param::real(
    "cold",
    "the share of the cache for cold blocks at the start",
    0.5,
    0.0..=1.0,
)];

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not in the circle.
    Out,
    Hot,
    /// Cold, in the cache and in its test period.
    Tested,
    /// Cold, in the cache.
    Cold,
    /// Evicted, in its test period.
    Ghost,
}

/// A block.
#[derive(Clone, Copy, Debug)]
struct Page<W> {
    state: State,
    referenced: bool,
    slot: u32,
    weight: W,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct ClockPro<W = Unit> {
    capacity: u64,
    /// What cold blocks in the cache shall weigh: from 1 to the capacity.
    cold_target: u64,
    hot: u64,
    ghosts: u64,
    /// How many cold blocks are in the cache.
    cold_blocks: usize,
    /// By block.
    pages: Vec<Page<W>>,
    /// By slot, its block.
    block: Vec<u32>,
    /// Over blocks. The hot hand is at the front, and new blocks come in at the back, which is
    /// behind it.
    circle: List,
    links: Links,
    /// The blocks to which these hands point; [`NIL`]: the circle is empty.
    cold_hand: u32,
    test_hand: u32,
}

impl<W: Weight> ClockPro<W> {
    /// For a cache of `capacity` blocks or bytes, with that share for `cold` blocks at first.
    pub fn new(capacity: u64, cold: f64) -> Self {
        ClockPro {
            capacity,
            cold_target: share(capacity, cold),
            hot: 0,
            ghosts: 0,
            cold_blocks: 0,
            pages: Vec::new(),
            block: Vec::new(),
            circle: List::default(),
            links: Links::default(),
            cold_hand: NIL,
            test_hand: NIL,
        }
    }

    fn weight(&self, block: u32) -> u64 {
        self.pages[block as usize].weight.get()
    }

    fn set_state(&mut self, block: u32, state: State) {
        let weight = self.weight(block);
        let before = std::mem::replace(&mut self.pages[block as usize].state, state);
        match before {
            State::Hot => self.hot -= weight,
            State::Ghost => self.ghosts -= weight,
            State::Tested | State::Cold => self.cold_blocks -= 1,
            State::Out => (),
        }
        match state {
            State::Hot => self.hot += weight,
            State::Ghost => self.ghosts += weight,
            State::Tested | State::Cold => self.cold_blocks += 1,
            State::Out => (),
        }
    }

    /// The next block of the circle.
    fn following(&self, block: u32) -> u32 {
        let after = self.circle.after(&self.links, block);
        after.or(self.circle.front()).unwrap_or(NIL)
    }

    /// Takes a block out of the circle. Hands that point to it go on.
    fn unlink(&mut self, block: u32) {
        let next = match self.following(block) {
            next if next == block => NIL,
            next => next,
        };
        for hand in [&mut self.cold_hand, &mut self.test_hand] {
            if *hand == block {
                *hand = next;
            }
        }
        self.circle.remove(&mut self.links, block);
    }

    /// Puts a block behind the hot hand.
    fn link(&mut self, block: u32, state: State) {
        self.set_state(block, state);
        if self.circle.is_empty() {
            (self.cold_hand, self.test_hand) = (block, block);
        }
        self.circle.push_back(&mut self.links, block);
    }

    /// A block was referenced in its test period: cold blocks get more room.
    fn grow_cold(&mut self, block: u32) {
        self.cold_target = (self.cold_target + self.weight(block)).min(self.capacity);
    }

    /// A hand passes a cold block, and ends its test period.
    fn end_test(&mut self, block: u32) {
        let page = self.pages[block as usize];
        match page.state {
            State::Ghost => {
                self.unlink(block);
                self.set_state(block, State::Out);
            }
            State::Tested if !page.referenced => self.set_state(block, State::Cold),
            _ => return,
        }
        if self.cold_target > page.weight.get() {
            self.cold_target -= page.weight.get();
        }
    }

    /// The hot hand goes on until it has made a hot block cold. There must be one.
    fn run_hot_hand(&mut self) {
        loop {
            let block = self.circle.front().expect("there is a hot block");
            let mut done = false;
            let page = &mut self.pages[block as usize];
            if page.state != State::Hot {
                self.end_test(block);
            } else if !std::mem::take(&mut page.referenced) {
                self.set_state(block, State::Cold);
                done = true;
            }
            if self.pages[block as usize].state != State::Out {
                // The circle stands still, and so do the other hands: they point to blocks.
                self.circle.remove(&mut self.links, block);
                self.circle.push_back(&mut self.links, block);
            }
            if done {
                break;
            }
        }
    }

    fn limit_hot(&mut self) {
        while self.hot > self.capacity - self.cold_target {
            self.run_hot_hand();
        }
    }

    fn limit_ghosts(&mut self) {
        while self.ghosts > self.capacity {
            let block = self.test_hand;
            self.test_hand = self.following(block);
            self.end_test(block);
        }
    }

    /// The cold hand comes to a cold block that is in the cache. Returns whether it is the victim.
    fn examine(&mut self, block: u32) -> bool {
        let page = &mut self.pages[block as usize];
        let tested = page.state == State::Tested;
        if !std::mem::take(&mut page.referenced) {
            if tested {
                self.set_state(block, State::Ghost);
            } else {
                self.unlink(block);
                self.set_state(block, State::Out);
            }
            return true;
        }
        self.unlink(block);
        if tested {
            self.grow_cold(block);
            self.link(block, State::Hot);
            self.limit_hot();
        } else {
            self.link(block, State::Tested);
        }
        false
    }
}

impl<W: Weight> Replacement for ClockPro<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let block = self.block[slot.index()];
        self.pages[block as usize].referenced = true;
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        loop {
            if self.cold_blocks == 0 {
                self.run_hot_hand();
            }
            let block = self.cold_hand;
            self.cold_hand = self.following(block);
            let page = self.pages[block as usize];
            let is_cold = matches!(page.state, State::Tested | State::Cold);
            if is_cold && self.examine(block) {
                self.limit_ghosts();
                return Slot(page.slot);
            }
        }
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        if block as usize >= self.pages.len() {
            let page = Page {
                state: State::Out,
                referenced: false,
                slot: NIL,
                weight: W::default(),
            };
            self.pages.resize(block as usize + 1, page);
            self.links.cover(block);
        }
        let known = self.pages[block as usize].state == State::Ghost;
        if known {
            self.unlink(block);
            self.set_state(block, State::Out);
        }
        weight::set(&mut self.block, slot, block);
        self.pages[block as usize] = Page {
            state: State::Out,
            referenced: false,
            slot: slot.0,
            weight: W::of(access),
        };
        if known {
            self.grow_cold(block);
            self.link(block, State::Hot);
            self.limit_hot();
        } else {
            self.link(block, State::Tested);
        }
    }

    fn removed(&mut self, slot: Slot) {
        let block = self.block[slot.index()];
        self.unlink(block);
        self.set_state(block, State::Out);
    }

    fn resized(&mut self, capacity: u32) {
        self.capacity = capacity.into();
        self.cold_target = self.cold_target.clamp(1, self.capacity);
        self.limit_hot();
        self.limit_ghosts();
    }

    fn check(&self, resident: usize) {
        self.circle.check(&self.links);
        let (mut hot, mut ghosts) = (0, 0);
        let (mut blocks, mut cold) = (0, 0);
        for block in self.circle.iter(&self.links) {
            let page = self.pages[block as usize];
            match page.state {
                State::Out => panic!("block {block} is in the circle"),
                State::Hot => hot += page.weight.get(),
                State::Ghost => ghosts += page.weight.get(),
                State::Tested | State::Cold => cold += 1,
            }
            if page.state != State::Ghost {
                assert_eq!(self.block[page.slot as usize], block);
                blocks += 1;
            }
        }
        let states = self.pages.iter().filter(|page| page.state != State::Out);
        assert_eq!(states.count(), self.circle.len());
        assert_eq!(blocks, resident);
        assert_eq!(cold, self.cold_blocks);
        assert_eq!((hot, ghosts), (self.hot, self.ghosts));
        assert!((1..=self.capacity.max(1)).contains(&self.cold_target));
        assert!(hot <= self.capacity - self.cold_target);
        assert!(ghosts <= self.capacity);
        for hand in [self.cold_hand, self.test_hand] {
            assert_eq!(hand == NIL, self.circle.is_empty());
            assert!(hand == NIL || self.pages[hand as usize].state != State::Out);
        }
    }
}
