//! Topologies as users name them: a shape, a preset, a file, or the machine that we run on.

mod drawing;
mod file;
mod this;

use std::path::Path;

use hither_core::Topology;
use hither_core::topology::TopologyError;

use crate::exit::Usage;

pub(crate) use drawing::drawing;

/// The topology that a user wrote: a shape (`mesh:5x5`), a preset (`opteron2`), `this`, or a path
/// that ends in `.toml`.
pub(crate) fn load(text: &str) -> anyhow::Result<Topology> {
    let name = text.trim();
    if name == "this" {
        return this::topology();
    }
    if name.ends_with(".toml") {
        return file::read(Path::new(name));
    }
    name.parse().map_err(|error| {
        let more = match error {
            TopologyError::Unknown { .. } => "; or `this` machine, or a file that ends in .toml",
            _ => "",
        };
        Usage(format!("{error}{more}")).into()
    })
}
