//! Pictures of topologies: nodes as discs and links as lines, in the usual form of each kind of
//! network.

mod layout;

use hither_core::Topology;

use super::picture::{FAINT, INK, Plot, WHITE};
use super::scene::{Anchor, Colour, Font, Scene};
use crate::{Error, Result};
use layout::{Layout, NODE_RADIUS, Stroke};

/// The most nodes of a legible picture.
const NODES_MAX: usize = 256;

const NODE_COLOUR: Colour = Colour(0x00, 0x72, 0xb2);
const LINK_COLOUR: Colour = Colour(0x80, 0x80, 0x80);

/// The margin of the picture and the height of the title, in points.
const MARGIN: f64 = 28.0;
const TITLE_HEIGHT: f64 = 52.0;

/// Half the side of a switch, in points.
const SWITCH_HALF_SIDE: f64 = 6.0;

/// The coordinates of a topology's nodes and links, for pictures that draw more on them.
#[derive(Clone, Debug, Default)]
pub struct NodeLayout {
    /// The centre of each node.
    pub nodes: Vec<(f64, f64)>,
    /// The centre of each switch of a tree.
    pub switches: Vec<(f64, f64)>,
    /// The links, as lines through points.
    pub lines: Vec<Vec<(f64, f64)>>,
}

impl NodeLayout {
    /// Lays out the nodes of a topology.
    pub fn of(topology: &Topology) -> NodeLayout {
        let layout = layout::of(topology);
        NodeLayout {
            nodes: layout.nodes,
            switches: layout.switches,
            lines: layout
                .strokes
                .into_iter()
                .map(|stroke| stroke.points)
                .collect(),
        }
    }
}

/// The picture of a topology.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    topology: &'a Topology,
    /// A line in smaller letters below the name.
    subtitle: &'a str,
}

impl<'a> Network<'a> {
    /// Fails where there are too many nodes.
    pub fn new(topology: &'a Topology, subtitle: &'a str) -> Result<Self> {
        let nodes = topology.nodes();
        if nodes > NODES_MAX {
            return Err(Error::TooLarge(format!(
                "{}: {nodes} nodes, but a picture shows at most {NODES_MAX}",
                topology.name()
            )));
        }
        Ok(Network { topology, subtitle })
    }

    fn draw(&self, scene: &mut Scene, layout: &Layout) {
        for Stroke { points, faint } in &layout.strokes {
            let colour = LINK_COLOUR.towards(WHITE, *faint);
            scene.line(points.clone(), 1.6 - 0.6 * faint, colour);
        }
        for &(tip, angle) in &layout.arrows {
            let corners = [(5.0, 0.0), (-5.0, 4.2), (-5.0, -4.2)];
            let turned = corners.map(|(x, y)| {
                let (sin, cos) = angle.sin_cos();
                (tip.0 + x * cos - y * sin, tip.1 + x * sin + y * cos)
            });
            scene.fill(turned.to_vec(), LINK_COLOUR);
        }
        for &(x, y) in &layout.switches {
            for (half, colour) in [(SWITCH_HALF_SIDE + 2.0, WHITE), (SWITCH_HALF_SIDE, FAINT)] {
                let corners = [(-half, -half), (half, -half), (half, half), (-half, half)];
                scene.fill(corners.map(|(dx, dy)| (x + dx, y + dy)).to_vec(), colour);
            }
        }
        for (node, &(x, y)) in self.topology.all().zip(&layout.nodes) {
            scene.disc((x, y), NODE_RADIUS + 2.0, WHITE);
            let pale = layout.pale.get(node.index()).copied().unwrap_or(0.0);
            scene.disc((x, y), NODE_RADIUS, NODE_COLOUR.towards(WHITE, pale));
            // A node without CPUs is hollow.
            let hollow = self.topology.cpus(node) == 0;
            if hollow {
                scene.disc((x, y), NODE_RADIUS - 1.8, WHITE);
            }
            let ink = if hollow { NODE_COLOUR } else { WHITE };
            let size = if node.0 < 100 { 11.0 } else { 9.0 };
            let number = node.0.to_string();
            scene.text(x, y + 0.37 * size, size, ink, Anchor::Middle, &number);
        }
        for (at, text) in &layout.labels {
            scene.text(at.0, at.1, 10.5, FAINT, Anchor::Middle, text);
        }
    }
}

impl Plot for Network<'_> {
    fn title(&self) -> &str {
        self.topology.name()
    }

    fn scene(&self) -> Scene {
        let topology = self.topology;
        let mut layout = layout::of(topology);
        let (left, top, right, bottom) = layout.bounds();
        let font = Font::new();
        let title = font.width(topology.name(), 17.0);
        let title = title.max(font.width(self.subtitle, 11.5));
        let inside = (right - left).max(title);
        layout.shift(
            MARGIN + (inside - (right - left)) / 2.0 - left,
            MARGIN + TITLE_HEIGHT - top,
        );
        let (width, height) = (
            inside + 2.0 * MARGIN,
            bottom - top + TITLE_HEIGHT + 2.0 * MARGIN,
        );
        let mut scene = Scene::new(width.ceil(), height.ceil());
        let name = topology.name();
        scene.text(MARGIN, MARGIN + 10.0, 17.0, INK, Anchor::Start, name);
        let subtitle = self.subtitle;
        scene.text(MARGIN, MARGIN + 29.0, 11.5, FAINT, Anchor::Start, subtitle);
        self.draw(&mut scene, &layout);
        scene
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::scene::Item;

    const TEXTS: &[&str] = &[
        "1",
        "2",
        "7",
        "mesh:5x5",
        "mesh:4",
        "mesh:2x3x4",
        "mesh:2x2x3x3",
        "torus:8",
        "torus:4x4",
        "torus:4x4x4",
        "torus:2x2",
        "hypercube:1",
        "hypercube:4",
        "hypercube:6",
        "hypercube:3x2",
        "hypercube:2x3",
        "ring:1",
        "ring:4x4",
        "ring:2x4x4",
        "ring:3x2x4x1",
        "tree:4x4",
        "tree:2x3x4",
        "tree:1",
        "256",
    ];

    #[test]
    fn pictures_are_the_same_in_every_run_and_hold_all_that_is_in_them() {
        for text in TEXTS {
            let topology: Topology = text.parse().unwrap();
            let network = Network::new(&topology, "a subtitle").unwrap();
            let svg = network.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{text}");
            assert_eq!(svg, network.svg());
            let scene = network.scene();
            for item in &scene.items {
                let points = match item {
                    Item::Line { points, .. } => points.clone(),
                    Item::Fill { corners, .. } => corners.clone(),
                    Item::Text { at, .. } => vec![*at],
                };
                let within = |&(x, y): &(f64, f64)| {
                    (0.0..=scene.width).contains(&x) && (0.0..=scene.height).contains(&y)
                };
                assert!(points.iter().all(within), "{text}: {item:?}");
            }
        }
    }

    #[test]
    fn no_node_lies_on_another() {
        for text in TEXTS {
            let topology: Topology = text.parse().unwrap();
            let layout = layout::of(&topology);
            assert_eq!(layout.nodes.len(), topology.nodes());
            for (index, a) in layout.nodes.iter().enumerate() {
                for b in &layout.nodes[..index] {
                    let apart = (a.0 - b.0).hypot(a.1 - b.1);
                    assert!(apart > 2.0 * NODE_RADIUS, "{text}: {apart}");
                }
            }
        }
    }

    #[test]
    fn too_many_nodes_are_refused() {
        let topology = Topology::uniform(257);
        assert!(Network::new(&topology, "").is_err());
    }
}
