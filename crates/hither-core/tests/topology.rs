//! Topologies from outside: distances against a search over the links, routes, medians against
//! brute force, and what users write.

use std::collections::{BTreeMap, VecDeque};

use hither_core::topology::{
    About, Latencies, Link, LinkEnd, NODES_MAX, Topology, TopologyError, presets,
};
use hither_core::{Node, Random};
use proptest::prelude::*;

/// One of each sort, with even, odd, short and lone axes.
const TEXTS: &[&str] = &[
    "1",
    "2",
    "7",
    "mesh:1",
    "mesh:6",
    "mesh:5x5",
    "mesh:3x1x4",
    "mesh:2x3x4",
    "torus:1",
    "torus:2",
    "torus:3",
    "torus:8",
    "torus:4x5",
    "torus:2x3x4",
    "hypercube:1",
    "hypercube:4",
    "hypercube:3x2",
    "hypercube:2x3",
    "hypercube:1x1",
    "ring:1",
    "ring:5",
    "ring:4x4",
    "ring:2x4x4",
    "ring:2x3x2x1",
    "tree:6",
    "tree:4x4",
    "tree:2x3x4",
    "tree:1x3x1",
    "mesh5x5-io",
    "numachine-4",
    "opteron2",
    "origin2000-16",
];

fn topology(text: &str) -> Topology {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A twisted ladder of 8 sockets: latencies of 100, 160 and 220.
fn ladder() -> Topology {
    let hops = |from: usize, to: usize| match (from / 2).abs_diff(to / 2) {
        _ if from == to => 0,
        0 | 1 if from % 2 == to % 2 || from / 2 == to / 2 => 1,
        _ => 2,
    };
    let latency_ns = |at: usize| 100 + 60 * hops(at / 8, at % 8);
    let latencies: Vec<u32> = (0..64).map(latency_ns).collect();
    Topology::from_matrix("ladder", &latencies).unwrap()
}

fn all() -> impl Iterator<Item = Topology> {
    TEXTS.iter().map(|text| topology(text)).chain([ladder()])
}

/// Hops from one node to all by a search over the links. A hop is a link; at routers with several
/// nodes the way from a node into its router is none, and a ring is entered from any of its
/// stations and left to any.
fn searched(topology: &Topology, from: Node) -> Vec<u32> {
    let mut next: BTreeMap<LinkEnd, Vec<LinkEnd>> = BTreeMap::new();
    for number in 0..topology.links() {
        if let Link::Wire { from, to } = topology.link(number as u32) {
            next.entry(from).or_default().push(to);
        }
    }
    let routers = topology.kind() == "hypercube" && topology.axes().is_empty();
    let start = if routers {
        // The router is the one that has a link to the node.
        *next
            .iter()
            .find(|(_, to)| to.contains(&LinkEnd::Node(from)))
            .unwrap()
            .0
    } else {
        LinkEnd::Node(from)
    };
    let mut hops = BTreeMap::from([(start, 0)]);
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for &to in next.get(&at).into_iter().flatten() {
            if !hops.contains_key(&to) {
                hops.insert(to, hops[&at] + 1);
                queue.push_back(to);
            }
        }
    }
    let of = |node| {
        if node == from {
            0
        } else {
            hops[&LinkEnd::Node(node)]
        }
    };
    topology.all().map(of).collect()
}

#[test]
fn hops_are_those_of_a_search_over_the_links() {
    for topology in all().filter(|topology| !["ring", "matrix"].contains(&topology.kind())) {
        for from in topology.all() {
            let hops: Vec<u32> = topology.all().map(|to| topology.hops(from, to)).collect();
            assert_eq!(
                hops,
                searched(&topology, from),
                "{} from {from:?}",
                topology.name()
            );
        }
    }
}

