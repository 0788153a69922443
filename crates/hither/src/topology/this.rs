//! `this`: the memory nodes of the machine that we run on, as the kernel shows them in sysfs.

use anyhow::Context;
use hither_core::Topology;
use hither_live::numa::topology::{self, Machine, ThisMachine};

pub(super) fn topology() -> anyhow::Result<Topology> {
    let hidden = "this machine does not show its memory nodes (/sys/devices/system/node)";
    let nodes = ThisMachine.nodes().context(hidden)?;
    topology::topology(&nodes).context(hidden)
}
