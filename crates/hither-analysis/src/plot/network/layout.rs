//! The coordinates of nodes and links: grids as lattices with a slanted third axis, hypercubes as
//! nested cubes, rings as circles, trees with their leaves at the bottom, and all others on one
//! circle.

use std::collections::BTreeSet;
use std::f64::consts::{PI, TAU};

use hither_core::topology::{Link, LinkEnd};
use hither_core::{Node, Topology};

type Point = (f64, f64);

/// The radius of a node in points.
pub(super) const NODE_RADIUS: f64 = 12.0;

/// The distance in points between neighbours on a grid.
const GRID_SPACING: f64 = 74.0;

/// The distance in points between neighbours on a circle and between leaves.
const CIRCLE_SPACING: f64 = 40.0;

/// The most different latencies that lines and a legend show.
const LEGEND_LATENCIES_MAX: usize = 6;

/// How pale the nodes in the background are. White numbers are still legible on them.
const PALE_MAX: f64 = 0.35;

/// The elements of the picture. Their origin may be anywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Point>,
    /// How pale each node is, from 0 to 1: nodes in the background are paler. It is empty where all
    /// nodes lie in one plane.
    pub(super) pale: Vec<f64>,
    pub(super) switches: Vec<Point>,
    pub(super) strokes: Vec<Stroke>,
    /// The heads of arrows: position and direction, in radians.
    pub(super) arrows: Vec<(Point, f64)>,
    /// Texts at the middle of their base line.
    pub(super) labels: Vec<(Point, String)>,
}

/// A line of the picture.
#[derive(Clone, Debug)]
pub(super) struct Stroke {
    pub(super) points: Vec<Point>,
    /// From 0, fully drawn, to 1, invisible.
    pub(super) faint: f64,
}

impl Layout {
    /// Left, top, right and bottom of all elements.
    pub(super) fn bounds(&self) -> (f64, f64, f64, f64) {
        let around = |&(x, y): &Point, by: f64| [(x - by, y - by), (x + by, y + by)];
        let nodes = self
            .nodes
            .iter()
            .flat_map(|at| around(at, NODE_RADIUS + 2.0));
        let switches = self.switches.iter().flat_map(|at| around(at, NODE_RADIUS));
        let labels = self.labels.iter().flat_map(|(at, text)| {
            // An upper bound of the width of a letter.
            let half = 3.4 * text.chars().count() as f64;
            [(at.0 - half, at.1 - 10.0), (at.0 + half, at.1 + 4.0)]
        });
        let lines = self.strokes.iter().flat_map(|stroke| stroke.points.clone());
        let start = (f64::MAX, f64::MAX, f64::MIN, f64::MIN);
        let all = nodes.chain(switches).chain(labels).chain(lines);
        all.fold(start, |(left, top, right, bottom), (x, y)| {
            (left.min(x), top.min(y), right.max(x), bottom.max(y))
        })
    }

    /// Moves all elements.
    pub(super) fn shift(&mut self, dx: f64, dy: f64) {
        let lines = self
            .strokes
            .iter_mut()
            .flat_map(|stroke| &mut stroke.points);
        let points = self.nodes.iter_mut().chain(&mut self.switches).chain(lines);
        let arrows = self.arrows.iter_mut().map(|(at, _)| at);
        let labels = self.labels.iter_mut().map(|(at, _)| at);
        for at in points.chain(arrows).chain(labels) {
            *at = (at.0 + dx, at.1 + dy);
        }
    }

    fn point_of(&self, end: LinkEnd) -> Point {
        match end {
            LinkEnd::Node(node) => self.nodes[node.index()],
            LinkEnd::Switch(switch) => self.switches[usize::from(switch)],
        }
    }

    /// Adds a straight line for each pair of nodes or switches with a link in either direction.
    fn join(&mut self, topology: &Topology, faint: impl Fn(LinkEnd, LinkEnd) -> f64) {
        for (from, to) in pairs(topology) {
            self.strokes.push(Stroke {
                points: vec![self.point_of(from), self.point_of(to)],
                faint: faint(from, to),
            });
        }
    }
}

/// The pairs of nodes or switches with a link, sorted.
fn pairs(topology: &Topology) -> BTreeSet<(LinkEnd, LinkEnd)> {
    let links = (0..topology.links() as u32).map(|link| topology.link(link));
    let wires = links.filter_map(|link| match link {
        Link::Wire { from, to } => Some((from.min(to), from.max(to))),
        Link::Ring(_) => None,
    });
    wires.collect()
}

