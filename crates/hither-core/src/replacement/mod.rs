//! What a cache of a given size keeps: the interface of all replacement policies, one file a
//! policy.
//!
//! A policy ranks slots and nothing else: [`Residency`] knows which block is where. It declares in
//! its registry entry what it needs to know of an access (see [`crate::registry`]) and states in
//! its file where it departs from its source.

pub mod arc;
pub mod car;
pub mod clock;
pub mod dear;
pub mod eelru;
pub mod fifo;
pub mod lfu;
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
pub mod two_q;
pub mod ubm;
pub mod w_tinylfu;

use crate::access::Access;
use crate::cache::Residency;
use crate::classify::Class;
use crate::ids::{Site, Slot};

/// What a cache of fixed capacity keeps. The calls come in this order: `hit`, or (`victim` if no
/// slot is free, then) `inserted`, one of the two an access; `removed` at any time between
/// accesses.
pub trait Replacement {
    /// The access found its block in `slot`.
    fn hit(&mut self, slot: Slot, access: &Access);

    /// A miss and no free slot: names the slot to give up and forgets it, its ghost's bookkeeping
    /// included. The missing access is inserted into this very slot next. Only called on a full
    /// cache.
    fn victim(&mut self, incoming: &Access) -> Slot;

    /// The missing access's block is now in `slot`.
    fn inserted(&mut self, slot: Slot, access: &Access);

    /// The block in `slot` left outside our control (invalidated, truncated).
    fn removed(&mut self, slot: Slot);

    /// The capacity changed: the policy runs inside a partition that grew or shrank. Only policies
    /// that size ghosts or targets by it care.
    fn resized(&mut self, _capacity: u32) {}

    /// How many accesses were classified as what, for policies that classify.
    fn class_counts(&self) -> Option<ClassCounts> {
        None
    }

    /// What the block in `slot` was last taken for, by policies that classify.
    fn class(&self, _slot: Slot) -> Option<Class> {
        None
    }

    /// What was learnt about each call site, for policies that learn about them; ordered by site.
    fn sites(&self) -> Option<Vec<SiteRecord>> {
        None
    }

    /// Walks every invariant, given the number of resident blocks, and panics on a broken one.
    fn check(&self, resident: usize);
}

/// A policy behind one pointer. Calling [`ReplacementPolicy::drive`] through it costs one indirect
/// call a batch, not one an access: the loop inside is compiled for each policy.
pub trait ReplacementPolicy: Replacement + Send {
    /// Serves a batch of accesses in order.
    fn drive(&mut self, cache: &mut Residency, batch: &[Access]);
}

/// So many accesses are looked up before the first of them is served.
const PREFETCH_ACCESSES: usize = 16;

impl<P: Replacement + Send> ReplacementPolicy for P {
    fn drive(&mut self, cache: &mut Residency, batch: &[Access]) {
        for few in batch.chunks(PREFETCH_ACCESSES) {
            cache.prefetch(few);
            for access in few {
                cache.access(self, access);
            }
        }
    }
}

/// `part` of `capacity` in whole blocks: rounded down, but at least one, so that small caches have
/// each of their parts.
fn share(capacity: u32, part: f64) -> u32 {
    ((f64::from(capacity) * part) as u32).max(1)
}

/// How many accesses a classifying policy called what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Accesses classified as sequential.
    pub sequential: u64,
    /// Accesses classified as looping.
    pub looping: u64,
    /// All others.
    pub other: u64,
}

/// What is known of a call site: the counters of PCC (section 4.1 of its paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    /// The call site.
    pub site: Site,
    /// Accesses to blocks that were not seen again since.
    pub sequential: u64,
    /// Accesses to blocks that were seen again.
    pub looping: u64,
    /// The average number of references between an access and the next one to the same block; 0
    /// where unknown.
    pub period: u64,
}