#[test]
fn rings_are_one_hop_each() {
    let rings = topology("ring:2x4x4");
    assert_eq!(
        (rings.nodes(), rings.cpus(Node(7)), rings.links()),
        (8, 4, 3)
    );
    assert_eq!(rings.hops(Node(0), Node(3)), 1);
    assert_eq!(rings.hops(Node(3), Node(4)), 3);
    let route: Vec<Link> = rings
        .route(Node(3), Node(4))
        .iter()
        .map(|&link| rings.link(link))
        .collect();
    assert_eq!(route, [Link::Ring(1), Link::Ring(0), Link::Ring(2)]);
    assert_eq!(rings.neighbours(Node(5)), [4, 6, 7].map(Node));
}

#[test]
fn distances_are_a_metric() {
    for topology in all() {
        let name = topology.name();
        for a in topology.all() {
            assert_eq!(topology.hops(a, a), 0);
            for b in topology.all() {
                assert_eq!(topology.hops(a, b), topology.hops(b, a), "{name}");
                assert_eq!(topology.hops(a, b) == 0, a == b, "{name}");
                for c in topology.all() {
                    let around = topology.hops(a, c) + topology.hops(c, b);
                    assert!(topology.hops(a, b) <= around, "{name}: {a:?} {c:?} {b:?}");
                }
            }
        }
    }
}

#[test]
fn routes_are_chains_of_links_as_long_as_the_hops() {
    for topology in all() {
        let name = topology.name();
        let mut used = vec![false; topology.links()];
        for from in topology.all() {
            for to in topology.all() {
                let route = topology.route(from, to);
                let hops = match topology.kind() {
                    "matrix" => u32::from(from != to),
                    _ => topology.hops(from, to),
                };
                assert_eq!(route.len() as u32, hops, "{name}: {from:?} {to:?}");
                let mut at = None;
                for &link in route {
                    used[link as usize] = true;
                    if let Link::Wire { from, to } = topology.link(link) {
                        assert!(at.is_none_or(|at| at == from), "{name}: {from:?} {to:?}");
                        at = Some(to);
                    }
                }
                assert!(at.is_none_or(|at| at == LinkEnd::Node(to)), "{name}");
            }
        }
        assert!(
            used.iter().all(|used| *used),
            "{name} has links of no route"
        );
    }
}

#[test]
fn links_are_as_many_as_drawn() {
    for (text, links) in [
        ("4", 12),
        ("mesh:5x5", 80),
        ("torus:4x4x4", 384),
        ("torus:2x3", 18),
        ("hypercube:4", 64),
        ("hypercube:3x2", 24 + 16),
        ("ring:4x4", 1),
        ("ring:1", 0),
        ("tree:4x4", 40),
    ] {
        assert_eq!(topology(text).links(), links, "{text}");
    }
}

#[test]
fn a_mesh_is_routed_along_x_then_y() {
    let mesh = topology("mesh:5x5");
    let route = mesh.route(Node(7), Node(18)).iter();
    let ends = route.map(|&link| match mesh.link(link) {
        Link::Wire {
            to: LinkEnd::Node(node),
            ..
        } => node.0,
        other => panic!("{other:?}"),
    });
    assert_eq!(ends.collect::<Vec<_>>(), [8, 13, 18]);
    let torus = topology("torus:5x4");
    assert_eq!(torus.next_hop(Node(0), Node(3)), Node(3));
    assert_eq!(torus.next_hop(Node(0), Node(2)), Node(1));
    assert_eq!(torus.next_hop(Node(0), Node(16)), Node(16));
}

#[test]
fn each_step_leads_nearer() {
    for topology in all() {
        for from in topology.all() {
            for to in topology.all() {
                let next = topology.next_hop(from, to);
                if from == to {
                    assert_eq!(next, to);
                    continue;
                }
                let name = topology.name();
                assert!(topology.hops(next, to) < topology.hops(from, to), "{name}");
                if !topology.axes().is_empty() {
                    assert_eq!(topology.hops(from, next), 1, "{name}");
                }
            }
        }
    }
}

