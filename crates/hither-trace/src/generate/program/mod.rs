//! Programs: threaded workloads of a finite size, modelled after those that papers on placement
//! run, which write a whole trace with processes, threads, nodes, files or regions of memory, call
//! sites and, where they iterate, marks.
//!
//! A program is one file in this folder (or in one below it), a `mod` line and a line in
//! [`PROGRAMS`]. Its `run` is handed an [`Execution`] and pushes rows into it: it says which
//! processes and threads there are and what they touch, each thread on a clock of its own, and
//! never where a row goes. [`parallel_grep`] is the shortest example for threads that are each a
//! process reading files. A kernel over memory pushes the rows of all threads of a parallel
//! construct, one thread after the other if it likes, and then calls [`Execution::settle`], which
//! puts them in order of time, and [`Execution::mark`].
//!
//! Programs run side by side, each on a thread of this process, and a [`Mix`] merges what they push
//! by time, so that memory depends on what lies between two `settle`s and never on the length of
//! the trace. The same programs, seed and version give the same bytes: whatever is drawn is drawn
//! from [`Execution::random`], and where logarithms are needed they are those of the `libm` crate.

mod compile;
mod execution;
mod files;
mod iozone;
mod memory;
mod mix;
mod parallel_grep;
mod shared_files;
mod web_server;

use hither_core::registry::{Param, ParamKind};
use hither_core::spec::{RegistryEntry, Values};

pub use mix::{Conditions, Mix};

pub(crate) use execution::{Execution, Stopped};

/// A program.
#[derive(Debug)]
pub struct Program {
    /// What a user writes; also the name of its file, with `_` for `-`.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// What it is modelled after.
    pub source: &'static str,
    /// Its parameters, in the order in which they are written out.
    pub params: &'static [Param],
    /// How many threads it has where the user does not say.
    pub threads: u32,
    /// The most threads that it can have.
    pub threads_max: u32,
    /// Whether it iterates and marks its iterations. Its threads are then moved by itself, between
    /// iterations (`Execution::iteration_ends`); those of others after so many of their own rows.
    pub iterates: bool,
    /// Runs it.
    pub(crate) run: fn(&Values, &mut Execution) -> Result<(), Stopped>,
}

impl RegistryEntry for Program {
    const SINGULAR: &'static str = "program";
    const PLURAL: &'static str = "programs";

    fn all() -> &'static [Program] {
        PROGRAMS
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> &'static [Param] {
        self.params
    }
}

/// A program with a value for each of its parameters.
pub type ProgramSpec = hither_core::Spec<Program>;

/// One line a program, sorted by name; the rest of it is in its file.
pub static PROGRAMS: &[Program] = &[
    memory::bucket_sort::ENTRY,
    memory::cfd::ENTRY,
    memory::cg::ENTRY,
    compile::ENTRY,
    iozone::ENTRY,
    memory::matmul::ENTRY,
    memory::multigrid::ENTRY,
    parallel_grep::ENTRY,
    shared_files::ENTRY,
    memory::stencil::ENTRY,
    web_server::ENTRY,
];

/// The most threads of programs that set no limit of their own: more than any machine that is worth
/// simulating has.
pub const THREADS_MAX: u32 = 4096;

/// A parameter that is 1 (yes) or 0 (no).
pub(crate) const fn switch(name: &'static str, doc: &'static str, default: u64) -> Param {
    Param {
        name,
        doc,
        kind: ParamKind::Count {
            default,
            min: 0,
            max: 1,
        },
    }
}

/// A parameter that counts something there is at least one of.
pub(crate) const fn count(name: &'static str, doc: &'static str, default: u64, max: u64) -> Param {
    Param {
        name,
        doc,
        kind: ParamKind::Count {
            default,
            min: 1,
            max,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_unique_documented_and_parseable() {
        assert!(PROGRAMS.is_sorted_by(|a, b| a.name < b.name));
        for entry in PROGRAMS {
            for text in [entry.summary, entry.source] {
                assert!(!text.trim().is_empty(), "{} lacks a text", entry.name);
            }
            assert!(entry.params.iter().all(|param| !param.doc.is_empty()));
            assert!(entry.threads > 0);
            let spec: ProgramSpec = entry.name.parse().unwrap();
            assert_eq!(spec.to_string().parse::<ProgramSpec>().unwrap(), spec);
            let generators = super::super::GENERATORS;
            assert!(generators.iter().all(|other| other.name != entry.name));
        }
    }

    #[test]
    fn every_file_of_this_folder_is_registered() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/generate/program");
        let helpers = ["execution", "files", "memory", "mix", "mod"];
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let name = stem.replace('_', "-");
            let registered = PROGRAMS.iter().any(|entry| entry.name == name);
            assert!(registered || helpers.contains(&stem), "{name}");
        }
    }
}
