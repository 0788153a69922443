//! A volume: a source, seen through the node's cache.

mod counters;
mod fetch;
mod files;
mod pattern;
mod pins;
mod read;
mod warm;

pub use counters::{Counters, Counts};
pub use files::{OpenFile, ReadObserver, Volume, VolumeSettings};
pub use warm::Place;

pub use crate::pending::Data;
