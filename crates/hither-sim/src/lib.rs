//! Engines that replay a trace through policies.
//!
//! [`run`] drives any number of caches (policy and size) over one pass of a trace, in parallel, and
//! always gives the same result for the same input, whatever the number of threads.
#![forbid(unsafe_code)]

pub mod caches;
pub mod curve;
pub mod placement;
pub mod references;
pub mod sample;
pub mod size;
pub mod stack;

pub use caches::{CacheConfiguration, CacheOptions, CacheOutcome, Error, Segment, run};
pub use curve::{MissRatioCurve, Points, Spacing, curves};
pub use references::References;
pub use sample::Estimate;
pub use size::{Size, SizeError};
pub use stack::{Curve, Stack};
