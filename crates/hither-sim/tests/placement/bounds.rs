//! Bounds of all placements: the optimum of one cache with the room of all, a-priori among the
//! static placements, and equality on one node.

use std::sync::Arc;

use hither_core::Spec;
use hither_core::placement::Target;
use hither_sim::placement::{PlacementConfiguration, PlacementOptions, PlacementSpec, memory};

use super::world::World;
use super::{all, simulate};

/// Misses of one cache of `blocks` blocks.
fn misses(world: &World, spec: Spec, cache_blocks: u32) -> u64 {
    let configuration = hither_sim::CacheConfiguration { spec, cache_blocks };
    let outcomes = hither_sim::run(
        &world.trace,
        &[configuration],
        &hither_sim::CacheOptions::default(),
    );
    outcomes.expect("it needs nothing that is not there")[0].misses
}

#[test]
fn no_placement_of_files_misses_less_than_the_optimum_of_all_caches_as_one() {
    let opt = "opt".parse().expect("a policy");
    let mut above = 0;
    for seed in 0..100 {
        let world = World::new(seed, Target::Files);
        let least = misses(&world, opt, world.capacity.iter().sum());
        for spec in all(Target::Files) {
            println!("seed {seed}: {spec} on {}", world.topology.name());
            let totals = simulate(&world, spec, &PlacementOptions::default()).totals;
            assert!(totals.misses >= least, "{} < {least}", totals.misses);
            above += u64::from(totals.misses > least);
        }
    }
    assert!(
        above > 50,
        "the bound says something where caches are small"
    );
}

#[test]
fn on_one_node_a_placement_of_files_is_the_replacement_alone() {
    let mut worlds = 0;
    for seed in 0..200 {
        let world = World::new(seed, Target::Files);
        let [capacity] = world.capacity[..] else {
            continue;
        };
        worlds += 1;
        let alone = misses(&world, world.replacement, capacity);
        for spec in all(Target::Files) {
            println!("seed {seed}: {spec} with {}", world.replacement);
            let totals = simulate(&world, spec, &PlacementOptions::default()).totals;
            assert_eq!(totals.misses, alone);
        }
    }
    assert!(worlds > 5, "some are on one node");
}

/// The latency of all accesses of a static placement, if all pages have frames and nothing waits
/// for memory.
fn latency_ns(world: &World, spec: PlacementSpec) -> Option<u64> {
    let frames = world.capacity.iter().sum::<u32>();
    let capacity = if frames >= world.blocks() {
        world.capacity.clone()
    } else {
        vec![world.blocks(); world.capacity.len()]
    };
    let configuration = PlacementConfiguration {
        capacity,
        ..PlacementConfiguration::even(spec, Arc::clone(&world.topology), 1)
    };
    let costs = memory::MemoryCosts {
        service_ns: 0,
        ..memory::MemoryCosts::default()
    };
    let outcome = memory::run(
        &world.trace,
        &configuration,
        &costs,
        &PlacementOptions::default(),
    );
    let totals = outcome.expect("it is not refused").totals;
    assert_eq!(totals.evictions, 0);
    (totals.migrations + totals.replications == 0).then_some(totals.hit_ns + totals.miss_ns)
}

#[test]
fn no_static_placement_of_pages_beats_a_priori() {
    let a_priori: PlacementSpec = "a-priori".parse().expect("a placement");
    let (mut compared, mut better) = (0, 0);
    for seed in 0..100 {
        let world = World::new(seed, Target::Memory);
        let least = latency_ns(&world, a_priori).expect("it is static");
        for spec in all(Target::Memory) {
            let Some(ns) = latency_ns(&world, spec) else {
                continue;
            };
            println!("seed {seed}: {spec} on {}", world.topology.name());
            assert!(ns >= least, "{ns} < {least}");
            compared += 1;
            better += u64::from(ns > least);
        }
    }
    assert!(
        compared > 300,
        "first-touch, round-robin and single-node at least: {compared}"
    );
    assert!(better > 100, "{better}");
}

/// Worked by hand: on a chain 0 - 1 - 2, a page that both ends use and one that node 0 uses alone.
#[test]
fn the_best_static_placement_of_a_chain() {
    let world = World::chain();
    let a_priori: PlacementSpec = "a-priori".parse().expect("a placement");
    // Page 0: node 0 reads 10, node 2 reads 11: at 0 10 * 80 + 11 * 240 = 3440; at 1 10 * 130 +
    // 11 * 160 = 3060; at 2 10 * 240 + 11 * 90 = 3390. Page 1 at 0: 5 * 80. One fault each.
    let faults = 2 * u64::from(memory::MemoryCosts::default().fault_ns);
    assert_eq!(latency_ns(&world, a_priori), Some(3060 + 400 + faults));
    let first: PlacementSpec = "first-touch".parse().expect("a placement");
    assert_eq!(latency_ns(&world, first), Some(3440 + 400 + faults));
}
