//! Blocks that this node holds.

pub mod disk;
mod ids;
pub mod memory;
pub(crate) mod victims;
