//! Every placement of the registry, on its engine, over random programs on random machines:
//! invariants at every step, bounds of the outcome, and repeatable runs.
//!
//! A new placement is tested as soon as it is registered. A failure prints the seed and the
//! placement.

mod bounds;
mod conservation;
mod world;

use std::sync::Arc;

use hither_core::Spec;
use hither_core::placement::{PlacementEntry, Target, placement_policies};
use hither_sim::placement::{
    PlacementConfiguration, PlacementOptions, PlacementOutcome, PlacementSpec, files, memory,
};
use world::World;

/// Runs a placement on its engine.
fn simulate(
    world: &World,
    spec: PlacementSpec,
    options: &PlacementOptions<'_>,
) -> PlacementOutcome {
    let configuration = PlacementConfiguration {
        capacity: world.capacity.clone(),
        replacement: world.replacement,
        ..PlacementConfiguration::even(spec, Arc::clone(&world.topology), 1)
    };
    let trace = &world.trace;
    let outcome = match spec.entry().target() {
        Target::Memory => memory::run(
            trace,
            &configuration,
            &memory::MemoryCosts::default(),
            options,
        ),
        Target::Files => {
            let costs = files::FileCosts::of(&world.topology, 4096);
            files::run(trace, &configuration, &costs, options)
        }
    };
    outcome.unwrap_or_else(|error| panic!("{spec} is refused: {error}"))
}

/// All placements, with their defaults.
fn all(target: Target) -> impl Iterator<Item = PlacementSpec> {
    let entries = placement_policies()
        .iter()
        .filter(move |entry| entry.target() == target);
    entries.map(Spec::<PlacementEntry>::defaults)
}
