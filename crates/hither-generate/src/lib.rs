//! Generated traces: seeded generators of common access patterns, alone or mixed.
//!
//! A [`Workload`] is a list of parts, each written like a policy, `zipf{blocks=1000000,skew=0.9}`.
//! A part has its own process, thread, files and call sites, so policies that classify by any of
//! these can tell parts apart. Parts take turns: the next one is drawn at random and makes `burst`
//! references. The chances are such that its share of all references follows its `weight`.
//!
//! Memory depends on the parts, and not on the number of references. The same parts, seed and
//! version give the same bytes on every machine: random numbers come from [`hither_core::random`],
//! and logarithms from the `libm` crate, since those of the C library differ in the last bit
//! between versions and CPUs.
//!
//! Patterns are endless; the user sets the number of references. [Programs](Program) are finite and
//! threaded, and model time and nodes: see the folder `program`.
//!
//! A generator is one file here, a `mod` line, and a line in [`GENERATORS`].
#![forbid(unsafe_code)]

mod generator;
mod r#loop;
mod nested;
mod permutation;
mod program;
mod request;
mod scan;
mod shifting;
mod uniform;
mod workload;
mod zipf;

use hither_core::registry::Param;
use hither_core::spec::RegistryEntry;

pub use generator::{Generator, GeneratorSpec, SHARED};
pub use program::{MixOptions, PROGRAMS, Program, ProgramMix, ProgramSpec, THREADS_MAX};
pub use request::{NODES_MAX, Request, RequestOptions, RequestPart};
pub use workload::{Part, Workload};

/// One line a generator, sorted by name; the rest of it is in its file.
pub static GENERATORS: &[Generator] = &[
    r#loop::ENTRY,
    nested::ENTRY,
    scan::ENTRY,
    shifting::ENTRY,
    uniform::ENTRY,
    zipf::ENTRY,
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_unique_documented_and_parseable() {
        assert!(GENERATORS.is_sorted_by(|a, b| a.name < b.name));
        for entry in GENERATORS {
            assert!(!entry.summary.is_empty() && !entry.files.is_empty());
            assert!(entry.params.iter().all(|param| !param.doc.is_empty()));
            let shared = &entry.params[entry.params.len() - SHARED.len()..];
            let names =
                |params: &[Param]| params.iter().map(|param| param.name).collect::<Vec<_>>();
            assert_eq!(names(shared), names(SHARED), "{}", entry.name);
            let spec: GeneratorSpec = entry.name.parse().unwrap();
            assert_eq!(spec.to_string().parse::<GeneratorSpec>().unwrap(), spec);
        }
    }

    #[test]
    fn every_file_of_this_folder_is_registered() {
        const OTHERS: [&str; 6] = [
            "generator",
            "lib",
            "permutation",
            "program",
            "request",
            "workload",
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .filter(|name| !OTHERS.contains(&name.as_str()))
            .collect();
        files.sort();
        let names: Vec<&str> = GENERATORS.iter().map(|entry| entry.name).collect();
        assert_eq!(files, names);
    }
}
