//! What a block weighs in a cache: one where all have the same size, its bytes where they are
//! objects of every size. A policy that divides its cache into parts is written once, over either.

use std::fmt;
use std::marker::PhantomData;

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

/// The weights of the blocks in the slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weights<W>(Vec<W>);

impl<W: Weight> Weights<W> {
    /// Whether all are the same, and none is kept.
    pub(crate) const ALIKE: bool = size_of::<W>() == 0;

    /// What an access refers to is now in `slot`.
    #[inline]
    pub(crate) fn set(&mut self, slot: Slot, access: &Access) {
        if !Self::ALIKE {
            set(&mut self.0, slot, W::of(access));
        }
    }

    #[inline]
    pub(crate) fn of(&self, slot: u32) -> W {
        if Self::ALIKE {
            W::default()
        } else {
            self.0[slot as usize]
        }
    }
}

/// Sets what is kept of a slot. Where objects have sizes, it is not known how many slots there will
/// be.
#[inline]
pub(crate) fn set<T: Clone + Default>(by_slot: &mut Vec<T>, slot: Slot, value: T) {
    match by_slot.get_mut(slot.index()) {
        Some(place) => *place = value,
        None => make_room(by_slot, slot, value),
    }
}

#[cold]
#[inline(never)]
fn make_room<T: Clone + Default>(by_slot: &mut Vec<T>, slot: Slot, value: T) {
    by_slot.resize(slot.index(), T::default());
    by_slot.push(value);
}

/// A part of a cache: a list of slots, and what they weigh together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part<W> {
    list: List,
    /// Not kept where all weigh the same.
    weight: u64,
    of: PhantomData<W>,
}

impl<W: Weight> Part<W> {
    #[inline]
    pub(crate) fn list(&self) -> &List {
        &self.list
    }

    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        if Weights::<W>::ALIKE {
            self.list.len() as u64
        } else {
            self.weight
        }
    }

    #[inline]
    fn add(&mut self, weight: W) {
        if !Weights::<W>::ALIKE {
            self.weight += weight.get();
        }
    }

    #[inline]
    fn subtract(&mut self, weight: W) {
        if !Weights::<W>::ALIKE {
            self.weight -= weight.get();
        }
    }

    #[inline]
    pub(crate) fn push_front(&mut self, links: &mut Links, slot: u32, weights: &Weights<W>) {
        links.cover(slot);
        self.list.push_front(links, slot);
        self.add(weights.of(slot));
    }

    #[inline]
    pub(crate) fn pop_back(&mut self, links: &mut Links, weights: &Weights<W>) -> Option<u32> {
        let slot = self.list.pop_back(links)?;
        self.subtract(weights.of(slot));
        Some(slot)
    }

    #[inline]
    pub(crate) fn remove(&mut self, links: &mut Links, slot: u32, weights: &Weights<W>) {
        self.list.remove(links, slot);
        self.subtract(weights.of(slot));
    }

    #[inline]
    pub(crate) fn touch(&mut self, links: &mut Links, slot: u32) {
        self.list.touch(links, slot);
    }

    /// Panics unless the list is sound and weighs what it says.
    pub(crate) fn check(&self, links: &Links, weights: &Weights<W>) {
        self.list.check(links);
        let each = self.list.iter(links);
        let sum: u64 = each.map(|slot| weights.of(slot).get()).sum();
        assert_eq!(sum, self.weight(), "a part weighs something else");
    }
}
