//! What is known about a recording before it starts, and who reports.

use std::path::PathBuf;
use std::time::SystemTime;

use hither_ids::Pid;
use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::process::{ancestors, monotonic_ns};
use hither_trace::schema::{MemoryNode, Meta, Seen};

use super::machine;
use super::memory_left::MemorySampler;
use super::tables::kept_words;

/// What is known about a recording before it starts.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) command: Vec<String>,
    pub(super) arguments: bool,
    /// The folder that the recorder is in, if it may be named.
    pub(super) cwd: PathBuf,
    pub(crate) wall: SystemTime,
    pub(crate) time_ns: u64,
    pub(super) nodes: Vec<MemoryNode>,
    pub(super) memory_left: MemorySampler,
    /// The processes above the recorder.
    pub(super) ancestors: Vec<Pid>,
    pub(super) seen_by: SeenBy,
    /// The kernel has no events of touches of mapped files.
    pub(super) lacks_touches: bool,
}

/// Who reports what programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenBy {
    /// The library in them.
    Library,
    /// The kernel.
    Kernel,
    /// The library, and what it does not see the kernel.
    Both,
}

impl Start {
    /// Without `arguments`, the trace has the names of programs alone.
    pub(crate) fn now(
        command: Vec<String>,
        arguments: bool,
        seen_by: SeenBy,
        memory_left: MemorySampler,
    ) -> Self {
        let time_ns = monotonic_ns();
        Start {
            command: kept_words(command.into_iter(), arguments),
            arguments,
            cwd: std::env::current_dir().unwrap_or_default(),
            wall: SystemTime::now(),
            time_ns,
            nodes: machine::nodes(),
            memory_left: memory_left.since(time_ns),
            ancestors: ancestors(),
            seen_by,
            lacks_touches: false,
        }
    }

    /// Of programs that run already, in a cgroup that has a limit if there is one.
    pub(crate) fn of_running(arguments: bool, group: Option<MemoryGroup>) -> Self {
        let memory_left = MemorySampler::of(group, false);
        Start::now(Vec::new(), arguments, SeenBy::Kernel, memory_left)
    }

    /// Whether a process becomes the parent of those that are orphaned below the recorder.
    pub(super) fn is_above(&self, pid: Pid) -> bool {
        pid != Pid::own() && (pid == Pid(1) || self.ancestors.contains(&pid))
    }

    /// Folders have no names.
    pub(crate) fn without_names(self) -> Self {
        Start {
            cwd: PathBuf::new(),
            ..self
        }
    }

    /// The metadata of the trace, as far as it is known.
    pub(crate) fn meta(&self) -> Meta {
        let since_epoch = self.wall.duration_since(SystemTime::UNIX_EPOCH);
        Meta {
            started_unix_ns: since_epoch.map_or(0, |since| since.as_nanos() as u64),
            clock: "CLOCK_MONOTONIC".to_owned(),
            command: self.command.clone(),
            cwd: self.cwd.to_string_lossy().into_owned(),
            machine: machine::machine(),
            nodes: self.nodes.clone(),
            memory_left: self.memory_left.samples().to_vec(),
            seen: Some(Seen {
                memory_limit_bytes: self.memory_left.limit_bytes(),
                kernel_events: self.seen_by == SeenBy::Kernel,
                ..Seen::default()
            }),
            ..Meta::default()
        }
    }
}
