//! Traces that are made up: seeded generators of the access patterns that caches are judged by,
//! alone or mixed.
//!
//! A [`Workload`] is a list of parts, each written like a policy, `zipf{blocks=1000000,skew=0.9}`.
//! A part is a program of its own: it has its process, its thread, its files and its call sites, so
//! that policies that classify by any of these have something to find. Parts take turns: which one
//! is next is drawn, and it makes `burst` references before the next draw, so that its share of the
//! references goes by its `weight`.
//!
//! Memory depends on the parts and never on the number of references. The same parts, seed and
//! version give the same bytes on every machine: the numbers come from [`hither_core::random`], and
//! where logarithms are needed they are those of the `libm` crate, since the C library's differ in
//! the last bit from version to version and from CPU to CPU.
//!
//! Patterns have no end and are cut off where the user says; [programs](Program) are finite,
//! threaded, and mind time and nodes: see the folder `program`.
//!
//! A generator is one file here, a `mod` line and a line in [`GENERATORS`].

mod r#loop;
mod nested;
mod program;
mod scan;
mod shifting;
mod uniform;
mod workload;
mod zipf;

use hither_core::random::{Random, mix};
use hither_core::registry::{Param, ParamKind};
use hither_core::spec::{RegistryEntry, Values};

pub use program::{Conditions, Mix, PROGRAMS, Program, ProgramSpec, THREADS_MAX};
pub use workload::{Part, Workload};

/// A generator.
#[derive(Debug)]
pub struct Generator {
    /// What a user writes; also the name of its file.
    pub name: &'static str,
    /// One line on what it makes.
    pub summary: &'static str,
    /// Its parameters, in the order in which they are written out; the last are [`SHARED`].
    pub params: &'static [Param],
    /// What follows the part's name in the names of its files and call sites: one of each for every
    /// element.
    pub(crate) places: &'static [&'static str],
    /// Makes one.
    build: fn(&Values, &mut Random) -> Box<dyn Pattern>,
}

impl RegistryEntry for Generator {
    const SINGULAR: &'static str = "generator";
    const PLURAL: &'static str = "generators";

    fn all() -> &'static [Generator] {
        GENERATORS
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> &'static [Param] {
        self.params
    }
}

/// One line a generator, sorted by name; the rest of it is in its file.
pub static GENERATORS: &[Generator] = &[
    r#loop::ENTRY,
    nested::ENTRY,
    scan::ENTRY,
    shifting::ENTRY,
    uniform::ENTRY,
    zipf::ENTRY,
];

/// A generator with a value for each of its parameters.
pub type Spec = hither_core::Spec<Generator>;

/// A reference: which of the part's places, and the block in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) place: u32,
    pub(crate) index: u32,
}

/// A pattern of references without end.
pub(crate) trait Pattern: Send {
    /// The next reference.
    fn step(&mut self, random: &mut Random) -> Step;

    /// The next references. One indirect call serves them all: the loop is compiled for each
    /// pattern.
    fn fill(&mut self, random: &mut Random, steps: &mut [Step]) {
        for step in steps {
            *step = self.step(random);
        }
    }
}

/// The most blocks of a file: blocks have 32-bit numbers.
const BLOCKS_MAX: u64 = u32::MAX as u64;

/// A parameter that counts blocks.
const fn blocks(name: &'static str, doc: &'static str, default: u64) -> Param {
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
const fn real(name: &'static str, doc: &'static str, default: f64, max: f64) -> Param {
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

const WEIGHT: Param = Param {
    name: "weight",
    doc: "its share of the references, relative to the other parts'",
    kind: ParamKind::Real {
        default: 1.0,
        min: 1e-6,
        max: 1e6,
    },
};

const BURST: Param = Param {
    name: "burst",
    doc: "how many references it makes before another part may have its turn",
    kind: ParamKind::Count {
        default: 16,
        min: 1,
        max: 1 << 32,
    },
};

const WRITES: Param = real(
    "writes",
    "the share of its references that are writes",
    0.0,
    1.0,
);

/// A seeded permutation of the numbers below a bound, computed number by number: it takes no
/// memory.
///
/// Rounds of odd multiplication and xor-shift on the smallest power of two that holds the bound are
/// a bijection of it, and walking the cycle until the number is below the bound makes a bijection
/// of the numbers below it: fewer than two walks on average.
#[derive(Clone, Debug)]
pub(crate) struct Scatter {
    bound: u64,
    mask: u64,
    shift: u32,
    rounds: [(u64, u64); 3],
}

impl Scatter {
    pub(crate) fn new(bound: u64, key: u64) -> Scatter {
        let bits = (u64::BITS - (bound - 1).leading_zeros()).max(1);
        let rounds = [1u64, 2, 3].map(|round| {
            let key = mix(key.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            (key | 1, mix(key))
        });
        Scatter {
            bound,
            mask: u64::MAX >> (u64::BITS - bits),
            shift: bits.div_ceil(2),
            rounds,
        }
    }

    #[inline]
    pub(crate) fn place(&self, mut number: u64) -> u64 {
        loop {
            for (factor, offset) in self.rounds {
                number = number.wrapping_mul(factor).wrapping_add(offset) & self.mask;
                number ^= number >> self.shift;
            }
            if number < self.bound {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_unique_documented_and_parseable() {
        assert!(GENERATORS.is_sorted_by(|a, b| a.name < b.name));
        for entry in GENERATORS {
            assert!(!entry.summary.is_empty() && !entry.places.is_empty());
            assert!(entry.params.iter().all(|param| !param.doc.is_empty()));
            let shared = &entry.params[entry.params.len() - SHARED.len()..];
            let names =
                |params: &[Param]| params.iter().map(|param| param.name).collect::<Vec<_>>();
            assert_eq!(names(shared), names(SHARED), "{}", entry.name);
            let spec: Spec = entry.name.parse().unwrap();
            assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
        }
    }

    #[test]
    fn every_file_of_this_folder_is_registered() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/generate");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .filter(|name| !["mod", "program", "workload"].contains(&name.as_str()))
            .collect();
        files.sort();
        let names: Vec<&str> = GENERATORS.iter().map(|entry| entry.name).collect();
        assert_eq!(files, names);
    }

    #[test]
    fn a_scatter_is_a_permutation_that_depends_on_its_key() {
        for bound in [1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, 1024, 1025] {
            let mut seen = vec![false; bound as usize];
            for number in 0..bound {
                let place = Scatter::new(bound, bound).place(number);
                assert!(
                    !std::mem::replace(&mut seen[place as usize], true),
                    "{bound}"
                );
            }
        }
        let (one, other) = (Scatter::new(1000, 1), Scatter::new(1000, 2));
        let same = (0..1000)
            .filter(|&n| one.place(n) == other.place(n))
            .count();
        let fixed = (0..1000).filter(|&n| one.place(n) == n).count();
        // Permutations drawn at random have one such number on average.
        assert!(same < 20, "{same}");
        assert!(fixed < 20, "{fixed}");
        // Neighbours do not stay neighbours.
        let close = |n: u64| one.place(n).abs_diff(one.place(n + 1)) < 10;
        let close = (0..999).filter(|&n| close(n)).count();
        assert!(close < 60, "{close}");
    }
}
