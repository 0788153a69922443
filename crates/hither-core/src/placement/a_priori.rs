//! A priori: the static placement with the least sum of latencies over all accesses, computed from
//! knowledge of all of them. It is a bound on what placing without moving can achieve, which the
//! thesis calls the best case (sections 3.1.1 and 3.2.1). The thesis counts local accesses, this
//! policy latencies; that is the same where all other nodes are equally far.
//!
//! Where every page fits on its best node, that is all. Otherwise it is the transportation problem,
//! and it is solved exactly. From the placement without limits, one page too many at a time moves
//! along the cheapest path of nodes, each giving one page to the next, to a node with a free frame
//! (successive shortest paths; each step keeps the placement optimal for its numbers of pages). The
//! cheapest page to give from one node to another comes from a heap for each pair of nodes. So it
//! takes a heap entry for each page of a full node and each other node, and for each page too many
//! at most nodes cubed steps, nodes squared in practice.
//!
//! Where not all pages fit on all nodes together, there is no static placement. Then the pages with
//! the least accesses to save are left out, on a virtual node that holds any number of pages at a
//! latency of [`ABSENT_NS`]. They go to their best node when they are accessed, and the page in
//! their way is reclaimed.
//!
//! Contention is ignored: the placement is optimal on a machine whose memories are never busy, and
//! the bound is on the latency of accesses without waiting. Where a memory is the bottleneck, a
//! placement that spreads pages may take less modelled time: pages that all threads share all go to
//! the central node here, and are spread by first touch. It is no bound on policies that move pages
//! either, since these may follow changes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::counters::Counters;
use super::entry::{Build, EpochNeeds, PlacementEntry, PlacementSettings};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs};
use crate::ids::{Block, Node};
use crate::topology::Topology;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "a-priori",
    summary: "the static placement of least latency over all accesses; contention not counted",
    source: "cache-aware thesis, section 3.1.1; a bound on latency without contention",
    params: &[],
    needs: Needs {
        totals: true,
        ..Needs::NOTHING
    },
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::Everywhere(4),
    build: Build::Memory(&|settings, _| {
        Box::new(APriori {
            nodes: best(settings),
        })
    }),
};

/// The cost of an access to a page that is in no frame: a hundredth of a swap, and far above any
/// latency.
const ABSENT_NS: i64 = 1_000_000;

struct APriori {
    /// By page.
    nodes: Vec<Node>,
}

impl Placement for APriori {
    fn place(&mut self, access: &Access, _: &Nodes) -> Node {
        self.nodes[access.block.index()]
    }
}

impl MemoryPlacement for APriori {}

/// The node of each page.
fn best(settings: &PlacementSettings<'_>) -> Vec<Node> {
    let totals = settings.totals.expect("it needs foresight");
    let nodes = settings.topology.nodes();
    let problem = Problem {
        topology: &settings.topology,
        totals,
        nodes,
    };
    let unlimited = |block| problem.cheapest(Block(block));
    let mut placed: Vec<u16> = (0..settings.blocks).map(unlimited).collect();
    let mut room: Vec<i64> = settings
        .capacity
        .iter()
        .map(|&frames| frames.into())
        .collect();
    room.push(i64::MAX);
    for &node in &placed {
        room[usize::from(node)] -= 1;
    }
    if room.iter().any(|&room| room < 0) {
        Solver::new(&problem, &mut placed, room).solve();
    }
    let placed = (0..).zip(placed);
    let node = |(block, node)| {
        if usize::from(node) == nodes {
            Node(problem.cheapest(Block(block)))
        } else {
            Node(node)
        }
    };
    placed.map(node).collect()
}

struct Problem<'a> {
    topology: &'a Topology,
    totals: &'a Counters,
    nodes: usize,
}

