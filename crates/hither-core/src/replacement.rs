//! What a cache of a given size keeps: the interface of all replacement policies, one file a
//! policy.
//!
//! A policy ranks slots and does nothing else: [`Residency`](crate::Residency) knows which block is
//! in which slot. A policy's registry entry says what it needs to know of an access (see
//! [`crate::registry`]); the policy's file lists its departures from its source.

pub mod arc;
pub mod camp;
pub mod car;
pub mod clock;
pub mod clock_pro;
pub mod dear;
pub mod eelru;
pub mod fifo;
pub mod gdsf;
pub mod hyperbolic;
pub mod lecar;
pub mod lfu;
pub mod lfu_da;
pub mod lhd;
pub mod lirs;
pub mod lrfu;
pub mod lru;
pub mod lru_k;
pub mod mq;
pub mod mru;
pub mod opt;
pub mod partition;
pub mod pcc;
pub mod random;
pub mod s3_fifo;
pub mod seq;
pub mod sieve;
pub mod slru;
pub mod two_q;
pub mod ubm;
pub mod w_tinylfu;

use serde::Serialize;

use crate::access::Access;
use crate::classify::Class;
use crate::ids::Slot;

pub use crate::classify::SiteRecord;

/// What a cache of fixed capacity keeps. Each access calls either `hit`, or `inserted` (after
/// `victim` if no slot is free, after `discarded` otherwise). `removed` comes at any time between
/// accesses, and so does `moved_in` (after `victim`, likewise).
pub trait Replacement {
    /// The access found its block in `slot`.
    fn hit(&mut self, slot: Slot, access: &Access);

    /// A miss in a cache of objects of every size: whether its object is brought in at all.
    fn admits(&mut self, _incoming: &Access) -> bool {
        true
    }

    /// A miss, and no slot is free: names the slot to evict, and forgets it together with what is
    /// kept of its ghost. The missing block is inserted into this slot next. Only called on a full
    /// cache. In a [cache of objects](crate::SizedResidency), it is called until the missing object
    /// has room, and that may then be inserted into any slot.
    fn victim(&mut self, incoming: &Access) -> Slot;

    /// A miss while there are free slots: names a slot to evict all the same, and forgets it. The
    /// missing block is then inserted into this slot. Only policies that keep no block without
    /// value need this.
    fn discarded(&mut self, _incoming: &Access) -> Option<Slot> {
        None
    }

    /// The missing access's block is now in `slot`.
    fn inserted(&mut self, slot: Slot, access: &Access);

    /// The block that is now in `slot` moved here from another cache, where it was in use: it is no
    /// newcomer. Comes in place of `inserted`.
    fn moved_in(&mut self, slot: Slot, access: &Access) {
        self.inserted(slot, access);
        self.hit(slot, access);
    }

    /// The block in `slot` was removed from outside (invalidated, truncated).
    fn removed(&mut self, slot: Slot);

    /// The capacity changed, because the policy runs inside a partition that grew or shrank. Only
    /// policies that size ghosts or targets by it need this.
    fn resized(&mut self, _capacity: u32) {}

    /// How many accesses were classified as what, for policies that classify.
    fn class_counts(&self) -> Option<ClassCounts> {
        None
    }

    /// The last class of the block in `slot`, for policies that classify.
    fn class(&self, _slot: Slot) -> Option<Class> {
        None
    }

    /// What was learnt about each call site, for policies that do; ordered by site.
    fn sites(&self) -> Option<Vec<SiteRecord>> {
        None
    }

    /// Walks every invariant, given the number of resident blocks, and panics on a broken one.
    fn check(&self, resident: usize);
}

/// A share of `capacity` in whole blocks or bytes: rounded down, but at least one, so that small
/// caches have each of their parts.
fn share(capacity: u64, part: f64) -> u64 {
    ((capacity as f64 * part) as u64).max(1)
}

/// How many accesses a classifying policy put into each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    /// Accesses classified as sequential.
    pub sequential: u64,
    /// Accesses classified as looping.
    pub looping: u64,
    /// All others.
    pub other: u64,
}
