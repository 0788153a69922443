//! Several nodes on a simulated network, driven by a seed: latencies, lost connections, partitions,
//! crashes, stopped nodes, clock jumps, a source with errors; and members that lie. Every answer is
//! checked.
//!
//! A seed that fails is printed. `HITHER_SIMULATION_SEED=N` runs one seed with a log of all that
//! happens; `HITHER_SIMULATION_SEEDS=N` runs another number of seeds than the default, from
//! `HITHER_SIMULATION_FIRST=N` on.

#[path = "simulated_network/faults.rs"]
mod faults;
#[path = "simulated_network/liars.rs"]
mod liars;
#[path = "simulated_network/network.rs"]
mod network;
#[path = "simulated_network/node.rs"]
mod node;
#[path = "simulated_network/readers.rs"]
mod readers;
#[path = "simulated_network/runtime.rs"]
mod runtime;
#[path = "simulated_network/scenario.rs"]
mod scenario;
#[path = "simulated_network/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hither_core::Random;
use hither_node::key::ChunkKey;
use hither_node::protocol::{Blocks, Input, Protocol};
use liars::Cast;
use node::Node;
use scenario::{MS, Scenario};
use world::{Event, Sabotage, World};

/// Seeds of a run that nobody asked to be longer: some 20 s.
const SEEDS: u64 = 800;

#[derive(Default)]
struct Totals {
    reads: u64,
    fetched_blocks: u64,
    probes: u64,
    wait_longest: u64,
}

/// Runs a seed to its end and checks it on the way.
fn simulate(seed: u64, sabotage: Option<Sabotage>, log: bool, totals: &mut Totals) {
    let mut world = World::new(seed, sabotage, log);
    world.run_until(world.scenario.disturbed_ns);
    world.calm();
    // Later nodes hear the last view, even those that skipped some.
    for node in 0..world.nodes.len() {
        let view = world.view.clone();
        let lag = world.scenario.view_lag_ns;
        world.schedule(lag, node, Event::Input(Input::ViewChanged(view)));
    }
    world.run_until(world.now + settle_ns(&world));
    check_quiescence(&world);
    check_fetches(&world);
    if world.scenario.converges() {
        totals.probes += probe(&mut world);
        check_quiescence(&world);
    }
    totals.reads += world.reads;
    totals.fetched_blocks += world.fetched.values().sum::<u64>();
    totals.wait_longest = totals.wait_longest.max(world.wait_longest);
}

/// Time after which nothing may be under way any more.
fn settle_ns(world: &World) -> u64 {
    let settings = &world.scenario.settings;
    let mut settle = world.scenario.view_lag_ns + settings.avoid_ns;
    let rounds = settings.pings_missed_max + 3 + world.scenario.ping_turn();
    settle += settings.ping_ns * rounds + 4_000 * MS;
    if !world.scenario.reliable {
        settle += settings.patience_ns + settings.grant_ns;
    }
    settle + 3 * world.scenario.rounds() * world.scenario.source_ns.1
}

fn check_quiescence(world: &World) {
    for (number, node) in world.nodes.iter().enumerate() {
        let protocol = node.protocol.as_ref().unwrap();
        protocol.check();
        assert!(node.reads.is_empty(), "{number}: {:?} hangs", node.reads[0]);
        assert!(node.wanted.is_empty(), "{number} owes {:?}", node.wanted);
        assert!(node.fetching.is_empty());
        assert_eq!(
            protocol.blocks_in_flight(),
            0,
            "{number} has blocks in flight"
        );
        assert_eq!(protocol.busy_chunks(), 0, "{number} has readers that wait");
        assert_eq!(protocol.view(), &world.view, "{number} has another view");
        for other in &world.view.members {
            assert!(!protocol.suspects(*other), "{number} suspects {other:?}");
        }
    }
}

fn check_fetches(world: &World) {
    for (block, &starts) in &world.fetch_starts {
        let wants = world.wants.get(block).copied().unwrap_or_default();
        assert!(
            starts <= wants,
            "{block:?}: {starts} reads, wanted {wants} times"
        );
    }
    if !world.scenario.reliable {
        return;
    }
    for node in &world.nodes {
        let counters = node.protocol.as_ref().unwrap().counters();
        let given_up = counters.answer_timeout_blocks
            + counters.delivery_timeout_blocks
            + counters.patience_blocks
            + counters.refused_blocks
            + counters.grant_timeout_blocks
            + counters.suspicions;
        assert_eq!(given_up, 0, "{counters:?}");
    }
    if world.scenario.faults.is_some() {
        return;
    }
    for (block, &fetched) in &world.fetched {
        let evicted = world.evicted.get(block).copied().unwrap_or_default();
        assert!(
            fetched <= 1 + evicted,
            "{block:?} was read {fetched} times from the source, and evicted {evicted} times"
        );
    }
}

