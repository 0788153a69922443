//! Blocks that this node holds.

mod ids;
pub mod memory;
