//! `this`: the memory nodes of the machine that we run on, as the kernel shows them in sysfs.

use hither_core::Topology;
use hither_live::numa::topology::{self, Machine, ThisMachine};

/// The topology that a user wrote: a shape, a preset, a file, or `this`.
pub(crate) fn load(text: &str) -> hither_analysis::Result<Topology> {
    hither_analysis::topology::load(text, &topology)
}

/// The topology of this machine.
pub(crate) fn topology() -> Result<Topology, String> {
    let hidden = |error: &dyn std::fmt::Display| {
        format!("this machine does not show its memory nodes (/sys/devices/system/node): {error}")
    };
    let nodes = ThisMachine.nodes().map_err(|error| hidden(&error))?;
    topology::topology(&nodes).map_err(|error| hidden(&error))
}