impl Problem<'_> {
    /// The accesses to a page, by node.
    fn users(&self, block: Block) -> Vec<(Node, u32)> {
        let accesses = self.totals.of(block).iter().enumerate();
        let made = accesses.filter(|(_, count)| **count > 0);
        made.map(|(node, &count)| (Node(node as u16), count))
            .collect()
    }

    /// The cost of its accesses if the page is on the node; the node after the last is the virtual
    /// one.
    fn cost_ns(&self, users: &[(Node, u32)], at: usize) -> i64 {
        let cost = |&(from, count): &(Node, u32)| {
            let latency_ns = if at == self.nodes {
                ABSENT_NS
            } else {
                self.topology.latency_ns(from, Node(at as u16)).into()
            };
            i64::from(count) * latency_ns
        };
        users.iter().map(cost).sum()
    }

    /// The lowest number among equals.
    fn cheapest(&self, block: Block) -> u16 {
        let users = self.users(block);
        let node = (0..self.nodes).min_by_key(|&at| self.cost_ns(&users, at));
        node.expect("a topology has a node") as u16
    }
}

/// Pages to give from one node to another, by the additional cost; some have left since.
type Gifts = BinaryHeap<Reverse<(i64, u32)>>;

struct Solver<'a, 'p> {
    problem: &'a Problem<'p>,
    placed: &'a mut [u16],
    /// Free frames; negative for pages too many. The last is the virtual node.
    room: Vec<i64>,
    /// By row (from) and column (to); a row is empty until its node has no frame to spare.
    gifts: Vec<Gifts>,
    listed: Vec<bool>,
}

impl<'a, 'p> Solver<'a, 'p> {
    fn new(problem: &'a Problem<'p>, placed: &'a mut [u16], room: Vec<i64>) -> Self {
        let all = room.len();
        Solver {
            problem,
            placed,
            gifts: (0..all * all).map(|_| Gifts::new()).collect(),
            listed: vec![false; all],
            room,
        }
    }

    fn solve(&mut self) {
        while self.room.iter().any(|&room| room < 0) {
            self.list_full();
            self.step();
        }
    }

    /// Lists what nodes without a free frame can give. A node with one never passes a page on:
    /// paths end there.
    fn list_full(&mut self) {
        let all = self.room.len();
        let full: Vec<bool> = (0..all)
            .map(|node| self.room[node] <= 0 && !self.listed[node])
            .collect();
        if !full.contains(&true) {
            return;
        }
        for block in 0..self.placed.len() as u32 {
            let at = usize::from(self.placed[block as usize]);
            if full[at] {
                self.list(block, at);
            }
        }
        for (listed, full) in self.listed.iter_mut().zip(full) {
            *listed |= full;
        }
    }

    fn list(&mut self, block: u32, at: usize) {
        let users = self.problem.users(Block(block));
        let here = self.problem.cost_ns(&users, at);
        let all = self.room.len();
        for to in (0..all).filter(|&to| to != at) {
            let more = self.problem.cost_ns(&users, to) - here;
            self.gifts[at * all + to].push(Reverse((more, block)));
        }
    }

    /// The cheapest page to give from one node to another, and its additional cost.
    fn gift(&mut self, from: usize, to: usize) -> Option<(i64, u32)> {
        let gifts = &mut self.gifts[from * self.room.len() + to];
        while let Some(&Reverse((_, block))) = gifts.peek() {
            if usize::from(self.placed[block as usize]) == from {
                break;
            }
            gifts.pop();
        }
        gifts.peek().map(|&Reverse(gift)| gift)
    }

