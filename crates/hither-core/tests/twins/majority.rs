//! The decisions of majority against the rules that its file states, over random epochs, topologies
//! and parameters. The twin keeps maps of what it knows, and compares shares of two thirds in whole
//! numbers. Full nodes refuse pages, and so may the kernel. Pages are freed and used again, and
//! constructs end within iterations.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hither_core::placement::{
    Action, ActionOutcome, Counters, Epoch, EpochKind, MemoryPlacement, Nodes, PlacementEntry,
    PlacementSettings,
};
use hither_core::topology::Latencies;
use hither_core::{Access, Block, Node, Object, Process, Slot, Spec, Topology};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngAlgorithm, TestCaseResult, TestRng, TestRunner};

const CASES: u32 = 5000;

/// No topology here has more nodes.
const NODES_MAX: usize = 4;

/// What the parameters select.
#[derive(Clone, Copy, Debug)]
struct Rules {
    least: u64,
    agree: bool,
    spread: bool,
    freeze: bool,
}

/// Where a look wants a page: at a node, or away from a node that serves too much (`None`).
type Wanted = Option<usize>;

struct Naive {
    rules: Rules,
    topology: Arc<Topology>,
    homes: BTreeMap<u32, usize>,
    /// The node that a page came from when it last moved.
    previous: BTreeMap<u32, usize>,
    /// Pages that the last look at them wanted to move.
    wanted: BTreeMap<u32, Wanted>,
    frozen: BTreeSet<u32>,
    statistics: BTreeMap<&'static str, u64>,
}

/// Whether `one` is at least two thirds of both.
fn is_majority(one: u64, other: u64) -> bool {
    3 * one >= 2 * (one + other)
}

impl Naive {
    fn new(rules: Rules, topology: Arc<Topology>) -> Naive {
        let names = [
            "looks",
            "candidates",
            "migrated",
            "spread",
            "frozen",
            "refused",
        ];
        Naive {
            rules,
            topology,
            homes: BTreeMap::new(),
            previous: BTreeMap::new(),
            wanted: BTreeMap::new(),
            frozen: BTreeSet::new(),
            statistics: names.map(|name| (name, 0)).into(),
        }
    }

    fn add(&mut self, name: &str) {
        *self.statistics.get_mut(name).unwrap() += 1;
    }

    /// The time of all accesses to a page at `at`.
    fn time_ns(&self, counts: &[u64], at: usize) -> u64 {
        let mut sum = 0;
        for (from, count) in counts.iter().enumerate() {
            let (from, at) = (Node(from as u16), Node(at as u16));
            sum += count * u64::from(self.topology.latency_ns(from, at));
        }
        sum
    }

    /// *The move.* The first of the fastest nodes with a majority over the home, if it is faster
    /// than the home.
    fn main_user(&self, counts: &[u64], home: usize) -> Option<usize> {
        let mut best = None;
        let mut best_ns = self.time_ns(counts, home);
        for node in 0..counts.len() {
            let uses = node != home && counts[node] > 0;
            let time_ns = self.time_ns(counts, node);
            if uses && is_majority(counts[node], counts[home]) && time_ns < best_ns {
                (best, best_ns) = (Some(node), time_ns);
            }
        }
        best
    }

    /// *The spread.* The node that serves least of those that may take the page.
    fn relief(
        &self,
        counts: &[u64],
        home: usize,
        at_first: &BTreeMap<usize, u64>,
        now: &BTreeMap<usize, u64>,
    ) -> Option<usize> {
        let all: u64 = counts.iter().sum();
        let mut takers = BTreeSet::new();
        for node in 0..counts.len() {
            let is_crowded = at_first[&home] >= 2 * at_first[&node];
            let helps = now[&node] + all < now[&home];
            if node != home && is_crowded && helps && !is_majority(counts[home], counts[node]) {
                takers.insert((now[&node], node));
            }
        }
        takers.first().map(|&(_, node)| node)
    }

