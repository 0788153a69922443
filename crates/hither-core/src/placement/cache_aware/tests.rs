//! Each rule of placement, by hand.

use super::*;
use crate::ids::{Object, Process, Slot};
use crate::spec::Spec;

const PAGE: u64 = 4096;

fn region(object: u32, owner: u32, pages: u64, known: Option<RegionTier>) -> Region {
    Region {
        object: Object(object),
        owner: Process(owner),
        bytes: pages * PAGE,
        expected_tier: known,
        whole: false,
    }
}

/// A policy and the nodes it fills.
struct World {
    policy: Box<dyn MemoryPlacement>,
    nodes: Nodes,
    next: u32,
}

impl World {
    /// Objects of these sizes in pages, each of the process of that number.
    fn new(spec: &str, topology: Topology, capacity: &[u32], objects: &[(u64, u32)]) -> World {
        let topology = Arc::new(topology);
        let spec: Spec<PlacementEntry> = spec.parse().unwrap();
        let settings = PlacementSettings {
            topology: Arc::clone(&topology),
            capacity,
            blocks: 10_000,
            block_bytes: PAGE as u32,
            totals: None,
            initial: None,
            sampled: false,
        };
        let mut policy = spec.build_memory(&settings).expect("it places memory");
        for (object, &(pages, owner)) in (0..).zip(objects) {
            policy.on_region_allocated(&region(object, owner, pages, None));
        }
        World {
            policy,
            nodes: Nodes::new(topology, capacity.to_vec(), 10_000),
            next: 0,
        }
    }

    fn access(&self, process: u32, object: u32, index: u32) -> Access {
        Access {
            object: Object(object),
            index,
            process: Process(process),
            ..Access::bare(0, Block(self.next))
        }
    }

    /// A fault of node 0 at a page of an object: the node it goes to.
    fn fault_of(&mut self, process: u32, object: u32, index: u32) -> u16 {
        let access = self.access(process, object, index);
        self.next += 1;
        let node = self.policy.place(&access, &self.nodes);
        if self.nodes.free(node) > 0 {
            self.nodes.insert(access.block, node, Slot(0));
        }
        node.0
    }

    fn faults(&mut self, object: u32, pages: impl IntoIterator<Item = u32>) -> Vec<u16> {
        pages
            .into_iter()
            .map(|index| self.fault_of(0, object, index))
            .collect()
    }

    /// Fills frames of a node with somebody else's pages.
    fn fill(&mut self, node: u16, frames: u32) {
        for _ in 0..frames {
            self.nodes.insert(Block(self.next), Node(node), Slot(0));
            self.next += 1;
        }
    }

    fn statistic(&self, name: &str) -> u64 {
        let all = self.policy.statistics();
        all.iter().find(|(of, _)| *of == name).unwrap().1
    }
}

#[test]
fn sequential_regions_are_remote_from_the_fifth_page_on() {
    let mut world = World::new(
        "cache-aware",
        Topology::uniform(2),
        &[1000, 1000],
        &[(256, 0), (256, 0)],
    );
    assert_eq!(world.faults(0, 0..7), [0, 0, 0, 0, 1, 1, 1]);
    assert_eq!(world.faults(1, (0..12).map(|page| page * 2)), [0; 12]);
    assert_eq!(world.faults(1, 30..40), [0; 10], "local for good");
    assert_eq!(
        (
            world.statistic("remote_regions"),
            world.statistic("local_regions")
        ),
        (1, 1)
    );
}

#[test]
fn what_is_smaller_than_a_region_is_local() {
    let mut world = World::new(
        "cache-aware",
        Topology::uniform(2),
        &[1000, 1000],
        &[(255, 0), (256, 0)],
    );
    assert_eq!(world.faults(0, 0..20), [0; 20]);
    // An object that nobody said anything about is no region either.
    assert_eq!(world.faults(9, 0..20), [0; 20]);
    assert_eq!(world.statistic("undecided_regions"), 1);
}

#[test]
fn the_remote_node_with_the_most_free_frames() {
    let capacity = [1000, 300, 400, 350];
    let mut world = World::new("cache-aware", Topology::uniform(4), &capacity, &[(2000, 0)]);
    world.faults(0, 0..4);
    // 400 free on node 2 until it has as many as node 3; then in turn, the lower number first.
    let placed = world.faults(0, 4..60);
    assert_eq!(placed[..50], [2; 50]);
    assert_eq!(placed[50..], [2, 3, 2, 3, 2, 3]);
}