pub(super) fn of(topology: &Topology) -> Layout {
    let axes = topology.axes();
    let longer = axes.iter().filter(|length| **length > 1).count();
    match topology.kind() {
        "torus" if longer == 1 && topology.nodes() > 2 => circle(topology),
        "mesh" | "torus" => grid(topology),
        "hypercube" => cube(topology),
        "ring" => rings(topology),
        "tree" => tree(topology),
        _ => circle(topology),
    }
}

fn along(start: Point, (dx, dy): Point, times: f64) -> Point {
    (start.0 + dx * times, start.1 + dy * times)
}

/// The direction of each axis, the last axis first: right, down, slanted into the background. Each
/// further axis places whole lattices to the right or below.
fn directions(axes: &[usize]) -> Vec<Point> {
    let length = |axis: usize| axes.len().checked_sub(axis + 1).map_or(1, |at| axes[at]) as f64;
    let depth = length(2);
    // A column into the background ends before the next node of the front plane.
    let step = if depth > 1.0 {
        GRID_SPACING.max(34.0 * depth + 20.0)
    } else {
        GRID_SPACING
    };
    let aslant = if depth > 1.0 {
        (0.8 * step / depth, -0.55 * step / depth)
    } else {
        (0.0, 0.0)
    };
    let mut across = length(0) * step + depth * aslant.0 + 0.6 * step;
    let mut down = length(1) * step - depth * aslant.1 + 0.6 * step;
    let mut directions = vec![(step, 0.0), (0.0, step), aslant];
    for axis in 3..axes.len() {
        if axis % 2 == 1 {
            directions.push((across, 0.0));
            across *= length(axis);
        } else {
            directions.push((0.0, down));
            down *= length(axis);
        }
    }
    directions
}

/// The coordinates of a node along the axes, the last axis first.
fn coordinates(axes: &[usize], mut node: usize) -> Vec<usize> {
    let coordinate = |length: &usize| {
        let coordinate = node % length;
        node /= length;
        coordinate
    };
    axes.iter().rev().map(coordinate).collect()
}

fn grid(topology: &Topology) -> Layout {
    let axes = topology.axes();
    let directions = directions(axes);
    let mut layout = Layout::default();
    for node in 0..topology.nodes() {
        let coordinates = coordinates(axes, node);
        let steps = coordinates.iter().zip(&directions);
        let at = steps.fold((0.0, 0.0), |at, (place, direction)| {
            along(at, *direction, *place as f64)
        });
        layout.nodes.push(at);
        if let [.., depth, _, _] = axes {
            let behind = coordinates[2] as f64 / (depth - 1).max(1) as f64;
            layout.pale.push(PALE_MAX * behind);
        }
    }
    let deep = !layout.pale.is_empty();
    for pair in pairs(topology) {
        let (LinkEnd::Node(from), LinkEnd::Node(to)) = pair else {
            continue;
        };
        let (a, b) = (
            coordinates(axes, from.index()),
            coordinates(axes, to.index()),
        );
        let axis = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(0);
        let ends = (layout.nodes[from.index()], layout.nodes[to.index()]);
        let wraps = b[axis].abs_diff(a[axis]) > 1;
        // A torus of three dimensions has many wrap-around links, so they are faint.
        let (high, faint) = if deep { (0.26, 0.6) } else { (0.45, 0.3) };
        layout.strokes.push(match (wraps, axis) {
            (false, 0..3) => Stroke {
                points: vec![ends.0, ends.1],
                faint: 0.0,
            },
            (true, 0..3) => Stroke {
                points: bow(ends, directions[axis], high),
                faint,
            },
            // Links between the lattices of further axes.
            _ => Stroke {
                points: bow(ends, (0.0, 0.0), 0.07),
                faint: 0.55,
            },
        });
    }
    layout
}

/// A curve between two points, above or to the left of the straight line. With a `step` it starts
/// and ends outside the two points, as a link that wraps around.
fn bow((from, to): (Point, Point), step: Point, height: f64) -> Vec<Point> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy);
    let sign = if dx.abs() > dy.abs() {
        dx.signum()
    } else {
        -dy.signum()
    };
    let rise = match step {
        (0.0, 0.0) => height * length,
        (x, y) => height * x.hypot(y),
    };
    let normal = (dy / length * sign * rise, -dx / length * sign * rise);
    let normal = if normal.1 > 1e-9 {
        (-normal.0, -normal.1)
    } else {
        normal
    };
    let first = along(along(from, step, -0.55), normal, 1.0);
    let second = along(along(to, step, 0.55), normal, 1.0);
    (0..=24)
        .map(|part| f64::from(part) / 24.0)
        .map(|t| {
            let s = 1.0 - t;
            let terms = [
                (s * s * s, from),
                (3.0 * s * s * t, first),
                (3.0 * s * t * t, second),
                (t * t * t, to),
            ];
            terms
                .iter()
                .fold((0.0, 0.0), |at, (part, point)| along(at, *point, *part))
        })
        .collect()
}