    /// The migrations that a look at these counts asks for, in order.
    fn look(&mut self, counted: &[(u32, Vec<u64>)]) -> Vec<(u32, usize)> {
        self.add("looks");
        let nodes = 0..self.topology.nodes();
        let mut serves: BTreeMap<usize, u64> = nodes.map(|node| (node, 0)).collect();
        for (page, counts) in counted {
            if let Some(home) = self.homes.get(page) {
                *serves.get_mut(home).unwrap() += counts.iter().sum::<u64>();
            }
        }
        let at_first = serves.clone();
        let mut moves = Vec::new();
        for (page, counts) in counted {
            let all: u64 = counts.iter().sum();
            let Some(&home) = self.homes.get(page) else {
                continue;
            };
            if all < self.rules.least || self.frozen.contains(page) {
                continue;
            }
            let main_user = self.main_user(counts, home);
            let relief = self.relief(counts, home, &at_first, &serves);
            let relief = relief.filter(|_| self.rules.spread);
            let last = self.wanted.remove(page);
            let Some(to) = main_user.or(relief) else {
                continue;
            };
            self.wanted.insert(*page, main_user);
            let is_new = last != Some(main_user);
            if is_new {
                self.add("candidates");
            }
            if is_new && self.rules.agree {
                continue;
            }
            if self.rules.freeze && self.previous.get(page) == Some(&to) {
                self.frozen.insert(*page);
                self.add("frozen");
                continue;
            }
            if main_user.is_none() {
                self.add("spread");
            }
            *serves.get_mut(&home).unwrap() -= all;
            *serves.get_mut(&to).unwrap() += all;
            moves.push((*page, to));
        }
        moves
    }

    fn moved(&mut self, page: u32, to: usize) {
        self.add("migrated");
        let home = self.homes.insert(page, to).unwrap();
        self.previous.insert(page, home);
        self.wanted.remove(&page);
    }

    fn freed(&mut self, page: u32) {
        self.homes.remove(&page);
        self.previous.remove(&page);
        self.wanted.remove(&page);
        self.frozen.remove(&page);
    }
}

/// What happens to the policy. Numbers of pages and nodes are taken modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    /// A thread on a node touches a page, which places it if it is free.
    Touch {
        page: u32,
        node: u16,
    },
    /// Counts are added, and an epoch ends, so many times.
    Epochs {
        kind: EpochKind,
        rows: Vec<(u32, [u32; NODES_MAX])>,
        times: u32,
        /// Of the actions of each epoch, those that the kernel refuses: a bit each.
        refused: u8,
    },
    Free {
        page: u32,
    },
    Grow {
        pages: u32,
    },
}

#[derive(Clone, Debug)]
struct Case {
    topology: &'static str,
    latencies: Latencies,
    initial: &'static str,
    sampled: bool,
    rules: Rules,
    capacity: [u32; NODES_MAX],
    /// The nodes that touch the first pages, one a page.
    homes: Vec<u16>,
    steps: Vec<Step>,
}

