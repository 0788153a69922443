//! What a block weighs in a cache: one where all have the same size, its bytes where they are
//! objects of every size. A policy that divides its cache into parts is written once, over either.

use std::fmt;

use crate::access::Access;
use crate::ids::Slot;
use crate::list::{Links, List};

/// The weight of a block.
pub trait Weight: Copy + fmt::Debug + Default + Send {
    /// The weight of what an access refers to.
    fn of(access: &Access) -> Self;

    /// As a number.
    fn get(self) -> u64;
}

/// That of a block in a cache of blocks of one size. It takes no memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unit;

impl Weight for Unit {
    #[inline]
    fn of(_access: &Access) -> Self {
        Unit
    }

    #[inline]
    fn get(self) -> u64 {
        1
    }
}

/// That of an object, in a cache of objects of every size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes(u64);

impl Weight for Bytes {
    #[inline]
    fn of(access: &Access) -> Self {
        Bytes(access.bytes)
    }

    #[inline]
    fn get(self) -> u64 {
        self.0
    }
}

/// Sets what is kept of a slot. Where objects have sizes, it is not known how many slots there will
/// be.
#[inline]
pub(crate) fn set<T: Clone + Default>(by_slot: &mut Vec<T>, slot: Slot, value: T) {
    if slot.index() >= by_slot.len() {
        by_slot.resize(slot.index() + 1, T::default());
    }
    by_slot[slot.index()] = value;
}

/// A part of a cache: a list of slots, and what they weigh together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    list: List,
    weight: u64,
}

impl Part {
    #[inline]
    pub(crate) fn list(&self) -> &List {
        &self.list
    }

    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    #[inline]
    pub(crate) fn push_front<W: Weight>(&mut self, links: &mut Links, slot: u32, weights: &[W]) {
        links.cover(slot);
        self.list.push_front(links, slot);
        self.weight += weights[slot as usize].get();
    }

    #[inline]
    pub(crate) fn pop_back<W: Weight>(&mut self, links: &mut Links, weights: &[W]) -> Option<u32> {
        let slot = self.list.pop_back(links)?;
        self.weight -= weights[slot as usize].get();
        Some(slot)
    }

    #[inline]
    pub(crate) fn remove<W: Weight>(&mut self, links: &mut Links, slot: u32, weights: &[W]) {
        self.list.remove(links, slot);
        self.weight -= weights[slot as usize].get();
    }

    #[inline]
    pub(crate) fn touch(&mut self, links: &mut Links, slot: u32) {
        self.list.touch(links, slot);
    }

    /// Panics unless the list is sound and weighs what it says.
    pub(crate) fn check<W: Weight>(&self, links: &Links, weights: &[W]) {
        self.list.check(links);
        let each = self.list.iter(links);
        let sum: u64 = each.map(|slot| weights[slot as usize].get()).sum();
        assert_eq!(sum, self.weight, "a part weighs something else");
    }
}