/// A square, a slanted cube, and for each further dimension two shifted copies of the picture so
/// far. The shifts are such that no line runs through a node.
fn cube(topology: &Topology) -> Layout {
    let routers = topology.axes().is_empty();
    let step = if routers { 150.0 } else { 104.0 };
    let mut directions = vec![
        (1.0, 0.0),
        (0.0, 1.0),
        (0.42, -0.34),
        (2.1, 0.3),
        (-0.25, 2.05),
    ];
    for dimension in 5..10 {
        let (x, y): Point = directions[dimension - 2];
        directions.push((2.1 * x, 2.1 * y));
    }
    let at = |number: usize| {
        let bits = directions.iter().enumerate();
        let set = bits.filter(|(bit, _)| number >> bit & 1 == 1);
        set.fold((0.0, 0.0), |at, (_, direction)| along(at, *direction, step))
    };
    let mut layout = Layout::default();
    if routers {
        // Two nodes are direct neighbours only if they share a router.
        let each = topology.neighbours(Node(0)).len() + 1;
        layout.switches = (0..topology.nodes() / each).map(at).collect();
        for node in 0..topology.nodes() {
            // The cube has no links in these directions.
            let angle = PI / 4.0 + TAU * (node % each) as f64 / each as f64;
            let far = (each as f64 * 11.0).max(34.0);
            let direction = (angle.cos(), angle.sin());
            layout
                .nodes
                .push(along(layout.switches[node / each], direction, far));
        }
    } else {
        layout.nodes = (0..topology.nodes()).map(at).collect();
        let behind = |node: usize| if node >> 2 & 1 == 1 { PALE_MAX } else { 0.0 };
        layout.pale = (0..topology.nodes()).map(behind).collect();
    }
    layout.join(topology, |_, _| 0.0);
    layout
}

/// All nodes on one circle, the first one at the top. Links with higher latencies are fainter.
fn circle(topology: &Topology) -> Layout {
    let nodes = topology.nodes();
    let mut layout = Layout::default();
    let radius = match nodes {
        1 => 0.0,
        2 => 0.75 * GRID_SPACING,
        _ => (CIRCLE_SPACING / 2.0 / (PI / nodes as f64).sin()).max(1.2 * GRID_SPACING),
    };
    // Two nodes lie side by side.
    let first = if nodes == 2 { PI } else { -PI / 2.0 };
    let direction = |node: usize| {
        let angle = first + TAU * node as f64 / nodes as f64;
        (angle.cos(), angle.sin())
    };
    for node in topology.all() {
        let direction = direction(node.index());
        layout.nodes.push(along((0.0, 0.0), direction, radius));
        let name = &topology.about(node).name;
        if !name.is_empty() {
            let far = 26.0 + 3.2 * name.chars().count() as f64 * direction.0.abs();
            let (x, y) = along((0.0, 0.0), direction, radius + far);
            layout.labels.push(((x, y + 3.5), name.clone()));
        }
    }
    // In a complete graph the lines are faint, so that they do not hide each other.
    let crowd = match topology.kind() {
        "torus" => 0.0,
        _ => 0.75 * (1.0 - 6.0 / nodes.max(6) as f64),
    };
    let mut latencies: Vec<u32> = pairs(topology)
        .into_iter()
        .filter_map(|pair| between(topology, pair))
        .collect();
    latencies.sort_unstable();
    latencies.dedup();
    let faint = |latency_ns: u32| {
        let slower = latencies.partition_point(|&each| each < latency_ns) as f64;
        crowd.max(0.6 * slower / latencies.len().saturating_sub(1).max(1) as f64)
    };
    layout.join(topology, |from, to| {
        between(topology, (from, to)).map_or(crowd, faint)
    });
    if (2..=LEGEND_LATENCIES_MAX).contains(&latencies.len()) {
        let wide = 92.0;
        let left = -wide * latencies.len() as f64 / 2.0;
        let (.., bottom) = layout.bounds();
        for (column, &latency_ns) in latencies.iter().enumerate() {
            let start = (left + wide * column as f64, bottom + 34.0);
            layout.strokes.push(Stroke {
                points: vec![start, (start.0 + 24.0, start.1)],
                faint: faint(latency_ns),
            });
            let at = (start.0 + 55.0, start.1 + 4.0);
            layout.labels.push((at, format!("{latency_ns} ns")));
        }
    }
    layout
}

