//! What memory costs on this machine: how long a load takes between each pair of nodes, and what
//! moving a page costs.
//!
//! The firmware reports distances. They are relative, coarse, and at times made up. So loads and
//! moves are measured ([`hither_kernel::memory_probe`]) and kept in a file for this machine
//! (`cache`). For a pair that could not be measured, or whose measurement is implausible, the
//! firmware's latency is used (HMAT, which has the nearest memory only), or else its distance,
//! scaled to a measured load.
//!
//! A remote load that is as fast as a local one is implausible. Where all remote loads are, the
//! nodes are virtual: those of a guest whose memory lies anywhere on its host, or of an emulator.
//! Then no measured load is used, and the distances alone count: whoever configured these nodes
//! chose them on purpose.

mod cache;
mod costs;
mod measurement;
mod stored;
#[cfg(test)]
mod tests;

pub use self::cache::{CalibrationCache, cache_folder};
pub use self::costs::{Costs, LatencySource};
pub use self::measurement::{Calibration, Effort};
pub(crate) use self::stored::StoredCalibration;