    /// Moves one page too many away: Bellman and Ford's shortest paths from all nodes with too many
    /// pages, then moves along the best path.
    fn step(&mut self) {
        let all = self.room.len();
        let mut gifts = vec![None; all * all];
        for from in 0..all {
            if self.room[from] > 0 {
                continue;
            }
            for to in (0..all).filter(|&to| to != from) {
                gifts[from * all + to] = self.gift(from, to);
            }
        }
        let start = |room: &i64| if *room < 0 { 0 } else { i64::MAX };
        let mut cost: Vec<i64> = self.room.iter().map(start).collect();
        let mut via = vec![usize::MAX; all];
        loop {
            let mut changed = false;
            for from in (0..all).filter(|&from| self.room[from] <= 0) {
                if cost[from] == i64::MAX {
                    continue;
                }
                for to in 0..all {
                    let Some((more, _)) = gifts[from * all + to] else {
                        continue;
                    };
                    if cost[from] + more < cost[to] {
                        (cost[to], via[to]) = (cost[from] + more, from);
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        let with_room = (0..all).filter(|&node| self.room[node] > 0);
        let mut to = with_room
            .min_by_key(|&node| cost[node])
            .expect("the last has room");
        self.room[to] -= 1;
        while via[to] != usize::MAX {
            let from = via[to];
            let (_, block) = gifts[from * all + to].expect("it is on the path");
            self.placed[block as usize] = to as u16;
            if self.listed[to] {
                self.list(block, to);
            }
            to = from;
        }
        self.room[to] += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Random;

    fn settings<'a>(
        topology: &Arc<Topology>,
        capacity: &'a [u32],
        totals: &'a Counters,
        blocks: u32,
    ) -> PlacementSettings<'a> {
        PlacementSettings {
            topology: Arc::clone(topology),
            capacity,
            blocks,
            block_bytes: 4096,
            totals: Some(totals),
            initial: None,
            sampled: false,
        }
    }

    fn cost_ns(topology: &Topology, totals: &Counters, placed: &[Node]) -> i64 {
        let nodes = topology.nodes();
        let problem = Problem {
            topology,
            totals,
            nodes,
        };
        let cost = |(block, node): (u32, &Node)| {
            problem.cost_ns(&problem.users(Block(block)), node.index())
        };
        (0..).zip(placed).map(cost).sum()
    }

    #[test]
    fn the_most_used_pages_are_local_where_not_all_fit() {
        // One program on node 0, which holds two of its five pages.
        let topology = Arc::new(Topology::uniform(3));
        let mut totals = Counters::new(3, 5);
        for (block, count) in [(0, 10), (1, 50), (2, 20), (3, 40), (4, 5)] {
            totals.add(Block(block), Node(0), count);
        }
        let placed = best(&settings(&topology, &[2, 2, 2], &totals, 5));
        let local = |node: &Node| *node == Node(0);
        assert_eq!(
            placed.iter().map(local).collect::<Vec<_>>(),
            [false, true, false, true, false]
        );
    }

    #[test]
    fn no_other_placement_is_better() {
        let mut random = Random::new(7);
        for round in 0..300 {
            let topology = Arc::new(match round % 3 {
                0 => Topology::uniform(3),
                1 => Topology::mesh(&[3]),
                _ => Topology::mesh(&[2, 2]),
            });
            let (nodes, blocks) = (topology.nodes(), 6_u32);
            let mut totals = Counters::new(nodes, blocks);
            for _ in 0..random.below(20) {
                let (block, node) = (random.below(6) as u32, random.below(nodes as u64) as u16);
                totals.add(Block(block), Node(node), 1 + random.below(9) as u32);
            }
            let capacity: Vec<u32> = (0..nodes).map(|_| 2 + random.below(2) as u32).collect();
            let placed = best(&settings(&topology, &capacity, &totals, blocks));
            let ours = cost_ns(&topology, &totals, &placed);
            let fits = |placed: &[Node]| {
                topology.all().all(|node| {
                    let held = placed.iter().filter(|at| **at == node).count();
                    held <= capacity[node.index()] as usize
                })
            };
            assert!(fits(&placed), "{placed:?} in {capacity:?}");
            let all = (0..nodes.pow(blocks)).map(|number| {
                let node = |place: u32| Node((number / nodes.pow(place) % nodes) as u16);
                (0..blocks).map(node).collect::<Vec<_>>()
            });
            let others = all.filter(|placed| fits(placed));
            let best = others
                .map(|placed| cost_ns(&topology, &totals, &placed))
                .min();
            assert_eq!(Some(ours), best, "round {round}");
        }
    }

    #[test]
    fn pages_without_a_frame_are_those_used_least() {
        let topology = Arc::new(Topology::uniform(2));
        let mut totals = Counters::new(2, 4);
        for (block, node, count) in [(0, 0, 1), (1, 0, 9), (2, 0, 8), (3, 1, 2)] {
            totals.add(Block(block), Node(node), count);
        }
        let placed = best(&settings(&topology, &[1, 1], &totals, 4));
        // 1 is at home, 2 on node 1 and worth more there than 3; 0 and 3 stay out and come to their
        // users.
        assert_eq!(placed, [Node(0), Node(0), Node(1), Node(1)]);
    }
}
