//! Majority: a page moves to a node that makes twice the accesses of its home, and what all nodes
//! use is spread over them. Few numbers decide, and none is a property of a machine, so that it
//! suits counts that are estimates: samples of a running program.
//!
//! Sources: the criterion compares two nodes as UPM's does (Nikolopoulos et al., ICS 2000, equation
//! 1), and pages freeze as there (section 3.3). The place of a page is the one that costs its users
//! least in all, as the weighted median of the users is in "Topology-aware I/O caching".
//!
//! - *The move.* Of the accesses that the home and another node make, the other one makes at least
//!   two thirds ([`MAJORITY`]). Of several such nodes, the page goes to the one from which all
//!   users together reach it fastest (accesses times latency, summed over the users), if that is
//!   faster than from the home. Two nodes that use a page alike never meet the criterion, so it
//!   stays.
//! - *The spread.* Memory that several nodes use costs bandwidth before latency while it lies on
//!   one of them. A page may leave a node that serves twice what another one serves, for that other
//!   one, if the home does not make two thirds of the accesses of the two. Of several such nodes
//!   the one that serves least by now gets it, as long as it then serves less than the home.
//! - *Two looks.* A page moves when two looks in a row that judge it want the same of it: to be at
//!   a node, or to leave the home. Looks at which it had too few accesses do not count.
//! - *Freezing.* A page that would return to its previous home stays for good.
//! - *The least* accesses to a page in an epoch are 64, a page read once line by line. A running
//!   program's sampler shows no page that it has not sampled enough.
//! - Threads that moved need no rule: their pages have other users from then on.

use super::counters::Counters;
use super::entry::{Build, EpochNeeds, INITIAL, PlacementEntry, PlacementSettings};
use super::events::{Action, ActionOutcome, Epoch, EpochKind, Region, RegionTier};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, Values};
use crate::ids::{Block, Node, Object, Process};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "majority",
    summary: "to a node that makes twice the accesses of the home; spreads what all use",
    source: "ours, after Nikolopoulos et al., ICS 2000",
    params: PARAMS,
    needs: Needs::NOTHING,
    epochs: EpochNeeds {
        counts: true,
        period_ns: |_| None,
    },
    live: &[Mechanism::Memory],
    compared: Compared::ByName,
    build: Build::Memory(&build),
};

const PARAMS: &[Param] = &[
    INITIAL,
    Param::count(
        "least",
        "accesses to a page in an epoch below which it is not judged",
        64,
        0..=1 << 31,
    ),
    Param::switch(
        "agree",
        "1: two looks in a row must want the same; 0: one is enough",
        true,
    ),
    Param::switch(
        "spread",
        "1: pages that several nodes use leave a node that serves most",
        true,
    ),
    Param::switch(
        "freeze",
        "1: a page that would return to its previous home stays for good",
        true,
    ),
];

/// One side has a majority over another if it has so many times as much: two thirds of both. It is
/// the least whole number that two equal sides do not reach by chance, whatever the machine.
const MAJORITY: u64 = 2;

/// Builds the policy.
fn build(settings: &PlacementSettings<'_>, values: &Values) -> Box<dyn MemoryPlacement> {
    Box::new(Majority {
        initial: settings.initial(values, 0),
        least: if settings.sampled { 1 } else { values.count(1) },
        agree: values.count(2) == 1,
        spread: values.count(3) == 1,
        freeze: values.count(4) == 1,
        pages: vec![PageState::default(); settings.blocks as usize],
        served: vec![0; settings.topology.nodes()],
        crowded: Vec::new(),
        statistics: MajorityStatistics::default(),
    })
}

struct Majority {
    initial: Box<dyn MemoryPlacement>,
    least: u64,
    agree: bool,
    spread: bool,
    freeze: bool,
    pages: Vec<PageState>,
    /// Scratch: accesses that each node serves, with what was asked for so far.
    served: Vec<u64>,
    /// Scratch: by home and other node, whether the home serves twice as much.
    crowded: Vec<bool>,
    statistics: MajorityStatistics,
}

