//! Why nothing can be observed.

use std::io;

use aya::programs::ProgramError;

use crate::obstacle::Obstacle;

/// Why nothing can be observed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This is in the way.
    #[error("{0}")]
    Obstacle(Obstacle),
    /// The kernel's description of its types cannot be read.
    #[error("the kernel's BTF cannot be read (/sys/kernel/btf/vmlinux)")]
    Btf(#[source] aya::BtfError),
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
    /// No cgroup is called so.
    #[error("no cgroup is called so: it does not run, or has no cgroup of its own")]
    NoSuchCgroup,
    /// More than one cgroup is called so.
    #[error("both {first} and {second} are called so: choose one with its path")]
    SeveralCgroups {
        /// The path of one.
        first: String,
        /// The path of another.
        second: String,
    },
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

impl Error {
    /// With what has led to it, in one line. What the verifier says goes on for pages.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let line = error.to_string();
            text.push_str(": ");
            text.push_str(line.lines().next().unwrap_or_default());
            cause = error.source();
        }
        text
    }
}