#[test]
fn nearest_and_neighbours_are_in_order() {
    for topology in all() {
        for node in topology.all() {
            let nearest = topology.nearest(node);
            assert_eq!(nearest[0], node);
            assert!(nearest.is_sorted_by_key(|&other| (topology.hops(node, other), other)));
            let mut sorted = nearest.to_vec();
            sorted.sort();
            assert!(sorted.into_iter().eq(topology.all()));
            let neighbours = topology.neighbours(node);
            assert_eq!(neighbours.is_empty(), topology.nodes() == 1);
            assert!(neighbours.is_sorted());
        }
    }
    assert_eq!(topology("mesh:5x5").neighbours(Node(0)), [1, 5].map(Node));
    assert_eq!(
        topology("mesh:5x5").neighbours(Node(7)),
        [2, 6, 8, 12].map(Node)
    );
    assert_eq!(
        topology("torus:5x5").neighbours(Node(0)),
        [1, 4, 5, 20].map(Node)
    );
}

#[test]
fn the_median_of_the_paper() {
    let mesh = topology("mesh:9x9");
    let mut weights = [0; 81];
    for (x, y) in [(3, 4), (4, 3), (8, 8)] {
        weights[9 * y + x] = 7;
    }
    assert_eq!(mesh.median(&weights), Node(9 * 4 + 4));
}

#[test]
fn medians_are_those_of_brute_force() {
    let mut random = Random::new(4);
    for topology in all() {
        for round in 0..200 {
            // Few and many requesters, equal weights and unlike ones, and none at all.
            let (present, most) =
                [(0, 1), (3, 1), (3, 50), (100, 4), (40, u32::MAX as u64)][round % 5];
            let weights: Vec<u32> = topology
                .all()
                .map(|_| {
                    if random.below(100) < present {
                        1 + random.below(most.min(u64::from(u32::MAX) - 1)) as u32
                    } else {
                        0
                    }
                })
                .collect();
            let cost = |node: &Node| -> u64 {
                let each = topology.all().zip(&weights);
                each.map(|(from, &weight)| {
                    u64::from(weight) * u64::from(topology.latency_ns(from, *node))
                })
                .sum()
            };
            let best = topology.all().min_by_key(cost).unwrap();
            assert_eq!(
                topology.median(&weights),
                best,
                "{} {weights:?}",
                topology.name()
            );
        }
    }
}

#[test]
fn presets_have_the_latencies_of_their_papers() {
    let opteron = topology("opteron2");
    assert_eq!(
        (
            opteron.latency_ns(Node(0), Node(0)),
            opteron.latency_ns(Node(0), Node(1))
        ),
        (70, 104)
    );
    let origin = topology("origin2000-16");
    let to = |node| origin.latency_ns(Node(0), Node(node));
    // Itself, the other node of its router, the routers one to three links away.
    assert_eq!([0, 1, 2, 6, 14, 15].map(to), [300, 400, 500, 600, 700, 700]);
    assert_eq!((origin.nodes(), origin.cpus(Node(3))), (16, 2));
    let numachine = topology("numachine-4");
    assert_eq!((numachine.nodes(), numachine.cpus(Node(0))), (4, 4));
    for from in numachine.all() {
        for to in numachine.all() {
            let cycles = if from == to { 135 } else { 594 };
            assert_eq!(numachine.latency_ns(from, to), cycles * 1000 / 150);
        }
    }
    let mesh = topology("mesh5x5-io");
    assert_eq!(mesh.latency_ns(Node(0), Node(24)), 900_000);
    assert_eq!(
        (mesh.local_ns(), mesh.hop_ns(), mesh.storage_ns()),
        (100_000, 100_000, Some(8_200_000))
    );
}

