//! What a command line, or the file of a sweep, says about placements.

use std::sync::Arc;

use hither_core::Topology;
use hither_sim::placement::{Binding, PlacementSpec};

use super::case::RunSettings;

/// The nodes, the placements and the settings of runs. With policies and sizes it makes a
/// [`PlacementRequest`](super::PlacementRequest).
#[derive(Clone, Debug, Default)]
pub struct PlacementSetup {
    /// The topologies. Where there is none, the trace's own nodes are used, if it has several.
    pub nodes: Vec<Arc<Topology>>,
    /// The placements. Where there is none, the default placements of the kind of data are used.
    pub placements: Vec<PlacementSpec>,
    /// The settings of the runs.
    pub running: RunSettings,
}

/// Every binding with its name on the command line.
const BINDINGS: [(&str, Binding); 4] = [
    ("auto", Binding::Auto),
    ("trace", Binding::Trace),
    ("threads", Binding::Threads),
    ("processes", Binding::Processes),
];

/// The name of a binding on the command line.
pub fn binding_name(binding: Binding) -> &'static str {
    let found = BINDINGS.iter().find(|(_, known)| *known == binding);
    found.map_or("auto", |(name, _)| name)
}

/// The binding of that name.
pub fn parse_binding(text: &str) -> Result<Binding, String> {
    let found = BINDINGS.iter().find(|(name, _)| *name == text);
    found
        .map(|&(_, binding)| binding)
        .ok_or_else(|| format!("`{text}` is none of auto, trace, threads, processes"))
}