/// Where all is well, each node finds what any other holds. Returns how many blocks were tried.
fn probe(world: &mut World) -> u64 {
    let before = world.fetch_starts.clone();
    let mut probes = 0;
    for number in 0..world.nodes.len() {
        let mut held: BTreeMap<ChunkKey, u64> = BTreeMap::new();
        for block in world.nodes[number].store.keys() {
            let (chunk, mask) = block.in_chunk();
            *held.entry(chunk).or_default() |= mask;
        }
        for (chunk, mask) in held {
            let reader = world.random.below(world.nodes.len() as u64) as usize;
            world.read(reader, Blocks::new(chunk, mask));
            probes += u64::from(mask.count_ones());
        }
    }
    world.run_until(world.now + 3_000 * MS);
    let mut read = world.fetch_starts.iter();
    if let Some((block, _)) = read.find(|&(block, starts)| before.get(block) != Some(starts)) {
        panic!("{block:?}, which a node holds, was read from the source again");
    }
    probes
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn readers_get_their_blocks_whatever_happens() {
    let mut totals = Totals::default();
    if let Some(seed) = number("HITHER_SIMULATION_SEED") {
        simulate(seed, None, true, &mut totals);
        return;
    }
    let first = number("HITHER_SIMULATION_FIRST").unwrap_or(0);
    let seeds = number("HITHER_SIMULATION_SEEDS").unwrap_or(SEEDS);
    for seed in first..first + seeds {
        let run = catch_unwind(AssertUnwindSafe(|| {
            simulate(seed, None, false, &mut totals);
        }));
        assert!(run.is_ok(), "HITHER_SIMULATION_SEED={seed} fails");
    }
    println!(
        "{seeds} seeds: {} reads, {} blocks from the source, {} probes, longest wait {} ms",
        totals.reads,
        totals.fetched_blocks,
        totals.probes,
        totals.wait_longest / MS
    );
    assert!(totals.probes > seeds);
}

/// Runs a seed with members that lie. Each reader gets the right bytes in the end, and nothing goes
/// to who may not have it.
fn simulate_lies(seed: u64, sabotage: Option<Sabotage>, log: bool, totals: &mut LieTotals) {
    let mut random = Random::new(seed);
    let mut scenario = Scenario::new(&mut random);
    let cast = Cast::deal(&mut random, &mut scenario);
    let honest = cast.honest;
    let mut world = World::with(scenario, random, Some(cast), sabotage, log);
    world.run_until(world.scenario.disturbed_ns);
    world.calm();
    let last = world.now + settle_ns(&world);
    let waits = |world: &World| {
        let mut nodes = world.nodes[..honest].iter();
        nodes.any(|node| !node.reads.is_empty() || !node.wanted.is_empty())
    };
    while world.now < last && (waits(&world) || world.now < world.scenario.disturbed_ns + 300 * MS)
    {
        world.run_until(world.now + 50 * MS);
    }
    for (number, node) in world.nodes[..honest].iter().enumerate() {
        assert!(node.reads.is_empty(), "{number}: {:?} hangs", node.reads[0]);
        assert!(node.wanted.is_empty(), "{number} owes {:?}", node.wanted);
        let protocol = node.protocol.as_ref().unwrap();
        protocol.check();
        totals.unexpected_blocks += protocol.counters().unexpected_blocks;
        totals.forbidden += protocol.counters().forbidden;
        totals.strangers += protocol.counters().strangers;
        totals.arrived_blocks += protocol.counters().arrived_blocks;
    }
    totals.reads += world.reads;
    totals.lies += world.cast.map_or(0, |cast| cast.lies);
}

#[derive(Debug, Default)]
struct LieTotals {
    reads: u64,
    lies: u64,
    unexpected_blocks: u64,
    forbidden: u64,
    strangers: u64,
    arrived_blocks: u64,
}

#[test]
fn liars_are_not_believed_and_get_nothing() {
    let mut totals = LieTotals::default();
    if let Some(seed) = number("HITHER_SIMULATION_SEED") {
        simulate_lies(seed, None, true, &mut totals);
        return;
    }
    let first = number("HITHER_SIMULATION_FIRST").unwrap_or(0);
    let seeds = number("HITHER_SIMULATION_SEEDS").unwrap_or(SEEDS);
    for seed in first..first + seeds {
        let run = catch_unwind(AssertUnwindSafe(|| {
            simulate_lies(seed, None, false, &mut totals);
        }));
        assert!(run.is_ok(), "HITHER_SIMULATION_SEED={seed} fails");
    }
    println!("{seeds} seeds: {totals:?}");
    assert!(totals.unexpected_blocks > seeds);
    assert!(totals.forbidden > seeds);
    assert!(totals.strangers > seeds);
    assert!(totals.arrived_blocks > seeds);
}

/// Without each of the checks, they are.
#[test]
fn without_the_checks_liars_are_believed() {
    for sabotage in [
        Sabotage::TakesAnything,
        Sabotage::NoLists,
        Sabotage::HearsStrangers,
    ] {
        let found = (0..50).find(|&seed| {
            let run = || simulate_lies(seed, Some(sabotage), false, &mut LieTotals::default());
            catch_unwind(AssertUnwindSafe(run)).is_err()
        });
        let seed = found.unwrap_or_else(|| panic!("{sabotage:?} is not found"));
        println!("{sabotage:?} is found by seed {seed}");
    }
}

/// Whether a seed has a cluster to measure: all its nodes then find which distances are longer, and
/// nothing changes any more. Nodes are in a row, each link four times as long as one between nodes
/// that are a step nearer.
fn measure_distances(seed: u64) -> bool {
    let mut world = World::new(seed, None, false);
    let nodes = world.nodes.len();
    if !(3..=4).contains(&nodes) {
        return false;
    }
    for (from, to) in (0..nodes).flat_map(|from| (0..from).map(move |to| (to, from))) {
        world.extra_ns.insert((from, to), MS << (2 * (to - from)));
    }
    world.run_until(world.scenario.disturbed_ns);
    world.calm();
    // Some may have skipped the last view.
    for node in 0..nodes {
        world.step(node, Input::ViewChanged(world.view.clone()));
    }
    // Until all have told all once more, and it is used.
    let turn_ns = world.scenario.settings.ping_ns * world.scenario.ping_turn();
    world.run_until(world.now + 300 * turn_ns);
    let generations = |world: &World| -> Vec<u64> {
        let protocols = world.nodes.iter().flat_map(|node| &node.protocol);
        protocols.map(Protocol::topology_generation).collect()
    };
    let before = generations(&world);
    world.run_until(world.now + 100 * turn_ns);
    assert_eq!(generations(&world), before);
    let members = &world.view.members;
    let position = |node: &Node| members.iter().position(|it| *it == node.member).unwrap();
    let order: Vec<hither_core::Node> = world
        .nodes
        .iter()
        .map(|node| hither_core::Node(position(node) as u16))
        .collect();
    for node in &world.nodes {
        let topology = node.protocol.as_ref().unwrap().topology().unwrap();
        // The most hops at each distance. Of two links of one length, one may be in a higher class.
        let mut hops = vec![Vec::new(); nodes];
        for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            hops[from.abs_diff(to)].push(topology.hops(order[from], order[to]));
        }
        for pair in hops.windows(2) {
            assert!(pair[0].iter().max() < pair[1].iter().min(), "{hops:?}");
        }
    }
    true
}

#[test]
fn all_nodes_find_the_same_distances() {
    let measured = (0..SEEDS / 4).filter(|&seed| {
        let run = catch_unwind(|| measure_distances(seed));
        run.unwrap_or_else(|_| panic!("distances: seed {seed} fails"))
    });
    let measured = measured.count();
    println!("{measured} clusters");
    assert!(measured > 20);
}

/// The checks find what they are there for.
#[test]
fn broken_nodes_are_found() {
    for sabotage in [
        Sabotage::NobodyWaits,
        Sabotage::NoTimers,
        Sabotage::WrongBlocks,
        Sabotage::SilentReports,
    ] {
        let found = (0..50).find(|&seed| {
            let run = || simulate(seed, Some(sabotage), false, &mut Totals::default());
            catch_unwind(AssertUnwindSafe(run)).is_err()
        });
        let seed = found.unwrap_or_else(|| panic!("{sabotage:?} is not found"));
        println!("{sabotage:?} is found by seed {seed}");
    }
}