#[test]
fn above_the_threshold_local_then_the_lowest() {
    let mut world = World::new(
        "cache-aware{threshold=0.5}",
        Topology::uniform(3),
        &[100, 100, 100],
        &[(1000, 0)],
    );
    world.faults(0, 0..4);
    world.fill(1, 60);
    world.fill(2, 51);
    // Node 2 has the most free frames and is above 0.5: local, which has 4 of 100 in use, until 51
    // are.
    assert_eq!(world.faults(0, 4..51), [0; 47]);
    assert_eq!(world.nodes.used(Node(0)), 51);
    // All are above: the lowest usage wherever it is, the local node among equals.
    assert_eq!(world.faults(0, 51..55), [0, 2, 0, 2]);
    // A node at the threshold is not above it.
    let mut world = World::new(
        "cache-aware{threshold=0.5}",
        Topology::uniform(2),
        &[100, 100],
        &[(1000, 0)],
    );
    world.faults(0, 0..4);
    world.fill(1, 50);
    assert_eq!(world.faults(0, 4..6), [1, 0]);
}

#[test]
fn local_regions_overflow_to_the_lowest_usage() {
    let mut world = World::new(
        "cache-aware",
        Topology::uniform(3),
        &[12, 100, 1000],
        &[(1000, 0)],
    );
    world.fill(1, 10);
    world.fill(2, 110);
    // 10 of 100 on node 1 are less than 110 of 1000 on node 2, though node 2 has more free.
    assert_eq!(world.faults(0, (0..12).map(|page| page * 2)), [0; 12]);
    assert_eq!(world.faults(0, [30, 32, 34]), [1, 1, 2]);
}

#[test]
fn at_most_half_is_remote() {
    // 300 pages of process 0 in two objects, 10 of which are of no region; 300 of process 1.
    let objects = [(290, 0), (10, 0), (300, 1)];
    let mut world = World::new("cache-aware", Topology::uniform(2), &[1000, 1000], &objects);
    let placed = world.faults(0, 0..290);
    assert_eq!(placed[4..154], [1; 150]);
    assert_eq!(placed[154..], [0; 136], "redesignated as local");
    assert_eq!(world.statistic("limited_applications"), 1);
    // Another application has its own limit.
    let other: Vec<u16> = (0..6).map(|index| world.fault_of(1, 2, index)).collect();
    assert_eq!(other, [0, 0, 0, 0, 1, 1]);
}

#[test]
fn a_region_that_was_remote_as_a_whole_counts_and_is_not_limited() {
    let objects = [(300, 0), (300, 0)];
    let mut world = World::new("cache-aware", Topology::uniform(2), &[9000, 9000], &objects);
    let known = region(2, 0, 600, Some(RegionTier::Remote));
    world.policy.on_region_allocated(&Region {
        whole: true,
        ..known
    });
    assert_eq!(world.faults(2, 0..600), [1; 600], "half of all");
    assert_eq!(world.faults(0, 0..300), [0; 300], "the limit is reached");
    assert_eq!(world.statistic("limited_applications"), 1);
    world.policy.on_region_freed(Object(1));
    assert_eq!(world.faults(2, 0..600), [1; 600], "it was decided before");
}

#[test]
fn pages_that_found_no_local_frame_count_as_remote() {
    let mut world = World::new(
        "cache-aware",
        Topology::uniform(2),
        &[90, 1000],
        &[(300, 0), (300, 0)],
    );
    // A local region overflows by 210 pages of 600 in all.
    world.faults(0, (0..300).map(|page| page ^ 1));
    assert_eq!(world.nodes.used(Node(1)), 210);
    assert_eq!(world.statistic("local_regions"), 1);
    world.faults(1, 0..90);
    assert_eq!(world.statistic("limited_applications"), 0);
    world.faults(1, 90..91);
    assert_eq!(world.statistic("limited_applications"), 1);
}

/// Four of eight pages may be remote; two that are reclaimed make room for two more before the
/// limit is reached.
#[test]
fn reclaimed_pages_count_no_more() {
    let spec = "cache-aware{region=0,sequence=2,faults=2}";
    let mut world = World::new(spec, Topology::uniform(2), &[8, 8], &[(8, 0)]);
    assert_eq!(world.faults(0, 0..4), [0, 1, 1, 1]);
    for block in [1, 2].map(Block) {
        world.nodes.remove(block, Node(1));
        world
            .policy
            .on_removed(block, Node(1), &world.nodes, &mut Vec::new());
    }
    assert_eq!(world.faults(0, [1, 2, 4, 5]), [1, 1, 1, 0]);
    assert_eq!(world.statistic("limited_applications"), 1);
}

