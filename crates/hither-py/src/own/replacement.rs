//! Replacement policies.

use std::sync::Mutex;

use hither_core::ids::Slot;
use hither_core::registry::{Compared, Needs, ReplacementEntry, ReplacementSettings};
use hither_core::replacement::Replacement;
use hither_core::spec::Values;
use hither_core::{Access, Op, ReplacementPolicy, Spec};
use pyo3::prelude::*;

use super::object::{Entries, Own, derived, entry_of, leaves, shown};

/// The policy of a class that derives from `hither.Replacement`.
pub(crate) fn replacement(class: &Bound<'_, PyAny>) -> PyResult<Spec> {
    // By whether it leaves `accessed` to the package.
    static ENTRIES: [Entries<ReplacementEntry>; 2] = [const { Mutex::new(None) }; 2];
    let class = derived(class, "Replacement")?;
    let left = leaves(class, "Replacement", METHODS[ACCESSED])?;
    let entry = entry_of(&ENTRIES[usize::from(left)], class, |name, class| {
        let build = move |settings: &ReplacementSettings<'_>, _: &Values| {
            let capacity = settings.capacity;
            let own = Own::new(name, &class, "Replacement", &METHODS, |py| {
                Ok(capacity.into_pyobject(py)?.into_any().unbind())
            });
            Box::new(OwnReplacement::new(own)) as Box<dyn ReplacementPolicy>
        };
        ReplacementEntry {
            name,
            summary: "",
            source: "",
            params: &[],
            needs: Needs {
                objects: !left,
                ..Needs::NOTHING
            },
            takes_sizes: false,
            live: &[],
            compared: Compared::ByName,
            build: Box::leak(Box::new(build)),
        }
    });
    entry.map(Spec::defaults)
}

const METHODS: [&str; 5] = ["accessed", "hit", "victim", "inserted", "removed"];
const ACCESSED: usize = 0;
const HIT: usize = 1;
const VICTIM: usize = 2;
const INSERTED: usize = 3;
const REMOVED: usize = 4;

/// No block, and no slot.
const NONE: u32 = u32::MAX;

struct OwnReplacement {
    own: Own,
    /// By slot.
    block_of: Vec<u32>,
    /// By block.
    slot_of: Vec<u32>,
    /// `victim` has told the policy of this access.
    is_told: bool,
}

impl OwnReplacement {
    fn new(own: Own) -> OwnReplacement {
        OwnReplacement {
            own,
            block_of: Vec::new(),
            slot_of: Vec::new(),
            is_told: false,
        }
    }

    fn tell(&mut self, access: &Access) {
        if !self.own.has(ACCESSED) {
            return;
        }
        let is_write = access.op == Op::Write;
        let (block, object, site) = (access.block.0, access.object.0, access.site.0);
        let arguments = (block, object, access.index, site, is_write);
        self.own.ask(ACCESSED, arguments, |_| Ok(()));
    }

    fn fill(&mut self, slot: Slot, block: u32) {
        let (at, number) = (slot.index(), block as usize);
        if self.block_of.len() <= at {
            self.block_of.resize(at + 1, NONE);
        }
        if self.slot_of.len() <= number {
            self.slot_of.resize(number + 1, NONE);
        }
        (self.block_of[at], self.slot_of[number]) = (block, slot.0);
        self.own.ask(INSERTED, (block,), |_| Ok(()));
    }

    /// A slot that can be the victim of a policy that has failed.
    fn any(&self) -> Slot {
        let filled = self.block_of.iter().position(|&block| block != NONE);
        Slot(filled.expect("a victim is asked for where there is one") as u32)
    }

    /// The slot's block, which leaves it.
    fn empty(&mut self, slot: Slot) -> u32 {
        let block = std::mem::replace(&mut self.block_of[slot.index()], NONE);
        self.slot_of[block as usize] = NONE;
        block
    }
}

impl Replacement for OwnReplacement {
    fn hit(&mut self, _: Slot, access: &Access) {
        self.tell(access);
        self.own.ask(HIT, (access.block.0,), |_| Ok(()));
    }

    fn victim(&mut self, incoming: &Access) -> Slot {
        self.tell(incoming);
        self.is_told = true;
        let (slot_of, block) = (&self.slot_of, incoming.block.0);
        let answer = self.own.ask(VICTIM, (block,), |answer| {
            let victim = answer.extract::<u32>().ok();
            let slot = victim.and_then(|victim| slot_of.get(victim as usize).copied());
            match slot.filter(|&slot| slot != NONE) {
                Some(slot) => Ok(Ok(Slot(slot))),
                None => Ok(Err(shown(&answer))),
            }
        });
        let slot = match answer {
            Some(Ok(slot)) => slot,
            Some(Err(answer)) => {
                self.own.refuse(&format!(
                    "at access {}, of block {block}, victim() returned {answer}, which is not in \
                     the cache",
                    incoming.tick
                ));
                self.any()
            }
            None => self.any(),
        };
        self.empty(slot);
        slot
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        if !std::mem::take(&mut self.is_told) {
            self.tell(access);
        }
        self.fill(slot, access.block.0);
    }

    /// It was not accessed: it comes from another cache.
    fn moved_in(&mut self, slot: Slot, access: &Access) {
        self.is_told = false;
        self.fill(slot, access.block.0);
        self.own.ask(HIT, (access.block.0,), |_| Ok(()));
    }

    fn removed(&mut self, slot: Slot) {
        let block = self.empty(slot);
        self.own.ask(REMOVED, (block,), |_| Ok(()));
    }

    fn check(&self, resident: usize) {
        let filled = self.block_of.iter().filter(|&&block| block != NONE);
        assert_eq!(filled.count(), resident, "blocks in slots");
    }
}
