//! Nodes, the distances between them, and the network that joins them: what "near" means to a
//! placement.
//!
//! A topology is built once and shared (`Arc<Topology>`). All distances are computed when it is
//! built, so that a policy or an engine reads them from a table. Routes are computed when one is
//! first asked for, since only engines that model contention need them.
//!
//! | text | nodes | hops |
//! |---|---|---|
//! | `4` | 4 | 1 between any two |
//! | `mesh:5x5` | 25 | Manhattan distance |
//! | `torus:4x4x4` | 64 | the same, each axis closed to a ring |
//! | `hypercube:4` | 16 | differing bits of the numbers |
//! | `hypercube:3x2` | 16, two on each of 8 routers | routers on the way |
//! | `ring:4x4` | 4 stations of 4 processors | rings on the way |
//! | `tree:4x4` | 16 leaves | links up and down |
//!
//! There are also [presets](presets()) with the latencies of the papers' machines, and matrices of
//! latencies.

mod error;
mod link;
mod median;
mod network;
mod parse;
mod presets;
mod routes;
mod shape;

pub use error::TopologyError;
pub use link::{Link, LinkEnd};
pub use network::{About, Latencies, Topology};
pub use presets::{Preset, presets};
pub use shape::NODES_MAX;
