//! Engines that replay a trace through policies.
//!
//! [`run`] simulates any number of caches (policy and size) in parallel, in one pass over a trace.
//! Equal input gives equal results, for any number of threads.
#![forbid(unsafe_code)]

pub mod bounds;
pub mod caches;
pub mod curve;
pub mod grid;
pub mod objects;
pub mod placement;
pub mod readahead;
pub mod references;
pub mod sample;
pub mod size;
pub mod stack;

pub use bounds::{ObjectBounds, object_bounds};
pub use caches::{
    CacheConfiguration, CacheOptions, CacheOutcome, Error, Segment, misses_by_site, run,
};
pub use curve::{MissRatioCurve, Points, Spacing, curves, object_curves};
pub use grid::{CacheSize, Grid, Row};
pub use objects::{ObjectCache, ObjectEstimate, ObjectOutcome, RatioError};
pub use references::References;
pub use sample::{Estimate, Refusal};
pub use size::{Size, SizeError};
pub use stack::{Curve, Stack};

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
