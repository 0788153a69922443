//! Invariants of all placements: every access is local, remote or a miss; a block has one home and
//! at most one copy per node; no node exceeds its capacity. The engines check this, and the
//! policy's view of it, after each access.

use hither_core::placement::{Target, placement_policies};
use hither_core::registry::{Param, ParamKind};
use hither_sim::placement::{
    Binding, PlacementOptions, PlacementOutcome, PlacementSpec, Totals, WarmUp,
};

use super::world::{ACCESSES, World};
use super::{all, simulate};

const WORLDS: u64 = 200;

const CHECKED: PlacementOptions<'static> = PlacementOptions {
    binding: Binding::Trace,
    warm_up: WarmUp::References(0),
    intervals: 7,
    moves: 50,
    period_ns: 100_000,
    check: true,
    progress: None,
    cancel: None,
};

fn whole(totals: &Totals) {
    let served = totals.local + totals.remote + totals.misses;
    assert_eq!(served, totals.accesses, "{totals:?}");
    assert!(totals.hops >= totals.remote, "a remote one is a hop away");
}

/// The sums that the outcome of a world must satisfy.
fn conserved(world: &World, outcome: &PlacementOutcome) {
    let made = world.trace.accesses();
    let count = made
        .iter()
        .map(|access| u64::from(access.count))
        .sum::<u64>();
    let (before, after) = (&outcome.warm_up, &outcome.totals);
    assert_eq!(before.accesses + after.accesses, count);
    whole(before);
    whole(after);
    assert_eq!(outcome.traffic.iter().sum::<u64>(), after.accesses);
    let nodes = world.capacity.len();
    let own = outcome.traffic.iter().step_by(nodes + 1).sum::<u64>();
    assert!(own >= after.local, "{own} on the diagonal");

    assert_eq!(outcome.timeline.len(), CHECKED.intervals);
    assert_eq!(outcome.timeline.last().map(|last| last.end), Some(ACCESSES));
    assert!(
        outcome
            .timeline
            .is_sorted_by_key(|each| (each.end, each.end_ns))
    );
    let mut timeline = [0; 6];
    let counted = |totals: &Totals| {
        [
            totals.accesses,
            totals.local,
            totals.remote,
            totals.misses,
            totals.replications,
            totals.migrations,
        ]
    };
    for interval in &outcome.timeline {
        whole(&interval.totals);
        let fits = interval.used.iter().zip(&world.capacity);
        assert!(fits.clone().all(|(used, capacity)| used <= capacity));
        let counts = timeline.iter_mut().zip(counted(&interval.totals));
        counts.for_each(|(sum, count)| *sum += count);
    }
    let both = counted(before).into_iter().zip(counted(after));
    assert!(
        timeline
            .into_iter()
            .eq(both.map(|(before, after)| before + after))
    );

    assert!(outcome.moves.len() <= CHECKED.moves);
    for moved in &outcome.moves {
        assert_ne!(moved.from, moved.to);
        assert!(usize::from(moved.from.max(moved.to)) < nodes);
    }
    if nodes == 1 {
        let of = |totals: &Totals| totals.remote + totals.migrations + totals.replications;
        assert_eq!(of(before) + of(after), 0, "there is nowhere to go");
    }
}

#[test]
fn on_random_worlds() {
    for target in [Target::Memory, Target::Files] {
        for seed in 0..WORLDS {
            let world = World::new(seed, target);
            let warm_up = match seed % 3 {
                0 => WarmUp::References(seed % 7 * 50),
                1 => WarmUp::Iterations(seed % 4),
                _ => WarmUp::References(0),
            };
            let options = PlacementOptions { warm_up, ..CHECKED };
            for spec in all(target) {
                println!("seed {seed}: {spec} on {}", world.topology.name());
                let outcome = simulate(&world, spec, &options);
                conserved(&world, &outcome);
                assert_eq!(
                    outcome,
                    simulate(&world, spec, &options),
                    "a run can be repeated"
                );
            }
        }
    }
}

/// The smallest and largest values of a parameter.
fn extremes(param: &Param) -> Vec<String> {
    match param.kind {
        ParamKind::Count { min, max, .. } => vec![min.to_string(), max.to_string()],
        ParamKind::Real { min, max, .. } => vec![min.to_string(), max.to_string()],
        ParamKind::Name { names, .. } => names.iter().map(|&name| name.to_owned()).collect(),
        ParamKind::Preset { presets, .. } => {
            let names = presets.iter().map(|preset| preset.name.to_owned());
            names.collect()
        }
        ParamKind::Replacement { .. } => vec!["arc".to_owned()],
        ParamKind::Placement { .. } => {
            let made_of_another = |param: &Param| matches!(param.kind, ParamKind::Placement { .. });
            let simple = placement_policies().iter().filter(|entry| {
                entry.target() == Target::Memory && !entry.params.iter().any(made_of_another)
            });
            simple.map(|entry| entry.name.to_owned()).collect()
        }
    }
}

#[test]
fn at_the_ends_of_every_parameter() {
    for entry in placement_policies() {
        let mut texts: Vec<String> = entry
            .params
            .iter()
            .flat_map(|param| {
                let values = extremes(param).into_iter();
                values.map(move |value| format!("{}{{{}={value}}}", entry.name, param.name))
            })
            .collect();
        let ends = |pick: fn(&[String]) -> &String| {
            let values = entry.params.iter().map(|param| {
                let values = extremes(param);
                format!("{}={}", param.name, pick(&values))
            });
            format!("{}{{{}}}", entry.name, values.collect::<Vec<_>>().join(","))
        };
        if !entry.params.is_empty() {
            texts.push(ends(|values| &values[0]));
            texts.push(ends(|values| &values[values.len() - 1]));
        }
        for (seed, text) in (0..).zip(texts) {
            println!("seed {seed}: {text}");
            let spec: PlacementSpec = text.parse().expect("allowed");
            for seed in [seed, seed + 1] {
                let world = World::new(1000 + seed, entry.target());
                conserved(&world, &simulate(&world, spec, &CHECKED));
            }
        }
    }
}

#[test]
fn threads_and_processes_stand_for_nodes() {
    for target in [Target::Memory, Target::Files] {
        for (seed, binding) in [
            (1, Binding::Threads),
            (2, Binding::Processes),
            (3, Binding::Auto),
            (4, Binding::Threads),
        ] {
            let world = World::new(seed, target);
            let options = PlacementOptions { binding, ..CHECKED };
            for spec in all(target) {
                println!(
                    "seed {seed}: {spec} on {}, {binding:?}",
                    world.topology.name()
                );
                conserved(&world, &simulate(&world, spec, &options));
            }
        }
    }
}
