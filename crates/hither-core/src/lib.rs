//! Pure policies: what a cache of a given size keeps, and what an access pattern is.
//!
//! Nothing here does I/O, reads a clock or asks the OS for randomness: accesses come in, decisions go out, and the
//! same input always gives the same output. The simulator and the live runtime drive this same code.
#![forbid(unsafe_code)]

pub mod access;
pub mod ids;

pub use access::{Access, Op};
pub use ids::{Block, NEVER, Object, Process, Site, Slot, Thread, Tick};
