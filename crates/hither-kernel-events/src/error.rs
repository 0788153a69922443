//! Why nothing can be observed.

use std::io;

use aya::programs::ProgramError;

use crate::obstacle::Obstacle;
use crate::source::Hook;

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
    /// The kernel has no such tracepoint or function.
    #[error("the kernel has no {0}")]
    NoHook(Hook),
    /// No source of a kind of events works, for these reasons. None: it has none such.
    #[error("{}", in_one_line(.0))]
    NoSource(Vec<Error>),
    /// A program was refused.
    #[error("{hook}: the program cannot be loaded or attached")]
    Program {
        /// What it is for.
        hook: Hook,
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
    /// No cgroup is called so, but those of units that were made of a template of this name are.
    #[error("no cgroup is called so: it does not run, or has none of its own; {0} does")]
    OnlyInstance(String),
    /// More than one cgroup is called so.
    #[error("both {first} and {second} are called so: choose one with its path")]
    SeveralCgroups {
        /// The path of one.
        first: String,
        /// The path of another.
        second: String,
    },
    /// No mounted file system has the path.
    #[error("{0} is in no file system that is mounted here")]
    NotMounted(String),
    /// A file of /proc or /sys could not be read, or a given path not be looked up.
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
    /// Why no source works: a single reason is passed on as it is.
    pub(crate) fn of_sources(mut errors: Vec<Error>) -> Error {
        match errors.len() {
            1 => errors.remove(0),
            _ => Error::NoSource(errors),
        }
    }

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

fn in_one_line(errors: &[Error]) -> String {
    if errors.is_empty() {
        return "this source does not have them".to_owned();
    }
    let lines: Vec<String> = errors.iter().map(Error::with_causes).collect();
    lines.join("; ")
}
