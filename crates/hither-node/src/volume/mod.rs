//! A volume: a source, seen through the node's cache.

mod counters;
mod fetch;
mod files;
mod pattern;
mod read;

pub use counters::{Counters, Counts};
pub use files::{OpenFile, ReadObserver, Volume, VolumeSettings};

pub use crate::pending::Data;