/// The latency between two nodes.
fn between(topology: &Topology, pair: (LinkEnd, LinkEnd)) -> Option<u32> {
    match pair {
        (LinkEnd::Node(from), LinkEnd::Node(to)) => Some(topology.latency_ns(from, to)),
        _ => None,
    }
}

/// A ring with its stations, or with the rings of the next level, which touch it.
fn rings(topology: &Topology) -> Layout {
    let fan = topology.levels();
    let mut layout = Layout {
        nodes: vec![(0.0, 0.0); topology.nodes()],
        ..Layout::default()
    };
    // For each level, the topmost first: the radius of a ring, and the radius with all rings below.
    let mut sizes = vec![(0.0, 0.0); fan.len()];
    let mut below = 0.0_f64;
    for (level, &parts) in fan.iter().enumerate().rev() {
        let places = if level == 0 { parts } else { parts + 1 } as f64;
        let wide = if level + 1 == fan.len() {
            1.9 * CIRCLE_SPACING
        } else {
            2.0 * below + 24.0
        };
        let around = match parts {
            1 => 0.0,
            _ => wide / 2.0 / (PI / places).sin(),
        };
        let radius = if level + 1 == fan.len() {
            around.max(0.8 * GRID_SPACING)
        } else {
            (around - below).max(1.3 * GRID_SPACING)
        };
        sizes[level] = (
            radius,
            radius + 2.0 * sizes.get(level + 1).map_or(0.0, |size| size.0),
        );
        below = radius
            + if level + 1 == fan.len() {
                NODE_RADIUS
            } else {
                2.0 * below
            };
    }
    ring(&mut layout, fan, &sizes, (0.0, 0.0), -PI / 2.0, 0, 0);
    layout
}

/// Draws the ring number `index` of a level. It touches the ring above at `angle`.
fn ring(
    layout: &mut Layout,
    fan: &[usize],
    sizes: &[(f64, f64)],
    middle: Point,
    angle: f64,
    level: usize,
    index: usize,
) {
    let parts = fan[level];
    let radius = sizes[level].0;
    let at = |angle: f64, far: f64| along(middle, (angle.cos(), angle.sin()), far);
    let points = (0..=96)
        .map(|part| at(TAU * f64::from(part) / 96.0, radius))
        .collect();
    layout.strokes.push(Stroke { points, faint: 0.0 });
    // The connection to the ring above takes one position.
    let places = if level == 0 { parts } else { parts + 1 } as f64;
    let first = if level == 0 { 0.0 } else { 1.0 };
    let part_angle = |part: f64| angle + TAU * (part + first) / places;
    for part in 0..parts {
        let angle = part_angle(part as f64);
        layout.arrows.push((
            at(part_angle(part as f64 + 0.5), radius),
            part_angle(part as f64 + 0.5) + PI / 2.0,
        ));
        if level + 1 == fan.len() {
            layout.nodes[index * parts + part] = at(angle, radius);
        } else {
            layout.switches.push(at(angle, radius));
            let middle = at(angle, radius + sizes[level + 1].0);
            ring(
                layout,
                fan,
                sizes,
                middle,
                angle + PI,
                level + 1,
                index * parts + part,
            );
        }
    }
}

fn tree(topology: &Topology) -> Layout {
    let fan = topology.levels();
    let mut layout = Layout::default();
    // Leaves of different switches are further apart.
    let group = fan.last().copied().unwrap_or(1);
    let leaf = |leaf: usize| (leaf as f64 * CIRCLE_SPACING * 0.85) + (leaf / group) as f64 * 16.0;
    layout.nodes = (0..topology.nodes())
        .map(|node| (leaf(node), 0.0))
        .collect();
    let mut switches = 1;
    for level in 0..fan.len() {
        let leaves = topology.nodes() / switches;
        for switch in 0..switches {
            let (first, last) = (leaf(switch * leaves), leaf((switch + 1) * leaves - 1));
            let height = (fan.len() - level) as f64 * GRID_SPACING;
            layout.switches.push(((first + last) / 2.0, -height));
        }
        switches *= fan[level];
    }
    layout.join(topology, |_, _| 0.0);
    layout
}
