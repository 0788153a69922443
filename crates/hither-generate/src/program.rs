//! Programs: threaded workloads of finite size, modelled after those in papers on placement. A
//! program writes a whole trace, with processes, threads, nodes, files or regions of memory, call
//! sites, and marks where it iterates.
//!
//! A program is one file in this folder or below, a `mod` line, and a line in [`PROGRAMS`]. Its
//! `run` gets an [`Execution`](execution::Execution), creates processes and threads, and pushes
//! rows, each thread with its own clock. It does not order rows. [`parallel_grep`] is the shortest
//! example of processes that read files. A kernel over memory pushes the rows of all threads of a
//! parallel construct, in any order, and then calls `Execution::commit`, which sorts them by time,
//! and `Execution::mark`.
//!
//! Programs run side by side, each on a thread of this process, and a [`ProgramMix`] merges their
//! rows by time. Memory depends on the rows between two commits, and not on the length of the
//! trace. The same programs, seed and version give the same bytes: random numbers come from
//! `Execution::random`, and logarithms from the `libm` crate.

mod compile;
mod definition;
mod execution;
mod files;
mod iozone;
mod memory;
mod mix;
mod parallel_grep;
mod shared_files;
mod web_server;

use hither_core::registry::Param;
use hither_core::spec::RegistryEntry;

pub use definition::{Program, ProgramSpec, THREADS_MAX};
pub use mix::{MixOptions, ProgramMix};

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
    memory::sweeps::ENTRY,
    web_server::ENTRY,
];

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
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/program");
        let helpers = ["definition", "execution", "files", "memory", "mix"];
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let name = stem.replace('_', "-");
            let registered = PROGRAMS.iter().any(|entry| entry.name == name);
            assert!(registered || helpers.contains(&stem), "{name}");
        }
    }
}