/// What is kept of a page.
#[derive(Clone, Copy, Debug, Default)]
struct PageState {
    previous: Option<Node>,
    /// The home that it was to leave when it was last asked to move.
    left: Node,
    /// What the last look wanted.
    wanted: Wish,
    frozen: bool,
}

/// What a look wants of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Stay,
    /// To be at this node, which makes most of its accesses.
    At(Node),
    /// To leave a node that serves too much, for any that serves less.
    Elsewhere,
}

#[derive(Default)]
struct MajorityStatistics {
    looks: u64,
    candidates: u64,
    migrated: u64,
    spread: u64,
    frozen: u64,
    refused: u64,
}

/// The node, of those that `counts` gives a majority over the home, from which all users together
/// reach the page fastest.
fn main_user(counts: &[u32], home: Node, nodes: &Nodes) -> Option<Node> {
    let of_home = u64::from(counts[home.index()]);
    let has_majority = |node: &Node| {
        let of_node = u64::from(counts[node.index()]);
        of_node > 0 && of_node >= MAJORITY * of_home
    };
    let costs = |at: Node| -> u64 {
        let users = nodes.all().zip(counts);
        let ns = |from| u64::from(nodes.topology().latency_ns(from, at));
        users
            .map(|(from, &count)| u64::from(count) * ns(from))
            .sum()
    };
    let better = costs(home);
    let others = nodes.all().filter(|&node| node != home);
    let found = others.filter(has_majority).min_by_key(|&node| costs(node));
    found.filter(|&node| costs(node) < better)
}

impl Majority {
    /// Adds up what each node serves, and finds the pairs of which one serves twice as much.
    fn weigh(&mut self, counts: &Counters, nodes: &Nodes) {
        let count = self.served.len();
        if counts.served().is_empty() {
            self.served.fill(0);
            for &block in counts.touched() {
                if let Some(home) = nodes.home(block) {
                    let all = counts.of(block).iter().map(|&count| u64::from(count));
                    self.served[home.index()] += all.sum::<u64>();
                }
            }
        } else {
            self.served.copy_from_slice(counts.served());
        }
        self.crowded.clear();
        for pair in 0..count * count {
            let (home, other) = (self.served[pair / count], self.served[pair % count]);
            self.crowded.push(home > 0 && home >= MAJORITY * other);
        }
    }

    /// The node that takes a page from one that serves too much: of the nodes of which the home has
    /// no majority of the accesses, the one that serves least.
    fn relief(&self, counts: &[u32], home: Node, nodes: &Nodes) -> Option<Node> {
        let of_home = u64::from(counts[home.index()]);
        let all: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        let takes = |node: &Node| {
            let of_node = u64::from(counts[node.index()]);
            let crowded = self.crowded[home.index() * self.served.len() + node.index()];
            let eases = self.served[node.index()] + all < self.served[home.index()];
            of_node > 0 && of_home < MAJORITY * of_node && crowded && eases
        };
        let others = nodes.all().filter(|&node| node != home);
        others
            .filter(takes)
            .min_by_key(|node| self.served[node.index()])
    }

