//! What the kernel itself says of the page cache, through eBPF: which pages of which files are
//! read, mapped, brought in, given up and made dirty, by whichever program.
//!
//! - [`Observer`] loads the programs of the folder `bpf`, attaches them to the kernel's
//!   tracepoints, and passes on the [events](event) that they send through a ring. [`Options`] say
//!   what is observed; the kernel's side filters. Where a kernel lacks tracepoints, functions or
//!   system calls stand in ([`Source`]).
//! - [`event`] has the events and their layout.
//! - [`Mounts`] make the paths of events, which begin at the root of a file system, paths here.
//! - [`Probe`] finds out what can be observed on this machine, and what is in the way.
//!
//! The programs are compiled already, an object for each processor (`bpf/observer.*.bpf.o`), and
//! adapt to the running kernel by its BTF. `bpf/build.sh` compiles them anew; `.ci/run` compares.
//!
//! There is no unsafe code here: aya has the system calls and the shared memory of the ring, and
//! events are read from bytes.
#![forbid(unsafe_code)]

mod attach;
mod bytes;
mod cgroup;
mod error;
pub mod event;
mod mounts;
mod observer;
mod obstacle;
mod options;
mod probe;
mod processes;
mod sampling;
mod source;
pub mod stack;

pub use cgroup::Cgroup;
pub use error::Error;
pub use event::{Event, Kind};
pub use mounts::Mounts;
pub use mounts::foreign::ForeignMounts;
pub use observer::{Lost, Observer};
pub use obstacle::Obstacle;
pub use options::{Options, RING_BYTES, Scope};
pub use probe::{Finding, Probe};
pub use processes::is_alive;
pub use sampling::Sampling;
pub use source::{Hook, Source};
pub use stack::{KnownStack, UserStack};
