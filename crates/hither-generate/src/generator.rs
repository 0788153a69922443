//! What a generator is: an endless pattern of block references, and its parameters.

use hither_core::random::Random;
use hither_core::registry::Param;
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
    Param::count(name, doc, default, 1..=BLOCKS_MAX)
}

/// The parameters that every generator has, after its own.
pub static SHARED: &[Param] = &[WEIGHT, BURST, WRITES];

pub(super) const WEIGHT: Param = Param::real(
    "weight",
    "its share of the references, relative to the other parts'",
    1.0,
    1e-6..=1e6,
);

pub(super) const BURST: Param = Param::count(
    "burst",
    "how many references it makes before another part may have its turn",
    16,
    1..=1 << 32,
);

pub(super) const WRITES: Param = Param::real(
    "writes",
    "the share of its references that are writes",
    0.0,
    0.0..=1.0,
);