    /// What to do with a page now.
    fn judge(&mut self, block: Block, counts: &[u32], nodes: &Nodes, out: &mut Vec<Action>) {
        let all: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        let Some(home) = nodes.home(block).filter(|_| all >= self.least) else {
            return;
        };
        let page = self.pages[block.index()];
        if page.frozen {
            return;
        }
        let found = match main_user(counts, home, nodes) {
            Some(to) => Some((Wish::At(to), to)),
            None if self.spread => self
                .relief(counts, home, nodes)
                .map(|to| (Wish::Elsewhere, to)),
            None => None,
        };
        let (wish, to) = found.unwrap_or((Wish::Stay, home));
        let page = &mut self.pages[block.index()];
        let agreed = !self.agree || page.wanted == wish;
        self.statistics.candidates += u64::from(wish != Wish::Stay && page.wanted != wish);
        page.wanted = wish;
        if wish == Wish::Stay || !agreed {
            return;
        }
        if self.freeze && page.previous == Some(to) {
            page.frozen = true;
            self.statistics.frozen += 1;
            return;
        }
        page.left = home;
        self.statistics.spread += u64::from(wish == Wish::Elsewhere);
        let from = &mut self.served[home.index()];
        *from = from.saturating_sub(all);
        self.served[to.index()] += all;
        out.push(Action::Migrate { block, to });
    }
}

impl Placement for Majority {
    fn grow(&mut self, blocks: u32) {
        self.pages.resize(blocks as usize, PageState::default());
        self.initial.grow(blocks);
    }

    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        self.initial.place(access, nodes)
    }

    fn on_access(&mut self, access: &Access, from: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.initial.on_access(access, from, nodes, out);
    }

    fn on_removed(&mut self, block: Block, at: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.pages[block.index()] = PageState::default();
        self.initial.on_removed(block, at, nodes, out);
    }

    fn on_epoch(&mut self, epoch: &Epoch<'_>, nodes: &Nodes, out: &mut Vec<Action>) {
        self.initial.on_epoch(epoch, nodes, out);
        if epoch.kind == EpochKind::Construct {
            return;
        }
        self.statistics.looks += 1;
        self.weigh(epoch.counts, nodes);
        for &block in epoch.counts.touched() {
            self.judge(block, epoch.counts.of(block), nodes, out);
        }
    }

    fn on_outcomes(&mut self, outcomes: &[ActionOutcome], _: &Nodes) {
        for outcome in outcomes {
            let Action::Migrate { block, .. } = outcome.action else {
                continue;
            };
            if !outcome.done {
                self.statistics.refused += 1;
                continue;
            }
            self.statistics.migrated += 1;
            let page = &mut self.pages[block.index()];
            page.wanted = Wish::Stay;
            page.previous = Some(page.left);
        }
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let of = &self.statistics;
        vec![
            ("looks", of.looks),
            ("candidates", of.candidates),
            ("migrated", of.migrated),
            ("spread", of.spread),
            ("frozen", of.frozen),
            ("refused", of.refused),
        ]
    }

    fn check(&self, nodes: &Nodes) {
        self.initial.check(nodes);
        for (number, page) in self.pages.iter().enumerate() {
            let frozen = self.freeze && page.previous.is_some();
            assert!(frozen || !page.frozen, "page {number} never moved");
        }
    }
}

impl MemoryPlacement for Majority {
    fn on_region_allocated(&mut self, region: &Region) {
        self.initial.on_region_allocated(region);
    }

    fn on_region_freed(&mut self, object: Object) {
        self.initial.on_region_freed(object);
    }

    fn on_process_exit(&mut self, process: Process) {
        self.initial.on_process_exit(process);
    }

    fn region_tier(&self, object: Object) -> Option<RegionTier> {
        self.initial.region_tier(object)
    }

    fn needs_first_faults(&self, object: Object) -> bool {
        self.initial.needs_first_faults(object)
    }

    fn set_migration_ns(&mut self, migration_ns: u64) {
        self.initial.set_migration_ns(migration_ns);
    }
}

#[cfg(test)]
mod tests {
    use crate::placement::EpochKind::Iteration;
    use crate::placement::testing::World;

    /// Pages 0 to 3 of one object, all on node 0 of 4 in a row.
    fn world(params: &str) -> World {
        let mut world = World::origin(&format!("majority{{least=8,{params}}}"), 4, 4);
        world.place(0, &[(0, 0), (1, 0), (2, 0), (3, 0)]);
        world
    }

