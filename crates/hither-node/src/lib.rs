//! The shared cache of a cluster: block store, directory, sources.
#![forbid(unsafe_code)]

pub mod announcements;
pub mod cluster;
pub mod config;
mod disk_reads;
pub mod distances;
mod driver;
pub mod holds;
pub mod key;
pub mod node;
mod peer_handler;
mod peers;
mod pending;
mod placing;
pub mod protocol;
pub mod questions;
pub mod readers;
pub mod source;
pub mod store;
pub mod volume;

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
