//! Why nothing can be observed.

use std::io;

use aya::programs::ProgramError;

/// Why nothing can be observed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not describe its types, so that the programs cannot be fitted to it.
    #[error("the kernel has no BTF (/sys/kernel/btf/vmlinux)")]
    NoBtf(#[source] aya::BtfError),
    /// The object with the programs was refused.
    #[error("the programs cannot be loaded")]
    Load(#[source] aya::EbpfError),
    /// The kernel has no such tracepoint.
    #[error("the kernel has no tracepoint {0}")]
    NoTracepoint(&'static str),
    /// A program was refused.
    #[error("tracepoint {tracepoint}: the program cannot be loaded or attached")]
    Program {
        /// What it is for.
        tracepoint: &'static str,
        /// What the kernel said.
        #[source]
        source: ProgramError,
    },
    /// A map of the programs was refused.
    #[error("the map {name} of the programs cannot be used")]
    Map {
        /// Its name in `bpf/observer.h`.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: aya::maps::MapError,
    },
    /// The programs and this code do not belong together.
    #[error("the programs have no {0}")]
    Missing(&'static str),
    /// Neither a cgroup of the second version nor one of the memory controller.
    #[error("{0} is neither a cgroup v2 nor one of the memory controller")]
    NoCgroup(String),
    /// Processes have other numbers here than the programs see.
    #[error("not in the initial pid namespace")]
    PidNamespace,
    /// A file of /proc or /sys could not be read.
    #[error("{path}")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}