#[test]
fn what_is_written_is_the_name() {
    for text in TEXTS {
        assert_eq!(topology(text).name(), *text);
        assert_eq!(topology(&format!(" {text}\n")), topology(text));
    }
    assert_eq!(topology("mesh:05x5").name(), "mesh:5x5");
    assert_eq!(Topology::mesh(&[2, 3]), topology("mesh:2x3"));
    assert_eq!(Topology::uniform(3), topology("3"));
    assert!(presets().is_sorted_by(|a, b| a.name < b.name));
    assert!(presets().iter().all(|preset| TEXTS.contains(&preset.name)));
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let said = |text: &str| text.parse::<Topology>().expect_err(text).to_string();
    assert_eq!(
        said("mesh:0x5"),
        "`mesh:0x5`: `0` is not a whole number from 1 to 1024; write for example `mesh:5x5` (5 \
         rows of 5 nodes)"
    );
    assert!(
        said("mesh:99999999999x2").contains("`99999999999` is not a whole number from 1 to 1024")
    );
    assert!(said("mesh:64x64").contains("more than 1024 nodes"));
    assert!(said("mesh:1024").contains("an axis has at most 256 nodes, not 1024"));
    assert!(said("hypercube:11").contains("at most 10 dimensions"));
    assert!(said("hypercube:10x2").contains("more than 1024 nodes"));
    assert!(said("torus:1x1x1x1x1x1x1x1x1x1x1").contains("11 numbers, of at most 10"));
    assert_eq!(said("5000"), "`5000` has more than 1024 nodes");
    assert_eq!(
        said("mush:5x5"),
        "unknown topology `mush:5x5` (did you mean `mesh`?); write a number of nodes, mesh:5x5, \
         torus:4x4x4, hypercube:4, \
         ring:4x4, tree:4x4, or one of mesh5x5-io, numachine-4, opteron2, origin2000-16"
    );
    assert!(said("opteron").contains("did you mean `opteron2`?"));
    let long = format!("mesh:{}", "9x".repeat(100_000));
    assert!(said(&long).len() < 300);
    for text in [
        "",
        " ",
        "0",
        "00",
        "-1",
        "+4",
        "4.0",
        "mesh",
        "mesh:",
        "mesh:x",
        "mesh:5x",
        "mesh:x5",
        "mesh:5X5",
        "mesh:+5x5",
        "mesh:5 x5",
        "mesh:5x5x",
        "mesh:5:5",
        ":",
        ":5",
        "torus:-1",
        "hypercube:0",
        "hypercube:2x2x2",
        "ring:0",
        "ring:4x0",
        "tree:",
        "tree:٣",
        "mesh:5x5\0",
        "Mesh:5x5",
        "18446744073709551616",
        "mesh:256x256x256x256x256x256x256x256",
        "hypercube:1024",
        "hypercube:3x1024",
        "ring:1024x2x2",
    ] {
        assert!(text.parse::<Topology>().is_err(), "{text:?} was taken");
    }
    for text in [
        "1024",
        "mesh:32x32",
        "torus:256x4",
        "hypercube:10",
        "ring:1024x1024",
        "tree:1024",
    ] {
        assert!(topology(text).nodes() <= NODES_MAX, "{text}");
    }
}

#[test]
fn a_matrix_of_hops_keeps_them() {
    let latencies = Latencies {
        local_ns: 10,
        hop_ns: 5,
        storage_ns: None,
    };
    let from_hops = |hops: &[u16]| Topology::from_hops("m", hops, latencies);
    let topology = from_hops(&[0, 2, 6, 2, 0, 6, 6, 6, 0]).unwrap();
    assert_eq!(
        (topology.kind(), topology.latencies()),
        ("matrix", latencies)
    );
    assert_eq!(topology.hops(Node(0), Node(2)), 6);
    assert_eq!(topology.latency_ns(Node(0), Node(2)), 40);
    assert_eq!(topology.latency_ns(Node(1), Node(1)), 10);
    assert_eq!(topology.nearest(Node(1)), [1, 0, 2].map(Node));
    assert_eq!(topology.median(&[0, 1, 4]), Node(2));
    assert_eq!(from_hops(&[]), Err(TopologyError::NotSquare(0)));
    assert_eq!(from_hops(&[0, 1, 1]), Err(TopologyError::NotSquare(3)));
    let nearer = TopologyError::NearerThanItself { from: 0, to: 1 };
    assert_eq!(from_hops(&[0, 0, 1, 0]), Err(nearer));
}

