//! The contents of a cache of objects of every size: which object is in which slot, its bytes, when
//! it expires, and the counts of hits and misses, in objects and in bytes.
//!
//! It is for objects what [`Residency`](crate::Residency) is for blocks: slots name objects, and
//! bytes are what is scarce. So the policy names victims until the newcomer fits, and how many
//! slots there are depends on the objects.

use crate::access::{Access, Op};
use crate::ids::{Block, Slot};
use crate::list::NIL;
use crate::replacement::Replacement;

/// When an access is, and how long what it brings in is of use. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The time of the access.
    pub now_ns: u64,
    /// How long its object may be used from then on; 0: for ever.
    pub ttl_ns: u64,
}

impl Life {
    /// When the object expires.
    fn end_ns(self) -> u64 {
        match self.ttl_ns {
            0 => u64::MAX,
            ttl_ns => self.now_ns.saturating_add(ttl_ns),
        }
    }
}

/// What a cache of objects has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Accesses that found their object.
    pub hits: u64,
    /// Accesses that did not.
    pub misses: u64,
    /// The bytes of the objects that were found.
    pub hit_bytes: u64,
    /// The bytes of those that were not.
    pub missed_bytes: u64,
    /// Misses whose object had been there, and had expired.
    pub expired: u64,
    /// Misses whose object was not brought in: it is larger than the cache, or the policy did not
    /// take it.
    pub passed_by: u64,
    /// Objects that were deleted by accesses. These are neither hits nor misses.
    pub deleted: u64,
}

/// An object in the cache.
#[derive(Clone, Copy, Debug)]
struct Resident {
    /// Its number, or [`NIL`] where the slot is empty.
    block: u32,
    bytes: u64,
    expires_ns: u64,
}

/// The contents of a cache of so many bytes.
#[derive(Clone, Debug)]
pub struct SizedResidency {
    capacity_bytes: u64,
    used_bytes: u64,
    /// By block.
    slot_of: Vec<u32>,
    /// By slot.
    residents: Vec<Resident>,
    free: Vec<u32>,
    counts: ObjectCounts,
}

impl SizedResidency {
    /// An empty cache. `objects` is the expected number of distinct objects: a hint.
    pub fn new(capacity_bytes: u64, objects: usize) -> Self {
        SizedResidency {
            capacity_bytes,
            used_bytes: 0,
            slot_of: vec![NIL; objects],
            residents: Vec::new(),
            free: Vec::new(),
            counts: ObjectCounts::default(),
        }
    }

    /// Serves one access, and returns whether its object was there.
    ///
    /// An object keeps the size with which it came in, until it is written with another one: it is
    /// then a new object in place of the old one. One that has expired is found out when it is
    /// asked for, and leaves then.
    #[inline]
    pub fn access<P: Replacement + ?Sized>(
        &mut self,
        policy: &mut P,
        access: &Access,
        life: Life,
    ) -> bool {
        let block = access.block.index();
        if block >= self.slot_of.len() {
            self.slot_of.resize(block + 1, NIL);
        }
        let slot = self.slot_of[block];
        if access.op == Op::Delete {
            if slot != NIL {
                self.counts.deleted += 1;
                self.leave(policy, Slot(slot));
            }
            return false;
        }
        if slot != NIL {
            let resident = &mut self.residents[slot as usize];
            if resident.expires_ns >= life.now_ns {
                self.counts.hits += 1;
                self.counts.hit_bytes += access.bytes;
                if access.op == Op::Write && resident.bytes != access.bytes {
                    self.leave(policy, Slot(slot));
                    self.bring_in(policy, access, life);
                    return true;
                }
                if access.op == Op::Write {
                    resident.expires_ns = life.end_ns();
                }
                policy.hit(Slot(slot), access);
                return true;
            }
            self.counts.expired += 1;
            self.leave(policy, Slot(slot));
        }
        self.counts.misses += 1;
        self.counts.missed_bytes += access.bytes;
        if !self.bring_in(policy, access, life) {
            self.counts.passed_by += 1;
        }
        false
    }

    /// As [`Residency`](crate::Residency) does.
    #[inline]
    pub(crate) fn prefetch(&self, accesses: &[Access]) {
        let slots = accesses
            .iter()
            .map(|access| self.slot_of.get(access.block.index()));
        std::hint::black_box(slots.fold(0, |sum: u32, slot| sum ^ slot.copied().unwrap_or(0)));
    }

    /// Brings an object in. False if it does not fit, or the policy does not take it.
    fn bring_in<P: Replacement + ?Sized>(
        &mut self,
        policy: &mut P,
        access: &Access,
        life: Life,
    ) -> bool {
        if access.bytes > self.capacity_bytes || !policy.admits(access) {
            return false;
        }
        while self.used_bytes > self.capacity_bytes - access.bytes {
            let victim = policy.victim(access);
            self.forget(victim);
        }
        let resident = Resident {
            block: access.block.0,
            bytes: access.bytes,
            expires_ns: life.end_ns(),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.residents[slot as usize] = resident;
                slot
            }
            None => {
                self.residents.push(resident);
                self.residents.len() as u32 - 1
            }
        };
        self.slot_of[access.block.index()] = slot;
        self.used_bytes += access.bytes;
        policy.inserted(Slot(slot), access);
        true
    }

    /// An object leaves, other than as a victim.
    fn leave<P: Replacement + ?Sized>(&mut self, policy: &mut P, slot: Slot) {
        policy.removed(slot);
        self.forget(slot);
    }

    /// Empties a slot that the policy has forgotten.
    fn forget(&mut self, slot: Slot) {
        let resident = &mut self.residents[slot.index()];
        let block = std::mem::replace(&mut resident.block, NIL);
        assert_ne!(block, NIL, "the victim's slot {} is empty", slot.0);
        self.used_bytes -= resident.bytes;
        self.slot_of[block as usize] = NIL;
        self.free.push(slot.0);
    }

    /// Whether an object is in the cache, be it expired.
    pub fn contains(&self, block: Block) -> bool {
        self.slot_of
            .get(block.index())
            .is_some_and(|&slot| slot != NIL)
    }

    /// How many objects are in the cache.
    pub fn len(&self) -> usize {
        self.residents.len() - self.free.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes fit.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// How many bytes are in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// What was counted.
    pub fn counts(&self) -> &ObjectCounts {
        &self.counts
    }

    /// Panics unless both maps agree, every slot is either filled or free, once, and the objects
    /// have the bytes that are in use, no more than fit.
    pub fn check(&self) {
        let mut bytes = 0;
        for (slot, resident) in self.residents.iter().enumerate() {
            let free = self.free.contains(&(slot as u32));
            assert_eq!(
                resident.block == NIL,
                free,
                "slot {slot} is neither filled nor free"
            );
            if !free {
                assert_eq!(self.slot_of[resident.block as usize] as usize, slot);
                bytes += resident.bytes;
            }
        }
        let placed = self.slot_of.iter().filter(|&&slot| slot != NIL).count();
        assert_eq!(placed, self.len(), "an object has a slot that lacks it");
        assert_eq!(bytes, self.used_bytes);
        assert!(bytes <= self.capacity_bytes);
    }
}
