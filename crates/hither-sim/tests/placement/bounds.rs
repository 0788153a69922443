//! What no placement can better: the optimum of one cache as large as all of them; and what all become on one node.

use hither_core::Spec;
use hither_core::placement::Of;
use hither_sim::placement::Options;

use super::world::World;
use super::{all, simulate};

/// Misses of one cache of so many blocks.
fn misses(world: &World, policy: &str, cache_blocks: u32) -> u64 {
    let spec = policy.parse::<Spec>().expect("a policy");
    let configuration = hither_sim::Configuration { spec, cache_blocks };
    let outcomes = hither_sim::run(
        &world.trace,
        &[configuration],
        &hither_sim::Options::default(),
    );
    outcomes.expect("it needs nothing that is not there")[0].misses
}

#[test]
fn no_placement_of_files_misses_less_than_the_optimum_of_all_caches_as_one() {
    let mut above = 0;
    for seed in 0..100 {
        let world = World::new(seed, Of::Files);
        let least = misses(&world, "opt", world.capacity.iter().sum());
        for spec in all(Of::Files) {
            println!("seed {seed}: {spec} on {}", world.topology.name());
            let totals = simulate(&world, spec, &Options::default()).totals;
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
fn on_one_node_a_placement_of_files_is_lru() {
    let mut worlds = 0;
    for seed in 0..200 {
        let world = World::new(seed, Of::Files);
        let [capacity] = world.capacity[..] else {
            continue;
        };
        worlds += 1;
        let lru = misses(&world, "lru", capacity);
        for spec in all(Of::Files) {
            println!("seed {seed}: {spec}");
            let totals = simulate(&world, spec, &Options::default()).totals;
            assert_eq!(totals.misses, lru);
        }
    }
    assert!(worlds > 5, "some are on one node");
}
