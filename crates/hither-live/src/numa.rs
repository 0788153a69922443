//! Memory nodes: what the mechanisms that move pages share.
//!
//! [`topology`] describes the machine's nodes, and [`calibration`] measures what accesses and moves
//! cost. `host` makes the placement that decides, `usage` reads how full nodes are, and `mover` is
//! the thread that moves pages: `ranges` has what it is asked for and what it reports.

pub mod calibration;
pub(crate) mod host;
pub(crate) mod mover;
mod page_policy;
pub(crate) mod ranges;
pub mod topology;
pub(crate) mod usage;

pub use page_policy::PagePolicy;
