//! What a generator is: an endless pattern of block references, and its parameters.

use hither_core::random::Random;
use hither_core::registry::{Param, ParamKind};
use hither_core::spec::Values;

/// A generator.
#[derive(Debug)]
pub struct Generator {
    /// The name that a user writes, and that its file has.
    pub name: &'static str,
    /// One line on what it makes.
    pub summary: &'static str,
    /// Its parameters, in the order of its written spec; [`SHARED`] come last.
    pub params: &'static [Param],
    /// Its files, by what is appended to the part's name. Each has a call site of the same name.
    pub(crate) files: &'static [&'static str],
    /// Makes one.
    pub(super) build: fn(&Values, &mut Random) -> Box<dyn Pattern>,
}

/// A generator with a value for each of its parameters.
pub type GeneratorSpec = hither_core::Spec<Generator>;

/// A reference: the file within the part, and the block in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) file: u32,
    pub(crate) index: u32,
}

/// An endless pattern of references.
pub(crate) trait Pattern: Send {
    /// The next reference.
    fn step(&mut self, random: &mut Random) -> Step;

    /// The next references. One indirect call makes all of them: the loop is compiled per pattern.
    fn fill(&mut self, random: &mut Random, steps: &mut [Step]) {
        for step in steps {
            *step = self.step(random);
        }
    }
}

/// The largest number of blocks of a file: blocks have 32-bit numbers.
const BLOCKS_MAX: u64 = u32::MAX as u64;

/// A parameter that counts blocks.
pub(super) const fn blocks(name: &'static str, doc: &'static str, default: u64) -> Param {
    Param {
        name,
        doc,
        kind: ParamKind::Count {
            default,
            min: 1,
            max: BLOCKS_MAX,
        },
    }
}

/// A parameter that is a number from 0 to `max`.
pub(super) const fn real(name: &'static str, doc: &'static str, default: f64, max: f64) -> Param {
    Param {
        name,
        doc,
        kind: ParamKind::Real {
            default,
            min: 0.0,
            max,
        },
    }
}

/// The parameters that every generator has, after its own.
pub static SHARED: &[Param] = &[WEIGHT, BURST, WRITES];

pub(super) const WEIGHT: Param = Param {
    name: "weight",
    doc: "its share of the references, relative to the other parts'",
    kind: ParamKind::Real {
        default: 1.0,
        min: 1e-6,
        max: 1e6,
    },
};

pub(super) const BURST: Param = Param {
    name: "burst",
    doc: "how many references it makes before another part may have its turn",
    kind: ParamKind::Count {
        default: 16,
        min: 1,
        max: 1 << 32,
    },
};

pub(super) const WRITES: Param = real(
    "writes",
    "the share of its references that are writes",
    0.0,
    1.0,
);