#[test]
fn sequential_regions_go_furthest_and_others_nearest() {
    let row = || Topology::mesh(&[4]);
    let objects = [(1000, 0), (1000, 0)];
    let mut world = World::new("cache-aware", row(), &[20, 100, 100, 100], &objects);
    world.faults(0, 0..4);
    assert_eq!(
        world.faults(0, 4..85),
        [3; 81],
        "up to usage 0.8, and the page that passes it"
    );
    assert_eq!(world.faults(0, 85..86), [2]);
    world.fill(0, 16);
    world.fill(1, 50);
    assert_eq!(
        world.faults(1, [8, 6]),
        [1, 1],
        "the nearest, though node 2 is used less"
    );

    let alike = "cache-aware{distances=0}";
    let mut world = World::new(alike, row(), &[20, 100, 101, 100], &objects);
    world.faults(0, 0..4);
    assert_eq!(
        world.faults(0, 4..8),
        [2, 1, 2, 3],
        "the most free, wherever"
    );
}

#[test]
fn one_node_has_no_remote() {
    let mut world = World::new("cache-aware", Topology::uniform(1), &[8], &[(256, 0)]);
    assert_eq!(world.faults(0, 0..10), [0; 10]);
}

#[test]
fn idle_memory_is_free_to_a_sample() {
    let spec = "cache-aware{sample=1,period_ms=1,threshold=0.5}";
    let mut world = World::new(spec, Topology::uniform(3), &[1000, 200, 200], &[(1000, 0)]);
    world.faults(0, 0..4);
    world.faults(0, 4..264);
    // Both remote nodes are a little above one half, as allocated; nobody touched anything in the
    // period.
    let used = |world: &World| [1, 2].map(|node| world.nodes.used(Node(node)));
    assert_eq!(used(&world), [101, 101]);
    world.nodes.set_now_ns(1_000_000);
    world.faults(0, 264..265);
    world.nodes.set_now_ns(2_000_000);
    assert_eq!(world.faults(0, 265..267), [1, 2], "idle");
}

/// What a live program does: it frees and allocates, and its call sites are known.
#[test]
fn regions_come_and_go() {
    let topology = Topology::uniform(2);
    let mut world = World::new("cache-aware", topology, &[1000, 1000], &[(300, 0)]);
    assert_eq!(world.policy.region_tier(Object(0)), None);
    world.faults(0, 0..154);
    assert_eq!(
        world.policy.region_tier(Object(0)),
        Some(RegionTier::Remote)
    );
    for block in (0..154).map(Block) {
        let node = world.nodes.home(block).unwrap();
        world.nodes.remove(block, node);
        let (policy, nodes) = (&mut world.policy, &world.nodes);
        policy.on_removed(block, node, nodes, &mut Vec::new());
    }
    world.policy.on_region_freed(Object(0));
    assert_eq!(world.policy.region_tier(Object(0)), None);
    // The object's number is used again; nothing of the first region is left, and what its call
    // site does is known.
    world
        .policy
        .on_region_allocated(&region(0, 0, 256, Some(RegionTier::Remote)));
    assert_eq!(world.faults(0, [7, 3, 90]), [1, 1, 1]);
    world
        .policy
        .on_region_allocated(&region(1, 0, 256, Some(RegionTier::Local)));
    assert_eq!(world.faults(1, 0..10), [0; 10]);
    world.policy.on_region_freed(Object(5));
}

#[test]
fn more_blocks_than_expected() {
    for spec in ["cache-aware", "cache-aware{sample=0.5}"] {
        let mut world = World::new(spec, Topology::uniform(2), &[20_000, 20_000], &[(300, 0)]);
        world.next = 10_000;
        world.nodes.grow(10_300);
        world.policy.grow(10_300);
        assert_eq!(world.faults(0, 0..6), [0, 0, 0, 0, 1, 1]);
    }
}

#[test]
fn frames_of_others_count_as_used() {
    let topology = Topology::uniform(3);
    let mut world = World::new("cache-aware", topology, &[100, 100, 100], &[(300, 0)]);
    world.nodes.set_others(Node(1), 10);
    assert_eq!(world.faults(0, 0..6), [0, 0, 0, 0, 2, 2]);
    world.nodes.set_others(Node(1), 0);
    assert_eq!(world.faults(0, 6..8), [1, 1]);
}
