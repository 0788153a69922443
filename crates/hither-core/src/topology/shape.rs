//! The shapes: closed forms of distance and route. The tests compare them with a search over the
//! links.

use super::link::{Link, LinkEnd};
use crate::ids::Node;

/// The most nodes of a topology: tables grow with their square. It is Linux's own bound
/// (`MAX_NUMNODES`).
pub const NODES_MAX: usize = 1024;

/// The longest axis of a grid. With it, all routes of a topology take a few hundred MiB at most.
pub(super) const AXIS_MAX: usize = 256;

/// The most axes, levels or dimensions: with more, nearly all would have length 1.
pub(super) const AXES_MAX: usize = 10;

/// How nodes are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Each node has a link to each other.
    Uniform,
    /// The same, but distances differ; latencies give them.
    Matrix,
    /// Nodes on a grid, slowest axis first, each joined with the next along each axis.
    Grid {
        axes: Vec<usize>,
        /// Whether the ends of an axis are joined too.
        wraps: bool,
        /// Whether a user calls it a hypercube: all axes have length 2.
        cube: bool,
    },
    /// A hypercube of routers with several nodes each (SGI Origin2000: two; Laudon and Lenoski,
    /// ISCA 1997). A hop is a router on the way, so two nodes of one router are one hop apart.
    Routers { dimensions: usize, each: usize },
    /// Nodes are the leaves of a hierarchy; `fan` is the number of parts on each level, the topmost
    /// first.
    ///
    /// Without `rings` it is a tree of switches; a hop is a link, up or down. With `rings` it is
    /// NUMAchine (thesis, section 5.1.1): stations on local rings, and local rings on a global one.
    /// A hop is a ring on the way. NUMAchine's rings go one way, so a request and its reply
    /// together go around once, wherever the other station on the ring is: its table 5.1 has *one*
    /// latency for remote memory. For the same reason a ring is one link. A ring on which distance
    /// counts is `torus:N`.
    Hierarchy { fan: Vec<usize>, rings: bool },
}

impl Shape {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Shape::Uniform => "uniform",
            Shape::Matrix => "matrix",
            Shape::Grid { cube: true, .. } | Shape::Routers { .. } => "hypercube",
            Shape::Grid { wraps: true, .. } => "torus",
            Shape::Grid { wraps: false, .. } => "mesh",
            Shape::Hierarchy { rings: true, .. } => "ring",
            Shape::Hierarchy { rings: false, .. } => "tree",
        }
    }

    /// Hops between two nodes. For a matrix these come from its latencies instead.
    pub(super) fn hops(&self, from: usize, to: usize) -> u16 {
        let other = u16::from(from != to);
        match self {
            Shape::Uniform | Shape::Matrix => other,
            Shape::Grid { axes, wraps, .. } => {
                let (mut a, mut b, mut hops) = (from, to, 0);
                for &length in axes.iter().rev() {
                    let straight = (a % length).abs_diff(b % length);
                    hops += if *wraps {
                        straight.min(length - straight)
                    } else {
                        straight
                    };
                    (a, b) = (a / length, b / length);
                }
                hops as u16
            }
            Shape::Routers { each, .. } => {
                ((from / each) ^ (to / each)).count_ones() as u16 + other
            }
            Shape::Hierarchy { fan, rings } => {
                let level = 2 * common(fan, from, to).0 as u16;
                if *rings { level - other } else { level }
            }
        }
    }

    /// The next node on the way (see [`Topology::next_hop`](super::Topology::next_hop)).
    #[inline]
    pub(super) fn next(&self, from: usize, to: usize) -> usize {
        match self {
            Shape::Grid { axes, wraps, .. } => step(axes, *wraps, from, to),
            Shape::Routers { each, .. } => {
                let differing = (from / each) ^ (to / each);
                if differing.count_ones() <= 1 {
                    to
                } else {
                    (((from / each) ^ lowest_bit(differing)) * each) + from % each
                }
            }
            // No node is on the way: those near `to` are as far from here as `to` is.
            Shape::Uniform | Shape::Matrix | Shape::Hierarchy { .. } => to,
        }
    }

    /// Visits the links from one node to another in order.
    pub(super) fn route(&self, from: usize, to: usize, visit: &mut impl FnMut(Link)) {
        let node = |node: usize| LinkEnd::Node(Node(node as u16));
        let switch = |switch: usize| LinkEnd::Switch(switch as u16);
        if from == to {
            return;
        }
        let mut wire = |from: LinkEnd, to: LinkEnd| visit(Link::Wire { from, to });
        match self {
            Shape::Uniform | Shape::Matrix => wire(node(from), node(to)),
            Shape::Grid { axes, wraps, .. } => {
                let mut at = from;
                while at != to {
                    let next = step(axes, *wraps, at, to);
                    wire(node(at), node(next));
                    at = next;
                }
            }
            Shape::Routers { each, .. } => {
                let (mut at, end) = (from / each, to / each);
                while at != end {
                    let next = at ^ lowest_bit(at ^ end);
                    wire(switch(at), switch(next));
                    at = next;
                }
                wire(switch(end), node(to));
            }
            Shape::Hierarchy { fan, rings } => {
                let (level, ..) = common(fan, from, to);
                let up = (1..=level).map(|level| switch_above(fan, level, from));
                let down = (1..level).rev().map(|level| switch_above(fan, level, to));
                let way = up.chain(down);
                if *rings {
                    way.for_each(|ring| visit(Link::Ring(ring as u16)));
                } else {
                    let mut at = node(from);
                    for next in way.map(switch).chain([node(to)]) {
                        wire(at, next);
                        at = next;
                    }
                }
            }
        }
    }
}

fn lowest_bit(bits: usize) -> usize {
    bits & bits.wrapping_neg()
}

/// One step along the last axis on which two nodes differ.
#[inline]
fn step(axes: &[usize], wraps: bool, from: usize, to: usize) -> usize {
    let mut stride = 1;
    for &length in axes.iter().rev() {
        let (at, end) = (from / stride % length, to / stride % length);
        if at != end {
            let ascending = (end + length - at) % length;
            let up = if wraps {
                2 * ascending <= length
            } else {
                end > at
            };
            let next = if up { at + 1 } else { at + length - 1 } % length;
            return from - at * stride + next * stride;
        }
        stride *= length;
    }
    from
}

/// The lowest level of a hierarchy on which two leaves are under one switch (0 for the same leaf),
/// and how many leaves such a switch has.
fn common(fan: &[usize], a: usize, b: usize) -> (usize, usize) {
    let mut leaves = 1;
    let mut level = 0;
    while a / leaves != b / leaves {
        level += 1;
        leaves *= fan[fan.len() - level];
    }
    (level, leaves)
}

/// The switch (or ring) of this level above a leaf. Switches are numbered from 0 at the top
/// downwards.
fn switch_above(fan: &[usize], level: usize, leaf: usize) -> usize {
    let top = fan.len() - level;
    let leaves: usize = fan[top..].iter().product();
    let mut before = 0;
    let mut row = 1;
    for parts in &fan[..top] {
        before += row;
        row *= parts;
    }
    before + leaf / leaves
}
