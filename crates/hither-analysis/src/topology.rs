//! Topologies by name: a shape, a preset, a file, this machine, or the machine of a trace.

mod drawing;
mod file;
mod latency_origin;
mod recorded;

use std::path::Path;

use hither_core::Topology;
use hither_core::topology::TopologyError;

use crate::{Error, Result};

pub use drawing::drawing;
pub use latency_origin::LatencyOrigin;
pub use recorded::recorded;

/// Reads the topology of the machine that the caller runs on. `Err` says why it cannot.
pub type ThisMachine<'a> = &'a dyn Fn() -> Result<Topology, String>;

/// Where the latencies of the topology are from that [`load`] reads for the same text.
pub fn latency_origin(text: &str) -> Result<LatencyOrigin> {
    match text.trim() {
        "this" => Ok(LatencyOrigin::Firmware),
        name if name.ends_with(".toml") => file::latency_origin(Path::new(name)),
        name => Ok(LatencyOrigin::of_name(name)),
    }
}

/// The topology that a user wrote: a shape (`mesh:5x5`), a preset (`opteron2`), `this`, or a path
/// that ends in `.toml`.
pub fn load(text: &str, this_machine: ThisMachine<'_>) -> Result<Topology> {
    let name = text.trim();
    if name == "this" {
        return this_machine().map_err(Error::TopologyUnreadable);
    }
    if name.ends_with(".toml") {
        return file::read(Path::new(name));
    }
    name.parse().map_err(|error| {
        let more = match error {
            TopologyError::Unknown { .. } => "; or `this` machine, or a file that ends in .toml",
            _ => "",
        };
        Error::Usage(format!("{error}{more}"))
    })
}
