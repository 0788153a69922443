//! The competitive decisions of upm against equation 1 as it stands in the paper, over random
//! counters, homes and topologies: every candidate node is checked by itself, in whole numbers, the
//! ratio multiplied out.

use std::collections::BTreeMap;
use std::sync::Arc;

use hither_core::placement::{
    Action, ActionOutcome, Counters, Epoch, EpochKind, Nodes, PlacementEntry, PlacementSettings,
};
use hither_core::topology::Latencies;
use hither_core::{Access, Block, Node, Process, Slot, Spec, Topology};

use crate::traces::Random;

/// A page as the paper's bookkeeping has it.
#[derive(Clone, Default)]
struct Page {
    home: usize,
    previous: Option<usize>,
    frozen: bool,
    counts: Vec<u64>,
}

struct Naive {
    topology: Arc<Topology>,
    contention_ns: u128,
    migration_ns: u128,
    history: bool,
    freeze: bool,
    pages: BTreeMap<u32, Page>,
}

impl Naive {
    fn latency_ns(&self, from: usize, to: usize) -> u128 {
        u128::from(self.topology.latency_ns(Node(from as u16), Node(to as u16)))
    }

    /// `ral_tot(i, h)` where equation 1 holds for `i`: both sides times `l_u`.
    fn satisfied(&self, page: &Page, i: usize) -> Option<u128> {
        let h = page.home;
        let local = page.counts[h];
        let c = page.counts.iter().filter(|count| **count > local).count() as u128;
        let r_u = self.latency_ns(i, h);
        let l_u = self.latency_ns(h, h);
        let ral_tot = (r_u + self.contention_ns * c) * u128::from(page.counts[i]);
        let lal_tot = l_u * u128::from(local);
        let holds = i != h && ral_tot * l_u > r_u * lal_tot + self.migration_ns * l_u;
        holds.then_some(ral_tot)
    }

    /// What an iteration with these counts moves.
    fn iterate(&mut self, iteration: &[(u32, Vec<u32>)]) -> BTreeMap<u32, usize> {
        let mut moves = BTreeMap::new();
        for (block, counts) in iteration {
            let page = self.pages.get_mut(block).unwrap();
            for (sum, &count) in page.counts.iter_mut().zip(counts) {
                *sum = u64::from(count) + if self.history { *sum } else { 0 };
            }
            let page = self.pages[block].clone();
            // The last of the largest, seen from the end: the lowest number.
            let best = (0..counts.len())
                .rev()
                .filter_map(|i| Some((self.satisfied(&page, i)?, i)))
                .max_by_key(|(ral_tot, _)| *ral_tot);
            let (Some((_, to)), false) = (best, page.frozen) else {
                continue;
            };
            let page = self.pages.get_mut(block).unwrap();
            if self.freeze && page.previous == Some(to) {
                page.frozen = true;
            } else {
                page.previous = Some(page.home);
                page.home = to;
                moves.insert(*block, to);
            }
        }
        moves
    }
}

#[test]
fn upm_decides_as_equation_one_does() {
    let mut moved = 0;
    for seed in 0..300 {
        println!("seed {seed}");
        moved += compare(&mut Random::new(seed));
    }
    assert!(
        moved > 5000,
        "the runs must put the criterion to the test: {moved}"
    );
}

fn compare(random: &mut Random) -> usize {
    let shape = ["2", "mesh:3x3", "hypercube:4", "ring:4x2"][random.below(4) as usize];
    let topology: Topology = shape.parse().unwrap();
    let topology = Arc::new(topology.with_latencies(Latencies {
        local_ns: 100 + random.below(300) as u32,
        hop_ns: 1 + random.below(200) as u32,
        storage_ns: None,
    }));
    let nodes_count = topology.nodes();
    let blocks = 1 + random.below(30) as u32;
    let contention_ns = [0u32, 50, 400][random.below(3) as usize];
    let migration_ns = [0u32, 20_000, 1_100_000][random.below(3) as usize];
    let (optimistic, history, freeze) = (random.below(2), random.below(2), random.below(2));
    let spec: Spec<PlacementEntry> = format!(
        "upm{{contention_ns={contention_ns},migration_ns={migration_ns},\
         optimistic={optimistic},history={history},freeze={freeze},tune=1,cold=0,skip=0}}"
    )
    .parse()
    .unwrap();
    let capacity = vec![blocks; nodes_count];
    let policy = spec.build_memory(&PlacementSettings {
        topology: topology.clone(),
        capacity: &capacity,
        blocks,
        block_bytes: 4096,
        totals: None,
        initial: None,
        sampled: false,
    });
    let mut policy = policy.expect("it places memory");
    let mut nodes = Nodes::new(topology.clone(), capacity.clone(), blocks);
    let mut twin = Naive {
        topology,
        contention_ns: contention_ns.into(),
        migration_ns: if optimistic == 1 {
            0
        } else {
            migration_ns.into()
        },
        history: history == 1,
        freeze: freeze == 1,
        pages: BTreeMap::new(),
    };
    for block in (0..blocks).map(Block) {
        let node = Node(random.below(nodes_count as u64) as u16);
        let access = Access {
            node,
            ..Access::bare(0, block)
        };
        let home = policy.place(&access, &nodes);
        assert_eq!(home, node, "first touch");
        nodes.insert(block, home, Slot(0));
        let page = Page {
            home: home.index(),
            counts: vec![0; nodes_count],
            ..Page::default()
        };
        twin.pages.insert(block.0, page);
    }
    let mut moved = 0;
    for _ in 0..10 {
        let iteration = counts(random, nodes_count, blocks);
        let mut counters = Counters::new(nodes_count, blocks);
        for (block, counts) in &iteration {
            counters.add_row(Block(*block), counts);
        }
        let epoch = Epoch {
            kind: EpochKind::Iteration,
            process: Some(Process(0)),
            counts: &counters,
            thread_migrations: &[],
            active_threads: nodes_count,
        };
        let mut out = Vec::new();
        policy.on_epoch(&epoch, &nodes, &mut out);
        let mut moves = BTreeMap::new();
        for action in &out {
            let Action::Migrate { block, to } = *action else {
                panic!("{action:?} is no migration");
            };
            nodes.migrate(block, to, Slot(0));
            moves.insert(block.0, to.index());
        }
        let done: Vec<ActionOutcome> = out
            .iter()
            .map(|&action| ActionOutcome { action, done: true })
            .collect();
        policy.on_outcomes(&done, &nodes);
        policy.check(&nodes);
        assert_eq!(moves, twin.iterate(&iteration));
        moved += moves.len();
    }
    moved
}

/// Counts of some blocks: few and near each other, so that ties and near misses are common, or
/// spread over orders of magnitude.
fn counts(random: &mut Random, nodes: usize, blocks: u32) -> Vec<(u32, Vec<u32>)> {
    let scale = [3, 20, 5000][random.below(3) as usize];
    let touched = (0..blocks).filter(|_| random.below(4) > 0);
    let touched: Vec<u32> = touched.collect();
    let row = |block| {
        (
            block,
            (0..nodes).map(|_| random.below(scale) as u32).collect(),
        )
    };
    touched.into_iter().map(row).collect()
}