    /// What moves when an epoch counted this.
    fn look(world: &mut World, counts: &[(u32, [u32; 4])]) -> Vec<(u32, u16)> {
        for (block, counts) in counts {
            world.count(*block, counts);
        }
        world.end(Iteration)
    }

    #[test]
    fn two_looks_must_agree_on_twice_the_accesses_of_the_home() {
        let mut world = world("spread=0");
        let counts = [
            (0, [10, 20, 0, 0]),
            (1, [10, 19, 0, 0]),
            (2, [0, 7, 0, 0]),
            (3, [0, 0, 0, 8]),
        ];
        assert_eq!(look(&mut world, &counts), []);
        assert_eq!(look(&mut world, &counts), [(0, 1), (3, 3)]);
        assert_eq!(look(&mut world, &counts), []);
        assert_eq!(world.statistic("candidates"), 2);
        // Two looks that want different nodes do not agree.
        assert_eq!(look(&mut world, &[(1, [0, 0, 9, 0])]), []);
        assert_eq!(look(&mut world, &[(1, [0, 9, 0, 0])]), []);
        assert_eq!(look(&mut world, &[(1, [0, 9, 0, 0])]), [(1, 1)]);
    }

    /// Nodes 1 to 3 use the page alike. All reach it fastest on node 2, in their middle.
    #[test]
    fn of_several_nodes_the_one_in_the_middle_of_the_users() {
        let mut world = world("agree=0,spread=0");
        assert_eq!(look(&mut world, &[(0, [0, 9, 9, 9])]), [(0, 2)]);
        assert_eq!(look(&mut world, &[(0, [0, 9, 9, 9])]), []);
    }

    /// Node 0 serves everything that two nodes use alike: half of it leaves, and then as much more
    /// for the others as they use.
    #[test]
    fn what_all_use_is_spread() {
        let mut world = world("agree=0");
        let alike = [0, 1, 2, 3].map(|page| (page, [10, 10, 0, 0]));
        assert_eq!(look(&mut world, &alike), [(0, 1), (1, 1)]);
        assert_eq!(look(&mut world, &alike), []);
        assert_eq!(world.statistic("spread"), 2);
        let all = [0, 1, 2, 3].map(|page| (page, [10, 10, 10, 10]));
        let moved = look(&mut world, &all);
        assert_eq!(moved.len(), 2, "{moved:?}");
        let mut homes = [0, 1, 2, 3].map(|page| world.home(page));
        homes.sort_unstable();
        assert_eq!(homes, [0, 1, 2, 3]);
        // A page that the home mainly uses stays with it, however much the home serves.
        let mut world = self::world("agree=0");
        let own = [0, 1, 2, 3].map(|page| (page, [20, 10, 0, 0]));
        assert_eq!(look(&mut world, &own), []);
    }

    #[test]
    fn ping_pong_is_frozen() {
        let (there, back) = ([(0, [1, 10, 0, 0])], [(0, [10, 1, 0, 0])]);
        let mut world = world("agree=0,spread=0");
        assert_eq!(look(&mut world, &there), [(0, 1)]);
        assert_eq!(look(&mut world, &back), []);
        assert_eq!(world.statistic("frozen"), 1);
        assert_eq!(look(&mut world, &[(0, [0, 0, 9, 0])]), [], "for good");
        let mut world = self::world("agree=0,spread=0,freeze=0");
        for (counts, to) in [(&there, 1), (&back, 0), (&there, 1)] {
            assert_eq!(look(&mut world, counts), [(0, to)]);
        }
    }

    /// Freed pages are new when they are used again.
    #[test]
    fn forgets_freed_pages() {
        let mut world = world("agree=0,spread=0");
        assert_eq!(look(&mut world, &[(0, [1, 10, 0, 0])]), [(0, 1)]);
        world.free(0, 0..4);
        world.place(1, &[(0, 1)]);
        assert_eq!(look(&mut world, &[(0, [10, 1, 0, 0])]), [(0, 0)]);
    }
}