/// Few and near each other, so that ties and near misses are common; spread over orders of
/// magnitude; all alike; or of one node.
fn counts() -> impl Strategy<Value = [u32; NODES_MAX]> {
    prop_oneof![
        [0u32..4, 0..4, 0..4, 0..4],
        [0u32..40, 0..40, 0..40, 0..40],
        [0u32..5000, 0..50, 0..5000, 0..50],
        (1u32..40).prop_map(|count| [count; NODES_MAX]),
        (0..NODES_MAX, 1u32..90).prop_map(|(node, count)| {
            let mut counts = [0; NODES_MAX];
            counts[node] = count;
            counts
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        3 => Just(EpochKind::Iteration),
        1 => Just(EpochKind::Period),
        1 => Just(EpochKind::Construct),
    ];
    let refused = prop_oneof![3 => Just(0), 1 => any::<u8>()];
    let rows = vec((any::<u32>(), counts()), 1..10);
    let page = any::<u32>;
    prop_oneof![
        6 => (kind, rows, 1u32..4, refused).prop_map(|(kind, rows, times, refused)| {
            Step::Epochs { kind, rows, times, refused }
        }),
        2 => (page(), any::<u16>()).prop_map(|(page, node)| Step::Touch { page, node }),
        1 => page().prop_map(|page| Step::Free { page }),
        1 => (0u32..12).prop_map(|pages| Step::Grow { pages }),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let latencies = (100u32..400, 0u32..200).prop_map(|(local_ns, hop_ns)| Latencies {
        local_ns,
        hop_ns,
        storage_ns: None,
    });
    let least = prop_oneof![0u64..40, Just(64)];
    let rules = (least, any::<[bool; 3]>()).prop_map(|(least, [agree, spread, freeze])| Rules {
        least,
        agree,
        spread,
        freeze,
    });
    let machine = (
        select(&["mesh:2", "mesh:3", "mesh:4", "3", "ring:4"][..]),
        latencies,
        [1u32..12, 1..12, 1..12, 1..12],
    );
    let initial = select(&["first-touch", "first-touch", "round-robin", "single-node"][..]);
    let sampled = prop::bool::weighted(0.2);
    let run = (vec(any::<u16>(), 1..9), vec(step(), 1..16));
    let parts = (machine, initial, sampled, rules, run);
    parts.prop_map(|(machine, initial, sampled, rules, run)| {
        let (topology, latencies, capacity) = machine;
        let (homes, steps) = run;
        Case {
            topology,
            latencies,
            initial,
            sampled,
            rules,
            capacity,
            homes,
            steps,
        }
    })
}

/// The policy on its nodes, beside its twin.
struct Pair {
    policy: Box<dyn MemoryPlacement>,
    /// What places pages before they move.
    initial: Box<dyn MemoryPlacement>,
    nodes: Nodes,
    counters: Counters,
    twin: Naive,
}

impl Pair {
    fn new(case: &Case) -> Pair {
        let topology: Topology = case.topology.parse().unwrap();
        let topology = Arc::new(topology.with_latencies(case.latencies));
        let (nodes, blocks) = (topology.nodes(), case.homes.len() as u32);
        let capacity = &case.capacity[..nodes];
        let Rules {
            least,
            agree,
            spread,
            freeze,
        } = case.rules;
        let (agree, spread, freeze) = (u8::from(agree), u8::from(spread), u8::from(freeze));
        let build = |text: &str| {
            let spec: Spec<PlacementEntry> = text.parse().unwrap();
            let policy = spec.build_memory(&PlacementSettings {
                topology: topology.clone(),
                capacity,
                blocks,
                block_bytes: 4096,
                totals: None,
                initial: None,
                sampled: case.sampled,
            });
            policy.expect("it places memory")
        };
        let mut rules = case.rules;
        if case.sampled {
            // The sampler decides which pages were sampled enough.
            rules.least = 1;
        }
        Pair {
            policy: build(&format!(
                "majority{{initial={},least={least},agree={agree},spread={spread},\
                 freeze={freeze}}}",
                case.initial
            )),
            initial: build(case.initial),
            nodes: Nodes::new(topology.clone(), capacity.to_vec(), blocks),
            counters: Counters::new(nodes, blocks),
            twin: Naive::new(rules, topology),
        }
    }

    fn step(&mut self, step: &Step) -> TestCaseResult {
        match step {
            Step::Touch { page, node } => self.touch(page % self.nodes.blocks(), *node)?,
            Step::Epochs {
                kind,
                rows,
                times,
                refused,
            } => {
                for _ in 0..*times {
                    self.epoch(*kind, rows, *refused)?;
                    self.compare()?;
                }
            }
            Step::Free { page } => self.free(Block(page % self.nodes.blocks()))?,
            Step::Grow { pages } => {
                let pages = self.nodes.blocks().max(*pages);
                self.nodes.grow(pages);
                self.counters.grow(pages);
                self.policy.grow(pages);
            }
        }
        self.compare()
    }

    fn touch(&mut self, page: u32, node: u16) -> TestCaseResult {
        let access = Access {
            node: Node(node % self.nodes.len() as u16),
            object: Object(0),
            ..Access::bare(0, Block(page))
        };
        if let Some(home) = self.nodes.home(access.block) {
            let mut out = Vec::new();
            self.policy.on_access(&access, home, &self.nodes, &mut out);
            prop_assert_eq!(out, []);
            return Ok(());
        }
        let home = self.policy.place(&access, &self.nodes);
        prop_assert_eq!(home, self.initial.place(&access, &self.nodes));
        // The caller takes the nearest node that has room.
        let has_room = |node: &Node| self.nodes.free(*node) > 0;
        let nearest = self.nodes.topology().nearest(home);
        if let Some(home) = nearest.iter().copied().find(has_room) {
            self.nodes.insert(access.block, home, Slot(0));
            self.twin.homes.insert(page, home.index());
        }
        Ok(())
    }

    fn free(&mut self, block: Block) -> TestCaseResult {
        let Some(home) = self.nodes.home(block) else {
            return Ok(());
        };
        self.nodes.remove(block, home);
        let mut out = Vec::new();
        self.policy.on_removed(block, home, &self.nodes, &mut out);
        prop_assert_eq!(out, []);
        self.twin.freed(block.0);
        Ok(())
    }

    fn epoch(
        &mut self,
        kind: EpochKind,
        rows: &[(u32, [u32; NODES_MAX])],
        refused: u8,
    ) -> TestCaseResult {
        for (page, counts) in rows {
            let block = Block(page % self.nodes.blocks());
            self.counters.add_row(block, &counts[..self.nodes.len()]);
        }
        let epoch = Epoch {
            kind,
            process: (kind != EpochKind::Period).then_some(Process(0)),
            counts: &self.counters,
            thread_migrations: &[],
            active_threads: self.nodes.len(),
        };
        let mut out = Vec::new();
        self.policy.on_epoch(&epoch, &self.nodes, &mut out);
        let expected = match kind {
            EpochKind::Construct => Vec::new(),
            _ => {
                let row = |&block: &Block| {
                    let counts = self.counters.of(block).iter();
                    (block.0, counts.map(|&count| u64::from(count)).collect())
                };
                let counted: Vec<_> = self.counters.touched().iter().map(row).collect();
                self.counters.clear();
                self.twin.look(&counted)
            }
        };
        let expected: Vec<Action> = expected
            .iter()
            .map(|&(page, to)| Action::Migrate {
                block: Block(page),
                to: Node(to as u16),
            })
            .collect();
        prop_assert_eq!(&out, &expected);
        let mut outcomes = Vec::new();
        for (number, action) in out.into_iter().enumerate() {
            let Action::Migrate { block, to } = action else {
                unreachable!("it equals a migration");
            };
            let done = self.nodes.free(to) > 0 && refused.rotate_right(number as u32) & 1 == 0;
            if done {
                self.nodes.migrate(block, to, Slot(0));
                self.twin.moved(block.0, to.index());
            } else {
                self.twin.add("refused");
            }
            outcomes.push(ActionOutcome { action, done });
        }
        self.policy.on_outcomes(&outcomes, &self.nodes);
        Ok(())
    }

    fn compare(&self) -> TestCaseResult {
        self.policy.check(&self.nodes);
        let statistics: BTreeMap<_, _> = self.policy.statistics().into_iter().collect();
        prop_assert_eq!(&statistics, &self.twin.statistics);
        Ok(())
    }
}

#[test]
fn majority_decides_as_its_rules_say() {
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    // The same cases in each run, as those of the other twins.
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let totals: RefCell<BTreeMap<&str, u64>> = RefCell::default();
    let outcome = TestRunner::new_with_rng(config, random).run(&case(), |case| {
        let mut pair = Pair::new(&case);
        for (page, &node) in (0..).zip(&case.homes) {
            pair.step(&Step::Touch { page, node })?;
        }
        for step in &case.steps {
            pair.step(step)?;
        }
        for (name, count) in &pair.twin.statistics {
            *totals.borrow_mut().entry(*name).or_default() += count;
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let totals = totals.into_inner();
    println!("{totals:?}");
    assert!(
        totals.values().all(|&total| total > 500),
        "the runs must put each rule to the test: {totals:?}"
    );
}
