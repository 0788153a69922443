//! Least frequently used: evicts the block with the fewest references since it came in; among
//! equals, the one whose last reference is oldest.
//!
//! Source: common use. The count starts at 1, is lost on eviction and never ages, as in
//! libCacheSim's `lfu`, which has the same miss counts. So blocks that were popular once stay;
//! `w-tinylfu` avoids that.
//!
//! It takes constant time and no hashing. Blocks with the same count form a group, a list in order
//! of recency. Groups form a list in order of count, so a hit moves its block to the next group, or
//! to a new one next to its own. A block that is alone in its group takes the group along, which is
//! what the hottest blocks do on nearly every hit.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ids::Slot;
use crate::list::{Links, List};
use crate::weight;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lfu",
    summary: "evicts the least frequently used block, among equals the least recent",
    source: "common use",
    params: &[],
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, _| Box::new(Lfu::new(settings.capacity)),
};

/// The blocks with one count, the most recent in front.
#[derive(Clone, Debug)]
struct Group {
    count: u64,
    blocks: List,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lfu {
    slots: Links,
    /// By slot, its group.
    group: Vec<u32>,
    groups: Vec<Group>,
    /// Unused indices of `groups`.
    spare: Vec<u32>,
    order: Links,
    /// The groups, the smallest count in front.
    by_count: List,
}

impl Lfu {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Lfu {
            slots: Links::new(capacity as usize),
            group: vec![0; capacity as usize],
            groups: Vec::new(),
            spare: Vec::new(),
            order: Links::default(),
            by_count: List::default(),
        }
    }

    /// The block that would be evicted next.
    #[inline]
    pub(super) fn least(&self) -> Option<Slot> {
        let group = self.by_count.front()?;
        self.groups[group as usize].blocks.back().map(Slot)
    }

    /// A new group, which is in no order yet.
    fn open(&mut self, count: u64) -> u32 {
        let group = Group {
            count,
            blocks: List::default(),
        };
        if let Some(index) = self.spare.pop() {
            self.groups[index as usize] = group;
            return index;
        }
        let index = self.groups.len() as u32;
        self.groups.push(group);
        self.order.cover(index);
        index
    }

    #[inline]
    fn join(&mut self, slot: Slot, group: u32) {
        self.group[slot.index()] = group;
        self.groups[group as usize]
            .blocks
            .push_front(&mut self.slots, slot.0);
    }
}

impl Replacement for Lfu {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let group = self.group[slot.index()];
        let count = self.groups[group as usize].count + 1;
        let next = self
            .by_count
            .after(&self.order, group)
            .filter(|&next| self.groups[next as usize].count == count);
        let next = match next {
            Some(next) => next,
            None if self.groups[group as usize].blocks.len() == 1 => {
                self.groups[group as usize].count = count;
                return;
            }
            None => {
                let next = self.open(count);
                self.by_count.insert_after(&mut self.order, group, next);
                next
            }
        };
        self.removed(slot);
        self.join(slot, next);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        let slot = self
            .least()
            .expect("a full cache has a least frequent block");
        self.removed(slot);
        slot
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, _access: &Access) {
        let group = match self.by_count.front() {
            Some(group) if self.groups[group as usize].count == 1 => group,
            _ => {
                let group = self.open(1);
                self.by_count.push_front(&mut self.order, group);
                group
            }
        };
        weight::set(&mut self.group, slot, group);
        self.slots.cover(slot.0);
        let blocks = &mut self.groups[group as usize].blocks;
        blocks.push_front(&mut self.slots, slot.0);
    }

    #[inline]
    fn removed(&mut self, slot: Slot) {
        let group = self.group[slot.index()];
        let blocks = &mut self.groups[group as usize].blocks;
        blocks.remove(&mut self.slots, slot.0);
        if blocks.is_empty() {
            self.by_count.remove(&mut self.order, group);
            self.spare.push(group);
        }
    }

    fn check(&self, resident: usize) {
        self.by_count.check(&self.order);
        let mut count = 0;
        let mut blocks = 0;
        for index in self.by_count.iter(&self.order) {
            let group = &self.groups[index as usize];
            assert!(group.count > count, "groups are not in order");
            assert!(!group.blocks.is_empty(), "an empty group is left");
            group.blocks.check(&self.slots);
            for slot in group.blocks.iter(&self.slots) {
                assert_eq!(self.group[slot as usize], index);
            }
            count = group.count;
            blocks += group.blocks.len();
        }
        assert_eq!(blocks, resident);
        assert_eq!(self.by_count.len() + self.spare.len(), self.groups.len());
    }
}
