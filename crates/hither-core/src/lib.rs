//! Pure policies: what a cache of a given size keeps, and what an access pattern is.
//!
//! Nothing here does I/O, reads a clock or asks the OS for randomness: accesses come in, decisions
//! go out, and the same input always gives the same output. The simulator and the live runtime
//! drive this same code.
//!
//! [`registry`] lists the replacement policies and [`placement`] the placements; [`entry`] is what
//! their entries have in common, and [`Spec`] parses what a user writes. [`Residency`] knows what
//! is in a cache and asks a [`Replacement`] what to evict. A [`Placement`] decides on which node of
//! a [`Topology`] a block lives.
#![forbid(unsafe_code)]

pub mod access;
mod aged_ranks;
pub mod cache;
pub mod classify;
pub mod entry;
mod expected_reads;
mod ghost_list;
mod ghost_pair;
mod heap;
pub mod ids;
mod list;
pub mod placement;
pub mod random;
pub mod readahead_windows;
pub mod registry;
pub mod replacement;
pub mod signature;
pub mod site_profile;
pub mod sized;
mod sketch;
pub mod spec;
mod text;
pub mod topology;
pub mod weight;

pub use access::{Access, Op};
pub use cache::{AccessResult, ReplacementPolicy, Residency};
pub use expected_reads::{ExpectedReads, Forecast};
#[doc(inline)]
pub use hither_references as references;
pub use ids::{Block, NEVER, Node, Object, Process, Site, Slot, Thread, Tick};
pub use placement::Placement;
pub use random::Random;
pub use replacement::Replacement;
pub use sized::{Life, ObjectCounts, SizedResidency};
pub use spec::{Spec, SpecError};
pub use topology::Topology;

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
