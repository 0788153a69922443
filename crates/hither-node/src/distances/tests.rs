//! Distances are those that the configuration gives, whatever the order of the members.

use hither_core::Node;

use super::*;

fn file(text: &str) -> TopologyFile {
    toml::from_str(text).unwrap()
}

fn distances(text: &str) -> Distances {
    Distances::new(file(text), None).unwrap()
}

fn ids(names: &[&str]) -> Vec<MemberId> {
    names.iter().map(|name| MemberId::of(name)).collect()
}

/// The hops between members, by row.
fn hops(distances: &Distances, names: &[&str]) -> Vec<u32> {
    let topology = distances.topology(&ids(names)).unwrap();
    let pairs = topology
        .all()
        .flat_map(|from| topology.all().map(move |to| (from, to)));
    pairs.map(|(from, to)| topology.hops(from, to)).collect()
}

#[test]
fn members_of_a_shape_are_at_its_nodes_in_any_order() {
    let distances =
        distances("shape = \"mesh:2x3\"\nmembers = [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]");
    assert_eq!(distances.name(), "mesh:2x3");
    let mesh = Topology::mesh(&[2, 3]);
    let order = ["f", "a", "d", "c", "e", "b"];
    let numbers = [5, 0, 3, 2, 4, 1].map(Node);
    let topology = distances.topology(&ids(&order)).unwrap();
    for (at, from) in topology.all().zip(numbers) {
        for (other, to) in topology.all().zip(numbers) {
            assert_eq!(topology.hops(at, other), mesh.hops(from, to));
            assert_eq!(topology.latency_ns(at, other), mesh.latency_ns(from, to));
        }
    }
    // c and d are the far corners, and hops are not counted anew where members are missing.
    assert_eq!(hops(&distances, &["d", "c"]), [0, 3, 3, 0]);
}

#[test]
fn a_member_without_a_position_is_far_from_all() {
    let distances = distances("shape = \"mesh:1x3\"\nmembers = [\"a\", \"b\", \"c\"]");
    let expected = [0, 1, 2, 2, 1, 0, 2, 2, 2, 2, 0, 2, 2, 2, 2, 0];
    assert_eq!(hops(&distances, &["a", "b", "x", "y"]), expected);
    assert!(distances.covers(MemberId::of("a")) && !distances.covers(MemberId::of("x")));
}

#[test]
fn places_are_a_tree() {
    let distances = distances(
        "[places]\na = \"z1/r1\"\nb = \"z1/r1\"\nc = \"z1/r2\"\nd = \"z2/r1\"\ne = \"z2\"",
    );
    let of_a = &hops(&distances, &["a", "b", "c", "d", "e"])[..5];
    assert_eq!(of_a, [0, 2, 4, 6, 5]);
    assert_eq!(hops(&distances, &["d", "e"]), [0, 3, 3, 0]);
}

#[test]
fn a_matrix_keeps_its_proportions() {
    let text = "a, b, c\n0, 100, 900\n100, 0, 901\n\n900, 901, 0\n";
    let distances = Distances::new(file("matrix = \"m.csv\""), Some(text)).unwrap();
    let topology = distances.topology(&ids(&["c", "a", "b"])).unwrap();
    assert_eq!(topology.latency_ns(Node(0), Node(1)), 900_000);
    assert_eq!(topology.latency_ns(Node(1), Node(2)), 100_000);
    assert_eq!(topology.nearest(Node(0)), [0, 1, 2].map(Node));
    let alone = distances.topology(&ids(&["x", "a"])).unwrap();
    assert_eq!(alone.latency_ns(Node(0), Node(1)), 901_000);
}

#[test]
fn what_makes_no_topology() {
    let measured = Distances::default();
    assert_eq!(measured.topology(&[]), None);
    let many: Vec<MemberId> = (0..=NODES_MAX as u64).map(MemberId).collect();
    assert_eq!(measured.topology(&many), None);
    let uniform = measured.topology(&many[1..]).unwrap();
    assert_eq!((uniform.kind(), uniform.nodes()), ("uniform", NODES_MAX));
    let alone = distances("[places]\na = \"z\"");
    assert_eq!(hops(&alone, &["a"]), [0]);
    assert_eq!(hops(&alone, &["a", "b"]), [0, 1, 1, 0]);
}

#[test]
fn mistakes_are_one_line_that_names_them() {
    for (text, matrix, words) in [
        ("shape = \"mesh:2x2\"", None, "come together"),
        ("members = [\"a\"]", None, "come together"),
        ("shape = \"mash:2\"\nmembers = []", None, "mash"),
        ("shape = \"mesh:2x2\"\nmembers = [\"a\"]", None, "4 nodes"),
        ("shape = \"2\"\nmembers = [\"a\", \"a\"]", None, "twice"),
        ("shape = \"2\"\nmembers = [\"a\", \"B\"]", None, "\"B\""),
        ("shape = \"2\"\n[places]\na = \"z\"", None, "one of"),
        ("places = {}", None, "no member"),
        ("places = { a = \"z//r\" }", None, "z//r"),
        ("places = { a = \"\" }", None, "\"a\""),
        ("matrix = \"m.csv\"", Some(""), "names"),
        ("matrix = \"m.csv\"", Some("a,b\n0,1\n"), "1 rows"),
        ("matrix = \"m.csv\"", Some("a,b\n0,1\n1\n"), "line 3"),
        ("matrix = \"m.csv\"", Some("a,b\n0,1\n1,0\n1,0\n"), "line 4"),
        ("matrix = \"m.csv\"", Some("a,b\n0,x\n1,0\n"), "\"x\""),
        ("matrix = \"m.csv\"", Some("a,b\n0,-1\n-1,0\n"), "line 2"),
        (
            "matrix = \"m.csv\"",
            Some("a,b\n0,9999999\n1,0\n"),
            "9999999",
        ),
        ("matrix = \"m.csv\"", Some("a,b\n0,1\n2,0\n"), "symmetric"),
        ("matrix = \"m.csv\"", Some("a,b\n1,2\n2,0\n"), "itself"),
        ("matrix = \"m.csv\"", Some("a,b\n0,0\n0,0\n"), "it is 0"),
        ("matrix = \"m.csv\"", Some("a,a\n0,1\n1,0\n"), "twice"),
    ] {
        let error = Distances::new(file(text), matrix).unwrap_err();
        assert_eq!(error.starts_with("m.csv: "), matrix.is_some(), "{error}");
        assert!(error.contains(words), "{words} is not in: {error}");
        assert!(!error.contains('\n'), "more than a line: {error}");
    }
}
