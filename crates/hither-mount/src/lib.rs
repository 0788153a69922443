//! The shared cache as a file system.
//!
//! [`Mounted`] is a volume that programs see under a directory. All of FUSE is in this crate.
#![forbid(unsafe_code)]

mod attributes;
mod callers;
mod changes;
mod filesystem;
mod inodes;
mod invalidation;
mod last_writer;
mod listing;
mod passthrough;
mod reads;
mod session;
mod shared;
mod writes;
mod writing;
mod writings;

pub use attributes::{Consistency, error_number};
pub use session::{MountError, MountSettings, Mounted, obstacle, unmount};

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
