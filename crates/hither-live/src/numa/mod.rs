//! Memory nodes: what all mechanisms that move pages share.
//!
//! [`topology`] is the machine's nodes, [`calibration`] what accesses and moves cost on it, `usage`
//! how full nodes are, `mover` the thread that moves pages, and `ranges` the pages that it is told
//! of and what came of them.

pub mod calibration;
pub(crate) mod mover;
pub(crate) mod ranges;
pub mod topology;
pub(crate) mod usage;
