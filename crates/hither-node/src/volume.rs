//! A volume: a source, seen through the node's cache.

mod checksum;
mod counters;
mod fetch;
mod files;
mod pattern;
mod pins;
mod place;
mod read;
mod warm;

pub use counters::{Counters, Counts};
pub use files::{OpenFile, ReadObserver, Volume, VolumeSettings};
pub use place::{Pin, Place};

pub use crate::pending::Data;