#[test]
fn a_matrix_is_by_latency() {
    let ladder = ladder();
    assert_eq!(
        (ladder.kind(), ladder.local_ns(), ladder.hop_ns()),
        ("matrix", 100, 60)
    );
    assert_eq!(ladder.neighbours(Node(0)), [1, 2].map(Node));
    assert_eq!(ladder.next_hop(Node(0), Node(3)), Node(1));
    assert_eq!(ladder.links(), 56);
    let wrong = |latencies: &[u32]| Topology::from_matrix("m", latencies).unwrap_err();
    assert_eq!(wrong(&[]), TopologyError::NotSquare(0));
    assert_eq!(wrong(&[1, 2, 3]), TopologyError::NotSquare(3));
    assert_eq!(
        wrong(&[1, 2, 2, 2]),
        TopologyError::NearerThanItself { from: 1, to: 0 }
    );
    // One way may be further than the other.
    let lopsided = Topology::from_matrix("m", &[10, 20, 30, 10]).unwrap();
    assert_eq!(lopsided.hops(Node(0), Node(1)), 1);
    assert_eq!(lopsided.hops(Node(1), Node(0)), 2);
    assert_eq!(lopsided.median(&[3, 1]), Node(0));
}

#[test]
fn latencies_and_nodes_can_be_set() {
    let slow = topology("mesh:2x2").with_latencies(Latencies {
        local_ns: 5,
        hop_ns: u32::MAX,
        storage_ns: Some(9),
    });
    assert_eq!(slow.latency_ns(Node(0), Node(0)), 5);
    assert_eq!(slow.latency_ns(Node(0), Node(3)), u32::MAX);
    assert_eq!(slow.storage_ns(), Some(9));
    let heavy = slow.with_nodes(|node, about| about.weight = u32::from(node.0));
    assert!(heavy.weighted());
    assert_eq!(heavy.weight(Node(3)), 3);
    assert_eq!(
        heavy.about(Node(3)),
        &About {
            weight: 3,
            ..About::default()
        }
    );
}

#[test]
fn shares_add_up() {
    assert_eq!(topology("4").shares(10), [3, 3, 2, 2]);
    let capacities = [3_u64, 1, 1, 1];
    let unlike = topology("4")
        .with_nodes(|node, about| about.capacity_bytes = capacities[node.index()] << 60);
    assert_eq!(unlike.shares(12), [6, 2, 2, 2]);
    assert_eq!(unlike.shares(1), [1, 0, 0, 0]);
    assert_eq!(unlike.shares(u32::MAX).iter().sum::<u32>(), u32::MAX);
}

#[test]
fn all_routes_of_256_nodes_stay_small() {
    let mesh = topology("mesh:16x16");
    let steps: usize = mesh
        .all()
        .flat_map(|from| mesh.all().map(move |to| (from, to)))
        .map(|(from, to)| mesh.route(from, to).len())
        .sum();
    assert!(steps * size_of::<u32>() < 4 << 20, "{steps} steps");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_is_written_is_taken_or_refused(
        text in prop_oneof![
            "\\PC*",
            "(mesh|torus|hypercube|ring|tree|)(:|)([0-9]{1,3}x){0,4}[0-9]{0,2}",
            "(mesh|torus|hypercube|ring|tree):([1-4]x){0,4}[1-4]",
        ]
    ) {
        if let Ok(topology) = text.parse::<Topology>() {
            let again: Topology = topology.name().parse().unwrap();
            prop_assert_eq!(again.nodes(), topology.nodes());
            let last = Node(topology.nodes() as u16 - 1);
            prop_assert_eq!(again.hops(Node(0), last), topology.hops(Node(0), last));
            prop_assert_eq!(topology.median(&vec![0; topology.nodes()]), Node(0));
        }
    }
}
