//! Every placement of the registry, on the engine that it is for, over random programs on random
//! machines: what is conserved at every step, what bounds the outcome, and that a run can be
//! repeated.
//!
//! A new placement is covered by being registered. A failure names the seed and the placement in
//! the captured output.

mod bounds;
mod conservation;
mod world;

use std::sync::Arc;

use hither_core::Spec;
use hither_core::placement::{Entry, Target, placements};
use hither_sim::placement::{Configuration, Options, Outcome, PlacementSpec, files, pages};
use world::World;

/// Runs a placement on the engine that it is for.
fn simulate(world: &World, spec: PlacementSpec, options: &Options<'_>) -> Outcome {
    let configuration = Configuration {
        capacity: world.capacity.clone(),
        replacement: world.replacement,
        ..Configuration::even(spec, Arc::clone(&world.topology), 1)
    };
    let trace = &world.trace;
    let outcome = match spec.entry().target {
        Target::Memory => pages::run(trace, &configuration, &pages::Costs::default(), options),
        Target::Files => {
            let costs = files::Costs::of(&world.topology, 4096);
            files::run(trace, &configuration, &costs, options)
        }
    };
    outcome.unwrap_or_else(|error| panic!("{spec} is refused: {error}"))
}

/// All placements, with their defaults.
fn all(target: Target) -> impl Iterator<Item = PlacementSpec> {
    let entries = placements()
        .iter()
        .filter(move |entry| entry.target == target);
    entries.map(Spec::<Entry>::defaults)
}
