//! Where the nodes of a topology are drawn, and between which of them there are links.

use std::collections::BTreeSet;
use std::f64::consts::TAU;

use hither_core::Topology;

/// Places in steps from the upper left, and pairs of nodes.
pub(super) type Layout = (Vec<(f64, f64)>, Vec<(usize, usize)>);

/// A grid as it is, planes of more than two axes side by side; all else on a circle.
pub(super) fn layout(topology: &Topology) -> Layout {
    let nodes = topology.nodes();
    let axes = topology.axes();
    let places = match axes {
        [] | [_] => circle(nodes),
        [.., rows, columns] => {
            let planes = nodes / (rows * columns);
            // As many planes in a row as make the whole about square.
            let in_a_row = (1..=planes)
                .find(|&count| count * (columns + 1) >= planes.div_ceil(count) * (rows + 1))
                .unwrap_or(planes);
            let place = |node: usize| {
                let (plane, within) = (node / (rows * columns), node % (rows * columns));
                let x = (plane % in_a_row) * (columns + 1) + within % columns;
                let y = (plane / in_a_row) * (rows + 1) + within / columns;
                (x as f64, y as f64)
            };
            (0..nodes).map(place).collect()
        }
    };
    let mut links = BTreeSet::new();
    for node in topology.all() {
        for &other in topology.neighbours(node) {
            links.insert((
                node.index().min(other.index()),
                node.index().max(other.index()),
            ));
        }
    }
    // All pairs of a large topology without structure would be a grey disc; so would the planes' links to each other.
    let drawn = links.into_iter().filter(|&(a, b)| {
        let far = (places[a].0 - places[b].0).hypot(places[a].1 - places[b].1);
        if axes.len() > 1 {
            far < 1.5
        } else {
            nodes <= 16 || far < 1.5
        }
    });
    let drawn = drawn.collect();
    (places, drawn)
}

/// Clockwise from the top, one step apart.
fn circle(nodes: usize) -> Vec<(f64, f64)> {
    if nodes <= 2 {
        return (0..nodes).map(|node| (node as f64, 0.0)).collect();
    }
    let radius = 0.5 / (TAU / 2.0 / nodes as f64).sin();
    let angle = |node: usize| TAU * node as f64 / nodes as f64;
    let place = |node: usize| (radius * angle(node).sin(), -radius * angle(node).cos());
    (0..nodes).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_grids_and_the_rest_is_round() {
        let (places, links) = layout(&Topology::mesh(&[2, 3]));
        assert_eq!(places[4], (1.0, 1.0));
        assert_eq!(
            links,
            [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
        );
        let (places, links) = layout(&"torus:3x3x3".parse().unwrap());
        let apart = |a: (f64, f64), b: (f64, f64)| (a.0 - b.0).hypot(a.1 - b.1);
        let pairs = (0..27).flat_map(|a| (0..a).map(move |b| (a, b)));
        let nearest = pairs
            .map(|(a, b)| apart(places[a], places[b]))
            .fold(9.0, f64::min);
        assert!(nearest >= 1.0, "{places:?}");
        assert_eq!(links.len(), 3 * 12);
        let (places, links) = layout(&Topology::uniform(4));
        assert!((apart(places[0], places[1]) - 1.0).abs() < 1e-9);
        assert_eq!(links.len(), 6);
        assert_eq!(layout(&Topology::uniform(1)).0, [(0.0, 0.0)]);
    }
}
