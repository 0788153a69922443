//! What is placed where, as a command or the file of a sweep says it.

use std::sync::Arc;

use hither_core::Topology;
use hither_sim::placement::{Binding, PlacementSpec};

use super::RunSettings;

/// What is placed where; with policies and sizes it makes a
/// [`PlacementRequest`](super::PlacementRequest).
#[derive(Clone, Debug, Default)]
pub struct PlacementSetup {
    /// The topologies. None: nothing is placed, or on the nodes that the trace knows.
    pub nodes: Vec<Arc<Topology>>,
    /// The placements. None: those that are usual for the kind of data.
    pub placements: Vec<PlacementSpec>,
    /// How runs go.
    pub running: RunSettings,
}

/// Every binding with its name, as a user writes it.
const BINDINGS: [(&str, Binding); 4] = [
    ("auto", Binding::Auto),
    ("trace", Binding::Trace),
    ("threads", Binding::Threads),
    ("processes", Binding::Processes),
];

/// What a user writes for a binding.
pub fn binding_name(binding: Binding) -> &'static str {
    let found = BINDINGS.iter().find(|(_, known)| *known == binding);
    found.map_or("auto", |(name, _)| name)
}

/// The binding of that name.
pub fn binding_named(text: &str) -> Result<Binding, String> {
    let found = BINDINGS.iter().find(|(name, _)| *name == text);
    found
        .map(|&(_, binding)| binding)
        .ok_or_else(|| format!("`{text}` is none of auto, trace, threads, processes"))
}
