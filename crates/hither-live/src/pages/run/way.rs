//! The way in which accesses are counted, found by trying.

use hither_sys::arm::{Arm, Unarmed};
use hither_sys::machine::Machine;

/// The first way that works, and why others are not taken.
#[derive(Default)]
pub(super) struct Way {
    /// Nothing where none works, or none is wanted.
    pub(super) arm: Option<Box<dyn Arm>>,
    /// What refused, by its name.
    pub(super) refused: Vec<(&'static str, Unarmed)>,
}

impl Way {
    /// Tries all ways, or the only one that may be taken.
    pub(super) fn find(machine: &dyn Machine, wanted: Option<&'static str>) -> Way {
        let mut way = Way::default();
        for rung in machine.ladder() {
            if wanted.is_some_and(|wanted| wanted != rung.name) {
                continue;
            }
            match rung.arm {
                Ok(arm) => way.arm = way.arm.or(Some(arm)),
                Err(reason) => way.refused.push((rung.name, reason)),
            }
        }
        way
    }

    pub(super) fn is_by_kernel(&self) -> bool {
        self.arm.as_ref().is_some_and(|arm| arm.by_kernel())
    }

    /// Whether programs have to offer a descriptor for it.
    pub(super) fn needs_offers(&self) -> bool {
        self.arm.as_ref().is_some_and(|arm| !arm.by_kernel())
    }
}
